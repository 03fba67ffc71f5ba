//! Progress of an export or an import, drawn on stderr if that is a terminal.

use std::time::Duration;

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};

/// A bar that counts bytes or runs, with other information beside it.
pub(in crate::cli) struct Progress(ProgressBar);

impl Progress {
    /// Counts runs.
    pub(in crate::cli) fn of_runs(runs: u64) -> Self {
        Self::with(runs, "  {bar:30} {pos}/{len} runs  {msg}")
    }

    /// Counts bytes.
    pub(in crate::cli) fn of_bytes(verb: &str, bytes: u64) -> Self {
        Self::with(bytes, &format!("  {{bar:30}} {verb} {{bytes}}/{{total_bytes}}  {{msg}}"))
    }

    fn with(length: u64, template: &str) -> Self {
        // If stderr is not a terminal, nothing is drawn.
        let bar = ProgressBar::new(length);
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.progress_chars("━━ "));
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    pub(in crate::cli) fn add(&self, by: u64) {
        self.0.inc(by);
    }

    pub(in crate::cli) fn tell(&self, events: u64, bytes: u64) {
        self.0.set_message(format!("{} events, {}", HumanCount(events), HumanBytes(bytes)));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// `1 run`, `2 runs`.
pub(in crate::cli) fn count(number: u64, word: &str) -> String {
    if number == 1 { format!("1 {word}") } else { format!("{number} {word}s") }
}
