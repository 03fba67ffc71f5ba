//! Stream items as `text/event-stream`, framed by hand: LF only, one line of data per frame, and the id after it.
//!
//! A single frame of a run's stream is passed on as the shared bytes it is; several waiting ones are combined into
//! chunks, so that a burst costs one write and a reader that is not reading holds no more than a chunk. A long text is
//! read as it is written.

use std::vec;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use serde_json::json;

use super::Encoder;
use crate::{
    bus::{Frame, Stall},
    domain::{
        cursor::FeedCursor,
        limits::{RETRY_MS, STREAM_CHUNK_BYTES},
        splice::ReadPosition,
    },
    timeline::{follow::StreamItem, open::OpenText},
    wire::frames::{StreamEnd, StreamGap},
};

/// Writes stream items as frames, a chunk at a time. In a feed it advances the cursor that is each frame's id.
pub struct Sse {
    feed: Option<FeedCursor>,
    waiting: vec::IntoIter<StreamItem>,
    /// The snapshot whose text is being written: what is left of the text, and what follows it.
    text: Option<(Box<dyn Iterator<Item = String> + Send>, String)>,
    /// How long this reader has to wait before it reconnects.
    retry_ms: u64,
    /// Whether durable events are sent without their payloads.
    is_index: bool,
    /// Prefix of each frame's event: a subscription's name on a connection of many.
    prefix: String,
}

impl Sse {
    /// For a stream that begins at this position, and whose reader waits this long before it reconnects.
    pub fn at(position: &ReadPosition, retry_ms: u64) -> Self {
        let feed = match position {
            ReadPosition::Run(_) => None,
            ReadPosition::Feed(cursor) => Some(cursor.clone()),
        };
        Self { feed, waiting: Vec::new().into_iter(), text: None, retry_ms, is_index: false, prefix: String::new() }
    }

    /// Whether durable events are sent as rows of an index.
    #[must_use]
    pub fn index(self, is_index: bool) -> Self {
        Self { is_index, ..self }
    }

    /// For one subscription of many on a connection.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { prefix: format!("{name}/"), ..self }
    }
}

impl Encoder for Sse {
    fn opening(&self) -> Bytes {
        opening()
    }

    fn ping(&self) -> Bytes {
        ping()
    }

    fn take(&mut self, signals: Vec<StreamItem>) {
        debug_assert!(self.waiting.len() == 0 && self.text.is_none(), "nothing is passed over");
        self.waiting = signals.into_iter();
    }

    fn chunk(&mut self) -> Option<Bytes> {
        let is_plain = !self.is_index && self.prefix.is_empty();
        if let ([StreamItem::Frame(frame)], None, None, true) =
            (self.waiting.as_slice(), &self.feed, &self.text, is_plain)
        {
            let block = frame.block().clone();
            self.waiting = Vec::new().into_iter();
            return Some(block);
        }
        let mut chunk = BytesMut::new();
        while chunk.len() < STREAM_CHUNK_BYTES {
            match &mut self.text {
                Some((pieces, end)) => {
                    if let Some(piece) = pieces.next() {
                        put_escaped(&mut chunk, &piece);
                    } else {
                        chunk.put_slice(end.as_bytes());
                        self.text = None;
                    }
                }
                None => match self.waiting.next() {
                    Some(signal) => self.write(&mut chunk, &signal),
                    None => break,
                },
            }
        }
        (!chunk.is_empty()).then(|| chunk.freeze())
    }
}

