use super::*;

#[track_caller]
fn refused(text: &str) -> Unavailable {
    match Query::parse(text) {
        Err(unavailable) => unavailable,
        Ok(_) => panic!("{text} passes"),
    }
}

#[test]
fn what_people_ask_passes() {
    for text in [
        "select 1",
        "  -- why\n/* so /* so */ */ (select 1) union all (select 2);",
        "with recursive up (id, n) as (select 1, 2) table up",
        "values (1, 'it''s', E'\\'', $$ ; -- $$, $a$ $$ $a$, \"a\"\"b\")",
        "select count(*) filter (where status = 'failed'), percentile_cont(0.5) within group (order by duration_ms) from runs",
        "select x::numeric(10, 2), cast(y as varchar(3)) from runs cross join lateral (select 1) as a (b)",
        "select r.tags[1], (r.error ->> 'code') from runs as r where run_id >= runreel.first_run_id(now() - interval '7 days')",
        "select 'pg_sleep(1); set role x' as \"a b\", pg_size_pretty(size) from artifacts",
        "select 1 /* the end */ ; -- really",
        "select trim(title), trim(lower(replace(title, 'a', 'b'))), r.path, metadata ->> 'box' as line from runs as r",
        "select cast(title as text) as path, (select 1 as point) from runs",
    ] {
        assert!(Query::parse(text).is_ok(), "{text}: {:?}", Query::parse(text));
    }
    assert_eq!(Query::parse("select 1 ;\n;").unwrap().as_str(), "select 1 ");
}

#[test]
fn what_could_lead_elsewhere_does_not() {
    for text in [
        "",
        "delete from runs",
        "explain select 1",
        "set role none",
        "select 1; select 2",
        "select set_config('role', 'none', false)",
        "select \"set_config\"('role', 'none', false)",
        "select set_config /* a */ ('role', 'none', false)",
        "select pg_catalog.set_config('role', 'none', false)",
        "select pg_sleep(1)",
        "select PG_SLEEP (1)",
        "select * from pg_roles",
        "select * from \"pg_roles\"",
        "select * from U&\"\\0070g_roles\"",
        "select * from information_schema.tables",
        "select * from store.run",
        "select current_user",
        "select 'x'::regclass",
        "select 'x'::_regclass",
        "select '{}'::__XML",
        "select null::\"_pg_authid\"",
        "select array[1]::regrole[]",
        "select 'a'::path",
        "select '{}'::_polygon",
        "select path '((0,0))'",
        "select cast((title) as polygon[]) from runs",
        "select cast(coalesce(title, (select 'x' as x)) as path) from runs",
        "select title is nfc normalized from runs",
        "select trim(both 'x' from title) from runs",
        "select trim(title, lower('x')) from runs",
        "select position('a' in title) from runs",
        "select 1 operator(pg_catalog.+) 2",
        "select * into x from runs",
        "select query_to_xml('select 1', true, true, '')",
        "select E'\\' ', pg_sleep(1), '",
        "select E'a'\n'\\', pg_sleep(1), '\\''",
        "select $1",
        "select 'a",
        "select /* a",
        "select $a$ b",
        "select 1\u{a0}(2)",
        "select repeat('x', 1000000000)",
        "select 1, up (2)",
    ] {
        refused(text);
    }
}

#[test]
fn names_behind_a_dot_are_told_since_they_may_be_functions() {
    let query =
        Query::parse("select r.title, (r).to_json, (r.\"tags\")[1], 1.5, x . /* */ quote_literal from runs as r")
            .unwrap();
    assert_eq!(query.members(), ["title", "tags", "quote_literal"]);
}

#[test]
fn a_refusal_says_where() {
    assert_eq!(refused("select 'é', pg_sleep(1)").position, 13);
    assert_eq!(refused("select 1; select 2").position, 11);
    assert!(refused("select nothing(1)").rule.contains("the function nothing is not available"));
}
