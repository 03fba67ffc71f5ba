//! `runreel emit`: events from a script into a run.
//!
//! Every event gets an `event_id` before it is sent, so a batch can be retried until it is acknowledged: a server
//! restart in between costs time, not events, and stores none twice.

use std::{io::IsTerminal as _, process::ExitCode, time::Duration};

use self::{
    line::{Line, prepare},
    send::{Run, Sender},
    stdin::Stdin,
};
use super::{
    connection::Connection,
    exit::{CliError, FAILED, INTERRUPTED},
    render::say,
    run_arg::RunArg,
};
use uuid::Uuid;

use crate::{
    clock::{Clock, IdSource},
    config::retention::Ttl,
    domain::{
        context::Role,
        event::EventType,
        id::{ExternalId, Name, RunId, SpanId, ThreadId, Title},
        json::Json,
    },
    wire::runs::CreateRun,
};

mod line;
mod send;
mod stdin;

/// Emit events into a run: one from flags, or many from stdin
///
/// Each line of stdin is an event. Lines are sent as soon as stdin pauses, and retried until they are stored. Without a
/// run, one is created.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "An event, one line of JSON (broken here only to fit):
  {\"type\": \"tool.started\", \"payload\": {…}, \"span_id\": \"…\",
   \"parent_span_id\": \"…\", \"event_id\": \"…\", \"at\": \"…\"}
  Only the type is required.

Examples:
  runreel emit --title 'Nightly' --end completed < events.ndjson
  echo '{\"type\":\"log.info\",\"payload\":{\"message\":\"hello\"}}' | runreel emit
  runreel emit 0198c0de-… --type tool.started --span c1 \\
    --payload '{\"name\":\"search\"}'
  my-agent | runreel emit --agent my-agent --end completed --json > acks.ndjson")]
pub(super) struct Args {
    /// The run: its id, the beginning of it, or last; without one, a new run is created with the first event, and its
    /// id and the address of its page are printed on stderr
    run: Option<RunArg>,
    /// Close the run when stdin ends
    #[arg(long, value_name = "HOW", value_parser = ["completed", "failed"])]
    end: Option<String>,
    /// Skip events that are rejected instead of stopping at the first; the exit code is still 1
    #[arg(long)]
    keep_going: bool,
    /// Print each acknowledgement as one line of JSON
    #[arg(long)]
    json: bool,
    /// How long to retry while the server is unreachable or busy
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    retry_timeout: u64,
    #[command(flatten)]
    one: OneEvent,
    #[command(flatten)]
    new_run: NewRun,
    #[command(flatten)]
    connection: Connection,
}

// Not a doc comment: clap would show it as the text of the command.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "One event")]
struct OneEvent {
    /// Emit one event of this type; stdin is not read
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<EventType>,
    /// Its payload
    #[arg(long, value_name = "JSON", requires = "event_type", value_parser = payload)]
    payload: Option<Json>,
    /// The span it starts, ends or belongs to
    #[arg(long, value_name = "ID", requires = "event_type")]
    span: Option<SpanId>,
    /// The parent of that span
    #[arg(long, value_name = "ID", requires = "event_type")]
    parent_span: Option<SpanId>,
}

// Not a doc comment: clap would show it as the text of the command.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "A new run")]
struct NewRun {
    /// The agent that acts in it
    #[arg(long, value_name = "NAME", conflicts_with = "run")]
    agent: Option<Name>,
    /// What it is about
    #[arg(long, value_name = "TEXT", conflicts_with = "run")]
    title: Option<Title>,
    /// The thread it belongs to
    #[arg(long, value_name = "THREAD_ID", conflicts_with = "run")]
    thread: Option<ThreadId>,
    /// Its role
    #[arg(long, conflicts_with = "run", value_parser = ["agent", "supervisor", "worker"])]
    role: Option<String>,
    /// How long it stays after its end: seconds, or a number with s, m, h or d; by default as the server says
    #[arg(long, value_name = "TIME", conflicts_with = "run")]
    ttl: Option<Ttl>,
    /// A tag; can be given several times
    #[arg(long = "tag", value_name = "TAG", conflicts_with = "run")]
    tags: Vec<Name>,
    /// Its id, a UUID version 7 of today; repeating the command then finds the same run
    #[arg(long, value_name = "UUID", conflicts_with = "run")]
    run_id: Option<RunId>,
    /// Its id in your own system; the run that has it already is continued
    #[arg(long, value_name = "ID", conflicts_with = "run")]
    external_id: Option<ExternalId>,
}

fn payload(text: &str) -> Result<Json, String> {
    Json::parse(text).map_err(|flaw| flaw.to_string())
}

/// Emits until stdin ends: 0 if everything is stored, 1 if something was rejected, 130 after Ctrl-C.
pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (client, ids) = (args.connection.client()?, IdSource::random(Clock::System).uuid());
    // A malformed event must not leave behind a run that was created for it.
    let one = match args.one.event_type {
        Some(_) => prepare(one_event(&args.one).as_bytes(), &format!("{ids}-1")).map_err(CliError::usage)?,
        None => None,
    };
    let run = match args.run {
        Some(run) => Run::There(run.resolve(&client).await?.to_string()),
        None => Run::New(Box::new(args.new_run.into())),
    };
    let patience = Duration::from_secs(args.retry_timeout);
    let mut sender = Sender::new(client.clone(), run, ids, patience, args.keep_going, args.json);
    let outcome = tokio::select! {
        outcome = feed(&mut sender, one, args.end.as_deref(), ids) => Some(outcome),
        _ = tokio::signal::ctrl_c() => None,
    };
    let Some(outcome) = outcome else {
        say(format!("interrupted; {}; events that were not acknowledged may or may not be stored", sender.summary()));
        return Ok(ExitCode::from(INTERRUPTED));
    };
    if outcome.is_ok() || sender.acknowledged() {
        say(sender.summary());
    }
    if let (Err(_), Some(run)) = (&outcome, sender.created()) {
        say(format!("the run was created and is still open; end it with: runreel runs cancel {run}"));
    }
    outcome?;
    if let Some(run) = sender.created().filter(|_| args.end.is_none()) {
        // One of the events may have ended it.
        let is_open = client.run(run).await.is_ok_and(|run| run.ended_at.is_none());
        if is_open {
            say(format!("the run stays open; end it with: runreel emit {run} --type run.completed"));
        }
    }
    if sender.is_without_run() && sender.refused() == 0 {
        let hint =
            "pipe events into it, one JSON object a line, or give one with --type, or end the new run with --end";
        return Err(CliError::failed("stdin had no event, so no run was created").with_hint(hint).into());
    }
    Ok(if sender.refused() > 0 { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

impl From<NewRun> for CreateRun {
    fn from(NewRun { agent, title, thread, role, ttl, tags, run_id, external_id }: NewRun) -> Self {
        let (thread_id, role, ttl_s) = (thread, role.and_then(|role| Role::parse(&role)), ttl.map(|ttl| ttl.0));
        Self { run_id, external_id, thread_id, agent, role, title, tags, ttl_s, ..Self::default() }
    }
}

/// Sends the one event from the flags, else the events from stdin, then the end.
async fn feed(sender: &mut Sender, one: Option<String>, end: Option<&str>, ids: Uuid) -> anyhow::Result<()> {
    match one {
        Some(event) => sender.send(vec![Line { number: 0, event }]).await?,
        None => feed_stdin(sender, ids).await?,
    }
    if let Some(end) = end {
        let event = format!(r#"{{"event_id":"{ids}-end","type":"run.{end}"}}"#);
        sender.send(vec![Line { number: 0, event }]).await?;
    }
    Ok(())
}

async fn feed_stdin(sender: &mut Sender, ids: Uuid) -> anyhow::Result<()> {
    if std::io::stdin().is_terminal() {
        say("reading events from the terminal: one JSON object per line, Ctrl-D ends");
    }
    let mut stdin = Stdin::open();
    while let Some(lines) = stdin.batch().await? {
        let mut batch = Vec::with_capacity(lines.len());
        for (number, bytes) in lines {
            match prepare(&bytes, &format!("{ids}-{number}")) {
                Ok(event) => batch.extend(event.map(|event| Line { number, event })),
                Err(why) => {
                    // Everything before the bad line is sent first: what is stored is a prefix of the input.
                    sender.send(std::mem::take(&mut batch)).await?;
                    sender.refuse(number, &why)?;
                }
            }
        }
        sender.send(batch).await?;
    }
    Ok(())
}

fn one_event(event: &OneEvent) -> String {
    let mut members = vec![("type", event.event_type.as_ref().map(Json::of))];
    members.push(("span_id", event.span.as_ref().map(Json::of)));
    members.push(("parent_span_id", event.parent_span.as_ref().map(Json::of)));
    members.push(("payload", event.payload.clone()));
    let members = members.into_iter().filter_map(|(name, value)| Some(format!(r#""{name}":{}"#, value?)));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests;
