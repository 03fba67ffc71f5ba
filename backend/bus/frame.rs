//! An event as readers get it: encoded once, shared by all of them, with the fields that protocols need as values.

use std::{
    fmt::Write as _,
    ops::Range,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use chrono::{DateTime, Utc};

use crate::domain::{
    context::RunContext,
    cursor::RunCursor,
    event::{EventType, Recorded},
    history::Tag,
    id::{EventId, SpanId},
    index::IndexedEvent,
    json::JsonSlice,
    meaning::What,
    run::Status,
    splice::LogPosition,
};

/// One event, ready for the socket.
#[derive(Clone, Debug)]
pub struct Frame {
    pub context: Arc<RunContext>,
    pub event_type: EventType,
    pub span_id: Option<SpanId>,
    pub parent_span_id: Option<SpanId>,
    pub event_id: Option<EventId>,
    pub at: DateTime<Utc>,
    /// `None` for an ephemeral event.
    pub place: Option<LogPosition>,
    /// The history it was written in, which the id of a run's frame carries.
    pub history: Tag,
    /// The status a terminal event leaves its run in.
    pub terminal: Option<Status>,
    /// Whether this delta has text that another process wrote before this one began its copy: that process may have
    /// been killed, and the text may never be continued.
    pub is_earlier: bool,
    /// The whole frame of a run's own stream, `id:` line included.
    block: Bytes,
    /// Where the JSON is; the `id:` line follows it.
    json: Range<usize>,
    /// Where the payload begins, the last member of the JSON.
    payload_at: usize,
    meaning: OnceLock<What>,
    indexed: OnceLock<Bytes>,
}

impl Frame {
    /// Encodes an event; `history` is the one it was written in.
    pub fn new(context: Arc<RunContext>, event: &Recorded, place: Option<LogPosition>, history: Tag) -> Self {
        let mut block = String::from("event: ");
        block.push_str(event.event_type.as_str());
        block.push_str("\ndata: ");
        let json_at = block.len();
        block.push_str(&event.envelope());
        debug_assert!(!block[json_at..].contains(['\n', '\r']), "an envelope is one line");
        let json = json_at..block.len();
        let payload_at = json.end - "}".len() - event.payload.as_str().len();
        block.push('\n');
        if let Some(place) = place {
            // After the data: a client that takes the id as soon as it reads the line has the event by then.
            let _ = writeln!(block, "id: {}", RunCursor { seq: place.seq, history });
        }
        block.push('\n');
        Self {
            context,
            terminal: Status::after(&event.event_type).filter(|status| status.is_terminal()),
            is_earlier: false,
            event_type: event.event_type.clone(),
            span_id: event.span_id.clone(),
            parent_span_id: event.parent_span_id.clone(),
            event_id: event.event_id.clone(),
            at: event.at,
            place,
            history,
            block: Bytes::from(block),
            json,
            payload_at,
            meaning: OnceLock::new(),
            indexed: OnceLock::new(),
        }
    }

    /// The frame of a run's own stream: its id is the seq, with the tag of a history that is not the first.
    pub fn block(&self) -> &Bytes {
        &self.block
    }

    /// The `id:` line of a run's own stream; empty for an ephemeral event.
    pub fn id_line(&self) -> &[u8] {
        &self.block[self.json.end + 1..self.block.len() - 1]
    }

    /// Its size in memory: its block, its ids, and the values parsed from its payload, which are at most about the
    /// payload's size.
    pub(super) fn bytes(&self) -> usize {
        let span = |id: &Option<SpanId>| id.as_ref().map_or(0, |id| id.as_str().len());
        let key = self.event_id.as_ref().map_or(0, |id| id.as_str().len());
        let payload = self.block.len() - self.payload_at;
        self.block.len() + payload + span(&self.span_id) + span(&self.parent_span_id) + key
    }

    /// What the event means in a conversation, read by the first reader that asks and shared by all.
    pub fn meaning(&self) -> &What {
        self.meaning.get_or_init(|| {
            let spans = (self.span_id.as_ref(), self.parent_span_id.as_ref());
            What::of(&self.event_type, spans, self.place.map(|place| place.seq), self.payload())
        })
    }

    /// A durable event as the JSON of an index, without its payload; read by the first reader that asks and shared by
    /// all. `None` for an ephemeral event.
    pub fn indexed(&self) -> Option<&Bytes> {
        let seq = self.place?.seq;
        Some(self.indexed.get_or_init(|| {
            let spans = (self.span_id.as_ref(), self.parent_span_id.as_ref());
            let payload = self.payload().as_str();
            let row = IndexedEvent::of((self.context.run_id, seq, self.at), &self.event_type, spans, payload);
            serde_json::to_vec(&row).unwrap_or_default().into()
        }))
    }

    /// The payload alone, as it was sent.
    pub fn payload(&self) -> JsonSlice<'_> {
        let text = std::str::from_utf8(&self.block[self.payload_at..self.json.end - "}".len()]);
        debug_assert!(text.is_ok(), "it was text when it was encoded");
        JsonSlice::trusted(text.unwrap_or("{}"))
    }

    /// The envelope alone.
    pub fn json(&self) -> Bytes {
        self.block.slice(self.json.clone())
    }
}
