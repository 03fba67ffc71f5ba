//! Stdin in batches of what is available.

use std::io::{self, Read as _};

use bytes::{Buf as _, BytesMut};
use tokio::sync::mpsc::{self, error::TryRecvError};

use crate::{cli::exit::CliError, domain::limits::BODY_BYTES_MAX};

/// Maximum lines of a batch.
const BATCH_LINES_MAX: usize = 500;
/// Bytes after which a batch is full.
const BATCH_BYTES_MAX: usize = 1024 * 1024;
/// Bytes read at a time.
const CHUNK_BYTES: usize = 64 * 1024;
/// Chunks read ahead while a batch is being sent.
const CHUNKS_MAX: usize = 16;

/// A line's number, from 1, and its bytes without the line end.
pub(super) type NumberedLine = (u64, Vec<u8>);

pub(super) struct Stdin {
    chunks: mpsc::Receiver<io::Result<Vec<u8>>>,
    buffer: BytesMut,
    /// Bytes of the buffer known to contain no line end.
    searched: usize,
    lines: u64,
    ended: bool,
}

impl Stdin {
    pub(super) fn open() -> Self {
        let (sender, chunks) = mpsc::channel(CHUNKS_MAX);
        // A thread of its own, not one of tokio's: nothing can wake a read of stdin, and the runtime would wait for it
        // at exit. This one just ends with the process.
        std::thread::spawn(move || {
            let mut stdin = io::stdin().lock();
            loop {
                let mut chunk = vec![0; CHUNK_BYTES];
                let outcome = match stdin.read(&mut chunk) {
                    Ok(0) => break,
                    Ok(length) => {
                        chunk.truncate(length);
                        Ok(chunk)
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => Err(error),
                };
                let failed = outcome.is_err();
                if sender.blocking_send(outcome).is_err() || failed {
                    break;
                }
            }
        });
        Self::of(chunks)
    }

    pub(super) fn of(chunks: mpsc::Receiver<io::Result<Vec<u8>>>) -> Self {
        Self { chunks, buffer: BytesMut::new(), searched: 0, lines: 0, ended: false }
    }

    /// The available lines, at least one, up to the bounds of a batch; `None` at the end of the input.
    ///
    /// Waits only while there is no complete line, so everything that a pausing producer wrote is sent.
    pub(super) async fn batch(&mut self) -> anyhow::Result<Option<Vec<NumberedLine>>> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        loop {
            while let Some(line) = self.line()? {
                bytes += line.1.len();
                batch.push(line);
                if batch.len() >= BATCH_LINES_MAX || bytes >= BATCH_BYTES_MAX {
                    return Ok(Some(batch));
                }
            }
            if self.ended {
                return Ok((!batch.is_empty()).then_some(batch));
            }
            let chunk = if batch.is_empty() {
                self.chunks.recv().await
            } else {
                match self.chunks.try_recv() {
                    Ok(chunk) => Some(chunk),
                    Err(TryRecvError::Disconnected) => None,
                    Err(TryRecvError::Empty) => return Ok(Some(batch)),
                }
            };
            match chunk {
                Some(chunk) => self.buffer.extend_from_slice(&chunk?),
                None => self.ended = true,
            }
        }
    }

    /// The next complete line; at the end of the input also one without a line end.
    fn line(&mut self) -> Result<Option<NumberedLine>, CliError> {
        let found = self.buffer[self.searched..].iter().position(|&byte| byte == b'\n').map(|at| self.searched + at);
        let length = match found {
            Some(length) => length,
            None if self.ended && !self.buffer.is_empty() => self.buffer.len(),
            None => {
                self.searched = self.buffer.len();
                if self.searched > BODY_BYTES_MAX {
                    let what = format!("line {} is longer than {BODY_BYTES_MAX} bytes", self.lines + 1);
                    return Err(CliError::failed(what));
                }
                return Ok(None);
            }
        };
        let line = self.buffer.split_to(length).to_vec();
        if found.is_some() {
            self.buffer.advance(1);
        }
        self.searched = 0;
        self.lines += 1;
        Ok(Some((self.lines, line)))
    }
}
