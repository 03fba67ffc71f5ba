//! Bounds on artifacts, and on the transfer and removal of their bytes.

/// Largest artifact, bytes.
pub const ARTIFACT_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// What uploads leave free on the volume of the artifact folder, bytes.
pub const ARTIFACT_RESERVE_BYTES: u64 = 256 * 1024 * 1024;
/// But at most one in this many of the volume's bytes.
pub const ARTIFACT_RESERVE_PART: u64 = 20;
/// Longest name of an artifact, characters.
pub const ARTIFACT_NAME_CHARS_MAX: usize = 255;
/// Longest media type, bytes.
pub const MEDIA_TYPE_BYTES_MAX: usize = 255;
/// What an event keeps of a payload that became an artifact, bytes.
pub const PREVIEW_BYTES_MAX: usize = 2 * 1024;
/// Longest silence in the middle of an upload, milliseconds.
pub const UPLOAD_SILENCE_MS_MAX: u64 = 30_000;
/// How far an upload may fall behind [`UPLOAD_BYTES_PER_S_MIN`], milliseconds.
pub const UPLOAD_GRACE_MS: u64 = 30_000;
/// Minimum rate of an upload, bytes per second.
pub const UPLOAD_BYTES_PER_S_MIN: u64 = 16 * 1_024;
/// Age at which bytes without an artifact, artifacts without an event and unfinished uploads are removed, milliseconds.
pub const ARTIFACT_GRACE_MS: i64 = 60 * 60 * 1_000;
/// How often those are searched for, milliseconds.
pub const ARTIFACT_SWEEP_MS: u64 = 5 * 60 * 1_000;
/// Rows of one step of this sweep.
pub const ARTIFACT_SWEEP_ROWS: i64 = 500;
/// Sweeps between two searches of the whole store for bytes the database does not know.
pub const ARTIFACT_AUDIT_SWEEPS: u64 = 288;
/// Longest removal of one content before it counts as failed, milliseconds.
pub const REMOVAL_MS_MAX: u64 = 3_000;
/// How long a content whose removal timed out stays locked against uploads, milliseconds.
pub const REMOVAL_DOUBT_MS: u64 = 5_000;
