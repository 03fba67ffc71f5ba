//! How things are called: namespaces, checkpoints, channels, versions, and how long a name may be.

use serde_json::{Value, json};

use crate::support::{
    server::Server,
    shared::shared,
    threads::{blob, bytes_of, checkpoint_of, encoded, encoded_throughout, state, state_with, value, write, writes_of},
};

#[tokio::test]
async fn a_version_is_a_number_in_its_spelling_or_a_string() {
    let server = shared().await;
    let longest = format!("\"{}\"", "v".repeat(128));
    // 1 and "1" are two, and so are 1 and 1.0.
    let versions = [
        "1",
        "0",
        "-1",
        "-0",
        "1.0",
        "1.50",
        "1e3",
        "1E+3",
        "1e400",
        "12345678901234567890123456789",
        "\"1\"",
        "\"\"",
        "\" \"",
        "\"1.0\"",
        "\"00000003.0.17\"",
        "\"é😀\"",
        "\"a\\\"b\\\\c\"",
        "\"null\"",
        "\"'\"",
        longest.as_str(),
    ];
    for (n, version) in versions.iter().enumerate() {
        let (id, b) = (format!("{n:02}"), value(version.as_bytes()));
        let blobs = format!(r#"{{"c":{{"version":{version},"t":"x","b":{}}}}}"#, b["b"]);
        let body = format!(r#"{{"checkpoint":{b},"versions":{{"c":{version}}},"blobs":{blobs}}}"#);
        let reply = server.put_text(&checkpoint_of("t", &id), body).await;
        assert_eq!(reply.status, 201, "{version}: {}", reply.text);
    }
    for (n, version) in versions.iter().enumerate() {
        let reply = server.get(&checkpoint_of("t", &format!("{n:02}"))).await;
        assert!(reply.text.contains(&format!(r#""versions":{{"c":{version}}}"#)), "{version}: {}", reply.text);
        let b = &value(version.as_bytes())["b"];
        let blobs = format!(r#""blobs":{{"c":{{"version":{version},"t":"x","b":{b}}}}}"#);
        assert!(reply.text.contains(&blobs), "{version} has the value of another version: {}", reply.text);
    }
    // A string is what it says, however it is written.
    let body = format!(r#"{{"checkpoint":{},"versions":{{"\u0063":"\u0031"}}}}"#, value(b"x"));
    server.put_text(&checkpoint_of("t", "escaped"), body).await.expect(201);
    assert_eq!(bytes_of(&server.checkpoint("t", "escaped").await["blobs"]["c"]), b"\"1\"");
    let too_long = format!("\"{}\"", "v".repeat(129));
    for bad in ["null", "true", "[]", "{}", "\"\\u0000\"", "\"\\ud800\"", "01", "NaN", "\"a\\nb\"", too_long.as_str()] {
        let body = format!(r#"{{"checkpoint":{},"versions":{{"c":{bad}}}}}"#, value(b"x"));
        server.put_text(&checkpoint_of("t", "bad"), body).await.refused(400, "invalid_request");
    }
}

#[tokio::test]
async fn a_channel_may_have_any_name_that_is_one_line() {
    let server = shared().await;
    let names = [
        "messages",
        "__start__",
        "branch:to:x",
        "a\"b",
        "a\\b",
        "\\u0041",
        "'",
        "é",
        "e\u{301}",
        "日本",
        "😀",
        " ",
        "a/b",
        "$1",
        "%s",
        "null",
        "0",
        "constructor",
        "__proto__",
        "A",
        "a",
    ];
    let versions: serde_json::Map<String, Value> = names.iter().map(|name| ((*name).to_owned(), json!(1))).collect();
    let blobs: serde_json::Map<String, Value> =
        names.iter().map(|name| ((*name).to_owned(), blob(1, name.as_bytes()))).collect();
    server.put_checkpoint("t", "1", state_with("x", json!({ "versions": versions, "blobs": blobs }))).await;
    let read = server.checkpoint("t", "1").await;
    assert_eq!((&read["versions"], &read["blobs"]), (&json!(versions), &json!(blobs)));
    for (idx, name) in names.iter().enumerate() {
        let body = json!({ "task_id": name, "task_path": name, "writes": [write(idx as i64, name, b"w")] });
        assert_eq!(server.put_writes("t", "1", body).await, 1, "{name}");
    }
    let read = server.checkpoint("t", "1").await;
    for write in read["writes"].as_array().unwrap() {
        assert_eq!(write["channel"], names[usize::try_from(write["idx"].as_i64().unwrap()).unwrap()]);
        assert_eq!((&write["task_id"], &write["task_path"]), (&write["channel"], &write["channel"]));
    }
    assert_eq!(read["writes"].as_array().unwrap().len(), names.len());
}

#[tokio::test]
async fn a_namespace_that_is_absent_is_the_empty_one() {
    let server = shared().await;
    server.try_checkpoint("t", "1", state_with("root", json!({ "ns": "" }))).await.expect(201);
    server.try_checkpoint("t", "1", state("root again")).await.expect(200);
    let longest = "n".repeat(1_024);
    for (n, ns) in ["a", "a|b", "a:1|b:2", "A", "é", "日本|😀", " ", "%", "a b", "..", "/", "''", "null", &longest]
        .iter()
        .enumerate()
    {
        let text = n.to_string();
        server.try_checkpoint("t", "1", state_with(&text, json!({ "ns": ns }))).await.expect(201);
        for path in [
            format!("{}?ns={}", checkpoint_of("t", "1"), encoded(ns)),
            format!("/api/threads/t/checkpoints/latest?ns={}", encoded(ns)),
        ] {
            let read = server.get(&path).await.expect(200);
            assert_eq!((&read["ns"], &read["checkpoint"]), (&json!(ns), &value(text.as_bytes())), "{ns}");
        }
        let list = server.get(&format!("/api/threads/t/checkpoints?ns={}", encoded(ns))).await.expect(200);
        assert_eq!(list["checkpoints"].as_array().unwrap().len(), 1, "{ns}");
    }
    assert_eq!(server.checkpoint("t", "1").await["checkpoint"], value(b"root again"));
    assert_eq!(server.checkpoint("t", "1?ns=").await["checkpoint"], value(b"root again"));
    for bad in [json!("n".repeat(1_025)), json!("a\nb"), json!("\u{0}"), json!(1), json!(["a"])] {
        server.try_checkpoint("t", "2", state_with("x", json!({ "ns": bad }))).await.refused(400, "invalid_request");
    }
}

#[tokio::test]
async fn names_may_be_as_long_as_their_bounds_and_no_longer() {
    let server = shared().await;
    // Text that follows no pattern, so that no compression makes it shorter.
    let mut seed = 7u32;
    let mut text = |bytes: usize| -> String {
        let next = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(b'!' + u8::try_from((seed >> 16) % 94).unwrap())
        });
        next.take(bytes).collect()
    };
    let (ns, channel, version, task, path) = (text(1_024), text(512), text(128), text(128), text(1_024));
    let id = "~".repeat(128);
    let body = |ns: &str, channel: &str, version: &str| {
        let versions = json!({ channel: version });
        json!({ "ns": ns, "checkpoint": value(b"x"), "versions": versions, "blobs": { channel: blob(version, b"b") } })
    };
    let writes = |ns: &str, task: &str, path: &str| {
        let writes = [write(0, &channel, b"w")];
        json!({ "ns": ns, "task_id": task, "task_path": path, "writes": writes })
    };
    server.try_checkpoint("t", &id, body(&ns, &channel, &version)).await.expect(201);
    assert_eq!(server.put_writes("t", &id, writes(&ns, &task, &path)).await, 1);
    let read = server.get(&format!("{}?ns={}", checkpoint_of("t", &id), encoded(&ns))).await.expect(200);
    assert_eq!(bytes_of(&read["blobs"][&channel]), b"b");
    assert_eq!((&read["writes"][0]["task_id"], &read["writes"][0]["task_path"]), (&json!(task), &json!(path)));
    // Bytes are what counts: 1024 of them are 512 times é.
    server.try_checkpoint("t", "1", body(&"é".repeat(512), &"é".repeat(256), &"é".repeat(64))).await.expect(201);
    for (ns, channel, version) in [
        ("é".repeat(513), "c".to_owned(), "v".to_owned()),
        (String::new(), "é".repeat(257), "v".to_owned()),
        (String::new(), "c".to_owned(), "é".repeat(65)),
    ] {
        server.try_checkpoint("t", "2", body(&ns, &channel, &version)).await.refused(400, "invalid_request");
    }
    for (task, path) in [("é".repeat(65), String::new()), ("a".to_owned(), "é".repeat(513))] {
        server.put(&writes_of("t", "2"), writes("", &task, &path)).await.refused(400, "invalid_request");
    }
}

#[tokio::test]
async fn what_is_a_checkpoint_id_comes_back_and_what_is_none_is_refused() {
    let server = shared().await;
    let longest = "i".repeat(128);
    let every: String = ('!'..='~').collect();
    for id in [
        every.as_str(),
        longest.as_str(),
        ".",
        "..",
        "a/b",
        "%2F",
        "?",
        "#",
        "\\",
        "\"",
        "'",
        "<script>",
        "a;b",
        "writes",
        "delete-for-runs",
    ] {
        let coded = encoded_throughout(id);
        let (status, text) = server
            .raw("PUT", &checkpoint_of("t", &coded), &state_with(id, json!({ "parent_id": id })).to_string())
            .await;
        assert_eq!(status, 201, "{id}: {text}");
        let (status, text) = server.raw("GET", &checkpoint_of("t", &coded), "").await;
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((status, &read["checkpoint_id"], &read["parent_id"]), (200, &json!(id), &json!(id)));
        assert_eq!(read["checkpoint"], value(id.as_bytes()));
    }
    for id in ["%20", "a%20b", "%C3%A9", "%00", "%7F", "%0A", "%FF", &"i".repeat(129)] {
        for (method, rest, body) in [
            ("GET", "", String::new()),
            ("PUT", "", state("x").to_string()),
            ("PUT", "/writes", r#"{"task_id":"a","writes":[]}"#.to_owned()),
        ] {
            let (status, text) = server.raw(method, &format!("{}{rest}", checkpoint_of("t", id)), &body).await;
            assert!(matches!(status, 400 | 404), "{method} {id}: {status} {text}");
        }
    }
    for parent in [json!(""), json!("a b"), json!("é"), json!("i".repeat(129)), json!(1), json!({})] {
        server
            .try_checkpoint("t", "1", state_with("x", json!({ "parent_id": parent })))
            .await
            .refused(400, "invalid_request");
    }
}

#[tokio::test]
async fn a_checkpoint_that_could_never_be_read_is_not_taken() {
    let server = Server::start().await;
    let reply = server.try_checkpoint("t", "latest", state("shadowed")).await;
    if matches!(reply.status, 200 | 201) {
        server.put_checkpoint("t", "z", state("newest")).await;
        assert_eq!(
            server.checkpoint("t", "latest").await["checkpoint"],
            value(b"shadowed"),
            "it was taken and cannot be read"
        );
    } else {
        assert!(matches!(reply.status, 400 | 404 | 405), "{}", reply.text);
        assert_eq!(server.db.number("select count(*) from store.checkpoint").await, 0);
    }
}
