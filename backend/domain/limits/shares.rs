//! Bounds on what principals share: one for all of them together, and one for each.

/// Timelines being computed or sent in one process.
pub const TIMELINES_MAX: usize = 16;
/// Of these, those of one principal.
pub const TIMELINES_OWN_MAX: usize = 2;
/// Frames kept for all slow readers of one principal, bytes; the oldest are dropped first.
pub const BUS_OWN_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Open streams of one process.
pub const STREAMS_MAX: usize = 20_000;
/// Default bound on the open streams of one principal.
pub const STREAMS_OWN_DEFAULT: usize = 15_000;
/// Bodies being read or processed in one process, KiB together.
pub const BODIES_KIB_MAX: usize = 256 * 1024;
/// Of these, those of one principal by default, KiB together.
pub const BODIES_OWN_KIB_DEFAULT: usize = 64 * 1024;
/// Bodies sent to the webhooks of one process, KiB together.
pub const WEBHOOKS_KIB_MAX: usize = 16 * 1024;
/// Of these, those of one channel, KiB together.
pub const WEBHOOKS_OWN_KIB_MAX: usize = 8 * 1024;
/// Of [`super::RUNTIME_PLACES`], those that one principal's runs may take while there are several principals.
pub const RUNTIME_OWN_PLACES: usize = 48;
/// Jobs of one principal that have not ended; over it no run is queued for an agent.
pub const JOBS_OWN_MAX: i64 = 10_000;
/// Artifacts being uploaded to one process.
pub const UPLOADS_MAX: usize = 64;
/// Of these, those of one principal by default.
pub const UPLOADS_OWN_DEFAULT: usize = 16;
/// Payloads and results stored as artifacts at the same time; others wait.
pub const TAKES_MAX: usize = 64;
/// Of these, those of one principal.
pub const TAKES_OWN_MAX: usize = 16;
/// Longest such wait, milliseconds.
pub const TAKE_WAIT_MS_MAX: u64 = 4_000;
/// Artifacts being downloaded from one process.
pub const DOWNLOADS_MAX: usize = 1_024;
/// Of these, those of one principal by default.
pub const DOWNLOADS_OWN_DEFAULT: usize = 256;
/// Connected runners of one process.
pub const RUNNERS_MAX: usize = 2_000;
/// Of these, those of one principal by default.
pub const RUNNERS_OWN_DEFAULT: usize = 256;
/// Messages of all runners of a process that arrive or wait for their commit, bytes; over it nothing more is read.
pub const RUNNERS_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Of these, those of one principal's runners, bytes together.
pub const RUNNERS_OWN_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Imports that one process executes at a time; others wait.
pub const IMPORTS_MAX: usize = 4;
/// Of these, those of one principal.
pub const IMPORTS_OWN_MAX: usize = 1;
/// Replies of over [`REPLY_FREE_BYTES`] being made or sent in one process, in steps of 64 KiB.
pub const REPLIES_STEPS_MAX: usize = 8_192;
/// Of these, those of one principal.
pub const REPLIES_OWN_STEPS_MAX: usize = 1_024;
/// Replies up to this size, bytes, are not counted: a connection has a buffer of that order anyway.
pub const REPLY_FREE_BYTES: u64 = 64 * 1024;
/// What a paged reply counts, in the same steps: a page of the log and what is made of it.
pub const REPLY_PAGE_STEPS: u32 = 32;
/// Readers of one process that hold a page of the log, or the open texts, in memory.
pub const REPLAYS_MAX: usize = 512;
/// Of these, those of one principal; its other readers wait.
pub const REPLAYS_OWN_MAX: usize = 128;
/// Saved sessions read or written at once in one process; each is in memory.
pub const SAVED_TURNS_MAX: usize = 8;
/// Of these, those of one principal.
pub const SAVED_TURNS_OWN_MAX: usize = 2;
/// Requests that may wait for such a turn; more are refused.
pub const SAVED_WAITING_MAX: usize = 64;
/// Of these, those of one principal.
pub const SAVED_WAITING_OWN_MAX: usize = 48;
/// Emits of one principal that may wait for a writer.
pub const EMISSIONS_OWN_MAX: usize = 2_048;
/// Most that all emits waiting for a writer may hold together, KiB, including those of disconnected clients.
pub const EMISSIONS_KIB_MAX: usize = 512 * 1024;
/// Of these, those of one principal, KiB.
pub const EMISSIONS_OWN_KIB_MAX: usize = 128 * 1024;
/// Runs that one process deletes at a time; each takes its own connection.
pub const REMOVALS_MAX: usize = 4;
/// Of these, those of one principal.
pub const REMOVALS_OWN_MAX: usize = 1;
/// Runners of one process that poll for news at the same time, one of each principal.
pub const RUNNER_LOOKS_MAX: usize = 2;
/// How long a principal counts as active after its last activity, milliseconds.
pub const THROTTLE_ACTIVE_MS: u64 = 1_000;
/// After using a resource a principal rests for as long, times the other active principals, counting at most this many.
pub const THROTTLE_OTHERS_MAX: u32 = 16;
/// Longest rest, milliseconds; an emit that has waited longer in a writer's queue is not held back either.
pub const THROTTLE_REST_MS_MAX: u64 = 1_000;
/// How much a principal may use at once before it rests, milliseconds.
pub const THROTTLE_BURST_MS: u64 = 10;
/// Payload bytes of one page of events while others are active.
pub const EVENT_PAGE_SHARED_BYTES_MAX: usize = 128 * 1024;
/// Payload bytes of one principal in one commit while others are active (a single larger request is not divided).
pub const COMMIT_OWN_BYTES_MAX: usize = 64 * 1024;
/// A principal with less than this in a commit is not blamed for its duration, bytes.
pub const COMMIT_SMALL_BYTES: usize = 16 * 1024;
