//! Bounds on lists, and on the search in the content of runs.

/// Longest list page, rows.
pub const PAGE_ROWS_MAX: i64 = 1_000;
/// Largest list page, bytes of its rows; at least one row is returned.
pub const LIST_PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Default size of a list page, rows.
pub const PAGE_ROWS_DEFAULT: i64 = 100;
/// Longest word that is searched for, characters; a longer one is cut.
pub const WORD_CHARS_MAX: usize = 64;
/// Most words of one search.
pub const SEARCH_WORDS_MAX: usize = 16;
/// Shortest prefix that finds words, characters.
pub const PREFIX_CHARS_MIN: usize = 3;
/// Distinct words of one event that can be found.
pub const EVENT_WORDS_MAX: usize = 2_000;
/// Words of one document of the index; a run with more has several.
pub const DOCUMENT_WORDS_MAX: usize = 2_000;
/// Events, and bytes of their payloads, that are indexed in one transaction.
pub const INDEXED_EVENTS_MAX: i64 = 2_000;
pub const INDEXED_BYTES_MAX: usize = 2 * 1024 * 1024;
/// How far ahead one transaction looks for events, positions; and payload bytes indexed at a time for an owner that was
/// deferred because it wrote too much.
pub const INDEXED_POSITIONS_MAX: i64 = 100_000;
pub const INDEXED_TURN_BYTES_MAX: usize = 512 * 1024;
/// While events are emitted, the indexer rests this many times as long as it worked.
pub const INDEXER_REST: u32 = 7;
/// Longest such rest, milliseconds.
pub const INDEXER_REST_MS_MAX: u64 = 5_000;
/// Longest statement of the indexer, milliseconds.
pub const INDEXER_MS_MAX: u64 = 30_000;
/// How often the indexer checks for work when nothing was committed, milliseconds.
pub const INDEXER_LOOK_MS: u64 = 30_000;
/// Runs, and their events, that a search in list order reads before it uses the index.
pub const SEARCH_WALK_RUNS: i64 = 1_000;
pub const SEARCH_WALK_EVENTS: i64 = 100_000;
/// Values in one filter of a list.
pub const FILTER_VALUES_MAX: usize = 32;
/// Largest cost that a list can be filtered by, US dollars.
pub const COST_USD_MAX: f64 = 1_000_000_000.0;
/// Last events of a run that are searched for its last message.
pub const EXCERPT_EVENTS_MAX: i64 = 50;
/// Longest one-line excerpt of a run, characters.
pub const EXCERPT_CHARS_MAX: usize = 300;
/// Descendants of a run that a list counts.
pub const DESCENDANTS_MAX: i64 = 10_000;
/// Buckets of a histogram, by default and at most.
pub const BUCKETS_DEFAULT: i64 = 60;
pub const BUCKETS_MAX: i64 = 200;
/// Events, and bytes of their payloads, that one search in a run reads.
pub const RUN_SEARCH_EVENTS_MAX: i64 = 20_000;
pub const RUN_SEARCH_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Text around the first word of a hit, characters.
pub const HIT_CHARS_MAX: usize = 200;
