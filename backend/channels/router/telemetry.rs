//! [`Telemetry`]: the events of the router's run, collected until it ends or waits and then stored in one append.
//!
//! That append also opens the run. A run that is over when it appears cannot be followed live, so for a finished step
//! only its end is stored.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{
    RouteError, Router,
    message::{Message, request_hash},
};
use crate::{
    agents::runtime::LocalHost,
    domain::{
        event::{EventKind, NewEvent},
        id::SpanId,
        run::{Spec, Status},
    },
    emitters::{
        emitter::{Draft, Emitted, Emitter},
        host::{HostError, RunHost},
        identity::SupervisorEmitter,
    },
    timeline::{Timeline, emit::Opening},
};

/// The telemetry of one message's routing.
pub(super) struct Telemetry {
    timeline: Timeline,
    pub(super) host: Arc<dyn RunHost>,
    emitter: SupervisorEmitter,
    /// The run's status from an earlier attempt, `None` if it does not exist. An ended run records nothing more.
    pub(super) found: Option<Status>,
    collected: Mutex<Collected>,
}

/// What has not been stored yet.
struct Collected {
    /// The run, unless it is already open.
    spec: Option<Box<Spec>>,
    events: Vec<NewEvent>,
}

impl Telemetry {
    /// For a message that is about to be routed, for the first time or again.
    pub(super) async fn of(router: &Router, message: &Message) -> Result<Self, RouteError> {
        let spec = message.router_spec(&router.key);
        let timeline = router.timeline.clone();
        let found = match message.attempts {
            ..=1 => None,
            _ => timeline.run(&message.owner, message.router_run_id).await?.map(|record| record.head.status),
        };
        let host = LocalHost::new(timeline.clone(), router.threads.clone(), Arc::new(spec.context.clone()));
        // No retries here: a message that cannot be routed now stays in the inbox.
        let host: Arc<dyn RunHost> = Arc::new(host.patient(Duration::ZERO));
        let emitter = SupervisorEmitter::new(Arc::clone(&host), &format!("router-{}", message.attempts));
        let emitter = emitter.map_err(|unfit| RouteError::Failed(unfit.to_string()))?.repeatable();
        let collected = Collected { spec: found.is_none().then(|| Box::new(spec)), events: Vec::new() };
        Ok(Self { timeline, host, emitter, found, collected: Mutex::new(collected) })
    }

    /// Stores the events collected so far.
    pub(super) async fn send(&self) -> Result<(), HostError> {
        let (spec, mut events) = {
            let mut collected = self.collected.lock().unwrap_or_else(PoisonError::into_inner);
            (collected.spec.take(), std::mem::take(&mut collected.events))
        };
        if self.found.is_some_and(Status::is_terminal) {
            return Ok(());
        }
        let of = |event: &NewEvent, wanted| event.span_id.clone().filter(|_| event.event_type.is(wanted));
        let ended: HashSet<SpanId> = events.iter().filter_map(|event| of(event, EventKind::StepCompleted)).collect();
        events.retain(|event| of(event, EventKind::StepStarted).is_none_or(|span| !ended.contains(&span)));
        if let Some(spec) = spec {
            let run = spec.context.run_id;
            let opening = Opening { events: events.clone(), ..Opening::default() };
            let opened = self.timeline.open_run_with(*spec, request_hash(run), opening).await;
            let opened =
                opened.map_err(|error| HostError { is_retryable: error.is_retryable(), reason: error.to_string() });
            if !opened?.already_open {
                return Ok(());
            }
        }
        if events.is_empty() { Ok(()) } else { self.host.emit(events).await }
    }
}

impl Emitter for Telemetry {
    fn emit_all(&self, drafts: Vec<Draft>) -> Emitted<'_> {
        let events = self.emitter.events(drafts);
        self.collected.lock().unwrap_or_else(PoisonError::into_inner).events.extend(events);
        Box::pin(std::future::ready(Ok(())))
    }
}
