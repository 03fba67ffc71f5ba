//! Functions that a query may call, and names that it must not contain.

/// Functions for numbers, text, times, JSON and arrays, aggregates and window functions, and those of the schema
/// `runreel`. None of them executes a text as SQL, waits, or reads a setting, a file or a catalog. Large values can be
/// built with operators alone; the memory of a Postgres process bounds them. Functions that process a whole value for
/// each part of another are bounded in `migrations/0040_bounded.sql`.
pub(super) const FUNCTIONS: &str = "
    first_run_id seen_owner text_of array_agg avg bit_and bit_or bool_and bool_or corr count covar_pop covar_samp
    cume_dist dense_rank every first_value grouping json_agg json_object_agg jsonb_agg jsonb_object_agg lag
    last_value lead max min mode nth_value ntile percent_rank percentile_cont percentile_disc rank regr_count
    regr_intercept regr_r2 regr_slope row_number stddev stddev_pop stddev_samp string_agg sum var_pop var_samp
    variance abs cbrt ceil ceiling degrees div exp floor ln log log10 mod power radians round sign sqrt trunc
    width_bucket ascii bit_length btrim char_length character_length chr concat concat_ws decode encode initcap
    left length lower ltrim md5 octet_length pg_size_pretty regexp_count regexp_match regexp_matches regexp_replace
    regexp_split_to_array regexp_split_to_table regexp_substr replace reverse right rtrim split_part starts_with
    strpos substr to_char to_hex to_number translate upper age clock_timestamp date_bin date_part date_trunc
    isfinite justify_days justify_hours justify_interval make_date make_interval make_timestamp make_timestamptz
    now statement_timestamp timezone to_date to_timestamp transaction_timestamp array_append array_cat array_length
    array_ndims array_position array_positions array_prepend array_remove array_replace array_to_json
    array_to_string cardinality generate_series generate_subscripts json_array_elements json_array_elements_text
    json_array_length json_build_array json_build_object json_each json_each_text json_extract_path
    json_extract_path_text json_object json_object_keys json_strip_nulls json_typeof jsonb_array_elements
    jsonb_array_elements_text jsonb_array_length jsonb_build_array jsonb_build_object jsonb_each jsonb_each_text
    jsonb_extract_path jsonb_extract_path_text jsonb_object jsonb_object_keys jsonb_path_exists jsonb_path_match
    jsonb_path_query jsonb_path_query_array jsonb_path_query_first jsonb_pretty jsonb_set jsonb_strip_nulls
    jsonb_typeof row_to_json string_to_array string_to_table to_json to_jsonb unnest num_nonnulls num_nulls";

/// Keywords, and types with a size, that may precede a parenthesis without being functions.
pub(super) const BEFORE_PARENTHESES: &str = "
    all and any array as asc between bit by case cast char character coalesce cross cube decimal desc distinct else
    end except exists extract filter float from full group greatest having ilike in inner intersect interval is
    join lateral least like limit materialized not nullif numeric offset on or order outer over overlay partition
    precision range rollup row rows select sets similar some substring symmetric table then time timestamp
    timestamptz trim union using values varchar varying when where window with within";

/// Keywords that reveal the user or schema, and ones that a reading statement does not need.
pub(super) const UNAVAILABLE: &str = "
    current_catalog current_role current_schema current_user into normalized operator session_user system_user
    tablesample user";

/// Types whose values are names in the catalog, or texts with their own parser.
const TYPES: &str = "
    aclitem refcursor regclass regcollation regconfig regdictionary regnamespace regoper regoperator regproc
    regprocedure regrole regtype xml";

/// Geometric types: Postgres cannot interrupt their operators, which compare every point of one with every other.
const FIGURES: &str = "box circle line lseg path point polygon";

/// Whether a name is that of an unavailable type.
pub(super) fn is_unavailable_type(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    is_among(FIGURES, name.trim_start_matches('_'))
}

/// Whether a name belongs to the catalogs, to the program's own tables, or to functions that reveal roles and settings.
pub(super) fn is_unavailable(name: &str) -> bool {
    // Array types have the name of their element type with an underscore before it.
    let name = name.to_ascii_lowercase();
    let name = name.trim_start_matches('_');
    name.starts_with("pg_") && name != "pg_size_pretty"
        || matches!(name, "information_schema" | "store" | "set_config" | "current_setting")
        || is_among(TYPES, name)
}

/// Whether a name is in one of these lists.
pub(super) fn is_among(list: &str, name: &str) -> bool {
    list.split_ascii_whitespace().any(|known| known == name)
}
