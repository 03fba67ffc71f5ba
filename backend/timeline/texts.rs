//! Open texts between processes.
//!
//! Tokens are published at once in the process that receives them. For readers of other processes it saves what was
//! added to its open texts, every [`OPEN_SAVE_MS`], in one statement that also notifies the others of the runs
//! concerned. Processes with readers of these runs read the additions and publish them as deltas. A reader that joins
//! requests what is saved by then. All of it may be late or lost: the event that ends a message has its whole text.
//!
//! With a message bus ([`super::live`]), additions are also sent there, every [`LIVE_SEND_MS`].
//!
//! `super::open` decides what is saved and copied; `store/open_texts` has the statements.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::{
    sync::{Mutex, mpsc, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    Contexts,
    live::{Live, LiveKey},
    publish::Gate,
};
use crate::{
    bus::Topic,
    domain::{
        id::RunId,
        limits::{LIVE_SEND_MS, OPEN_ASKS_MAX, OPEN_SAVE_MS, OPEN_SWEEP_MS, OPEN_WAIT_MS_MAX},
        principal::OwnerId,
    },
    store::{
        self, Store,
        listen::notes_of_texts,
        open_texts::{SavedText, SweepPlace},
    },
    supervise::Supervisor,
};

/// A handle on the tasks that save and read texts. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Texts {
    parts: Parts,
    asks: mpsc::Sender<Ask>,
    asked: Arc<Mutex<mpsc::Receiver<Ask>>>,
}

#[derive(Clone, Debug)]
struct Parts {
    store: Store,
    gate: Gate,
    contexts: Contexts,
    process: String,
}

/// Why saved texts are to be read.
#[derive(Debug)]
enum Ask {
    /// Another process has saved texts of these runs.
    Told(Vec<RunId>),
    /// Such a notification may have been missed.
    Missed,
    /// A reader of one run, or of all runs of the owner, joins and waits for the answer.
    Reader(OwnerId, Option<RunId>, oneshot::Sender<()>),
}

impl Texts {
    pub(super) fn new(store: Store, gate: Gate, contexts: Contexts, process: String) -> Self {
        let (asks, asked) = mpsc::channel(OPEN_ASKS_MAX);
        Self { parts: Parts { store, gate, contexts, process }, asks, asked: Arc::new(Mutex::new(asked)) }
    }

    /// Starts its tasks; they end when `supervisor` stops.
    pub(super) fn start(self, live: Option<(Arc<dyn Live>, LiveKey)>, supervisor: &Supervisor) -> Self {
        let stop = supervisor.stop();
        if let Some((live, key)) = live {
            self.parts.gate.send_texts_too();
            supervisor.keep("live texts, sending", {
                let (parts, live, key, stop) = (self.parts.clone(), Arc::clone(&live), key.clone(), stop.clone());
                move || {
                    let (parts, live, key, stop) = (parts.clone(), Arc::clone(&live), key.clone(), stop.clone());
                    async move { _ = stop.run_until_cancelled(parts.send_all(&*live, &key)).await }
                }
            });
            supervisor.keep("live texts, receiving", {
                let (parts, stop) = (self.parts.clone(), stop.clone());
                move || {
                    let (parts, live, key, stop) = (parts.clone(), Arc::clone(&live), key.clone(), stop.clone());
                    async move { _ = stop.run_until_cancelled(parts.receive_all(&*live, &key)).await }
                }
            });
        }
        supervisor.keep("open texts, saving", {
            let (parts, stop) = (self.parts.clone(), stop.clone());
            move || parts.clone().save_all(stop.clone())
        });
        supervisor.keep("open texts, reading", {
            let (parts, asked, stop) = (self.parts.clone(), Arc::clone(&self.asked), stop.clone());
            move || {
                let (parts, asked, stop) = (parts.clone(), Arc::clone(&asked), stop.clone());
                async move { _ = stop.run_until_cancelled(parts.read_all(&mut *asked.lock().await)).await }
            }
        });
        let turns = (Duration::ZERO, Duration::from_millis(OPEN_SWEEP_MS));
        supervisor
            .every("open texts, removing", turns, self.parts.clone(), |parts, place| Box::pin(parts.sweep(place)));
        self
    }

    /// Another process has saved texts of these runs.
    pub(super) fn told(&self, runs: Vec<RunId>) {
        // Nothing to do without local readers. A notification that does not fit into the queue counts as lost.
        if self.parts.gate.bus().topics_count() > 0 {
            let _ = self.asks.try_send(Ask::Told(runs));
        }
    }

    /// Notifications of other processes may have been missed.
    pub(super) fn missed(&self) {
        let _ = self.asks.try_send(Ask::Missed);
    }

