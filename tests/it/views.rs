//! SQL for people: stable views, read by a role that can do nothing else.

mod meaning;
#[cfg(feature = "demo")]
mod questions;
mod scoped;
mod spans;

use std::time::Duration;

use runreel::store::query;
use serde_json::json;

use crate::support::{cluster::Db, server::Server};

/// The views and their columns: a promise.
pub const VIEWS: &[(&str, &str)] = &[
    (
        "runs",
        "run_id, root_run_id, parent_run_id, owner_id, thread_id, session_id, agent, role, title, status, input, output, error, metadata, tags, last_seq, created_at, started_at, ended_at, last_event_at, duration_ms, external_id, ttl_s, calls, input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens, cost_usd, cost_is_partial",
    ),
    (
        "run_events",
        "run_id, seq, position, type, role, agent, owner_id, thread_id, span_id, parent_span_id, event_id, at, payload",
    ),
    (
        "spans",
        "run_id, span_id, parent_span_id, kind, name, role, agent, owner_id, status, start_seq, end_seq, started_at, ended_at, duration_ms, waiting_ms",
    ),
    (
        "tool_calls",
        "run_id, tool_call_id, parent_span_id, name, role, agent, owner_id, status, start_seq, end_seq, started_at, ended_at, duration_ms, args, result, error, waiting_ms",
    ),
    ("node_durations", "run_id, node, owner_id, steps, duration_ms, longest_ms, waiting_ms"),
    ("messages", "run_id, seq, owner_id, thread_id, role, agent, message_id, message_role, text, content, at"),
    (
        "model_calls",
        "run_id, seq, owner_id, root_run_id, thread_id, role, agent, model, at, input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens, cost_usd",
    ),
    ("token_usage", "run_id, seq, owner_id, agent, model, kind, tokens, at"),
    (
        "interrupts",
        "run_id, interrupt_id, owner_id, thread_id, role, agent, kind, prompt, status, decision, value, request_seq, answer_seq, requested_at, answered_at, waited_ms, resolved_by",
    ),
    (
        "sessions",
        "owner_id, session_id, thread_id, runs, first_run_at, last_event_at, channel, chat_id, started_at, last_activity_at, ended_at, end_reason, messages, answers",
    ),
    ("threads", "owner_id, thread_id, runs, first_run_at, last_event_at, metadata, created_at, updated_at, ttl_s"),
    ("checkpoints", "owner_id, thread_id, ns, checkpoint_id, parent_id, run_id, metadata, versions, bytes, created_at"),
    ("artifacts", "run_id, seq, owner_id, artifact_id, name, media_type, size, sha256, created_at"),
];

const LONG: Duration = Duration::from_secs(5);

async fn ask(db: &Db, text: &str) -> Result<Vec<Vec<Option<String>>>, String> {
    query::run(&db.reader(), text.to_owned(), LONG).await.map(|table| table.rows).map_err(|error| error.to_string())
}

#[tokio::test]
async fn every_view_has_its_promised_columns_and_there_is_no_other() {
    let server = Server::start().await;
    for (view, columns) in VIEWS {
        let table = query::run(&server.db.options(), format!("select * from {view}"), LONG).await.unwrap();
        assert_eq!(table.columns.join(", "), *columns, "{view}");
    }
    let names = "select viewname from pg_views where schemaname = 'runreel' order by 1";
    let found: Vec<String> =
        ask(&server.db, names).await.unwrap().into_iter().map(|row| row[0].clone().unwrap()).collect();
    let mut promised: Vec<&str> = VIEWS.iter().map(|(view, _)| *view).collect();
    promised.sort_unstable();
    assert_eq!(found, promised);
}

#[tokio::test]
async fn the_views_tell_what_happened() {
    let server = Server::start().await;
    let run = server.create(json!({ "thread_id": "t", "session_id": "s", "agent": "scout", "title": "Look" })).await;
    let at = |ms: u32| format!("2026-05-05T10:00:00.{ms:03}Z");
    server
        .emit(
            &run,
            json!([
                { "type": "step.started", "span_id": "st", "payload": { "name": "plan" }, "at": at(0) },
                { "type": "tool.started", "span_id": "c1", "parent_span_id": "st", "payload": { "name": "search", "args": { "q": 1 } }, "at": at(10) },
                { "type": "tool.completed", "span_id": "c1", "payload": { "result": "found" }, "at": at(35) },
                { "type": "tool.started", "span_id": "c2", "payload": { "name": "slow" }, "at": at(40) },
                { "type": "step.completed", "span_id": "st", "at": at(50) },
                { "type": "message.completed", "span_id": "m", "payload": {
                    "content": [{ "type": "text", "text": "Hel" }, { "text": "lo" }], "usage": { "input": 7, "output": 2.5, "note": "x" }, "model": "echo" } },
            ]),
        )
        .await;
    for (query, expected) in [
        ("select title, status, last_seq, thread_id from runs", "Look|running|8|t"),
        ("select count(*), max(seq), min(thread_id) from run_events", "8|8|t"),
        (
            "select tool_call_id, name, status, duration_ms, args, result from tool_calls order by 1 limit 1",
            "c1|search|completed|25|{\"q\":1}|\"found\"",
        ),
        ("select tool_call_id, status, end_seq, duration_ms from tool_calls order by 1 desc limit 1", "c2|running|∅|∅"),
        ("select kind, name, status, parent_span_id from spans where span_id = 'st'", "step|plan|completed|∅"),
        ("select node, steps, duration_ms, longest_ms from node_durations", "plan|1|50|50"),
        ("select message_id, message_role, text, thread_id from messages", "m|assistant|Hello|t"),
        ("select kind, tokens, model from token_usage order by 1", "input|7|echo"),
        ("select sum(tokens) from token_usage", "9.5"),
        ("select session_id, thread_id, runs from sessions", "s|t|1"),
        ("select thread_id, runs from threads", "t|1"),
        ("select count(*) from artifacts", "0"),
    ] {
        let rows = ask(&server.db, query).await.unwrap();
        let row: Vec<&str> = rows[0].iter().map(|cell| cell.as_deref().unwrap_or("∅")).collect();
        assert_eq!(row.join("|"), expected, "{query}");
    }
}

