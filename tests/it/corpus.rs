//! Awkward input, systematically: JSON texts by the grammar of RFC 8259, and strings that break programs in every field
//! that takes one. Each is refused with a 4xx that says why, or comes back exactly as it was sent.

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use crate::support::{api::Reply, server::Server, threads::encoded};

/// Values of the grammar, which come back byte for byte (`null` alone is no payload: it is `{}`).
const VALID: &str = r#"0 -0 1 -1 10 1.0 0.1 -0.10 1e0 1E0 1e+0 1e-0 1E+2 0e1 0e-1 20e1 123.456e78 -123.456E-78
9007199254740993 18446744073709551616 0.30000000000000004 1e308 true false "" [] {} [[],{}] [null,1,"1",true] {"":0}
{"a":{"a":{}}} {"b":1,"a":2} {"\u0061":1,"\"":2} "\"\\\/\b\f\n\r\t" "\u0041\u00e9\u2028" "\ud83d\ude00" "\uD83D\uDE00"
"\u001f\u007f" "</script>" "data:""#;

/// Texts that it does not have.
const INVALID: &str = r#"01 - -01 +1 .5 1. -.5 1.e1 1e 1e+ 1eE2 0x1 0b1 1_000 --1 1-1 Infinity -Infinity NaN nan undefined
truE True tru nul None 'a' " "a a" "\" "\x41" "\u12" "\u{41}" "\a" "\U00000041" [ ] [1 [1, [1,] [,1] [1,,2] [1;2] (1) { } {]
[} {a:1} {1:1} {"a"} {"a":} {"a":1,} {,} {"a"=1} {'a':1} {"a":1,,"b":2} /**/1 1//x 1#x 1] "a"b [][] {}{} * $ 1;"#;

/// The same, byte by byte: white space that is none, missing commas, and what is not UTF-8 in its shortest form.
const INVALID_BYTES: [&[u8]; 20] = [
    b"",
    b"1 2",
    b"[1 2]",
    b"{\"a\":1 \"b\":2}",
    b"{\"a\" 1}",
    b"\xc2\xa01",
    b"\xef\xbb\xbf1",
    b"\x0c1",
    b"\x0b1",
    b"\xe2\x80\xa81",
    b"\xff\xfe\"\x00",
    b"\"\xff\"",
    b"\"\x80\"",
    b"\"\xc0\xaf\"",
    b"\"\xe2\x28\xa1\"",
    b"\"\xed\xa0\x80\"",
    b"\"\xf4\x90\x80\x80\"",
    b"\"\xe9\"",
    b"\"\xc3\"",
    b"\"\xf0\x9f\x98\"",
];

/// Strings that have broken programs, by what they look like to something else.
const STRINGS: &str = "null NULL undefined NaN true 0 -1 1e3 0x10 {} [] \" ' ` \\ / .. . ../../etc/passwd C:\\CON a/b a%2fb %00
%s%n {{7*7}} ${x} $(id) `id` ; | & -rf --help * ? # a&b=c a+b '; -- $1 <script>alert(1)</script> <img/src=x/onerror=alert(1)>
javascript:alert(1) &lt; ]]> <!-- id: retry: : __proto__ constructor stream.end run.completed last me 9223372036854775808
00000000-0000-0000-0000-000000000000";

/// The same by their letters: blank ones, ends of lines, controls, formats, letters that change with their case.
const LETTERS: &str = "|\u{20}|  a  |\t|\n|a\nb|a\r\nb|\r|\0|a\0b|\u{1b}[2J|\u{7f}|\u{85}|\u{a0}|\u{ad}|\u{200b}|\u{200e}|\u{202e}gnp|\
    \u{2066}x|\u{2028}|\u{2029}|\u{feff}|\u{fffd}|\u{ffff}|\u{10ffff}|\u{e000}|\u{1f469}\u{200d}\u{1f680}|\u{130}\u{131}|\
    \u{df}\u{1e9e}|\u{fb01}|\u{3c2}\u{3a3}|\u{645}\u{631}\u{62d}\u{628}\u{627}|\u{e2a}\u{e33}|\u{6771}\u{4eac}|' or 1=1 --|\
    '; drop table store.run; --|data: x\n\nevent: stream.end\n\n|id: 7\n";

