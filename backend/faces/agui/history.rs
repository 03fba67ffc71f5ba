//! The state of a joining reader: collected within bounds while the log is read, and dropped once sent.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value, json};

use super::{
    Said,
    ids::Ids,
    messages::{Messages, shaped},
    shapes,
    texts::role,
};
use crate::{
    domain::{
        id::RunId,
        json::{Json, JsonSlice},
        limits::{AGUI_KEPT_BYTES_MAX, REPLY_FREE_BYTES},
        meaning::{What, content_of},
    },
    faces::conversation::Event,
    quota::Share,
    store::threads::Message,
};

/// Overhead of an event beside its text, in bytes.
const EVENT_BYTES: usize = 64;

/// Messages that are not in the run's log: those of earlier runs, and of the run's input.
#[derive(Debug)]
pub struct Earlier {
    run: RunId,
    messages: Messages,
    room: Share,
}

impl Earlier {
    /// Empty; `room` is the memory reserved for everything sent on joining.
    pub fn new(run: RunId, room: Share) -> Self {
        Self { run, messages: Messages::default(), room }
    }

    /// Adds messages of earlier runs of the thread, given newest first.
    pub fn said(&mut self, newest_first: &[Message]) {
        for message in newest_first.iter().rev() {
            let span = message.message_id.clone().unwrap_or_else(|| format!("event-{}", message.seq));
            let id = format!("{}/{span}", message.run_id);
            let role: String = message.payload.member("role").unwrap_or_else(|| "assistant".to_owned());
            let call: Option<String> = message.payload.member("tool_call_id");
            if call.is_some() || ["user", "assistant", "system", "developer"].contains(&&*role) {
                let content = content_of(message.payload.slice()).unwrap_or_default();
                self.messages.text(&id, &role, &content, call.as_deref());
            }
        }
    }

    /// Adds the messages of the run's input.
    pub fn asked(&mut self, input: JsonSlice<'_>) {
        self.messages.bring(self.run, input);
    }
}

#[derive(Debug)]
pub(super) struct History {
    run: RunId,
    pub(super) messages: Messages,
    state: State,
    activities: Activities,
    room: Share,
}

impl History {
    pub(super) fn after(earlier: Earlier) -> Self {
        let Earlier { run, messages, room } = earlier;
        Self { run, messages, state: State::default(), activities: Activities::default(), room }
    }

    /// Keeps a complete text.
    pub(super) fn text(&mut self, ids: &Ids, event: &Event<'_>) {
        let What::Text { text, content, .. } = event.what else { return };
        let role = role(text);
        let call = || event.payload().member::<String>("tool_call_id").unwrap_or_default();
        let call = (role == "tool").then(call);
        let content = content.as_deref().unwrap_or_default();
        self.messages.text(&ids.of(text.span.as_str()), role, content, call.as_deref());
    }

    /// Keeps an `agui.*` event; `None` is one that does not match its schema.
    pub(super) fn event(&mut self, word: &str, event: Option<Value>) {
        let Some(event) = event else { return };
        match word {
            "messages_snapshot" => self.messages.replace(self.run, Json::of(&event).slice()),
            "state_snapshot" => self.state = State::default().with(event.to_string()),
            "state_delta" => self.state = std::mem::take(&mut self.state).with(event.to_string()),
            "activity_snapshot" | "activity_delta" => {
                let id = event["messageId"].as_str().unwrap_or_default();
                self.activities.keep(id, event.to_string(), word == "activity_snapshot");
            }
            _ => {}
        }
    }

    /// Emits everything; returns the share of memory to hold until it is written.
    pub(super) fn tell(self, out: &mut Vec<Said>) -> Share {
        let Self { messages, state, activities, mut room, .. } = self;
        out.extend(state.events.into_iter().map(Said::of_json));
        out.push(Said::of_json(messages.snapshot()));
        out.extend(activities.by_age.into_values().flat_map(|activity| activity.events).map(Said::of_json));
        let bytes: usize = out.iter().map(|event| event.json.len()).sum();
        room.shrink(bytes / usize::try_from(REPLY_FREE_BYTES).unwrap_or(usize::MAX));
        room
    }
}

/// The last state snapshot and the deltas since. Beyond the bound, nothing is kept until the next snapshot.
#[derive(Debug, Default)]
struct State {
    events: Vec<String>,
    bytes: usize,
}

impl State {
    fn with(mut self, event: String) -> Self {
        self.bytes = self.bytes.saturating_add(event.len() + EVENT_BYTES);
        if self.bytes > AGUI_KEPT_BYTES_MAX {
            self.events = Vec::new();
        } else {
            self.events.push(event);
        }
        self
    }
}

/// The last snapshot of each activity and the deltas since; beyond the bound, the oldest are dropped.
#[derive(Debug, Default)]
struct Activities {
    by_age: BTreeMap<usize, Activity>,
    by_id: HashMap<String, usize>,
    begun: usize,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Activity {
    id: String,
    events: Vec<String>,
    bytes: usize,
}

impl Activities {
    fn keep(&mut self, id: &str, event: String, is_snapshot: bool) {
        if is_snapshot {
            self.remove(id);
            self.by_id.insert(id.to_owned(), self.begun);
            self.by_age.insert(self.begun, Activity { id: id.to_owned(), ..Activity::default() });
            self.begun += 1;
        }
        let Some(activity) = self.by_id.get(id).and_then(|age| self.by_age.get_mut(age)) else { return };
        let bytes = event.len() + EVENT_BYTES + if is_snapshot { 2 * id.len() } else { 0 };
        (activity.bytes, self.bytes) = (activity.bytes + bytes, self.bytes + bytes);
        activity.events.push(event);
        while self.bytes > AGUI_KEPT_BYTES_MAX
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.bytes -= oldest.bytes;
            self.by_id.remove(&oldest.id);
        }
    }

    fn remove(&mut self, id: &str) {
        let known = self.by_id.remove(id).and_then(|age| self.by_age.remove(&age));
        self.bytes -= known.map_or(0, |activity| activity.bytes);
    }
}

/// An `agui.*` event with AG-UI's member names: `tool_call_id` becomes `toolCallId`. The payload cannot set `type` or
/// `timestamp`. `None` if the result does not match its schema.
pub(super) fn renamed(word: &str, payload: JsonSlice<'_>) -> Option<Value> {
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
        // A continuation belongs to the subagent that began it.
        let is_of_the_beginning =
            name == "subagentRunId" && matches!(word, "activity_delta" | "reasoning_encrypted_value");
        if !matches!(&*name, "type" | "timestamp") && !is_of_the_beginning {
            event.insert(name, value);
        }
    }
    let mut event = Value::Object(event);
    if word == "messages_snapshot"
        && let Some(Value::Array(messages)) = event.get_mut("messages")
    {
        let given = std::mem::take(messages).into_iter().enumerate();
        messages.extend(given.filter_map(|(n, message)| shaped(message, || format!("snapshot.{n}"))));
    }
    shapes::fits(word, &event).then_some(event)
}
