//! `runreel runs answer`: what a run waits for, and a person's answer.

use anyhow::Result;
use serde_json::{Value, json};

use super::Common;
use crate::{
    cli::{
        exit::CliError,
        render::{clean, clip, print, say},
        run_arg::RunArg,
    },
    client::Client,
    domain::id::SpanId,
};

/// Longest prompt shown on one line, characters.
const PROMPT_CHARS_MAX: usize = 200;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Answer {
    /// The run: its id, the beginning of it, or last
    run: RunArg,
    /// The decision; without one, the open interrupts are printed
    #[arg(value_parser = ["approve", "reject", "respond"])]
    decision: Option<String>,
    /// The value of the answer: JSON, otherwise taken as text
    #[arg(requires = "decision")]
    value: Option<String>,
    /// Id of the interrupt, when the run has more than one
    #[arg(long, value_name = "ID")]
    interrupt: Option<SpanId>,
    #[command(flatten)]
    common: Common,
}

pub(super) async fn run(args: &Answer) -> Result<()> {
    let client = args.common.connection.client()?;
    let run = args.run.resolve(&client).await?.to_string();
    let Some(decision) = &args.decision else {
        let open = open_of(&client, &run).await?;
        let lines = open.iter().map(|open| if args.common.json { format!("{open}\n") } else { line(open) });
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
    say(told(&answered));
    Ok(())
}

/// The open interrupts of a run.
pub(in crate::cli) async fn open_of(client: &Client, run: &str) -> Result<Vec<Value>> {
    Ok(open_interrupts(&interrupt_events(client, run).await?))
}

/// Answers an interrupt of a run, which must be its only open one unless it is named; returns the run.
pub(in crate::cli) async fn give(
    client: &Client,
    run: &str,
    (decision, value): (&str, Option<&str>),
    named: Option<&SpanId>,
) -> Result<Value> {
    let interrupt = match (named, open_of(client, run).await?.as_slice()) {
        (Some(interrupt), _) => interrupt.as_str().to_owned(),
        (None, [only]) => only["span_id"].as_str().unwrap_or_default().to_owned(),
        (None, []) => return Err(CliError::failed("the run has no open interrupt").into()),
        (None, _) => {
            let hint = format!("list them with: runreel runs answer {run}");
            let what = "the run has more than one open interrupt; choose one with --interrupt";
            return Err(CliError { hint: Some(hint), ..CliError::usage(what) }.into());
        }
    };
    let value = value.map(|text| serde_json::from_str(text).unwrap_or_else(|_| json!(text)));
    let answer = json!({ "interrupt_id": interrupt, "decision": decision, "value": value });
    Ok(client.resume(run, &answer).await?)
}

/// What came of an answer.
pub(in crate::cli) fn told(answered: &Value) -> String {
    format!("answered; the run is {}", clean(answered["status"].as_str().unwrap_or("unknown")))
}

async fn interrupt_events(client: &Client, run: &str) -> Result<Vec<Value>> {
    let (mut events, mut after) = (Vec::new(), "0".to_owned());
    loop {
        let path = format!("/api/runs/{run}/events?types=interrupt.*,run.*&limit=1000&after={after}");
        let page = client.get_json(&path).await?;
        events.extend(page["events"].as_array().into_iter().flatten().cloned());
        page["last_id"].as_str().unwrap_or("0").clone_into(&mut after);
        if page["has_more"] != json!(true) {
            return Ok(events);
        }
    }
}

/// The unresolved requests of a run that has not ended.
fn open_interrupts(events: &[Value]) -> Vec<Value> {
    let is = |event: &Value, kind: &str| event["type"] == kind;
    if events.iter().any(|event| ["run.completed", "run.failed", "run.cancelled"].iter().any(|end| is(event, end))) {
        return Vec::new();
    }
    let resolved = |id: &Value| events.iter().any(|event| is(event, "interrupt.resolved") && event["span_id"] == *id);
    let open = |event: &&Value| is(event, "interrupt.requested") && !resolved(&event["span_id"]);
    events.iter().filter(open).cloned().collect()
}

/// An open interrupt, on one line.
pub(in crate::cli) fn line(open: &Value) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let payload = &open["payload"];
    let prompt = if payload["prompt"].is_null() { text(payload) } else { text(&payload["prompt"]) };
    let id = clean(open["span_id"].as_str().unwrap_or_default());
    format!("{id}  {}\n", clip(&clean(&prompt), PROMPT_CHARS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, id: &str) -> Value {
        json!({ "type": kind, "span_id": id, "payload": { "prompt": format!("{id}?") } })
    }

    #[test]
    fn a_run_waits_for_what_was_asked_and_not_resolved_until_it_ends() {
        let mut log = vec![
            event("interrupt.requested", "a"),
            event("interrupt.requested", "b"),
            event("interrupt.resolved", "a"),
        ];
        assert_eq!(open_interrupts(&log), [event("interrupt.requested", "b")]);
        assert_eq!(line(&log[1]), "b  b?\n");
        log.push(event("run.cancelled", ""));
        assert!(open_interrupts(&log).is_empty());
    }
}
