//! [`Pipes`]: a server's input and output, one message per line.

use std::{collections::VecDeque, io, sync::Arc};

use bytes::BytesMut;
use futures::{SinkExt as _, StreamExt as _};
use rmcp::{RoleClient, model::ClientJsonRpcMessage, model::ServerJsonRpcMessage, transport::Transport};
use serde_json::Value;
use tokio::{
    process::{ChildStdin, ChildStdout},
    sync::Mutex,
};
use tokio_util::codec::{Decoder, FramedRead, FramedWrite, LinesCodec};

use super::message::{self, Outline};
use crate::domain::limits::MCP_MESSAGE_BYTES_MAX;

pub(super) struct Pipes {
    read: FramedRead<ChildStdout, Lines>,
    /// Messages of the last line that are not yet passed on.
    waiting: VecDeque<Value>,
    /// `None` once it is closed. The codec keeps a line whose sending was cancelled, so that no line is cut.
    write: Arc<Mutex<Option<FramedWrite<ChildStdin, LinesCodec>>>>,
}

impl Pipes {
    pub(super) fn new(stdin: ChildStdin, stdout: ChildStdout) -> Self {
        Self {
            read: FramedRead::new(stdout, Lines::default()),
            waiting: VecDeque::new(),
            write: Arc::new(Mutex::new(Some(FramedWrite::new(stdin, LinesCodec::new())))),
        }
    }
}

impl Transport<RoleClient> for Pipes {
    type Error = io::Error;

    fn send(&mut self, message: ClientJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let write = Arc::clone(&self.write);
        async move {
            let line = serde_json::to_string(&message)?;
            let mut write = write.lock().await;
            let open = write.as_mut().ok_or(io::ErrorKind::NotConnected)?;
            open.send(line).await.map_err(io::Error::other)
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            while let Some(message) = self.waiting.pop_front() {
                match serde_json::from_value(message) {
                    Ok(message) => return Some(message),
                    Err(error) => tracing::debug!(%error, "a message of a tool server was left out"),
                }
            }
            self.waiting = self.read.next().await?.ok()?.into();
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        drop(self.write.lock().await.take());
        Ok(())
    }
}

/// Reads lines. Only the [`Outline`] of a line that is too long is kept.
#[derive(Default)]
struct Lines {
    /// Bytes already searched for the end of the line.
    searched: usize,
    beyond: Option<Outline>,
}

impl Lines {
    fn line(&mut self, line: &[u8]) -> Vec<Value> {
        let Some(mut outline) = self.beyond.take() else { return message::read(line, None) };
        outline.push(line);
        outline.failure(&format!("its answer is larger than {MCP_MESSAGE_BYTES_MAX} bytes")).into_iter().collect()
    }
}

impl Decoder for Lines {
    type Item = Vec<Value>;
    type Error = io::Error;

    fn decode(&mut self, bytes: &mut BytesMut) -> io::Result<Option<Vec<Value>>> {
        let end = bytes[self.searched..].iter().position(|byte| *byte == b'\n').map(|at| self.searched + at + 1);
        self.searched = bytes.len();
        if end.unwrap_or(bytes.len()) > MCP_MESSAGE_BYTES_MAX {
            self.beyond.get_or_insert_default();
        }
        let Some(end) = end else {
            if let Some(outline) = &mut self.beyond {
                outline.push(&bytes.split());
                self.searched = 0;
            }
            return Ok(None);
        };
        self.searched = 0;
        let line = bytes.split_to(end);
        Ok(Some(self.line(&line)))
    }

    fn decode_eof(&mut self, bytes: &mut BytesMut) -> io::Result<Option<Vec<Value>>> {
        match self.decode(bytes)? {
            Some(messages) => Ok(Some(messages)),
            None if bytes.is_empty() => Ok(None),
            None => Ok(Some(self.line(&bytes.split()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_fails_the_request_it_names_wherever_it_says_so() {
        let long = "x".repeat(MCP_MESSAGE_BYTES_MAX);
        for line in [
            format!("{{\"id\":4,\"result\":\"{long}\"}}\n{{\"id\":5,\"result\":1}}\n"),
            format!("{{\"result\":\"{long}\",\"id\":4}}\n{{\"id\":5,\"result\":1}}"),
        ] {
            for piece in [1 << 16, line.len()] {
                let (mut lines, mut buffer, mut read) = (Lines::default(), BytesMut::new(), Vec::new());
                for piece in line.as_bytes().chunks(piece) {
                    buffer.extend_from_slice(piece);
                    while let Some(messages) = lines.decode(&mut buffer).unwrap() {
                        read.extend(messages);
                    }
                    assert!(buffer.len() <= MCP_MESSAGE_BYTES_MAX);
                }
                read.extend(lines.decode_eof(&mut buffer).unwrap().unwrap_or_default());
                let ids: Vec<_> = read.iter().map(|message| message["id"].as_i64().unwrap()).collect();
                assert_eq!(ids, [4, 5]);
                assert!(read[0]["error"]["message"].as_str().unwrap().contains("is larger than"));
            }
        }
    }
}
