//! Checkpoints: what is put comes back as it was, byte for byte.

mod lists;
mod names;
mod races;
mod refusals;
mod removal;
mod sizes;
mod writes;

use serde_json::{Value, json};

use crate::support::{
    runs::new_run_id,
    server::Server,
    shared::shared,
    threads::{blob, bytes_of, checkpoint_of, encoded, state, state_with, value, write, writes_of},
};

#[tokio::test]
async fn a_checkpoint_reads_as_it_was_put() {
    let server = shared().await;
    let run = server.create(json!({ "thread_id": "t" })).await;
    let body = json!({
        "ns": "sub|1:a", "parent_id": "0", "run_id": run, "checkpoint": value(b"\x80state"),
        "metadata": { "source": "loop", "step": 1, "nested": { "é": [null, 1.5, true] } },
        "versions": { "messages": "00000003.0.17", "n": 2 },
        "blobs": { "messages": blob("00000003.0.17", b"hello"), "n": blob(2, b"") },
    });
    let told = server.try_checkpoint("t", "1", body.clone()).await.expect(201);
    let path = format!("{}?ns={}", checkpoint_of("t", "1"), encoded("sub|1:a"));
    let read = server.get(&path).await.expect(200);
    for (member, sent) in body.as_object().unwrap() {
        assert_eq!(&read[member], sent, "{member}");
    }
    assert_eq!((&read["thread_id"], &read["checkpoint_id"], &read["writes"]), (&json!("t"), &json!("1"), &json!([])));
    assert_eq!(read.as_object().unwrap().len(), 11, "{read}");
    let names = ["thread_id", "ns", "checkpoint_id", "parent_id", "run_id", "created_at"];
    let expected: Value = names.iter().map(|name| ((*name).to_owned(), read[*name].clone())).collect();
    assert_eq!(told, expected);
    server.get(&checkpoint_of("t", "1")).await.refused(404, "not_found");
    server.get(&format!("{path}&ns=")).await.refused(400, "invalid_request");
}

#[tokio::test]
async fn every_byte_comes_back_as_it_went() {
    let server = shared().await;
    let all: Vec<u8> = (0..=255).collect();
    let mut bodies =
        vec![Vec::new(), vec![0], all.clone(), [all.clone(), all].concat(), vec![b'\\'; 100], b"\\x00".to_vec()];
    // Something no compression makes smaller: a linear congruential generator.
    let mut seed = 1u32;
    bodies.push(
        std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            seed.to_be_bytes()[0]
        })
        .take(1024 * 1024)
        .collect(),
    );
    bodies.push(vec![0; 1024 * 1024]);
    for (n, bytes) in bodies.iter().enumerate() {
        let id = n.to_string();
        let more = json!({ "versions": { "c": n }, "blobs": { "c": blob(n, bytes) } });
        let mut body = state_with("", more);
        body["checkpoint"] = value(bytes);
        server.put_checkpoint("t", &id, body).await;
        let writes = json!({ "task_id": "a", "writes": [write(0, "c", bytes)] });
        assert_eq!(server.put_writes("t", &id, writes).await, 1);
        let read = server.checkpoint("t", &id).await;
        for found in [&read["checkpoint"], &read["blobs"]["c"], &read["writes"][0]] {
            assert!(bytes_of(found) == *bytes, "body {n} of {} bytes came back otherwise", bytes.len());
            assert_eq!(found["t"], "bytes");
        }
    }
}

