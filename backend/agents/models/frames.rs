//! The events of an answer: the data of server-sent events, or lines of JSON.
//!
//! The declared media type is not relied on: a body that begins with a bracket is JSON. Bytes that are not UTF-8 become
//! U+FFFD, and a byte-order mark is skipped, as WHATWG's rules for event streams require.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_stream::try_stream;
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use reqwest::Response;
use sse_stream::SseByteStream;

use super::error;
use crate::{
    agents::model::ModelError,
    domain::{lenient::Unread, limits::MODEL_EVENT_BYTES_MAX},
};

/// Maximum bytes read of an error response.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;
/// The end of the last event, which some providers omit.
const END: &str = "\n\n";

pub(super) fn events(
    response: Response,
    silence_max: Duration,
) -> impl Stream<Item = Result<String, ModelError>> + Send {
    let pending = Arc::new(AtomicUsize::new(0));
    let mut text = texts(response, silence_max, Arc::clone(&pending)).boxed();
    try_stream! {
        let mut beginning = String::new();
        while beginning.trim().is_empty() && let Some(more) = text.next().await {
            beginning = more?;
        }
        let is_json = beginning.trim_start().starts_with(['{', '[']);
        let text = stream::iter([Ok(beginning)]).chain(text).boxed();
        let mut events = if is_json { lines(text).boxed() } else { data(text).boxed() };
        while let Some(event) = events.next().await {
            let event = event?;
            pending.store(0, Ordering::Relaxed);
            yield event;
        }
    }
}

/// The text of a body as it arrives. Bytes are counted before they are split into events; each event resets the count.
fn texts(
    response: Response,
    silence_max: Duration,
    pending: Arc<AtomicUsize>,
) -> impl Stream<Item = Result<String, ModelError>> + Send {
    let mut bytes = response.bytes_stream();
    try_stream! {
        let mut characters = Characters::default();
        loop {
            let more = tokio::time::timeout(silence_max, bytes.next()).await.map_err(|_| error::silent())?;
            let Some(more) = more.transpose().map_err(|error| error::of_transport(&error))? else { break };
            if pending.fetch_add(more.len(), Ordering::Relaxed) + more.len() > MODEL_EVENT_BYTES_MAX {
                Err(error::too_long())?;
            }
            yield characters.add(&more);
        }
        yield characters.end();
    }
}

/// Decodes bytes; a chunk may end inside a character.
#[derive(Default)]
struct Characters {
    held: Vec<u8>,
    has_begun: bool,
}

impl Characters {
    fn add(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let rest = self.held.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
        let is_cut = str::from_utf8(rest).is_err_and(|error| error.error_len().is_none());
        let rest = if is_cut { rest.len() } else { 0 };
        let rest = self.held.split_off(self.held.len() - rest);
        let text = String::from_utf8_lossy(&std::mem::replace(&mut self.held, rest)).into_owned();
        let begins = !self.has_begun;
        self.has_begun |= !text.is_empty();
        match text.strip_prefix('\u{feff}').filter(|_| begins) {
            Some(text) => text.to_owned(),
            None => text,
        }
    }

    fn end(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned()
    }
}

/// The data of events. If there are no blank lines between them, each line is one.
fn data(
    text: impl Stream<Item = Result<String, ModelError>> + Send + Unpin,
) -> impl Stream<Item = Result<String, ModelError>> + Send {
    let ended = text.chain(stream::iter([Ok(END.to_owned())]));
    let blocks = SseByteStream::new(ended.map_ok(bytes::Bytes::from).map_err(Broken));
    let data = blocks.filter_map(async |block| match block {
        Ok(block) => block.data.map(Ok),
        Err(sse_stream::Error::Body(error)) => {
            Some(Err(error.downcast::<Broken>().map_or_else(|_| error::cut(), |broken| broken.0)))
        }
        Err(_) => Some(Err(error::cut())),
    });
    data.flat_map(|data| {
        let data = match data {
            Ok(data) if data.contains('\n') && Unread::parse(&data).is_none() => {
                data.lines().map(|line| Ok(line.to_owned())).collect()
            }
            data => vec![data],
        };
        stream::iter(data)
    })
}

