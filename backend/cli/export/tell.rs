//! The lines of an export, each checked before it is written.

use std::{collections::HashSet, io::Write};

use tokio::time::Instant;

use super::PATIENCE;
use crate::{
    cli::{archive::progress::Progress, exit::Complaint},
    client::{
        Client, Error, Kind,
        pace::{Backoff, Natural, Pace as _},
    },
    domain::{
        export::{
            Total, header,
            index::{Enclosed, mention},
            total_line,
            verify::{Seen, Verifier},
        },
        id::RunId,
    },
};

/// What an export came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) total: Total,
    /// Artifacts that the log tells of.
    pub(super) mentions: u64,
    /// Artifacts whose bytes came along.
    pub(super) artifacts: u64,
}

pub(super) struct Teller<'a> {
    client: Client,
    out: &'a mut (dyn Write + Send),
    verifier: Verifier,
    /// Artifacts that all runs tell of, and which the run at hand does.
    mentions: u64,
    mentioned: HashSet<Enclosed>,
    events: u64,
    bytes: u64,
}

impl<'a> Teller<'a> {
    pub(super) fn new(client: Client, out: &'a mut (dyn Write + Send)) -> anyhow::Result<Self> {
        let mut teller = Self {
            client,
            out,
            verifier: Verifier::default(),
            mentions: 0,
            mentioned: HashSet::new(),
            events: 0,
            bytes: 0,
        };
        teller.write(&header())?;
        Ok(teller)
    }

    /// Tells one run; gives the artifacts it tells of. One that has been deleted since is left out.
    pub(super) async fn run(&mut self, run: RunId, progress: &Progress) -> anyhow::Result<HashSet<Enclosed>> {
        let (mut lines, mut backoff, mut heard) = (0, Backoff::default(), Instant::now());
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
            let Some(passing) = known.filter(|error| error.kind.is_transient()) else { return Err(error) };
            if lines > had {
                heard = Instant::now();
                backoff.reset();
            }
            let wait = backoff.next(passing.retry_after, Natural.jitter());
            if heard.elapsed() + wait > PATIENCE {
                return Err(error);
            }
            Natural.wait(wait).await;
        }
    }

    /// Reads a run's lines, of which `lines` are written already: a log only grows, so they are the same.
    async fn try_run(&mut self, run: RunId, lines: &mut usize, progress: &Progress) -> anyhow::Result<()> {
        let mut export = self.client.export_run(&run.to_string()).await?;
        for number in 0.. {
            let line = export.next().await?;
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

    fn write(&mut self, line: &str) -> anyhow::Result<Seen> {
        let seen = self.verifier.line(line);
        let seen =
            seen.map_err(|fault| Complaint::failed(format!("what the server exports does not verify: {fault}")))?;
        self.out.write_all(line.as_bytes())?;
        self.out.write_all(b"\n")?;
        self.bytes += line.len() as u64 + 1;
        Ok(seen)
    }

    /// Writes the last line.
    pub(super) fn finish(mut self) -> anyhow::Result<Told> {
        let total = self.verifier.so_far();
        self.write(&total_line(&total))?;
        Ok(Told { total, mentions: self.mentions, artifacts: 0 })
    }
}
