//! Delegation to other agents: a tool call becomes a separate run, and the end of that run the call's result.

use std::{collections::HashMap, time::Duration};

use serde_json::{Value, json};

use super::{Assistant, Conversation, act::Numbered};
use crate::{
    agents::{
        model::{ToolCall, ToolSpec},
        tools::ToolError,
        workers::{self, Task, Worker},
    },
    domain::{
        id::{Name, SpanId, Title},
        limits::TITLE_CHARS_MAX,
    },
    engine::{NodeContext, Stop},
};

/// The tool with which a model delegates.
pub(super) const SPAWN_WORKER: &str = "spawn_worker";

/// The tool's description; `None` if the assistant has no agents to delegate to.
pub(super) fn spec(assistant: &Assistant) -> Option<ToolSpec> {
    let agents: Vec<&str> = assistant.workers.iter().map(Name::as_str).collect();
    let schema = json!({
        "type": "object", "required": ["agent", "task"], "additionalProperties": false,
        "properties": {
            "agent": {"enum": agents, "description": "who does it"},
            "task": {"type": "string", "description": "all the worker has to know; it sees nothing of this conversation"},
            "title": {"type": "string", "description": "a few words for people who watch"},
        },
    });
    let description = "Gives a task to a worker, which works on it in a run of its own, beside other workers. Several \
        calls in one answer work at the same time. The result is what the worker answered.";
    (!agents.is_empty()).then(|| ToolSpec {
        name: SPAWN_WORKER.to_owned(),
        description: description.to_owned(),
        schema,
    })
}

pub(super) fn is_delegation(assistant: &Assistant, call: &ToolCall) -> bool {
    call.name == SPAWN_WORKER && !assistant.workers.is_empty()
}

/// A call's span with its worker, or why the call is invalid.
pub(super) type Spawned = (SpanId, Result<Worker, ToolError>);

/// Creates a run for each call. Repeated after a crash, it finds the same runs.
pub(super) async fn spawn(
    assistant: &Assistant,
    context: &NodeContext<Conversation>,
    calls: &[Numbered],
) -> Result<Vec<Spawned>, Stop> {
    let mut spawned = Vec::with_capacity(calls.len());
    for Numbered { span, call } in calls {
        context.env.emitter.tool_started(span, SPAWN_WORKER, &call.args, Some(&context.span)).await?;
        let worker = match task(assistant, &call.args) {
            Ok(task) => {
                let worker = workers::spawn(context, span.as_str(), span, task).await?;
                if let Err(error) = &worker.run {
                    failed(context, span, &error.to_string(), Duration::ZERO).await?;
                }
                Ok(worker)
            }
            Err(error) => {
                failed(context, span, &error.to_string(), Duration::ZERO).await?;
                Err(error)
            }
        };
        spawned.push((span.clone(), worker));
    }
    Ok(spawned)
}

async fn failed(context: &NodeContext<Conversation>, span: &SpanId, error: &str, took: Duration) -> Result<(), Stop> {
    Ok(context.env.emitter.tool_failed(span, SPAWN_WORKER, error, took, Some(&context.span)).await?)
}

fn task(assistant: &Assistant, args: &Value) -> Result<Task, ToolError> {
    let text = |name: &str| args[name].as_str().map(str::trim).filter(|text| !text.is_empty());
    let missing = |name: &str| ToolError::Arguments(format!("{name} is missing"));
    let (agent, task) = (text("agent").ok_or_else(|| missing("agent"))?, text("task").ok_or_else(|| missing("task"))?);
    let agent = assistant.workers.iter().find(|worker| worker.as_str() == agent).cloned();
    let agent = agent.ok_or_else(|| ToolError::Arguments("there is no worker agent of this name".to_owned()))?;
    let line: String =
        text("title").unwrap_or(task).chars().filter(|c| !c.is_control()).take(TITLE_CHARS_MAX).collect();
    Ok(Task {
        agent,
        title: line.parse::<Title>().map_or_else(|_| SPAWN_WORKER.to_owned(), |title| title.as_str().to_owned()),
        input: json!({"task": task}),
    })
}

/// Waits until all workers have ended, and reports how; the run is suspended meanwhile.
pub(super) async fn wait(
    context: &NodeContext<Conversation>,
    spawned: Vec<Spawned>,
) -> Result<HashMap<SpanId, Result<Value, ToolError>>, Stop> {
    let (mut results, mut spans, mut at_work) = (HashMap::new(), Vec::new(), Vec::new());
    for (span, worker) in spawned {
        match worker {
            Ok(worker) => {
                spans.push(span);
                at_work.push(worker);
            }
            Err(error) => _ = results.insert(span, Err(error)),
        }
    }
    let ends = workers::wait(context, "workers are at work", &at_work).await?;
    for ((span, worker), end) in spans.into_iter().zip(&at_work).zip(ends) {
        let result = match end {
            Err(refused) => Err(refused.to_string()),
            Ok(end) => {
                // The log holds what the supervisor receives.
                let answer = |output: &Value| output.get("response").unwrap_or(output).clone();
                let brought = |output: &Value| Ok((answer(output), answer(output)));
                let reported = workers::told(context, &worker.title, &end, brought).await?;
                match &reported {
                    Ok(answer) => {
                        let parent = Some(&context.span);
                        context.env.emitter.tool_completed(&span, SPAWN_WORKER, answer, end.took, parent).await?;
                    }
                    Err(reason) => failed(context, &span, reason, end.took).await?,
                }
                reported
            }
        };
        results.insert(span, result.map_err(ToolError::Failed));
    }
    Ok(results)
}