#[tokio::test]
async fn a_value_may_have_any_type_and_no_bytes() {
    let server = shared().await;
    let longest = "t".repeat(64);
    for t in ["msgpack", "json", "pickle", "null", "a/b+c;d=e", "~", "'", longest.as_str()] {
        let body =
            json!({ "checkpoint": { "t": t }, "versions": { "c": 1 }, "blobs": { "c": { "version": 1, "t": t } } });
        server.put_checkpoint(&format!("t{}", t.len()), "1", body).await;
        let read = server.checkpoint(&format!("t{}", t.len()), "1").await;
        assert_eq!(read["checkpoint"], json!({ "t": t, "b": "" }));
        assert!(server.delete(&format!("/api/threads/t{}", t.len())).await.status == 204);
    }
    for bad in [
        json!({ "t": "" }),
        json!({ "t": "x".repeat(65) }),
        json!({ "t": 1 }),
        json!({}),
        json!(null),
        json!("YQ=="),
        json!([]),
        json!({ "t": "x", "b": null }),
        json!({ "t": "x", "b": 1 }),
        json!({ "t": "x", "b": "YQ" }),
        json!({ "t": "x", "b": "YQ=" }),
        json!({ "t": "x", "b": "YR==" }),
        json!({ "t": "x", "b": "YQ==\n" }),
        json!({ "t": "x", "b": " YQ==" }),
        json!({ "t": "x", "b": "Y-_=" }),
        json!({ "t": "x", "b": "====" }),
        json!({ "t": "x", "b": "é" }),
        json!({ "t": "x", "b": "YQ==", "c": 1 }),
    ] {
        server.try_checkpoint("t", "1", json!({ "checkpoint": bad })).await.refused(400, "invalid_request");
        let blobs = json!({ "c": with(&bad, json!({ "version": 1 })) });
        let body = state_with("x", json!({ "versions": { "c": 1 }, "blobs": blobs }));
        server.try_checkpoint("t", "1", body).await.refused(400, "invalid_request");
        let body = json!({ "task_id": "a", "writes": [with(&bad, json!({ "idx": 0, "channel": "c" }))] });
        server.put(&writes_of("t", "1"), body).await.refused(400, "invalid_request");
    }
    server.get("/api/threads/t").await.refused(404, "not_found");
}

/// The members of both, or what is no object as it is.
fn with(value: &Value, more: Value) -> Value {
    let (Value::Object(value), Value::Object(mut members)) = (value, more) else { return value.clone() };
    members.extend(value.clone());
    Value::Object(members)
}

#[tokio::test]
async fn a_value_of_a_version_is_stored_once_and_kept() {
    let server = Server::start().await;
    let put = async |id: &str, body: Value| server.put_checkpoint("t", id, state_with("x", body)).await;
    put("1", json!({ "versions": { "a": 1, "b": 1 }, "blobs": { "a": blob(1, b"first"), "b": blob(1, b"b") } })).await;
    // Later ones only name the version, or send it once more with other bytes.
    put("2", json!({ "versions": { "a": 1, "b": 2 }, "blobs": { "b": blob(2, b"bb") } })).await;
    put("3", json!({ "versions": { "a": 1 }, "blobs": { "a": blob(1, b"second") } })).await;
    put("1", json!({ "versions": { "a": 1 }, "blobs": { "a": blob(1, b"third") } })).await;
    // A version that nobody ever gave a value has none.
    put("4", json!({ "versions": { "a": 9, "c": "x" } })).await;
    // Another namespace and another thread have values of their own.
    put("1", json!({ "ns": "n", "versions": { "a": 1 }, "blobs": { "a": blob(1, b"elsewhere") } })).await;
    server.put_checkpoint("u", "1", state_with("x", json!({ "versions": { "a": 1 } }))).await;
    for (id, expected) in [
        ("1", json!({ "a": blob(1, b"first") })),
        ("2", json!({ "a": blob(1, b"first"), "b": blob(2, b"bb") })),
        ("3", json!({ "a": blob(1, b"first") })),
        ("4", json!({})),
        ("1?ns=n", json!({ "a": blob(1, b"elsewhere") })),
    ] {
        assert_eq!(server.checkpoint("t", id).await["blobs"], expected, "{id}");
    }
    assert_eq!(server.checkpoint("u", "1").await["blobs"], json!({}));
    assert_eq!(server.db.number("select count(*) from store.blob").await, 4);
}

