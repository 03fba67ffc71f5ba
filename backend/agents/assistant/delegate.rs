//! Giving work to other agents: a tool call becomes a run of its own, and its end becomes the call's result.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::{Assistant, Conversation, act::Numbered};
use crate::{
    agents::{
        model::{ToolCall, ToolSpec},
        spawner::Child,
        tools::ToolError,
    },
    domain::{
        context::RunContext,
        id::{Name, RunId, SpanId, ThreadId, Title},
        limits::TITLE_CHARS_MAX,
        run::Status,
    },
    engine::{Stop, Visit, visit::ChildEnd},
};

/// The tool under which a model gives work away.
pub(super) const SPAWN_WORKER: &str = "spawn_worker";

/// A call that became a run, or the reason why it did not.
pub(super) struct Spawned {
    span: SpanId,
    title: String,
    run: Result<RunContext, ToolError>,
}

/// The tool, for an assistant that has somebody to give work to.
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

/// Makes a run of each call. Made again after a crash, it finds the same runs.
pub(super) async fn spawn(
    assistant: &Assistant,
    visit: &Visit<Conversation>,
    calls: &[Numbered],
) -> Result<Vec<Spawned>, Stop> {
    let mut spawned = Vec::with_capacity(calls.len());
    for Numbered { span, call } in calls {
        visit.emitter.tool_started(span, SPAWN_WORKER, &call.args, Some(&visit.span)).await?;
        let run_id = RunId::trusted(visit.id(&format!("run.{span}")).await?);
        let (title, run) = match child(assistant, run_id, &call.args) {
            Err(error) => (SPAWN_WORKER.to_owned(), Err(error)),
            Ok(child) => {
                let title = child.title.clone();
                let run = assistant.spawner.spawn(&visit.context, child).await;
                (title, run.map_err(|error| ToolError::Failed(error.to_string())))
            }
        };
        match &run {
            Ok(context) => visit.emitter.worker_spawned(context, &title, Some(span)).await?,
            Err(error) => {
                let took = std::time::Duration::ZERO;
                visit.emitter.tool_failed(span, SPAWN_WORKER, &error.to_string(), took, Some(&visit.span)).await?;
            }
        }
        spawned.push(Spawned { span: span.clone(), title, run });
    }
    Ok(spawned)
}

fn child(assistant: &Assistant, run_id: RunId, args: &Value) -> Result<Child, ToolError> {
    let text = |name: &str| args[name].as_str().map(str::trim).filter(|text| !text.is_empty());
    let missing = |name: &str| ToolError::Arguments(format!("{name} is missing"));
    let (agent, task) = (text("agent").ok_or_else(|| missing("agent"))?, text("task").ok_or_else(|| missing("task"))?);
    let agent = assistant.workers.iter().find(|worker| worker.as_str() == agent).cloned();
    let agent = agent.ok_or_else(|| ToolError::Arguments("there is no such agent to give work to".to_owned()))?;
    let line: String =
        text("title").unwrap_or(task).chars().filter(|c| !c.is_control()).take(TITLE_CHARS_MAX).collect();
    Ok(Child {
        run_id: Some(run_id),
        agent,
        title: line.parse::<Title>().map_or_else(|_| SPAWN_WORKER.to_owned(), |title| title.as_str().to_owned()),
        input: json!({"task": task}),
        // What a worker remembers is its own, whatever thread its supervisor works on.
        thread_id: Some(ThreadId::trusted(&format!("run:{run_id}"))),
        start: false,
    })
}

/// Waits until all have ended, and tells how; the run rests in the meantime.
pub(super) async fn wait(
    visit: &Visit<Conversation>,
    spawned: Vec<Spawned>,
) -> Result<HashMap<SpanId, Result<Value, ToolError>>, Stop> {
    let runs: Vec<RunId> = spawned.iter().filter_map(|child| Some(child.run.as_ref().ok()?.run_id)).collect();
    let ends = if runs.is_empty() { Vec::new() } else { visit.wait_for("workers are at work", &runs).await? };
    let ends: HashMap<RunId, ChildEnd> = ends.into_iter().map(|end| (end.run_id, end)).collect();
    let mut results = HashMap::new();
    for Spawned { span, title, run } in spawned {
        let result = match run {
            Err(error) => Err(error),
            Ok(context) => {
                let end = ends.get(&context.run_id).ok_or_else(|| Stop::failed("a worker's end is missing"))?;
                ended(visit, &span, &title, end).await?
            }
        };
        results.insert(span, result);
    }
    Ok(results)
}

async fn ended(
    visit: &Visit<Conversation>,
    span: &SpanId,
    title: &str,
    end: &ChildEnd,
) -> Result<Result<Value, ToolError>, Stop> {
    let (emitter, parent) = (&visit.emitter, Some(&visit.span));
    if end.status == Status::Completed {
        let summary =
            end.output.as_ref().map_or(Value::Null, |output| output.get("response").unwrap_or(output).clone());
        emitter.worker_completed(end.run_id, title, &summary, end.took).await?;
        emitter.tool_completed(span, SPAWN_WORKER, &summary, end.took, parent).await?;
        return Ok(Ok(summary));
    }
    let reason = end.error.as_ref().and_then(|error| error["message"].as_str()).map(str::to_owned);
    let reason = reason.unwrap_or_else(|| format!("the worker's run is {}", end.status.as_str()));
    emitter.worker_failed(end.run_id, title, &reason, end.took).await?;
    emitter.tool_failed(span, SPAWN_WORKER, &reason, end.took, parent).await?;
    Ok(Err(ToolError::Failed(reason)))
}
