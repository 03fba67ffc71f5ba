//! One server, the database below it that is set back again and again, and every client that received something.

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use runreel::{client::Client, domain::id::Name, wire::runs::CreateRun};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{
    Way,
    judge::{After, Kept, Word, judge_gone, judge_ids, judge_kept, judge_log, judge_open},
    reader::{Feed, Follower, Mark},
};
use crate::{
    cluster::{COPIES, Cluster, DUMPS, url_at},
    judge::Run,
    pulse::{Health, Pulse},
    site::{Home, Server, Site},
    stage::{END_MAX, Verdict, percentile},
    switch::Switch,
    wire,
    writer::Traffic,
};

const RUNS: usize = 2;
/// Writers must be acknowledged again within this time after the database can be reached.
const BACK_MAX: Duration = Duration::from_secs(5);
/// Longest wait for them before the server is restarted, for the sake of the following rounds.
const PATIENCE: Duration = Duration::from_secs(10);
/// An open stream must be notified or ended within this time after the first acknowledgement.
const TOLD_MAX: Duration = Duration::from_secs(5);
/// `/readyz` may be untruthful for this long.
const TRUTH_MAX: Duration = Duration::from_secs(2);
/// Events of each run that the copy has: more than two hundred in all.
const KEPT: std::ops::Range<u64> = 100..120;
/// Events that the copy does not have.
const LOST: std::ops::Range<u64> = 1..60;
/// In one of this many rounds the server is killed while its database is away.
const KILL_EVERY: usize = 3;
/// How many complaints of one kind in one round are printed.
const SHOWN: usize = 3;

pub(super) struct Ground {
    health: Health,
    server: Server,
    cluster: Cluster,
    switch: Switch,
    site: Site,
    client: Client,
    way: Way,
    rng: StdRng,
    run_ids: Vec<String>,
    /// What was acknowledged and must not be lost.
    acknowledged: Vec<(Run, String, u64)>,
    /// The cursors of lost events, of all rounds, with the round.
    gone: Vec<(usize, Feed, String)>,
    backs: Vec<Duration>,
    figures: Figures,
}

#[derive(Default)]
struct Figures {
    asked: usize,
    misled: usize,
    needlessly: usize,
    streams: usize,
    untold: usize,
    folders: usize,
}

impl Ground {
    /// Whether there are the programs for each way.
    pub(super) fn can_copy(&self) -> bool {
        self.cluster.has(&COPIES) && self.cluster.has(&DUMPS)
    }

    pub(super) async fn open(program: &Path, seed: u64, way: Way) -> anyhow::Result<Self> {
        let site = Site::new()?;
        let cluster = Cluster::create(&site.file("cluster-0"), None).await?;
        way.prepare(&cluster).await?;
        let switch = Switch::to(cluster.address()).await?;
        let home = Home::Shared(url_at(switch.address));
        let server = Server::start(program, &site, home, 0, &["--poll-ms", "200"]).await?;
        let client = Client::new(&server.url(), None)?;
        let mut run_ids = Vec::new();
        for _ in 0..RUNS {
            let new = CreateRun { agent: Some(Name::trusted("set-back")), ..CreateRun::default() };
            run_ids.push(client.create_run(&new).await?.run_id.to_string());
        }
        let (health, rng) = (Health::watch(server.address), StdRng::seed_from_u64(seed));
        let (acknowledged, gone, backs, figures) = (Vec::new(), Vec::new(), Vec::new(), Figures::default());
        Ok(Self {
            health,
            server,
            cluster,
            switch,
            site,
            client,
            way,
            rng,
            run_ids,
            acknowledged,
            gone,
            backs,
            figures,
        })
    }

