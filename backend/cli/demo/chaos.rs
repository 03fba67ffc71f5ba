//! `runreel demo --chaos`: break things on purpose and prove that no reader noticed.
//!
//! While the survey runs, every reader is cut every few hundred milliseconds and the server is killed (SIGKILL) and
//! started again. In the end three things must agree to the byte: what the runner was told is stored, what the table
//! holds, and what each reader put together from its many connections. Anything else is counted and exits with 1.
//!
//! A survey that ends before the server was killed as often as asked is followed by another one. Without `--data-dir`
//! the server works in a folder of its own that is taken away afterwards: its kills are not for data anybody needs.

use std::{
    io::Write as _,
    path::PathBuf,
    pin::pin,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use futures::future::BoxFuture;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{
    Demo,
    bars::Bars,
    compare::{Line, Table, Tally, judge_table},
    interrupted,
    job::Job,
    print_table,
    readers::{Readers, Reading, table_of},
    say, say_where,
    server::{Server, free},
};
use crate::{
    client::Client,
    domain::{
        context::RunContext,
        event::NewEvent,
        id::{EventId, RunId},
    },
    emitters::sink::{Sink, SinkError},
    runners::client::{Executor, Work},
};

/// Surveys at most, however many kills are left.
const ROUNDS_MAX: u32 = 40;
/// Longest wait for the readers to reach the tail once the job is done.
const SETTLE_MAX: Duration = Duration::from_secs(30);
/// The server is left alone this long between two kills, by turns, milliseconds.
const CALM_MS: [u64; 4] = [600, 1_300, 350, 900];

/// Everything that was done and found.
#[derive(Default)]
struct Record {
    tally: Tally,
    kills: u32,
    rounds: u32,
    runs: u64,
    events: u64,
    acknowledged: u64,
    readers: u64,
    cuts: u64,
    breaks: u64,
    delivered: u64,
}

/// Runs the command with `--chaos`.
pub(super) async fn run(args: &Demo) -> anyhow::Result<ExitCode> {
    let listen = free(args.listen).context("there is no free port for the server")?;
    let scratch =
        args.data_dir.is_none().then(|| std::env::temp_dir().join(format!("runreel-chaos-{}", std::process::id())));
    let data_dir = args.data_dir.clone().or_else(|| scratch.clone());
    let client = Client::new(&format!("http://{listen}"), None)?;
    let outcome = with_server(args, &client, listen, data_dir).await;
    if let Some(scratch) = scratch {
        take_away(&scratch);
    }
    outcome
}

async fn with_server(
    args: &Demo,
    client: &Client,
    listen: std::net::SocketAddr,
    data_dir: Option<PathBuf>,
) -> anyhow::Result<ExitCode> {
    let mut server = Server::start(listen, data_dir, client).await?;
    let judged = tokio::select! {
        judged = all_rounds(args, client, &mut server) => Some(judged),
        () = interrupted() => None,
    };
    if args.stays(true) && matches!(judged, Some(Ok(_))) {
        say("The page stays up until Ctrl-C.");
        interrupted().await;
    }
    server.stop().await?;
    judged.unwrap_or(Ok(ExitCode::from(super::INTERRUPTED)))
}

async fn all_rounds(args: &Demo, client: &Client, server: &mut Server) -> anyhow::Result<ExitCode> {
    let mut record = Record::default();
    while record.rounds == 0 || (record.kills < args.kills && record.rounds < ROUNDS_MAX) {
        round(args, client, server, &mut record).await?;
    }
    print(&record)?;
    if record.kills < args.kills {
        say(&format!("The surveys were too short: {} of {} kills were made.", record.kills, args.kills));
        return Ok(ExitCode::FAILURE);
    }
    Ok(if record.tally.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One survey under fire.
async fn round(args: &Demo, client: &Client, server: &mut Server, record: &mut Record) -> anyhow::Result<()> {
    record.rounds += 1;
    let job = Job::new(client, args)?;
    let root = job.create().await?;
    say_where(client, root);
    let (mut bars, mut readers) = (Bars::new(root), Readers::new(client.clone(), root));
    let acknowledged = Acknowledged::default();
    let saw = |event: &_| {
        bars.saw(event);
        readers.saw(event);
    };
    let under_fire = async {
        let mut following = pin!(job.follow(root, saw));
        loop {
            let calm = CALM_MS[record.kills as usize % CALM_MS.len()];
            let next = sleep_until(Instant::now() + Duration::from_millis(calm));
            tokio::select! {
                table = &mut following => return table,
                () = next, if record.kills < args.kills => {
                    record.kills += 1;
                    server.crash_and_restart().await?;
                }
            }
        }
    };
    let executor = Watched { executor: job.executor(), acknowledged: Arc::clone(&acknowledged) };
    let table = job.work(executor, under_fire).await;
    bars.clear();
    print_table(&table.context("the survey did not survive")?)?;
    let table = read_table(client, &readers.runs()).await?;
    // Late readers are not lost ones; after this long they are.
    let _ = timeout(SETTLE_MAX, settled(&readers, &table)).await;
    let reading = readers.finish(&table).await.map_err(anyhow::Error::msg)?;
    record.add(&table, reading);
    let acknowledged = acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
    record.acknowledged += acknowledged.len() as u64;
    record.tally += judge_table(&table, &acknowledged);
    Ok(())
}

/// The events that the server said it has.
type Acknowledged = Arc<Mutex<Vec<(RunId, EventId)>>>;

/// Remembers what becomes of the events of the runs that are carried out.
struct Watched<T> {
    executor: T,
    acknowledged: Acknowledged,
}

impl<E: Executor> Executor for Watched<E> {
    fn execute(&self, work: Work) -> BoxFuture<'static, ()> {
        let sink = Arc::new(WatchedSink { sink: work.sink, acknowledged: Arc::clone(&self.acknowledged) });
        self.executor.execute(Work { sink, ..work })
    }
}

struct WatchedSink {
    sink: Arc<dyn Sink>,
    acknowledged: Acknowledged,
}

impl Sink for WatchedSink {
    fn emit<'a>(&'a self, context: &'a RunContext, events: Vec<NewEvent>) -> BoxFuture<'a, Result<(), SinkError>> {
        Box::pin(async move {
            let ids: Vec<_> =
                events.iter().filter_map(|event| Some((context.run_id, event.event_id.clone()?))).collect();
            self.sink.emit(context, events).await?;
            self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner).extend(ids);
            Ok(())
        })
    }
}

async fn settled(readers: &Readers, table: &Table) {
    while !readers.have_all(table) {
        sleep(Duration::from_millis(50)).await;
    }
}

/// What the table holds, in the very bytes the page endpoint sends.
async fn read_table(client: &Client, runs: &[RunId]) -> anyhow::Result<Table> {
    // The client reads JSON into values, which forget how it was spelled; here the spelling is the point.
    let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).timeout(Duration::from_secs(30)).build()?;
    let mut lines = Vec::new();
    for run_id in runs {
        let request = http.get(format!("{}/api/runs/{run_id}/events", client.base_url()));
        let answer = request.header("accept", "application/x-ndjson").send().await?.error_for_status()?;
        let text = answer.text().await?;
        let read = text.lines().map(|line| Line::read(line).context("the page endpoint sent a line that is no event"));
        lines.extend(read.collect::<anyhow::Result<Vec<_>>>()?);
    }
    Ok(table_of(lines))
}

