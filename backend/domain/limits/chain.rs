//! Bounds of the chain of a run, and of seals.

/// Events that one request verifies, and bytes of payloads; the next one goes on from there.
pub const VERIFY_EVENTS_MAX: i64 = 20_000;
pub const VERIFY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Faults that are named of a run.
pub const VERIFY_FAULTS_MAX: usize = 20;
/// Positions of a lane that one seal covers; there are several when more was written since the last.
pub const SEAL_POSITIONS_MAX: i64 = 100_000;
/// Runs that were removed and that one seal names.
pub const SEAL_REMOVED_MAX: i64 = 10_000;
/// How often the server checks whether a seal is due, at most, milliseconds.
pub const SEAL_LOOK_MS: u64 = 60_000;
/// How long the server rests between two seals that follow each other, times what the first took.
pub const SEAL_REST: u32 = 3;
