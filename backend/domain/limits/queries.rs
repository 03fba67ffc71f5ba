//! Queries of principals over HTTP.

/// Largest text of a query, bytes.
pub const QUERY_BYTES_MAX: usize = 64 * 1024;
/// Most rows of a result, and the default.
pub const QUERY_ROWS_MAX: i64 = 10_000;
pub const QUERY_ROWS_DEFAULT: i64 = 1_000;
/// Largest result, bytes of its values; a larger one is cut off after a whole row.
pub const QUERY_RESULT_BYTES_MAX: i64 = 4 * 1024 * 1024;
/// Longest query, milliseconds.
pub const QUERY_MS_MAX: i64 = 10_000;
/// Concurrent queries of a process, and of one principal; how long others wait for a turn, milliseconds.
pub const QUERIES_MAX: usize = 4;
pub const QUERIES_OWN_MAX: usize = 2;
pub const QUERY_WAIT_MS_MAX: u64 = 5_000;
/// After this long a query gives way to a waiting principal that has no query running, milliseconds.
pub const QUERY_SHARE_MS: u64 = 2_000;
/// Longest read of a page from the replica, and longest check of the replica before it is used, milliseconds.
pub const REPLICA_READ_MS_MAX: u64 = 1_000;
pub const REPLICA_CHECK_MS_MAX: u64 = 1_000;
/// How long a query waits for the replica, how often it polls meanwhile, and how long the replica is not used after a
/// failure, milliseconds.
pub const REPLICA_WAIT_MS_MAX: u64 = 500;
pub const REPLICA_LOOK_MS: u64 = 20;
pub const REPLICA_REST_MS: u64 = 5_000;
