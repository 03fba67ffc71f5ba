//! [`Answer`]: the part of an answer read so far, in any provider's format.

use super::{
    calls::Calls,
    error::{self, too_long},
    ids::{Ids, mark},
};
use crate::{
    agents::model::{Completion, Delta, Deltas, Finish, Message, MessageRole, ModelError, ModelErrorKind, Part, Usage},
    config::models::Kind,
    domain::{
        lenient::{Halves, Unread, UnreadMembers},
        limits::MODEL_ANSWER_BYTES_MAX,
    },
};

/// Prefix of a signature that holds a whole block of its provider's format.
pub(super) const BLOCK: &str = "block:";
/// Maximum separate thoughts of an answer.
const BLOCKS_MAX: usize = 1_024;
/// Maximum member names in an error about an unreadable answer.
const NAMES_SHOWN_MAX: usize = 6;
/// Maximum characters of a name or a media type in such an error.
const WORD_CHARS_MAX: usize = 40;

/// Reads an answer from its events, in the format of a [`Kind`].
pub(super) struct Answer<'a, 'b> {
    kind: Kind,
    deltas: &'a mut Deltas<'b>,
    /// Whether a piece was passed to the caller.
    pub told: bool,
    text: Written,
    thoughts: Written,
    /// Thoughts that their provider expects back.
    blocks: Vec<Block>,
    pub calls: Calls,
    pub usage: Usage,
    /// Why it ended, in the provider's own term.
    pub finish: Option<String>,
    /// Whether an event was part of an answer, even of an empty one.
    pub heard: bool,
    /// Whether nothing more is expected.
    pub is_done: bool,
    /// The number of events and the shape of the first, for an error about an unreadable answer.
    events: usize,
    first: Option<String>,
}

#[derive(Default)]
struct Written {
    text: String,
    halves: Halves,
}

/// A thought that its provider expects back.
#[derive(Default)]
struct Block {
    /// The provider's number, which may repeat.
    number: i64,
    text: Written,
    signature: String,
}

impl<'a, 'b> Answer<'a, 'b> {
    pub(super) fn new(kind: Kind, deltas: &'a mut Deltas<'b>) -> Self {
        Self {
            kind,
            deltas,
            told: false,
            text: Written::default(),
            thoughts: Written::default(),
            blocks: Vec::new(),
            calls: Calls::default(),
            usage: Usage::default(),
            finish: None,
            heard: false,
            is_done: false,
            events: 0,
            first: None,
        }
    }

    /// Reads one event. Text that does not look like JSON is ignored: providers keep the connection alive with it.
    pub(super) fn read(&mut self, event: &str) -> Result<(), ModelError> {
        let event = event.trim();
        self.events += 1;
        let Some(unread) = Unread::parse(event) else {
            return match event {
                "[DONE]" => {
                    self.is_done = true;
                    self.first.get_or_insert_with(|| event.to_owned());
                    Ok(())
                }
                _ if event.starts_with(['{', '[']) => Err(error::broken()),
                _ => Ok(()),
            };
        };
        self.first.get_or_insert_with(|| shape(unread));
        let is_list = event.starts_with('[');
        let events: Vec<_> = if is_list { unread.items().collect() } else { vec![unread] };
        for event in events {
            let members = event.members();
            match self.kind {
                Kind::OpenAi => super::openai::read(self, &members)?,
                Kind::OpenAiResponses => super::responses::read(self, &members)?,
                Kind::Anthropic => super::anthropic::read(self, &members)?,
                Kind::Gemini => super::gemini::read(self, &members)?,
                Kind::Ollama => super::ollama::read(self, &members)?,
            }
        }
        let bytes = self.text.text.len() + self.thoughts.text.len() + self.signature_bytes() + self.calls.bytes();
        if bytes > MODEL_ANSWER_BYTES_MAX { Err(too_long()) } else { Ok(()) }
    }

