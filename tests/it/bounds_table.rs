//! The table of bounds in `docs/protocol.md` against the program's constants, number by number.

mod agents;
mod conversations;
mod lists;
mod protocols;
mod spelled;

use std::{collections::BTreeMap, fs};

use runreel::domain::limits::*;

use self::{
    protocols::protocols,
    spelled::{bytes, days, hours, kib, min, minutes, n, s, years},
};

/// What each row has to say, in this order. What stands in backticks, and the status of a refusal, is not compared.
fn bounds() -> BTreeMap<&'static str, Vec<Vec<String>>> {
    let mut rows: BTreeMap<&'static str, Vec<Vec<String>>> = BTreeMap::new();
    let all = [
        requests(),
        threads(),
        channels(),
        sessions(),
        agents::agents(),
        reads(),
        lists::lists(),
        lists::scans(),
        writes(),
        runners(),
        moves(),
        protocols(),
    ];
    for (row, values) in all.into_iter().flatten().chain(conversations::rows()) {
        rows.entry(row).or_default().push(values);
    }
    rows
}

type Rows = Vec<(&'static str, Vec<String>)>;

fn requests() -> Rows {
    vec![
        ("request body", vec![bytes(BODY_BYTES_MAX)]),
        ("response that is compressed", vec![bytes(COMPRESSED_BYTES_MIN), bytes(COMPRESSED_BYTES_MAX)]),
        ("artifact", vec![bytes(ARTIFACT_BYTES_MAX)]),
        ("room that uploads leave on the volume of the artifacts", vec![bytes(ARTIFACT_RESERVE_BYTES)]),
        (
            "name of an artifact, media type",
            vec![format!("{} characters", n(ARTIFACT_NAME_CHARS_MAX)), bytes(MEDIA_TYPE_BYTES_MAX)],
        ),
        (
            "uploads, downloads under way in a process",
            vec![n(UPLOADS_MAX), n(DOWNLOADS_MAX), n(UPLOADS_OWN_DEFAULT), n(DOWNLOADS_OWN_DEFAULT)],
        ),
        ("silence in the middle of an upload", vec![s(UPLOAD_SILENCE_MS_MAX)]),
        ("slowness of an upload", vec![s(UPLOAD_GRACE_MS), format!("{}/s", bytes(UPLOAD_BYTES_PER_S_MIN))]),
        ("preview of a payload that became an artifact", vec![bytes(PREVIEW_BYTES_MAX)]),
        (
            "bytes without an artifact, uploads nobody finished, artifacts without their event",
            vec![hours(ARTIFACT_GRACE_MS), min(ARTIFACT_SWEEP_MS)],
        ),
        ("events in one emit", vec![n(EMIT_EVENTS_MAX)]),
        ("payload inside an event", vec![bytes(PAYLOAD_BYTES_MAX)]),
        ("`input` of a run; `value` of an answer", vec![bytes(PAYLOAD_BYTES_MAX)]),
        ("`metadata` of a run", vec![bytes(METADATA_BYTES_MAX)]),
        ("nesting of JSON", vec![format!("{} levels", n(JSON_DEPTH_MAX))]),
        ("event type", vec![bytes(TYPE_BYTES_MAX)]),
        ("name (agent, session, tag)", vec![format!("{} characters", n(NAME_CHARS_MAX))]),
        ("beginning of a run's id in `id_prefix`", vec![format!("{} hexadecimal digits", n(RUN_ID_DIGITS_MIN))]),
        ("span id, event id", vec![format!("{} characters", n(KEY_CHARS_MAX))]),
        ("title, reason", vec![format!("{} characters", n(TITLE_CHARS_MAX))]),
        ("tags of a run", vec![n(TAGS_MAX)]),
        ("depth of a tree of runs", vec![format!("{} levels", n(RUN_DEPTH_MAX))]),
        (
            "bodies under way in a process",
            vec![
                kib(BODIES_KIB_MAX),
                kib(BODIES_OWN_KIB_DEFAULT),
                kib(BODY_STEP_KIB),
                n(BODIES_OWN_KIB_DEFAULT / BODY_STEP_KIB as usize),
            ],
        ),
        ("updates of webhooks under way in a process", vec![kib(WEBHOOKS_KIB_MAX), kib(WEBHOOKS_OWN_KIB_MAX)]),
        (
            "time a body takes to arrive",
            vec![s(BODY_WAIT_MS_MAX), s(BODY_GRACE_MS), format!("{}/s", bytes(BODY_BYTES_PER_S_MIN))],
        ),
        ("runs one principal creates over HTTP; bytes of its bodies and uploads", vec![]),
        ("events one principal emits over HTTP", vec![]),
        ("request head", vec![s(HEAD_MS_MAX), bytes(HEAD_BYTES_MAX)]),
        ("requests at once on an HTTP/2 connection", vec![n(CONNECTION_REQUESTS_MAX as usize)]),
        ("data that the peer does not acknowledge, or does not receive at all", vec![s(PEER_SILENCE_MS_MAX)]),
        (
            "slowness of a peer that is sent something (a reply, a download, a stream)",
            vec![s(SEND_GRACE_MS), format!("{}/s", bytes(SEND_BYTES_PER_S_MIN))],
        ),
        ("life of an API token", vec![days(TOKEN_LIFE_S_MAX)]),
        ("API tokens of one principal", vec![n(TOKENS_OWN_MAX)]),
        (
            "life of a read token for a run, a tree or a thread",
            vec![format!("{} s", n(READ_TOKEN_S_DEFAULT)), format!("{} s", n(READ_TOKEN_S_MAX))],
        ),
        ("JWT", vec![bytes(JWT_BYTES_MAX), s(JWT_LEEWAY_S * 1_000)]),
        (
            "document of an identity provider",
            vec![bytes(PROVIDER_DOCUMENT_BYTES_MAX), s(u64::from(PROVIDER_PAUSE_S) * 1_000)],
        ),
        ("texts of a body that look like a JWT and are verified", vec![n(BODY_JWTS_MAX)]),
        ("drain at shutdown", vec![s(DRAIN_MS_MAX), format!("0 to {}", n(DRAIN_NOTICE_MS_MAX)), s(END_MS_MAX + 1_000)]),
    ]
}

fn threads() -> Rows {
    vec![
        ("thread id", vec![bytes(THREAD_ID_BYTES_MAX)]),
        ("external id of a run", vec![format!("{} characters", n(EXTERNAL_ID_CHARS_MAX))]),
        ("body that puts a checkpoint or writes", vec![bytes(CHECKPOINT_BODY_BYTES_MAX)]),
        ("checkpoint id, task id", vec![bytes(CHECKPOINT_ID_BYTES_MAX)]),
        ("namespace, task path", vec![bytes(NAMESPACE_BYTES_MAX).replace("1 KiB", "1 024 bytes")]),
        ("channel of a checkpoint", vec![bytes(CHANNEL_BYTES_MAX)]),
        ("type of a value", vec![bytes(VALUE_TYPE_BYTES_MAX)]),
        ("channels of a checkpoint; writes in one request", vec![n(CHANNELS_MAX)]),
        (
            "values of a checkpoint together, also those stored before it; its pending writes together",
            vec![bytes(CHECKPOINT_VALUES_BYTES_MAX), "100 bytes".to_owned(), "200 bytes".to_owned()],
        ),
        ("`metadata` of a checkpoint or a thread", vec![bytes(METADATA_BYTES_MAX)]),
        ("values in one page of checkpoints", vec![bytes(CHECKPOINT_PAGE_BYTES_MAX)]),
        ("ids in one prune or delete-for-runs", vec![n(PRUNE_IDS_MAX)]),
        ("time to live of a thread", vec![years(TTL_S_MAX), s(THREAD_SWEEP_MS)]),
        (
            "time to live of a run",
            vec![
                years(TTL_S_MAX),
                s(EXPIRY_SWEEP_MS),
                n(EXPIRY_STEPS as i64 * EXPIRY_STEP_ROWS),
                n(RETENTION_RULES_MAX),
            ],
        ),
        ("version of a channel's value", vec![bytes(VERSION_BYTES_MAX)]),
    ]
}

fn channels() -> Rows {
    vec![
        ("name of a channel", vec![bytes(CHANNEL_NAME_BYTES_MAX)]),
        ("chat, user, message id; username", vec![format!("{} characters", n(KEY_CHARS_MAX))]),
        ("text of a message", vec![bytes(MESSAGE_TEXT_BYTES_MAX)]),
        ("image of a message", vec![bytes(IMAGE_BYTES_MAX), bytes(MESSAGE_INPUT_BYTES_MAX)]),
        ("thread id that a channel makes, without its number", vec![bytes(CHANNEL_THREAD_BYTES_MAX)]),
        ("users on a channel's list", vec![n(ALLOWED_USERS_MAX)]),
        ("trigger", vec![format!("{} characters", n(TRIGGER_CHARS_MAX))]),
        ("idle time of a session", vec![minutes(IDLE_TIMEOUT_S_DEFAULT), years(IDLE_TIMEOUT_S_MAX)]),
        ("wait for the answer to a message", vec![s(MESSAGE_WAIT_MS_MAX)]),
        ("tries of a message", vec![n(DELIVERY_ATTEMPTS_MAX), n(DELIVERIES_AT_ONCE)]),
        ("lease of a message or an answer", vec![]),
        ("wait for a first delivery that is on its way", vec![s(DUPLICATE_WAIT_MS_MAX)]),
        ("tries of an answer", vec![n(REPLY_ATTEMPTS_MAX), minutes(REPLY_PAUSE_S_MAX)]),
        (
            "Telegram album",
            vec![n(ALBUM_PIECES_MAX), format!("{}.{} s", ALBUM_WAIT_MS / 1_000, ALBUM_WAIT_MS % 1_000 / 100)],
        ),
        ("Telegram message", vec![format!("{} UTF-16 units", n(TELEGRAM_UNITS_MAX)), n(REPLY_PARTS_MAX)]),
        (
            "one-time code",
            vec![minutes(CODE_LIFE_S_DEFAULT), hours(CODE_LIFE_S_MAX * 1_000), n(CODES_MAX), n(CODE_WAITING_MAX)],
        ),
        ("wrong codes", vec![n(CODE_TRIES_MAX), n(CODE_CHANNEL_TRIES_MAX), minutes(CODE_WINDOW_S)]),
    ]
}

fn sessions() -> Rows {
    vec![
        (
            "line, file of a session's log",
            vec![bytes(SESSION_LINE_BYTES_MAX), bytes(SESSION_LOG_BYTES_MAX), bytes(SESSION_LOG_TAIL_BYTES)],
        ),
        (
            "name, description of a saved session",
            vec![
                format!("{} characters", n(SAVED_NAME_CHARS_MAX)),
                format!("{} characters", n(SAVED_DESCRIPTION_CHARS_MAX)),
            ],
        ),
        ("file of a saved session", vec![bytes(SAVED_FILE_BYTES_MAX), format!("{} messages", n(SAVED_MESSAGES_MAX))]),
        (
            "values of a checkpoint or a log that is saved, of a file that is read",
            vec![n(SAVED_VALUES_MAX), n(2 * SAVED_VALUES_MAX)],
        ),
        ("sessions being saved in a process", vec![n(SAVED_TURNS_MAX), n(SAVED_WAITING_MAX)]),
        (
            "saved sessions that are read or written at once",
            vec![n(SAVED_TURNS_MAX), n(SAVED_TURNS_OWN_MAX), n(SAVED_WAITING_MAX), n(SAVED_WAITING_OWN_MAX)],
        ),
        ("wait for the lock of a folder of saved sessions", vec![s(SAVED_WAIT_MS_MAX)]),
        ("saved sessions of an owner", vec![n(SAVED_SESSIONS_MAX)]),
        (
            "first message in a list; request in a summary",
            vec![format!("{} characters", n(SAVED_TEXT_CHARS_MAX)), n(SAVED_REQUESTS_MAX)],
        ),
    ]
}

fn reads() -> Rows {
    vec![
        (
            "readers that are being given a page of the log, or more live frames at once",
            vec![n(REPLAYS_MAX), n(REPLAYS_OWN_MAX), bytes(STREAM_FREE_BYTES)],
        ),
        ("wait for a read", vec![s(READ_WAIT_MS_MAX), s(READ_STATEMENT_MS_MAX)]),
        ("reads of one principal at a time", vec![n(OWN_CONNECTIONS_MIN), s(READ_SHARE_WAIT_MS_MAX)]),
        ("open streams of a process", vec![n(STREAMS_MAX), n(STREAMS_OWN_DEFAULT)]),
        (
            "subscriptions of one connection",
            vec![n(SUBSCRIPTIONS_MAX), format!("{} characters", n(SUBSCRIPTION_NAME_CHARS_MAX))],
        ),
        ("frames kept for a reader that is behind", vec![n(BUS_FRAMES_DEFAULT), bytes(BUS_OWN_BYTES_MAX)]),
        ("stalled runs that readers are told of", vec![s(STALL_SWEEP_MS), n(STALLED_OWN_ROWS)]),
        ("silence before a ping", vec![s(PING_MS)]),
        (
            "wait before reconnecting",
            vec![
                s(RETRY_MS),
                format!("{} to {}", tenths(DRAINED_RETRY_MS.start), s(DRAINED_RETRY_MS.end)),
                format!("{} to {}", tenths(REFUSED_RETRY_MS.start), s(REFUSED_RETRY_MS.end)),
            ],
        ),
    ]
}

/// 500 ms as `0.5`.
fn tenths(ms: u64) -> String {
    s(ms).trim_end_matches(" s").to_owned()
}

fn writes() -> Rows {
    vec![
        ("runs one cancel reaches", vec![n(CANCEL_RUNS_MAX)]),
        ("runs being deleted in a process", vec![n(REMOVALS_MAX), n(REMOVALS_OWN_MAX), s(READ_SHARE_WAIT_MS_MAX)]),
        ("time inside a client-chosen `run_id`", vec![hours(RUN_ID_SKEW_MS_MAX)]),
        ("text of one open span", vec![bytes(OPEN_TEXT_BYTES_MAX)]),
        ("open spans of a run", vec![n(OPEN_SPANS_MAX), bytes(OPEN_RUN_BYTES_MAX)]),
        (
            "what is saved of open texts at a time",
            vec![format!("{OPEN_SAVE_MS} ms"), n(OPEN_SAVE_TEXTS_MAX), bytes(OPEN_SAVE_BYTES_MAX)],
        ),
        (
            "texts so far of other processes",
            vec![
                n(OPEN_READ_ROWS_MAX),
                bytes(OPEN_PIECE_BYTES),
                s(OPEN_WAIT_MS_MAX),
                n(OPEN_BEHIND_EVENTS_MAX),
                hours(OPEN_STAY_MS),
                s(OPEN_SWEEP_MS),
            ],
        ),
        (
            "open spans of a principal, of a process",
            vec![bytes(OPEN_OWN_BYTES_MAX), bytes(OPEN_TOTAL_BYTES_MAX), bytes(OPEN_SPAN_BYTES)],
        ),
        (
            "payloads and results that become artifacts at once",
            vec![n(TAKES_MAX), n(TAKES_OWN_MAX), s(TAKE_WAIT_MS_MAX)],
        ),
        (
            "emit requests waiting for a writer lane",
            vec![n(LANE_QUEUE_MAX), n(EMISSIONS_OWN_MAX), kib(EMISSIONS_KIB_MAX), kib(EMISSIONS_OWN_KIB_MAX)],
        ),
        (
            "one commit",
            vec![format!("{} events", n(COMMIT_EVENTS_MAX)), bytes(COMMIT_BYTES_MAX), bytes(COMMIT_OWN_BYTES_MAX)],
        ),
        (
            "rest of a principal after a use of the writer or of reading connections",
            vec![
                n(THROTTLE_OTHERS_MAX),
                s(THROTTLE_REST_MS_MAX),
                format!("{THROTTLE_BURST_MS} ms"),
                s(THROTTLE_ACTIVE_MS),
            ],
        ),
        ("wait for an emit", vec![s(EMIT_WAIT_MS_MAX)]),
        ("a try whether events can be stored", vec![s(PROBE_MS_MAX)]),
        ("room on the volume of an embedded database", vec![bytes(VOLUME_BYTES_MIN)]),
        ("lease", vec![s(LEASE_MS_DEFAULT), "0".to_owned(), hours(LEASE_MS_MAX)]),
    ]
}

fn runners() -> Rows {
    vec![
        ("lease of a job", vec![s(JOB_LEASE_MS_DEFAULT), s(500_u64), hours(JOB_LEASE_MS_MAX)]),
        ("holders of a job that may fall silent", vec![n(JOB_ATTEMPTS_MAX)]),
        ("a message waits for an agent that nobody serves", vec![min(JOB_UNSERVED_MS_MAX), s(JOB_SERVED_NOTE_MS)]),
        ("jobs of one principal that have not ended", vec![n(JOBS_OWN_MAX)]),
        ("owners one claim looks at; jobs of each", vec![n(JOB_LOOK_OWNERS), n(JOB_LOOK_ROWS), n(JOB_LOOK_ROWS)]),
        ("jobs one claim gives; jobs one sweep looks at", vec![n(JOB_CLAIM_MAX), n(JOB_SWEEP_ROWS)]),
        ("connected runners of a process", vec![n(RUNNERS_MAX), n(RUNNERS_OWN_DEFAULT)]),
        (
            "messages of runners that arrive or wait for their commit",
            vec![bytes(RUNNERS_BYTES_MAX), bytes(RUNNERS_OWN_BYTES_MAX), bytes(RUNNER_LARGE_BYTES)],
        ),
        (
            "slowness of a runner's message that has begun",
            vec![s(BODY_GRACE_MS), format!("{}/s", bytes(BODY_BYTES_PER_S_MIN))],
        ),
        (
            "message of a runner",
            vec![
                format!("{} + {}", bytes(BODY_BYTES_MAX), bytes(RUNNER_MESSAGE_BYTES_MAX - BODY_BYTES_MAX)),
                n(EMIT_EVENTS_MAX),
            ],
        ),
        ("messages of a runner that wait for their commit", vec![bytes(RUNNER_PENDING_BYTES_MAX)]),
        (
            "runs a runner works on; agents it serves; runs it comes back to",
            vec![n(RUNNER_CAPACITY_MAX), n(RUNNER_AGENTS_MAX), n(RUNNER_RESUMED_MAX)],
        ),
        ("inputs read from artifacts at once for a runner", vec![n(RUNNER_INPUTS_AT_ONCE), s(READ_WAIT_MS_MAX)]),
        ("a runner's `hello`; its taking of a message", vec![s(RUNNER_WAIT_MS_MAX)]),
        ("silence of a runner's connection", vec![s(RUNNER_SILENCE_MS_MAX), s(PING_MS)]),
    ]
}

fn moves() -> Rows {
    vec![
        ("line of an export", vec![bytes(EXPORT_LINE_BYTES_MAX), bytes(OWN_PAYLOAD_BYTES_MAX)]),
        ("time inside the id of a run that is imported", vec![]),
        ("months of the log up to which an import opens another", vec![n(IMPORT_MONTHS_MAX)]),
        ("events in one import request", vec![n(EMIT_EVENTS_MAX), bytes(BODY_BYTES_MAX)]),
        (
            "imports a process works on; wait for a turn",
            vec![n(IMPORTS_MAX), n(IMPORTS_OWN_MAX), s(IMPORT_WAIT_MS_MAX)],
        ),
        ("times an import looks again at a run into which others write", vec![n(IMPORT_TRIES_MAX)]),
    ]
}

/// What a row says beside code and the statuses of refusals.
fn said(cell: &str) -> String {
    let text: String = cell.split('`').step_by(2).collect::<Vec<_>>().join("`");
    [" 408 ", " 413 ", " 429 ", " 507 "].iter().fold(text, |text, status| text.replace(status, " "))
}

/// Where a row says this from there on, and not a longer number that holds it.
fn place(text: &str, from: usize, value: &str) -> Option<usize> {
    let goes_on = |before: Option<char>, after: Option<char>| {
        let both = |kind: fn(&char) -> bool| before.as_ref().is_some_and(kind) && after.as_ref().is_some_and(kind);
        both(char::is_ascii_digit) || both(char::is_ascii_alphabetic)
    };
    let alone = |at: &usize| {
        let (before, after) = (text[..*at].chars().next_back(), text[at + value.len()..].chars().next());
        !goes_on(before, value.chars().next()) && !goes_on(value.chars().next_back(), after)
    };
    text.match_indices(value).map(|(at, _)| at).find(|at| *at >= from && alone(at))
}

#[test]
fn every_number_of_the_table_of_bounds_is_the_programs_own() {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/protocol.md")).unwrap();
    let (_, table) = text.split_once("\n## Bounds\n").unwrap();
    let table = table.split("\n## ").next().unwrap();
    let mut expected = bounds();
    let mut wrong = Vec::new();
    for line in table.lines().filter(|line| line.starts_with("| ") && *line != "| what | bound |") {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [row, cell] = cells[..] else { panic!("a row with {} cells: {line}", cells.len()) };
        let Some(values) = expected.get_mut(row).filter(|values| !values.is_empty()).map(|values| values.remove(0))
        else {
            wrong.push(format!("{row}: no constant is named for it"));
            continue;
        };
        let (mut rest, mut from) = (said(cell), 0);
        for value in &values {
            match place(&rest, from, value) {
                Some(at) => {
                    rest.replace_range(at..at + value.len(), "…");
                    from = at;
                }
                None => wrong.push(format!("{row}: {value} is not said there by: {cell}")),
            }
        }
        if rest.contains(|c: char| c.is_ascii_digit()) {
            wrong.push(format!("{row}: says a number that no constant has: {rest}"));
        }
    }
    wrong.extend(expected.iter().filter(|(_, left)| !left.is_empty()).map(|(row, _)| format!("{row}: has no row")));
    assert!(wrong.is_empty(), "{wrong:#?}");
}
