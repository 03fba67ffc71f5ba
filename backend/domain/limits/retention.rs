//! Removal of runs and threads by age.

/// Longest time to live of a thread or a run, seconds.
pub const TTL_S_MAX: i64 = 10 * 365 * 24 * 60 * 60;
/// Most rules of the configuration file about how long runs stay.
pub const RETENTION_RULES_MAX: usize = 100;
/// How often runs that are due are searched for, milliseconds.
pub const EXPIRY_SWEEP_MS: u64 = 60_000;
/// Ended runs that one step of such a search looks at, and steps of one search; the next goes on there.
pub const EXPIRY_STEP_ROWS: i64 = 1_000;
pub const EXPIRY_STEPS: usize = 20;
/// Longest time one statement takes that removes a tree of runs, milliseconds.
pub const EXPIRY_REMOVAL_MS_MAX: u64 = 600_000;
/// Least age of a month of the log that is dropped as a whole, after its end, hours: ids of runs may be a day old.
pub const MONTH_AGE_HOURS: i64 = 48;
/// How long ago everything in it must have ended or been imported, at least, seconds.
pub const MONTH_SETTLED_S: i64 = 60;
/// How often a drop asks for the log for itself, each time for 200 ms, and the pause before the next time.
pub const MONTH_DROP_TRIES: usize = 10;
pub const MONTH_DROP_WAIT_MS: u64 = 300;
/// How often expired threads are searched for, milliseconds.
pub const THREAD_SWEEP_MS: u64 = 60_000;
/// Threads one step removes before the next search.
pub const THREAD_SWEEP_ROWS: i64 = 100;