#[tokio::test]
async fn the_same_id_again_replaces_the_checkpoint_and_keeps_what_was_written() {
    let server = Server::start().await;
    let (versions, blobs) = (json!({ "c": 1 }), json!({ "c": blob(1, b"c") }));
    let full = json!({ "parent_id": "0", "run_id": new_run_id(), "metadata": { "a": 1 }, "versions": versions,
        "blobs": blobs });
    server.try_checkpoint("t", "1", state_with("old", full)).await.expect(201);
    let writes = json!({ "task_id": "a", "writes": [write(0, "c", b"w")] });
    server.put_writes("t", "1", writes).await;
    server.try_checkpoint("t", "1", state("new")).await.expect(200);
    let read = server.checkpoint("t", "1").await;
    assert_eq!(read["checkpoint"], value(b"new"));
    for (member, gone) in [
        ("parent_id", json!(null)),
        ("run_id", json!(null)),
        ("metadata", json!({})),
        ("versions", json!({})),
        ("blobs", json!({})),
    ] {
        assert_eq!(read[member], gone, "{member}");
    }
    assert_eq!(read["writes"].as_array().unwrap().len(), 1);
    assert_eq!(server.db.number("select count(*) from store.checkpoint").await, 1);
}

#[tokio::test]
async fn the_run_of_a_checkpoint_is_the_one_it_names_or_its_metadata_does() {
    let server = shared().await;
    let (run, other) = (new_run_id(), new_run_id());
    for (id, more, expected) in [
        ("1", json!({ "run_id": run, "metadata": { "run_id": other } }), json!(run)),
        ("2", json!({ "metadata": { "run_id": other } }), json!(other)),
        ("3", json!({ "run_id": null, "metadata": { "run_id": other } }), json!(other)),
        ("4", json!({ "metadata": { "run_id": 5 } }), json!(null)),
        ("5", json!({ "metadata": { "run_id": null } }), json!(null)),
        ("6", json!({ "metadata": { "run_id": { "a": 1 } } }), json!(null)),
        ("7", json!({ "metadata": { "deep": { "run_id": run } } }), json!(null)),
    ] {
        assert_eq!(server.put_checkpoint("t", id, state_with("x", more)).await["run_id"], expected, "{id}");
        assert_eq!(server.checkpoint("t", id).await["run_id"], expected, "{id}");
    }
    for odd in [String::new(), "x".repeat(70_000), "a\nb".to_owned()] {
        let reply = server.try_checkpoint("t", "8", state_with("x", json!({ "metadata": { "run_id": odd } }))).await;
        assert!(matches!(reply.status, 200 | 201 | 400 | 413), "{:.200}", reply.text);
    }
}

#[tokio::test]
async fn metadata_is_kept_to_the_letter() {
    let server = shared().await;
    let metadata = r#"{"z":1.50,"a":1e3,"n":-0,"s":"\u00e9é\/","z":2,"deep":{"b":[1,{"y":null}],"a":true}}"#;
    let body = format!("{{\"checkpoint\":{},\"metadata\": {metadata} }}", value(b"x"));
    server.put_text(&checkpoint_of("t", "1"), body.clone()).await.expect(201);
    server.put_text("/api/threads/t", format!("{{ \"metadata\" : {metadata}}}")).await.expect(200);
    server.post("/api/threads/t/copy", json!({ "to": "copy" })).await.expect(201);
    for thread in ["t", "copy"] {
        for path in [
            checkpoint_of(thread, "1"),
            format!("/api/threads/{thread}"),
            "/api/checkpoints".to_owned(),
            "/api/threads".to_owned(),
        ] {
            let reply = server.get(&path).await;
            assert!(reply.text.contains(&format!("\"metadata\":{metadata}")), "{path}: {}", reply.text);
        }
    }
}
