use clap::Parser as _;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::{
    cli::fake::{Answer, Fake, RUN, sample_run},
    client::Client,
};

#[derive(Debug, clap::Parser)]
struct Command {
    #[command(flatten)]
    args: Args,
}

fn parse(words: &[&str]) -> Result<Args, clap::Error> {
    Command::try_parse_from(["emit"].iter().chain(words)).map(|command| command.args)
}

fn check(line: &str, expected: Result<Option<&str>, &str>) {
    let outcome = prepare(line.as_bytes(), "u-7");
    let outcome = outcome.as_ref().map(Option::as_deref).map_err(String::as_str);
    assert_eq!(outcome, expected, "{line}");
}

#[test]
fn a_line_gets_an_id_and_stays_as_it_was_otherwise() {
    check(
        " {\"type\": \"a.b\", \"payload\": {\"z\": 1.50, \"a\": 1e3}}\r",
        Ok(Some(r#"{"event_id":"u-7","type":"a.b","payload":{"z":1.50,"a":1e3}}"#)),
    );
    check(r#"{"type":"a.b","event_id":"mine"}"#, Ok(Some(r#"{"type":"a.b","event_id":"mine"}"#)));
    check(
        r#"{"type":"message.delta","span_id":"m","payload":{"text":"x"}}"#,
        Ok(Some(r#"{"event_id":"u-7","type":"message.delta","span_id":"m","payload":{"text":"x"}}"#)),
    );
    check(" \t\r", Ok(None));
}

#[test]
fn a_bad_line_says_what_is_wrong_with_it() {
    check("{\"type\":\"a.b\",}", Err("not valid JSON: key must be a string (column 15)"));
    check("{\"type\":\"a.b\"} {}", Err("not valid JSON: trailing characters (column 16)"));
    check("[1]", Err("an event is a JSON object such as {\"type\":\"log.info\",\"payload\":{\"message\":\"hello\"}}"));
    check("{}", Err("missing field `type`"));
    check(
        r#"{"type":"run"}"#,
        Err("an event type is dotted lower-case words (a-z 0-9 _), at least two, at most 96 bytes"),
    );
    check(
        r#"{"type":"run.created"}"#,
        Err("run.created: this type records a request of its own endpoint and cannot be emitted"),
    );
    check(r#"{"type":"a.b","payload":"\u0000"}"#, Err("the escape \\u0000 is not allowed in strings"));
    check(r#"{"type":"a.b","event_id":null}"#, Err("event_id is null; set it to a string or omit it"));
    check(
        r#"{"type":"a.delta","payload":{"text":"x"}}"#,
        Err("a delta needs the span_id of the message, reasoning or tool call it belongs to"),
    );
    assert_eq!(prepare(b"{\"type\":\"\xff\"}", "u-7"), Err("not valid UTF-8".to_owned()));
    assert!(prepare(br#"{"type":"a.b","at":"yesterday"}"#, "u-7").is_err());
}

#[test]
fn flags_become_one_event_and_one_run() {
    let words = [
        "--type",
        "tool.started",
        "--span",
        "c\"1",
        "--payload",
        "{\"b\": 1.0, \"a\": 2}",
        "--title",
        "T",
        "--tag",
        "x",
    ];
    let args = parse(&words).unwrap();
    assert_eq!(one_event(&args.one), r#"{"type":"tool.started","span_id":"c\"1","payload":{"b":1.0,"a":2}}"#);
    let sent = |new_run: NewRun| serde_json::to_value(CreateRun::from(new_run)).unwrap();
    let (named, bare) = (sent(args.new_run), sent(parse(&[]).unwrap().new_run));
    assert_eq!((&named["title"], &named["tags"], &named["agent"]), (&json!("T"), &json!(["x"]), &Value::Null));
    assert_eq!(bare, serde_json::to_value(CreateRun::default()).unwrap());
}

#[test]
fn what_cannot_mean_anything_is_refused_before_a_request() {
    const RUN: &str = "0198c0de-0000-7000-8000-000000000001";
    for words in [
        ["--payload", "{}"].as_slice(),
        &["--type", "a.b", "--payload", "{"],
        &["--type", "nodot"],
        &[RUN, "--title", "x"],
        &[RUN, "--run-id", RUN],
        &["--end", "cancelled"],
        &["--role", "king"],
        &["--token", "rr_secret"],
    ] {
        assert!(parse(words).is_err(), "{words:?}");
    }
    assert!(parse(&[RUN, "--type", "a.b", "--end", "failed"]).is_ok());
}

#[tokio::test]
async fn a_batch_is_what_waits_on_stdin() {
    let (sender, chunks) = mpsc::channel(16);
    let mut stdin = Stdin::of(chunks);
    for chunk in ["one\ntw", "o\n\nfour"] {
        sender.send(Ok(chunk.as_bytes().to_vec())).await.unwrap();
    }
    let texts = |batch: Option<Vec<stdin::NumberedLine>>| {
        batch.map(|lines| {
            lines.into_iter().map(|(n, line)| format!("{n}:{}", String::from_utf8(line).unwrap())).collect::<Vec<_>>()
        })
    };
    let expected = ["1:one", "2:two", "3:"].map(str::to_owned).to_vec();
    assert_eq!(texts(stdin.batch().await.unwrap()), Some(expected), "a line that is not complete waits");
    sender.send(Ok(b"!".to_vec())).await.unwrap();
    drop(sender);
    assert_eq!(texts(stdin.batch().await.unwrap()), Some(vec!["4:four!".to_owned()]));
    assert_eq!(texts(stdin.batch().await.unwrap()), None);
}

#[tokio::test]
async fn a_batch_and_a_line_have_bounds() {
    let (sender, chunks) = mpsc::channel(200);
    let mut stdin = Stdin::of(chunks);
    sender.send(Ok(b"x\n".repeat(1_200))).await.unwrap();
    for expected in [500, 500, 200] {
        assert_eq!(stdin.batch().await.unwrap().unwrap().len(), expected);
    }
    for _ in 0..3 {
        sender.send(Ok([vec![b'x'; 700_000], vec![b'\n']].concat())).await.unwrap();
    }
    assert_eq!(stdin.batch().await.unwrap().unwrap().len(), 2);
    assert_eq!(stdin.batch().await.unwrap().unwrap().len(), 1);
    for _ in 0..130 {
        sender.send(Ok(vec![b'x'; 65_536])).await.unwrap();
    }
    assert!(stdin.batch().await.unwrap_err().to_string().starts_with("line 1204 is longer than"));
}

fn sender_to(fake: &Fake) -> Sender {
    let client = Client::new(&fake.url, None).unwrap();
    Sender::new(client, Run::There("r".to_owned()), Uuid::nil(), Duration::from_secs(5), false, false)
}

fn lines(events: &[&str]) -> Vec<Line> {
    events.iter().zip(1..).map(|(event, number)| Line { number, event: (*event).to_owned() }).collect()
}

fn acknowledged(seqs: &[Option<i64>]) -> Answer {
    let events: Vec<Value> = seqs.iter().map(|seq| json!({"seq": seq, "event_id": "x", "duplicate": false})).collect();
    Answer::json(&json!({"first_seq": null, "last_seq": null, "events": events}))
}

#[tokio::test]
async fn a_batch_goes_out_as_lines_and_is_counted() {
    let mut fake = Fake::start([acknowledged(&[Some(3), None, Some(4)])]).await;
    let mut sender = sender_to(&fake);
    sender.send(lines(&["one", "two", "three"])).await.unwrap();
    assert!(fake.request().await.ends_with("\r\n\r\none\ntwo\nthree\n"));
    assert_eq!(sender.summary(), "2 events stored (seq 3 to 4), 1 streamed only");
}

#[tokio::test]
async fn a_refused_batch_stores_what_comes_before_the_bad_event_and_names_its_line() {
    let refusal = || Answer::problem(400, "Bad Request", &json!({"detail": "too odd", "code": "invalid_event"}));
    let mut fake = Fake::start([refusal(), acknowledged(&[Some(3)]), refusal()]).await;
    let mut sender = sender_to(&fake);
    let error = sender.send(lines(&["good", "bad", "never"])).await.unwrap_err();
    assert_eq!(error.to_string(), "line 2: too odd");
    assert_eq!(sender.summary(), "1 event stored (seq 3), 1 rejected");
    for body in ["good\nbad\nnever\n", "good\n", "bad\n"] {
        assert!(fake.request().await.ends_with(&format!("\r\n\r\n{body}")));
    }
}

#[tokio::test]
async fn what_concerns_the_run_is_not_blamed_on_a_line() {
    let ended = Answer::problem(409, "Conflict", &json!({"detail": "the run has ended", "code": "run_ended"}));
    let fake = Fake::start([ended]).await;
    let error = sender_to(&fake).send(lines(&["one", "two"])).await.unwrap_err();
    assert_eq!(error.to_string(), "the run has ended");
}

#[tokio::test]
async fn a_run_is_created_with_its_first_good_event() {
    let created = Answer::json(&sample_run());
    let mut fake = Fake::start([created, acknowledged(&[Some(3)])]).await;
    let client = Client::new(&fake.url, None).unwrap();
    let new = Run::New(Box::default());
    let mut sender = Sender::new(client, new, Uuid::nil(), Duration::from_secs(5), true, false);
    sender.refuse(1, "not JSON").unwrap();
    sender.send(Vec::new()).await.unwrap();
    assert!(sender.is_without_run() && sender.created().is_none());
    sender.send(lines(&["one"])).await.unwrap();
    assert_eq!(sender.created(), Some(RUN));
    assert!(fake.request().await.starts_with("POST /api/runs HTTP/1.1\r\n"));
    assert!(fake.request().await.starts_with(&format!("POST /api/runs/{RUN}/events HTTP/1.1\r\n")));
}
