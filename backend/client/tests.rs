//! The client against a scripted server on a real socket.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use serde_json::json;

use self::fake::{Answer, Fake, RUN, sample_run};
use super::{Client, Follow, Kind, Notice, pace::Pace};
use crate::{domain::id::Title, wire::runs::CreateRun};

mod emitting;
mod fake;
mod following;

/// Records every wait instead of waiting; jitter is always the largest.
#[derive(Default)]
struct Noted(Mutex<Vec<Duration>>);

impl Pace for Noted {
    fn jitter(&self) -> f64 {
        1.0
    }

    fn wait(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.0.lock().unwrap().push(duration);
        Box::pin(std::future::ready(()))
    }
}

impl Noted {
    fn waits_ms(&self) -> Vec<u128> {
        self.0.lock().unwrap().iter().map(Duration::as_millis).collect()
    }
}

fn client_of(fake: &Fake) -> (Client, Arc<Noted>) {
    let noted = Arc::new(Noted::default());
    let client = Client::new(&fake.url, Some("rr_secret".to_owned())).unwrap();
    (Client { pace: Arc::<Noted>::clone(&noted), ..client }, noted)
}

/// All notices of a follower, abbreviated, until it ends.
async fn story(follow: &mut Follow) -> Vec<String> {
    let mut story = Vec::new();
    while let Some(notice) = follow.next().await {
        story.push(match notice {
            Ok(Notice::Connected) => "connected".to_owned(),
            Ok(Notice::Lost { .. }) => "lost".to_owned(),
            Ok(Notice::Frame(frame)) => format!("{}#{}", frame.event, frame.id.as_deref().unwrap_or("-")),
            Err(error) => format!("{:?}: {error}", error.kind),
        });
    }
    story
}

#[tokio::test]
async fn a_refusal_keeps_the_members_of_the_problem() {
    let problem = json!({"type": "about:blank", "title": "Conflict", "status": 409, "code": "run_exists",
        "detail": "this run exists with other content", "hint": "choose another run_id", "field": "run_id"});
    let mut fake = Fake::start([Answer::problem(409, "Conflict", &problem)]).await;
    let error = client_of(&fake)
        .0
        .create_run(&CreateRun { title: Some(Title::trusted("x")), ..CreateRun::default() })
        .await
        .unwrap_err();
    assert_eq!((error.kind, error.status), (Kind::Invalid, Some(409)));
    assert_eq!(error.code.as_deref(), Some("run_exists"));
    assert_eq!(error.hint.as_deref(), Some("choose another run_id"));
    assert_eq!(error.field.as_deref(), Some("run_id"));
    assert_eq!(error.to_string(), "this run exists with other content");
    let request = fake.request().await;
    assert!(request.starts_with("POST /api/runs HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("authorization: Bearer rr_secret\r\n"), "{request}");
    let body: serde_json::Value = serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!((&body["title"], &body["agent"]), (&json!("x"), &json!(null)));
}

#[tokio::test]
async fn an_id_cannot_leave_its_place_in_the_path() {
    let page = json!({"events": [], "next_after": 7, "last_id": "7", "last_seq": 7, "has_more": false});
    let mut fake = Fake::start([Answer::json(&sample_run()), Answer::json(&page)]).await;
    let client = client_of(&fake).0;
    assert_eq!(client.run("../../readyz?x#y").await.unwrap().run_id.to_string(), RUN);
    assert!(fake.request().await.starts_with("GET /api/runs/..%2F..%2Freadyz%3Fx%23y HTTP/1.1\r\n"));
    client.events_page("r", &[("after", "7"), ("limit", "50")]).await.unwrap();
    assert!(fake.request().await.starts_with("GET /api/runs/r/events?after=7&limit=50 HTTP/1.1\r\n"));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable_and_not_ready() {
    let fake = Fake::start([]).await;
    let client = client_of(&fake).0;
    fake.stop().await;
    assert!(!client.ready().await);
    let error = client.run("r").await.unwrap_err();
    assert_eq!(error.kind, Kind::Unreachable);
    assert!(error.detail.starts_with(&format!("cannot reach {}: ", client.base_url())), "{error}");
    assert!(error.hint.is_some());
}

#[tokio::test]
async fn a_redirect_is_not_followed_because_the_token_was_not_meant_for_its_target() {
    let head = "HTTP/1.1 307 Temporary Redirect\r\nlocation: https://other.example/\r\n";
    let mut fake = Fake::start([Answer::Close(format!("{head}content-length: 0\r\n\r\n").into_bytes())]).await;
    let error = client_of(&fake).0.runs(&[]).await.unwrap_err();
    assert_eq!((error.kind, error.status), (Kind::Unexpected, Some(307)));
    assert!(error.hint.unwrap().contains("https://other.example/"));
    fake.request().await;
}

#[tokio::test]
async fn a_page_of_somebody_else_is_said_to_be_unexpected() {
    let fake = Fake::start([Answer::close("text/html", "<h1>hello</h1>")]).await;
    assert_eq!(client_of(&fake).0.runs(&[]).await.unwrap_err().kind, Kind::Unexpected);
}

#[test]
fn a_client_shows_its_token_to_nobody() {
    let client = Client::new("http://127.0.0.1:1/base/", Some(" rr_secret\n".to_owned())).unwrap();
    assert_eq!(client.base_url(), "http://127.0.0.1:1/base");
    assert_eq!(client.at(&["runs", "a b"]).as_str(), "http://127.0.0.1:1/base/api/runs/a%20b");
    let follow = client.follow("/api/stream/runs", None);
    let shown = format!("{client:?} {:?} {follow:?}", client.http);
    assert!(!shown.contains("rr_secret"), "{shown}");
}

#[test]
fn an_address_that_cannot_be_used_is_refused_without_repeating_it() {
    for address in ["", "127.0.0.1:7717", "ftp://h", "http://u:hunter2@h", "http://h?token=hunter2", "http://h#hunter2"]
    {
        let error = Client::new(address, None).unwrap_err();
        assert_eq!(error.kind, Kind::Unusable, "{address}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
    let error = Client::new("http://h", Some("hunter2\u{7f}".to_owned())).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}
