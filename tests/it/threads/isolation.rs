//! One thread id of two people is two threads, for the routes and for the database.

use reqwest::Method;
use runreel::domain::principal::Scope;
use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::support::{
    api::{Api, Reply},
    cluster::{Db, execute},
    runs::new_run_id,
    server::{Server, setup},
    shared::shared,
    threads::{blob, column, encoded, state_with, value, write, writes_of},
};

const TABLES: [&str; 4] = ["store.thread", "store.checkpoint", "store.blob", "store.pending_write"];

/// Fills the thread `t`: a run with a message, two checkpoints, a value, a write. Gives the run.
async fn fill(api: &Api, who: &str) -> String {
    let run = api.create(json!({ "thread_id": "t", "title": who })).await;
    let content = json!([{ "type": "text", "text": who }]);
    api.emit(&run, json!({ "type": "message.completed", "payload": { "content": content } })).await;
    api.put("/api/threads/t", json!({ "metadata": { "of": who }, "ttl_s": 77 })).await.expect(200);
    let (versions, blobs) = (json!({ "c": 1 }), json!({ "c": blob(1, who.as_bytes()) }));
    let more = json!({ "run_id": run, "metadata": { "of": who }, "versions": versions, "blobs": blobs });
    api.put_checkpoint("t", "1", state_with(who, more)).await;
    let more = json!({ "ns": "sub", "parent_id": "1", "metadata": { "run_id": run } });
    api.put_checkpoint("t", "2", state_with(who, more)).await;
    let writes = json!({ "task_id": who, "upsert": true, "writes": [write(0, "c", who.as_bytes())] });
    assert_eq!(api.put_writes("t", "1", writes).await, 1);
    run
}

const READS: [&str; 12] = [
    "/api/threads/T",
    "/api/threads/T/runs",
    "/api/threads/T/messages",
    "/api/threads/T/checkpoints",
    "/api/threads/T/checkpoints?ns=sub",
    "/api/threads/T/checkpoints?run_id=RUN",
    "/api/threads/T/checkpoints?filter=%7B%7D",
    "/api/threads/T/checkpoints/1",
    "/api/threads/T/checkpoints/2?ns=sub",
    "/api/threads/T/checkpoints/latest",
    "/api/threads/T/checkpoints/latest?ns=sub&run_id=RUN",
    "/api/threads/T/checkpoints/latest?run_id=RUN",
];

/// What somebody can read of the thread `t`, byte for byte.
async fn sight(api: &Api, run: &str) -> Vec<(u16, String)> {
    let mut seen = Vec::new();
    for path in READS.iter().chain(&["/api/threads", "/api/checkpoints"]) {
        let reply = api.get(&path.replace('T', "t").replace("RUN", run)).await;
        // Where the feed of everybody stands is told to everybody.
        let text = reply.text.split("\"stream_cursor\"").next().unwrap_or_default().to_owned();
        seen.push((reply.status, text));
    }
    seen
}

fn head(reply: &Reply) -> Vec<String> {
    let told = reply.headers.iter().filter(|(name, _)| *name != "date");
    let mut head: Vec<String> = told.map(|pair| format!("{pair:?}")).collect();
    head.sort();
    head
}

#[track_caller]
fn same(foreign: &Reply, absent: &Reply, what: &str) {
    assert_eq!((foreign.status, &foreign.text), (absent.status, &absent.text), "{what}");
    assert_eq!(head(foreign), head(absent), "{what}");
}

