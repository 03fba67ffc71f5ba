//! Sends a checked file to a server, run by run and part by part.

use std::{collections::HashSet, io::Read as _, time::Duration};

use bytes::Bytes;

use super::check::{Checked, Part};
use crate::{
    cli::{
        archive::{Region, progress::Progress},
        exit::CliError,
        render::{clean, say},
    },
    client::{Client, Error, Kind},
    domain::{
        export::skim::{LineKind, Skim},
        id::RunId,
    },
};

/// Events in one request, and bytes of them after which it is sent.
const EVENTS_MAX: usize = 2_000;
const BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of an artifact read at a time.
const STEP: usize = 256 * 1024;

/// Counts of what happened to the runs so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ImportCounts {
    /// Runs with new events, and the number of those events.
    pub(super) imported: u64,
    pub(super) events: u64,
    pub(super) there: u64,
    pub(super) refused: u64,
    pub(super) artifacts: u64,
}

pub(super) struct Sender {
    client: Client,
    patience: Duration,
    keep_going: bool,
    tally: ImportCounts,
}

/// The run that is being sent.
struct Sending {
    run: RunId,
    run_id: String,
    /// No event of it has been read yet.
    is_unsent: bool,
    /// Its own line, which precedes every part.
    head: String,
    part: String,
    events: usize,
    stored: u64,
    /// The error with which the server rejected it; the rest of it is skipped.
    refused: Option<Error>,
}

impl Sender {
    pub(super) fn new(client: Client, patience: Duration, keep_going: bool) -> Self {
        Self { client, patience, keep_going, tally: ImportCounts::default() }
    }

    pub(super) fn tally(&self) -> ImportCounts {
        self.tally
    }

    pub(super) async fn send(&mut self, checked: &Checked) -> anyhow::Result<()> {
        let progress = Progress::of_runs(checked.total.runs);
        // The file may have changed since it was checked.
        let (mut lines, mut skim) = (checked.log.lines(), Skim::of(checked.total));
        let (mut sending, mut bytes) = (None::<Sending>, 0);
        while let Some(line) = lines.next()? {
            bytes += line.len() as u64 + 1;
            let glance = skim.line(line).map_err(|fault| CliError::failed(fault.to_string()))?;
            match (glance, sending.as_mut()) {
                (LineKind::Run(run), _) => sending = Some(Sending::of(run, line.to_owned())),
                (LineKind::Event, Some(sending)) if sending.refused.is_none() => {
                    let parts = checked.parts.get(&sending.run).filter(|_| sending.is_unsent);
                    sending.add(line);
                    if parts.is_some() || sending.events >= EVENTS_MAX || sending.part.len() >= BYTES_MAX {
                        self.flush(sending).await?;
                    }
                    if let Some(parts) = parts.filter(|_| sending.refused.is_none()) {
                        // An artifact's bytes are sent after its run exists and before the events that mention it.
                        self.enclose(sending, parts).await?;
                    }
                }
                (LineKind::End, Some(open)) => {
                    self.flush(open).await?;
                    self.close(open);
                    sending = None;
                    progress.add(1);
                    progress.tell(self.tally.events, bytes);
                }
                _ => {}
            }
        }
        skim.finish().map_err(|fault| CliError::failed(fault.to_string()).into())
    }

    /// Sends the collected part of a run.
    async fn flush(&mut self, sending: &mut Sending) -> anyhow::Result<()> {
        if sending.events == 0 || sending.refused.is_some() {
            return Ok(());
        }
        let body = Bytes::from(format!("{}\n{}", sending.head, sending.part));
        sending.part.clear();
        sending.events = 0;
        match self.client.import_lines(&sending.run_id, body, self.patience).await {
            Ok(done) => sending.stored += done.stored,
            Err(error) => self.refuse(sending, error)?,
        }
        Ok(())
    }

    /// Sends the artifacts of a run that are missing on the server.
    async fn enclose(&mut self, sending: &mut Sending, parts: &[Part]) -> anyhow::Result<()> {
        let there = match sending.stored {
            0 => self.client.artifacts(sending.run, self.patience).await?,
            _ => Vec::new(),
        };
        let there: HashSet<_> = there.into_iter().map(|one| one.artifact_id).collect();
        for part in parts.iter().filter(|part| !there.contains(&part.enclosed.artifact_id)) {
            match self.bring(part).await {
                Ok(()) => self.tally.artifacts += 1,
                Err(error) => return self.refuse(sending, error),
            }
        }
        Ok(())
    }

    async fn bring(&self, part: &Part) -> Result<(), Error> {
        let one = &part.enclosed;
        let (run, artifact) = (one.run_id.to_string(), one.artifact_id.to_string());
        let segments = ["runs", run.as_str(), "artifacts", artifact.as_str()];
        let query = [
            ("name", one.name.as_str().to_owned()),
            ("event_id", part.event_id.as_str().to_owned()),
            ("sha256", one.sha256.to_string()),
        ];
        self.client
            .insist(self.patience, |_| {
                let body = (reqwest::Body::wrap_stream(chunks(part.bytes.clone())), one.size);
                self.client.import_artifact(&segments, &query, one.media_type.as_str(), body)
            })
            .await
    }

    /// Records that the server rejected a run; an error unless `--keep-going` was given.
    fn refuse(&mut self, sending: &mut Sending, error: Error) -> anyhow::Result<()> {
        let is_about_it = matches!(error.kind, Kind::Invalid | Kind::NotFound);
        if is_about_it && self.keep_going {
            say(format!("run {}: {}", sending.run_id, clean(&error.to_string())));
            sending.refused = Some(error);
            return Ok(());
        }
        let context = format!("run {}", sending.run_id);
        if sending.stored > 0 {
            // A part of it is stored; the same command continues from here.
            self.tally.events += sending.stored;
        }
        Err(anyhow::Error::from(error).context(context))
    }

    fn close(&mut self, sending: &Sending) {
        self.tally.events += sending.stored;
        match (&sending.refused, sending.stored) {
            (Some(_), _) => self.tally.refused += 1,
            (None, 0) => self.tally.there += 1,
            (None, _) => self.tally.imported += 1,
        }
    }
}

impl Sending {
    fn of(run: RunId, head: String) -> Self {
        let part = String::new();
        Self { run, run_id: run.to_string(), is_unsent: true, head, part, events: 0, stored: 0, refused: None }
    }

    fn add(&mut self, line: &str) {
        self.is_unsent = false;
        self.part.push_str(line);
        self.part.push('\n');
        self.events += 1;
    }
}

/// The bytes of a piece of a file, a step at a time.
fn chunks(region: Region) -> impl futures::Stream<Item = std::io::Result<Bytes>> + Send {
    futures::stream::try_unfold(region, |mut region| async move {
        let mut buffer = vec![0; STEP];
        let read = region.read(&mut buffer)?;
        buffer.truncate(read);
        Ok((read > 0).then(|| (Bytes::from(buffer), region)))
    })
}
