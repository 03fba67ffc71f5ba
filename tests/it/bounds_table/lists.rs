//! Rows about lists, pages, timelines and search.

use runreel::domain::limits::*;

use super::{
    Rows,
    spelled::{bytes, n, s},
};

pub fn lists() -> Rows {
    vec![
        ("page of a list", vec![n(PAGE_ROWS_MAX), n(PAGE_ROWS_DEFAULT), n(EVENT_PAGE_ROWS_DEFAULT)]),
        ("page of a list", vec![bytes(LIST_PAGE_BYTES_MAX), bytes(CHECKPOINT_PAGE_BYTES_MAX)]),
        ("page of events", vec![bytes(EVENT_PAGE_BYTES_MAX), bytes(EVENT_PAGE_SHARED_BYTES_MAX)]),
        ("patterns in `types`", vec![n(TYPE_PATTERNS_MAX)]),
        (
            "page of a run's index",
            vec![format!("{} rows", n(INDEX_ROWS_MAX)), n(INDEX_ROWS_DEFAULT), bytes(INDEX_PAGE_BYTES_MAX)],
        ),
        ("title in an index", vec![format!("{} characters", n(INDEX_TITLE_CHARS_MAX))]),
        ("seqs in one request for events", vec![n(SEQS_MAX)]),
        ("spans in a timeline", vec![n(SPANS_MAX)]),
        ("name in a timeline", vec![bytes(SPAN_NAME_BYTES_MAX)]),
        ("names in each table of a timeline's `summary`", vec![n(SUMS_MAX)]),
        (
            "timelines, searches and pages of the index made or sent at once in a process",
            vec![n(TIMELINES_MAX), n(TIMELINES_OWN_MAX), s(TIMELINE_WAIT_MS_MAX)],
        ),
        ("models in the usage of a run; own prices", vec![n(MODELS_MAX), n(PRICES_MAX)]),
        (
            "text of a query; its result",
            vec![
                bytes(QUERY_BYTES_MAX),
                n(QUERY_ROWS_MAX),
                bytes(u64::try_from(QUERY_RESULT_BYTES_MAX).unwrap()),
                n(QUERY_ROWS_DEFAULT),
            ],
        ),
        (
            "queries in progress in a process",
            vec![n(QUERIES_MAX), n(QUERIES_OWN_MAX), s(QUERY_MS_MAX), s(QUERY_SHARE_MS), s(QUERY_WAIT_MS_MAX)],
        ),
        (
            "replies over 64 KiB that wait for their readers",
            vec![
                bytes(u64::try_from(REPLIES_STEPS_MAX).unwrap() * REPLY_FREE_BYTES),
                bytes(u64::try_from(REPLIES_OWN_STEPS_MAX).unwrap() * REPLY_FREE_BYTES),
                bytes(u64::from(REPLY_PAGE_STEPS) * REPLY_FREE_BYTES),
                bytes(u64::from(AGUI_JOIN_STEPS) * REPLY_FREE_BYTES),
                s(AGUI_JOIN_WAIT_MS_MAX),
            ],
        ),
        ("values in one filter of a list", vec![n(FILTER_VALUES_MAX)]),
        ("line about how a run went", vec![format!("{} characters", n(EXCERPT_CHARS_MAX)), n(EXCERPT_EVENTS_MAX)]),
        ("descendants that a list counts", vec![n(DESCENDANTS_MAX)]),
        ("buckets of a histogram", vec![n(BUCKETS_MAX), n(BUCKETS_DEFAULT)]),
    ]
}

/// What reads many events.
pub fn scans() -> Rows {
    vec![
        (
            "verification of a run",
            vec![
                format!("{} events", n(VERIFY_EVENTS_MAX)),
                bytes(VERIFY_BYTES_MAX),
                format!("{} faults", n(VERIFY_FAULTS_MAX)),
            ],
        ),
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
