//! Unique names for the texts and calls of a run, whatever ids its producer gives them.
//!
//! Some models count their calls from 0 in each answer, and some producers write several messages on one span. Clients
//! keep things by id, so the second one with an id is named `ID~2`, the third `ID~3`. A name depends only on the stored
//! events before it, so all readers get the same names, live or later. Only the newest ids are compared. An event that
//! closes a span uses up the name of a text that may have been shown on it.

use std::{
    borrow::Cow,
    collections::{HashMap, VecDeque},
    hash::{BuildHasher as _, RandomState},
};

use sha2::{Digest as _, Sha256};

use crate::{
    bus::Frame,
    domain::{
        id::SpanId,
        json::Json,
        limits::{CHAT_NAMES_MAX, CHAT_RECENT_MAX, KEY_CHARS_MAX},
        meaning::What,
        open::Closes,
    },
};

/// The names in a run, as far as it was read.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Messages, also those that are results, and reasoning.
    texts: Used,
    calls: Used,
    /// Open calls, the newest last.
    open: VecDeque<Call>,
    /// Open steps with their spans, the newest last: the end of a step need not repeat the name.
    steps: VecDeque<(SpanId, String)>,
    /// How often the run was resumed.
    resumed: usize,
}

#[derive(Debug)]
struct Call {
    /// Of its id.
    hash: u64,
    /// Which use of the id it is.
    number: u32,
    /// Its name, unless that is longer than [`CALL_NAME_BYTES_MAX`].
    name: Option<String>,
    span: Option<SpanId>,
    args: u64,
    /// Whether the call was started; before that, an interrupt was about it.
    is_made: bool,
    resumed: usize,
}

impl Names {
    /// The meaning of an event, with names in place of ids.
    pub(super) fn of<'a>(&mut self, frame: &'a Frame) -> Cow<'a, What> {
        let (what, span) = (frame.meaning(), frame.span_id.as_ref());
        if let Closes::Span(span) = Closes::of(&frame.event_type, span)
            && !matches!(what, What::Text { .. })
        {
            self.texts.take(span.as_str());
        }
        match what {
            What::ToolStarted { tool_call_id, args, .. } => {
                let name = self.begin(tool_call_id, span, args.as_ref());
                renamed(what, Some(name), None)
            }
            What::ToolCompleted { tool_call_id, message_id, .. }
            | What::ToolFailed { tool_call_id, message_id, .. } => {
                let name = self.end(tool_call_id, span);
                renamed(what, Some(name), message_id.as_ref().map(|id| self.texts.take(id)))
            }
            What::InterruptRequested { tool_call_id: Some(id), .. } => {
                let name = self.ask(id, frame.payload().members().raw("args").as_ref());
                renamed(what, Some(name), None)
            }
            What::Text { text, .. } => {
                let name = self.texts.take(text.span.as_str());
                renamed(what, None, Some(name))
            }
            What::RunResumed => {
                self.resumed += 1;
                Cow::Borrowed(what)
            }
            What::StepStarted { name } => {
                if let Some(span) = span.filter(|_| name.len() <= KEY_CHARS_MAX) {
                    push(&mut self.steps, (span.clone(), name.clone()));
                }
                Cow::Borrowed(what)
            }
            What::StepEnded { error, .. } => {
                let known = self.steps.iter().rposition(|(begun, _)| Some(begun) == span);
                match known.and_then(|at| self.steps.remove(at)) {
                    Some((_, name)) => Cow::Owned(What::StepEnded { name, error: error.clone() }),
                    None => Cow::Borrowed(what),
                }
            }
            _ => Cow::Borrowed(what),
        }
    }

    /// The name of the open text of a span.
    pub(super) fn text(&self, span: &SpanId) -> SpanId {
        match self.texts.next(span.as_str()) {
            1 => span.clone(),
            number => fitting(&numbered(span.as_str(), number)),
        }
    }

    /// Names a started call: a new one, unless an interrupt was about it or it is repeated after the run was resumed.
    fn begin(&mut self, id: &str, span: Option<&SpanId>, args: Option<&Json>) -> String {
        let (hash, args, resumed) = (self.calls.hash(id), self.calls.hash_of(args), self.resumed);
        let is_known =
            |call: &Call| call.hash == hash && (!call.is_made || (call.args == args && call.resumed < resumed));
        if let Some(call) = self.open.iter_mut().rev().find(|call| is_known(call)) {
            (call.is_made, call.resumed) = (true, resumed);
            call.span = span.cloned();
            return numbered(id, call.number);
        }
        self.open(id, span, args, true)
    }

    /// Names the call of an interrupt: one that is open, or that was not started yet.
    fn ask(&mut self, id: &str, args: Option<&Json>) -> String {
        let (hash, args) = (self.calls.hash(id), self.calls.hash_of(args));
        let is_known = |call: &&Call| call.hash == hash && (call.is_made || call.args == args);
        if let Some(call) = self.open.iter().rev().find(is_known) {
            return numbered(id, call.number);
        }
        self.open(id, None, args, false)
    }

    fn open(&mut self, id: &str, span: Option<&SpanId>, args: u64, is_made: bool) -> String {
        let (hash, number) = (self.calls.hash(id), self.calls.take_number(id));
        let (name, span, resumed) = (numbered(id, number), span.cloned(), self.resumed);
        let kept = Some(&name).filter(|name| name.len() <= CALL_NAME_BYTES_MAX).cloned();
        push(&mut self.open, Call { hash, number, name: kept, span, args, is_made, resumed });
        name
    }

    /// Names the call that ends: the newest open one with the id on the span, else with the id, as in the waterfall. An
    /// end that names only its span has the span for an id.
    fn end(&mut self, id: &str, span: Option<&SpanId>) -> String {
        let hash = self.calls.hash(id);
        let is_on_span = |call: &Call| span.is_some() && call.span.as_ref() == span;
        let newest = |is: &dyn Fn(&Call) -> bool| self.open.iter().rposition(is);
        let by_id = newest(&|call| call.hash == hash && is_on_span(call)).or_else(|| newest(&|call| call.hash == hash));
        let by_span = || newest(&|call| span.is_some_and(|span| span.as_str() == id) && is_on_span(call));
        match by_id.or_else(by_span).and_then(|at| self.open.remove(at)) {
            Some(Call { name: Some(name), .. }) => name,
            Some(Call { number, .. }) if by_id.is_some() => numbered(id, number),
            _ => self.calls.take(id),
        }
    }
}