#[tokio::test]
async fn somebody_elses_thread_and_an_absent_one_answer_alike_byte_for_byte() {
    let server = shared().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let run = fill(&alice, "alice").await;
    let before = sight(&alice, &run).await;
    let ask = async |method: &str, path: &str, body: &Value, thread: &str, run: &str| {
        let request = bob.request(method.parse().unwrap(), &path.replace('T', thread).replace("RUN", run));
        let text = body.to_string().replace("THREAD", thread).replace("RUN", run);
        let request =
            if body.is_null() { request } else { request.header("content-type", "application/json").body(text) };
        bob.send(request).await
    };
    for path in READS {
        let absent = ask("GET", path, &Value::Null, "absent", &new_run_id()).await;
        same(&ask("GET", path, &Value::Null, "t", &run).await, &absent, path);
        absent.refused(404, "not_found");
    }
    for (method, path, body, status) in [
        ("DELETE", "/api/threads/T", Value::Null, 404),
        ("POST", "/api/threads/T/copy", json!({ "to": "mine" }), 404),
        ("POST", "/api/threads/T/copy", json!({ "to": "" }), 0),
        ("GET", "/api/threads/T/checkpoints?filter=[]", Value::Null, 0),
        ("GET", "/api/threads/T/messages?cursor=x", Value::Null, 0),
        ("GET", "/api/threads/T/runs?limit=0", Value::Null, 0),
        ("GET", "/api/runs?thread_id=T", Value::Null, 200),
        ("GET", "/api/checkpoints?run_id=RUN", Value::Null, 200),
        ("GET", "/api/threads?q=T", Value::Null, 200),
        ("POST", "/api/threads/prune", json!({ "thread_ids": ["THREAD"], "strategy": "keep_latest" }), 200),
        ("POST", "/api/threads/prune", json!({ "thread_ids": ["THREAD"], "strategy": "delete" }), 200),
        ("POST", "/api/checkpoints/delete-for-runs", json!({ "run_ids": ["RUN"] }), 200),
    ] {
        let foreign = ask(method, path, &body, "t", &run).await;
        let absent = ask(method, path, &body, "absent", &new_run_id()).await;
        // The mark in a list of runs is of this moment.
        if path == "/api/runs?thread_id=T" {
            assert_eq!(
                (foreign.json()["runs"].clone(), foreign.status),
                (absent.json()["runs"].clone(), absent.status)
            );
        } else {
            same(&foreign, &absent, path);
        }
        assert!(status == 0 || foreign.status == status, "{path}: {}", foreign.text);
    }
    assert_eq!(bob.get("/api/threads").await.expect(200)["threads"], json!([]));
    assert_eq!(bob.get("/api/checkpoints").await.expect(200)["checkpoints"], json!([]));
    assert_eq!(sight(&alice, &run).await, before, "nothing of that changed her thread");
}

#[tokio::test]
async fn what_one_does_to_a_thread_the_other_with_its_name_does_not_feel() {
    let server = shared().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let run = fill(&alice, "alice").await;
    let before = sight(&alice, &run).await;
    let theirs = fill(&bob, "bob").await;
    for (status, text) in sight(&bob, &theirs).await {
        assert!(status == 200 && !text.contains("alice") && !text.contains(&run), "{text}");
    }
    assert_eq!(sight(&alice, &run).await, before);
    // Everything a cursor of hers gives him is his own.
    bob.create(json!({ "thread_id": "t" })).await;
    for (list, member) in [
        ("/api/threads/t/runs", "runs"),
        ("/api/threads/t/checkpoints", "checkpoints"),
        ("/api/checkpoints", "checkpoints"),
    ] {
        let page = bob.get(&format!("{list}?limit=1")).await.expect(200);
        let cursor = encoded(page["next_cursor"].as_str().unwrap_or_else(|| panic!("{list}: {page}")));
        let reply = alice.get(&format!("{list}?limit=9&cursor={cursor}")).await;
        assert!(!reply.text.contains("bob"), "{}", reply.text);
        let owners =
            reply.expect(200)[member].as_array().unwrap().iter().map(|row| row["owner_id"].clone()).collect::<Vec<_>>();
        assert!(owners.iter().all(|owner| *owner == alice_owner(&before) || owner.is_null()), "{owners:?}");
    }
    // A write on the same checkpoint, place and task is his own as well.
    let writes = json!({ "task_id": "alice", "upsert": true, "writes": [write(0, "c", b"forged")] });
    bob.put(&writes_of("t", "1"), writes).await.expect(200);
    let forged =
        json!({ "checkpoint": value(b"forged"), "versions": { "c": 1 }, "blobs": { "c": blob(1, b"forged") } });
    bob.put_checkpoint("t", "1", forged).await;
    assert_eq!(sight(&alice, &run).await, before);
    bob.post("/api/threads/t/copy", json!({ "to": "copied" })).await.expect(201);
    bob.post("/api/threads/prune", json!({ "thread_ids": ["t"], "strategy": "keep_latest" })).await.expect(200);
    bob.post("/api/checkpoints/delete-for-runs", json!({ "run_ids": [run, theirs] })).await.expect(200);
    assert_eq!(bob.delete("/api/threads/t").await.status, 204);
    assert_eq!(sight(&alice, &run).await, before, "bob's thread is gone, hers is not");
    alice.get("/api/threads/copied").await.refused(404, "not_found");
}

fn alice_owner(sight: &[(u16, String)]) -> Value {
    serde_json::from_str::<Value>(&sight[0].1).unwrap()["owner_id"].clone()
}

