//! Progress in the terminal: a line for the supervisor, a bar for each worker. Drawn nowhere else than in a terminal.

use std::{collections::HashMap, time::Duration};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::job::Told;
use crate::{agents::survey::MILESTONES, domain::id::RunId};

/// The bars of one survey, moved by the events of its runs.
pub(super) struct Bars {
    root: RunId,
    all: MultiProgress,
    lead: ProgressBar,
    workers: HashMap<RunId, ProgressBar>,
}

impl Bars {
    pub(super) fn new(root: RunId) -> Self {
        let all = MultiProgress::new();
        let lead = all.add(ProgressBar::new_spinner());
        lead.set_message("supervisor");
        lead.enable_steady_tick(Duration::from_millis(120));
        Self { root, all, lead, workers: HashMap::new() }
    }

    /// Takes everything away that was drawn.
    pub(super) fn clear(&self) {
        self.lead.finish_and_clear();
        // A terminal that cannot be cleared is only untidy.
        let _ = self.all.clear();
    }

    pub(super) fn saw(&mut self, event: &Told) {
        if event.run_id == self.root {
            self.of_lead(event);
        } else if let Some(bar) = self.workers.get(&event.run_id) {
            of_worker(bar, event);
        }
    }

    fn of_lead(&mut self, event: &Told) {
        match event.kind.as_str() {
            "step.started" => self.lead.set_message(format!("supervisor: {}", name(event))),
            "run.waiting" => self.lead.set_message("supervisor: waits for its workers"),
            "worker.spawned" => {
                if let Some(worker) = event.worker() {
                    let bar = self.all.add(bar(name(event)));
                    self.workers.insert(worker, bar);
                }
            }
            _ => {}
        }
    }
}

fn of_worker(bar: &ProgressBar, event: &Told) {
    match event.kind.as_str() {
        "step.started" => bar.set_message(name(event)),
        "step.completed" | "tool.completed" | "tool.failed" => bar.inc(1),
        "run.completed" => bar.finish_with_message("done"),
        "run.failed" | "run.cancelled" => bar.abandon_with_message("failed"),
        _ => {}
    }
}

fn name(event: &Told) -> String {
    event.payload["name"].as_str().unwrap_or_default().to_owned()
}

fn bar(title: String) -> ProgressBar {
    let style = ProgressStyle::with_template("  {bar:20} {prefix:40!} {msg}");
    let bar = ProgressBar::new(MILESTONES);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.with_prefix(title)
}
