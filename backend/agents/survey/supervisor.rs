//! The supervisor: it divides the tree, has each part surveyed by a worker, and writes down what they found.
//!
//! Its log tells the whole story: plan, `worker.spawned` for each part, `run.waiting`, the end of each worker as it
//! comes, `run.resumed`, the merge, the summary word by word, the table, `run.completed`. A worker that fails costs
//! its part and nothing else; the summary says which.

use std::panic::AssertUnwindSafe;

use futures::{FutureExt, future::join_all};
use serde_json::json;

use super::{
    actor::{Actor, Survey, SurveyError, read, span},
    findings::{Findings, Missing, PartReport, Walked},
    parts::{Part, divide},
    report,
    tools::toolbox,
    worker,
};
use crate::{
    agents::spawner::{Child, agent},
    domain::{
        context::RunContext,
        id::{RunId, SpanId},
    },
    emitters::{
        emitter::{Emitter, Level},
        identity::SupervisorEmitter,
    },
};

/// Surveys the tree in the name of a started supervisor run, which is ended here, well or not.
pub async fn supervise(survey: &Survey, context: &RunContext) -> Result<Findings, SurveyError> {
    let prefix = format!("{}-{}", survey.event_id_prefix, context.run_id);
    let emitter = SupervisorEmitter::new(context.clone(), &prefix, survey.sink.clone())?;
    let tools = toolbox(&survey.source);
    let actor = Actor { context, emitter: &emitter, tools: &tools, survey };
    let done = surveyed(&actor).await;
    match &done {
        Ok(findings) => emitter.run_completed(output(findings)).await?,
        Err(SurveyError::Log(_)) => {}
        Err(error) => emitter.run_failed(&error.to_string()).await?,
    }
    done
}

async fn surveyed(actor: &Actor<'_>) -> Result<Findings, SurveyError> {
    let plan = span("plan");
    let parts = actor.in_step(&plan, planned(actor, &plan)).await?;
    let spawn = span("spawn");
    let (workers, mut missing) = actor.in_step(&spawn, spawned(actor, &spawn, parts)).await?;
    let ids: Vec<RunId> = workers.iter().map(|(_, context)| context.run_id).collect();
    let mut reports = Vec::new();
    if !workers.is_empty() {
        actor.emitter.run_waiting("the workers survey their parts", &ids).await?;
        let done = join_all(workers.into_iter().map(|(part, context)| watched(actor, part, context))).await;
        for outcome in done {
            match outcome? {
                Ok(report) => reports.push(report),
                Err(without) => missing.push(without),
            }
        }
        let resumed = format!("{} of {} workers completed", reports.len(), ids.len());
        actor.emitter.run_resumed(&resumed).await?;
    }
    if reports.is_empty() && !missing.is_empty() {
        return Err(SurveyError::Nothing);
    }
    let merge = span("merge");
    let findings = actor.in_step(&merge, merged(actor, &merge, reports, missing)).await?;
    let write = span("write");
    actor.in_step(&write, written(actor, &write, &findings)).await?;
    Ok(findings)
}

async fn planned(actor: &Actor<'_>, step: &SpanId) -> Result<Vec<Part>, SurveyError> {
    let answer = actor.call(step, &["walk_tree"], &[".".to_owned()]).await?.pop().unwrap_or_default();
    let walked: Walked = read("walk_tree", answer)?;
    let parts = divide(&walked.folders);
    let text = format!("{} files in {} parts", walked.files, parts.len());
    actor.emitter.log(Level::Info, &text).await?;
    Ok(parts)
}

/// A run for each part. A part whose run could not be created is missing, no more.
async fn spawned(
    actor: &Actor<'_>,
    step: &SpanId,
    parts: Vec<Part>,
) -> Result<(Vec<(Part, RunContext)>, Vec<Missing>), SurveyError> {
    let (mut workers, mut missing) = (Vec::new(), Vec::new());
    for (index, part) in parts.into_iter().enumerate() {
        let child = Child {
            agent: agent(&format!("surveyor-{}", index + 1)),
            run_id: None,
            thread_id: None,
            start: true,
            title: title(&part),
            input: json!({"scopes": part.scopes, "files": part.files, "bytes": part.bytes}),
        };
        match actor.survey.spawner.spawn(actor.context, child).await {
            Ok(context) => {
                actor.emitter.worker_spawned(&context, &title(&part), Some(step)).await?;
                workers.push((part, context));
            }
            Err(error) => {
                actor.emitter.log(Level::Error, &format!("{}: {error}", part.name)).await?;
                missing.push(Missing { part, error: error.to_string() });
            }
        }
    }
    Ok((workers, missing))
}

/// Lets a worker work and logs its end at once. The outer error is the supervisor's own log's.
async fn watched(
    actor: &Actor<'_>,
    part: Part,
    context: RunContext,
) -> Result<Result<PartReport, Missing>, SurveyError> {
    let began = actor.now();
    let work = AssertUnwindSafe(worker::work(actor.survey, actor.tools, &context, &part));
    let done = work.catch_unwind().await.unwrap_or(Err(SurveyError::Panicked));
    let took = actor.now().saturating_sub(began);
    match done {
        Ok(report) => {
            let summary = worker::summary(&report);
            actor.emitter.worker_completed(context.run_id, &title(&part), &summary, took).await?;
            Ok(Ok(report))
        }
        Err(error) => {
            let error = error.to_string();
            actor.emitter.worker_failed(context.run_id, &title(&part), &error, took).await?;
            Ok(Err(Missing { part, error }))
        }
    }
}

/// Adds up, and looks for copies over all parts at once.
async fn merged(
    actor: &Actor<'_>,
    step: &SpanId,
    reports: Vec<PartReport>,
    missing: Vec<Missing>,
) -> Result<Findings, SurveyError> {
    let scopes: Vec<String> = reports.iter().flat_map(|report| report.part.scopes.clone()).collect();
    let answer = actor.call(step, &["find_duplicates"], &scopes).await?.pop().unwrap_or_default();
    Ok(Findings::merge(reports, missing, read("find_duplicates", answer)?))
}

async fn written(actor: &Actor<'_>, step: &SpanId, findings: &Findings) -> Result<(), SurveyError> {
    let name = actor.survey.source.root().file_name().map(|name| name.to_string_lossy().into_owned());
    let summary = report::summary(&name.unwrap_or_else(|| "The tree".to_owned()), findings);
    actor.say(&span("summary"), step, &summary).await?;
    actor.emitter.custom("table", &json!(report::table(findings))).await?;
    Ok(())
}

fn title(part: &Part) -> String {
    let title = format!("Survey {}", part.name);
    title.chars().filter(|c| !c.is_control()).take(TITLE_CHARS).collect()
}

/// Characters kept of a worker's title; folder names may be long.
const TITLE_CHARS: usize = 120;

fn output(findings: &Findings) -> serde_json::Value {
    json!({
        "table": report::table(findings).text(), "files": findings.total.files, "lines": findings.total.lines,
        "languages": findings.total.languages, "longest_functions": findings.functions.longest,
        "largest_files": findings.total.largest, "markers": findings.markers, "duplicates": findings.duplicates,
        "missing": findings.missing,
    })
}

#[cfg(test)]
mod tests;