#[tokio::test]
async fn no_event_can_break_a_view_for_everybody() {
    let server = Server::start().await;
    let run = server.start_run().await;
    let payloads = [
        "1",
        "\"x\"",
        "[]",
        "[1,{\"text\":\"a\"}]",
        "true",
        "{}",
        "{\"usage\":[1]}",
        "{\"usage\":{\"a\":\"1\"}}",
        "{\"usage\":null}",
        "{\"usage\":{\"a\":1e400}}",
        "{\"usage\":{\"a\":-1E+999999}}",
        "{\"content\":1}",
        "{\"content\":[1,null,[],{\"text\":1}]}",
        "{\"content\":[{\"text\":{\"a\":1}}],\"text\":2}",
        "{\"name\":[1],\"args\":1}",
        "{\"name\":\"a\",\"name\":\"b\"}",
        "{\"size\":\"x\"}",
    ];
    for payload in payloads {
        for kind in [
            "message.completed",
            "tool.started",
            "tool.completed",
            "step.started",
            "step.completed",
            "run.waiting",
            "run.resumed",
        ] {
            let body = format!("{{\"type\":\"{kind}\",\"span_id\":\"s\",\"payload\":{payload}}}");
            server.emit_text(&run, body).await.expect(200);
        }
    }
    for (n, payload) in payloads.into_iter().enumerate() {
        let body = format!("{{\"type\":\"interrupt.requested\",\"span_id\":\"i{n}\",\"payload\":{payload}}}");
        server.emit_text(&run, body).await.expect(200);
        let value = format!("{{\"interrupt_id\":\"i{n}\",\"decision\":\"respond\",\"value\":{payload}}}");
        server.post_text(&format!("/api/runs/{run}/resume"), "application/json", value).await.expect(202);
    }
    for (view, _) in VIEWS {
        ask(&server.db, &format!("select * from {view}")).await.unwrap_or_else(|error| panic!("{view}: {error}"));
    }
    server.get(&format!("/api/runs/{run}/timeline")).await.expect(200);
}

#[tokio::test]
async fn a_reader_can_change_nothing_and_stay_in_its_role() {
    let server = Server::start().await;
    let (run, mut done) = (server.ended_run(1).await, Vec::new());
    for text in [
        "delete from runs",
        "update runs set title = 'x'",
        "insert into threads values ('a', 'b')",
        "create table x (a int)",
        "create temp table x (a int)",
        "drop view runs",
        "truncate store.run_event",
        "select * from store.run_event",
        "select * from store.api_token",
        "select * from store.pepper",
        "select store.token_by_secret('x')",
        "select store.ensure_partitions(now(), 1)",
        "select pg_read_file('/etc/passwd')",
        "select pg_notify('runreel', 'x'); commit",
        "copy (select 1) to '/tmp/x'",
        "copy (select 1) to program 'id'",
        "select 1; select 2",
        "select 1; delete from runs",
        "commit; delete from store.run",
        "rollback; reset role; select * from store.api_token",
        "do $$ begin execute 'reset role'; perform * from store.api_token; end $$",
        "do $$ begin perform set_config('role', 'none', false); perform count(*) from store.api_token; end $$",
        "do $$ begin execute 'set role none'; execute 'copy (select 1) to program ''true'''; end $$",
        "select set_config('role', 'none', true), query_to_xml('select * from store.api_token', true, false, '')",
        "select set_config('transaction_read_only', 'off', true), query_to_xml('delete from store.run', true, false, '')",
        "with d as (delete from store.run returning 1) select * from d",
        "with x as (select set_config('role', 'runreel_writer', false)) select * from x, store.run",
        "explain analyze delete from store.run",
        "select lo_import('/etc/passwd')",
        "select * from dblink('', '')",
        "nonsense",
    ] {
        if ask(&server.db, text).await.is_ok() {
            done.push(text);
        }
    }
    assert!(done.is_empty(), "these were done: {done:#?}");
    for harmless in ["reset role", "set role none", "begin", "select set_config('role', 'none', false)"] {
        // Whether it is refused or not, the next question finds a fresh session.
        let _ = ask(&server.db, harmless).await;
        assert!(ask(&server.db, "select * from store.api_token").await.is_err());
    }
    assert_eq!(server.events(&run).await.len(), 4);
    assert_eq!(server.db.number("select count(*) from store.run").await, 1);
}

#[tokio::test]
async fn a_question_that_takes_too_long_is_ended() {
    let server = Server::start().await;
    let slow = query::run(&server.db.options(), "select pg_sleep(60)".to_owned(), Duration::from_millis(200)).await;
    assert!(slow.unwrap_err().to_string().contains("statement timeout"));
}
