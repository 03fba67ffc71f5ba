//! What does not verify, and what does not fit, is refused with its line and its reason.

use chrono::TimeDelta;
use serde_json::json;

use super::world::{Pair, check, command, count_runs, file_of, fill, lines_below, lines_of, piece, run_id_at, says};
use crate::support::{cluster::execute, runs::new_run_id, server::Server, shared::shared};

#[tokio::test]
async fn a_file_that_does_not_verify_is_refused_and_nothing_of_it_arrives() {
    let pair = Pair::start().await;
    let world = fill(&pair.from).await;
    let whole = String::from_utf8(pair.export(&pair.from, "a", &["--run", &world.root]).await).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let with = |change: &dyn Fn(&mut Vec<String>)| {
        let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        change(&mut lines);
        lines.join("\n") + "\n"
    };
    let last = lines.len() - 1;
    let cases = [
        (with(&|lines| lines[4] = lines[4].replace("1.50", "1.51")), "the hash of the run's lines differs"),
        (with(&|lines| lines[3] = lines[3].replacen("Z\"", "1Z\"", 1)), "line 4: this differs from the form"),
        (with(&|lines| drop(lines.remove(5))), "line 6: expected seq 4 here, found 5"),
        (with(&|lines| lines.insert(5, lines[4].clone())), "line 6: expected seq 4 here, found 3"),
        (with(&|lines| lines.swap(4, 5)), "line 5: "),
        (with(&|lines| lines[last] = lines[last].replace("\"runs\":3", "\"runs\":2")), "the total does not match"),
        (with(&|lines| lines.truncate(last)), "the file ends before its total: it is truncated"),
        (with(&|lines| lines.push(lines[1].clone())), "nothing may follow the total"),
        (whole[..whole.len() - 1].to_owned(), "the file ends in the middle of the line"),
        (whole[..whole.len() / 2].to_owned(), "the file ends in the middle of the line"),
        (whole.replace('\n', "\r\n"), "line 1: "),
        (String::new(), "the file is empty"),
        ("hello".to_owned(), "not an export"),
        ("\u{1f}".to_owned(), "not an export"),
        (format!("{{\"runreel_export\":1}}\n{{{}\n", " ".repeat(600_000)), "line 2: the line is too long"),
    ];
    for (text, why) in cases {
        let said = pair.import_bytes(&text, &[]).await;
        check(&said, 1);
        says(&said, why);
    }
    assert_eq!(count_runs(&pair.to).await, 0);
    check(&pair.import("a", &["--check"]).await, 0);
    assert_eq!(count_runs(&pair.to).await, 0, "checking sends nothing");
    let said = super::world::command(&pair.to, &["import", "-"], &whole).await;
    check(&said, 0);
    says(&said, "imported 3 runs");
}

#[tokio::test]
async fn a_run_that_is_here_and_says_something_else_is_refused_and_stays_as_it_is() {
    let pair = Pair::start().await;
    let ids = [new_run_id(), new_run_id(), new_run_id()];
    let files: Vec<_> = ids.iter().map(|id| lines_of(id, 5)).collect();
    let mut other = lines_below(&ids[1], None, &[("custom.n", "{}"), ("custom.n", "{\"x\":1}")]);
    pair.to.import_text(&ids[1], piece(&other)).await.expect(201);
    let before = pair.to.events(&ids[1]).await;
    let said = pair.import_bytes(file_of(&files), &[]).await;
    check(&said, 1);
    says(&said, "differs at seq 4 (import_conflict, field seq 4)");
    says(&said, "imported 1 run (7 events), 0 runs already present");
    assert_eq!(count_runs(&pair.to).await, 2);
    let said = pair.import_bytes(file_of(&files), &["--keep-going"]).await;
    check(&said, 1);
    says(&said, "imported 1 run (7 events), 1 run already present, 1 run rejected");
    assert_eq!(pair.to.events(&ids[1]).await, before);
    // The same run as another agent's.
    other[0] = other[0].replace("\"agent\":null", "\"agent\":\"x\"");
    other[1] = other[1].replace("\"agent\":null", "\"agent\":\"x\"");
    let problem =
        pair.to.import_text(&ids[1], format!("{}\n{}\n", other[0], other[1])).await.refused(409, "import_conflict");
    assert_eq!(problem["field"], "run");
    // An imported run was created by no request, so none can be its repeat.
    pair.to
        .post("/api/runs", json!({ "run_id": ids[0], "title": "by hand", "thread_id": "t-hand" }))
        .await
        .refused(409, "run_exists");
}

