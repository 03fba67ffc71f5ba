//! Bounds on pages of events, runs and streams.

/// Events in one page of a run's index, and by default.
pub const INDEX_ROWS_MAX: i64 = 5_000;
pub const INDEX_ROWS_DEFAULT: i64 = 1_000;
/// Payloads that one page of a run's index is made from, bytes; at least one event is returned.
pub const INDEX_PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Longest title in a run's index, characters.
pub const INDEX_TITLE_CHARS_MAX: usize = 120;
/// Longest part of a title, and longest title on a terminal, characters.
pub const TITLE_PART_CHARS_MAX: usize = 400;
/// Errors read from one error: itself, its causes, and theirs.
pub const ERRORS_READ_MAX: usize = 16;
/// Most seqs in one request for events.
pub const SEQS_MAX: usize = 1_000;
/// Interval between two checks for runs that have fallen silent, milliseconds.
pub const STALL_SWEEP_MS: u64 = 2_000;
/// Silent runs of one owner that are known at a time.
pub const STALLED_OWN_ROWS: i64 = 1_000;
/// Most runs that wait for executors, or are executed, that a list of agents counts.
pub const QUEUED_COUNTED_MAX: i64 = 10_000;
/// Most leases in a list of agents.
pub const HELD_ROWS: i64 = 100;
/// Most subscriptions on one connection.
pub const SUBSCRIPTIONS_MAX: usize = 64;
/// Longest name of a subscription, characters.
pub const SUBSCRIPTION_NAME_CHARS_MAX: usize = 64;
