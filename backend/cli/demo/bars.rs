//! Progress in the terminal: a line for the supervisor, a bar for each worker. Drawn nowhere else than in a terminal.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::watched::Observer;
use crate::{
    agents::survey::worker::WORKER_MILESTONES,
    domain::{
        context::{Role, RunContext},
        event::NewEvent,
        id::RunId,
    },
};

/// The bars of one survey, moved by the events of its runs.
pub(super) struct Bars {
    all: MultiProgress,
    lead: ProgressBar,
    workers: Mutex<HashMap<RunId, ProgressBar>>,
}

impl Bars {
    pub(super) fn new() -> Self {
        let all = MultiProgress::new();
        let lead = all.add(ProgressBar::new_spinner());
        lead.set_message("supervisor");
        lead.enable_steady_tick(Duration::from_millis(120));
        Self { all, lead, workers: Mutex::default() }
    }

    /// Takes everything away that was drawn.
    pub(super) fn clear(&self) {
        self.lead.finish_and_clear();
        // A terminal that cannot be cleared is only untidy.
        let _ = self.all.clear();
    }

    fn of_lead(&self, event: &NewEvent) {
        let child = || event.payload.member::<RunId>("run_id");
        match event.event_type.as_str() {
            "step.started" => self.lead.set_message(format!("supervisor: {}", step(event))),
            "run.waiting" => self.lead.set_message("supervisor: waits for its workers"),
            "worker.spawned" => {
                if let Some(child) = child() {
                    let title: String = event.payload.member("name").unwrap_or_default();
                    self.workers().insert(child, self.all.add(bar(title)));
                }
            }
            "worker.failed" => self.with(child(), |bar| bar.abandon_with_message("failed")),
            "worker.completed" => self.with(child(), |bar| bar.finish_with_message("done")),
            _ => {}
        }
    }

    fn of_worker(&self, run_id: RunId, event: &NewEvent) {
        self.with(Some(run_id), |bar| match event.event_type.as_str() {
            "step.started" => bar.set_message(step(event)),
            "step.completed" | "tool.completed" | "tool.failed" => bar.inc(1),
            _ => {}
        });
    }

    fn with(&self, run_id: Option<RunId>, act: impl FnOnce(&ProgressBar)) {
        let workers = self.workers();
        if let Some(bar) = run_id.and_then(|run_id| workers.get(&run_id)) {
            act(bar);
        }
    }

    fn workers(&self) -> std::sync::MutexGuard<'_, HashMap<RunId, ProgressBar>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Bars {
    fn saw(&self, context: &RunContext, event: &NewEvent) {
        match context.role {
            Role::Worker => self.of_worker(context.run_id, event),
            Role::Supervisor | Role::Agent => self.of_lead(event),
        }
    }
}

fn step(event: &NewEvent) -> String {
    event.payload.member("name").unwrap_or_default()
}

fn bar(title: String) -> ProgressBar {
    let style = ProgressStyle::with_template("  {bar:20} {prefix:40!} {msg}");
    let bar = ProgressBar::new(WORKER_MILESTONES);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.with_prefix(title)
}
