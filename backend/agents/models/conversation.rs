//! A conversation in the form that providers accept: tool results are grouped, and their images follow the group.

use serde_json::{Map, Value, json};

use crate::agents::model::{ImageSource, Message, MessageRole, ModelError, ModelErrorKind, Part, Request, ToolCall};

/// A piece of content in a turn.
#[derive(Clone, Copy)]
pub(super) enum Shown<'a> {
    Text(&'a str),
    /// Base64.
    Data {
        media_type: &'a str,
        data: &'a str,
    },
    Url {
        media_type: &'a str,
        url: &'a str,
    },
}

impl Shown<'_> {
    /// An image's address, perhaps of the form `data:…`; `None` for a text.
    pub(super) fn url(self) -> Option<String> {
        match self {
            Self::Text(_) => None,
            Self::Data { media_type, data } => Some(format!("data:{media_type};base64,{data}")),
            Self::Url { url, .. } => Some(url.to_owned()),
        }
    }
}

pub(super) enum Turn<'a> {
    System(String),
    User(Vec<Shown<'a>>),
    /// Reasoning is only sent back in the turn that produced it; earlier reasoning only costs tokens.
    Assistant {
        message: &'a Message,
        is_of_this_turn: bool,
    },
    /// Consecutive results.
    Results(Vec<&'a Message>),
}

impl Turn<'_> {
    /// The text, if there is nothing else.
    pub(super) fn only_text(shown: &[Shown<'_>]) -> Option<String> {
        let text = |shown: &Shown<'_>| if let Shown::Text(text) = shown { Some((*text).to_owned()) } else { None };
        Some(shown.iter().map(text).collect::<Option<Vec<_>>>()?.join("\n\n"))
    }
}

pub(super) fn turns(request: &Request) -> Result<Vec<Turn<'_>>, ModelError> {
    let messages = &request.messages;
    let last_user = messages.iter().rposition(|message| message.role == MessageRole::User).unwrap_or(0);
    let mut turns = Vec::new();
    let mut images = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        if message.role == MessageRole::Tool {
            images.extend(shown(message)?.into_iter().filter(|shown| !matches!(shown, Shown::Text(_))));
            match turns.last_mut() {
                Some(Turn::Results(results)) => results.push(message),
                _ => turns.push(Turn::Results(vec![message])),
            }
            continue;
        }
        show_images(&mut turns, &mut images);
        turns.push(match message.role {
            MessageRole::System => Turn::System(message.text()),
            MessageRole::User => Turn::User(shown(message)?),
            MessageRole::Assistant | MessageRole::Tool => Turn::Assistant { message, is_of_this_turn: at > last_user },
        });
    }
    show_images(&mut turns, &mut images);
    Ok(turns)
}

/// A result can only hold text, so its images follow it.
fn show_images<'a>(turns: &mut Vec<Turn<'a>>, images: &mut Vec<Shown<'a>>) {
    if !images.is_empty() {
        let mut shown = vec![Shown::Text("Images returned by the tools:")];
        shown.append(images);
        turns.push(Turn::User(shown));
    }
}

fn shown(message: &Message) -> Result<Vec<Shown<'_>>, ModelError> {
    message.content.iter().filter_map(shown_part).collect()
}

fn shown_part(part: &Part) -> Option<Result<Shown<'_>, ModelError>> {
    match part {
        Part::Text { text } => Some(Ok(Shown::Text(text))),
        Part::Image { media_type, source } => Some(match source {
            ImageSource::Data(data) => Ok(Shown::Data { media_type, data }),
            ImageSource::Url(url) => Ok(Shown::Url { media_type, url }),
            ImageSource::ArtifactId(id) => {
                Err(ModelError::new(ModelErrorKind::Other, format!("the image in artifact {id} was not read")))
            }
        }),
        Part::Reasoning { .. } => None,
    }
}

/// The system messages joined, for providers that take them separately.
pub(super) fn system(turns: &[Turn<'_>], between: &str) -> Option<String> {
    let texts = turns.iter().filter_map(|turn| if let Turn::System(text) = turn { Some(text.as_str()) } else { None });
    let texts: Vec<&str> = texts.collect();
    (!texts.is_empty()).then(|| texts.join(between))
}

/// The text parts of an answer.
pub(super) fn texts(message: &Message) -> impl Iterator<Item = &str> {
    message.content.iter().filter_map(|part| if let Part::Text { text } = part { Some(text.as_str()) } else { None })
}

/// The arguments as the object that providers require; any other value is wrapped, so that the model sees it.
pub(super) fn arguments(call: &ToolCall) -> Value {
    match &call.args {
        Value::Object(_) => call.args.clone(),
        Value::Null => Value::Object(Map::new()),
        other => json!({"invalid_arguments": other}),
    }
}