/// Lines of JSON, or one value over many lines.
fn lines(
    mut text: impl Stream<Item = Result<String, ModelError>> + Send + Unpin,
) -> impl Stream<Item = Result<String, ModelError>> + Send {
    try_stream! {
        let (mut line, mut is_one_value) = (String::new(), false);
        while let Some(more) = text.next().await {
            let more = more?;
            for part in more.split_inclusive('\n') {
                line += part;
                if is_one_value || !part.ends_with('\n') || line.trim().is_empty() {
                    continue;
                }
                if Unread::parse(&line).is_some() {
                    yield std::mem::take(&mut line);
                } else {
                    is_one_value = true;
                }
            }
        }
        if !line.trim().is_empty() {
            yield line;
        }
    }
}

/// [`ModelError`] as the error type of a body.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Broken(ModelError);

/// The beginning of an error response.
pub(super) async fn beginning(response: Response) -> String {
    let (mut body, mut bytes) = (Vec::new(), response.bytes_stream());
    while let Some(Ok(more)) = bytes.next().await {
        body.extend_from_slice(&more);
        if body.len() > REFUSAL_BYTES_MAX {
            body.truncate(REFUSAL_BYTES_MAX);
            break;
        }
    }
    String::from_utf8_lossy(&body).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    async fn read(body: &[u8], cuts: &[usize]) -> Vec<String> {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (body.len() + 1)).chain([0, body.len()]).collect();
        cuts.sort_unstable();
        let pieces: Vec<_> =
            cuts.windows(2).map(|cut| Ok::<_, std::io::Error>(body[cut[0]..cut[1]].to_vec())).collect();
        let body = reqwest::Body::wrap_stream(stream::iter(pieces));
        let response = Response::from(axum::http::Response::new(body));
        events(response, Duration::from_mins(1)).try_collect().await.unwrap()
    }

    #[tokio::test]
    async fn events_are_read_in_the_forms_that_providers_send() {
        let cases: [(&str, &[&str]); 8] = [
            ("data: {\"a\":1}\n\ndata: [DONE]\n\n", &["{\"a\":1}", "[DONE]"]),
            ("\u{feff}data: {\"a\":1}\r\n\r\n: still here\n\ndata:[DONE]", &["{\"a\":1}", "[DONE]"]),
            ("event: x\ndata: {\"a\":1}\ndata: {\"b\":2}\n", &["{\"a\":1}", "{\"b\":2}"]),
            ("data: {\"a\":\ndata: 1}\n\n", &["{\"a\":\n1}"]),
            ("{\"a\":1}\n{\"b\":2}", &["{\"a\":1}\n", "{\"b\":2}"]),
            ("\n {\n\"a\":1\n}\n", &["\n {\n\"a\":1\n}\n"]),
            ("<html>", &[]),
            ("", &[]),
        ];
        for (body, expected) in cases {
            assert_eq!(read(body.as_bytes(), &[]).await, expected, "{body:?}");
        }
        assert_eq!(read(b"data: {\"a\":\"\xff\xf0\x9f\x98\"}\n\n", &[]).await, ["{\"a\":\"\u{fffd}\u{fffd}\"}"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn where_the_bytes_are_cut_makes_no_difference(
            text in "[a😀é\\n]{0,20}",
            cuts in prop::collection::vec(any::<usize>(), 0..8),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let json = serde_json::json!({"t": text});
            for body in [format!("\u{feff}data: {json}\n\ndata: {json}"), format!("{json}\n{json}\n")] {
                let whole = runtime.block_on(read(body.as_bytes(), &[]));
                prop_assert_eq!(whole.len(), 2);
                prop_assert_eq!(runtime.block_on(read(body.as_bytes(), &cuts)), whole);
            }
        }
    }
}
