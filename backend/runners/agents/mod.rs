//! Agents as an executor: a runner carries out what a server would, on a machine of its own.
//!
//! Events go over the runner's socket; the run's state, its answers and the runs below it over the HTTP API of the same
//! server, in the name of the same token. The checkpoints are those of the server's own runtime, so either goes on with
//! what the other began. What the agents are made of (models, their keys, tools) is this machine's and stays here.
//!
//! Invariants kept here: a request is made again until its answer is known, and one whose answer was lost changes nothing
//! when it is made again; nothing but a refusal of the request itself fails a run.
//!
//! Start reading at [`Agents`], then [`carry`](crate::agents::carry).

mod facts;
mod journal;
mod office;
mod shelf;

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt as _, future::BoxFuture};
use serde_json::json;

pub use self::{facts::RemoteFacts, journal::RemoteJournal, office::RemoteOffice, shelf::RemoteShelf};
use super::client::{Executor, Work};
use crate::{
    agents::{
        agent::Roster,
        carry::{Carrier, Done},
        roster::Reach,
        spawner::RemoteSpawner,
    },
    client::{Client, Error, Kind},
    clock::{IdSource, Stopwatch},
    domain::{event::NewEvent, json::Json, run::Status},
    engine::journal::JournalError,
};

/// How long one request is made again before the work stands back for a moment and begins anew.
const PATIENCE: Duration = Duration::from_mins(1);

impl Reach {
    /// What is at the server that `client` speaks to.
    pub fn remote(client: &Client, ids: IdSource, stopwatch: Stopwatch) -> Self {
        let shelf = Arc::new(RemoteShelf::new(client.clone()));
        let spawner = RemoteSpawner::new(client.clone(), ids, stopwatch, PATIENCE);
        Self { spill: shelf.clone(), pictures: shelf, spawner: Arc::new(spawner) }
    }
}

/// Carries out the runs of a roster's agents.
///
/// Give it to a [`Runner`](super::client::Runner) whose settings name the agents: `roster.names()`, or some of them.
#[derive(Clone)]
pub struct Agents {
    roster: Arc<dyn Roster>,
    client: Client,
    ids: IdSource,
    stopwatch: Stopwatch,
}

impl Agents {
    /// `client` speaks to the runner's own server with the runner's own token, which needs the scopes `read` and `emit`.
    pub fn new(roster: Arc<dyn Roster>, client: Client, ids: IdSource, stopwatch: Stopwatch) -> Self {
        Self { roster, client, ids, stopwatch }
    }

    fn carrier(&self, work: &Work) -> Carrier {
        let office = RemoteOffice::new(self.client.clone(), Arc::clone(&work.context), Arc::clone(&work.sink));
        Carrier {
            context: Arc::clone(&work.context),
            input: work.assign.input.clone(),
            attempt: work.assign.context.attempt,
            office: Arc::new(office),
            roster: Arc::clone(&self.roster),
            ids: self.ids.clone(),
            stopwatch: Arc::clone(&self.stopwatch),
        }
    }
}

impl Executor for Agents {
    fn execute(&self, work: Work) -> BoxFuture<'static, ()> {
        let carrier = self.carrier(&work);
        Box::pin(async move {
            let carrying = AssertUnwindSafe(carrier.carry(&work.cancel)).catch_unwind();
            let done = match work.cancel.run_until_cancelled(carrying).await {
                Some(Ok(Done::Stopped)) if !work.cancel.is_cancelled() => {
                    broken(&work, "the run could not be carried on").await
                }
                Some(Ok(done)) => done,
                Some(Err(_)) => broken(&work, "the agent panicked").await,
                None => Done::Stopped,
            };
            if done == Done::Ended || (done == Done::Stopped && has_ended(&carrier).await) {
                carrier.forget().await;
            }
        })
    }
}

/// Nobody can carry the run further. A runner that says no more would be taken to have finished.
async fn broken(work: &Work, why: &str) -> Done {
    let error = json!({"error": {"message": why}});
    let said = work.sink.emit(&work.context, vec![NewEvent::new("run.failed", Json::of(&error))]).await;
    if said.is_ok() { Done::Ended } else { Done::Stopped }
}

/// Whether work was stopped because its run is over, and not because it is somebody else's now.
async fn has_ended(carrier: &Carrier) -> bool {
    carrier.office.status().await.is_ok_and(|status| status.is_none_or(Status::is_terminal))
}

/// What an error means for the work on a run. One that speaks of the request will be the same tomorrow; everything else
/// is a matter of the server, the way to it or the token, and no fault of the run.
fn journal_error(error: &Error) -> JournalError {
    let transient = !matches!(error.kind, Kind::Invalid | Kind::Unusable);
    JournalError { reason: error.to_string(), transient }
}
