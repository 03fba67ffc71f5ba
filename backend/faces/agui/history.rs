//! What a run said, for readers that join. It is kept as the frames that all readers share, and put together when somebody
//! is told of it.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use serde_json::{Map, Value, json};

use super::{
    Names,
    calls::{failure, plain},
    messages::Messages,
    texts::role,
};
use crate::{
    bus::Frame,
    domain::{
        id::SpanId,
        json::Json,
        limits::AGUI_HISTORY_BYTES_MAX,
        meaning::{What, content_of},
    },
    faces::conversation::Event,
    store::threads::Message,
};

/// What is not in the run's log.
#[derive(Debug, Default)]
pub struct Earlier {
    /// The messages of the thread before the run, oldest first; they count unless the run's input brings its own.
    messages: Vec<Value>,
    /// The run's input, if it was too large for the log.
    pub input: Option<Json>,
}

impl Earlier {
    /// Adds a message of an earlier run.
    pub fn push(&mut self, message: &Message) {
        let span = message.message_id.clone().unwrap_or_else(|| format!("event-{}", message.seq));
        let id = format!("{}/{span}", message.run_id);
        let role: String = message.payload.member("role").unwrap_or_else(|| "assistant".to_owned());
        let content = content_of(&message.payload).unwrap_or_default();
        let mut said = super::messages::message(&id, &role, &content);
        if let Some(call) = message.payload.member::<String>("tool_call_id") {
            said["toolCallId"] = json!(call);
        }
        if ["user", "assistant", "system", "developer"].contains(&role.as_str()) || !said["toolCallId"].is_null() {
            self.messages.push(said);
        }
    }
}

#[derive(Debug)]
pub(super) struct History {
    names: Names,
    earlier: Earlier,
    created: Option<Arc<Frame>>,
    /// What messages are made of, the newest.
    said: VecDeque<Arc<Frame>>,
    bytes: usize,
    /// The last snapshot of the state and the deltas since.
    state: Vec<Arc<Frame>>,
    activities: Vec<Arc<Frame>>,
    /// Complete texts.
    texts: HashSet<SpanId>,
    /// The message of each call that a message announced.
    announced: HashMap<String, SpanId>,
    has_own_ids: bool,
}

/// An event of the family `agui` in AG-UI's own spelling: `tool_call_id` is `toolCallId`.
pub(super) fn renamed(word: &str, payload: &Json) -> Value {
    let mut event = Map::from_iter([("type".to_owned(), json!(word.to_ascii_uppercase()))]);
    let members: Map<String, Value> = serde_json::from_str(payload.as_str()).unwrap_or_default();
    for (name, value) in members {
        let mut words = name.split('_');
        let first = words.next().unwrap_or_default().to_owned();
        let name = words.fold(first, |name, word| {
            let mut letters = word.chars();
            let initial = letters.next().map(|letter| letter.to_ascii_uppercase());
            name + &initial.into_iter().chain(letters).collect::<String>()
        });
        event.insert(name, value);
    }
    Value::Object(event)
}

impl History {
    pub(super) fn new(names: Names, earlier: Earlier) -> Self {
        Self {
            names,
            earlier,
            created: None,
            said: VecDeque::new(),
            bytes: 0,
            state: Vec::new(),
            activities: Vec::new(),
            texts: HashSet::new(),
            announced: HashMap::new(),
            has_own_ids: false,
        }
    }

    /// An id of the run as its client knows it: its agent's own if the run's input is a whole `RunAgentInput`, whose
    /// agent's ids are those of the client's conversation; otherwise the run's id stands before it.
    pub(super) fn id(&self, id: &str) -> String {
        if self.has_own_ids { id.to_owned() } else { format!("{}/{id}", self.names.run) }
    }

    /// The message that a call belongs to.
    pub(super) fn parent_of(&self, call: &str, parent: Option<&SpanId>) -> Option<String> {
        let parent = self.announced.get(call).or(parent)?;
        (self.has_own_ids || self.texts.contains(parent)).then(|| self.id(parent.as_str()))
    }

