//! Streams: resuming, ending, waiting, decoding.

use super::*;

const END: &str = "event: stream.end\ndata: {\"status\":\"completed\",\"last_seq\":3}\n\n";

fn event(seq: i64) -> String {
    format!("id: {seq}\nevent: custom.x\ndata: {{\"seq\":{seq}}}\n\n")
}

#[tokio::test]
async fn after_a_cut_it_comes_back_with_the_last_id_and_the_original_query() {
    let first = format!("retry: 1000\n\n{}{}id: 3\nevent: custom.x\ndata: {{\"se", event(1), event(2));
    let second = format!("retry: 1000\n\n{}{END}", event(3));
    let mut fake = Fake::start([Answer::cut_stream(&first, 4_096), Answer::stream(&second)]).await;
    let (client, noted) = client_of(&fake);
    let mut follow = client.follow("/api/stream/runs/r?types=custom.*&tokens=false", None);
    let expected = ["connected", "custom.x#1", "custom.x#2", "lost", "connected", "custom.x#3", "stream.end#-"];
    assert_eq!(story(&mut follow).await, expected);
    assert_eq!(noted.waits_ms(), [1_250]);
    let (one, two) = (fake.request().await, fake.request().await);
    for request in [&one, &two] {
        assert!(request.starts_with("GET /api/stream/runs/r?types=custom.*&tokens=false HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("accept: text/event-stream\r\n"), "{request}");
    }
    assert!(!one.contains("last-event-id"), "{one}");
    assert!(two.contains("last-event-id: 2\r\n"), "{two}");
}

#[tokio::test]
async fn a_clean_close_without_the_end_is_a_cut_like_any_other() {
    let mut fake = Fake::start([Answer::stream(&event(8)), Answer::status("204 No Content", "")]).await;
    let mut follow = client_of(&fake).0.follow("/api/stream/runs/r", Some("7".to_owned()));
    assert_eq!(story(&mut follow).await, ["connected", "custom.x#8", "lost"]);
    assert_eq!(follow.cursor(), Some("8"));
    assert!(fake.request().await.contains("last-event-id: 7\r\n"));
    assert!(fake.request().await.contains("last-event-id: 8\r\n"));
}

#[tokio::test]
async fn no_seq_is_yielded_twice_whatever_the_server_repeats() {
    let again: String = [3, 4, 4, 1, 5].map(event).concat() + END;
    let mut fake = Fake::start([Answer::stream(&(event(3) + &event(4))), Answer::stream(&again)]).await;
    let mut follow = client_of(&fake).0.follow("/api/stream/runs/r", Some("2".to_owned()));
    let expected = ["connected", "custom.x#3", "custom.x#4", "lost", "connected", "custom.x#5", "stream.end#-"];
    assert_eq!(story(&mut follow).await, expected);
    assert_eq!(follow.cursor(), Some("5"));
    fake.request().await;
}

#[tokio::test]
async fn the_last_n_is_asked_for_once() {
    let mut fake = Fake::start([Answer::stream(&event(9)), Answer::stream(END)]).await;
    let mut follow = client_of(&fake).0.follow("/api/stream/runs/r?tail=1&types=custom.*", None);
    story(&mut follow).await;
    assert!(fake.request().await.starts_with("GET /api/stream/runs/r?tail=1&types=custom.* HTTP"));
    assert!(fake.request().await.starts_with("GET /api/stream/runs/r?types=custom.* HTTP"));
}

#[tokio::test]
async fn a_refusal_is_final_and_trouble_is_not() {
    let script = [
        Answer::status("503 Service Unavailable", "retry-after: 3\r\n"),
        Answer::status("429 Too Many Requests", ""),
        Answer::Close(Vec::new()),
        Answer::problem(404, "Not Found", &json!({"code": "not_found", "detail": "no such run"})),
    ];
    let fake = Fake::start(script).await;
    let (client, noted) = client_of(&fake);
    let mut follow = client.follow("/api/stream/runs/r", None);
    assert_eq!(story(&mut follow).await, ["lost", "lost", "lost", "NotFound: there is no run r of yours"]);
    assert_eq!(noted.waits_ms(), [3_250, 500, 1_000]);
}

#[tokio::test]
async fn a_page_instead_of_a_stream_is_final() {
    let fake = Fake::start([Answer::close("text/html", "<h1>")]).await;
    let mut follow = client_of(&fake).0.follow("/api/stream/runs/r", None);
    assert_eq!(follow.next().await.unwrap().unwrap_err().kind, Kind::Unexpected);
    assert!(follow.next().await.is_none());
}

#[tokio::test]
async fn a_server_that_sends_its_readers_away_says_when_to_come_back_and_only_once() {
    for (event, reason) in
        [("draining", "the server is shutting down"), ("reset", "the server's database went back to an earlier state")]
    {
        let away = format!("event: stream.{event}\ndata: {{\"retry_ms\":4000}}\n\n");
        let fake = Fake::start([Answer::stream(&away), Answer::Close(Vec::new()), Answer::stream(END)]).await;
        let (client, noted) = client_of(&fake);
        let mut follow = client.follow("/api/stream/runs/r", None);
        follow.next().await;
        follow.next().await;
        let lost = follow.next().await.unwrap().unwrap();
        assert_eq!(lost, Notice::Lost { reason: reason.to_owned(), retry_in: Duration::from_millis(4_250) });
        story(&mut follow).await;
        assert_eq!(noted.waits_ms(), [4_250, 500]);
    }
}

/// The clock is paused while data flows and advances when only a timer is left to wait for.
#[tokio::test]
async fn silence_is_noticed_because_even_an_idle_server_pings() {
    let fake = Fake::start([Answer::held_stream(": ping\n\n"), Answer::stream(END)]).await;
    let mut follow = client_of(&fake).0.follow("/api/stream/runs/r", None);
    assert_eq!(follow.next().await, Some(Ok(Notice::Connected)));
    tokio::time::pause();
    let before = tokio::time::Instant::now();
    let Some(Ok(Notice::Lost { reason, .. })) = follow.next().await else { panic!("it still waits") };
    assert!(reason.starts_with("timed out"), "{reason}");
    assert!(before.elapsed() >= super::super::SILENCE_MAX);
    tokio::time::resume();
    assert_eq!(story(&mut follow).await, ["connected", "stream.end#-"]);
}

#[tokio::test]
async fn frames_survive_every_line_end_and_every_split() {
    let body = "\u{feff}retry: 5\n\n: ping\n\nid: 1\nevent: a.b\ndata: {\"text\":\"héß 漢 😀 \u{2028}\"}\n\n\
        event: message.delta\ndata: {}\n\nid: p1-2\nevent: c.d\ndata:x\ndata: y\n\nid\ndata: z\n\n";
    for line_end in ["\n", "\r\n", "\r"] {
        for chunk_bytes in [1, 2, 3, 7, 4_096] {
            let script = [Answer::cut_stream(&body.replace('\n', line_end), chunk_bytes), Answer::stream(END)];
            let mut fake = Fake::start(script).await;
            let mut follow = client_of(&fake).0.follow("/api/stream/runs", None);
            let mut frames = Vec::new();
            while let Some(notice) = follow.next().await {
                if let Notice::Frame(frame) = notice.unwrap() {
                    frames.push((frame.id, frame.event, frame.data));
                }
            }
            let expected = [
                (Some("1"), "a.b", "{\"text\":\"héß 漢 😀 \u{2028}\"}"),
                (None, "message.delta", "{}"),
                (Some("p1-2"), "c.d", "x\ny"),
                (Some(""), "message", "z"),
                (None, "stream.end", "{\"status\":\"completed\",\"last_seq\":3}"),
            ];
            let expected = expected.map(|(id, event, data)| (id.map(str::to_owned), event.to_owned(), data.to_owned()));
            assert_eq!(frames, expected, "{line_end:?} {chunk_bytes}");
            fake.request().await;
            let resumed = fake.request().await;
            assert!(!resumed.contains("last-event-id"), "an empty id takes the cursor away: {resumed}");
        }
    }
}

#[tokio::test]
async fn a_frame_without_an_end_does_not_eat_the_memory() {
    let endless = format!("data: {}", "x".repeat(33 * 1024 * 1024));
    let fake = Fake::start([Answer::stream(&endless), Answer::stream(END)]).await;
    let mut follow = client_of(&fake).0.follow("/api/stream/runs/r", None);
    assert_eq!(follow.next().await, Some(Ok(Notice::Connected)));
    let Some(Ok(Notice::Lost { reason, .. })) = follow.next().await else { panic!("it was taken") };
    assert!(reason.contains("larger than"), "{reason}");
}

#[tokio::test]
async fn a_wait_for_the_next_notice_can_be_given_up_and_taken_up_again() {
    let mut fake = Fake::start([Answer::stream(&(event(1) + END))]).await;
    let mut follow = client_of(&fake).0.follow("/api/stream/runs/r", None);
    let mut story = Vec::new();
    // Every poll but the last is dropped with its future.
    loop {
        let notice = tokio::select! {
            biased;
            notice = follow.next() => notice,
            () = tokio::task::yield_now() => continue,
        };
        match notice {
            Some(notice) => story.push(notice.unwrap()),
            None => break,
        }
    }
    assert_eq!(story.len(), 3, "{story:?}");
    fake.request().await;
}
