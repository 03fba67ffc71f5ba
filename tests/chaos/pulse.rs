//! Continuous emits, so that every moment is noticed in which a server accepts nothing, and health probes.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use runreel::client::Client;
use serde_json::json;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use crate::{judge::Run, reader::lock, self_check::Plant, site::is_ready, writer::Traffic};

/// Concurrent emits: one that waits for its answer hides nothing.
const AT_ONCE: usize = 5;
const PAUSE: Duration = Duration::from_millis(20);
/// Longest wait for an answer before the same event is sent again. A server promises one within 5 s.
const ANSWER_MAX: Duration = Duration::from_secs(6);

/// The result of an emit.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) began: Instant,
    pub(crate) at: Instant,
    /// `None` if there was no answer.
    pub(crate) status: Option<u16>,
    pub(crate) detail: String,
    pub(crate) event_id: String,
    pub(crate) seq: Option<u64>,
}

impl Answer {
    pub(crate) fn is_stored(&self) -> bool {
        self.status == Some(200)
    }
}

/// Emits on one server, each event again until it is stored.
#[derive(Debug)]
pub(crate) struct Pulse {
    answers: Arc<Mutex<Vec<Answer>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Pulse {
    /// `name` is the prefix of the events' ids; each event has `bytes` of filler.
    pub(crate) fn start(client: &Client, run: (Run, &str), traffic: &Arc<Traffic>, name: &str, bytes: usize) -> Self {
        let answers = Arc::<Mutex<Vec<Answer>>>::default();
        let tasks = (0..AT_ONCE).map(|number| {
            let beat = Beat {
                client: client.clone(),
                run: run.0,
                run_id: run.1.to_owned(),
                traffic: Arc::clone(traffic),
                name: format!("{name}-{number}"),
                fill: "z".repeat(bytes),
                answers: Arc::clone(&answers),
            };
            tokio::spawn(beat.run())
        });
        Self { tasks: tasks.collect(), answers }
    }

    /// The results of the emits since then, in the order of the answers.
    pub(crate) fn answers(&self, since: Instant) -> Vec<Answer> {
        lock(&self.answers).iter().filter(|answer| answer.at >= since).cloned().collect()
    }

    /// The moments at which something was acknowledged.
    pub(crate) fn stored(&self) -> Vec<Instant> {
        lock(&self.answers).iter().filter(|answer| answer.is_stored()).map(|answer| answer.at).collect()
    }

    /// Waits until something is acknowledged after `since`, and returns when.
    pub(crate) async fn stored_after(&self, since: Instant, wait_max: Duration) -> Option<Instant> {
        let found = async {
            loop {
                let first = self.answers(since).into_iter().find(Answer::is_stored).map(|answer| answer.at);
                match first {
                    Some(at) => return at,
                    None => sleep(Duration::from_millis(5)).await,
                }
            }
        };
        timeout(wait_max, found).await.ok()
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

struct Beat {
    client: Client,
    run: Run,
    run_id: String,
    traffic: Arc<Traffic>,
    name: String,
    fill: String,
    answers: Arc<Mutex<Vec<Answer>>>,
}

impl Beat {
    async fn run(self) {
        for number in 0_u64.. {
            let event_id = format!("{}-{number}", self.name);
            let payload = json!({ "n": number, "fill": self.fill });
            let events = [json!({ "type": "custom.pulse", "event_id": event_id, "payload": payload })];
            self.traffic.attempt(self.run, &events);
            loop {
                let began = Instant::now();
                let answer = timeout(ANSWER_MAX, self.client.emit(&self.run_id, &events)).await;
                let (status, detail, seq) = match &answer {
                    Ok(Ok(ack)) => {
                        self.traffic.answered(self.run, &events, ack);
                        (Some(200), String::new(), ack.last_seq.map(i64::unsigned_abs))
                    }
                    Ok(Err(error)) => (error.status, error.detail.to_string(), None),
                    Err(_) => (None, format!("no answer within {ANSWER_MAX:?}"), None),
                };
                let event_id = event_id.clone();
                lock(&self.answers).push(Answer { began, at: Instant::now(), status, detail, event_id, seq });
                sleep(PAUSE).await;
                if status == Some(200) {
                    break;
                }
            }
        }
    }
}

/// Polls `/readyz` continuously and records the results.
#[derive(Debug)]
pub(crate) struct Health {
    said: Arc<Mutex<Vec<(Instant, bool)>>>,
    task: JoinHandle<()>,
}

impl Health {
    pub(crate) fn watch(address: SocketAddr) -> Self {
        let said = Arc::<Mutex<Vec<(Instant, bool)>>>::default();
        let ours = Arc::clone(&said);
        let task = tokio::spawn(async move {
            loop {
                let ready = is_ready(address).await;
                lock(&ours).push((Instant::now(), ready));
                sleep(PAUSE).await;
            }
        });
        Self { said, task }
    }

    /// When it first had this result at or after `since`.
    pub(crate) fn first(&self, since: Instant, ready: bool) -> Option<Instant> {
        lock(&self.said).iter().find(|(at, said)| *at >= since && *said == ready).map(|(at, _)| *at)
    }

    /// The percentage of probes between two moments that found it ready.
    pub(crate) fn ready_percent(&self, from: Instant, to: Instant) -> usize {
        let looks: Vec<bool> =
            lock(&self.said).iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, said)| *said).collect();
        looks.iter().filter(|said| **said).count() * 100 / looks.len().max(1)
    }

    /// Waits until it has this result.
    pub(crate) async fn until(&self, since: Instant, ready: bool, wait_max: Duration) -> Option<Instant> {
        let found = async {
            loop {
                match self.first(since, ready) {
                    Some(at) => return at,
                    None => sleep(Duration::from_millis(5)).await,
                }
            }
        };
        timeout(wait_max, found).await.ok()
    }
}

impl Drop for Health {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The longest time between two acknowledgements; the first may be before `from` and the last after `to`.
pub(crate) fn longest_gap(stored: &[Instant], from: Instant, to: Instant) -> Duration {
    let before = stored.iter().copied().filter(|at| *at <= from).max().unwrap_or(from);
    let mut within: Vec<Instant> = stored.iter().copied().filter(|at| *at > from && *at < to).collect();
    within.sort_unstable();
    let moments: Vec<Instant> = std::iter::once(before).chain(within).chain([to]).collect();
    moments.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
}

pub(crate) fn plants() -> Vec<Plant> {
    let now = Instant::now();
    let at = |ms: &[u64]| ms.iter().map(|ms| now + Duration::from_millis(*ms)).collect::<Vec<_>>();
    let gap = |ms: &[u64]| longest_gap(&at(ms), now + Duration::from_secs(1), now + Duration::from_secs(9)).as_millis();
    vec![
        Plant { name: "acknowledgements without a gap", seen: gap(&[500, 2_500, 4_500, 6_500, 8_500]) == 2_000 },
        Plant { name: "a gap in the middle", seen: gap(&[500, 1_500, 7_500, 8_500]) == 6_000 },
        Plant { name: "a gap that begins before", seen: gap(&[0, 6_000, 8_000]) == 6_000 },
        Plant { name: "a gap without an end", seen: gap(&[900, 2_000]) == 7_000 },
        Plant { name: "no acknowledgement at all", seen: gap(&[]) == 8_000 },
    ]
}
