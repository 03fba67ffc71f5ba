//! A worker: it surveys one part of the tree and writes a note about it.

use serde_json::{Value, json};

use super::{
    actor::{Actor, Survey, SurveyError, read, span},
    findings::PartReport,
    parts::Part,
    report,
};
use crate::{
    agents::tools::Toolbox,
    domain::context::RunContext,
    emitters::{
        emitter::{Emitter, Level},
        identity::WorkerEmitter,
    },
};

/// Steps and tool calls of a worker that finishes: what a progress bar counts to.
pub const WORKER_MILESTONES: u64 = 8;

/// Surveys a part in the name of the worker's run, which is ended here, well or not.
pub async fn work(
    survey: &Survey,
    tools: &Toolbox,
    context: &RunContext,
    part: &Part,
) -> Result<PartReport, SurveyError> {
    let prefix = format!("{}-{}", survey.event_id_prefix, context.run_id);
    let emitter = WorkerEmitter::new(context.clone(), &prefix, survey.sink.clone())?;
    let actor = Actor { context, emitter: &emitter, tools, survey };
    let done = part_of(&actor, part).await;
    match &done {
        Ok(report) => emitter.run_completed(output(report)).await?,
        Err(SurveyError::Log(_)) => {}
        Err(error) => emitter.run_failed(&error.to_string()).await?,
    }
    done
}

async fn part_of(actor: &Actor<'_>, part: &Part) -> Result<PartReport, SurveyError> {
    let (list, measure, write) = (span("list"), span("measure"), span("write"));
    actor.in_step(&list, actor.call(&list, &["walk_tree"], &part.scopes)).await?;
    let tools = ["measure_files", "find_long_functions", "find_todos", "find_duplicates"];
    let answers = actor.in_step(&measure, actor.call(&measure, &tools, &part.scopes)).await?;
    let mut answers = answers.into_iter();
    let mut answer = || answers.next().unwrap_or_default();
    let report = PartReport {
        part: part.clone(),
        measured: read(tools[0], answer())?,
        functions: read(tools[1], answer())?,
        markers: read(tools[2], answer())?,
        duplicates: read(tools[3], answer())?,
    };
    if report.measured.skipped.unreadable > 0 {
        let unreadable = report.measured.skipped.unreadable;
        actor.emitter.log(Level::Warn, &format!("{unreadable} files could not be read")).await?;
    }
    actor.in_step(&write, actor.say(&span("note"), &write, &report::note(&report))).await?;
    Ok(report)
}

/// What the run leaves behind: the numbers and the head of each list.
fn output(report: &PartReport) -> Value {
    json!({
        "part": report.part.name, "files": report.measured.files, "lines": report.measured.lines,
        "languages": report.measured.languages, "longest_functions": report.functions.longest,
        "markers": report.markers.count, "copied_files": report.duplicates.copied_files,
        "repeated_lines": report.duplicates.block_lines,
    })
}

/// What the supervisor's log keeps of it.
pub(super) fn summary(report: &PartReport) -> Value {
    json!({
        "files": report.measured.files, "lines": report.measured.lines.total, "functions": report.functions.count,
        "markers": report.markers.count, "copied_files": report.duplicates.copied_files,
        "repeated_lines": report.duplicates.block_lines,
    })
}