#[tokio::test]
async fn the_route_refuses_what_no_log_holds() {
    let server = shared().await;
    let run = new_run_id();
    let lines = lines_of(&run, 4);
    let part = |of: &[usize]| of.iter().map(|at| lines[*at].clone() + "\n").collect::<String>();
    let post = async |body: String| server.import_text(&run, body).await;
    server.post(&format!("/api/runs/{run}/import"), json!({})).await.refused(415, "unsupported_media_type");
    for (body, field) in [
        (String::new(), "lines[0]"),
        ("{}\n".to_owned(), "lines[0]"),
        (part(&[1]), "lines[0]"),
        (part(&[0]), "lines[0]"),
        (part(&[0, 1, 3]), "lines[2]"),
        (part(&[0, 1, 7]), "lines[2]"),
        (part(&[0, 1]).replace("run.created", "log.info"), "lines[1]"),
        (part(&[0, 1, 2]).replace("\"payload\":{}", "\"payload\": {}"), "lines[2]"),
        (part(&[0, 1, 2, 3]).replace("key-3", "key-2"), "lines[3]"),
    ] {
        let problem = post(body.clone()).await.refused(400, "invalid_event");
        assert_eq!(problem["field"], field, "{body}");
    }
    // A log begins at its beginning.
    post(part(&[0, 2, 3])).await.refused(404, "not_found");
    let other = new_run_id();
    server.import_text(&other, part(&[0, 1])).await.refused(400, "invalid_request");
    assert_eq!(post(part(&[0, 1, 2])).await.expect(201)["stored"], 2);
    post(part(&[0, 5, 6])).await.refused(404, "not_found");
    assert_eq!(post(part(&[0, 2, 3])).await.expect(200), json!({ "run_id": run, "last_seq": 3, "stored": 1 }));
    assert_eq!(post(part(&[0, 1, 2, 3])).await.expect(200)["stored"], 0);
    // A key that the log holds further back.
    post(part(&[0, 4]).replace("key-4", "key-2")).await.refused(400, "invalid_event");
    for (event, code) in [("run.started", "invalid_transition"), ("run.resumed", "invalid_transition")] {
        post(part(&[0, 4]).replace("custom.n", event)).await.refused(409, code);
    }
    assert_eq!(post(part(&[0, 4]).replace("custom.n", "run.completed")).await.expect(200)["last_seq"], 4);
    post(part(&[0, 5])).await.refused(409, "run_ended");
    assert_eq!(server.run(&run).await["last_seq"], 4);
    let too_many = lines_of(&other, 5_001);
    server.import_text(&other, piece(&too_many)).await.refused(413, "too_large");
}

#[tokio::test]
async fn a_run_may_be_old_but_not_from_nowhere() {
    let server = Server::start().await;
    let now = server.clock.now();
    for (days, status) in [(-4_000, 400), (-3_600, 201), (-95, 201), (-1, 201), (0, 201), (2, 400)] {
        let run = run_id_at(now + TimeDelta::days(days));
        let reply = server.import_text(&run, piece(&lines_of(&run, 2))).await;
        assert_eq!(reply.status, status, "{days}: {}", reply.text);
        if status == 201 {
            assert_eq!(server.events(&run).await.len(), 4);
            server.emit(&run, json!({ "type": "log.info" })).await;
        } else {
            reply.refused(400, "invalid_request");
        }
    }
    let closed = "select count(*) from pg_class c join pg_inherits i on i.inhrelid = c.oid
        where i.inhparent = 'store.run_event'::regclass
          and 2 > (select count(*) from pg_trigger t where t.tgrelid = c.oid and t.tgenabled = 'A')";
    assert_eq!(server.db.number(closed).await, 0, "a month that was made for an import is as closed as the others");
}

