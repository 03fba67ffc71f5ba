//! What is meant to break a search does not.

use reqwest::Method;
use serde_json::{Value, json};

use super::{found, indexed};
use crate::support::{server::Server, threads::encoded};

#[tokio::test]
async fn no_query_is_an_error_of_the_server() {
    let server = Server::start().await;
    let run = server.create(json!({ "title": "it's a 'quoted' \\title & more" })).await;
    indexed(&server.db).await;
    for text in
        ["it's", "'quoted'", "\\title", "a & more", "quoted | absent*x", "!more", "<-> title", "more:*", "(title)"]
    {
        let reply = server.get(&format!("/api/runs?q={}", encoded(text))).await;
        assert_eq!(reply.status, 200, "{text}: {}", reply.text);
    }
    assert_eq!(found(&server, "it's 'quoted'").await, std::slice::from_ref(&run));
    assert_eq!(found(&server, "x'); drop table store.run; --").await, Vec::<String>::new());
    let huge = ["x".repeat(512), "é".repeat(512), "東".repeat(512), format!("{}*", "x".repeat(511))];
    for text in &huge {
        let reply = server.get(&format!("/api/runs?q={}", encoded(text))).await;
        assert!(reply.status == 200 || reply.status == 400, "{}", reply.text);
    }
    let words = (0..200).map(|n| format!("{n}")).collect::<Vec<_>>().join(" ");
    for text in ["*", "'", "\u{200b}", "😀", "a\nb", "a\0b", "ab*", &words, &"x".repeat(513), &"x".repeat(20_000)] {
        for path in ["/api/runs", "/api/runs/histogram", &format!("/api/runs/{run}/search")] {
            let reply = server.get(&format!("{path}?q={}", encoded(text))).await;
            assert_eq!(reply.status, 400, "{path} {}: {}", text.chars().take(20).collect::<String>(), reply.text);
        }
    }
    for raw in ["%ED%A0%80", "%ff", "%00", "%uD800", "%"] {
        for name in ["q", "model", "agent", "tag"] {
            let reply = server.get(&format!("/api/runs?{name}={raw}")).await;
            assert!(reply.status < 500, "{name}={raw}: {}", reply.text);
        }
    }
    for model in ["it's", "\\", "'", ":*", "a b", "x | y"] {
        assert_eq!(server.get(&format!("/api/runs?model={}", encoded(model))).await.status, 200, "{model}");
    }
    // Longer than the head of a request may be.
    let request = server.request(Method::GET, &format!("/api/runs?q={}", "x".repeat(100_000)));
    let refused = request.send().await.map_or(true, |response| response.status().is_client_error());
    assert!(refused);
}

#[tokio::test]
async fn no_payload_stops_the_index() {
    let server = Server::start().await;
    let run = server.start_run().await;
    let deep = format!("{}\"bottom\"{}", "[".repeat(64), "]".repeat(64));
    let base64: String = (0..60_000u32).map(|n| char::from(b"abcXYZ019+/"[(n * n % 11) as usize])).collect();
    let words = (0..6_000).map(|n| format!("w{n}")).collect::<Vec<_>>().join(" ");
    let payloads = [
        json!("x".repeat(60_000)),
        json!("é".repeat(30_000)),
        json!("東".repeat(20_000)),
        json!(words),
        json!(base64),
        json!({ "model": "it's \\ 'odd' | model" }),
        json!({ "model": "m".repeat(60_000) }),
        json!({ "model": "two\nlines" }),
        json!("' \\ : * & | ! < > ( ) \u{1}\u{7f}\u{200b}\u{202e}\u{feff}\u{1f468}\u{200d}\u{1f469}"),
        json!("\u{fb03} \u{130} \u{df} \u{1e9e} a\u{300}\u{301}\u{302}b"),
        json!(["", " ", null, true, 1e300, -0.0]),
        json!({ "": "" }),
    ];
    let events: Vec<Value> =
        payloads.into_iter().map(|payload| json!({ "type": "custom.odd", "payload": payload })).collect();
    server.emit(&run, json!(events)).await;
    for payload in
        [&deep, r#""\ud83d\ude00 pair\u00e9d""#, "1e400", "-123456789012345678901234567890.5E+7", r#""\\\"\/\b\f""#]
    {
        let event = format!("{{\"type\":\"custom.odd\",\"payload\":{payload}}}");
        assert_eq!(server.emit_text(&run, event).await.status, 200, "{payload}");
    }
    server.emit(&run, json!({ "type": "custom.odd", "payload": "the end" })).await;
    indexed(&server.db).await;
    for text in ["bottom", "pairéd", "1e400", "end", "w0", "w1999", "xxx*", "東東", "odd"] {
        assert_eq!(found(&server, text).await, std::slice::from_ref(&run), "{text}");
    }
    assert_eq!(found(&server, "w5999").await, Vec::<String>::new(), "an event has a bound on its words");
    let model = encoded("it's \\ 'odd' | model");
    assert_eq!(server.get(&format!("/api/runs?model={model}")).await.expect(200)["runs"].as_array().unwrap().len(), 1);
    let hits = server.get(&format!("/api/runs/{run}/search?q=xxx*")).await.expect(200);
    assert!(hits["hits"][0]["text"].as_str().unwrap().chars().count() <= 200);
}