#[tokio::test]
async fn a_checkpoint_that_names_somebody_elses_run_learns_nothing_and_reaches_nothing() {
    let server = shared().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let run = fill(&alice, "alice").await;
    let before = sight(&alice, &run).await;
    for (thread, made_by) in [("foreign", run.clone()), ("absent", new_run_id())] {
        for (id, more) in [("1", json!({ "run_id": made_by })), ("2", json!({ "metadata": { "run_id": made_by } }))] {
            let told = bob.try_checkpoint(thread, id, state_with("x", more)).await.expect(201);
            assert_eq!(told["run_id"], made_by, "a framework's run need not be one of ours");
        }
        assert_eq!(
            bob.get(&format!("/api/checkpoints?run_id={made_by}")).await.expect(200)["checkpoints"]
                .as_array()
                .unwrap()
                .len(),
            2
        );
    }
    assert_eq!(sight(&alice, &run).await, before);
    let gone = alice.post("/api/checkpoints/delete-for-runs", json!({ "run_ids": [run] })).await.expect(200);
    assert_eq!(gone["checkpoints"], 2, "only hers");
    assert_eq!(bob.pages("/api/threads/foreign/checkpoints", "checkpoints").await.len(), 2);
}

#[tokio::test]
async fn the_stream_of_a_thread_shows_its_owners_runs_only() {
    let server = shared().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    fill(&alice, "alice").await;
    let mut stream = bob.stream("/api/stream/threads/t").await;
    assert_eq!(stream.caught_up().await, 0);
    fill(&alice, "alice").await;
    let run = bob.create(json!({ "thread_id": "t" })).await;
    assert_eq!(stream.durable(1).await[0].json()["run_id"], run.as_str());
}

#[tokio::test]
async fn a_scope_says_what_may_be_done_to_a_thread() {
    let server = setup().jwt().start().await;
    let alice = server.as_subject("alice");
    let run = fill(&alice, "alice").await;
    let tokens = [
        server.api_token("alice", &[Scope::Read], None, None).await.0,
        server.api_token("alice", &[Scope::Emit], None, None).await.0,
        server.api_token("alice", &[Scope::Admin], None, None).await.0,
        server.api_token("alice", &[Scope::Admin], Some(&run), None).await.0,
    ];
    let before = sight(&alice, &run).await;
    // Whoever may not comes first, and is told so before anything else is looked at.
    for (method, path, body, allowed) in [
        ("GET", "/api/threads", Value::Null, [true, false, true, false]),
        ("GET", "/api/threads/t", Value::Null, [true, false, true, false]),
        ("GET", "/api/threads/t/runs", Value::Null, [true, false, true, false]),
        ("GET", "/api/threads/t/messages", Value::Null, [true, false, true, false]),
        ("GET", "/api/threads/t/checkpoints", Value::Null, [true, false, true, false]),
        ("GET", "/api/threads/t/checkpoints/1", Value::Null, [true, false, true, false]),
        ("GET", "/api/threads/t/checkpoints/latest", Value::Null, [true, false, true, false]),
        ("GET", "/api/checkpoints", Value::Null, [true, false, true, false]),
        ("PUT", "/api/threads/t", json!({}), [false, true, true, false]),
        ("PUT", "/api/threads/t/checkpoints/1", json!({ "checkpoint": value(b"x") }), [false, true, true, false]),
        (
            "PUT",
            "/api/threads/t/checkpoints/1/writes",
            json!({ "task_id": "a", "writes": [write(0, "c", b"x")] }),
            [false, true, true, false],
        ),
        ("POST", "/api/threads/t/copy", json!({ "to": "u" }), [false, true, true, false]),
        ("POST", "/api/checkpoints/delete-for-runs", json!({ "run_ids": [run] }), [false, false, true, false]),
        (
            "POST",
            "/api/threads/prune",
            json!({ "thread_ids": ["u"], "strategy": "delete" }),
            [false, false, true, false],
        ),
        ("DELETE", "/api/threads/t", Value::Null, [false, false, true, false]),
    ] {
        for wanted in [false, true] {
            for (token, _) in tokens.iter().zip(allowed).filter(|(_, allowed)| *allowed == wanted) {
                let request = token.request(method.parse::<Method>().unwrap(), path);
                let request = if body.is_null() { request } else { request.json(&body) };
                let reply = token.send(request).await;
                if wanted {
                    assert!(matches!(reply.status, 200 | 201 | 204), "{method} {path}: {}", reply.text);
                } else {
                    reply.refused(403, "forbidden");
                }
            }
            if method == "GET" || !wanted {
                assert!(method != "GET" || sight(&alice, &run).await == before, "{method} {path} changed something");
            }
        }
    }
    let other = server.api_token("alice", &[Scope::Read], None, None).await.0;
    assert_eq!(column(&other.pages("/api/threads", "threads").await, "thread_id"), ["u"; 0]);
}

async fn as_role(db: &Db, role: &str, owner: Option<&str>) -> PgConnection {
    let mut connection = db.connect().await;
    execute(&mut connection, format!("set role {role}")).await;
    if let Some(owner) = owner {
        let set = sqlx::query("select set_config('runreel.owner', $1, false)").bind(owner);
        set.execute(&mut connection).await.unwrap();
    }
    connection
}