fn valid() -> Vec<String> {
    let mut texts: Vec<String> = VALID.split_whitespace().map(str::to_owned).collect();
    texts.extend(
        ["\u{7f}", "\u{e9}\u{2028}\u{2029}\u{feff}", "\u{fffd}\u{ffff}\u{10ffff}", "\u{1f469}\u{200d}\u{1f680}", "a b"]
            .map(|text| format!("\"{text}\"")),
    );
    texts.push(format!("\"{}\"", "e\u{301}".repeat(200)));
    texts.push(format!("[{}]", vec!["0"; 5_000].join(",")));
    texts.push(format!("{}{}", "[".repeat(64), "]".repeat(64)));
    texts
}

fn invalid() -> Vec<Vec<u8>> {
    let words = INVALID.split_whitespace().map(|text| text.as_bytes().to_vec());
    // Control characters must be escaped.
    let controls = (0..0x20).map(|byte| vec![b'"', byte, b'"']);
    words.chain(INVALID_BYTES.map(<[u8]>::to_vec)).chain(controls).collect()
}

fn strings() -> Vec<String> {
    let lengths = [64, 128, 129, 255, 256, 600, 5_000, 70_000].map(|length| "x".repeat(length));
    let wide = ["a\u{300}".repeat(60), "\u{6771}".repeat(255)];
    STRINGS.split_whitespace().chain(LETTERS.split('|')).map(str::to_owned).chain(lengths).chain(wide).collect()
}

/// A request with this text in one place.
type Make = fn(&str) -> Value;

#[derive(Deserialize)]
struct Event {
    payload: Box<RawValue>,
}

fn payloads<S: AsRef<str>>(events: &[S]) -> Vec<String> {
    let payload = |event: &S| serde_json::from_str::<Event>(event.as_ref()).unwrap().payload.get().to_owned();
    events.iter().map(payload).collect()
}

