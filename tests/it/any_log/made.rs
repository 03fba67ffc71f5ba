//! Logs by chance: whatever a producer may write and the product accepts.

use std::{collections::BTreeMap, sync::Arc};

use chrono::DateTime;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};
use runreel::{
    bus::Frame,
    domain::{
        context::{Role, RunContext},
        event::{EventType, NewEvent, Recorded},
        history::Tag,
        id::{RunId, Seq, SpanId},
        json::Json,
        meaning::Kind,
        open::Closes,
        principal::OwnerId,
        run::{Status, decide},
        splice::LogPosition,
    },
};
use serde_json::{Value, json};

/// Ids that producers give again and again.
const IDS: [&str; 7] = ["a", "b", "search:0", "a~2", "é ~,/%", "s1", "a~2~2"];
/// Ids of the messages that results are: no text of a run has one of them.
const RESULTS: [&str; 3] = ["r", "r~2", "é/result"];
const NAMES: [&str; 3] = ["plan", "search", ""];

/// The text so far of a span.
#[derive(Clone, Debug)]
pub struct Open {
    pub event: EventType,
    pub role: Option<&'static str>,
    pub text: String,
}

/// What happened, and which texts are open after it.
pub struct Moment {
    pub frame: Arc<Frame>,
    pub open: BTreeMap<SpanId, Open>,
}

/// A log, and what its clients have to know in the end: each of these values is there once.
#[derive(Default)]
pub struct Log {
    pub moments: Vec<Moment>,
    pub args: Vec<String>,
    pub results: Vec<String>,
    pub texts: Vec<String>,
}

pub fn run_id() -> RunId {
    "0198c0de-0000-7000-8000-000000000001".parse().unwrap()
}

struct Maker {
    random: StdRng,
    context: Arc<RunContext>,
    log: Log,
    status: Status,
    seq: i64,
    open: BTreeMap<SpanId, Open>,
    /// Questions without an answer.
    asked: Vec<SpanId>,
    count: usize,
}

/// The log of this seed.
pub fn log(seed: u64) -> Log {
    let context = RunContext {
        run_id: run_id(),
        root_run_id: run_id(),
        parent_run_id: None,
        owner_id: OwnerId::trusted("o"),
        thread_id: None,
        session_id: None,
        role: Role::Agent,
        agent: None,
        origin: None,
        trace_id: None,
    };
    let mut maker = Maker {
        random: StdRng::seed_from_u64(seed),
        context: Arc::new(context),
        log: Log::default(),
        status: Status::Queued,
        seq: 0,
        open: BTreeMap::new(),
        asked: Vec::new(),
        count: 0,
    };
    let whole = maker.random.random_bool(0.2);
    let message = json!({"id": "u", "role": "user", "content": "x"});
    let input = if whole { json!({"runId": "r0", "messages": [message]}) } else { json!({"text": "x"}) };
    maker.emit("run.created", None, None, &json!({"input": input}));
    maker.emit("run.started", None, None, &json!({}));
    for _ in 0..maker.random.random_range(0..40) {
        // A run that waits does nothing else.
        if maker.status == Status::Interrupted { maker.resume() } else { maker.step() }
    }
    let end = *["run.completed", "run.failed", "run.cancelled"].choose(&mut maker.random).unwrap();
    if maker.status == Status::Interrupted || maker.status == Status::Waiting {
        maker.resume();
    }
    let payload = [json!({"output": null}), json!({"output": {"response": "x"}}), json!({"error": "x"}), json!({})];
    let payload = payload.choose(&mut maker.random).unwrap().clone();
    maker.emit(end, None, None, &payload);
    maker.log
}

impl Maker {
    fn chance(&mut self, probability: f64) -> bool {
        self.random.random_bool(probability)
    }

    fn unique(&mut self, what: &str) -> String {
        self.count += 1;
        format!("{what} {}", self.count)
    }