/// How often each of the newest ids was used. Ids are kept as hashes, so each takes the same memory.
#[derive(Debug, Default)]
struct Used {
    hasher: RandomState,
    /// The newest by their hashes, and the generation before.
    newer: HashMap<u64, u32>,
    older: HashMap<u64, u32>,
}

impl Used {
    fn hash_of(&self, args: Option<&Json>) -> u64 {
        self.hasher.hash_one(args.map(Json::as_str))
    }

    fn hash(&self, id: &str) -> u64 {
        self.hasher.hash_one(id)
    }

    fn count(&self, id: &str) -> u32 {
        let hash = self.hash(id);
        self.newer.get(&hash).or_else(|| self.older.get(&hash)).copied().unwrap_or(0)
    }

    fn note(&mut self, id: &str, count: u32) {
        if self.newer.len() >= CHAT_NAMES_MAX {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(self.hasher.hash_one(id), count);
    }

    /// The number for the next use of an id: one whose name is not itself an id in use.
    fn next(&self, id: &str) -> u32 {
        let next = self.count(id) + 1;
        (next..u32::MAX).find(|number| *number == 1 || self.count(&numbered(id, *number)) == 0).unwrap_or(next)
    }

    /// Uses an id once more; returns the number of this use.
    fn take_number(&mut self, id: &str) -> u32 {
        let number = self.next(id);
        self.note(id, number);
        if number > 1 {
            self.note(&numbered(id, number), 1);
        }
        number
    }

    fn take(&mut self, id: &str) -> String {
        numbered(id, self.take_number(id))
    }
}

/// Longest name of an open call that is kept for an end without the call's id, bytes.
const CALL_NAME_BYTES_MAX: usize = 1024;

/// The name of the n-th use of an id.
fn numbered(id: &str, number: u32) -> String {
    if number == 1 { id.to_owned() } else { format!("{id}~{number}") }
}

/// A name as a span id; one that is too long becomes a digest, as for the ids of AG-UI endpoints.
fn fitting(name: &str) -> SpanId {
    name.parse().unwrap_or_else(|_| SpanId::trusted(&format!("id-{}", &hex::encode(Sha256::digest(name))[..32])))
}

fn push<T>(kept: &mut VecDeque<T>, new: T) {
    if kept.len() >= CHAT_RECENT_MAX {
        kept.pop_front();
    }
    kept.push_back(new);
}

/// The meaning with new names for its call and its message.
fn renamed(what: &What, call: Option<String>, message: Option<String>) -> Cow<'_, What> {
    let mut named = Cow::Borrowed(what);
    match what {
        What::Text { text, .. } => {
            if let Some(name) = message.filter(|name| name != text.span.as_str())
                && let What::Text { text, .. } = named.to_mut()
            {
                text.span = fitting(&name);
            }
        }
        What::ToolStarted { tool_call_id, .. } | What::InterruptRequested { tool_call_id: Some(tool_call_id), .. } => {
            if let Some(name) = call.filter(|name| name != tool_call_id)
                && let What::ToolStarted { tool_call_id, .. }
                | What::InterruptRequested { tool_call_id: Some(tool_call_id), .. } = named.to_mut()
            {
                *tool_call_id = name;
            }
        }
        What::ToolCompleted { tool_call_id, message_id, .. } | What::ToolFailed { tool_call_id, message_id, .. } => {
            if (call.as_ref() != Some(tool_call_id) || message != *message_id)
                && let What::ToolCompleted { tool_call_id, message_id, .. }
                | What::ToolFailed { tool_call_id, message_id, .. } = named.to_mut()
            {
                (*tool_call_id, *message_id) = (call.unwrap_or_default(), message);
            }
        }
        _ => {}
    }
    named
}
