//! Bounds of AG-UI: of clients' requests, and of agents that are endpoints elsewhere.

/// Largest request of a client, bytes.
pub const AGUI_INPUT_BYTES_MAX: usize = 1024 * 1024;
/// Largest request to an endpoint, bytes.
pub const AGUI_REQUEST_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Largest event of an endpoint, bytes.
pub const AGUI_EVENT_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Largest answer of an endpoint to one request, bytes.
pub const AGUI_STREAM_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Most events in it.
pub const AGUI_EVENTS_MAX: usize = 200_000;
/// Recorded content of the answers between two questions to people, bytes.
pub const AGUI_RECORD_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Messages, and tool calls, that an endpoint may have open at a time.
pub const AGUI_OPEN_MAX: usize = 64;
/// Longest id of an endpoint's message, call or interrupt that becomes a span as it is, characters.
pub const AGUI_ID_CHARS_MAX: usize = 100;
/// Most requests of one run.
pub const AGUI_REQUESTS_MAX: u32 = 100;
/// Most questions of one run open at the same time.
pub const AGUI_INTERRUPTS_MAX: usize = 64;
/// Most tools of its client that a run's input may offer, and the bytes of their JSON together.
pub const CLIENT_TOOLS_MAX: usize = 64;
pub const CLIENT_TOOLS_BYTES_MAX: usize = 64 * 1024;