    /// Keeps an event that tells what is.
    pub(super) fn keep(&mut self, event: &Event<'_>) {
        match event.what {
            What::RunCreated => {
                self.has_own_ids = input(event.frame).is_some_and(|input| {
                    let members = input.members();
                    // A pointer to a large input has its ids beside it.
                    let has_messages = members.raw("messages").or_else(|| members.raw("$artifact")).is_some();
                    has_messages && members.raw("runId").is_some()
                });
                self.created = Some(Arc::clone(event.frame));
            }
            What::Text { text, tool_call_ids, .. } => {
                self.texts.insert(text.span.clone());
                self.announced.extend(tool_call_ids.iter().map(|call| (call.clone(), text.span.clone())));
                self.push(event.frame);
            }
            What::ToolStarted { .. } | What::ToolCompleted { .. } | What::ToolFailed { .. } => self.push(event.frame),
            What::InterruptRequested { .. } if event.payload.raw_member("tool").is_some() => self.push(event.frame),
            What::Other => match event.frame.event_type.as_str() {
                "agui.messages_snapshot" => {
                    (self.said, self.bytes) = (VecDeque::new(), 0);
                    self.push(event.frame);
                }
                "agui.state_snapshot" => self.state = vec![Arc::clone(event.frame)],
                "agui.state_delta" => self.state.push(Arc::clone(event.frame)),
                "agui.activity_snapshot" | "agui.activity_delta" => self.activities.push(Arc::clone(event.frame)),
                _ => {}
            },
            _ => {}
        }
    }

    fn push(&mut self, frame: &Arc<Frame>) {
        self.bytes += frame.block().len();
        self.said.push_back(Arc::clone(frame));
        while self.bytes > AGUI_HISTORY_BYTES_MAX
            && let Some(oldest) = self.said.pop_front()
        {
            self.bytes = self.bytes.saturating_sub(oldest.block().len());
        }
    }

    /// The conversation so far: what came with the run's input, or else the thread's earlier messages, and those of the
    /// run.
    pub(super) fn messages(&self) -> Messages {
        let mut messages = Messages::new();
        let input = self.earlier.input.clone().or_else(|| self.created.as_ref().and_then(input));
        messages.begin(&self.names, if self.has_own_ids { &[] } else { &self.earlier.messages }, input.as_ref());
        let mut calls = HashSet::new();
        for frame in &self.said {
            let event = Event::of(frame);
            match event.what {
                What::Text { text, content, .. } => {
                    let content = content.as_deref().unwrap_or_default();
                    messages.text(&self.id(text.span.as_str()), role(text), content, event.payload);
                }
                What::ToolStarted { tool_call_id, name, args, .. } if calls.insert(tool_call_id.clone()) => {
                    self.call(tool_call_id, name, args.as_ref(), frame.parent_span_id.as_ref(), &mut messages);
                }
                What::ToolCompleted { tool_call_id, result, message_id, .. } => {
                    let content = result.as_ref().map(plain).unwrap_or_default();
                    messages.result(message_id.as_deref(), &self.id(tool_call_id), &content);
                }
                What::ToolFailed { tool_call_id, error, message_id, .. } => {
                    messages.result(message_id.as_deref(), &self.id(tool_call_id), &failure(error.as_ref()));
                }
                What::InterruptRequested { .. } => {
                    let payload = event.payload.members();
                    let (call, tool) = (payload.read::<String>("tool_call_id"), payload.read::<String>("tool"));
                    if let (Some(call), Some(tool)) = (call, tool)
                        && calls.insert(call.clone())
                    {
                        self.call(&call, &tool, payload.raw("args").as_ref(), None, &mut messages);
                    }
                }
                What::Other => messages.replace(event.payload.member("messages").unwrap_or_default()),
                _ => {}
            }
        }
        messages
    }

    fn call(&self, call: &str, name: &str, args: Option<&Json>, parent: Option<&SpanId>, messages: &mut Messages) {
        let args = args.map_or_else(|| "{}".to_owned(), plain);
        messages.call(&self.id(call), name, &args, self.parent_of(call, parent).as_deref());
    }

    /// The events that bring a reader with nothing to here.
    pub(super) fn prelude(&self) -> Vec<Value> {
        let state = self.state.iter().map(|frame| said(frame));
        let mut activities: Vec<Value> = Vec::new();
        for frame in &self.activities {
            let said = said(frame);
            if said["type"] == "ACTIVITY_SNAPSHOT" {
                activities.retain(|other| other["messageId"] != said["messageId"]);
            }
            activities.push(said);
        }
        state.chain([self.messages().snapshot()]).chain(activities).collect()
    }
}

/// A kept event of the family `agui` in AG-UI's words.
fn said(frame: &Frame) -> Value {
    let word = frame.event_type.as_str().strip_prefix("agui.").unwrap_or_default();
    renamed(word, &frame.meaning().payload)
}

fn input(created: &Arc<Frame>) -> Option<Json> {
    created.meaning().payload.raw_member("input")
}
