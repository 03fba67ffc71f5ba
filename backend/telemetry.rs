//! Logs to stderr and metrics in memory.

use std::{io::IsTerminal, sync::OnceLock};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::{EnvFilter, layer::SubscriberExt, util::SubscriberInitExt};

use crate::config::{self, LogFormat};

/// Upper bounds of the latency buckets, seconds.
const SECONDS: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

/// Starts logging. `RUNREEL_LOG` is the filter, in the syntax of `tracing`'s `EnvFilter`.
pub fn logs(format: LogFormat) {
    let wanted = config::variable("RUNREEL_LOG").map(EnvFilter::try_new);
    let malformed = matches!(wanted, Some(Err(_)));
    let filter = wanted.and_then(Result::ok).unwrap_or_else(|| EnvFilter::new("warn,runreel=info"));
    let colors = std::io::stderr().is_terminal() && config::variable("NO_COLOR").is_none();
    let registry = tracing_subscriber::registry().with(filter);
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colors).with_target(false);
    // A second subscriber in one process occurs only in tests and is not an error.
    let _ = match format {
        LogFormat::Text => registry.with(layer).try_init(),
        LogFormat::Json => registry.with(layer.json()).try_init(),
    };
    if malformed {
        tracing::warn!("RUNREEL_LOG is not a filter such as warn,runreel=debug and has no effect");
    }
}

/// The process's metrics. The facade has one recorder per process, so several servers in one process share it.
pub fn metrics() -> PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE
        .get_or_init(|| {
            let builder = PrometheusBuilder::new()
                .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), SECONDS)
                .unwrap_or_else(|_| PrometheusBuilder::new());
            let recorder = builder.build_recorder();
            let handle = recorder.handle();
            // If another recorder was installed first, that one counts and this handle renders nothing.
            let _ = metrics::set_global_recorder(recorder);
            describe();
            handle
        })
        .clone()
}

fn describe() {
    metrics::describe_counter!("runreel_events_total", "Durable events committed by this process, by family");
    metrics::describe_counter!("runreel_commit_conflicts_total", "Batches that were planned again");
    metrics::describe_counter!(
        "runreel_stream_lags_total",
        "Times a reader was too slow and went back to the database"
    );
    metrics::describe_counter!("runreel_refused_total", "Requests whose credential was refused, by reason");
    metrics::describe_counter!("runreel_artifacts_damaged_total", "Downloads whose bytes did not match their hash");
    metrics::describe_counter!("runreel_retention_runs_removed_total", "Runs this process removed by age");
    metrics::describe_counter!("runreel_retention_events_removed_total", "Events this process removed by age");
    metrics::describe_counter!("runreel_retention_months_dropped_total", "Months of the log dropped by age");
    metrics::describe_counter!(
        "runreel_retention_failures_total",
        "Trees of runs, or months, whose removal by age failed"
    );
    metrics::describe_counter!("runreel_search_indexed_events_total", "Events this process added to the search index");
    metrics::describe_gauge!("runreel_search_lag_events", "Events that the search index does not have yet");
    metrics::describe_gauge!("runreel_search_lag_seconds", "Age of the log's part that the search index has");
    metrics::describe_counter!("runreel_threads_removed_total", "Threads removed by this process, by reason");
    metrics::describe_counter!("runreel_checkpoints_removed_total", "Checkpoints removed by this process, by reason");
    metrics::describe_counter!(
        "runreel_jobs_claimed_total",
        "Jobs assigned by this process: first assignments, reassignments"
    );
    metrics::describe_counter!("runreel_jobs_lost_total", "Runs this process failed because their leases expired");
    metrics::describe_gauge!("runreel_runners_connected", "Connected runners");
    metrics::describe_gauge!("runreel_streams_open", "Open event streams");
    metrics::describe_gauge!("runreel_bus_topics", "Runs and owners with at least one listener");
    metrics::describe_gauge!("runreel_database_connections", "Connections of the reading pool");
    metrics::describe_histogram!("runreel_commit_seconds", "Time from taking a batch to its publication");
}
