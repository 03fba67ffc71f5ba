//! Truthful health and rejections: faults under which no event can be stored, each with its own reason.
//!
//! Emits continue throughout. Soon after the first one that fails `/readyz` must be 503, the rejections must name the
//! fault, and once it is fixed both must recover by themselves; what was acknowledged is there at the end. [`judge`] is
//! pure; the faults are applied by [`Trouble`].

use std::{fs, path::Path, sync::Arc, time::Duration};

use anyhow::Context as _;
use runreel::{client::Client, domain::id::Name, wire::runs::CreateRun};
use rustix::process::Signal;
use sqlx::{Connection as _, PgConnection};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep, timeout},
};

use crate::{
    cluster::{Cluster, url_at},
    disk::Disk,
    judge::ACKNOWLEDGED_MIN,
    progress,
    pulse::{Answer, Health, Pulse},
    self_check::Plant,
    setback,
    site::{Home, Server, Site},
    stage::{END_MAX, Verdict},
    writer::Traffic,
};

/// `/readyz` must be 503 within this time after the first emit that fails.
const TOLD_MAX: Duration = Duration::from_secs(2);
/// Everything must have recovered within this time after the fault has ended.
const BACK_MAX: Duration = Duration::from_secs(5);
/// An emit must be answered within this time, whatever happens.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Longest wait for an emit to fail.
const FAILING_MAX: Duration = Duration::from_secs(15);
/// Longest wait for the events that are to be stored before each fault.
const TRAFFIC_WAIT_MAX: Duration = Duration::from_mins(1);
/// How long a fault lasts after that.
const LASTS: Duration = Duration::from_secs(4);
/// Longest wait for the log to be read and verified at the end.
const CLOSING_MAX: Duration = Duration::from_mins(1);
/// How many complaints about the log are printed.
const SHOWN: usize = 3;
/// Payload of each emit: a growing table soon needs room.
const FILL_BYTES: usize = 6_000;

/// Why no event can be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Every Postgres process is stopped.
    Stands,
    /// Postgres has crashed and is not restarted.
    Gone,
    /// Postgres accepts no writes.
    ReadOnly,
    /// The writer's role may not insert.
    Forbidden,
    /// Others have taken every connection that Postgres allows.
    Crowded,
    /// The disk of the tables is full; that of the write-ahead log is not.
    Full,
    /// The disk becomes read-only, as after a device error.
    DiskReadOnly,
}

impl Trouble {
    const ALL: [Self; 7] =
        [Self::Stands, Self::Gone, Self::ReadOnly, Self::Forbidden, Self::Crowded, Self::Full, Self::DiskReadOnly];

    /// One of these words must be in the rejection.
    fn words(self) -> &'static [&'static str] {
        match self {
            // Postgres cannot write to such a disk, not even the log it would start from: it exits.
            Self::Stands => &["reach", "responding", "in time"],
            Self::Gone | Self::DiskReadOnly => &["reach", "responding", "read-only"],
            Self::ReadOnly => &["read-only"],
            Self::Forbidden => &["permission", "may not", "not allowed", "privilege", "refuse"],
            Self::Crowded => &["connection left"],
            Self::Full => &["full", "space", "room"],
        }
    }
}

/// What was observed of one fault; times are since its beginning.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    trouble: Trouble,
    /// The first emit that failed.
    failing: Option<Duration>,
    /// `/readyz` first returned 503.
    told: Option<Duration>,
    /// Of the rejections.
    slowest: Duration,
    /// Status and detail of the last rejection.
    last: (Option<u16>, String),
    /// After its end: an event was stored, and `/readyz` reported ready.
    stored: Option<Duration>,
    ready: Option<Duration>,
}