    fn signature_bytes(&self) -> usize {
        self.blocks.iter().map(|block| block.text.text.len() + block.signature.len()).sum()
    }

    /// Adds a piece of the text; returns whether it was a string.
    pub(super) fn say(&mut self, piece: Option<Unread<'_>>) -> bool {
        let Some(piece) = piece.and_then(|piece| self.text.halves.join(piece)) else { return false };
        self.tell(piece, false);
        true
    }

    /// Adds a piece of the reasoning; returns whether it was a string.
    pub(super) fn think(&mut self, piece: Option<Unread<'_>>) -> bool {
        let Some(piece) = piece.and_then(|piece| self.thoughts.halves.join(piece)) else { return false };
        self.tell(piece, true);
        true
    }

    fn tell(&mut self, piece: String, is_thought: bool) {
        if piece.is_empty() {
            return;
        }
        self.told = true;
        let written = if is_thought { &mut self.thoughts } else { &mut self.text };
        written.text.push_str(&piece);
        (self.deltas)(if is_thought { Delta::Reasoning(piece) } else { Delta::Text(piece) });
    }

    /// Begins a thought: pieces with this number belong to it from here on.
    pub(super) fn begin_block(&mut self, number: i64) {
        if self.blocks.len() < BLOCKS_MAX {
            self.blocks.push(Block::default());
        }
        if let Some(last) = self.blocks.last_mut() {
            last.number = number;
        }
    }

    fn block(&mut self, number: i64) -> &mut Block {
        let known = self.blocks.iter().rposition(|block| block.number == number);
        let at = known.unwrap_or_else(|| {
            self.begin_block(number);
            self.blocks.len() - 1
        });
        &mut self.blocks[at]
    }

    /// Adds a piece of a thought that is stored with its signature.
    pub(super) fn think_in_block(&mut self, number: i64, piece: Option<Unread<'_>>) {
        let Some(piece) = piece.filter(|piece| self.think(Some(*piece))) else { return };
        let written = &mut self.block(number).text;
        written.text.extend(written.halves.join(piece));
    }

    /// Adds a piece of the signature of a thought.
    pub(super) fn sign(&mut self, number: i64, signature: &str) {
        self.block(number).signature.push_str(signature);
    }

    /// Adds a signature of the answer as a whole.
    pub(super) fn sign_answer(&mut self, signature: &str) {
        let is_known = self.blocks.iter().any(|block| block.signature == signature);
        if !signature.is_empty() && !is_known {
            self.begin_block(-1);
            self.sign(-1, signature);
        }
    }

    pub(super) fn has_text(&self) -> bool {
        !self.text.text.is_empty()
    }

    /// Whether the provider reported the end of the answer.
    pub(super) fn is_ended(&self) -> bool {
        match self.kind {
            Kind::OpenAi => self.is_done || self.finish.is_some(),
            Kind::Ollama => self.is_done,
            Kind::OpenAiResponses | Kind::Anthropic | Kind::Gemini => self.finish.is_some(),
        }
    }

    /// The complete answer. `media_type` is the one that the provider declared.
    pub(super) fn completion(
        mut self,
        ids: &Ids,
        earlier: &[Message],
        media_type: &str,
    ) -> Result<Completion, ModelError> {
        if matches!(finish(self.finish.as_deref()), Finish::Length | Finish::Filtered) {
            self.calls.cut();
        }
        let calls = std::mem::take(&mut self.calls).end()?;
        let has_content =
            self.has_text() || !self.thoughts.text.is_empty() || !calls.is_empty() || !self.blocks.is_empty();
        if !has_content && !self.heard {
            return Err(self.nothing(media_type));
        }
        if !self.is_ended() {
            return Err(error::cut());
        }
        let finish = finish(self.finish.as_deref());
        if calls.is_empty() && finish == Finish::ToolCalls {
            return Err(ModelError::new(
                ModelErrorKind::Transient,
                "the provider's response announces tool calls and has none that can be read",
            ));
        }
        let finish = if calls.is_empty() { finish } else { Finish::ToolCalls };
        for is_thought in [true, false] {
            let halves = if is_thought { &mut self.thoughts.halves } else { &mut self.text.halves };
            if let Some(half) = halves.end() {
                self.tell(half.to_string(), is_thought);
            }
        }
        let (usage, content) = (self.usage, self.content());
        let tool_calls = ids.ours(calls, earlier);
        let message = Message { role: MessageRole::Assistant, content, tool_calls, tool_call_id: None };
        Ok(Completion { message, usage, finish })
    }