#[tokio::test]
async fn a_log_that_lacks_its_beginning_is_not_exported() {
    let server = Server::start().await;
    let run = server.ended_run(5).await;
    let mut superuser = server.db.connect().await;
    let owner = server.run(&run).await["owner_id"].as_str().unwrap().to_owned();
    for statement in [
        "set role runreel_retention".to_owned(),
        format!("select set_config('runreel.owner', '{owner}', false)"),
        format!("delete from store.run_event where run_id = '{run}' and seq < 3"),
    ] {
        crate::support::cluster::execute(&mut superuser, statement).await;
    }
    server.get(&format!("/api/runs/{run}/export")).await.refused(409, "log_incomplete");
    let said = super::world::command(&server, &["export", "--run", &run], "").await;
    check(&said, 1);
    says(&said, "log_incomplete");
    // The others are told all the same.
    let other = server.ended_run(5).await;
    let said = super::world::command(&server, &["export", "--all"], "").await;
    check(&said, 1);
    says(&said, &format!("run {run} is left out"));
    says(&said, "1 run, 8 events");
    assert!(said.stdout.contains(&other) && !said.stdout.contains(&run));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &said.stdout).unwrap();
    check(&super::world::command(&server, &["import", "--check", file.path().to_str().unwrap()], "").await, 0);
}

#[tokio::test]
async fn what_only_a_server_records_is_not_brought_in_by_hand() {
    let server = shared().await;
    let asked = ("interrupt.requested", r#"{"kind":"approval"}"#);
    let answer = ("interrupt.resolved", r#"{"interrupt_id":"i","decision":"approve","value":null}"#);
    let import = async |events: &[(&str, &str)], key: Option<usize>| {
        let run = new_run_id();
        let mut lines = lines_below(&run, None, events);
        if let Some(seq) = key {
            // The one id that the answer to this interrupt has.
            lines[seq] = lines[seq].replace(&format!("key-{seq}"), "runreel:interrupt:i");
        }
        server.import_text(&run, piece(&lines)).await
    };
    for (events, key) in [
        // Nobody asked, or only later.
        (vec![answer], Some(3)),
        (vec![answer, asked], Some(3)),
        // Under another id a second answer would fit in beside it.
        (vec![asked, answer], None),
        (vec![asked, ("interrupt.resolved", r#"{"interrupt_id":"i","decision":"grant"}"#)], Some(4)),
        (vec![asked, ("interrupt.resolved", r#"{"interrupt_id":"j","decision":"approve"}"#)], Some(4)),
        (vec![("artifact.created", r#"{"name":"a.txt"}"#)], None),
    ] {
        let problem = import(&events, key).await.refused(400, "invalid_event");
        assert!(problem["field"].as_str().unwrap().starts_with("seq "), "{problem}");
    }
    import(&[asked, answer], Some(4)).await.expect(201);
}

#[tokio::test]
async fn imports_open_a_bounded_number_of_months() {
    let server = Server::start().await;
    let now = server.clock.now();
    let mut refused = 0;
    for month in 1..=70 {
        let run = run_id_at(now - TimeDelta::days(30 * month));
        let reply = server.import_text(&run, piece(&lines_of(&run, 1))).await;
        if reply.status != 201 {
            assert_eq!(reply.refused(400, "invalid_request")["field"], "run_id");
            refused += 1;
        }
    }
    assert!(refused > 5);
    let months = "select count(*) from pg_inherits where inhparent = 'store.run_event'::regclass";
    assert_eq!(server.db.number(months).await, 60);
    server.start_run().await;
}

#[tokio::test]
async fn a_run_with_an_event_that_no_import_takes_is_left_out_by_its_seq_and_the_others_are_exported() {
    let pair = Pair::start().await;
    let (bad, good) = (pair.from.create(json!({})).await, pair.from.create(json!({})).await);
    let asked = json!([{"type": "interrupt.requested", "span_id": "i"}, {"type": "run.interrupted"}]);
    pair.from.emit(&bad, asked).await;
    let answer = json!({"interrupt_id": "i", "decision": "respond", "value": "x"});
    pair.from.post(&format!("/api/runs/{bad}/resume"), answer).await.expect(202);
    let larger = "alter table store.run_event disable trigger run_event_is_append_only;
        update store.run_event set payload = json_build_object('interrupt_id', 'i', 'value', repeat('x', 700000))
        where type = 'interrupt.resolved'";
    execute(&mut pair.from.db.connect().await, larger.to_owned()).await;
    let path = pair.path("rest");
    let said = command(&pair.from, &["export", "--all", "-o", path.to_str().unwrap()], "").await;
    check(&said, 1);
    says(&said, &format!("run {bad} is left out: seq 5 is an answer of more than 262144 bytes"));
    check(&pair.import("rest", &[]).await, 0);
    pair.to.get(&format!("/api/runs/{bad}")).await.refused(404, "not_found");
    assert_eq!(pair.to.events(&good).await.len(), pair.from.events(&good).await.len());
}