async fn count(connection: &mut PgConnection, table: &str) -> i64 {
    let query = sqlx::AssertSqlSafe(format!("select count(*) from {table}"));
    sqlx::query_scalar(query).fetch_one(connection).await.unwrap()
}

async fn refused(connection: &mut PgConnection, text: &str, why: &str) {
    let done = sqlx::raw_sql(sqlx::AssertSqlSafe(text.to_owned())).execute(connection).await;
    let said = done.map(|done| done.rows_affected()).unwrap_err().to_string();
    assert!(said.contains(why), "{text}: {said}");
}

#[tokio::test]
async fn the_database_shows_threads_to_the_owner_it_was_told_of_and_to_nobody_else() {
    let server = setup().jwt().start().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    fill(&alice, "alice").await;
    fill(&bob, "bob").await;
    let owner = alice.thread("t").await["owner_id"].as_str().unwrap().to_owned();
    let nobody = "0".repeat(64);
    for wrong in [None, Some(""), Some(nobody.as_str()), Some("%"), Some(&owner[..63])] {
        let mut app = as_role(&server.db, "runreel_app", wrong).await;
        for table in TABLES {
            assert_eq!(count(&mut app, table).await, 0, "{table} as {wrong:?}");
            let change = match table {
                "store.thread" => "update store.thread set metadata = '{}'".to_owned(),
                _ => format!("update {table} set t = 'x'"),
            };
            for statement in [change, format!("delete from {table}")] {
                let done = sqlx::raw_sql(sqlx::AssertSqlSafe(statement.clone())).execute(&mut app).await.unwrap();
                assert_eq!(done.rows_affected(), 0, "{statement} as {wrong:?}");
            }
        }
    }
    let mut app = as_role(&server.db, "runreel_app", Some(&owner)).await;
    let mut counts = Vec::new();
    for table in TABLES {
        counts.push(count(&mut app, table).await);
    }
    assert_eq!(counts, [1, 2, 1, 1]);
    // Nothing can be made for, or given to, another owner; nor hung below another's thread.
    for table in TABLES {
        refused(&mut app, &format!("update {table} set owner_id = '{nobody}'"), "row-level security").await;
    }
    let thread = "(owner_id, thread_id, created_at, updated_at)";
    refused(
        &mut app,
        &format!("insert into store.thread {thread} values ('{nobody}', 'x', now(), now())"),
        "row-level security",
    )
    .await;
    let theirs: i64 = sqlx::query_scalar("select thread_no from store.thread where owner_id <> $1")
        .bind(&owner)
        .fetch_one(&mut server.db.connect().await)
        .await
        .unwrap();
    let below = format!(
        "insert into store.blob (thread_no, owner_id, ns, channel, version, t, b)
         values ({theirs}, '{owner}', '', 'x', '1', 't', '')"
    );
    refused(&mut app, &below, "foreign key").await;
    refused(&mut app, &format!("truncate {}", TABLES.join(", ")), "permission denied").await;
}

#[tokio::test]
async fn who_keeps_threads_cannot_touch_the_log_and_who_keeps_the_log_cannot_touch_threads() {
    let server = Server::start().await;
    fill(&server.api, "local").await;
    let owner = server.thread("t").await["owner_id"].as_str().unwrap().to_owned();
    let forced = "select count(*) from pg_class where oid in ('store.thread'::regclass, 'store.checkpoint'::regclass,
        'store.blob'::regclass, 'store.pending_write'::regclass) and relrowsecurity and relforcerowsecurity";
    assert_eq!(server.db.number(forced).await, 4);
    let mut app = as_role(&server.db, "runreel_app", Some(&owner)).await;
    for statement in [
        "update store.run_event set payload = '{}'",
        "delete from store.run_event",
        "truncate store.run_event",
        "insert into store.run_event select * from store.run_event",
        "update store.run set thread_id = 'x'",
        "delete from store.run",
    ] {
        refused(&mut app, statement, "permission denied").await;
    }
    for role in ["runreel_writer", "runreel_reader", "runreel_retention"] {
        let mut connection = as_role(&server.db, role, Some(&owner)).await;
        for table in TABLES {
            refused(&mut connection, &format!("delete from {table}"), "permission denied").await;
            refused(
                &mut connection,
                &format!("insert into {table} overriding system value select * from {table}"),
                "permission denied",
            )
            .await;
            if table != "store.thread" || role == "runreel_reader" {
                refused(&mut connection, &format!("select * from {table}"), "permission denied").await;
            }
        }
    }
}
