//! The questions of `docs/sql.md`, asked of the log that a real `runreel demo` leaves behind, and of a little that a
//! demo has none of: a failed run, one that waits, a channel.

use std::time::Duration;

use runreel::store::query;
use serde_json::json;

use crate::{
    channels::{WEB, accepted, answer, id},
    demo,
    support::{
        cluster::execute,
        process::run,
        server::{Server, setup},
    },
};

#[path = "../../../benches/sql/questions.rs"]
mod guide;

type Rows = Vec<Vec<String>>;

/// What the demo has not: as it comes in through the API.
async fn a_little_more(server: &Server) -> String {
    let coder = json!({ "agent": "coder", "thread_id": "t-1", "tags": ["prod", "nightly", "prod"] });
    let failed = server.create(coder).await;
    server.upload(&failed, "small.txt", "bytes").await;
    server.upload(&failed, "large.txt", "x".repeat(100_000)).await;
    let call = |span: &str, end: &str, payload: serde_json::Value| {
        json!([
            { "type": "tool.started", "span_id": span, "payload": { "name": "search", "args": { "q": 1 } } },
            { "type": end, "span_id": span, "payload": payload },
        ])
    };
    server.emit(&failed, call("c1", "tool.failed", json!({ "error": { "code": "timeout", "message": "slow" } }))).await;
    server.emit(&failed, call("c2", "tool.completed", json!({ "result": "found" }))).await;
    let said = json!({ "content": [{ "type": "text", "text": "So" }], "usage": { "input_tokens": 7 } });
    let error = json!({ "error": { "code": "tool_error", "message": "It broke." } });
    let end = json!([
        { "type": "message.completed", "span_id": "m", "payload": said },
        { "type": "run.failed", "payload": error },
    ]);
    server.emit(&failed, end).await;

    let waiting = server.create(json!({ "agent": "asker", "tags": ["prod"] })).await;
    let asked = json!([
        { "type": "interrupt.requested", "span_id": "i", "payload": { "kind": "approval", "prompt": "Send it?" } },
        { "type": "run.interrupted" },
    ]);
    server.emit(&waiting, asked.clone()).await;
    let answer_to_it = json!({ "interrupt_id": "i", "decision": "approve" });
    server.post(&format!("/api/runs/{waiting}/resume"), answer_to_it).await.expect(202);
    let again = json!([{ "type": "interrupt.requested", "span_id": "j" }, { "type": "run.interrupted" }]);
    server.emit(&waiting, again).await;

    let first = accepted(server, "hello").await;
    answer(server, &id(&first, "run_id"), "hi").await;
    waiting
}

/// The rows of an answer.
async fn answered(server: &Server, text: &str) -> Rows {
    let table = query::run(&server.db.reader(), text.to_owned(), Duration::from_secs(10)).await;
    let rows = table.unwrap_or_else(|error| panic!("{text}\n{error}")).rows.into_iter();
    rows.map(|row| row.into_iter().map(|cell| cell.unwrap_or_else(|| "∅".to_owned())).collect()).collect()
}

/// The whole part of a number.
fn number(cell: &str) -> i64 {
    let whole = cell.split('.').next().unwrap_or_default();
    whole.parse().unwrap_or_else(|_| panic!("{cell} is no number"))
}

/// The row that begins with these cells.
#[track_caller]
fn row<'a>(rows: &'a Rows, begin: &[&str]) -> &'a [String] {
    let found = rows.iter().find(|row| row.iter().zip(begin).all(|(cell, wanted)| cell == wanted));
    found.unwrap_or_else(|| panic!("{begin:?} in {rows:#?}"))
}

/// What the last question finds when the end of one run is gone, and all of another.
async fn left_over(server: &Server, cut: &str, emptied: &str) -> Vec<String> {
    let text = format!(
        "alter table store.run_event disable trigger run_event_is_append_only;
         delete from store.run_event where run_id = '{cut}' and seq = 8 or run_id = '{emptied}'"
    );
    execute(&mut server.db.connect().await, text).await;
    let asked = query::run(&server.db.reader(), guide::questions()[19].sql.to_owned(), Duration::from_secs(10)).await;
    let mut found: Vec<String> = asked.unwrap().rows.into_iter().map(|row| row[0].clone().unwrap()).collect();
    found.sort_unstable();
    found
}

