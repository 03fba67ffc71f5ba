//! [`Sink`]: where an emitter's events go. Either into this process's timeline or over HTTP into another's.

use std::{fmt::Display, time::Duration};

use futures::future::BoxFuture;
use serde_json::{Map, Value};

use crate::{
    client::Client,
    domain::{
        context::RunContext,
        event::{NewEvent, timestamp},
    },
};

/// The log did not take the events: it refused them, or could not be reached for as long as the sink was patient.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the log did not take the events: {reason}")]
pub struct SinkError {
    /// In words for the person who runs the agent.
    pub reason: String,
    /// Whether the same may work later: the log was away, and refused nothing.
    pub is_passing: bool,
}

impl SinkError {
    pub fn new(reason: impl Display) -> Self {
        Self { reason: reason.to_string(), is_passing: false }
    }

    pub fn passing(reason: impl Display) -> Self {
        Self { is_passing: true, ..Self::new(reason) }
    }
}

/// Takes events of any run, each call with the run it is for.
///
/// `Ok` means that the durable events of the call are committed. Events are kept in the order of the call, and a call
/// that is made again with the same `event_id`s changes nothing.
pub trait Sink: Send + Sync {
    fn emit<'a>(&'a self, context: &'a RunContext, events: Vec<NewEvent>) -> BoxFuture<'a, Result<(), SinkError>>;
}

/// Sends events to a server and tries again until they are stored, so a restart in the middle loses nothing.
#[derive(Clone, Debug)]
pub struct RemoteSink {
    client: Client,
    patience: Duration,
}

impl RemoteSink {
    /// `patience` is how long one call may try before it gives up.
    pub fn new(client: Client, patience: Duration) -> Self {
        Self { client, patience }
    }
}

impl Sink for RemoteSink {
    fn emit<'a>(&'a self, context: &'a RunContext, events: Vec<NewEvent>) -> BoxFuture<'a, Result<(), SinkError>> {
        Box::pin(async move {
            let body = events.iter().map(on_the_wire).collect::<Result<Vec<_>, _>>().map_err(SinkError::new)?;
            self.client
                .emit_until_stored(&context.run_id.to_string(), &body, self.patience)
                .await
                .map_err(SinkError::new)?;
            Ok(())
        })
    }
}

/// An event as `POST /api/runs/{run_id}/events` takes it. Role and agent stay out: the server stamps its run's own.
fn on_the_wire(event: &NewEvent) -> Result<Value, serde_json::Error> {
    let mut members = Map::new();
    members.insert("type".to_owned(), Value::from(event.event_type.as_str()));
    members.insert("payload".to_owned(), serde_json::from_str(event.payload.as_str())?);
    let optional = [
        ("span_id", event.span_id.as_ref().map(ToString::to_string)),
        ("parent_span_id", event.parent_span_id.as_ref().map(ToString::to_string)),
        ("event_id", event.event_id.as_ref().map(ToString::to_string)),
        ("at", event.at.map(timestamp)),
    ];
    members.extend(optional.into_iter().filter_map(|(name, value)| Some((name.to_owned(), Value::from(value?)))));
    Ok(Value::Object(members))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::json::Json;

    #[test]
    fn an_event_goes_over_the_wire_with_what_it_has_and_nothing_else() {
        let event = NewEvent::new("tool.started", Json::parse(r#"{"name":"x"}"#).unwrap())
            .span("t1".parse().unwrap())
            .event_id("e-1".parse().unwrap());
        assert_eq!(
            on_the_wire(&event).unwrap(),
            serde_json::json!({"type": "tool.started", "payload": {"name": "x"}, "span_id": "t1", "event_id": "e-1"})
        );
    }
}
