//! Conversations: how a run is shown in the protocols of chat clients.

/// Texts in progress that a stream for chat clients shows at a time.
pub const LIVE_TEXTS_MAX: usize = 4;
/// Messages and calls of a run that a stream for chat clients remembers (the newest), and calls that a message may
/// announce (the first).
pub const CHAT_RECENT_MAX: usize = 256;
/// Ids with which a stream for chat clients compares a new one: at least these, at most twice as many.
pub const CHAT_NAMES_MAX: usize = 512;
/// Newest runs of a conversation in which the call that a client's output belongs to is searched for.
pub const CALL_RUNS_MAX: i64 = 100;
/// Steps open at a time for a reader of AG-UI.
pub const AGUI_STEPS_MAX: usize = 8;
/// Subagents open at a time for a reader of AG-UI.
pub const AGUI_SUBAGENTS_MAX: usize = 64;
/// Largest start event of a subagent that is shown, bytes.
pub const AGUI_SUBAGENT_BYTES_MAX: usize = 4 * 1024;
/// Messages sent to a joining reader of AG-UI, bytes and number; the newest.
pub const AGUI_HISTORY_BYTES_MAX: usize = 4 * 1024 * 1024;
pub const AGUI_HISTORY_MESSAGES_MAX: usize = 10_000;
/// State with its deltas, and activities, sent to a joining reader, bytes of each.
pub const AGUI_KEPT_BYTES_MAX: usize = 1024 * 1024;
/// What a join counts among its principal's replies until it is sent, in steps of [`super::REPLY_FREE_BYTES`].
pub const AGUI_JOIN_STEPS: u32 = 128;
/// Longest wait of a join for this, milliseconds.
pub const AGUI_JOIN_WAIT_MS_MAX: u64 = 10_000;
/// Open questions sent to a reader of AG-UI in full, bytes; of further ones it gets the ids.
pub const AGUI_QUESTIONS_BYTES_MAX: usize = 1024 * 1024;
/// Answers in one request of AG-UI.
pub const AGUI_RESUME_MAX: usize = 64;
/// Additional ids that clients gave to the continuations of one run after answers.
pub const RUN_ALIASES_MAX: i64 = 1_000;
/// Longest position of a stream for chat clients, as text, bytes.
pub const POSITION_BYTES_MAX: usize = 8 * 1024;
