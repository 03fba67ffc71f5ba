//! What supervisor and worker have in common: steps around work, tool calls in a step, a message word by word.

use std::{sync::Arc, time::Duration};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::source::Source;
use crate::{
    agents::{
        spawner::Spawner,
        step::{Call, Step, run_step},
        tools::Toolbox,
    },
    clock::Stopwatch,
    domain::{context::RunContext, id::SpanId},
    emitters::{
        emitter::Emitter,
        identity::Unfit,
        sink::{Sink, SinkError},
    },
};

/// Tool calls of one run at a time.
const PARALLEL_MAX: usize = 4;
/// Longest time one tool may take.
const CALL_TIME_MAX: Duration = Duration::from_mins(2);

/// What a survey needs from outside.
#[derive(Clone)]
pub struct Survey {
    pub source: Arc<Source>,
    pub sink: Arc<dyn Sink>,
    pub spawner: Arc<dyn Spawner>,
    pub stopwatch: Stopwatch,
    /// Time between two words of a message; zero sends them as fast as they are taken.
    pub pace: Duration,
    /// New for every survey; each emitter adds its run's id.
    pub event_id_prefix: String,
}

/// Why a supervisor or a worker could not finish.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SurveyError {
    #[error(transparent)]
    Log(#[from] SinkError),
    #[error("{tool}: {error}")]
    Tool { tool: String, error: String },
    #[error(transparent)]
    Identity(#[from] Unfit),
    #[error("no part of the tree could be surveyed")]
    Nothing,
    #[error("the worker panicked")]
    Panicked,
}

/// One run at work.
pub(super) struct Actor<'a> {
    pub context: &'a RunContext,
    pub emitter: &'a dyn Emitter,
    pub tools: &'a Toolbox,
    pub survey: &'a Survey,
}

impl Actor<'_> {
    pub(super) fn now(&self) -> Duration {
        (self.survey.stopwatch)()
    }

    /// Does `work` between the step's events. Nothing of it happens before the start is logged.
    pub(super) async fn in_step<T>(
        &self,
        span: &SpanId,
        work: impl Future<Output = Result<T, SurveyError>>,
    ) -> Result<T, SurveyError> {
        let name = span.as_str();
        self.emitter.step_started(span, name).await?;
        let began = self.now();
        let done = work.await;
        let took = self.now().saturating_sub(began);
        match &done {
            Ok(_) => self.emitter.step_completed(span, name, took).await?,
            // A log that is gone cannot be told so.
            Err(SurveyError::Log(_)) => {}
            Err(error) => self.emitter.step_failed(span, name, &error.to_string(), took).await?,
        }
        done
    }

    /// Calls tools side by side over the same scopes; their answers come in the same order.
    pub(super) async fn call(
        &self,
        step: &SpanId,
        tools: &[&str],
        scopes: &[String],
    ) -> Result<Vec<Value>, SurveyError> {
        let cancel = CancellationToken::new();
        let step_of = Step {
            context: self.context,
            emitter: self.emitter,
            tools: self.tools,
            parent: Some(step),
            stopwatch: &self.survey.stopwatch,
            parallel_max: PARALLEL_MAX,
            call_time_max: CALL_TIME_MAX,
            memory: None,
            // The survey adds its answers up itself, whole.
            output_bytes_max: usize::MAX,
            spill: None,
            cancel: &cancel,
        };
        let call = |tool: &&str| Call {
            span: span(&format!("{step}-{tool}")),
            tool: (*tool).to_owned(),
            args: json!({"scopes": scopes}),
        };
        let outcomes = run_step(&step_of, tools.iter().map(call).collect()).await?;
        let answers = outcomes.into_iter().map(|outcome| {
            outcome.result.map_err(|error| SurveyError::Tool { tool: outcome.tool, error: error.to_string() })
        });
        answers.collect()
    }

    /// Streams a message word by word and then keeps it whole.
    pub(super) async fn say(&self, message: &SpanId, step: &SpanId, text: &str) -> Result<(), SurveyError> {
        let began = self.now();
        let mut words = 0u64;
        for word in text.split_inclusive(char::is_whitespace) {
            words += 1;
            self.emitter.message_delta(message, word).await?;
            if !self.survey.pace.is_zero() {
                tokio::time::sleep(self.survey.pace).await;
            }
        }
        let took = self.now().saturating_sub(began);
        let usage = json!({"words": words});
        self.emitter.message_completed(message, text, Some(usage), took, Some(step)).await?;
        Ok(())
    }
}

/// A tool's answer as the type it is known to be.
pub(super) fn read<T: DeserializeOwned>(tool: &str, answer: Value) -> Result<T, SurveyError> {
    let failed = |error: serde_json::Error| SurveyError::Tool { tool: tool.to_owned(), error: error.to_string() };
    serde_json::from_value(answer).map_err(failed)
}

/// A span of this program's own naming.
pub(super) fn span(text: &str) -> SpanId {
    SpanId::trusted(text)
}