    /// Waits until what other processes have saved of a run (`None`: of all runs of the owner) is known here, for at
    /// most [`OPEN_WAIT_MS_MAX`]; the rest arrives as deltas.
    pub(super) async fn ask(&self, owner: &OwnerId, run: Option<RunId>) {
        let (answer, answered) = oneshot::channel();
        let asked = async {
            if self.asks.send(Ask::Reader(owner.clone(), run, answer)).await.is_ok() {
                let _ = answered.await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_millis(OPEN_WAIT_MS_MAX), asked).await;
    }
}

impl Parts {
    /// Saves until `stop`, then once more.
    async fn save_all(self, stop: CancellationToken) {
        loop {
            let is_stopping = stop.run_until_cancelled(self.gate.unsaved()).await.is_none();
            let next = Instant::now() + Duration::from_millis(OPEN_SAVE_MS);
            self.save().await;
            if is_stopping {
                return;
            }
            stop.run_until_cancelled(tokio::time::sleep_until(next)).await;
        }
    }

    async fn save(&self) {
        let unsaved = self.gate.take_unsaved();
        if unsaved.is_empty() {
            return;
        }
        let notes = notes_of_texts(&self.process, &unsaved.runs());
        match Box::pin(self.store.open_texts().save(&unsaved.texts, &unsaved.over, &notes)).await {
            Ok(outcomes) => self.gate.note_saved(&unsaved.texts, &outcomes),
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "open texts not saved; it is tried again");
                self.gate.take_back(unsaved);
            }
        }
    }

    async fn send_all(&self, live: &dyn Live, key: &LiveKey) {
        loop {
            self.gate.unsent().await;
            let texts = self.gate.take_unsent();
            if !texts.is_empty() {
                for message in key.seal_all(texts) {
                    live.send(message).await;
                }
            }
            tokio::time::sleep(Duration::from_millis(LIVE_SEND_MS)).await;
        }
    }

    async fn receive_all(&self, live: &dyn Live, key: &LiveKey) {
        loop {
            let message = live.next().await;
            // Without local readers there are no copies.
            if self.gate.bus().topics_count() > 0
                && let Some(texts) = key.open(&message)
            {
                self.gate.publish_sent(texts);
            }
        }
    }

    async fn read_all(self, asked: &mut mpsc::Receiver<Ask>) {
        let mut asks = Vec::new();
        while asked.recv_many(&mut asks, OPEN_ASKS_MAX).await > 0 {
            if let Err(error) = Box::pin(self.read(&asks)).await {
                tracing::debug!(error = &error as &dyn std::error::Error, "open texts of other processes not read");
                self.gate.give_up_reading();
            }
            // Dropping a reader's sender answers it.
            asks.clear();
        }
    }

    async fn read(&self, asks: &[Ask]) -> Result<(), store::Error> {
        let asked = self.wanted(asks).await?;
        if asked.is_empty() {
            return Ok(());
        }
        let known = self.gate.begin_reading(&asked);
        let read = self.store.open_texts().read(&asked, &known).await?;
        let owners = read.texts.iter().map(|text| (text.key.run_id, text.key.owner_id.as_str()));
        self.contexts.learn(owners).await?;
        let of_run = |text: SavedText| Some((self.contexts.known(text.key.run_id, text.key.owner_id.as_str())?, text));
        self.gate.publish_texts(&asked, read.texts.into_iter().filter_map(of_run).collect(), read.is_complete);
        Ok(())
    }

    /// The runs, or owners, with readers here whose texts are to be read.
    async fn wanted(&self, asks: &[Ask]) -> Result<Vec<(OwnerId, Option<RunId>)>, store::Error> {
        let (mut wanted, mut notified) = (HashSet::new(), Vec::new());
        for ask in asks {
            match ask {
                Ask::Told(runs) => notified.extend(runs),
                Ask::Missed => wanted.extend(self.gate.bus().topics().into_iter().map(|(owner, topic)| match topic {
                    Topic::Run(run) => (owner, Some(run)),
                    Topic::Everything => (owner, None),
                })),
                Ask::Reader(owner, run, answer) if !answer.is_closed() => _ = wanted.insert((owner.clone(), *run)),
                Ask::Reader(..) => {}
            }
        }
        let contexts = self.contexts.of_any(&notified).await?;
        let heard = contexts.iter().filter(|context| self.gate.bus().is_heard(context.run_id, &context.owner_id));
        wanted.extend(heard.map(|context| (context.owner_id.clone(), Some(context.run_id))));
        let is_covered =
            |(owner, run): &(OwnerId, Option<RunId>)| run.is_some() && wanted.contains(&(owner.clone(), None));
        Ok(wanted.iter().filter(|asked| !is_covered(asked)).cloned().collect())
    }

    /// Removes saved texts that are over, from a place on.
    async fn sweep(&self, place: &mut SweepPlace) -> Result<(), store::Error> {
        self.gate.drop_unheard_texts();
        while let Some(next) = self.store.open_texts().sweep(std::mem::take(place)).await? {
            *place = next;
        }
        Ok(())
    }
}