impl Record {
    fn add(&mut self, table: &Table, reading: Reading) {
        self.tally += reading.tally;
        self.runs += table.len() as u64;
        self.events += table.values().map(|lines| lines.len() as u64).sum::<u64>();
        self.readers += reading.readers;
        self.cuts += reading.cuts;
        self.breaks += reading.breaks;
        self.delivered += reading.lines;
    }
}

fn print(record: &Record) -> std::io::Result<()> {
    let Record { tally, kills, rounds, runs, events, acknowledged, readers, cuts, breaks, delivered } = record;
    let surveys = if *rounds == 1 { "survey" } else { "surveys" };
    let mut out = anstream::stdout();
    writeln!(out, "{tally}")?;
    writeln!(
        out,
        "{kills} kills of the server, {cuts} cuts on purpose and {breaks} breaks of {readers} readers; {events} events \
         in {runs} runs of {rounds} {surveys} stored, {acknowledged} acknowledged, {delivered} delivered"
    )
}

/// Only what this command made: the name holds its own process id.
#[expect(clippy::disallowed_methods, reason = "the scratch directory is this command's own")]
fn take_away(scratch: &std::path::Path) {
    if let Err(error) = std::fs::remove_dir_all(scratch)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        say(&format!("{} could not be removed: {error}", scratch.display()));
    }
}