    /// Emits into each run and returns the last seqs.
    async fn emit(&mut self, name: &str, count: u64, stays: bool) -> anyhow::Result<Vec<u64>> {
        let mut lasts = Vec::new();
        for (run, run_id) in self.run_ids.iter().enumerate() {
            let event =
                |n| json!({ "type": "custom.setback", "event_id": format!("{name}-{n}"), "payload": { "n": n } });
            let events: Vec<_> = (0..count).map(event).collect();
            let ack = self.client.emit_until_stored(run_id, &events, PATIENCE).await;
            let ack = ack.with_context(|| format!("{name} is not stored"))?;
            lasts.push(ack.last_seq.context("an acknowledgement without a seq")?.unsigned_abs());
            let told =
                ack.events.into_iter().filter_map(|event| Some((run, event.event_id?, event.seq?.unsigned_abs())));
            self.acknowledged.extend(told.filter(|_| stays));
        }
        Ok(lasts)
    }

    pub(super) async fn round(&mut self, number: usize, verdict: &mut Verdict) -> anyhow::Result<()> {
        let name = format!("{:?} {number}", self.way);
        let folder = self.folder();
        let base = self.way.base(&self.cluster, &folder).await?;
        let count = self.rng.random_range(KEPT);
        let lasts = self.emit(&format!("kept {number}"), count, true).await?;
        let feeds = Feed::all(&self.run_ids);
        let followers: Vec<_> = feeds.iter().map(|feed| Follower::start(self.server.address, feed)).collect();
        let kept = marks(&followers, &lasts).await?;
        let copy = self.way.copy(&self.cluster, base, &folder).await?;
        let lost = self.rng.random_range(LOST);
        let lasts = self.emit(&format!("gone {number}"), lost, false).await?;
        let gone = marks(&followers, &lasts).await?;
        self.gone.extend(feeds.iter().zip(&gone).map(|(feed, mark)| (number, feed.clone(), mark.id.clone())));
        let ids = ids(&followers, &kept[..RUNS]);
        let traffic = Arc::new(Traffic::default());
        let pulse = Pulse::start(&self.client, (0, &self.run_ids[0]), &traffic, &format!("pulse {number}"), 0);
        let pause = self.rng.random_range(20..200);
        sleep(Duration::from_millis(pause)).await;
        let cut = Instant::now();
        let reachable = self.go_back(copy, number % KILL_EVERY == KILL_EVERY - 1).await?;
        self.look_at_recovery(&name, &pulse, reachable, verdict).await?;
        self.look_at_open(&name, &followers, (cut, reachable), verdict).await;
        if pulse.answers(reachable).iter().all(|answer| !answer.is_stored()) {
            // For the sake of the following checks.
            self.server.kill()?;
            self.server.spawn()?;
            self.server.ready().await?;
            ensure!(pulse.stored_after(Instant::now(), PATIENCE).await.is_some(), "nothing is stored after a restart");
        }
        self.look_at_cursors(&format!("{name}, at once"), &[], verdict).await?;
        let after = pulse.answers(reachable).into_iter().filter_map(|answer| Some((0, answer.event_id, answer.seq?)));
        self.acknowledged.extend(after);
        drop(pulse);
        self.emit(&format!("grown {number}"), lost + 40, true).await?;
        let kept: Vec<_> = feeds.into_iter().zip(kept).collect();
        self.look_at_cursors(&format!("{name}, outgrown"), &kept, verdict).await?;
        self.look_at_log(&name, &ids, verdict).await
    }

    /// Where the next copy is to be.
    fn folder(&mut self) -> PathBuf {
        self.figures.folders += 1;
        self.site.file(&format!("cluster-{}", self.figures.folders))
    }

    /// The copy replaces the database. Returns from when on it can be reached.
    async fn go_back(&mut self, copy: Cluster, kill: bool) -> anyhow::Result<Instant> {
        self.way.leave(&self.cluster).await?;
        self.cluster.crash().await?;
        self.switch.lead(None);
        if kill {
            self.server.kill()?;
        }
        self.way.arrive(&copy).await?;
        self.switch.lead(Some(copy.address()));
        let reachable = Instant::now();
        let old = std::mem::replace(&mut self.cluster, copy);
        // What its last processes still hold is removed with the site.
        let _ = fs::remove_dir_all(&old.dir);
        if kill {
            self.server.spawn()?;
            self.server.ready().await?;
        }
        Ok(reachable)
    }

