//! The `post` node: makes requests and reads their streams until the run ends, asks or fails.
//!
//! The journal of the step holds lists of [`Entry`] under the keys `0`, `1`, `2` …: what arrived together is stored
//! together, and then emitted. A repeated step reads it first, so it knows what the step before the crash received.

use futures::StreamExt as _;
use serde_json::{Value, json};

use super::{
    Work,
    endpoint::{Failure, TOO_LARGE},
    entry::Entry,
    live::{Live, Out},
    reading::Event,
    talk::{End, Talk},
};
use crate::{
    client::pace::{Backoff, Pace as _, SystemPace},
    domain::{
        id::{EventId, SpanId},
        limits::{AGUI_RECORD_BYTES_MAX, AGUI_REQUESTS_MAX},
    },
    emitters::proxied::piece,
    engine::{NodeContext, Stop},
};

/// The state of a step.
struct Post<'a> {
    work: &'a Work,
    context: &'a NodeContext<Talk>,
    talk: Talk,
    /// The next key of the journal.
    next: usize,
    /// Bytes that this process added to the journal.
    bytes: usize,
}

/// The outcome of a request.
enum Went {
    /// The run has ended, or asks.
    Through,
    /// `has_begun`: whether an event was received.
    Wrong { failure: Failure, has_begun: bool },
}

pub(super) async fn post(work: std::sync::Arc<Work>, context: NodeContext<Talk>) -> Result<Talk, Stop> {
    let mut post = Post { work: &work, talk: (*context.state).clone(), context: &context, next: 0, bytes: 0 };
    post.replay().await?;
    let endpoint = &work.endpoint;
    if post.talk.turn.is_posting {
        post.cut(&Failure::cut("the process that read it has ended")).await?;
    }
    let mut backoff = Backoff::default();
    while post.talk.turn.end.is_none() && post.talk.turn.asked.is_empty() {
        if post.talk.turn.requests >= AGUI_REQUESTS_MAX {
            let message = format!("the run made {AGUI_REQUESTS_MAX} requests and has not ended");
            post.fail("agui_too_many_requests", message).await?;
            break;
        }
        let Went::Wrong { failure, has_begun } = post.request().await? else { break };
        if has_begun {
            post.cut(&failure).await?;
        } else {
            post.again(&failure).await?;
        }
        if post.talk.turn.end.is_some() {
            break;
        }
        if post.talk.turn.failures > endpoint.retries {
            let message = format!("{} (request {})", failure.message, post.talk.turn.failures);
            post.fail(failure.code, message).await?;
        } else {
            if post.talk.turn.failures <= 1 {
                backoff.reset();
            }
            let wait = backoff.next(failure.retry_after, SystemPace.jitter());
            SystemPace.wait(wait).await;
        }
    }
    post.talk.turn.resume.clear();
    Ok(post.talk)
}

