//! Queries of principals over HTTP.

/// Largest text of a query, bytes.
pub const QUERY_BYTES_MAX: usize = 64 * 1024;
/// Most rows of a result, and how many when the request does not say.
pub const QUERY_ROWS_MAX: i64 = 10_000;
pub const QUERY_ROWS_DEFAULT: i64 = 1_000;
/// Largest result, bytes of its values; then it is cut off after a whole row.
pub const QUERY_RESULT_BYTES_MAX: i64 = 4 * 1024 * 1024;
/// Longest time a query takes, milliseconds.
pub const QUERY_MS_MAX: i64 = 10_000;
/// Queries at once in a process, and of one principal; how long others wait for a turn, milliseconds.
pub const QUERIES_MAX: usize = 4;
pub const QUERIES_OWN_MAX: usize = 2;
pub const QUERY_WAIT_MS_MAX: u64 = 5_000;
/// How long a query may take in any case: then it makes place for a principal that has none and waits, milliseconds.
pub const QUERY_SHARE_MS: u64 = 2_000;
/// How long a page of the replica may take, and a look at it before it is used, milliseconds.
pub const REPLICA_READ_MS_MAX: u64 = 1_000;
pub const REPLICA_CHECK_MS_MAX: u64 = 1_000;
/// How long a query waits for the replica, how often it asks meanwhile, and how long the replica is left alone after a
/// failure, milliseconds.
pub const REPLICA_WAIT_MS_MAX: u64 = 500;
pub const REPLICA_LOOK_MS: u64 = 20;
pub const REPLICA_REST_MS: u64 = 5_000;
