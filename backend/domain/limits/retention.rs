//! Removal of runs and threads by age.

/// Longest time to live of a thread or a run, seconds.
pub const TTL_S_MAX: i64 = 10 * 365 * 24 * 60 * 60;
/// Most retention rules in the configuration file.
pub const RETENTION_RULES_MAX: usize = 100;
/// How often runs that are due are searched for, milliseconds.
pub const EXPIRY_SWEEP_MS: u64 = 60_000;
/// Ended runs that one step of such a search checks, and steps of one search; the next one continues there.
pub const EXPIRY_STEP_ROWS: i64 = 1_000;
pub const EXPIRY_STEPS: usize = 20;
/// Longest statement that removes a tree of runs, milliseconds.
pub const EXPIRY_REMOVAL_MS_MAX: u64 = 600_000;
/// Hours after its end before a month of the log may be dropped as a whole: ids of new runs may be a day old.
pub const MONTH_AGE_HOURS: i64 = 48;
/// How long ago everything in it must have ended or been imported, at least, seconds.
pub const MONTH_SETTLED_S: i64 = 60;
/// Attempts of a drop to lock the log, 200 ms each, and the pause between two, milliseconds.
pub const MONTH_DROP_TRIES: usize = 10;
pub const MONTH_DROP_WAIT_MS: u64 = 300;
/// How often expired threads are searched for, milliseconds.
pub const THREAD_SWEEP_MS: u64 = 60_000;
/// Threads one step removes before the next search.
pub const THREAD_SWEEP_ROWS: i64 = 100;
