//! The model's turn: its answer is streamed as it is written, saved, and then emitted whole.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::future::join;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::{Assistant, Conversation, Cut, Said, window};
use crate::{
    agents::model::{Completion, Delta, ImageSource, Message, Part, Request, ToolSpec, complete_until},
    domain::{id::SpanId, limits::IMAGE_BYTES_MAX},
    emitters::{
        emitter::{Emitter, millis},
        host::{HostError, RunHost},
    },
    engine::{NodeContext, Stop},
};

/// An accumulated piece of an answer that has reached this size is sent, bytes.
const PIECE_BYTES: usize = 4_096;

/// An answer as it is stored: with the span under which its pieces were streamed.
#[derive(Serialize, Deserialize)]
struct Answer {
    span: SpanId,
    completion: Completion,
    took_ms: f64,
}

pub(super) async fn speak(assistant: Arc<Assistant>, visit: NodeContext<Conversation>) -> Result<Said, Stop> {
    let own = assistant.toolbox.specs();
    let tools: Vec<ToolSpec> =
        own.into_iter().chain(super::delegate::spec(&assistant)).chain(assistant.client_tools.clone()).collect();
    let compaction = window::compaction(&assistant, &visit.state, &tools);
    if let Some(compaction) = &compaction {
        visit.env.emitter.state_compacted(&visit.sub_span("cut"), &compaction.payload(), Some(&visit.span)).await?;
    }
    let cut = compaction.map(|compaction| compaction.cut);
    let answer = visit.once("answer", || answered(&assistant, &visit, tools, cut.as_ref())).await?;
    tell(&assistant, &visit, &answer).await?;
    let Completion { message, usage, .. } = answer.completion;
    Ok(Said { messages: vec![message], usage, cut, waiting: Vec::new() })
}

async fn answered(
    assistant: &Assistant,
    visit: &NodeContext<Conversation>,
    tools: Vec<ToolSpec>,
    cut: Option<&Cut>,
) -> Result<Answer, Stop> {
    // A call cut off by a crash has left pieces behind, so each call has a span of its own.
    let span = visit.fresh_span("message");
    let request = request(assistant, visit, tools, cut).await;
    let began = (visit.env.stopwatch)();
    // The channel is bounded by the answer itself, whose length the model bounds.
    let (sender, pieces) = unbounded_channel();
    let asking = async move {
        let mut tell = |delta: Delta| {
            // The receiver is gone when the log is; the call below then ends as well.
            let _ = sender.send(delta);
        };
        complete_until(&*assistant.model, &request, &mut tell, &visit.env.cancel).await
    };
    let (answer, told) = join(asking, stream(pieces, &*visit.env.emitter, &span)).await;
    told?;
    let completion = answer.map_err(Stop::failed)?;
    let took_ms = millis((visit.env.stopwatch)().saturating_sub(began));
    Ok(Answer { span, completion, took_ms })
}

async fn request(
    assistant: &Assistant,
    visit: &NodeContext<Conversation>,
    tools: Vec<ToolSpec>,
    cut: Option<&Cut>,
) -> Request {
    let conversation = &*visit.state;
    let cut = cut.or(conversation.cut.as_ref());
    let from = cut.map_or(0, |cut| cut.messages).min(conversation.messages.len());
    let texts = [assistant.system.as_str(), cut.map_or("", |cut| cut.summary.as_str())];
    let system = texts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n");
    let mut messages: Vec<Message> =
        Some(system).filter(|text| !text.is_empty()).map(Message::system).into_iter().collect();
    messages.extend(window::prompt(&conversation.messages, from).cloned());
    for part in messages.iter_mut().flat_map(|message| &mut message.content) {
        fetch(&*visit.env.host, part).await;
    }
    Request { messages, tools, temperature: assistant.temperature, max_tokens: assistant.max_tokens }
}

/// Replaces a pointer to an image by the image itself.
pub(in crate::agents) async fn fetch(host: &dyn RunHost, part: &mut Part) {
    let Part::Image { source, .. } = part else { return };
    let ImageSource::ArtifactId(artifact) = source else { return };
    match host.read_artifact(artifact, 0, IMAGE_BYTES_MAX).await {
        Ok(Some(image)) if image.bytes.len() as u64 == image.size => {
            *source = ImageSource::Data(STANDARD.encode(&image.bytes));
        }
        _ => *part = Part::text("[an image that is no longer available]"),
    }
}

/// Streams the pieces in order. Those that accumulate during an emission are sent together.
async fn stream(mut pieces: UnboundedReceiver<Delta>, emitter: &dyn Emitter, span: &SpanId) -> Result<(), HostError> {
    let thought = SpanId::trusted(&format!("{span}.thought"));
    let mut waiting = None;
    while let Some(piece) = match waiting.take() {
        Some(piece) => Some(piece),
        None => pieces.recv().await,
    } {
        let mut piece = piece;
        while let Ok(more) = pieces.try_recv() {
            if let Some(other) = joined(&mut piece, more) {
                waiting = Some(other);
                break;
            }
        }
        match &piece {
            Delta::Text(text) => emitter.message_delta(span, text).await?,
            Delta::Reasoning(text) => emitter.reasoning_delta(&thought, text).await?,
        }
    }
    Ok(())
}

/// Appends `more` to `piece`; returns it if the two cannot be joined.
fn joined(piece: &mut Delta, more: Delta) -> Option<Delta> {
    match (piece, more) {
        (Delta::Text(text), Delta::Text(more)) | (Delta::Reasoning(text), Delta::Reasoning(more))
            if text.len() < PIECE_BYTES =>
        {
            text.push_str(&more);
            None
        }
        (_, more) => Some(more),
    }
}

async fn tell(assistant: &Assistant, visit: &NodeContext<Conversation>, answer: &Answer) -> Result<(), HostError> {
    let Answer { span, completion: Completion { message, usage, finish }, took_ms } = answer;
    for part in &message.content {
        if let Part::Reasoning { text, .. } = part
            && !text.is_empty()
        {
            let thought = SpanId::trusted(&format!("{span}.thought"));
            visit.env.emitter.reasoning_completed(&thought, text, Some(&visit.span)).await?;
        }
    }
    let mut payload = json!({
        "role": "assistant", "content": message.visible(), "usage": usage, "model": assistant.model.name(),
        "finish": finish, "duration_ms": took_ms,
    });
    if !message.tool_calls.is_empty() {
        // Under the spans that the calls will have: the provider's own ids need not be unique.
        let (calls, tools) = (message.tool_calls.iter().enumerate(), visit.next_span("tools"));
        let calls: Vec<Value> =
            calls.map(|(n, call)| json!({"id": format!("{tools}.{n}"), "name": call.name})).collect();
        payload["tool_calls"] = Value::Array(calls);
    }
    visit.env.emitter.message(span, &payload, Some(&visit.span)).await
}
