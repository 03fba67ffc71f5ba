//! The `model` node: streams the answer as it is written, saves it, and then emits it whole.

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

/// Size at which an accumulated piece of an answer is sent, bytes.
const PIECE_BYTES: usize = 4_096;

/// An answer as it is stored: with the span under which its pieces were streamed.
#[derive(Serialize, Deserialize)]
struct Answer {
    span: SpanId,
    completion: Completion,
    took_ms: f64,
}

pub(super) async fn speak(assistant: Arc<Assistant>, context: NodeContext<Conversation>) -> Result<Said, Stop> {
    let own = assistant.toolbox.specs();
    let tools: Vec<ToolSpec> =
        own.into_iter().chain(super::delegate::spec(&assistant)).chain(assistant.client_tools.clone()).collect();
    let compaction = window::compaction(&assistant, &context.state, &tools);
    if let Some(compaction) = &compaction {
        context
            .env
            .emitter
            .state_compacted(&context.sub_span("cut"), &compaction.payload(), Some(&context.span))
            .await?;
    }
    let cut = compaction.map(|compaction| compaction.cut);
    let answer = context.once("answer", || answered(&assistant, &context, tools, cut.as_ref())).await?;
    emit_answer(&assistant, &context, &answer).await?;
    let Completion { message, usage, .. } = answer.completion;
    Ok(Said { messages: vec![message], usage, cut, waiting: Vec::new() })
}

async fn answered(
    assistant: &Assistant,
    context: &NodeContext<Conversation>,
    tools: Vec<ToolSpec>,
    cut: Option<&Cut>,
) -> Result<Answer, Stop> {
    // A call interrupted by a crash may have streamed pieces, so each call has a span of its own.
    let span = context.fresh_span("message");
    let request = request(assistant, context, tools, cut).await;
    let began = (context.env.stopwatch)();
    // The channel is bounded by the answer itself, whose length the model bounds.
    let (sender, pieces) = unbounded_channel();
    let asking = async move {
        let mut send = |delta: Delta| {
            // The receiver is gone once emitting has failed; that error is returned below.
            let _ = sender.send(delta);
        };
        complete_until(&*assistant.model, &request, &mut send, &context.env.cancel).await
    };
    let (answer, streamed) = join(asking, stream(pieces, &*context.env.emitter, &span)).await;
    streamed?;
    let completion = answer.map_err(Stop::failed)?;
    let took_ms = millis((context.env.stopwatch)().saturating_sub(began));
    Ok(Answer { span, completion, took_ms })
}

async fn request(
    assistant: &Assistant,
    context: &NodeContext<Conversation>,
    tools: Vec<ToolSpec>,
    cut: Option<&Cut>,
) -> Request {
    let conversation = &*context.state;
    let cut = cut.or(conversation.cut.as_ref());
    let from = cut.map_or(0, |cut| cut.messages).min(conversation.messages.len());
    let texts = [assistant.system.as_str(), cut.map_or("", |cut| cut.summary.as_str())];
    let system = texts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n");
    let mut messages: Vec<Message> =
        Some(system).filter(|text| !text.is_empty()).map(Message::system).into_iter().collect();
    messages.extend(window::prompt(&conversation.messages, from).cloned());
    for part in messages.iter_mut().flat_map(|message| &mut message.content) {
        fetch(&*context.env.host, part).await;
    }
    Request { messages, tools, temperature: assistant.temperature, max_tokens: assistant.max_tokens }
}

/// Replaces an image's artifact id with its bytes, or the image with a note if they cannot be read.
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

/// Streams the pieces in order. Those that accumulate during an emit are sent together.
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

async fn emit_answer(
    assistant: &Assistant,
    context: &NodeContext<Conversation>,
    answer: &Answer,
) -> Result<(), HostError> {
    let Answer { span, completion: Completion { message, usage, finish }, took_ms } = answer;
    for part in &message.content {
        if let Part::Reasoning { text, .. } = part
            && !text.is_empty()
        {
            let thought = SpanId::trusted(&format!("{span}.thought"));
            context.env.emitter.reasoning_completed(&thought, text, Some(&context.span)).await?;
        }
    }
    let mut payload = json!({
        "role": "assistant", "content": message.visible(), "usage": usage, "model": assistant.model.name(),
        "finish": finish, "duration_ms": took_ms,
    });
    if !message.tool_calls.is_empty() {
        // Under the spans that the calls will have: the provider's own ids need not be unique.
        let (calls, tools) = (message.tool_calls.iter().enumerate(), context.next_span("tools"));
        let calls: Vec<Value> =
            calls.map(|(n, call)| json!({"id": format!("{tools}.{n}"), "name": call.name})).collect();
        payload["tool_calls"] = Value::Array(calls);
    }
    context.env.emitter.message(span, &payload, Some(&context.span)).await
}