    fn content(self) -> Vec<Part> {
        let mut content = Vec::new();
        let is_in_blocks = self.blocks.iter().any(|block| !block.text.text.is_empty());
        if !is_in_blocks && !self.thoughts.text.is_empty() {
            content.push(Part::Reasoning { text: self.thoughts.text, signature: None });
        }
        for mut block in self.blocks {
            block.text.text.extend(block.text.halves.end());
            let signature = (!block.signature.is_empty()).then(|| mark(self.kind, &block.signature));
            content.push(Part::Reasoning { text: block.text.text, signature });
        }
        if !self.text.text.is_empty() {
            content.push(Part::Text { text: self.text.text });
        }
        content
    }

    /// The error for an answer in which nothing could be read: describes the events without their content.
    fn nothing(&self, media_type: &str) -> ModelError {
        let media_type: String = media_type.chars().filter(|c| !c.is_control()).take(WORD_CHARS_MAX).collect();
        let came = match (&self.first, self.events) {
            (_, 0) => format!("no event, in a body of the type {media_type:?}"),
            (Some(first), events) => format!("{events} events, the first of them {first}"),
            (None, events) => format!("{events} events that are not JSON, of the type {media_type:?}"),
        };
        let message = format!(
            "the provider's response has no answer that can be read: {came}; check that the address is a model endpoint"
        );
        ModelError::new(ModelErrorKind::Transient, message)
    }
}

/// Describes a value without its content.
fn shape(value: Unread<'_>) -> String {
    if !value.as_str().starts_with('{') {
        return "JSON that is no object".to_owned();
    }
    let members = value.members();
    let mut names: Vec<String> = members.names().map(|name| name.chars().take(WORD_CHARS_MAX).collect()).collect();
    names.sort_unstable();
    names.truncate(NAMES_SHOWN_MAX);
    format!("with the members {names:?}")
}

/// Maps the providers' reasons for the end of an answer.
pub(super) fn finish(reason: Option<&str>) -> Finish {
    match reason {
        None | Some("stop" | "end_turn" | "STOP" | "COMPLETE" | "completed" | "stop_sequence" | "STOP_SEQUENCE") => {
            Finish::Stop
        }
        Some("tool_calls" | "tool_use" | "function_call") => Finish::ToolCalls,
        Some(
            "length"
            | "max_tokens"
            | "MAX_TOKENS"
            | "incomplete"
            | "max_output_tokens"
            | "model_context_window_exceeded"
            | "model_length",
        ) => Finish::Length,
        Some(
            "content_filter"
            | "refusal"
            | "SAFETY"
            | "RECITATION"
            | "BLOCKLIST"
            | "PROHIBITED_CONTENT"
            | "SPII"
            | "IMAGE_SAFETY"
            | "IMAGE_PROHIBITED_CONTENT"
            | "IMAGE_RECITATION"
            | "LANGUAGE"
            | "ERROR_TOXIC",
        ) => Finish::Filtered,
        Some(other) => Finish::Other(other.to_owned()),
    }
}

/// A number of tokens.
pub(super) fn count(members: &UnreadMembers<'_>, name: &str) -> Option<u64> {
    members.get(name)?.whole().and_then(|number| u64::try_from(number).ok())
}
