//! A connection that does as little as HTTP/1.1 allows, so that the generator is not what is measured.

use std::{io, net::SocketAddr};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// A kept-alive connection for requests whose answers have a length.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    address: SocketAddr,
    answer: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, address, answer: Vec::with_capacity(64 * 1024) })
    }

    pub(crate) async fn post(&mut self, path: &str, content_type: &str, body: &str) -> anyhow::Result<&[u8]> {
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        self.send(request).await
    }

    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<&[u8]> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.address);
        self.send(request).await
    }

    /// Sends a request and reads its whole answer; anything but a 2xx is an error.
    async fn send(&mut self, request: String) -> anyhow::Result<&[u8]> {
        self.stream.write_all(request.as_bytes()).await?;
        self.answer.clear();
        let head = loop {
            anyhow::ensure!(self.stream.read_buf(&mut self.answer).await? > 0, "the connection was closed");
            if let Some(end) = end_of_head(&self.answer) {
                break end;
            }
        };
        let text = std::str::from_utf8(&self.answer[..head])?.to_ascii_lowercase();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length:")).map(str::trim);
        let length: usize = length.unwrap_or("0").parse()?;
        while self.answer.len() < head + length {
            anyhow::ensure!(self.stream.read_buf(&mut self.answer).await? > 0, "the answer broke off");
        }
        let body = &self.answer[head..];
        anyhow::ensure!(text.starts_with("http/1.1 2"), "{text}{}", String::from_utf8_lossy(body));
        Ok(body)
    }
}

/// Sends a GET whose answer is a stream; the caller reads it.
pub(crate) async fn stream(address: SocketAddr, path: &str, accept: &str) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\naccept: {accept}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    Ok(stream)
}

/// Where the body begins, once the head is whole.
pub(crate) fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

/// Splits what was read into lines and keeps the unfinished last one.
///
/// The lines of chunked framing end in CR and those of the formats we read do not, so they are told apart without
/// counting chunks. The counts of every measurement are checked: a mistake here would be one of them.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    pub(crate) fn feed(&mut self, mut bytes: &[u8], mut line: impl FnMut(&[u8])) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (head, tail) = bytes.split_at(end + 1);
            if self.rest.is_empty() {
                tell(head, &mut line);
            } else {
                self.rest.extend_from_slice(head);
                tell(&self.rest, &mut line);
                self.rest.clear();
            }
            bytes = tail;
        }
        self.rest.extend_from_slice(bytes);
    }
}

fn tell(bytes: &[u8], line: &mut impl FnMut(&[u8])) {
    let text = &bytes[..bytes.len() - 1];
    if text.last() != Some(&b'\r') {
        line(text);
    }
}
