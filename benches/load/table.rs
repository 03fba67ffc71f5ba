//! The table of figures, in the order they were first measured.

use std::io::Write as _;

use crate::{
    machine::{Meter, Use},
    server::Server,
    stats::{Figure, Unit},
};

/// Above this the rest of the machine was not quiet.
const FOREIGN_MAX: f64 = 0.15;

#[derive(Debug)]
struct Row {
    name: String,
    figure: Figure,
    used: Option<Use>,
}

/// All rows; prints each sample as it comes and everything at the end.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Row>,
    server: Option<u32>,
    postmaster: Option<u32>,
    only: String,
}

impl Table {
    pub(crate) fn new(server: &Server, only: String) -> Self {
        Self { rows: Vec::new(), server: server.pid(), postmaster: server.postmaster(), only }
    }

    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || name.contains(&self.only) || self.only.contains(name)
    }

    /// Measures once more.
    pub(crate) async fn measure<F>(&mut self, name: &str, unit: Unit, work: impl FnOnce() -> F) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<f64>>,
    {
        if !self.wants(name) {
            return Ok(());
        }
        let meter = Meter::start(self.server, self.postmaster);
        let sample = work().await?;
        self.add(name, unit, sample, Some(meter.stop()))
    }

    /// Measures two figures at once.
    pub(crate) async fn measure_two<F>(
        &mut self,
        names: [&str; 2],
        unit: Unit,
        work: impl FnOnce() -> F,
    ) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<[f64; 2]>>,
    {
        if !self.wants(names[0]) {
            return Ok(());
        }
        let meter = Meter::start(self.server, self.postmaster);
        let samples = work().await?;
        let used = meter.stop();
        names.into_iter().zip(samples).try_for_each(|(name, sample)| self.add(name, unit, sample, Some(used)))
    }

    /// Notes a figure that was measured elsewhere.
    pub(crate) fn note(&mut self, name: &str, unit: Unit, sample: f64) -> anyhow::Result<()> {
        self.add(name, unit, sample, None)
    }

    fn add(&mut self, name: &str, unit: Unit, sample: f64, used: Option<Use>) -> anyhow::Result<()> {
        let noisy = if used.is_some_and(|used| used.foreign > FOREIGN_MAX) { "  NOT QUIET" } else { "" };
        let shown = used.map(|used| used.to_string()).unwrap_or_default();
        writeln!(std::io::stderr(), "  {name}: {sample:.2}  [{shown}]{noisy}")?;
        let index = self.rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
            self.rows.push(Row { name: name.to_owned(), figure: Figure::new(unit), used: None });
            self.rows.len() - 1
        });
        let row = &mut self.rows[index];
        row.figure.push(sample);
        row.used = used.or(row.used);
        Ok(())
    }

    fn median(&self, name: &str) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.name.starts_with(name))?;
        Some(row.figure.median())
    }

    /// Prints the table, then the ratios the bars are stated in.
    pub(crate) fn ratios(&self) -> anyhow::Result<()> {
        let mut out = std::io::stdout();
        writeln!(
            out,
            "\n| what | median (min–max) | processors: generator / server / Postgres / others |\n|---|---|---|"
        )?;
        for Row { name, figure, used } in &self.rows {
            let used = used.map(|used| used.to_string()).unwrap_or_default();
            writeln!(out, "| {name} | {figure} | {used} |")?;
        }
        writeln!(out, "\n| ratio | measured | bar |\n|---|---|---|")?;
        let events = self.rows.iter().find(|row| row.name.ends_with("SSE")).map_or("", |row| &row.name);
        let replay = events.trim_end_matches("SSE");
        let (sse, ndjson, copy) =
            (format!("{replay}SSE"), format!("{replay}NDJSON"), format!("{replay}bare COPY TO STDOUT"));
        let singles = "emit, 1 event per request, 64 connections";
        let rows = [
            (
                "batches of 100, 8 connections ÷ bare UNNEST",
                "emit, batches of 100, 8 connections",
                "bare UNNEST",
                "≥ 0.8",
            ),
            (
                "single emits, 64 connections ÷ bare insert, 40 clients",
                singles,
                "bare insert and commit, 40",
                "≥ 1.5 (64 clients)",
            ),
            (
                "acknowledgement p99 ÷ bare insert p99, 200/s",
                "emit at 200/s, acknowledged, p99",
                "bare insert and commit at 200/s, p99",
                "≤ 3",
            ),
            ("COPY time ÷ SSE replay time", &copy, &sse, "≥ 0.7"),
            ("COPY time ÷ NDJSON replay time", &copy, &ndjson, "≥ 0.9"),
        ];
        for (what, over, under, bar) in rows {
            if let (Some(over), Some(under)) = (self.median(over), self.median(under)) {
                writeln!(out, "| {what} | {:.2} | {bar} |", over / under)?;
            }
        }
        Ok(())
    }
}
