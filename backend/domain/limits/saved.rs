//! Bounds of saved sessions.

/// Longest name of a saved session, characters.
pub const SAVED_NAME_CHARS_MAX: usize = 64;
/// Longest description of a saved session, characters.
pub const SAVED_DESCRIPTION_CHARS_MAX: usize = 2_000;
/// Largest file of a saved session, bytes.
pub const SAVED_FILE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Most messages of a saved session.
pub const SAVED_MESSAGES_MAX: usize = 100_000;
/// Most values read from a checkpoint when it is saved.
pub const SAVED_VALUES_MAX: usize = 2_000_000;
/// Events of a thread in one read of its messages; each has at most 64 KiB.
pub const SAID_ROWS: i64 = 100;
/// Runs of a thread in one search for those with messages.
pub const SAID_RUNS: i64 = 50;
/// Longest wait for a turn, and for the lock of a folder, milliseconds.
pub const SAVED_WAIT_MS_MAX: u64 = 5_000;
/// Pause between two tries to lock a folder, milliseconds.
pub const SAVED_PAUSE_MS: u64 = 20;
/// Most saved sessions of one owner.
pub const SAVED_SESSIONS_MAX: usize = 10_000;
/// Longest text of a message in an index or a summary, characters.
pub const SAVED_TEXT_CHARS_MAX: usize = 200;
/// Most requests that a summary repeats.
pub const SAVED_REQUESTS_MAX: usize = 5;