fn judge(seen: &Seen) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut require = |holds: bool, otherwise: String| {
        if !holds {
            wrong.push(format!("{:?}: {otherwise}", seen.trouble));
        }
    };
    let Some(failing) = seen.failing else {
        require(false, "no emit failed, which proves nothing".to_owned());
        return wrong;
    };
    let told = seen.told.is_some_and(|told| told <= failing + TOLD_MAX);
    require(told, format!("emits fail after {failing:?}, and /readyz is 503 after {:?}", seen.told));
    let (status, detail) = &seen.last;
    require(*status == Some(503), format!("an emit was answered {status:?}: {detail}"));
    let names = seen.trouble.words().iter().any(|word| detail.to_lowercase().contains(word));
    require(names, format!("the refusal does not say which trouble it is: {detail}"));
    require(seen.slowest <= ANSWER_MAX, format!("an emit was answered after {:?}", seen.slowest));
    let back = |when: Option<Duration>| when.is_some_and(|when| when <= BACK_MAX);
    require(back(seen.stored), format!("an event is stored {:?} after the end", seen.stored));
    require(back(seen.ready), format!("/readyz is 200 {:?} after the end", seen.ready));
    wrong
}

pub(crate) fn plants() -> Vec<Plant> {
    let s = Duration::from_secs;
    let healthy = Seen {
        trouble: Trouble::Full,
        failing: Some(s(1)),
        told: Some(s(2)),
        slowest: s(4),
        last: (Some(503), "the database's disk is full".to_owned()),
        stored: Some(s(1)),
        ready: Some(s(1)),
    };
    let wrong = |name, seen: &Seen| Plant { name, seen: judge(seen).len() == 1 };
    let reached = (Some(503), "the database cannot be reached".to_owned());
    vec![
        Plant { name: "a disk that is full and told to be", seen: judge(&healthy).is_empty() },
        wrong("a health that never says so", &Seen { told: None, ..healthy.clone() }),
        wrong("a health that says so late", &Seen { told: Some(s(4)), ..healthy.clone() }),
        wrong("a full disk that is told to be out of reach", &Seen { last: reached, ..healthy.clone() }),
        wrong("an internal error", &Seen { last: (Some(500), "full".to_owned()), ..healthy.clone() }),
        wrong("a trouble without a failure", &Seen { failing: None, ..healthy.clone() }),
        wrong("a health that stays red", &Seen { ready: None, ..healthy.clone() }),
        wrong("writers that stay away", &Seen { stored: Some(s(9)), ..healthy.clone() }),
        wrong("an emit without an answer", &Seen { slowest: s(6), ..healthy }),
    ]
}

/// The faults one after the other, those of a disk only if one can be mounted.
pub(crate) async fn run(
    program: &Path,
    quick: bool,
    disks: bool,
) -> anyhow::Result<Vec<(String, anyhow::Result<Verdict>)>> {
    let (mut verdict, mut played) = (Verdict::default(), Vec::new());
    let site = Site::new()?;
    let disk = if disks { Disk::mount(&site).await } else { Err(anyhow::anyhow!("not root, or no namespaces")) };
    let dir = disk.as_ref().map_or_else(|_| site.file("cluster"), |disk| disk.folder.join("cluster"));
    let ground = Ground::open(program, &site, &dir, disk.as_ref().ok()).await?;
    for trouble in Trouble::ALL {
        let needs_disk = matches!(trouble, Trouble::Full | Trouble::DiskReadOnly);
        // The quick tier: one fault of Postgres, one of the disk.
        if needs_disk && disk.is_err() || quick && !matches!(trouble, Trouble::Gone | Trouble::Full) {
            continue;
        }
        progress(format_args!("{trouble:?}"))?;
        if let Err(error) = ground.suffer(trouble, &mut verdict).await {
            verdict.violations.push(format!("{trouble:?}: {error:#}"));
            break;
        }
    }
    ground.close(&mut verdict).await;
    played.push(("truthful".to_owned(), Ok(verdict)));
    if let Err(error) = disk {
        played.push(("truthful (disk)".to_owned(), Ok(Verdict::cannot(&format!("no disk can be mounted: {error:#}")))));
    }
    Ok(played)
}

