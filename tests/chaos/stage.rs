//! A stage: servers on a database, a tree of runs, writers and readers of them, and the verdict at the end.

use std::{
    fmt,
    net::SocketAddr,
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use anyhow::Context as _;
use runreel::{
    client::Client,
    domain::{
        context::Role,
        id::{Name, Title},
    },
    wire::runs::CreateRun,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    cluster::Cluster,
    judge::{Run, Table, Tally, judge_reader, judge_rows, judge_table},
    power::Machine,
    progress,
    proxy::Proxy,
    reader::{Manner, Names, Reader, Target, lock},
    site::{Home, Server, Shared, Site},
    table,
    writer::Traffic,
};

/// Within this time after the last fault every reader must be at the tail.
const TAIL_MAX: Duration = Duration::from_secs(10);
/// Longest wait for late readers, which first read everything.
const SETTLE_MAX: Duration = Duration::from_mins(1);
/// A server that is asked to end promises to be gone within this time.
pub(crate) const END_MAX: Duration = Duration::from_secs(10);
/// A reader that takes longer to get to the tail is reported while it is waited for.
const SLOW: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How many complaints are printed individually.
const COMPLAINTS_SHOWN: usize = 5;

/// Everything a scenario works with. Fields are dropped in this order: servers end before their environment.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) readers: Vec<Reader>,
    pub(crate) servers: Vec<Server>,
    shared: Option<Shared>,
    /// Between the server and its database.
    pub(crate) proxy: Option<Proxy>,
    /// The database's machine, which may lose its power.
    pub(crate) machine: Option<Machine>,
    /// A Postgres of the harness's own.
    pub(crate) cluster: Option<Cluster>,
    pub(crate) site: Site,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) run_ids: Vec<String>,
    names: Names,
    /// Cancelled when readers must no longer be cut.
    pub(crate) calm: CancellationToken,
    pub(crate) seed: u64,
}

/// The result of a scenario.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) tally: Tally,
    /// All other violations, in words.
    pub(crate) violations: Vec<String>,
    /// Figures for the summary line.
    pub(crate) facts: Vec<String>,
    /// Why it cannot be run on this machine: neither passed nor failed.
    pub(crate) cannot: Option<String>,
}

impl Verdict {
    pub(crate) fn cannot(why: &str) -> Self {
        Self { cannot: Some(why.to_owned()), ..Self::default() }
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.tally.is_clean() && self.violations.is_empty()
    }

    pub(crate) fn require(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.violations.push(otherwise());
        }
    }

    pub(crate) fn fact(&mut self, fact: impl Into<String>) {
        self.facts.push(fact.into());
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cannot {
            Some(why) => write!(f, "cannot be run here: {why}"),
            None => write!(f, "{}; {}", self.tally, self.facts.join(", ")),
        }
    }
}

impl Stage {
    /// Starts one server with its embedded Postgres, or several on a shared one, and a tree of runs.
    pub(crate) async fn open(
        program: &Path,
        processes: usize,
        runs: usize,
        seed: u64,
        flags: &[&str],
    ) -> anyhow::Result<Self> {
        let site = Site::new()?;
        let shared = if processes > 1 { Some(Shared::start(&site).await?) } else { None };
        let home = || shared.as_ref().map_or(Home::Embedded, |shared| Home::Shared(shared.url()));
        let homes = (0..processes).map(|_| home()).collect();
        let mut stage = Self::on(program, site, homes, runs, seed, (flags, &[])).await?;
        stage.shared = shared;
        Ok(stage)
    }

    /// Starts one server that reaches its database through a proxy, and a tree of runs.
    pub(crate) async fn behind_proxy(program: &Path, runs: usize, seed: u64) -> anyhow::Result<Self> {
        let site = Site::new()?;
        let shared = Shared::start(&site).await?;
        let proxy = Proxy::to(shared.upstream()).await;
        let homes = vec![Home::Shared(shared.url_through(proxy.port))];
        let mut stage = Self::on(program, site, homes, runs, seed, (&[], &[])).await?;
        (stage.shared, stage.proxy) = (Some(shared), Some(proxy));
        Ok(stage)
    }

    /// Starts one server whose database is on a machine of its own, and a tree of runs.
    pub(crate) async fn on_machine(program: &Path, runs: usize, seed: u64) -> anyhow::Result<Self> {
        let mut site = Site::new()?;
        let machine = Machine::start(&site).await?;
        site.lives_on(machine.cluster.options());
        let homes = vec![Home::Shared(machine.url())];
        let mut stage = Self::on(program, site, homes, runs, seed, (&[], &[])).await?;
        stage.machine = Some(machine);
        Ok(stage)
    }

