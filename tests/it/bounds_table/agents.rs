//! The rows about agents, their models, tools and endpoints.

use runreel::domain::limits::*;

use super::{
    Rows,
    spelled::{bytes, n, s},
};

pub fn agents() -> Rows {
    vec![
        ("answer of a model", vec![bytes(MODEL_ANSWER_BYTES_MAX), n(MODEL_TOOL_CALLS_MAX)]),
        ("wait a model's provider may ask for before a call is made again", vec![s(MODEL_RETRY_WAIT_MS_MAX)]),
        (
            "result of a tool that stays with the run",
            vec![bytes(TOOL_OUTPUT_BYTES_MAX), bytes(TOOL_HEAD_BYTES), bytes(TOOL_TAIL_BYTES)],
        ),
        (
            "what an agent reads of an artifact in one call",
            vec![bytes(ARTIFACT_READ_BYTES_MAX), bytes(ARTIFACT_SEARCH_BYTES_MAX), n(ARTIFACT_MATCHES_MAX)],
        ),
        ("prompt of an agent", vec![n(CONTEXT_TOKENS_DEFAULT), bytes(TOKEN_BYTES), n(IMAGE_TOKENS)]),
        ("checkpoints of the server's own agents in one thread", vec![n(CHECKPOINTS_KEEP_DEFAULT)]),
        ("time a late or cancelled tool has to clean up", vec![s(TOOL_GRACE_MS)]),
        ("tools of an agent", vec![n(TOOLS_MAX), format!("1 to {}", n(TOOL_NAME_CHARS_MAX))]),
        (
            "message of a tool server",
            vec![bytes(MCP_MESSAGE_BYTES_MAX), bytes(MCP_SCHEMA_BYTES_MAX), n(MCP_DESCRIPTION_CHARS_MAX)],
        ),
        ("tools of the client in a run's input", vec![n(CLIENT_TOOLS_MAX), bytes(CLIENT_TOOLS_BYTES_MAX)]),
        ("artifact that an agent reads as the input of its run", vec![bytes(INPUT_ARTIFACT_BYTES_MAX)]),
        (
            "request to an AG-UI endpoint; its answer",
            vec![
                bytes(AGUI_REQUEST_BYTES_MAX),
                bytes(AGUI_STREAM_BYTES_MAX),
                n(AGUI_EVENTS_MAX),
                bytes(AGUI_EVENT_BYTES_MAX),
            ],
        ),
        (
            "what is recorded of an AG-UI endpoint's answers between two questions to people",
            vec![bytes(AGUI_RECORD_BYTES_MAX)],
        ),
        (
            "messages, and calls, that an AG-UI endpoint has begun and not ended",
            vec![n(AGUI_OPEN_MAX), bytes(OPEN_TEXT_BYTES_MAX)],
        ),
        ("id of an AG-UI endpoint that becomes a span as it is", vec![format!("{} characters", n(AGUI_ID_CHARS_MAX))]),
        (
            "requests of one run to an AG-UI endpoint; its questions at the same time",
            vec![n(AGUI_REQUESTS_MAX), n(AGUI_INTERRUPTS_MAX)],
        ),
        ("configuration file", vec![bytes(CONFIG_BYTES_MAX)]),
        ("runs a server's own agents are at work on", vec![n(RUNTIME_PLACES), n(RUNTIME_OWN_PLACES)]),
    ]
}