impl Sse {
    fn write(&mut self, chunk: &mut BytesMut, signal: &StreamItem) {
        match signal {
            StreamItem::Frame(frame) => self.write_frame(chunk, frame),
            StreamItem::Snapshot(open) => self.begin_snapshot(chunk, open),
            StreamItem::CaughtUp { last_seq, cursor } => {
                // What a feed skipped counts as seen: the following ids continue from there.
                if let (Some(own), Some(cursor)) = (&mut self.feed, cursor) {
                    own.clone_from(cursor);
                }
                let cursor = cursor.as_ref().map(ToString::to_string);
                control(chunk, &self.prefix, "stream.caught_up", &json!({ "last_seq": last_seq, "cursor": cursor }));
            }
            StreamItem::Gap { requested_after, first_seq } => {
                let gap = StreamGap { requested_after: requested_after.as_str().into(), first_seq: *first_seq };
                control(chunk, &self.prefix, "stream.gap", &gap);
            }
            StreamItem::Stalled(stall) => {
                let Stall { context, last_seq, is_stalled } = &**stall;
                let data = json!({ "run_id": context.run_id, "stalled": is_stalled, "last_seq": last_seq });
                control(chunk, &self.prefix, "stream.stalled", &data);
            }
            &StreamItem::End { status, last_seq } => {
                control(chunk, &self.prefix, "stream.end", &StreamEnd { status, last_seq });
            }
            StreamItem::Reset => {
                chunk.put_slice(format!("retry: {}\n", self.retry_ms).as_bytes());
                control(chunk, &self.prefix, "stream.reset", &json!({ "retry_ms": self.retry_ms }));
            }
            StreamItem::Draining => put_sent_away(chunk, &self.prefix, self.retry_ms, "draining"),
        }
    }

    fn write_frame(&mut self, chunk: &mut BytesMut, frame: &Frame) {
        chunk.put_slice(b"event: ");
        chunk.put_slice(self.prefix.as_bytes());
        chunk.put_slice(frame.event_type.as_str().as_bytes());
        chunk.put_slice(b"\ndata: ");
        let row = if self.is_index { frame.indexed() } else { None };
        chunk.put_slice(row.unwrap_or(&frame.json()));
        chunk.put_slice(b"\n");
        match (&mut self.feed, frame.place) {
            (Some(cursor), Some(place)) => {
                cursor.advance(place.lane, place.position);
                chunk.put_slice(format!("id: {cursor}\n").as_bytes());
            }
            _ => chunk.put_slice(frame.id_line()),
        }
        chunk.put_slice(b"\n");
    }

    /// Writes the frame of a snapshot up to its text, and keeps the rest for the following chunks.
    fn begin_snapshot(&mut self, chunk: &mut BytesMut, open: &OpenText) {
        // `text` and `type` are the last members, so the frame's JSON begins like that of all others.
        let head = json!({
            "agent": open.context.agent, "offset": open.chars, "role": open.context.role,
            "run_id": open.context.run_id, "span_id": open.span_id,
        });
        let head = head.to_string();
        let head = head.strip_suffix('}').unwrap_or(&head);
        let event = format!("event: {}message.snapshot\ndata: {head},\"text\":\"", self.prefix);
        chunk.put_slice(event.as_bytes());
        self.text = Some((Box::new(open.pieces()), format!("\",\"type\":\"{}\"}}\n\n", open.event_type)));
    }
}

/// The inside of a JSON string. A text may be escaped in pieces, because each character is escaped on its own.
fn put_escaped(chunk: &mut BytesMut, text: &str) {
    let quoted = json!(text).to_string();
    chunk.put_slice(&quoted.as_bytes()[1..quoted.len() - 1]);
}

/// The first line of a stream.
pub fn opening() -> Bytes {
    Bytes::from(format!("retry: {RETRY_MS}\n\n"))
}

/// A keep-alive comment.
pub fn ping() -> Bytes {
    Bytes::from_static(b": ping\n\n")
}

/// The whole stream of a reader that has to reconnect later. `EventSource` reads line one, others the frame.
pub fn sent_away(retry_ms: u64, reason: &str) -> Bytes {
    let mut chunk = BytesMut::new();
    put_sent_away(&mut chunk, "", retry_ms, reason);
    chunk.freeze()
}

fn put_sent_away(chunk: &mut BytesMut, prefix: &str, retry_ms: u64, reason: &str) {
    chunk.put_slice(format!("retry: {retry_ms}\n").as_bytes());
    control(chunk, prefix, "stream.draining", &json!({ "retry_ms": retry_ms, "reason": reason }));
}

/// A control frame for a subscription that has no stream.
pub fn control_of(name: &str, event: &str, data: &impl Serialize) -> Bytes {
    let mut chunk = BytesMut::new();
    control(&mut chunk, &format!("{name}/"), event, data);
    chunk.freeze()
}

/// A frame that is not an event: it has no id, so no reader resumes from it.
fn control(chunk: &mut BytesMut, prefix: &str, event: &str, data: &impl Serialize) {
    let data = serde_json::to_string(data).unwrap_or_default();
    chunk.put_slice(format!("event: {prefix}{event}\ndata: {data}\n\n").as_bytes());
}
