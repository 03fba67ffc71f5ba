//! Clients that resume in their own way: where they put the last id, and when they take it from a frame.

use crate::support::{
    api::{Api, stream_of},
    runs::seqs,
    shared::shared,
};

/// The seqs of what a stream sends up to its end.
async fn read(api: &Api, path: &str) -> Vec<i64> {
    let frames = api.stream(path).await.rest().await;
    let durable = frames.into_iter().filter(|frame| frame.id.is_some());
    seqs(&durable.map(|frame| frame.data).collect::<Vec<_>>())
}

#[tokio::test]
async fn a_client_that_cannot_set_the_header_sends_the_last_id_as_a_parameter() {
    let server = shared().await;
    let run = server.ended_run(4).await;
    let stream = stream_of(&run);
    let all = read(&server, &stream).await;
    let last = *all.last().unwrap();
    assert_eq!(read(&server, &format!("{stream}?lastEventId=3")).await, all[3..]);
    assert_eq!(read(&server, &format!("{stream}?lastEventId=&after=2")).await, all[2..], "it has seen none yet");
    server.no_stream(&format!("{stream}?lastEventId={last}"), None).await.expect(204);
    server.get(&format!("{stream}?lastEventId=x")).await.refused(400, "invalid_cursor");
    server.get(&format!("{stream}?lastEventId={}", last + 1)).await.refused(409, "cursor_ahead");
    // It reconnects to the address that it began with, and adds where it is.
    assert_eq!(read(&server, &format!("{stream}?after=1&tail=2&lastEventId=4")).await, all[4..]);
    let mut stream = server.stream_after(&format!("{stream}?after=1&lastEventId=2"), Some("5")).await;
    assert_eq!(stream.frame().await.unwrap().id.as_deref(), Some("6"));
}

#[tokio::test]
async fn a_client_that_takes_an_id_before_its_frame_is_whole_misses_nothing() {
    let server = shared().await;
    let run = server.ended_run(4).await;
    for path in [stream_of(&run), format!("{}?tree=true", stream_of(&run)), format!("{}?view=index", stream_of(&run))] {
        let mut stream = server.stream(&path).await;
        let all = stream.rest().await;
        let text = String::from_utf8(stream.bytes).unwrap();
        for cut in 0..text.len() {
            let read = &text[..cut];
            let data = read.lines().filter(|line| line.starts_with("data: ")).count();
            // Each line that has begun counts, as for a client that reads byte by byte.
            let ids = read.lines().filter(|line| line.starts_with("id: ")).count();
            assert!(ids <= data, "an id was sent before its event: {read}");
        }
        assert_eq!(text.matches("\nid: ").count(), all.iter().filter(|frame| frame.id.is_some()).count());
    }
}
