//! Faces: what a stream looks like in a protocol. A face turns [`StreamItem`]s into bytes and decides nothing else.
//!
//! The rules that all protocols share are below it. Where a stream begins and what a cursor is worth is in
//! [`timeline::resume`](crate::timeline::resume); what comes next, in which order and when it is over is in
//! [`timeline::follow`](crate::timeline::follow). Credentials, bounds and the response are above it, in `http/stream.rs`.
//!
//! To add a face:
//!
//! 1. A file here with an encoder like [`sse::Encoder`]: it takes items and gives chunks of at most
//!    [`STREAM_CHUNK_BYTES`](crate::domain::limits::STREAM_CHUNK_BYTES). [`Frame`](crate::bus::Frame) has the event's type,
//!    span and payload as values, so nothing is parsed again, and its envelope as shared bytes.
//! 2. A name for the reader's place, if the protocol has one: a run's seq or a feed's cursor, as
//!    [`Follower::position`](crate::timeline::follow::Follower::position) has it. Give it back to `timeline::resume` as it was.
//! 3. A route in `http/` that asks `timeline::resume` for the stream and hands it to the encoder.
//! 4. A section in `docs/protocol.md`: what maps to what, and what is lost.
//!
//! [`StreamItem`]: crate::timeline::follow::StreamItem

pub mod sse;
