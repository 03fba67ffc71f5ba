//! Sends batches, and finds the one event that caused a batch to be rejected.

use std::{fmt::Write as _, time::Duration};

use bytes::Bytes;
use serde_json::json;
use uuid::Uuid;

use super::line::Line;
use crate::{
    cli::{
        exit::CliError,
        render::{clean, print, say},
    },
    client::{Client, Error},
    wire::{
        events::{EmitReply, EmitReplyEvent},
        runs::CreateRun,
    },
};

/// Counts of what happened to the events so far.
#[derive(Debug, Default)]
struct EmitCounts {
    stored: u64,
    duplicate: u64,
    ephemeral: u64,
    refused: u64,
    first_seq: Option<i64>,
    last_seq: Option<i64>,
}

/// The run that the events go to.
pub(super) enum Run {
    There(String),
    /// Created before the first event: input without a good event leaves no run behind.
    New(Box<CreateRun>),
    Created(String),
}

pub(super) struct Sender {
    client: Client,
    run: Run,
    /// The prefix of the ids that this command assigned.
    ids: String,
    patience: Duration,
    keep_going: bool,
    json: bool,
    tally: EmitCounts,
}

impl Sender {
    pub(super) fn new(client: Client, run: Run, ids: Uuid, patience: Duration, keep_going: bool, json: bool) -> Self {
        Self { client, run, ids: ids.to_string(), patience, keep_going, json, tally: EmitCounts::default() }
    }

    /// Sends a batch until it is stored. A rejected batch is sent again event by event: nothing of it was stored, and
    /// this stores the valid events and reports the line number of the invalid one.
    pub(super) async fn send(&mut self, lines: Vec<Line>) -> anyhow::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        self.create().await?;
        match self.store(&lines).await {
            Err(error) if lines.len() > 1 && is_about_one(&error) => {
                for line in lines {
                    match self.store(std::slice::from_ref(&line)).await {
                        Err(error) if is_about_one(&error) => self.refuse(line.number, &why(&error))?,
                        outcome => self.note(std::slice::from_ref(&line), &outcome?)?,
                    }
                }
                Ok(())
            }
            Err(error) if is_about_one(&error) => self.refuse(lines[0].number, &why(&error)),
            outcome => self.note(&lines, &outcome?),
        }
    }

    /// Creates the run, unless it exists.
    async fn create(&mut self) -> anyhow::Result<()> {
        let Run::New(new) = &self.run else { return Ok(()) };
        let run_id = self.client.create_run(new).await?.run_id.to_string();
        say(format!("run   {run_id}"));
        say(format!("page  {}", clean(&self.client.page_of(&run_id))));
        self.run = Run::Created(run_id);
        Ok(())
    }

    /// The run's id, once there is one.
    fn run_id(&self) -> &str {
        match &self.run {
            Run::There(run_id) | Run::Created(run_id) => run_id,
            Run::New(_) => "",
        }
    }

    /// The run that this command created.
    pub(super) fn created(&self) -> Option<&str> {
        matches!(self.run, Run::Created(_)).then(|| self.run_id())
    }

    /// Whether a run was to be created and no event came for it.
    pub(super) fn is_without_run(&self) -> bool {
        matches!(self.run, Run::New(_))
    }

    /// Counts and reports a bad line; an error unless `--keep-going` was given.
    pub(super) fn refuse(&mut self, number: u64, why: &str) -> anyhow::Result<()> {
        self.tally.refused += 1;
        let what = if number == 0 { clean(why) } else { format!("line {number}: {}", clean(why)) };
        if !self.keep_going {
            return Err(CliError::failed(what).into());
        }
        say(what);
        Ok(())
    }

    pub(super) fn refused(&self) -> u64 {
        self.tally.refused
    }

    /// Whether the server acknowledged anything.
    pub(super) fn acknowledged(&self) -> bool {
        self.tally.stored + self.tally.duplicate + self.tally.ephemeral > 0
    }

    /// What happened to the events so far, as one line.
    pub(super) fn summary(&self) -> String {
        let EmitCounts { stored, duplicate, ephemeral, refused, first_seq, last_seq } = &self.tally;
        let place = match (first_seq, last_seq) {
            (Some(first), Some(last)) if first == last => format!(" (seq {first})"),
            (Some(first), Some(last)) => format!(" (seq {first} to {last})"),
            _ => String::new(),
        };
        let events = if *stored == 1 { "event" } else { "events" };
        let mut parts = vec![format!("{stored} {events} stored{place}")];
        for (count, what) in [(duplicate, "stored before"), (ephemeral, "streamed only"), (refused, "rejected")] {
            parts.extend((*count > 0).then(|| format!("{count} {what}")));
        }
        parts.join(", ")
    }

    async fn store(&self, lines: &[Line]) -> Result<EmitReply, Error> {
        let mut body = String::with_capacity(lines.iter().map(|line| line.event.len() + 1).sum());
        for line in lines {
            body.push_str(&line.event);
            body.push('\n');
        }
        self.client.emit_ndjson_until_stored(self.run_id(), Bytes::from(body), self.patience).await
    }

    fn note(&mut self, lines: &[Line], ack: &EmitReply) -> anyhow::Result<()> {
        let mut acks = String::new();
        for (line, event) in lines.iter().zip(&ack.events) {
            match event.seq {
                None => self.tally.ephemeral += 1,
                // An id of this command can only have been stored by its own earlier attempt.
                Some(_) if event.duplicate && !is_ours(event, &self.ids) => self.tally.duplicate += 1,
                Some(seq) => {
                    self.tally.stored += 1;
                    self.tally.first_seq = self.tally.first_seq.or(Some(seq));
                    self.tally.last_seq = self.tally.last_seq.max(Some(seq));
                }
            }
            let number = (line.number > 0).then_some(line.number);
            let ack = json!({"run_id": self.run_id(), "line": number, "seq": event.seq, "event_id": event.event_id,
                "duplicate": event.duplicate});
            _ = writeln!(acks, "{ack}");
        }
        if self.json {
            print(&acks)?;
        }
        Ok(())
    }
}

fn is_ours(event: &EmitReplyEvent, ids: &str) -> bool {
    event.event_id.as_ref().is_some_and(|event_id| event_id.starts_with(ids))
}

/// Whether the rejection can be due to a single event; everything else concerns the run or the caller.
fn is_about_one(error: &Error) -> bool {
    matches!(error.status, Some(400 | 413 | 422))
}

fn why(error: &Error) -> String {
    let hint = error.hint.as_deref().map(|hint| format!(" ({hint})")).unwrap_or_default();
    format!("{}{hint}", error.detail)
}
