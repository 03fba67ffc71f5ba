//! Signals as `text/event-stream`, framed by hand: LF only, one line of data per frame.
//!
//! A lone frame of a run's stream is handed on as the shared bytes it is; several waiting ones are put together into
//! one chunk, so that a burst costs one write.

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::json;

use crate::{
    domain::{cursor::FeedCursor, limits::RETRY_MS},
    timeline::{follow::Signal, publish::OpenText},
};

/// Writes signals as frames. In a feed it counts the cursor that each frame's id tells.
#[derive(Debug)]
pub(super) struct Encoder {
    feed: Option<FeedCursor>,
    /// What this reader waits when it is sent away.
    pub(super) retry_ms: u64,
}

impl Encoder {
    pub(super) fn run() -> Self {
        Self { feed: None, retry_ms: RETRY_MS }
    }

    pub(super) fn feed(after: FeedCursor) -> Self {
        Self { feed: Some(after), retry_ms: RETRY_MS }
    }

    /// The first line of a stream.
    pub(super) fn opening() -> Bytes {
        Bytes::from(format!("retry: {RETRY_MS}\n\n"))
    }

    /// Says that the server is still there.
    pub(super) fn ping() -> Bytes {
        Bytes::from_static(b": ping\n\n")
    }

    /// One chunk for all of these.
    pub(super) fn chunk(&mut self, signals: &[Signal]) -> Bytes {
        if let ([Signal::Frame(frame)], None) = (signals, &self.feed) {
            return frame.block().clone();
        }
        let mut chunk = BytesMut::new();
        for signal in signals {
            self.write(&mut chunk, signal);
        }
        chunk.freeze()
    }

    fn write(&mut self, chunk: &mut BytesMut, signal: &Signal) {
        match signal {
            Signal::Frame(frame) => match (&mut self.feed, frame.place) {
                (Some(cursor), Some(place)) => {
                    cursor.advance(place.lane, place.position);
                    chunk.put_slice(format!("id: {cursor}\n").as_bytes());
                    chunk.put_slice(&frame.block_without_id());
                }
                _ => chunk.put_slice(frame.block()),
            },
            Signal::Snapshot(open) => control(chunk, "message.snapshot", &snapshot(open)),
            Signal::CaughtUp { last_seq, cursor } => {
                // What a feed passed over counts as seen: the ids that follow go on from there.
                if let (Some(own), Some(cursor)) = (&mut self.feed, cursor) {
                    own.clone_from(cursor);
                }
                let cursor = cursor.as_ref().map(ToString::to_string);
                control(chunk, "stream.caught_up", &json!({ "last_seq": last_seq, "cursor": cursor }));
            }
            Signal::Gap { requested_after, first_seq } => {
                let requested_after =
                    requested_after.parse::<i64>().map_or_else(|_| json!(requested_after), |seq| json!(seq));
                control(chunk, "stream.gap", &json!({ "requested_after": requested_after, "first_seq": first_seq }));
            }
            Signal::End { status, last_seq } => {
                control(chunk, "stream.end", &json!({ "status": status, "last_seq": last_seq }));
            }
            Signal::Draining => chunk.put_slice(&sent_away(self.retry_ms, "draining")),
        }
    }
}

/// All that a reader is told who is to come back later. `EventSource` knows the first line, other readers the frame.
pub(super) fn sent_away(retry_ms: u64, reason: &str) -> Bytes {
    let mut chunk = BytesMut::from(format!("retry: {retry_ms}\n").as_bytes());
    control(&mut chunk, "stream.draining", &json!({ "retry_ms": retry_ms, "reason": reason }));
    chunk.freeze()
}

fn snapshot(open: &OpenText) -> serde_json::Value {
    json!({
        "run_id": open.context.run_id, "span_id": open.span_id, "type": open.event_type,
        "role": open.context.role, "agent": open.context.agent, "text": open.text, "offset": open.chars,
    })
}

/// A frame that is not an event: it has no id, so no reader ever resumes from it.
fn control(chunk: &mut BytesMut, event: &str, data: &serde_json::Value) {
    chunk.put_slice(format!("event: {event}\ndata: {data}\n\n").as_bytes());
}
