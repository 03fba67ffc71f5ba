//! Faces: what a stream looks like in a protocol. A face turns [`StreamItem`]s into bytes and decides nothing else.
//!
//! The rules that all protocols share are below it. Where a stream begins and whether a cursor is valid is decided in
//! [`timeline::resume`](crate::timeline::resume); what comes next, in which order, and when a stream is over, in
//! [`timeline::follow`](crate::timeline::follow). Credentials, bounds and the response are above it, in
//! `http/stream_body.rs`, whose loop takes any [`Encoder`].
//!
//! [`sse`] passes every event on as it is. The protocols of chat clients share [`conversation`]: one translation of a
//! run's events and tokens to the parts of a conversation, each character exactly once, and one [`position`] to resume
//! at. Such a face is a [`Dialect`](conversation::Dialect), which writes each part in its protocol.
//!
//! To add a face:
//!
//! 1. A file here with a dialect, or, for a protocol that is not a conversation, an [`Encoder`] like [`sse::Sse`]: it
//!    takes items and returns chunks of about [`STREAM_CHUNK_BYTES`](crate::domain::limits::STREAM_CHUNK_BYTES).
//!    [`Frame`](crate::bus::Frame) has the event's type, span, history and payload as values, and its envelope as
//!    shared bytes.
//! 2. A route in `http/` that asks `timeline::resume` for the stream and hands it to `http/stream_body.rs`.
//! 3. A page in `docs/protocols/`: the mapping, and what it loses.
//!
//! [`StreamItem`]: crate::timeline::follow::StreamItem

use bytes::Bytes;

use crate::timeline::follow::StreamItem;

pub mod agui;
pub mod ai_sdk;
pub mod asked;
pub mod conversation;
pub mod position;
pub mod responses;
pub mod sse;

/// Writes a stream in a protocol, a chunk at a time.
pub trait Encoder: Send {
    /// The first bytes of the response; they may be empty.
    fn opening(&self) -> Bytes;

    /// Keep-alive bytes for an idle connection.
    fn ping(&self) -> Bytes;

    /// Takes the items to write next. The previous ones have been written: `chunk` has returned `None`.
    fn take(&mut self, items: Vec<StreamItem>);

    /// The next chunk; `None` when everything is written.
    fn chunk(&mut self) -> Option<Bytes>;

    /// Whether the protocol's stream is over although the run's is not.
    fn is_over(&self) -> bool {
        false
    }
}
