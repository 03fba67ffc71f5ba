//! `runreel runs answer`: what a run waits for, and a person's answer.

use anyhow::Result;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::{Value, value::RawValue};

use super::Common;
use crate::{
    cli::{
        exit::CliError,
        render::{clean, clip, print, say},
        run_arg::RunArg,
    },
    client::Client,
    domain::{
        event::EventKind,
        id::SpanId,
        interrupt::Decision,
        json::{InvalidJson, Json},
        run::Status,
    },
    wire::{
        events::RunEvent,
        runs::{Resume, Run},
    },
};

/// Longest prompt shown on one line, characters.
const PROMPT_CHARS_MAX: usize = 200;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Answer {
    /// The run: its id, the beginning of it, or last
    run: RunArg,
    /// The decision; without one, the open interrupts are printed
    #[arg(value_parser = decision())]
    decision: Option<Decision>,
    /// The value of the answer: JSON, otherwise taken as text
    #[arg(requires = "decision")]
    value: Option<String>,
    /// Id of the interrupt, when the run has more than one
    #[arg(long, value_name = "ID")]
    interrupt: Option<SpanId>,
    #[command(flatten)]
    common: Common,
}

fn decision() -> impl TypedValueParser<Value = Decision> {
    PossibleValuesParser::new(["approve", "reject", "respond"]).map(|word| match word.as_str() {
        "approve" => Decision::Approve,
        "reject" => Decision::Reject,
        _ => Decision::Respond,
    })
}

pub(super) async fn run(args: &Answer) -> Result<()> {
    let client = args.common.connection.client()?;
    let run = args.run.resolve(&client).await?.to_string();
    let Some(decision) = args.decision else {
        let open = open_of(&client, &run).await?;
        let lines = open.iter().map(|open| if args.common.json { format!("{}\n", open.json) } else { open.line() });
        print(&lines.collect::<String>())?;
        if open.is_empty() {
            say("the run has no open interrupt");
        }
        return Ok(());
    };
    let answered = give(&client, &run, (decision, args.value.as_deref()), args.interrupt.as_ref()).await?;
    if args.common.json {
        print(&format!("{answered}\n"))?;
    }
    say(told(&answered)?);
    Ok(())
}

/// An open interrupt.
#[derive(Debug)]
pub(in crate::cli) struct Asked {
    /// Its `interrupt.requested`, as the server wrote it.
    json: Json,
    event: RunEvent,
}

impl Asked {
    /// Id and prompt, on one line.
    pub(in crate::cli) fn line(&self) -> String {
        let payload = &self.event.payload;
        let prompt = payload.member::<Value>("prompt").filter(|prompt| !prompt.is_null());
        let prompt = match prompt.or_else(|| serde_json::from_str(payload.as_str()).ok()).unwrap_or_default() {
            Value::String(text) => text,
            other => other.to_string(),
        };
        format!("{}  {}\n", clean(self.id()), clip(&clean(&prompt), PROMPT_CHARS_MAX))
    }

    fn id(&self) -> &str {
        self.event.span_id.as_deref().unwrap_or_default()
    }
}

/// The open interrupts of a run.
pub(in crate::cli) async fn open_of(client: &Client, run: &str) -> Result<Vec<Asked>> {
    let (mut open, mut after) = (Vec::new(), "0".to_owned());
    loop {
        let query = [("types", "interrupt.*,run.*"), ("limit", "1000"), ("after", &after)];
        let page = client.events_page(run, &query).await?;
        for event in page.events {
            follow(&mut open, event)?;
        }
        after = page.last_id;
        if !page.has_more {
            return Ok(open);
        }
    }
}

/// Takes the next event of the log: a request is open until it is resolved or the run ends.
fn follow(open: &mut Vec<Asked>, json: Json) -> serde_json::Result<()> {
    let event: RunEvent = serde_json::from_str(json.as_str())?;
    match EventKind::parse(&event.event_type) {
        Some(EventKind::InterruptRequested) => open.push(Asked { json, event }),
        Some(EventKind::InterruptResolved) => open.retain(|asked| asked.event.span_id != event.span_id),
        Some(kind) if kind.status().is_some_and(Status::is_terminal) => open.clear(),
        _ => {}
    }
    Ok(())
}

/// Answers an interrupt of a run, which must be its only open one unless it is named; returns the run.
pub(in crate::cli) async fn give(
    client: &Client,
    run: &str,
    (decision, value): (Decision, Option<&str>),
    named: Option<&SpanId>,
) -> Result<Box<RawValue>> {
    let interrupt_id = match (named, open_of(client, run).await?.as_slice()) {
        (Some(interrupt), _) => interrupt.clone(),
        (None, [only]) => SpanId::trusted(only.id()),
        (None, []) => return Err(CliError::failed("the run has no open interrupt").into()),
        (None, _) => {
            let hint = format!("list them with: runreel runs answer {run}");
            let what = "the run has more than one open interrupt; choose one with --interrupt";
            return Err(CliError { hint: Some(hint), ..CliError::usage(what) }.into());
        }
    };
    let value = value.map(|text| match Json::parse(text) {
        Err(InvalidJson::Syntax) => Ok(Json::of(&text)),
        parsed => parsed,
    });
    let value = value.transpose().map_err(|flaw| CliError::usage(format!("the value: {flaw}")))?;
    Ok(client.post(&["runs", run, "resume"], &Resume { interrupt_id, decision, value }).await?)
}

/// The result of an answer.
pub(in crate::cli) fn told(answered: &RawValue) -> Result<String> {
    let run: Run = serde_json::from_str(answered.get())?;
    Ok(format!("answered; the run is {}", run.status.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(kind: &str, id: &str) -> Json {
        Json::of(&json!({ "run_id": "0198c0de-0000-7000-8000-000000000001", "seq": 1, "type": kind, "role": "agent",
            "agent": null, "owner_id": "00", "span_id": id, "at": "2025-11-13T02:00:00Z",
            "payload": { "prompt": format!("{id}?") } }))
    }

    #[test]
    fn a_run_waits_for_what_was_asked_and_not_resolved_until_it_ends() {
        let mut open = Vec::new();
        for (kind, id) in [("interrupt.requested", "a"), ("interrupt.requested", "b"), ("interrupt.resolved", "a")] {
            follow(&mut open, event(kind, id)).unwrap();
        }
        assert_eq!(open.iter().map(Asked::line).collect::<Vec<_>>(), ["b  b?\n"]);
        assert_eq!(open[0].json, event("interrupt.requested", "b"));
        follow(&mut open, event("run.cancelled", "")).unwrap();
        assert!(open.is_empty());
    }
}