    /// Writers are acknowledged again in time, and health is truthful.
    async fn look_at_recovery(
        &mut self,
        name: &str,
        pulse: &Pulse,
        reachable: Instant,
        verdict: &mut Verdict,
    ) -> anyhow::Result<()> {
        let back = pulse.stored_after(reachable, PATIENCE).await;
        let took = back.map_or(PATIENCE, |back| back - reachable);
        self.backs.push(took);
        verdict.require(took <= BACK_MAX, || {
            let last = pulse.answers(reachable).pop().map(|answer| (answer.status, answer.detail));
            format!("{name}: nothing was acknowledged for {} ms; the last answer was {last:?}", took.as_millis())
        });
        let until = back.unwrap_or_else(Instant::now);
        // A probe occasionally falls just before the first acknowledgement.
        let lied = self.health.ready_percent(reachable + TRUTH_MAX, until - Duration::from_millis(500));
        verdict
            .require(lied == 0, || format!("{name}: nothing was stored, and ready in {lied} of 100 looks at /readyz"));
        if let Some(back) = back {
            let ready = self.health.until(back, true, TRUTH_MAX).await;
            verdict.require(ready.is_some(), || format!("{name}: /readyz does not say that events are stored again"));
        }
        Ok(())
    }

    async fn look_at_open(
        &mut self,
        name: &str,
        followers: &[Follower],
        (cut, reachable): (Instant, Instant),
        verdict: &mut Verdict,
    ) {
        let began = Instant::now();
        let is_misled = |follower: &Follower| judge_open(&follower.words(), cut, reachable);
        while began.elapsed() < TOLD_MAX && followers.iter().any(|follower| is_misled(follower).is_some()) {
            sleep(Duration::from_millis(10)).await;
        }
        self.figures.streams += followers.len();
        let wrong: Vec<_> = followers.iter().filter_map(|one| Some((&one.feed.path, is_misled(one)?))).collect();
        self.figures.untold += wrong.len();
        verdict.violations.extend(wrong.iter().take(SHOWN).map(|(path, wrong)| format!("{name}: open {path} {wrong}")));
    }

    /// All readers reconnect: with the cursors of lost events, of this round and all before it, and of kept ones.
    async fn look_at_cursors(
        &mut self,
        name: &str,
        kept: &[(Feed, Mark)],
        verdict: &mut Verdict,
    ) -> anyhow::Result<()> {
        let (address, mut wrong) = (self.server.address, Vec::new());
        for (round, feed, id) in &self.gone {
            self.figures.asked += 1;
            if let Some(why) = judge_gone(&feed.ask(address, Some(id)).await?) {
                self.figures.misled += 1;
                wrong.push(format!("{name}: the cursor {id} of round {round} on {} {why}", feed.path));
            }
            if let Some(page) = feed.page(id) {
                self.figures.asked += 1;
                let status = wire::get(address, &page, &[]).await?.status;
                if !matches!(status, 409 | 410) {
                    self.figures.misled += 1;
                    wrong.push(format!("{name}: the page after {id} of round {round} is answered {status}"));
                }
            }
        }
        for (feed, mark) in kept {
            match judge_kept(&feed.ask(address, Some(&mark.id)).await?, mark) {
                Kept::GoesOn => {}
                Kept::Needlessly => self.figures.needlessly += 1,
                Kept::Wrong(why) => wrong.push(format!("{name}: the kept cursor {} on {} {why}", mark.id, feed.path)),
            }
        }
        verdict.violations.extend(wrong.into_iter().take(SHOWN));
        Ok(())
    }