#[tokio::test]
async fn each_question_of_the_guide_has_the_answer_that_the_log_holds() {
    let (server, dir) = (setup().config(WEB).flags(&["--poll-ms", "50"]).start().await, demo::tree());
    let said = run(demo::demo(&server, &dir, &demo::ALONE), "").await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let waiting = a_little_more(&server).await;
    let ask = async |text: &str| answered(&server, text).await;
    let events = number(&ask("select count(*) from run_events").await[0][0]);
    let supervisor = ask("select run_id, agent from runs where role = 'supervisor'").await.remove(0);
    let [lead, agent] = [&supervisor[0], &supervisor[1]].map(String::as_str);
    let steps = number(&ask("select count(*) from run_events where type = 'step.completed'").await[0][0]);
    let questions = guide::questions();
    assert_eq!(questions.iter().map(|question| question.number).collect::<Vec<_>>(), (1..=20).collect::<Vec<_>>());
    for question in questions {
        let rows = ask(question.sql).await;
        let column = |n: usize| rows.iter().map(|row| row[n].as_str()).collect::<Vec<_>>();
        let sum = |n: usize| rows.iter().map(|row| number(&row[n])).sum::<i64>();
        let fine = match question.number {
            1 => row(&rows, &["search", "2", "1"]).len() == 6 && rows.len() > 1 && sum(2) == 2,
            2 => rows.iter().any(|row| row[1..] == ["coder", "1", "1", "100.0"]),
            3 => {
                column(0).contains(&agent)
                    && !column(0).contains(&"coder")
                    && rows.iter().all(|row| number(&row[2]) <= number(&row[3]))
            }
            4 => sum(1) == steps && rows.iter().all(|row| number(&row[4]) <= number(&row[2])),
            5 => {
                [&["asker", "2", "1"], &[agent, "1", "0"]].iter().all(|who| row(&rows, *who)[3].starts_with("00:0"))
                    && rows.len() == 2
            }
            6 => rows.len() == 1 && rows[0][..4] == [waiting.as_str(), "asker", "interrupted", "8"],
            7 => sum(2) == events,
            8 => rows.len() == 5 && rows[0][1] >= rows[1][1] && rows[0][1] != "∅",
            9 => rows.len() == 1 && rows[0][1..4] == ["search", r#"{"q":1}"#, "2"],
            10 => rows.len() == 1 && rows[0][0] == lead && rows[0][2] == "4",
            11 => {
                row(&rows, &["run", "coder", "tool_error", "1"]);
                row(&rows, &["tool", "files_read", "No such file or directory (os error 2)", "1"]);
                row(&rows, &["tool", "search", "timeout", "1"]).len() == 4 && rows.len() == 3
            }
            12 => row(&rows, &["t-1", "input_tokens", "7"]).len() == 4,
            13 => row(&rows, &["t-1", "1", "1"]).len() == 6 && row(&rows, &["web_5", "1", "1"]).len() == 6,
            14 => {
                rows.len() == 2
                    && rows[0][0].starts_with("user: [")
                    && rows[0][0].ends_with("[ann]: hello")
                    && rows[1][0] == "assistant: hi"
            }
            15 => column(0) == ["large.txt", "files_read.txt", "demo.toml", "small.txt"] && rows[0][2] == "98 kB",
            16 => rows.len() == 1 && rows[0][..3] == ["web", "1", "1"] && number(&rows[0][3]) >= 0,
            17 => {
                row(&rows, &["demo", "1", "1", "0", "0", "0"]);
                row(&rows, &["prod", "2", "0", "1", "0", "1"]).len()
                    == row(&rows, &["nightly", "1", "0", "1", "0", "0"]).len()
            }
            18 => {
                let seqs: Vec<i64> = column(0).into_iter().map(number).collect();
                seqs.is_sorted()
                    && rows.iter().all(|row| number(&row[1]) >= 0 && row[4] == "completed")
                    && column(3).iter().any(|what| what.starts_with("step "))
                    && column(3).iter().any(|what| what.trim().starts_with("tool "))
            }
            19 => rows.len() as i64 == events.min(100) && column(0).is_sorted(),
            20 => rows.is_empty(),
            _ => false,
        };
        assert!(fine, "{}. {}\n{}\n{rows:#?}", question.number, question.title, question.sql);
    }
    let found = left_over(&server, &waiting, lead).await;
    let mut gone = [waiting, lead.to_owned()];
    gone.sort_unstable();
    assert_eq!(found, gone);
}
