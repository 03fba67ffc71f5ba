//! Every bound of the product in one place; `docs/protocol.md` repeats this table for users.
//!
//! A request over a bound is refused with 413 or 429, never served slowly.

/// Largest request body, bytes.
pub const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most events in one emit request.
pub const EMIT_EVENTS_MAX: usize = 5_000;
/// Deepest nesting of a JSON value, levels.
pub const JSON_DEPTH_MAX: usize = 64;
/// Largest payload that is kept inside an event, bytes.
pub const PAYLOAD_BYTES_MAX: usize = 64 * 1024;
/// Longest event type, bytes.
pub const TYPE_BYTES_MAX: usize = 96;
/// Longest agent, channel, runner or tag name, bytes.
pub const NAME_BYTES_MAX: usize = 128;
/// Longest span id or event id, characters.
pub const KEY_CHARS_MAX: usize = 128;
/// Longest thread id, bytes.
pub const THREAD_ID_BYTES_MAX: usize = 255;
/// Longest run title or reason, characters.
pub const TITLE_CHARS_MAX: usize = 512;
/// Most tags of one run.
pub const TAGS_MAX: usize = 32;
/// Largest `metadata` of a run, bytes.
pub const METADATA_BYTES_MAX: usize = 64 * 1024;
/// Deepest tree of runs, levels below the root.
pub const RUN_DEPTH_MAX: u16 = 32;
/// Longest list page, rows.
pub const PAGE_ROWS_MAX: i64 = 1_000;
/// List page when none is asked for, rows.
pub const PAGE_ROWS_DEFAULT: i64 = 100;
/// Event page when none is asked for, rows.
pub const EVENT_PAGE_ROWS_DEFAULT: i64 = 500;
/// Rows read from the database in one step of a replay.
pub const REPLAY_ROWS: i64 = 1_000;
/// Spans one timeline shows.
pub const SPANS_MAX: usize = 20_000;
/// How far from now the time inside a client-chosen run id may lie, milliseconds.
pub const RUN_ID_SKEW_MS_MAX: i64 = 24 * 60 * 60 * 1_000;
/// Longest text of one open span (the tokens of a message so far), bytes.
pub const OPEN_TEXT_BYTES_MAX: usize = 1024 * 1024;
/// Most open spans with text in one run.
pub const OPEN_SPANS_MAX: usize = 256;
/// Text of all open spans of the process, bytes; over it the run that was quiet longest forgets its text.
pub const OPEN_TOTAL_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Emit requests that may wait for one writer lane.
pub const LANE_QUEUE_MAX: usize = 4_096;
/// Events one commit takes at most (a single larger request is committed alone).
pub const COMMIT_EVENTS_MAX: usize = 4_000;
/// Payload bytes one commit takes at most (a single larger request is committed alone).
pub const COMMIT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Longest wait for an emit's commit before the client is told to try again, milliseconds.
pub const EMIT_WAIT_MS_MAX: u64 = 4_500;
/// Longest wait for the answer to an emit, all its steps together, milliseconds.
pub const ANSWER_MS_MAX: u64 = 4_900;
/// Longest wait for a database connection or statement of a read, milliseconds.
pub const READ_WAIT_MS_MAX: u64 = 4_000;
/// Run heads a writer lane keeps in memory.
pub const HEADS_MAX: usize = 100_000;
/// Run contexts kept in memory for readers and writers.
pub const CONTEXTS_MAX: u64 = 100_000;
/// Frames kept for a reader that is behind, per topic; a reader further behind goes back to the database.
pub const BUS_FRAMES_DEFAULT: usize = 256;
/// Silence after which a stream sends a comment, milliseconds.
pub const PING_MS: u64 = 10_000;
/// What a client waits before it reconnects, milliseconds.
pub const RETRY_MS: u64 = 1_000;
/// Bytes a stream collects before it hands them to the socket.
pub const STREAM_CHUNK_BYTES: usize = 64 * 1024;
/// Open streams of one process.
pub const STREAMS_MAX: usize = 20_000;
/// Producer lease when a run asks for one without saying how long, milliseconds.
pub const LEASE_MS_DEFAULT: i64 = 60_000;
/// Longest producer lease, milliseconds.
pub const LEASE_MS_MAX: i64 = 24 * 60 * 60 * 1_000;
/// Runs one cancel may reach through the tree.
pub const CANCEL_RUNS_MAX: i64 = 10_000;
/// Longest life of an API token, seconds.
pub const TOKEN_LIFE_S_MAX: i64 = 10 * 366 * 24 * 60 * 60;
/// Patterns in one `types` filter.
pub const TYPE_PATTERNS_MAX: usize = 32;
/// Longest a JWT's times may be off, seconds.
pub const JWT_LEEWAY_S: u64 = 5;
/// A server that drains has this long to finish, milliseconds.
pub const DRAIN_MS_MAX: u64 = 8_000;
/// Largest body that puts a checkpoint or writes, bytes.
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
/// Values in one page of checkpoints, bytes; one checkpoint is always given.
pub const CHECKPOINT_PAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most ids in one prune or delete-for-runs.
pub const PRUNE_IDS_MAX: usize = 1_000;
/// Longest time to live of a thread, seconds.
pub const THREAD_TTL_S_MAX: i64 = 10 * 365 * 24 * 60 * 60;
/// How often expired threads are looked for, milliseconds.
pub const THREAD_SWEEP_MS: u64 = 60_000;
/// Threads one look removes before it looks again.
pub const THREAD_SWEEP_ROWS: i64 = 100;
/// How often expired interrupts are looked for, milliseconds.
pub const INTERRUPT_SWEEP_MS: u64 = 5_000;
/// Open interrupts one statement reads.
pub const INTERRUPT_ROWS: i64 = 10_000;
/// Bodies of one process that are being read or worked on, KiB together.
pub const BODIES_KIB_MAX: usize = 256 * 1024;
/// What a body of unknown length counts as, KiB.
pub const BODY_KIB_UNKNOWN: usize = 1024;
/// Longest time a body takes to arrive, milliseconds.
pub const BODY_WAIT_MS_MAX: u64 = 60_000;
