//! Faces: what a stream looks like in a protocol. A face turns [`StreamItem`]s into bytes and decides nothing else.
//!
//! The rules that all protocols share are below it. Where a stream begins and whether a cursor is valid is decided in
//! [`timeline::resume`](crate::timeline::resume); what comes next, in which order, and when a stream is over, in
//! [`timeline::follow`](crate::timeline::follow). Credentials, bounds and the response are above it, in
//! `http/stream.rs`.
//!
//! To add a face:
//!
//! 1. A file here with an encoder like [`sse::Encoder`]: it takes items and returns chunks of at most
//!    [`STREAM_CHUNK_BYTES`](crate::domain::limits::STREAM_CHUNK_BYTES). [`Frame`](crate::bus::Frame) has the event's
//!    type, span and payload as values, so nothing is parsed again, and its envelope as shared bytes.
//! 2. An id for the reader's position, if the protocol has one. A stream begins at
//!    [`Follower::position`](crate::timeline::follow::Follower::position); after that the encoder advances it with each
//!    frame it writes, because the follower is a batch ahead. The id of a run's frame carries the tag of its history; it
//!    is in the SSE bytes only, so a second face needs it in `Frame` as a value. Hand ids to `timeline::resume` as they
//!    are.
//! 3. A route in `http/` that asks `timeline::resume` for the stream. The loop in `http/stream.rs` has the rest
//!    (credential, room, ping, end) and is to take the encoder as a parameter once there are two.
//! 4. A section in `docs/protocol.md`: what maps to what, and what is lost.
//!
//! [`StreamItem`]: crate::timeline::follow::StreamItem

pub mod sse;