fn event(payload: &[u8]) -> Vec<u8> {
    [br#"{"type":"a.b","payload":"#, payload, b"}"].concat()
}

/// A refusal that somebody can act on.
#[track_caller]
fn assert_refused(reply: &Reply, of: &str) {
    assert!((400..500).contains(&reply.status), "{of}: {} {}", reply.status, reply.text);
    let problem = reply.json();
    for member in ["code", "title", "detail"] {
        assert!(problem[member].as_str().is_some_and(|text| !text.is_empty()), "{of}: {}", reply.text);
    }
}

#[tokio::test]
async fn every_value_of_the_grammar_is_the_same_bytes_in_a_page_as_ndjson_and_in_a_stream() {
    let server = Server::start().await;
    let run = server.start_run().await;
    let sent = valid();
    for text in &sent {
        let reply = server.emit_text(&run, event(text.as_bytes())).await;
        assert_eq!(reply.status, 200, "{text}: {}", reply.text);
    }
    server.complete(&run).await;
    let streamed = server.stream(&format!("/api/stream/runs/{run}")).await.until("stream.end").await;
    let streamed: Vec<String> =
        streamed.into_iter().filter(crate::support::sse::Frame::is_durable).map(|frame| frame.data).collect();
    for events in [server.events(&run).await, server.ndjson(&run).await, streamed] {
        assert_eq!(payloads(&events)[2..sent.len() + 2], sent);
    }
}

#[tokio::test]
async fn nothing_but_the_grammar_is_stored() {
    let server = Server::start().await;
    let run = server.start_run().await;
    for text in invalid() {
        let shown = String::from_utf8_lossy(&text).into_owned();
        assert_refused(&server.emit_text(&run, event(&text)).await, &shown);
        assert_refused(
            &server.post_text("/api/runs", "application/json", [b"{\"input\":", &*text, b"}"].concat()).await,
            &shown,
        );
    }
    assert_eq!(server.events(&run).await.len(), 2);
    assert_eq!(server.get("/api/runs").await.expect(200)["runs"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_string_in_any_field_of_a_run_is_kept_as_it_is_or_refused() {
    let server = Server::start().await;
    let fields: [(&str, usize, Make); 8] = [
        ("/title", 60, |text| json!({ "title": text })),
        ("/agent", 40, |text| json!({ "agent": text })),
        ("/thread_id", 20, |text| json!({ "thread_id": text })),
        ("/session_id", 40, |text| json!({ "session_id": text })),
        ("/external_id", 40, |text| json!({ "external_id": text })),
        ("/tags/0", 40, |text| json!({ "tags": [text] })),
        ("/metadata/a", 80, |text| json!({ "metadata": { "a": text } })),
        ("/input/a", 80, |text| json!({ "input": { "a": text } })),
    ];
    for (field, least, make) in fields {
        let mut kept = 0;
        for text in strings() {
            let reply = server.post("/api/runs", make(&text)).await;
            if reply.status >= 300 {
                assert_refused(&reply, &format!("{field} {text:?}"));
                continue;
            }
            let run = reply.json();
            let read = server.get(&format!("/api/runs/{}", run["run_id"].as_str().unwrap())).await.expect(200);
            assert_eq!(read.pointer(field), Some(&json!(text)), "{field}");
            kept += 1;
        }
        assert!(kept >= least, "{field} takes {kept}");
    }
}

#[tokio::test]
async fn a_string_in_any_field_of_an_event_is_kept_as_it_is_or_refused() {
    let server = Server::start().await;
    for (field, least) in [("span_id", 40), ("parent_span_id", 40), ("event_id", 40), ("type", 1), ("payload", 80)] {
        let run = server.start_run().await;
        let mut sent = Vec::new();
        // A payload that is larger becomes an artifact, and a run that has ended takes nothing.
        let usual = strings().into_iter().filter(|text| text.len() < 64 * 1024 && text != "run.completed");
        for text in usual.chain(["x.y".to_owned()]) {
            let mut event = json!({ "type": "a.b" });
            event[field] = json!(text);
            let reply = server.try_emit(&run, event).await;
            if reply.status == 200 {
                sent.push(json!(text));
            } else {
                assert_refused(&reply, &format!("{field} {text:?}"));
                assert_eq!(reply.status, 400, "{field} {text:?}: {}", reply.text);
            }
        }
        let read: Vec<Value> = server.events(&run).await[2..]
            .iter()
            .map(|event| serde_json::from_str::<Value>(event).unwrap()[field].take())
            .collect();
        assert_eq!(read, sent, "{field}");
        assert!(sent.len() >= least, "{field} takes {}", sent.len());
    }
}

#[tokio::test]
async fn a_string_in_a_path_a_query_or_a_cursor_is_never_an_error_of_the_server() {
    let server = Server::start().await;
    let run = server.start_run().await;
    let places: [&dyn Fn(&str) -> String; 14] = [
        &|text| format!("/api/runs/{text}"),
        &|text| format!("/api/runs/{text}/events"),
        &|text| format!("/api/runs/by-external-id/{text}"),
        &|text| format!("/api/threads/{text}"),
        &|text| format!("/api/threads/{text}/checkpoints"),
        &|text| format!("/api/artifacts/{text}"),
        &|text| format!("/api/stream/runs/{text}"),
        &|text| format!("/api/runs?cursor={text}"),
        &|text| format!("/api/runs?status={text}"),
        &|text| format!("/api/runs?limit={text}"),
        &|text| format!("/api/runs?external_id={text}"),
        &|text| format!("/api/artifacts?cursor={text}"),
        &|text| format!("/api/runs/{run}/events?after={text}"),
        &|text| format!("/api/runs/{run}/events?limit={text}"),
    ];
    for text in strings().into_iter().filter(|text| text.len() < 2_000) {
        for place in places {
            let path = place(&encoded(&text));
            let reply = server.get(&path).await;
            if reply.status != 200 {
                assert_refused(&reply, &path);
            }
        }
    }
    for text in strings().into_iter().filter(|text| text.len() < 2_000) {
        // The client itself refuses what would end a header.
        let Ok(value) = reqwest::header::HeaderValue::from_bytes(text.as_bytes()) else { continue };
        for path in [format!("/api/stream/runs/{run}"), "/api/stream/runs".to_owned()] {
            let request = server.request(reqwest::Method::GET, &path).header("last-event-id", value.clone());
            let status = request.send().await.unwrap().status().as_u16();
            assert!(status == 200 || (400..500).contains(&status), "{path} {text:?}: {status}");
        }
    }
}
