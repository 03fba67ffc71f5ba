//! Bounds of Telegram.

/// Pieces of an album that become one message; Telegram permits no more.
pub const ALBUM_PIECES_MAX: usize = 10;
/// How long an album waits for its next piece, milliseconds.
pub const ALBUM_WAIT_MS: i64 = 1_500;
