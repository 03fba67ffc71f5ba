//! The bounds of protocols of chat clients.

use runreel::domain::limits::*;

use super::{
    Rows,
    spelled::{bytes, n},
};

pub fn rows() -> Rows {
    vec![
        (
            "texts that a stream for chat clients shows at a time; its position as text",
            vec![n(LIVE_TEXTS_MAX), bytes(POSITION_BYTES_MAX)],
        ),
        ("`RunAgentInput` of a client", vec![bytes(AGUI_INPUT_BYTES_MAX)]),
        (
            "open steps, subagents, messages and answers of AG-UI",
            vec![
                n(AGUI_STEPS_MAX),
                n(AGUI_SUBAGENTS_MAX),
                bytes(AGUI_SUBAGENT_BYTES_MAX),
                bytes(AGUI_HISTORY_BYTES_MAX),
                n(AGUI_HISTORY_MESSAGES_MAX),
                n(AGUI_RESUME_MAX),
            ],
        ),
        (
            "state, activities and open questions that a reader of AG-UI is told",
            vec![bytes(AGUI_KEPT_BYTES_MAX), n(AGUI_RESUME_MAX), bytes(AGUI_QUESTIONS_BYTES_MAX)],
        ),
        (
            "messages and calls of a run that a stream for chat clients remembers; calls that a message announces",
            vec![n(CHAT_RECENT_MAX)],
        ),
        ("ids with which a stream for chat clients compares a new one", vec![n(CHAT_NAMES_MAX)]),
        (
            "further ids that clients gave to what follows the answers of a run",
            vec![n(usize::try_from(RUN_ALIASES_MAX).unwrap_or_default())],
        ),
    ]
}
