//! Bounds of the chain of a run, and of seals.

/// Events that one request verifies, and bytes of their payloads; the next request continues there.
pub const VERIFY_EVENTS_MAX: i64 = 20_000;
pub const VERIFY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Faults reported for one run.
pub const VERIFY_FAULTS_MAX: usize = 20;
/// Positions of a lane that one seal covers; if more was written since the last, several seals follow.
pub const SEAL_POSITIONS_MAX: i64 = 100_000;
/// Removed runs that one seal names.
pub const SEAL_REMOVED_MAX: i64 = 10_000;
/// How often the server checks whether a seal is due, at most, milliseconds.
pub const SEAL_LOOK_MS: u64 = 60_000;
/// Rest between two seals that follow each other, as a multiple of the time the first took.
pub const SEAL_REST: u32 = 3;
