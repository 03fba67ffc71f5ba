//! The `tools` node: makes all calls of the last answer concurrently, after it has requested approvals.

use std::{collections::HashMap, sync::Arc};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{Assistant, Conversation, Said, Waiting, delegate};
use crate::{
    agents::{
        model::{Message, Part, ToolCall, Usage},
        step::{Call, NodeMemory, Step, run_step},
        tools::{ToolError, parts},
    },
    domain::{id::SpanId, interrupt::Decision, limits::TOOL_OUTPUT_BYTES_MAX},
    emitters::{
        emitter::{PREVIEW_CHARS, RESULT_BYTES_MAX},
        host::Answered,
    },
    engine::{NodeContext, Stop},
};

/// A tool call, with the span that is its id in this run.
#[derive(Clone)]
pub(super) struct Numbered {
    pub span: SpanId,
    pub call: ToolCall,
}

pub(super) async fn act(assistant: Arc<Assistant>, context: NodeContext<Conversation>) -> Result<Said, Stop> {
    let last = context.state.messages.iter().rev().find(|message| !message.tool_calls.is_empty());
    // Providers' call ids may repeat from answer to answer; in the log only a call's span is unique.
    let numbered = last.into_iter().flat_map(|message| message.tool_calls.iter().enumerate());
    let calls: Vec<Numbered> =
        numbered.map(|(n, call)| Numbered { span: context.sub_span(&n.to_string()), call: call.clone() }).collect();
    let (clients, calls): (Vec<_>, Vec<_>) = calls
        .into_iter()
        .partition(|numbered| assistant.client_tools.iter().any(|tool| tool.name == numbered.call.name));
    let (delegated, direct): (Vec<_>, Vec<_>) =
        calls.iter().cloned().partition(|numbered| delegate::is_delegation(&assistant, &numbered.call));
    let Approvals { verdicts, edited } = approvals(&assistant, &context, &direct).await?;
    let mut results = HashMap::new();
    let memory = NodeMemory(&context);
    let made = direct.iter().filter(|numbered| !verdicts.contains_key(&numbered.span));
    let made = made.map(|Numbered { span, call }| Call {
        span: span.clone(),
        tool: call.name.clone(),
        args: edited.get(span).unwrap_or(&call.args).clone(),
    });
    let step = Step {
        env: &context.env,
        tools: &assistant.toolbox,
        locks: assistant.locks.clone(),
        parent: Some(&context.span),
        parallel_max: assistant.parallel_max,
        call_time_max: assistant.call_time_max,
        output_bytes_max: TOOL_OUTPUT_BYTES_MAX,
        memory: Some(&memory),
    };
    let (outcomes, children) =
        tokio::join!(run_step(&step, made.collect()), delegate::spawn(&assistant, &context, &delegated));
    results.extend(outcomes?.into_iter().map(|outcome| (outcome.span, outcome.result)));
    results.extend(verdicts);
    results.extend(delegate::wait(&context, children?).await?);
    for Numbered { span, call } in &clients {
        context.env.emitter.client_tool_started(span, &call.name, &call.args, Some(&context.span)).await?;
    }
    let run = context.env.host.context().run_id;
    let waiting = clients.into_iter();
    let waiting = waiting.map(|Numbered { span, call }| Waiting { id: run.scoped(span.as_str()), call_id: call.id });
    let waiting = waiting.collect();
    let messages = calls.into_iter().map(|Numbered { span, call }| {
        let result = results.remove(&span).unwrap_or(Err(ToolError::Unknown(call.name)));
        // The conversation keeps the model's own arguments, so the result states the changed ones.
        let note = edited.get(&span).map(|args| Part::text(format!("A person changed the arguments to {args}.")));
        Message { content: note.into_iter().chain(parts(&result)).collect(), ..Message::tool(call.id, "") }
    });
    Ok(Said { messages: messages.collect(), usage: Usage::default(), cut: None, waiting })
}

/// People's decisions on calls that need approval.
struct Approvals {
    /// The results of calls that must not be made.
    verdicts: HashMap<SpanId, Result<Value, ToolError>>,
    /// The arguments of calls that are made with others than the model's.
    edited: HashMap<SpanId, Value>,
}

/// Requests approval for every call that needs it, all at once.
async fn approvals(
    assistant: &Assistant,
    context: &NodeContext<Conversation>,
    calls: &[Numbered],
) -> Result<Approvals, Stop> {
    let needing: Vec<&Numbered> = calls
        .iter()
        .filter(|numbered| {
            assistant.toolbox.get(&numbered.call.name).is_ok_and(|tool| tool.needs_approval(&numbered.call.args))
        })
        .collect();
    let question = |Numbered { span, call }: &&Numbered| {
        let args = shown(&call.args);
        // Arguments that are not shown in full cannot be edited.
        let decisions = ["approve", "reject", "respond", "edit"];
        let allowed_decisions = if args == call.args { &decisions[..] } else { &decisions[..3] };
        let payload = json!({
            "kind": "approval", "prompt": format!("May {} be called?", call.name), "tool": call.name,
            "args": args, "tool_call_id": span, "allowed_decisions": allowed_decisions,
        });
        (span.to_string(), payload)
    };
    let answers = context.ask_all(needing.iter().map(question).collect()).await?;
    let (mut verdicts, mut edited) = (HashMap::new(), HashMap::new());
    for (Numbered { span, call }, answer) in needing.into_iter().zip(answers) {
        if let Some(args) = edited_args(&answer) {
            edited.insert(span.clone(), args);
        }
        let Some(result) = verdict(answer) else { continue };
        context.env.emitter.tool_started(span, &call.name, &call.args, Some(&context.span)).await?;
        let took = std::time::Duration::ZERO;
        match &result {
            Ok(value) => context.env.emitter.tool_completed(span, &call.name, value, took, Some(&context.span)).await?,
            Err(error) => {
                context
                    .env
                    .emitter
                    .tool_failed(span, &call.name, &error.to_string(), took, Some(&context.span))
                    .await?;
            }
        }
        verdicts.insert(span.clone(), result);
    }
    Ok(Approvals { verdicts, edited })
}

/// The arguments that a person approved instead of the model's: the `args` of the answer's value.
fn edited_args(answered: &Answered) -> Option<Value> {
    let is_approved = answered.decision == Decision::Approve;
    answered.value.as_ref().filter(|_| is_approved)?.get("args").cloned()
}

/// The arguments as the question shows them. Arguments too large for an event are shown by their beginning and their
/// hash, so that an approval is for these arguments only.
fn shown(args: &Value) -> Value {
    let text = args.to_string();
    if text.len() <= RESULT_BYTES_MAX {
        return args.clone();
    }
    let preview: String = text.chars().take(PREVIEW_CHARS).collect();
    json!({ "bytes": text.len(), "preview": preview, "sha256": hex::encode(Sha256::digest(&text)) })
}

/// The result of a call as an answer decides it: `None` if the call may be made. A person may also supply the result.
fn verdict(answered: Answered) -> Option<Result<Value, ToolError>> {
    let reason = answered.value.as_ref().and_then(Value::as_str).map(|text| format!(": {text}")).unwrap_or_default();
    match answered.decision {
        Decision::Approve => None,
        Decision::Respond => Some(Ok(answered.value.unwrap_or_default())),
        Decision::Reject => Some(Err(ToolError::Failed(format!("a person refused this call{reason}")))),
        Decision::Expired => Some(Err(ToolError::Failed("nobody approved this call in time".to_owned()))),
        Decision::Cancelled => Some(Err(ToolError::Failed("the run was cancelled".to_owned()))),
    }
}
