//! What the tests of this folder share: a sink that remembers, and contexts made from nothing.

use std::{
    str::FromStr,
    sync::{Mutex, PoisonError},
};

use futures::future::BoxFuture;

use super::sink::{Sink, SinkError};
use crate::domain::{
    context::{Role, RunContext},
    event::{NewEvent, Recorded},
    id::{Name, RunId, Seq},
    principal::OwnerId,
};

/// Keeps every event with the context it came with, stamped as the server stamps it.
#[derive(Default)]
pub(crate) struct Recording {
    events: Mutex<Vec<Recorded>>,
    /// The type of the event that is refused, if any.
    refuses: Option<&'static str>,
}

impl Recording {
    pub(crate) fn refusing(event_type: &'static str) -> Self {
        Self { refuses: Some(event_type), ..Self::default() }
    }

    pub(crate) fn events(&self) -> Vec<Recorded> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The types of one run's durable events, in order.
    pub(crate) fn types(&self, run_id: RunId) -> Vec<String> {
        let of_run = |event: &Recorded| event.run_id == run_id && !event.event_type.is_ephemeral();
        self.events().into_iter().filter(of_run).map(|event| event.event_type.to_string()).collect()
    }
}

impl Sink for Recording {
    fn emit<'a>(&'a self, context: &'a RunContext, events: Vec<NewEvent>) -> BoxFuture<'a, Result<(), SinkError>> {
        Box::pin(async move {
            // Others get their turn in the middle of every emission, as they would around real I/O.
            tokio::task::yield_now().await;
            if events.iter().any(|event| Some(event.event_type.as_str()) == self.refuses) {
                return Err(SinkError::new("refused on purpose"));
            }
            let mut kept = self.events.lock().unwrap_or_else(PoisonError::into_inner);
            let seq = Seq::new(i64::try_from(kept.len()).unwrap_or(i64::MAX));
            kept.extend(
                events.into_iter().map(|event| Recorded::stamp(context, event, seq, chrono::DateTime::UNIX_EPOCH)),
            );
            Ok(())
        })
    }
}

pub(crate) fn run_id(n: u32) -> RunId {
    RunId::from_str(&format!("0198c0de-0000-7000-8000-{n:012x}")).expect("well-formed")
}

pub(crate) fn context(n: u32, role: Role, agent: &str) -> RunContext {
    RunContext {
        run_id: run_id(n),
        root_run_id: run_id(1),
        parent_run_id: (n != 1).then(|| run_id(1)),
        owner_id: OwnerId::trusted("00ff"),
        thread_id: None,
        session_id: None,
        role,
        agent: Name::from_str(agent).ok(),
        origin: None,
        trace_id: None,
    }
}
