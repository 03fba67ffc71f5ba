//! Conversations: how a run is shown in the protocols of chat clients.

/// Texts that a stream for chat clients shows at a time while they are written.
pub const LIVE_TEXTS_MAX: usize = 4;
/// Steps that are open at a time for a reader of AG-UI.
pub const AGUI_STEPS_MAX: usize = 8;
/// Messages that a reader of AG-UI who joins is told, bytes; the newest.
pub const AGUI_HISTORY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Answers in one request of AG-UI.
pub const AGUI_RESUME_MAX: usize = 64;
/// Further ids that clients gave to what follows the answers of one run.
pub const RUN_ALIASES_MAX: i64 = 1_000;
/// Longest position of a stream for chat clients, as text, bytes.
pub const POSITION_BYTES_MAX: usize = 8 * 1024;
