//! The rows of the protocols of chat clients.

use runreel::domain::limits::*;

use super::{
    Rows,
    spelled::{bytes, n},
};

pub(super) fn protocols() -> Rows {
    vec![
        ("id of a message of the AI SDK", vec![bytes(AI_SDK_MESSAGE_ID_BYTES_MAX)]),
        (
            "runs of one message of the AI SDK; what the earlier ones may say in a replay",
            vec![n(AI_SDK_MESSAGE_RUNS_MAX), bytes(AI_SDK_REPLAY_BYTES_MAX)],
        ),
        (
            "`metadata` of a response",
            vec![
                format!("{} pairs", n(RESPONSE_METADATA_MAX)),
                format!("{} characters", n(RESPONSE_METADATA_NAME_CHARS_MAX)),
                format!("{} characters", n(RESPONSE_METADATA_TEXT_CHARS_MAX)),
            ],
        ),
        ("`output` of a response", vec![bytes(RESPONSE_OUTPUT_BYTES_MAX)]),
    ]
}
