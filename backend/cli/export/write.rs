//! The lines of an export, each verified before it is written.

use std::{collections::HashSet, io::Write};

use super::PATIENCE;
use crate::{
    cli::{archive::progress::Progress, exit::CliError},
    client::{Client, Error, Kind},
    domain::{
        export::{
            Piece, Total, header,
            index::{AttachedArtifact, mention},
            total_line,
            verify::{Seen, Verifier},
        },
        id::RunId,
        principal::OwnerId,
    },
};

/// The result of an export.
#[derive(Clone, Debug)]
pub(super) struct ExportReport {
    pub(super) total: Total,
    /// Artifacts that the log mentions.
    pub(super) mentions: u64,
    /// Artifacts whose bytes are included.
    pub(super) artifacts: u64,
    /// Runs that could not be exported, and why.
    pub(super) left_out: Vec<(RunId, String)>,
}

/// Why a run is left out; the others are still exported.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NotExported(String);

pub(super) struct ExportWriter<'a> {
    client: Client,
    out: &'a mut (dyn Write + Send),
    verifier: Verifier,
    /// Artifacts that all runs mention, and those that the current run mentions.
    mentions: u64,
    mentioned: HashSet<AttachedArtifact>,
    left_out: Vec<(RunId, String)>,
    events: u64,
    bytes: u64,
}

impl<'a> ExportWriter<'a> {
    pub(super) fn new(client: Client, out: &'a mut (dyn Write + Send)) -> anyhow::Result<Self> {
        let mut teller = Self {
            client,
            out,
            verifier: Verifier::default(),
            mentions: 0,
            mentioned: HashSet::new(),
            left_out: Vec::new(),
            events: 0,
            bytes: 0,
        };
        teller.write(&header())?;
        Ok(teller)
    }

    /// Exports one run; returns the artifacts it mentions. A run that was deleted in the meantime is skipped, and one
    /// that cannot be exported is left out.
    pub(super) async fn run(&mut self, run: RunId, progress: &Progress) -> anyhow::Result<HashSet<AttachedArtifact>> {
        let (mut lines, mut retries) = (0, self.client.retries(PATIENCE));
        self.mentioned.clear();
        loop {
            let had = lines;
            let error = match self.try_run(run, &mut lines, progress).await {
                Ok(()) => return Ok(std::mem::take(&mut self.mentioned)),
                Err(error) => error,
            };
            let known = error.downcast_ref::<Error>();
            if known.is_some_and(|error| error.kind == Kind::NotFound) && lines == 0 {
                return Ok(HashSet::new());
            }
            if let Some(why) = unfit(&error).filter(|_| lines == 0) {
                self.left_out.push((run, why));
                return Ok(HashSet::new());
            }
            let Some(passing) = known.filter(|error| error.kind.is_retryable()) else { return Err(error) };
            if lines > had {
                retries.progressed();
            }
            if !retries.wait(passing.retry_after).await {
                return Err(error);
            }
        }
    }

    /// Reads a run's lines, of which `lines` are written already: a log only grows, so they are the same.
    async fn try_run(&mut self, run: RunId, lines: &mut usize, progress: &Progress) -> anyhow::Result<()> {
        let mut export = self.client.export_run(&run.to_string()).await?;
        // The first two identify the run and its place; once they are written the run can no longer be left out.
        let first = [export.next().await?, export.next().await?];
        if *lines == 0 {
            self.check(&first)?;
        }
        let mut first = first.into_iter();
        for number in 0.. {
            let line = match first.next() {
                Some(line) => line,
                None => export.next().await?,
            };
            if number < *lines {
                continue;
            }
            let seen = self.write(&line)?;
            *lines += 1;
            match seen {
                Seen::Event(event) => {
                    self.events += 1;
                    if let Some(mention) = mention(&event) {
                        self.mentions += 1;
                        self.mentioned.insert(mention.enclosed);
                    }
                    if self.events.is_multiple_of(1_000) {
                        progress.tell(self.events, self.bytes);
                    }
                }
                Seen::End(_) => break,
                _ => {}
            }
        }
        progress.tell(self.events, self.bytes);
        Ok(())
    }

    fn check(&self, first: &[String; 2]) -> Result<(), NotExported> {
        let [head, created] = first;
        let piece = Piece::read(&format!("{head}\n{created}\n"), &OwnerId::trusted(""));
        let piece = piece.map_err(|(_, fault)| NotExported(fault.to_string()))?;
        piece
            .events
            .iter()
            .try_for_each(|created| self.verifier.check_next(&piece.subject, created))
            .map_err(|fault| NotExported(fault.to_string()))
    }

    fn write(&mut self, line: &str) -> anyhow::Result<Seen> {
        let seen = self.verifier.line(line);
        let seen = seen.map_err(|fault| CliError::failed(format!("the server's export does not verify: {fault}")))?;
        self.out.write_all(line.as_bytes())?;
        self.out.write_all(b"\n")?;
        self.bytes += line.len() as u64 + 1;
        Ok(seen)
    }

    /// Writes the last line.
    pub(super) fn finish(mut self) -> anyhow::Result<ExportReport> {
        let total = self.verifier.so_far();
        self.write(&total_line(&total))?;
        Ok(ExportReport { total, mentions: self.mentions, artifacts: 0, left_out: self.left_out })
    }
}

/// Why a run is left out, if the error is a reason for that.
fn unfit(error: &anyhow::Error) -> Option<String> {
    if let Some(NotExported(why)) = error.downcast_ref() {
        return Some(why.clone());
    }
    let refusal = error.downcast_ref::<Error>()?;
    let code = refusal.code.as_deref().filter(|code| ["log_incomplete", "too_large"].contains(code))?;
    Some(format!("{} ({code})", refusal.detail))
}
