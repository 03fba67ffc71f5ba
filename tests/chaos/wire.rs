//! HTTP/1.1 and `text/event-stream`, read without a library: what a library tolerates or hides is what we look for.
//!
//! In particular a repeated frame is reported twice, a body that breaks off is not an end, and a line that is not a
//! field of the standard is an error.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// Longest wait for a connection and for the head of a response.
const HEAD_WAIT_MAX: Duration = Duration::from_secs(10);
/// Longest head of a response, bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;
const READ_BYTES: usize = 64 * 1024;

/// A response whose body is read as it arrives.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    stream: TcpStream,
    /// Read from the socket and not yet parsed.
    raw: Vec<u8>,
    body: Body,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    /// Bytes left of the chunk, 0 before its size line.
    Chunked(usize),
    /// Bytes left.
    Sized(usize),
    Done,
}

/// Sends a GET and reads the head of the response. `headers` are whole lines without their line ends.
pub(crate) async fn get(address: SocketAddr, path: &str, headers: &[String]) -> io::Result<Response> {
    let stream = timeout(HEAD_WAIT_MAX, TcpStream::connect(address)).await??;
    get_on(stream, path, headers).await
}

/// Like [`get`] on the caller's connection.
pub(crate) async fn get_on(mut stream: TcpStream, path: &str, headers: &[String]) -> io::Result<Response> {
    let mut head = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n", stream.peer_addr()?);
    for header in headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    stream.set_nodelay(true)?;
    timeout(HEAD_WAIT_MAX, stream.write_all(head.as_bytes())).await??;
    timeout(HEAD_WAIT_MAX, read_head(stream)).await?
}

/// The response to a request that was sent on this connection before.
pub(crate) async fn resume(stream: TcpStream) -> io::Result<Response> {
    timeout(HEAD_WAIT_MAX, read_head(stream)).await?
}

async fn read_head(mut stream: TcpStream) -> io::Result<Response> {
    let mut raw = Vec::new();
    let end = loop {
        if let Some(end) = find(&raw, b"\r\n\r\n") {
            break end;
        }
        if raw.len() > HEAD_BYTES_MAX {
            return Err(broken("the head of the answer is too long"));
        }
        if stream.read_buf(&mut raw).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    };
    let head = String::from_utf8(raw.drain(..end + 4).collect()).map_err(|_| broken("the head is not text"))?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| broken("the answer has no status"))?;
    let field = |name: &str| {
        head.lines().find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    };
    let body = match (field("transfer-encoding"), field("content-length")) {
        (Some(_), _) => Body::Chunked(0),
        (None, Some(length)) => Body::Sized(length.parse().map_err(|_| broken("the length is no number"))?),
        (None, None) => Body::Done,
    };
    Ok(Response { status, stream, raw, body })
}

impl Response {
    /// The next bytes of the body; `None` at its proper end. A body that breaks off is an error.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let bytes = self.take()?;
            if !bytes.is_empty() {
                return Ok(Some(bytes));
            }
            if matches!(self.body, Body::Done | Body::Sized(0)) {
                return Ok(None);
            }
            self.raw.reserve(READ_BYTES);
            if self.stream.read_buf(&mut self.raw).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// The whole body.
    pub(crate) async fn text(mut self) -> io::Result<String> {
        let mut body = Vec::new();
        while let Some(bytes) = self.next().await? {
            body.extend(bytes);
        }
        String::from_utf8(body).map_err(|_| broken("the body is not UTF-8"))
    }

    /// The part of the body that is in `raw`.
    fn take(&mut self) -> io::Result<Vec<u8>> {
        let (mut bytes, mut at) = (Vec::new(), 0);
        loop {
            let rest = &self.raw[at..];
            match self.body {
                Body::Done => break,
                Body::Sized(left) => {
                    let part = rest.len().min(left);
                    bytes.extend_from_slice(&rest[..part]);
                    (at, self.body) = (at + part, Body::Sized(left - part));
                    break;
                }
                Body::Chunked(0) => {
                    let Some(line) = find(rest, b"\r\n") else { break };
                    let size = std::str::from_utf8(&rest[..line]).ok();
                    let size = size.and_then(|size| usize::from_str_radix(size, 16).ok());
                    let size = size.ok_or_else(|| broken("the size of a chunk is no number"))?;
                    (at, self.body) = (at + line + 2, if size == 0 { Body::Done } else { Body::Chunked(size + 2) });
                }
                // The two bytes of the line end belong to the chunk and not to the body.
                Body::Chunked(left) => {
                    let part = rest.len().min(left);
                    if part == 0 {
                        break;
                    }
                    bytes.extend_from_slice(&rest[..part.min(left.saturating_sub(2))]);
                    (at, self.body) = (at + part, Body::Chunked(left - part));
                }
            }
        }
        self.raw.drain(..at);
        Ok(bytes)
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

fn broken(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// A frame of an event stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) id: Option<String>,
    pub(crate) event: String,
    pub(crate) data: String,
}

/// Parses an event stream, however its bytes are cut.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    line: Vec<u8>,
    frame: Frame,
}

impl Frames {
    /// The frames that end in these bytes. Comments and `retry:` are skipped; anything unexpected is an error.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> io::Result<Vec<Frame>> {
        let mut frames = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if self.line.last() == Some(&b'\n') {
                let line = std::mem::take(&mut self.line);
                let line = std::str::from_utf8(&line[..line.len() - 1]).map_err(|_| broken("a line is not UTF-8"))?;
                frames.extend(self.line(line)?);
            }
        }
        Ok(frames)
    }

    fn line(&mut self, line: &str) -> io::Result<Option<Frame>> {
        if line.is_empty() {
            let frame = std::mem::take(&mut self.frame);
            return Ok((frame != Frame::default()).then_some(frame));
        }
        match line.split_once(": ") {
            Some(("" | "retry", _)) => {}
            Some(("id", value)) if self.frame.id.is_none() => self.frame.id = Some(value.to_owned()),
            Some(("event", value)) if self.frame.event.is_empty() => value.clone_into(&mut self.frame.event),
            Some(("data", value)) if self.frame.data.is_empty() => value.clone_into(&mut self.frame.data),
            _ => return Err(broken("a stream holds a line that is no field of a frame, or a field twice")),
        }
        Ok(None)
    }
}