struct Ground<'a> {
    server: Server,
    health: Health,
    pulse: Pulse,
    began: Instant,
    cluster: Cluster,
    disk: Option<&'a Disk>,
    /// Connections of others.
    crowd: Mutex<Vec<PgConnection>>,
}

impl<'a> Ground<'a> {
    async fn open(program: &Path, site: &Site, dir: &Path, disk: Option<&'a Disk>) -> anyhow::Result<Self> {
        let cluster = Cluster::create(dir, Some(&site.file("wal"))).await?;
        let server = Server::start(program, site, Home::Shared(url_at(cluster.address())), 0, &[]).await?;
        let client = Client::new(&server.url(), None)?;
        let new = CreateRun { agent: Some(Name::trusted("truthful")), ..CreateRun::default() };
        let run_id = client.create_run(&new).await?.run_id.to_string();
        let (health, began) = (Health::watch(server.address), Instant::now());
        let pulse = Pulse::start(&client, (0, &run_id), &Arc::<Traffic>::default(), "pulse", FILL_BYTES);
        Ok(Self { health, server, pulse, began, cluster, disk, crowd: Mutex::default() })
    }

    async fn suffer(&self, trouble: Trouble, verdict: &mut Verdict) -> anyhow::Result<()> {
        let (quiet, before) = (Instant::now(), self.pulse.stored().len() as u64);
        let traffic = async {
            while self.pulse.stored().len() as u64 - before < ACKNOWLEDGED_MIN {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(TRAFFIC_WAIT_MAX, traffic).await.context("too few events are stored before it")?;
        let calm = self.health.ready_percent(quiet, Instant::now());
        verdict.require(calm == 100, || {
            format!("before {trouble:?}: ready in {calm} of 100 looks although nothing is wrong")
        });
        let began = Instant::now();
        self.begin(trouble).await?;
        let failing = timeout(FAILING_MAX, self.first_failure(began)).await.ok();
        let told = self.health.until(began, false, LASTS).await;
        sleep(LASTS).await;
        let refused: Vec<Answer> = self.pulse.answers(began).into_iter().filter(|answer| !answer.is_stored()).collect();
        self.end(trouble).await?;
        let ended = Instant::now();
        let stored = self.pulse.stored_after(ended, BACK_MAX * 2).await;
        let ready = self.health.until(ended, true, BACK_MAX * 2).await;
        let after = |since: Instant, at: Option<Instant>| at.map(|at| at - since);
        let seen = Seen {
            trouble,
            failing: after(began, failing),
            told: after(began, told),
            slowest: refused.iter().map(|answer| answer.at - answer.began).max().unwrap_or_default(),
            last: refused.last().map(|answer| (answer.status, answer.detail.clone())).unwrap_or_default(),
            stored: after(ended, stored),
            ready: after(ended, ready),
        };
        verdict.violations.extend(judge(&seen));
        let ms = |at: Option<Duration>| at.map_or_else(|| "never".to_owned(), |at| format!("{} ms", at.as_millis()));
        verdict.fact(format!(
            "{trouble:?}: emits fail after {}, not ready told after {}, mended: stored after {}, ready after {}",
            ms(seen.failing),
            ms(seen.told),
            ms(seen.stored),
            ms(seen.ready)
        ));
        Ok(())
    }

    async fn first_failure(&self, since: Instant) -> Instant {
        loop {
            match self.pulse.answers(since).into_iter().find(|answer| !answer.is_stored()) {
                Some(answer) => return answer.at,
                None => sleep(Duration::from_millis(5)).await,
            }
        }
    }

    async fn sql(&self, statements: &[&'static str]) -> anyhow::Result<()> {
        let mut database = self.cluster.connect().await?;
        for statement in statements {
            sqlx::raw_sql(*statement).execute(&mut database).await?;
        }
        Ok(database.close().await?)
    }

    /// Takes every connection, those of the server too.
    async fn crowd(&self) -> anyhow::Result<()> {
        let mut crowd = self.crowd.lock().await;
        let mut first = self.cluster.connect().await?;
        let mut none = 0;
        let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'runreel'";
        loop {
            while let Ok(one) = self.cluster.connect().await {
                crowd.push(one);
            }
            // Either the server or the harness takes a slot that gets free. One that still signs in is not listed.
            none = if sqlx::query_scalar::<_, i64>(end).fetch_one(&mut first).await? == 0 { none + 1 } else { 0 };
            if none == 3 {
                crowd.push(first);
                return Ok(());
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn begin(&self, trouble: Trouble) -> anyhow::Result<()> {
        let disk = || self.disk.context("there is no disk");
        match trouble {
            Trouble::Stands => _ = self.cluster.signal(Signal::STOP),
            Trouble::Gone => self.cluster.crash().await?,
            Trouble::ReadOnly => {
                let statements = ["alter system set default_transaction_read_only = on", "select pg_reload_conf()"];
                self.sql(&statements).await?;
            }
            Trouble::Forbidden => self.sql(&["revoke insert on store.run_event from runreel_writer"]).await?,
            Trouble::Crowded => self.crowd().await?,
            Trouble::Full => disk()?.fill()?,
            Trouble::DiskReadOnly => disk()?.fail().await?,
        }
        Ok(())
    }

    async fn end(&self, trouble: Trouble) -> anyhow::Result<()> {
        let disk = || self.disk.context("there is no disk");
        match trouble {
            Trouble::Stands => _ = self.cluster.signal(Signal::CONT),
            Trouble::Gone => self.cluster.start().await?,
            Trouble::ReadOnly => {
                let writes = "set default_transaction_read_only = off";
                let statements = ["alter system reset default_transaction_read_only", "select pg_reload_conf()"];
                self.sql(&[writes, statements[0], statements[1]]).await?;
            }
            Trouble::Forbidden => self.sql(&["grant insert on store.run_event to runreel_writer"]).await?,
            Trouble::Crowded => self.crowd.lock().await.clear(),
            Trouble::Full => disk()?.free()?,
            Trouble::DiskReadOnly => {
                self.cluster.crash().await?;
                disk()?.repair().await?;
                // It was not removed, and the process it names may not have been reaped yet.
                let _ = fs::remove_file(self.cluster.dir.join("postmaster.pid"));
                self.cluster.start().await?;
            }
        }
        Ok(())
    }

    /// What was observed stays, also of a database that has not come back.
    async fn close(mut self, verdict: &mut Verdict) {
        let answers = self.pulse.answers(self.began).into_iter();
        let acknowledged: Vec<_> = answers.filter_map(|answer| Some((0, answer.event_id, answer.seq?))).collect();
        drop(self.pulse);
        let stored = async {
            let mut database = self.cluster.connect().await?;
            let rows: Vec<(i64, Option<String>)> =
                sqlx::query_as("select seq, event_id from store.run_event order by seq")
                    .fetch_all(&mut database)
                    .await?;
            database.close().await?;
            anyhow::Ok((rows, self.server.verify().await?))
        };
        match timeout(CLOSING_MAX, stored).await.context("no answer").flatten() {
            Ok((rows, unverified)) => {
                let rows: Vec<_> =
                    rows.into_iter().map(|(seq, id)| (0, seq.unsigned_abs(), id.unwrap_or_default())).collect();
                verdict.violations.extend(setback::judge_log(&rows, &acknowledged).into_iter().take(SHOWN));
                verdict.fact(format!("{} events acknowledged, {} stored", acknowledged.len(), rows.len()));
                verdict.violations.extend(unverified);
            }
            Err(error) => verdict.violations.push(format!("the log cannot be read at the end: {error:#}")),
        }
        let status = self.server.terminate(END_MAX).await.ok().flatten();
        verdict.require(status.is_some_and(|status| status.success()), || format!("the server ended with {status:?}"));
        verdict.violations.extend(self.server.panics());
    }
}
