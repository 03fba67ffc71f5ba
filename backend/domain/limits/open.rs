//! Texts of messages that are still being written.

/// Longest text of one open span (the tokens of a message so far), bytes.
pub const OPEN_TEXT_BYTES_MAX: usize = 1024 * 1024;
/// Most open spans with text in one run.
pub const OPEN_SPANS_MAX: usize = 256;
/// Text of all open spans of one run, bytes.
pub const OPEN_RUN_BYTES_MAX: usize = 8 * 1024 * 1024;
/// What an open span counts in addition to its text, bytes; this bounds their number.
pub const OPEN_SPAN_BYTES: usize = 4 * 1024;
/// Open spans of one principal, bytes; over it its least recently active run drops its texts.
pub const OPEN_OWN_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Open spans of the process, bytes; over it the least recently active run drops its texts.
pub const OPEN_TOTAL_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Size of the pieces in which an open text is kept, saved and read, bytes: several rows of one fit into a page.
pub const OPEN_PIECE_BYTES: usize = 2 * 1024;
/// How often additions to open texts are saved, milliseconds.
pub const OPEN_SAVE_MS: u64 = 200;
/// Most that is saved at a time: texts, and bytes of their pieces. The rest is saved the next time.
pub const OPEN_SAVE_TEXTS_MAX: usize = 2_000;
pub const OPEN_SAVE_BYTES_MAX: usize = 1024 * 1024;
/// How often additions to open texts are sent over a message bus, if there is one, milliseconds; most that is sent at a
/// time, bytes of pieces; and the longest message: NATS permits 1 MiB.
pub const LIVE_SEND_MS: u64 = 20;
pub const LIVE_SEND_BYTES_MAX: usize = 384 * 1024;
pub const LIVE_MESSAGE_BYTES_MAX: usize = 1024 * 1024 - 1024;
/// Most pieces of saved texts that a process reads at a time.
pub const OPEN_READ_ROWS_MAX: i64 = 4_096;
/// Readers and notes that may wait for such a read.
pub const OPEN_ASKS_MAX: usize = 1_024;
/// How long a reader waits for the texts so far of other processes, milliseconds: as long as a statement may take.
/// Later additions arrive as tokens; a chat client cannot retract those of a process that was killed.
pub const OPEN_WAIT_MS_MAX: u64 = 4_000;
/// An open text is not read by other processes once its run has had more events than this since its last addition.
pub const OPEN_BEHIND_EVENTS_MAX: i64 = 1_000;
/// How often abandoned texts are searched for, milliseconds, and rows checked in one step.
pub const OPEN_SWEEP_MS: u64 = 60_000;
pub const OPEN_SWEEP_ROWS: i64 = 1_000;
/// How long a text without additions is kept, milliseconds.
pub const OPEN_STAY_MS: i64 = 24 * 60 * 60 * 1_000;
/// Closed spans that are remembered while saved texts are being read.
pub const OPEN_CLOSED_MAX: usize = 10_000;
/// Runs named in one notification to other processes: Postgres permits 8 000 bytes.
pub const NOTE_RUNS_MAX: usize = 200;
