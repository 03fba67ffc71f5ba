//! Conversations: how a run is shown in the protocols of chat clients.

/// Texts that a stream for chat clients shows at a time while they are written.
pub const LIVE_TEXTS_MAX: usize = 4;
/// Messages and calls of a run that a stream for chat clients remembers, and calls that a message may announce; the newest
/// messages and calls, the first of the announced ones.
pub const CHAT_RECENT_MAX: usize = 256;
/// Ids with which a stream for chat clients compares a new one, at least, and at most twice as many.
pub const CHAT_NAMES_MAX: usize = 512;
/// Runs of a conversation, the newest, among whose calls the one is looked for that a client's output is for.
pub const CALL_RUNS_MAX: i64 = 100;
/// Steps that are open at a time for a reader of AG-UI.
pub const AGUI_STEPS_MAX: usize = 8;
/// Subagents that are open at a time for a reader of AG-UI.
pub const AGUI_SUBAGENTS_MAX: usize = 64;
/// The beginning of a subagent that is shown, bytes.
pub const AGUI_SUBAGENT_BYTES_MAX: usize = 4 * 1024;
/// Messages that a reader of AG-UI who joins is told, bytes and number; the newest.
pub const AGUI_HISTORY_BYTES_MAX: usize = 4 * 1024 * 1024;
pub const AGUI_HISTORY_MESSAGES_MAX: usize = 10_000;
/// The state and its deltas, and the activities, that it is told, bytes of each.
pub const AGUI_KEPT_BYTES_MAX: usize = 1024 * 1024;
/// What a join counts among its principal's replies until it is told, in steps of [`super::REPLY_FREE_BYTES`].
pub const AGUI_JOIN_STEPS: u32 = 128;
/// Longest it waits for this, milliseconds.
pub const AGUI_JOIN_WAIT_MS_MAX: u64 = 10_000;
/// Open questions that a reader of AG-UI is told in full, bytes; of further ones it gets the ids.
pub const AGUI_QUESTIONS_BYTES_MAX: usize = 1024 * 1024;
/// Answers in one request of AG-UI.
pub const AGUI_RESUME_MAX: usize = 64;
/// Further ids that clients gave to what follows the answers of one run.
pub const RUN_ALIASES_MAX: i64 = 1_000;
/// Longest position of a stream for chat clients, as text, bytes.
pub const POSITION_BYTES_MAX: usize = 8 * 1024;