    /// A server in each of these homes, with these flags and variables, and a tree of runs.
    pub(crate) async fn on(
        program: &Path,
        site: Site,
        homes: Vec<Home>,
        runs: usize,
        seed: u64,
        (flags, env): (&[&str], &[(&str, &str)]),
    ) -> anyhow::Result<Self> {
        let mut servers = Vec::new();
        for (number, home) in homes.into_iter().enumerate() {
            servers.push(Server::start_with(program, &site, home, number, flags, env).await?);
        }
        let mut stage = Self {
            readers: Vec::new(),
            servers,
            shared: None,
            proxy: None,
            machine: None,
            cluster: None,
            site,
            traffic: Arc::default(),
            run_ids: Vec::new(),
            names: Arc::default(),
            calm: CancellationToken::new(),
            seed,
        };
        let client = stage.client(0)?;
        for number in 0..runs {
            let new = CreateRun {
                agent: Some(Name::trusted("chaos")),
                role: Some(if number == 0 { Role::Supervisor } else { Role::Worker }),
                title: Some(Title::trusted(&format!("run {number}"))),
                parent_run_id: stage.run_ids.first().map(|root| root.parse()).transpose()?,
                ..CreateRun::default()
            };
            let run = client.create_run(&new).await.context("a run could not be created")?;
            stage.run_ids.push(run.run_id.to_string());
        }
        stage.is_about(stage.run_ids.clone());
        Ok(stage)
    }

    /// The runs that readers will see, the root first.
    pub(crate) fn is_about(&mut self, run_ids: Vec<String>) {
        self.names = Arc::new(run_ids.iter().cloned().enumerate().map(|(run, id)| (id, run)).collect());
        self.run_ids = run_ids;
    }

    pub(crate) fn client(&self, server: usize) -> anyhow::Result<Client> {
        Ok(Client::new(&self.servers[server].url(), None)?)
    }

    pub(crate) fn add_reader(&mut self, server: usize, target: Target, cut: bool) {
        self.add_reader_at(self.servers[server].address, target, cut);
    }

    /// A reader that reaches its server at another address.
    pub(crate) fn add_reader_at(&mut self, address: SocketAddr, target: Target, cut: bool) {
        let seed = self.seed.wrapping_mul(1_000_003).wrapping_add(self.readers.len() as u64);
        let manner = Manner { target, address, seed, cut };
        let reader = Reader::start(manner, Arc::clone(&self.names), &self.run_ids[0], self.calm.clone());
        self.readers.push(reader);
    }

    /// Ends every run, the root last, so that streams end by themselves.
    async fn end_runs(&self) -> anyhow::Result<()> {
        let client = self.client(0)?;
        for (run, run_id) in self.run_ids.iter().enumerate().rev() {
            let events = [json!({ "type": "run.completed", "event_id": format!("end-{run}"), "payload": {} })];
            self.traffic.attempt(run, &events);
            let ack =
                client.emit_until_stored(run_id, &events, SETTLE_MAX).await.context("a run could not be ended")?;
            self.traffic.answered(run, &events, &ack);
        }
        Ok(())
    }

    /// Ends the runs and judges everything.
    pub(crate) async fn judge(&mut self) -> anyhow::Result<Verdict> {
        self.end_runs().await?;
        self.judge_ended().await
    }

    /// Waits for the readers of runs that have ended, adds readers that only replay, and judges everything.
    pub(crate) async fn judge_ended(&mut self) -> anyhow::Result<Verdict> {
        let mut verdict = Verdict::default();
        self.calm.cancel();
        let began = Instant::now();
        let table = table::read(&self.site, self.servers[0].address, &self.run_ids).await?;
        let live = self.readers.len();
        self.settle(&table, live, TAIL_MAX).await;
        self.require_tail(&table, live, &mut verdict);
        verdict.fact(format!("all at the tail within {} ms", began.elapsed().as_millis()));
        for server in 0..self.servers.len() {
            for target in (0..self.run_ids.len()).map(Target::Run).chain([Target::Tree, Target::Everything]) {
                self.add_reader(server, target, false);
            }
        }
        self.settle(&table, self.readers.len(), SETTLE_MAX).await;
        self.require_tail(&table, self.readers.len(), &mut verdict);
        self.count(&table, live, &mut verdict);
        Ok(verdict)
    }

    /// Waits until the first `count` readers have all of the table and their stream has ended; reports slow ones.
    async fn settle(&self, table: &Table, count: usize, wait_max: Duration) {
        let (began, mut told) = (Instant::now(), false);
        while began.elapsed() < wait_max && !self.readers[..count].iter().all(|reader| self.is_done(reader, table)) {
            if !told && began.elapsed() > SLOW {
                told = true;
                for reader in self.readers[..count].iter().filter(|reader| !self.is_done(reader, table)) {
                    let (seen, manner) = (reader.seen(), &reader.manner);
                    let (heads, state) = (&seen.heads, &seen.state);
                    let _ = progress(format_args!("slow: {manner:?}, heads {heads:?}, {state}"));
                }
            }
            sleep(LOOK_EVERY).await;
        }
    }