impl Post<'_> {
    /// Reads the journal of an interrupted step, and emits its last entries again: they may not have been emitted.
    async fn replay(&mut self) -> Result<(), Stop> {
        let mut last = Vec::new();
        while let Some(entries) = self.context.kept::<Vec<Entry>>(&self.next.to_string()) {
            for entry in &entries {
                self.talk.record(entry);
            }
            self.next += 1;
            last = entries;
        }
        if self.next > 0 {
            self.emit(self.next - 1, last.into_iter().map(Out::Entry).collect()).await?;
        }
        Ok(())
    }

    /// Makes one request and reads its stream as far as possible.
    async fn request(&mut self) -> Result<Went, Stop> {
        if !self.talk.turn.is_posting {
            self.record_all(vec![Entry::Posted]).await?;
        }
        let request = self.work.given.request(&self.talk);
        let mut events = match self.work.endpoint.post(&request).await {
            Ok(events) => events,
            Err(failure) => return Ok(Went::Wrong { failure, has_begun: false }),
        };
        let mut live = Live::new(&self.work.given.tools, self.talk.turn.requests);
        let mut has_begun = false;
        while let Some(together) = events.next().await {
            let mut wrong = None;
            for data in together {
                let read = data.and_then(|data| {
                    has_begun = true;
                    let mut event = Event::read(&data);
                    self.mask(&mut event.value);
                    live.take(&mut self.talk, &event);
                    live.too_much.take().map_or(Ok(()), |why| Err(Failure::too_large(why)))
                });
                wrong = read.err();
                let is_over = self.talk.turn.end.is_some() || !self.talk.turn.asked.is_empty();
                if wrong.is_some() || is_over {
                    break;
                }
            }
            if let Some(failure) = &wrong {
                live.cut(&mut self.talk, &failure.message);
            }
            self.keep(std::mem::take(&mut live.out)).await?;
            if !self.talk.turn.is_posting {
                return Ok(Went::Through);
            }
            if let Some(failure) = wrong {
                return Ok(Went::Wrong { failure, has_begun });
            }
        }
        let failure = Failure::cut("the stream ended before the run did");
        live.cut(&mut self.talk, &failure.message);
        self.keep(std::mem::take(&mut live.out)).await?;
        Ok(Went::Wrong { failure, has_begun })
    }

    /// Masks credentials in an error event: it may repeat what was sent, and becomes the run's.
    fn mask(&self, event: &mut Value) {
        if event["type"] != "RUN_ERROR" {
            return;
        }
        for name in ["message", "code"] {
            if let Some(masked) = event[name].as_str().map(|text| self.work.endpoint.masked(text)) {
                event[name] = json!(masked);
            }
        }
    }

    /// Notes that a request without any event will be made again unchanged, or fails the run if the failure is
    /// permanent.
    async fn again(&mut self, failure: &Failure) -> Result<(), Stop> {
        if !failure.is_temporary {
            return self.fail(failure.code, failure.message.clone()).await;
        }
        self.talk.turn.failures += 1;
        let message = format!("{}; nothing was received, try {}", failure.message, self.talk.turn.failures);
        self.record_all(vec![Entry::Warned { message }]).await
    }

    /// Records what was lost with a stream, and fails the run if it must not continue.
    async fn cut(&mut self, failure: &Failure) -> Result<(), Stop> {
        let (mut lost, mut entries, why) = (Vec::new(), Vec::new(), &failure.message);
        let mut first: Option<SpanId> = None;
        for (span, is_reasoning) in self.talk.turn.open.clone() {
            lost.push(format!("the message {span}"));
            first = first.or(Some(span.clone()));
            entries.push(Entry::TextCut { span, is_reasoning, text: None, why: why.clone() });
        }
        for (id, called) in self.talk.lost_calls() {
            lost.push(format!("the result of the call {} ({})", called.span, called.name));
            first = first.or(Some(called.span.clone()));
            entries.push(Entry::CallCut { span: called.span, id, name: called.name, why: why.clone() });
        }
        for (span, name) in self.talk.turn.steps.clone() {
            entries.push(Entry::StepCut { span, name, why: why.clone() });
        }
        let lost = if lost.is_empty() { "nothing that was begun".to_owned() } else { lost.join(", ") };
        let (continues, is_final) = (self.work.endpoint.continues, !failure.is_temporary);
        let then = match (is_final, continues) {
            (true, _) => "the run fails",
            (false, true) => "the request is made again with the messages that were complete",
            (false, false) => "the run fails, because its agent has retry = \"never\"",
        };
        let message = format!("the endpoint's stream was cut: {why}. Lost: {lost}. Now {then}.");
        entries.push(Entry::Cut { message, span: first });
        if is_final || !continues {
            let message = format!("the endpoint's stream was cut: {why}");
            entries.push(Entry::Ended { end: End::Failed { code: failure.code.to_owned(), message } });
        }
        self.record_all(entries).await
    }

    async fn fail(&mut self, code: &str, message: String) -> Result<(), Stop> {
        self.record_all(vec![Entry::Ended { end: End::Failed { code: code.to_owned(), message } }]).await
    }

    async fn record_all(&mut self, entries: Vec<Entry>) -> Result<(), Stop> {
        for entry in &entries {
            self.talk.record(entry);
        }
        self.keep(entries.into_iter().map(Out::Entry).collect()).await
    }

    /// Stores entries, then emits them with the pieces. If the journal exceeds its bound, the run fails instead.
    async fn keep(&mut self, mut out: Vec<Out>) -> Result<(), Stop> {
        let mut recorded = json!(entries(&out));
        self.bytes += recorded.to_string().len();
        if self.bytes > AGUI_RECORD_BYTES_MAX && self.talk.turn.end.is_none() {
            let message =
                format!("the endpoint said more than {AGUI_RECORD_BYTES_MAX} bytes before the run asked or ended");
            let end = Entry::Ended { end: End::Failed { code: TOO_LARGE.to_owned(), message } };
            self.talk.record(&end);
            out = vec![Out::Entry(end)];
            recorded = json!(entries(&out));
        }
        if out.is_empty() {
            return Ok(());
        }
        let at = self.next;
        if recorded.as_array().is_some_and(|recorded| !recorded.is_empty()) {
            self.context.keep(&at.to_string(), recorded).await?;
            self.next += 1;
        }
        self.emit(at, out).await
    }

    async fn emit(&self, at: usize, out: Vec<Out>) -> Result<(), Stop> {
        let mut n = 0;
        let drafts = out.into_iter().filter_map(|out| match out {
            Out::Piece { span, is_reasoning, role, text } => Some(piece(is_reasoning, &role, &span, &text)),
            Out::Entry(entry) => {
                let id = EventId::trusted(&format!("agui:{}:{at}.{n}", self.context.span));
                n += 1;
                entry.draft(&id)
            }
        });
        let drafts: Vec<_> = drafts.collect();
        if !drafts.is_empty() {
            self.work.emitter.emit_all(drafts).await?;
        }
        Ok(())
    }
}

fn entries(out: &[Out]) -> Vec<&Entry> {
    out.iter().filter_map(Out::entry).collect()
}
