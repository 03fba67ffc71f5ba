//! A reader of event streams, written from the WHATWG rules and sharing nothing with the server.
//!
//! It is stricter than a browser: a carriage return anywhere, an unknown field, two lines of data in one frame, or
//! bytes that are not UTF-8 fail the test.

use std::collections::VecDeque;

use serde_json::Value;

use super::patiently;

/// One dispatched event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The `id:` of this frame itself.
    pub id: Option<String>,
    pub event: String,
    pub data: String,
}

impl Frame {
    pub fn json(&self) -> Value {
        self.data.parse().unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Whether it is an event of a log.
    pub fn is_durable(&self) -> bool {
        self.id.is_some()
    }
}

/// An item of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Retry(u64),
    Comment(String),
    Frame(Frame),
}

/// The parser: bytes in, items out.
#[derive(Default)]
pub struct Parser {
    rest: Vec<u8>,
    id: Option<String>,
    event: Option<String>,
    data: Option<String>,
    lines: usize,
    is_unnamed: bool,
}

impl Parser {
    /// For a protocol whose frames have no `event:`.
    pub fn without_names() -> Self {
        Self { is_unnamed: true, ..Self::default() }
    }

    pub fn push(&mut self, bytes: &[u8]) -> Vec<Item> {
        assert!(!bytes.contains(&b'\r'), "a carriage return: {:?}", String::from_utf8_lossy(bytes));
        self.rest.extend_from_slice(bytes);
        let mut items = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = std::str::from_utf8(&line[..end]).expect("a stream is UTF-8").to_owned();
            assert!(self.lines > 0 || !line.starts_with('\u{feff}'), "a byte order mark");
            self.lines += 1;
            items.extend(self.line(&line));
        }
        items
    }

    /// Whether no frame is incomplete.
    pub fn is_between_frames(&self) -> bool {
        self.rest.is_empty() && self.id.is_none() && self.event.is_none() && self.data.is_none()
    }

    fn line(&mut self, line: &str) -> Option<Item> {
        if line.is_empty() {
            let (id, event, data) = (self.id.take(), self.event.take(), self.data.take());
            // Without data nothing is dispatched; only the opening and comments have none.
            let Some(data) = data else {
                assert!(id.is_none() && event.is_none(), "a frame without data: {id:?} {event:?}");
                return None;
            };
            assert_eq!(event.is_none(), self.is_unnamed, "every frame names its event, or none does: {event:?} {data}");
            return Some(Item::Frame(Frame { id, event: event.unwrap_or_default(), data }));
        }
        if let Some(comment) = line.strip_prefix(':') {
            return Some(Item::Comment(comment.strip_prefix(' ').unwrap_or(comment).to_owned()));
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
        match field {
            "id" => {
                assert!(!value.contains('\0') && self.id.is_none() && self.data.is_some(), "id: {line:?}");
                self.id = Some(value);
            }
            "event" => assert!(self.event.replace(value).is_none() && self.data.is_none(), "{line:?}"),
            "data" => assert!(self.data.replace(value).is_none(), "two lines of data: {line:?}"),
            "retry" => return Some(Item::Retry(value.parse().expect("retry is a number"))),
            _ => panic!("an unknown field: {line:?}"),
        }
        None
    }
}

/// An open stream.
pub struct Stream {
    pub response: reqwest::Response,
    parser: Parser,
    items: VecDeque<Item>,
    /// Every byte received, for tests that check them.
    pub bytes: Vec<u8>,
}

impl Stream {
    pub fn of(response: reqwest::Response) -> Self {
        Self { response, parser: Parser::default(), items: VecDeque::new(), bytes: Vec::new() }
    }

    /// The next item of any kind; `None` if the server closed the stream.
    pub async fn item(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.items.pop_front() {
                return Some(item);
            }
            let chunk = patiently("a frame", self.response.chunk()).await;
            if let Some(chunk) = chunk.unwrap_or_else(|error| panic!("the stream broke: {error:?}")) {
                self.bytes.extend_from_slice(&chunk);
                self.items.extend(self.parser.push(&chunk));
            } else {
                assert!(self.parser.is_between_frames(), "the stream ended inside a frame");
                return None;
            }
        }
    }

    /// The next frame. Comments that keep the stream alive are not frames.
    pub async fn frame(&mut self) -> Option<Frame> {
        patiently("a frame", async {
            loop {
                match self.item().await? {
                    Item::Frame(frame) => return Some(frame),
                    Item::Retry(_) | Item::Comment(_) => {}
                }
            }
        })
        .await
    }

    pub async fn next(&mut self) -> Frame {
        self.frame().await.expect("the stream goes on")
    }

    /// Everything up to and including the first frame of this kind.
    pub async fn until(&mut self, event: &str) -> Vec<Frame> {
        let mut frames = Vec::new();
        loop {
            let frame = self.next().await;
            let last = frame.event == event;
            frames.push(frame);
            if last {
                return frames;
            }
        }
    }

    /// Reads the past events and returns how many there were.
    pub async fn caught_up(&mut self) -> usize {
        self.until("stream.caught_up").await.len() - 1
    }

    /// Everything up to the end of the stream.
    pub async fn rest(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.frame().await {
            frames.push(frame);
        }
        frames
    }

    /// The next `count` events of the log, whatever comes between.
    pub async fn durable(&mut self, count: usize) -> Vec<Frame> {
        let mut frames = Vec::with_capacity(count);
        while frames.len() < count {
            let frame = self.next().await;
            if frame.is_durable() {
                frames.push(frame);
            }
        }
        frames
    }
}

/// The envelopes of the events among some frames.
pub fn envelopes(frames: &[Frame]) -> Vec<String> {
    frames.iter().filter(|frame| frame.is_durable()).map(|frame| frame.data.clone()).collect()
}

/// The names of some frames, in order.
pub fn names(frames: &[Frame]) -> Vec<&str> {
    frames.iter().map(|frame| frame.event.as_str()).collect()
}

mod tests {
    use super::*;

    #[test]
    fn the_parser_reads_frames_in_any_pieces() {
        let text = "retry: 1000\n\n: ping\n\nevent: a.b\ndata: {\"x\":\"ü\"}\nid: 1\n\nevent: c\ndata: 1\n\n";
        let mut whole = Parser::default();
        let expected = whole.push(text.as_bytes());
        assert_eq!(expected.len(), 4);
        let mut pieces = Parser::default();
        let got: Vec<Item> = text.bytes().flat_map(|byte| pieces.push(&[byte])).collect();
        assert_eq!(got, expected);
        assert!(pieces.is_between_frames());
    }

    #[test]
    #[should_panic(expected = "a carriage return")]
    fn the_parser_refuses_a_carriage_return() {
        Parser::default().push(b"data: a\r\n");
    }
}