    fn id(&mut self) -> &'static str {
        IDS.choose(&mut self.random).unwrap()
    }

    fn span(&mut self) -> SpanId {
        let long = self.chance(0.03);
        let id = self.id();
        if long { "x".repeat(128) } else { id.to_owned() }.parse().unwrap()
    }

    fn maybe_span(&mut self) -> Option<SpanId> {
        let span = self.span();
        Some(span).filter(|_| self.chance(0.8))
    }

    /// Adds an event, unless the run would refuse it; tells whether it was added.
    fn emit(&mut self, kind: &str, span: Option<SpanId>, parent: Option<SpanId>, payload: &Value) -> bool {
        let event_type: EventType = kind.parse().unwrap();
        let Ok(status) = decide(self.status, [&event_type]) else { return false };
        self.status = status;
        self.seq += 1;
        let mut event = NewEvent::new(EventType::trusted(kind), Json::of(payload)).parent_span(parent);
        event.span_id = span;
        match Closes::of(&event_type, event.span_id.as_ref()) {
            Closes::Nothing => {}
            Closes::Span(span) => _ = self.open.remove(span),
            Closes::Run => self.open.clear(),
        }
        self.push(event, Some(self.seq));
        true
    }

    fn push(&mut self, event: NewEvent, seq: Option<i64>) {
        let seq = seq.and_then(Seq::new);
        let recorded = Recorded::stamp(&self.context, event, seq, DateTime::UNIX_EPOCH);
        let place = seq.map(|seq| LogPosition { seq, lane: 0, position: seq.get() });
        let frame = Arc::new(Frame::new(Arc::clone(&self.context), &recorded, place, Tag::FIRST));
        self.log.moments.push(Moment { frame, open: self.open.clone() });
    }

    fn step(&mut self) {
        match self.random.random_range(0..100) {
            0..35 => self.token(),
            35..48 => self.text(),
            48..60 => self.call(),
            60..70 => self.call_ends(),
            70..80 => self.part("step"),
            80..86 => self.ask(),
            86..90 => _ = self.emit("run.interrupted", None, None, &json!({})),
            90..93 => self.resume(),
            93..94 => _ = self.emit("run.waiting", None, None, &json!({})),
            94..97 => self.agui(),
            _ => self.other(),
        }
    }

    fn token(&mut self) {
        // While it is written, nobody else's second text has the name of this one.
        let span = self.span();
        let span = if span.as_str().ends_with("~2") { "a".parse().unwrap() } else { span };
        let kind = ["message.delta", "reasoning.delta"];
        let kind = if self.chance(0.7) { kind[0] } else { kind[1] };
        let text = if self.chance(0.05) { String::new() } else { self.unique("é") };
        let role = [None, None, Some("assistant"), Some("user"), Some("tool"), Some("system")];
        let role = *role.choose(&mut self.random).unwrap();
        let new = || Open { event: kind.parse().unwrap(), role, text: String::new() };
        let open = self.open.entry(span.clone()).or_insert_with(new);
        let mut payload = json!({"text": text, "offset": open.text.chars().count()});
        open.text.push_str(&text);
        if let Some(role) = role {
            payload["role"] = json!(role);
        }
        self.push(NewEvent::new(EventType::trusted(kind), Json::of(&payload)).span(span), None);
    }

    fn text(&mut self) {
        let span = self.maybe_span();
        let open = span.as_ref().and_then(|span| self.open.get(span)).cloned();
        let is_reasoning = open.as_ref().map(|open| Kind::of(&open.event) == Some(Kind::Reasoning));
        let is_reasoning = is_reasoning.filter(|_| self.random.random_bool(0.9)).unwrap_or(false);
        let role = ["assistant", "assistant", "user", "tool", "system", "developer", "other"];
        let role = *role.choose(&mut self.random).unwrap();
        // Tokens and the event of a text have one role.
        let role = open.as_ref().map_or(role, |open| open.role.unwrap_or("assistant"));
        let whole = open.map(|open| open.text).filter(|_| self.random.random_bool(0.8));
        let text = whole.filter(|text| !text.is_empty()).unwrap_or_else(|| self.unique("text"));
        let mut payload = match self.random.random_range(0..8) {
            0 => json!({}),
            1 => json!({"content": ""}),
            2 => json!({"content": [{"type": "text", "text": text}, {"type": "image", "url": "x"}]}),
            _ => json!({"content": text}),
        };
        if payload["content"] == text.as_str() && role == "assistant" && !is_reasoning {
            self.log.texts.push(text);
        }
        payload["role"] = json!(role);
        if self.chance(0.3) {
            payload["tool_calls"] = json!([{"id": self.id()}, {"id": 7}]);
        }
        let parent = self.maybe_span();
        self.emit(if is_reasoning { "reasoning.completed" } else { "message.completed" }, span, parent, &payload);
    }

    fn call(&mut self) {
        let args = self.unique("args");
        let mut payload = json!({"name": NAMES.choose(&mut self.random).unwrap(), "args": {"q": args}});
        if self.chance(0.8) {
            payload["tool_call_id"] = json!(self.id());
        }
        if self.chance(0.2) {
            payload["client"] = json!(true);
        }
        let (span, parent) = (self.maybe_span(), self.maybe_span());
        // A question may have told them before.
        if self.emit("tool.started", span, parent, &payload) && !self.log.has("interrupt.requested") {
            self.log.args.push(args);
        }
    }

    fn call_ends(&mut self) {
        let (result, failed) = (self.unique("result"), self.chance(0.3));
        let mut payload = if failed { json!({"error": {"message": result}}) } else { json!({"result": result}) };
        if self.chance(0.7) {
            payload["tool_call_id"] = json!(self.id());
        }
        if self.chance(0.2) {
            payload["message_id"] = json!(RESULTS.choose(&mut self.random).unwrap());
        }
        let span = self.maybe_span();
        if self.emit(if failed { "tool.failed" } else { "tool.completed" }, span, None, &payload) {
            self.log.results.push(result);
        }
    }

    fn part(&mut self, family: &str) {
        let word = *["started", "started", "completed", "failed"].choose(&mut self.random).unwrap();
        let payload =
            if self.chance(0.7) { json!({"name": NAMES.choose(&mut self.random).unwrap()}) } else { json!({}) };
        // A span may be its own parent.
        let (span, parent) = (self.maybe_span(), self.maybe_span().filter(|_| self.random.random_bool(0.5)));
        self.emit(&format!("{family}.{word}"), span, parent, &payload);
    }

    fn ask(&mut self) {
        // A question has an id of its own; one that a call has too is frequent.
        let is_asked = |span: &str| {
            let of_span = |moment: &Moment| moment.frame.span_id.as_ref().is_some_and(|asked| asked.as_str() == span);
            self.log.moments.iter().any(|moment| of_span(moment) && kind(moment) == "interrupt.requested")
        };
        let Some(span) = IDS.into_iter().find(|id| !is_asked(id)) else { return };
        let span: SpanId = span.parse().unwrap();
        let kind = *["approval", "question", "form"].choose(&mut self.random).unwrap();
        let mut payload = json!({"kind": kind});
        for (name, value) in [
            ("tool_call_id", json!(self.id())),
            ("tool", json!("delete")),
            ("args", json!({"n": self.count})),
            ("prompt", json!("May I?")),
            ("metadata", json!(7)),
            ("response_schema", json!([])),
        ] {
            if self.chance(0.5) {
                payload[name] = value;
            }
        }
        if self.emit("interrupt.requested", Some(span.clone()), None, &payload) {
            self.asked.push(span);
        }
    }

    /// A person answers, or some time goes by.
    fn resume(&mut self) {
        if self.status == Status::Interrupted || self.chance(0.3) {
            for span in std::mem::take(&mut self.asked) {
                let decision = *["approve", "reject", "respond", "cancelled"].choose(&mut self.random).unwrap();
                self.emit("interrupt.resolved", Some(span), None, &json!({"decision": decision, "value": "because"}));
            }
        }
        self.emit("run.resumed", None, None, &json!({}));
    }

    fn agui(&mut self) {
        let patch = json!([{"op": "add", "path": "/n", "value": 1}]);
        let events = [
            ("state_snapshot", json!({"snapshot": {"a": 1}})),
            ("state_delta", json!({"delta": patch})),
            ("state_delta", json!({"delta": [{"op": "add"}]})),
            ("activity_snapshot", json!({"message_id": "act", "activity_type": "x", "content": {}})),
            ("activity_snapshot", json!({"message_id": 7})),
            (
                "messages_snapshot",
                json!({"messages": [{"id": "u", "role": "user", "content": [{"type": "image"}]}, 7]}),
            ),
            ("subagent_started", json!({"subagent_run_id": self.id(), "name": "sub"})),
            ("subagent_finished", json!({"subagent_run_id": self.id()})),
            ("subagent_error", json!({"subagent_run_id": self.id(), "message": "x"})),
            (
                "subagent_started",
                json!({"subagent_run_id": self.id(), "name": "sub", "parent_subagent_run_id": self.id()}),
            ),
            ("reasoning_encrypted_value", json!({"subtype": "message", "entity_id": "a", "encrypted_value": "x"})),
            ("usage", json!({"usage": [{"inputTokens": 1.5}]})),
            ("custom", json!({"value": 1})),
            ("raw", json!({})),
            ("unheard_of", json!({"type": "RUN_STARTED"})),
        ];
        let (word, payload) = events.choose(&mut self.random).unwrap();
        // A snapshot is of the whole conversation, also of what is being written.
        if *word == "messages_snapshot" && !self.open.is_empty() {
            return;
        }
        self.emit(&format!("agui.{word}"), None, None, payload);
    }

    fn other(&mut self) {
        let kind = *["custom.x", "log.info", "artifact.created", "state.checkpointed", "worker.spawned", "text.start"]
            .choose(&mut self.random)
            .unwrap();
        let (span, payload) = (self.maybe_span(), [json!({}), json!(null), json!([1]), json!({"type": "finish"})]);
        let payload = payload.choose(&mut self.random).unwrap().clone();
        self.emit(kind, span, None, &payload);
    }
}

fn kind(moment: &Moment) -> &str {
    moment.frame.event_type.as_str()
}

impl Log {
    pub fn has(&self, wanted: &str) -> bool {
        self.moments.iter().any(|moment| kind(moment) == wanted)
    }
}
