//! Every bound of the product; `docs/protocol.md` lists them for users. Over a bound, a request is refused, not slowed.

mod agui;
mod artifacts;
mod chain;
mod chats;
mod conversations;
mod open;
mod pages;
mod prices;
mod queries;
mod retention;
mod saved;
mod search;
mod shares;
mod telegram;

use std::num::NonZeroUsize;

pub use self::{
    agui::*, artifacts::*, chain::*, chats::*, conversations::*, open::*, pages::*, prices::*, queries::*,
    retention::*, saved::*, search::*, shares::*, telegram::*,
};

/// Largest request body, bytes.
pub const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Smallest and largest response that the server compresses, bytes: below, compression saves nothing; above, it takes
/// too long.
pub const COMPRESSED_BYTES_MIN: u64 = 4 * 1024;
pub const COMPRESSED_BYTES_MAX: u64 = 2 * 1024 * 1024;
/// Longest time for the head of a request to arrive, milliseconds.
pub const HEAD_MS_MAX: u64 = 10_000;
/// Largest head of a request, bytes.
pub const HEAD_BYTES_MAX: u32 = 64 * 1024;
/// Most requests at once on one HTTP/2 connection.
pub const CONNECTION_REQUESTS_MAX: u32 = 100;
/// How long sent data may stay unacknowledged before the peer counts as gone, milliseconds.
pub const PEER_SILENCE_MS_MAX: u64 = 20_000;
/// Most events in one emit request.
pub const EMIT_EVENTS_MAX: usize = 5_000;
/// Deepest nesting of a JSON value, levels.
pub const JSON_DEPTH_MAX: usize = 64;
/// Largest payload that is kept inside an event, bytes.
pub const PAYLOAD_BYTES_MAX: usize = 64 * 1024;
/// Largest artifact that an agent reads as the input of its run, bytes.
pub const INPUT_ARTIFACT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Longest event type, bytes.
pub const TYPE_BYTES_MAX: usize = 96;
/// Longest name of an agent, a runner, a session or a tag, characters.
pub const NAME_CHARS_MAX: usize = 128;
/// Shortest prefix of a run id that finds runs, hexadecimal digits.
pub const RUN_ID_DIGITS_MIN: usize = 4;
/// Longest span id or event id, characters.
pub const KEY_CHARS_MAX: usize = 128;
/// Longest thread id, bytes.
pub const THREAD_ID_BYTES_MAX: usize = 255;
/// Longest external id of a run, characters.
pub const EXTERNAL_ID_CHARS_MAX: usize = 255;
/// Longest run title or reason, characters.
pub const TITLE_CHARS_MAX: usize = 512;
/// Most tags of one run.
pub const TAGS_MAX: usize = 32;
/// Largest `metadata` of a run, bytes.
pub const METADATA_BYTES_MAX: usize = 64 * 1024;
/// Deepest tree of runs, levels below the root.
pub const RUN_DEPTH_MAX: u16 = 32;
/// Default size of an event page, rows.
pub const EVENT_PAGE_ROWS_DEFAULT: i64 = 500;
/// Rows read from the database in one step of a replay.
pub const REPLAY_ROWS: i64 = 1_000;
/// Payloads in one page of events, bytes; at least one event is returned.
pub const EVENT_PAGE_BYTES_MAX: usize = 1024 * 1024;
/// Spans one timeline shows.
pub const SPANS_MAX: usize = 20_000;
/// Longest name in a timeline, bytes; a longer one is cut.
pub const SPAN_NAME_BYTES_MAX: usize = 256;
/// Names with their own sum in each table of a timeline's summary; all other names share one.
pub const SUMS_MAX: usize = 1_000;
/// Longest wait for a turn to compute a timeline, milliseconds.
pub const TIMELINE_WAIT_MS_MAX: u64 = 2_000;
/// How far from now the time inside a client-chosen run id may be, milliseconds.
pub const RUN_ID_SKEW_MS_MAX: i64 = 24 * 60 * 60 * 1_000;
/// Emit requests that may wait for one writer lane.
pub const LANE_QUEUE_MAX: usize = 4_096;
/// Most events of one commit (a single larger request is committed alone). An emit waits for the commit under way, so
/// this and the next bound limit what one principal's load costs another.
pub const COMMIT_EVENTS_MAX: usize = 1_000;
/// Most payload bytes of one commit (a single larger request is committed alone).
pub const COMMIT_BYTES_MAX: usize = 256 * 1024;
/// Longest wait for an emit's commit before the client is asked to retry, milliseconds.
pub const EMIT_WAIT_MS_MAX: u64 = 4_500;
/// Longest wait for the answer to an emit, all its steps together, milliseconds.
pub const ANSWER_MS_MAX: u64 = 4_900;
/// Longest wait for a database connection or statement of a read, milliseconds.
pub const READ_WAIT_MS_MAX: u64 = 4_000;
/// Longest check whether events can be stored, milliseconds.
pub const PROBE_MS_MAX: u64 = 1_200;
/// Free space on the volume of an embedded database below which it counts as full, bytes.
pub const VOLUME_BYTES_MIN: u64 = 1024 * 1024;
/// Longest statement of a read, milliseconds; a longer one is refused as too large for now.
pub const READ_STATEMENT_MS_MAX: u64 = 3_500;
/// Longest wait of a read whose principal holds all connections it may hold, milliseconds.
pub const READ_SHARE_WAIT_MS_MAX: u64 = 2_000;
/// A principal may hold one in this many of the read connections.
pub const OWN_CONNECTIONS_PART: u32 = 3;
/// And at least this many.
pub const OWN_CONNECTIONS_MIN: u32 = 2;
/// How long a starting server waits for its database by default, milliseconds.
pub const DATABASE_WAIT_MS_DEFAULT: u64 = 60_000;
/// Pause between two checks whether the database is available, milliseconds.
pub const DATABASE_LOOK_MS: u64 = 500;
/// Run heads a writer lane keeps in memory.
pub const HEADS_MAX: usize = 100_000;
/// Owners for which a writer lane remembers where it last noted events.
pub const PIECE_OWNERS_MAX: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();
/// Positions of each lane that a starting server searches for events of servers of earlier releases.
pub const PIECE_RECENT_POSITIONS: i64 = 50_000;
/// Run contexts kept in memory for readers and writers.
pub const CONTEXTS_MAX: NonZeroUsize = NonZeroUsize::new(100_000).unwrap();
/// Frames kept for a slow reader, per topic; a reader further behind pages the database.
pub const BUS_FRAMES_DEFAULT: usize = 256;
/// Silence after which a stream sends a comment, milliseconds.
pub const PING_MS: u64 = 10_000;
/// How long a client waits before it reconnects, milliseconds.
pub const RETRY_MS: u64 = 1_000;
/// How long readers wait after a draining server disconnected them, milliseconds: at random, so not all return at once.
pub const DRAINED_RETRY_MS: std::ops::Range<u64> = 500..3_000;
/// How long readers wait after a full server refused them, milliseconds: at random.
pub const REFUSED_RETRY_MS: std::ops::Range<u64> = 3_000..8_000;
/// Frames a live reader may get at once without counting as one of its principal's replays, bytes.
pub const STREAM_FREE_BYTES: usize = 8 * 1024;
/// Bytes a stream collects before it hands them to the socket.
pub const STREAM_CHUNK_BYTES: usize = 64 * 1024;
/// Producer lease of a run that asks for one without a duration, milliseconds.
pub const LEASE_MS_DEFAULT: i64 = 60_000;
/// Longest producer lease, milliseconds.
pub const LEASE_MS_MAX: i64 = 24 * 60 * 60 * 1_000;
/// Most runs of a tree that one cancel reaches.
pub const CANCEL_RUNS_MAX: i64 = 10_000;
/// Longest life of an API token, seconds.
pub const TOKEN_LIFE_S_MAX: i64 = 10 * 366 * 24 * 60 * 60;
/// Longest and default life of a read token that the API creates for a run, a tree or a thread, seconds. The first also
/// bounds the remaining life of a token in a URL.
pub const READ_TOKEN_S_MAX: i64 = 24 * 60 * 60;
pub const READ_TOKEN_S_DEFAULT: i64 = 60 * 60;
/// Most API tokens of one principal, including those that ended within a day.
pub const TOKENS_OWN_MAX: i64 = 1_000;
/// Patterns in one `types` filter.
pub const TYPE_PATTERNS_MAX: usize = 32;
/// Permitted clock skew in the times of a JWT, seconds.
pub const JWT_LEEWAY_S: u64 = 5;
/// Longest JWT that is read, bytes.
pub const JWT_BYTES_MAX: usize = 8 * 1024;
/// Most distinct strings of one body that look like a JWT and are verified; a body with more is refused.
pub const BODY_JWTS_MAX: usize = 1_000;
/// Shortest time between two requests for an identity provider's keys, seconds.
pub const PROVIDER_PAUSE_S: u32 = 10;
/// Largest document of an identity provider that is read, bytes.
pub const PROVIDER_DOCUMENT_BYTES_MAX: usize = 256 * 1024;
/// How long a stopping server lets open requests finish, milliseconds.
pub const DRAIN_MS_MAX: u64 = 7_000;
/// After this long it also abandons what is neither committed nor acknowledged, milliseconds.
pub const SETTLE_MS_MAX: u64 = 8_000;
/// After this long an embedded Postgres that is still shutting down is stopped immediately, milliseconds.
pub const END_MS_MAX: u64 = 9_000;
/// The part of [`DRAIN_MS_MAX`] in which it still accepts connections and reports the shutdown, at most, milliseconds.
pub const DRAIN_NOTICE_MS_MAX: u64 = 5_000;
/// How far a peer may fall behind [`SEND_BYTES_PER_S_MIN`] before it is cut off, milliseconds.
pub const SEND_GRACE_MS: u64 = 60_000;
/// What a peer must read per second while data waits to be sent to it, bytes.
pub const SEND_BYTES_PER_S_MIN: u64 = 1_024;
/// Unsent data in the kernel above which nothing more is written to a peer, bytes (Linux).
pub const SEND_UNSENT_BYTES: u32 = 64 * 1024;
/// How often the log reports that connections cannot be accepted, milliseconds.
pub const ACCEPT_WARNING_MS: u64 = 60_000;
/// Largest body of a request that puts a checkpoint or writes, bytes.
pub const CHECKPOINT_BODY_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Longest checkpoint id or task id, bytes.
pub const CHECKPOINT_ID_BYTES_MAX: usize = 128;
/// Longest namespace or task path, bytes. Together with a channel and a version it must fit into an index.
pub const NAMESPACE_BYTES_MAX: usize = 1_024;
/// Longest channel name, bytes.
pub const CHANNEL_BYTES_MAX: usize = 512;
/// Longest type name of a value, bytes.
pub const VALUE_TYPE_BYTES_MAX: usize = 64;
/// Longest version of a channel's value, bytes.
pub const VERSION_BYTES_MAX: usize = 128;
/// Most channels of one checkpoint, and most writes in one request.
pub const CHANNELS_MAX: usize = 10_000;
/// Values in one page of checkpoints, bytes; at least one checkpoint is returned.
pub const CHECKPOINT_PAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Values of one checkpoint together, bytes: new ones and those kept from earlier checkpoints.
pub const CHECKPOINT_VALUES_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Pending writes of one checkpoint together, bytes.
pub const CHECKPOINT_WRITES_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Largest checkpoint that is read with its values and writes, bytes: what may be written, plus overhead.
pub const CHECKPOINT_READ_BYTES_MAX: usize = CHECKPOINT_VALUES_BYTES_MAX + CHECKPOINT_WRITES_BYTES_MAX + 256 * 1024;
/// Size at which a segment of an append-only list is closed, bytes; in a long list, a fraction of what precedes it.
pub const SEGMENT_BYTES: usize = 2 * 1024;
/// That fraction: one in this many.
pub const SEGMENT_PART: usize = 256;
/// Checkpoints of a thread that the engine keeps by default.
pub const CHECKPOINTS_KEEP_DEFAULT: u32 = 50;
/// Threads used within this many milliseconds are searched for old checkpoints.
pub const CHECKPOINT_SWEEP_BACK_MS: i64 = 10 * 60 * 1_000;
/// Threads checked in one search for old checkpoints.
pub const CHECKPOINT_SWEEP_ROWS: i64 = 1_000;
/// Most ids in one prune or delete-for-runs.
pub const PRUNE_IDS_MAX: usize = 1_000;
/// How often expired interrupts are searched for, milliseconds.
pub const INTERRUPT_SWEEP_MS: u64 = 5_000;
/// Open interrupts one statement reads.
pub const INTERRUPT_ROWS: i64 = 10_000;
/// Most events of a run that is shown with the durations of its nodes; for a longer one, see its timeline.
pub const NODE_DURATIONS_EVENTS_MAX: i64 = 20_000;
/// Steps in which a body takes its share as it arrives, KiB. They also bound a principal's concurrent bodies.
pub const BODY_STEP_KIB: u32 = 64;
/// Largest update of Telegram's webhook, bytes; its message has at most 4 096 characters.
pub const WEBHOOK_BYTES_MAX: usize = 1024 * 1024;
/// Longest time a body takes to arrive, milliseconds.
pub const BODY_WAIT_MS_MAX: u64 = 60_000;
/// How far a body may fall behind [`BODY_BYTES_PER_S_MIN`], milliseconds.
pub const BODY_GRACE_MS: u64 = 10_000;
/// Minimum rate of a body, bytes per second.
pub const BODY_BYTES_PER_S_MIN: u64 = 1_024;
/// Runs that one process's own agents execute at a time; waiting runs do not count.
pub const RUNTIME_PLACES: usize = 64;
/// Owners that one claim considers; the next considers others.
pub const JOB_LOOK_OWNERS: i32 = 200;
/// Jobs of one owner and agent that one claim considers, oldest first.
pub const JOB_LOOK_ROWS: i64 = 500;
/// Default lease of a job, milliseconds.
pub const JOB_LEASE_MS_DEFAULT: u64 = 30_000;
/// Longest lease of a job, milliseconds.
pub const JOB_LEASE_MS_MAX: u64 = 60 * 60 * 1_000;
/// How many holders of a job may let its lease lapse before its run fails.
pub const JOB_ATTEMPTS_MAX: i32 = 3;
/// Most jobs one claim returns.
pub const JOB_CLAIM_MAX: usize = 100;
/// Jobs checked in one sweep.
pub const JOB_SWEEP_ROWS: i64 = 1_000;
/// How long a message waits for an agent that no process serves, milliseconds.
pub const JOB_UNSERVED_MS_MAX: i64 = 120_000;
/// How often a process records which agents it serves, milliseconds.
pub const JOB_SERVED_NOTE_MS: i64 = 15_000;
/// How often lapsed leases and leftover jobs are searched for, milliseconds.
pub const JOB_SWEEP_MS: u64 = 1_000;
/// The same while there are no jobs at all.
pub const JOB_IDLE_MS: u64 = 3_000;
/// Shortest and longest pause of a waiting executor after a wake-up, milliseconds; in between it is four times as long
/// as the last poll took.
pub const JOB_WAKE_MS: (u64, u64) = (2, 20);
/// Longest answer of a model, bytes of text, thoughts and arguments together.
pub const MODEL_ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Longest event of a model's answer, bytes as sent. The last one may repeat the whole answer.
pub const MODEL_EVENT_BYTES_MAX: usize = 2 * MODEL_ANSWER_BYTES_MAX;
/// Most tool calls in one answer of a model.
pub const MODEL_TOOL_CALLS_MAX: usize = 128;
/// Longest wait that a model's provider may ask for before a retry, milliseconds; over it the call fails.
pub const MODEL_RETRY_WAIT_MS_MAX: u64 = 60_000;
/// Context window of a model whose section does not name one, tokens.
pub const CONTEXT_TOKENS_DEFAULT: u32 = 128_000;
/// Bytes of text that count as one token: fewer than the average of most languages, so that prompts fit.
pub const TOKEN_BYTES: usize = 3;
/// What an image counts as in a prompt, tokens.
pub const IMAGE_TOKENS: usize = 2_000;
/// Longest tool result kept in the run, bytes of JSON; a longer one becomes an artifact and a preview.
pub const TOOL_OUTPUT_BYTES_MAX: usize = 32 * 1024;
/// What the run keeps of a result that became an artifact: its first and last bytes.
pub const TOOL_HEAD_BYTES: usize = 8 * 1024;
pub const TOOL_TAIL_BYTES: usize = 2 * 1024;
/// Most that an agent reads from an artifact in one call, bytes.
pub const ARTIFACT_READ_BYTES_MAX: usize = 16 * 1024;
/// Most of an artifact that an agent searches in one call, bytes.
pub const ARTIFACT_SEARCH_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Matches one search of an artifact returns.
pub const ARTIFACT_MATCHES_MAX: usize = 20;
/// How long a tool that timed out, or whose run was cancelled, may take to clean up, milliseconds.
pub const TOOL_GRACE_MS: u64 = 2_000;
/// Most tools of one agent.
pub const TOOLS_MAX: usize = 256;
/// Longest tool name, characters of `[A-Za-z0-9_-]`.
pub const TOOL_NAME_CHARS_MAX: usize = 64;
/// Longest message of a tool server, bytes.
pub const MCP_MESSAGE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Longest schema of a tool server's tool, bytes of JSON.
pub const MCP_SCHEMA_BYTES_MAX: usize = 64 * 1024;
/// Characters kept of the description of a tool server's tool.
pub const MCP_DESCRIPTION_CHARS_MAX: usize = 4_096;
/// Largest configuration file, bytes.
pub const CONFIG_BYTES_MAX: usize = 1024 * 1024;
/// Longest name of a channel, bytes.
pub const CHANNEL_NAME_BYTES_MAX: usize = 32;
/// Longest text of a message from a channel, bytes of its JSON.
pub const MESSAGE_TEXT_BYTES_MAX: usize = 32 * 1024;
/// Largest image of a message from a channel, bytes before base64.
pub const IMAGE_BYTES_MAX: usize = 5 * 1024 * 1024;
/// Largest input of an agent's run with an inline image, bytes; a larger image becomes an artifact.
pub const MESSAGE_INPUT_BYTES_MAX: usize = 60 * 1024;
/// Longest thread id made for a channel, bytes before the number of the session.
pub const CHANNEL_THREAD_BYTES_MAX: usize = 180;
/// Users in the allow-list of a channel.
pub const ALLOWED_USERS_MAX: usize = 10_000;
/// Longest trigger of a channel, characters.
pub const TRIGGER_CHARS_MAX: usize = 64;
/// Default silence after which a session is over, seconds.
pub const IDLE_TIMEOUT_S_DEFAULT: i64 = 30 * 60;
/// Longest silence a channel may set, seconds.
pub const IDLE_TIMEOUT_S_MAX: i64 = 10 * 365 * 24 * 60 * 60;
/// Longest wait for the answer to a message, milliseconds.
pub const MESSAGE_WAIT_MS_MAX: u64 = 60_000;
/// Attempts to process one message before it is abandoned.
pub const DELIVERY_ATTEMPTS_MAX: i32 = 8;
/// Messages from the inbox that are processed at once; also answers sent at once.
pub const DELIVERIES_AT_ONCE: u32 = 16;
/// Of these places, those reserved for answers that are only logged: sending may take long.
pub const LOGGING_PLACES: u32 = 4;
/// How often waiting messages and answers are polled for at most, milliseconds; `--poll-ms` may ask for less.
pub const DELIVERY_POLL_MS: u64 = 1_000;
/// Shortest pause between two polls of the outbox, milliseconds.
pub const OUTBOX_PAUSE_MS_MIN: u64 = 5;
/// Longest wait for the outcome of an earlier delivery that is still in progress, milliseconds.
pub const DUPLICATE_WAIT_MS_MAX: u64 = 2_000;
/// Longest attempt to send an answer, milliseconds; the next attempt sends the rest.
pub const REPLY_TRY_MS_MAX: u64 = 30_000;
/// Longest wait for an answer to be in the log once its run has ended, milliseconds.
pub const LOGGED_WAIT_MS_MAX: u64 = 2_000;
/// Longest pause between two attempts to send an answer, seconds.
pub const REPLY_PAUSE_S_MAX: i64 = 15 * 60;
/// Attempts to send one answer before it is abandoned.
pub const REPLY_ATTEMPTS_MAX: i32 = 50;
/// Most characters of one Telegram message, UTF-16 units.
pub const TELEGRAM_UNITS_MAX: usize = 4_096;
/// Messages one answer may become; the rest is left out with a notice.
pub const REPLY_PARTS_MAX: usize = 20;
/// Longest line of a session's log, bytes; a longer content is cut.
pub const SESSION_LINE_BYTES_MAX: usize = 1024 * 1024;
/// Longest file of a session log, bytes; over it nothing is appended.
pub const SESSION_LOG_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// How long a writer's connection keeps its query plans, milliseconds: they fit the tables' sizes at planning time.
pub const PLANS_MS_MAX: u64 = 10_000;
/// Longest life of a pooled connection, and so of its plans, milliseconds.
pub const CONNECTION_MS_MAX: u64 = 5 * 60 * 1_000;
/// Lines of a session's log that are read at a time.
pub const SESSION_LINES_PAGE_ROWS: i64 = 500;
/// How far back a session's log is searched for a line that may already be there, bytes.
pub const SESSION_LOG_TAIL_BYTES: u64 = 4 * 1024 * 1024;
/// Default life of a one-time code, seconds.
pub const CODE_LIFE_S_DEFAULT: i64 = 15 * 60;
/// Longest life of a one-time code, seconds.
pub const CODE_LIFE_S_MAX: i64 = 24 * 60 * 60;
/// Wrong codes of one user before the user has to wait.
pub const CODE_TRIES_MAX: i32 = 5;
/// Wrong codes of all users of a channel before all have to wait.
pub const CODE_CHANNEL_TRIES_MAX: i32 = 100;
/// Window in which wrong codes are counted, seconds.
pub const CODE_WINDOW_S: i64 = 15 * 60;
/// Unused codes of one channel.
pub const CODES_MAX: i64 = 1_000;
/// Users of one channel that were asked for a code and have not given one.
pub const CODE_WAITING_MAX: i64 = 1_000;
/// Largest message of a runner, bytes.
pub const RUNNER_MESSAGE_BYTES_MAX: usize = 8 * 1024 * 1024 + 64 * 1024;
/// Messages of one runner that wait for their commit, bytes together; over it nothing more is read from it.
pub const RUNNER_PENDING_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most runs a runner executes at a time.
pub const RUNNER_CAPACITY_MAX: u16 = 256;
/// Most agents one runner serves.
pub const RUNNER_AGENTS_MAX: usize = 256;
/// Inputs read from artifacts at once for the runs of one runner.
pub const RUNNER_INPUTS_AT_ONCE: usize = 8;
/// Most runs a runner names when it reconnects.
pub const RUNNER_RESUMED_MAX: usize = 1_024;
/// Size of one read from a runner's socket, bytes.
pub const RUNNER_READ_BYTES: usize = 16 * 1024;
/// Size above which a message takes the share of the largest at once, bytes, so that it can be received to its end.
pub const RUNNER_LARGE_BYTES: usize = 64 * 1024;
/// Longest wait for a runner's `hello`, and for it to accept a message, milliseconds.
pub const RUNNER_WAIT_MS_MAX: u64 = 10_000;
/// Longest silence of a runner's connection, pongs included, milliseconds.
pub const RUNNER_SILENCE_MS_MAX: u64 = 25_000;
/// Largest payload that the server itself records, bytes; a log that holds a larger one is not imported.
pub const OWN_PAYLOAD_BYTES_MAX: usize = 256 * 1024;
/// Longest line of an export, bytes.
pub const EXPORT_LINE_BYTES_MAX: usize = 512 * 1024;
/// How old the time inside the id of an imported run may be, milliseconds.
pub const IMPORT_AGE_MS_MAX: i64 = 10 * 366 * 24 * 60 * 60 * 1_000;
/// Months of the log above which an import adds none; new ones are still added as time passes.
pub const IMPORT_MONTHS_MAX: i64 = 60;
/// Attempts of an import on a run that others write at the same time.
pub const IMPORT_TRIES_MAX: usize = 8;
/// Longest wait of an import for its turn, milliseconds.
pub const IMPORT_WAIT_MS_MAX: u64 = 2_000;
/// Log lines per second about refused credentials; the rest are counted.
pub const REFUSED_LINES_PER_S_MAX: u32 = 5;