    /// The log as read with SQL and by a reader without a cursor; a reader that stops in its middle resumes there.
    async fn look_at_log(&mut self, name: &str, ids: &Ids, verdict: &mut Verdict) -> anyhow::Result<()> {
        let mut database = self.cluster.connect().await?;
        let rows: Vec<(String, i64, Option<String>)> =
            sqlx::query_as("select run_id::text, seq, event_id from store.run_event order by run_id, seq")
                .fetch_all(&mut database)
                .await?;
        let run = |id: &String| self.run_ids.iter().position(|run_id| run_id == id);
        let rows: Vec<(Run, u64, String)> = rows
            .into_iter()
            .filter_map(|(id, seq, event_id)| Some((run(&id)?, seq.unsigned_abs(), event_id.unwrap_or_default())))
            .collect();
        let mut wrong = judge_log(&rows, &self.acknowledged);
        for feed in Feed::all(&self.run_ids) {
            let After::Said(words) = feed.ask(self.server.address, None).await? else {
                wrong.push(format!("{} cannot be read anew", feed.path));
                continue;
            };
            let told: BTreeSet<(Run, u64)> = words.iter().filter_map(Word::place).collect();
            let shown = rows.iter().filter(|(run, ..)| feed.shows.contains(run));
            let missing = shown.filter(|(run, seq, _)| !told.contains(&(*run, *seq))).count();
            if missing > 0 {
                wrong.push(format!("{} read anew brings {} events, {missing} are missing", feed.path, told.len()));
            }
            if feed.shows.len() == 1 && !feed.path.contains('?') {
                wrong.extend(judge_ids(&words, &ids.kept, &ids.gone));
            }
            let middle = Mark::of(&words[..words.len() * 9 / 10]);
            match judge_kept(&feed.ask(self.server.address, Some(&middle.id)).await?, &middle) {
                Kept::GoesOn => {}
                other => wrong.push(format!("{} from its own id {} on: {other:?}", feed.path, middle.id)),
            }
        }
        verdict.violations.extend(wrong.into_iter().take(SHOWN).map(|wrong| format!("{name}: {wrong}")));
        Ok(())
    }

    pub(super) async fn close(mut self, verdict: &mut Verdict) -> anyhow::Result<()> {
        self.backs.sort_unstable();
        let Figures { asked, misled, needlessly, streams, untold, .. } = self.figures;
        verdict.fact(format!(
            "{} × {:?}: acknowledged again after {} ms (median), {} ms (longest); {misled} of {asked} requests with cursors \
             of gone events misled, {untold} of {streams} open streams not told, {needlessly} kept cursors refused",
            self.backs.len(),
            self.way,
            percentile(&self.backs, 500).as_millis(),
            percentile(&self.backs, 1_000).as_millis(),
        ));
        verdict.violations.extend(self.server.verify().await?);
        let status = self.server.terminate(END_MAX).await?;
        verdict.require(status.is_some_and(|status| status.success()), || format!("the server ended with {status:?}"));
        let panics = self.server.panics();
        verdict.require(panics.is_empty(), || format!("{} panics, such as: {}", panics.len(), panics[0]));
        Ok(())
    }
}

/// The ids that events of each run had before.
struct Ids {
    kept: HashMap<(Run, u64), String>,
    gone: HashMap<(Run, u64), String>,
}

fn ids(followers: &[Follower], kept: &[Mark]) -> Ids {
    let mut ids = Ids { kept: HashMap::new(), gone: HashMap::new() };
    for (run, (follower, mark)) in followers.iter().zip(kept).enumerate() {
        let head = mark.heads.get(&run).copied().unwrap_or_default();
        for (_, word) in follower.words() {
            if let Word::Event { seq, id, .. } = word {
                let of = if seq <= head { &mut ids.kept } else { &mut ids.gone };
                of.insert((run, seq), id);
            }
        }
    }
    ids
}

async fn marks(followers: &[Follower], lasts: &[u64]) -> anyhow::Result<Vec<Mark>> {
    let mut marks = Vec::new();
    for follower in followers {
        marks.push(follower.at(lasts).await?);
    }
    Ok(marks)
}
