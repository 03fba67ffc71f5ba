//! Rows about lists of runs and about search.

use runreel::domain::limits::*;

use super::{
    Rows,
    spelled::{bytes, n},
};

pub fn lists() -> Rows {
    vec![
        ("values in one filter of a list", vec![n(FILTER_VALUES_MAX)]),
        ("line about how a run went", vec![format!("{} characters", n(EXCERPT_CHARS_MAX)), n(EXCERPT_EVENTS_MAX)]),
        ("descendants that a list counts", vec![n(DESCENDANTS_MAX)]),
        ("buckets of a histogram", vec![n(BUCKETS_MAX), n(BUCKETS_DEFAULT)]),
        (
            "words of one search",
            vec![
                n(SEARCH_WORDS_MAX),
                format!("{} characters", n(WORD_CHARS_MAX)),
                format!("{} characters", n(PREFIX_CHARS_MIN)),
            ],
        ),
        ("words of one event that can be found", vec![n(EVENT_WORDS_MAX)]),
        (
            "search in the events of a run",
            vec![
                format!("{} events", n(RUN_SEARCH_EVENTS_MAX)),
                bytes(RUN_SEARCH_BYTES_MAX),
                format!("{} characters", n(HIT_CHARS_MAX)),
            ],
        ),
    ]
}
