//! Bounds of the protocols of chat clients.

/// Longest id of a message of the AI SDK, bytes.
pub const AI_SDK_MESSAGE_ID_BYTES_MAX: usize = 128;
/// Runs that may make up one message of the AI SDK: each time the client ran tools, another run continues it.
pub const AI_SDK_MESSAGE_RUNS_MAX: usize = 32;
/// Largest replay of the earlier runs of such a message, bytes.
pub const AI_SDK_REPLAY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Pairs in the metadata of a response.
pub const RESPONSE_METADATA_MAX: usize = 16;
/// Longest name in the metadata of a response, characters.
pub const RESPONSE_METADATA_NAME_CHARS_MAX: usize = 64;
/// Longest text in the metadata of a response, characters.
pub const RESPONSE_METADATA_TEXT_CHARS_MAX: usize = 512;
/// Largest `output` of a response of the `OpenAI` protocol, bytes of JSON; items beyond it are left out.
pub const RESPONSE_OUTPUT_BYTES_MAX: usize = 4 * 1024 * 1024;
