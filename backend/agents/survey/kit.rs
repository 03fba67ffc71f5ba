//! What supervisor and worker have in common: tool calls in a step, a message word by word.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::source::Source;
use crate::{
    agents::{
        spawner::Spawner,
        step::{Call, InVisit, Step, run_step},
        tools::Toolbox,
    },
    clock::Stopwatch,
    domain::id::SpanId,
    emitters::emitter::millis,
    engine::{Stop, Visit},
};

/// Tool calls of one run at a time.
const PARALLEL_MAX: usize = 4;
/// Longest time one tool may take.
const CALL_TIME_MAX: Duration = Duration::from_mins(2);

/// What the agents of a survey work with.
pub(super) struct Kit {
    pub source: Arc<Source>,
    pub tools: Toolbox,
    pub spawner: Arc<dyn Spawner>,
    pub stopwatch: Stopwatch,
    pub pace: Duration,
}

/// A message that went out word by word.
#[derive(Serialize, Deserialize)]
struct Said {
    span: SpanId,
    words: u64,
    took_ms: f64,
}

impl Kit {
    /// Refuses a run that is about another folder than this process was started for.
    pub(super) fn check(&self, input: &Value) -> Result<(), String> {
        if input["tree"] == self.source.key() {
            return Ok(());
        }
        let other = input["folder"].as_str().unwrap_or("another folder");
        Err(format!("this process surveys {}, and the run is about {other}", self.source.name()))
    }

    /// Calls tools side by side over the same scopes; their answers come in the same order.
    pub(super) async fn call<S: Send + Sync>(
        &self,
        visit: &Visit<S>,
        tools: &[&str],
        scopes: &[String],
    ) -> Result<Vec<Value>, Stop> {
        let memory = InVisit(visit);
        let step = Step {
            context: &visit.context,
            emitter: &*visit.emitter,
            tools: &self.tools,
            parent: Some(&visit.span),
            stopwatch: &self.stopwatch,
            parallel_max: PARALLEL_MAX,
            call_time_max: CALL_TIME_MAX,
            memory: Some(&memory),
            // The survey adds its answers up itself, whole; its tools see to it that they are short.
            output_bytes_max: usize::MAX,
            spill: None,
            cancel: &visit.cancel,
        };
        let call = |tool: &&str| Call {
            span: visit.sub_span(tool),
            tool: (*tool).to_owned(),
            args: json!({"scopes": scopes}),
        };
        let outcomes = run_step(&step, tools.iter().map(call).collect()).await?;
        let answers = outcomes
            .into_iter()
            .map(|outcome| outcome.result.map_err(|error| Stop::failed(format!("{}: {error}", outcome.tool))));
        answers.collect()
    }

    /// Streams a message word by word and then keeps it whole.
    pub(super) async fn say<S>(&self, visit: &Visit<S>, text: &str) -> Result<(), Stop> {
        let said = visit.once("said", || async {
            // Words that a crash cut off are under a span of their own.
            let (span, began, mut words) = (visit.fresh_span("message"), (self.stopwatch)(), 0);
            for word in text.split_inclusive(char::is_whitespace) {
                words += 1;
                visit.emitter.message_delta(&span, word).await?;
                if !self.pace.is_zero() {
                    tokio::time::sleep(self.pace).await;
                }
            }
            Ok(Said { span, words, took_ms: millis((self.stopwatch)().saturating_sub(began)) })
        });
        let Said { span, words, took_ms } = said.await?;
        let message = json!({
            "role": "assistant", "content": [{"type": "text", "text": text}], "usage": {"words": words},
            "duration_ms": took_ms,
        });
        Ok(visit.emitter.message(&span, &message, Some(&visit.span)).await?)
    }
}

/// A tool's answer as the type it is known to be.
pub(super) fn read<T: DeserializeOwned>(tool: &str, answer: Option<Value>) -> Result<T, Stop> {
    serde_json::from_value(answer.unwrap_or_default()).map_err(|error| Stop::failed(format!("{tool}: {error}")))
}