    fn is_done(&self, reader: &Reader, table: &Table) -> bool {
        let seen = reader.seen();
        let whole = self.scope(reader).iter().all(|run| {
            let last = table[*run].last().map_or(0, |row| row.seq);
            seen.heads.get(run).copied().unwrap_or_default() >= last
        });
        whole && (seen.ended || reader.manner.target == Target::Everything)
    }

    fn require_tail(&self, table: &Table, count: usize, verdict: &mut Verdict) {
        for reader in self.readers[..count].iter().filter(|reader| !self.is_done(reader, table)) {
            let (seen, target) = (reader.seen(), reader.manner.target);
            let wanted: Vec<usize> = table.iter().map(Vec::len).collect();
            let (heads, ended) = (&seen.heads, seen.ended);
            verdict.violations.push(format!("a reader of {target:?} has {heads:?} of {wanted:?}, ended: {ended}"));
        }
    }

    /// The runs a reader should see completely.
    fn scope(&self, reader: &Reader) -> Vec<Run> {
        match reader.manner.target {
            Target::Run(run) => vec![run],
            Target::Tree | Target::Everything => (0..self.run_ids.len()).collect(),
        }
    }

    fn count(&self, table: &Table, live: usize, verdict: &mut Verdict) {
        let traffic = &self.traffic;
        let attempts = lock(&traffic.attempts);
        // For runs of other writers it is not known what was sent.
        let by_others = attempts.is_empty();
        verdict.tally +=
            if by_others { judge_rows(table) } else { judge_table(table, &lock(&traffic.acks), &attempts) };
        verdict.violations.extend(lock(&traffic.errors).iter().take(COMPLAINTS_SHOWN).cloned());
        let (mut cuts, mut breaks, mut deliveries, mut deltas) = (0, 0, 0, 0);
        for reader in &self.readers {
            let seen = reader.seen();
            let tally = judge_reader(table, &self.scope(reader), &seen.connections);
            if !tally.is_clean() {
                let manner = &reader.manner;
                verdict.violations.push(format!("a reader of {:?} (cut: {}): {tally}", manner.target, manner.cut));
            }
            verdict.tally += tally;
            verdict.tally += seen.tally();
            verdict.violations.extend(seen.complaints.iter().take(COMPLAINTS_SHOWN).cloned());
            (cuts, breaks) = (cuts + seen.cuts, breaks + seen.breaks);
            (deliveries, deltas) = (deliveries + seen.deliveries(), deltas + seen.deltas);
        }
        let stored: usize = table.iter().map(Vec::len).sum();
        verdict.fact(format!(
            "{stored} events stored, {} acknowledged, {deliveries} deliveries and {deltas} deltas to {live} readers and \
             {} replays, {cuts} cuts, {breaks} breaks",
            traffic.acknowledged(),
            self.readers.len() - live,
        ));
        let under_way = traffic.in_flight.load(Ordering::Relaxed);
        verdict.require(under_way == 0, || format!("{under_way} emits never got an answer"));
    }

    /// Verifies the log, and stops the servers cleanly: exit 0 in time, and no panic in a log.
    pub(crate) async fn close(mut self, verdict: &mut Verdict) -> anyhow::Result<()> {
        self.readers.clear();
        if let Some(server) = self.servers.first() {
            verdict.violations.extend(server.verify().await?);
        }
        for server in &mut self.servers {
            match server.terminate(END_MAX).await? {
                Some(status) => verdict.require(status.success(), || format!("the server ended with {status}")),
                None => verdict.violations.push(format!("the server has not ended after {END_MAX:?}")),
            }
            verdict.violations.extend(server.panics());
        }
        self.servers.clear();
        if let Some(shared) = self.shared.take() {
            shared.stop().await?;
        }
        Ok(())
    }
}

/// The sample below which this many of a thousand are; zero if there are none.
pub(crate) fn percentile(sorted: &[Duration], of_thousand: usize) -> Duration {
    let index = sorted.len().saturating_sub(1) * of_thousand / 1_000;
    sorted.get(index).copied().unwrap_or_default()
}

/// A writer's events in batches of these sizes.
pub(crate) fn batches(events: Vec<Value>, sizes: impl Iterator<Item = usize>) -> Vec<Vec<Value>> {
    let mut batches = Vec::new();
    let mut events = events.into_iter().peekable();
    for size in sizes {
        if events.peek().is_none() {
            break;
        }
        batches.push(events.by_ref().take(size).collect());
    }
    batches
}
