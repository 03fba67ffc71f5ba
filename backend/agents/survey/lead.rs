//! The supervisor: it divides the tree, has each part surveyed by a worker, and writes down what they found.
//!
//! ```text
//! plan → survey (a run for each part; wait) → merge → write
//! ```
//!
//! Its log tells the whole story: plan, `worker.spawned` for each part, `run.waiting`, `run.resumed`, how each worker
//! ended, the merge, the summary word by word, the table, `run.completed`. A worker that fails costs its part and
//! nothing else; the summary says which.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    SURVEYOR,
    findings::{Counted, Duplicates, Findings, Missing, PartReport, Walked},
    kit::{Kit, read},
    name,
    parts::Part,
    report, title,
};
use crate::{
    agents::{
        agent::{Agent, Desk},
        spawner::Child,
        workers,
    },
    emitters::emitter::Level,
    engine::{Ended, Graph, Limits, Next, State, Stop, Visit, drive::DriveError, graph::Flaw},
};

/// The agent.
pub(super) struct Lead(pub Arc<Kit>);

/// How far the survey is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Surveyed {
    parts: Vec<Part>,
    reports: Vec<PartReport>,
    missing: Vec<Missing>,
    /// Of all reported parts together.
    duplicates: Duplicates,
}

/// What a step adds.
#[derive(Serialize, Deserialize)]
enum Found {
    Parts(Vec<Part>),
    Reports(Vec<PartReport>, Vec<Missing>),
    Duplicates(Duplicates),
    Nothing,
}

impl State for Surveyed {
    type Update = Found;

    fn apply(&mut self, found: Found) {
        match found {
            Found::Parts(parts) => self.parts = parts,
            Found::Reports(reports, missing) => (self.reports, self.missing) = (reports, missing),
            Found::Duplicates(duplicates) => self.duplicates = duplicates,
            Found::Nothing => {}
        }
    }
}

impl Surveyed {
    fn findings(&self) -> Findings {
        Findings::merge(self.reports.clone(), self.missing.clone(), self.duplicates.clone())
    }
}

impl Agent for Lead {
    fn work(self: Arc<Self>, desk: Desk, limits: Limits) -> BoxFuture<'static, Result<Ended<Value>, DriveError>> {
        Box::pin(async move {
            let checked = self.0.check(&desk.input);
            let graph = match checked.and_then(|()| graph(&self.0).map_err(|flaw| flaw.to_string())) {
                Ok(graph) => graph,
                Err(error) => return Ok(Ended::Failed { node: None, error }),
            };
            let ended = desk.drive(&graph, limits, |_| Surveyed::default()).await?;
            Ok(ended.map(|surveyed| output(surveyed.findings())))
        })
    }
}

fn graph(kit: &Arc<Kit>) -> Result<Graph<Surveyed>, Flaw> {
    let (planning, surveying) = (Arc::clone(kit), Arc::clone(kit));
    let (merging, writing) = (Arc::clone(kit), Arc::clone(kit));
    Graph::new("survey-lead", "plan")
        .node("plan", move |visit| plan(Arc::clone(&planning), visit))
        .node("survey", move |visit| survey(Arc::clone(&surveying), visit))
        .node("merge", move |visit| merge(Arc::clone(&merging), visit))
        .node("write", move |visit| write(Arc::clone(&writing), visit))
        .edge("plan", Next::To("survey"))
        .edge("survey", Next::To("merge"))
        .edge("merge", Next::To("write"))
        .edge("write", Next::End)
        .build()
}

async fn plan(kit: Arc<Kit>, visit: Visit<Surveyed>) -> Result<Found, Stop> {
    let answer = kit.call(&visit, &["walk_tree"], &[".".to_owned()]).await?.pop();
    let Walked { files, parts, .. } = read("walk_tree", answer)?;
    let text = format!("{files} files in {} parts", parts.len());
    visit.emitter.log_in(&visit.sub_span("parts"), Level::Info, &text).await?;
    Ok(Found::Parts(parts))
}

/// A run for each part. A part whose run could not be created, or failed, is missing, no more.
async fn survey(kit: Arc<Kit>, visit: Visit<Surveyed>) -> Result<Found, Stop> {
    let mut asked = Vec::new();
    for (n, part) in visit.state.parts.iter().enumerate() {
        let child = Child {
            run_id: None,
            thread_id: None,
            start: false,
            agent: name(SURVEYOR),
            title: title(&format!("Survey {}", part.name)),
            input: json!({"folder": kit.source.name(), "tree": kit.source.key(), "part": part}),
        };
        asked.push(workers::spawn(&visit, &*kit.spawner, &n.to_string(), &visit.span, child).await?);
    }
    let ends = workers::wait(&visit, "the workers survey their parts", &asked).await?;
    let (mut reports, mut missing) = (Vec::new(), Vec::new());
    for ((part, worker), end) in visit.state.parts.iter().cloned().zip(&asked).zip(ends) {
        let brought = match end {
            Ok(end) => workers::told(&visit, &worker.title, &end, brought).await?,
            Err(refused) => Err(refused.to_string()),
        };
        match brought {
            Ok(counted) => reports.push(PartReport { part, counted }),
            Err(error) => missing.push(Missing { part, error }),
        }
    }
    if reports.is_empty() && !missing.is_empty() {
        return Err(Stop::failed("no part of the tree could be surveyed"));
    }
    Ok(Found::Reports(reports, missing))
}

/// Reads what a worker brought back; its numbers are what the supervisor's log keeps.
fn brought(output: &Value) -> Result<(Counted, Value), String> {
    let counted: Counted = serde_json::from_value(output.clone())
        .map_err(|error| format!("what the worker brought back cannot be read: {error}"))?;
    let Counted { measured, functions, markers, duplicates } = &counted;
    let summary = json!({
        "files": measured.files, "lines": measured.lines.total, "functions": functions.count,
        "markers": markers.count, "copied_files": duplicates.copied_files, "repeated_lines": duplicates.block_lines,
    });
    Ok((counted, summary))
}

/// Looks for copies over all parts at once.
async fn merge(kit: Arc<Kit>, visit: Visit<Surveyed>) -> Result<Found, Stop> {
    let scopes: Vec<String> = visit.state.reports.iter().flat_map(|report| report.part.scopes.clone()).collect();
    let answer = kit.call(&visit, &["find_duplicates"], &scopes).await?.pop();
    Ok(Found::Duplicates(read("find_duplicates", answer)?))
}

async fn write(kit: Arc<Kit>, visit: Visit<Surveyed>) -> Result<Found, Stop> {
    let findings = visit.state.findings();
    kit.say(&visit, &report::summary(&kit.source.name(), &findings)).await?;
    visit.emitter.custom(&visit.sub_span("table"), "table", &json!(report::table(&findings))).await?;
    Ok(Found::Nothing)
}

/// What the run leaves behind: the table, the numbers and the head of each list.
fn output(findings: Findings) -> Value {
    let table = report::table(&findings).text();
    let missing: Vec<Value> =
        findings.missing.iter().map(|missing| json!({"part": missing.part.name, "error": missing.error})).collect();
    let Counted { measured, functions, markers, duplicates } = findings.total.within_bounds();
    json!({
        "table": table, "files": measured.files, "lines": measured.lines, "languages": measured.languages,
        "longest_functions": functions.longest, "largest_files": measured.largest, "markers": markers,
        "duplicates": duplicates, "missing": missing,
    })
}
