//! The bounds of one principal on shared resources, and the notice before a shutdown.

use clap::Args;

use crate::domain::limits::{
    BODIES_KIB_MAX, BODIES_OWN_KIB_DEFAULT, DOWNLOADS_MAX, DOWNLOADS_OWN_DEFAULT, DRAIN_NOTICE_MS_MAX, RUNNERS_MAX,
    RUNNERS_OWN_DEFAULT, STREAMS_MAX, STREAMS_OWN_DEFAULT, UPLOADS_MAX, UPLOADS_OWN_DEFAULT,
};

/// The bounds of one principal. Those of all principals together are in `domain/limits.rs`.
#[derive(Clone, Copy, Debug, Args)]
pub struct Bounds {
    /// Streams per principal, of 20 000 in total.
    #[arg(long, env = "RUNREEL_PRINCIPAL_STREAMS", default_value_t = STREAMS_OWN_DEFAULT, value_parser = within::<STREAMS_MAX>, value_name = "STREAMS")]
    pub principal_streams: usize,
    /// Size of one principal's bodies being read or processed, MiB, of 256 in total; each counts as at least 64 KiB.
    #[arg(long, env = "RUNREEL_PRINCIPAL_BODIES_MIB", default_value_t = BODIES_OWN_KIB_DEFAULT / 1_024, value_parser = within::<{ BODIES_KIB_MAX / 1_024 }>, value_name = "MIB")]
    pub principal_bodies_mib: usize,
    /// Events per second one principal may emit over HTTP, on average; 0 for no rate limit.
    #[arg(long, env = "RUNREEL_PRINCIPAL_EVENTS_PER_SECOND", default_value_t = 0, value_name = "EVENTS")]
    pub principal_events_per_second: usize,
    /// Runs per minute one principal may create over HTTP, on average; 0 for no rate limit.
    #[arg(long, env = "RUNREEL_PRINCIPAL_RUNS_PER_MINUTE", default_value_t = 0, value_name = "RUNS")]
    pub principal_runs_per_minute: usize,
    /// Size of the bodies and uploads one principal may send per second, KiB, on average; 0 for no rate limit.
    #[arg(long, env = "RUNREEL_PRINCIPAL_KIB_PER_SECOND", default_value_t = 0, value_parser = rate_kib, value_name = "KIB")]
    pub principal_kib_per_second: usize,
    /// Uploads per principal, of 64 in total.
    #[arg(long, env = "RUNREEL_PRINCIPAL_UPLOADS", default_value_t = UPLOADS_OWN_DEFAULT, value_parser = within::<UPLOADS_MAX>, value_name = "UPLOADS")]
    pub principal_uploads: usize,
    /// Downloads per principal, of 1 024 in total.
    #[arg(long, env = "RUNREEL_PRINCIPAL_DOWNLOADS", default_value_t = DOWNLOADS_OWN_DEFAULT, value_parser = within::<DOWNLOADS_MAX>, value_name = "DOWNLOADS")]
    pub principal_downloads: usize,
    /// Runners per principal, of 2 000 in total.
    #[arg(long, env = "RUNREEL_PRINCIPAL_RUNNERS", default_value_t = RUNNERS_OWN_DEFAULT, value_parser = within::<RUNNERS_MAX>, value_name = "RUNNERS")]
    pub principal_runners: usize,
    /// How long /readyz reports a shutdown while the server still accepts connections, milliseconds.
    #[arg(long, env = "RUNREEL_DRAIN_NOTICE_MS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=DRAIN_NOTICE_MS_MAX))]
    pub drain_notice_ms: u64,
}

/// Parses a rate in KiB per second: 0, or at most 1 GiB.
fn rate_kib(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number <= 1_024 * 1_024);
    number.ok_or_else(|| "must be a number from 0 to 1048576".to_owned())
}

/// Parses a bound for one principal: at least 1 and at most the bound for all.
fn within<const ALL: usize>(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=ALL).contains(number));
    number.ok_or_else(|| format!("must be a number from 1 to {ALL}"))
}
