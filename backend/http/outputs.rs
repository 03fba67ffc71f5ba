//! What clients bring for the calls that they made: each output is for a call that waits for it, or says again what was said.

use std::collections::HashMap;

use serde_json::Value;

use super::{
    Server,
    model::CreateRun,
    problem::{Code, Problem},
};
use crate::{
    domain::{
        context::Role,
        id::{Name, RunId, ThreadId},
        limits::CALL_RUNS_MAX,
        principal::OwnerId,
        run::Status,
    },
    store::runs::{RunRecord, filter::RunFilter},
};

/// Why an output is refused, and which: its index among the messages.
pub(super) struct Unasked {
    pub index: usize,
    pub rule: String,
}

/// A run of the conversation: what it asked its client, and what outputs it was given.
struct Turn {
    run: RunId,
    status: Status,
    /// `None` if its output does not name calls.
    asked: Option<Vec<String>>,
    given: HashMap<String, Value>,
}

impl Turn {
    async fn of(server: &Server, record: RunRecord) -> Result<Self, Problem> {
        let input = match record.input {
            Some(input) => Some(server.timeline.whole_input(&record.context, input).await?),
            None => None,
        };
        let messages: Vec<Value> = input.and_then(|input| input.member("messages")).unwrap_or_default();
        let given =
            messages.iter().filter_map(|message| Some((output_of(message)?.to_owned(), message["content"].clone())));
        let calls: Option<Vec<Value>> = record.head.output.as_ref().and_then(|output| output.member("tool_calls"));
        let id = |call: &Value| call["id"].as_str().map(str::to_owned);
        Ok(Self {
            run: record.context.run_id,
            status: record.head.status,
            asked: calls.map(|calls| calls.iter().filter_map(id).collect()),
            given: given.collect(),
        })
    }

    /// A call of this run as its agent knows it, by what the client knows it by. A producer elsewhere may not name its
    /// calls in the run's output.
    fn call(&self, known: &str, is_ours: bool) -> Option<String> {
        match &self.asked {
            Some(asked) => asked.iter().find(|id| *id == known || self.run.scoped(id) == known).cloned(),
            None if is_ours => None,
            None => known.strip_prefix(&self.run.scoped("")).map(str::to_owned),
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.status, Status::Failed | Status::Cancelled)
    }
}

/// The call whose output a message of a run's input brings.
fn output_of(message: &Value) -> Option<&str> {
    let id = message.get("tool_call_id").or_else(|| message.get("toolCallId"));
    (message["role"] == "tool").then(|| id.and_then(Value::as_str).unwrap_or_default())
}

/// Refuses a job for an agent of the server whose input has an output that no call waits for.
pub(super) async fn check(server: &Server, owner: &OwnerId, agent: &Name, request: &CreateRun) -> Result<(), Problem> {
    if !server.authenticator.admission().remembers(agent) {
        return Ok(());
    }
    let messages = request.input.as_ref().and_then(|input| input.member("messages"));
    let mut messages: Vec<Value> = messages.unwrap_or_default();
    let settled = settle(server, owner, (agent, request.thread_id.as_ref()), &mut messages).await?;
    settled.map(|_| ()).map_err(|Unasked { index, rule }| {
        Problem::new(Code::InvalidRequest, rule).field(format!("input.messages[{index}].tool_call_id"))
    })
}

/// Settles for which calls the outputs among an input's messages are: each gets the id by which the agent knows its call.
/// True for one that only repeats what the conversation has.
pub(super) async fn settle(
    server: &Server,
    owner: &OwnerId,
    (agent, thread): (&Name, Option<&ThreadId>),
    messages: &mut [Value],
) -> Result<Result<Vec<bool>, Unasked>, Problem> {
    let mut repeats = vec![false; messages.len()];
    if messages.iter().all(|message| output_of(message).is_none()) {
        return Ok(Ok(repeats));
    }
    let is_ours = server.authenticator.admission().remembers(agent);
    let turns = match thread {
        Some(thread) => turns(server, owner, thread).await?,
        None => Vec::new(),
    };
    let mut brought: HashMap<String, Value> = HashMap::new();
    for (index, message) in messages.iter_mut().enumerate() {
        let Some(known) = output_of(message) else { continue };
        let (call, is_repeated) = match find(&turns, known, &message["content"], is_ours) {
            Ok(found) => found,
            Err(rule) => return Ok(Err(Unasked { index, rule })),
        };
        let content = message["content"].clone();
        if brought.insert(call.clone(), content.clone()).is_some_and(|other| other != content) {
            return Ok(Err(Unasked { index, rule: format!("the call {known} has two outputs") }));
        }
        if let Some(members) = message.as_object_mut() {
            members.remove("toolCallId");
            members.insert("tool_call_id".to_owned(), call.into());
        }
        repeats[index] = is_repeated;
    }
    Ok(Ok(repeats))
}

/// The newest runs of a conversation, newest first.
async fn turns(server: &Server, owner: &OwnerId, thread: &ThreadId) -> Result<Vec<Turn>, Problem> {
    let roles = vec![Role::Agent, Role::Supervisor];
    let filter = RunFilter { thread_id: Some(thread.clone()), roles, ..RunFilter::default() };
    let records = server.timeline.store().runs().newest(owner, &filter, CALL_RUNS_MAX).await?;
    let mut turns = Vec::with_capacity(records.len());
    for record in records {
        turns.push(Turn::of(server, record).await?);
    }
    Ok(turns)
}

/// The call that an output is for, and whether the conversation has the output.
fn find(turns: &[Turn], known: &str, content: &Value, is_ours: bool) -> Result<(String, bool), String> {
    let asked = turns.iter().enumerate().find_map(|(at, turn)| Some((at, turn.call(known, is_ours)?)));
    let Some((at, call)) = asked else {
        // Clients of some protocols send back what the agent's own tools said, which the conversation has.
        let is_own = turns.iter().any(|turn| known.starts_with(&turn.run.scoped("")));
        let rule = || format!("no call of this conversation has the id {known:?}");
        return is_own.then(|| (known.to_owned(), true)).ok_or_else(rule);
    };
    // A run that did not come to its end may have left the call as it was.
    let since = || turns[..at].iter().rev().filter(|turn| !turn.is_over());
    match since().find_map(|turn| turn.given.get(&call)) {
        Some(before) if before == content => Ok((call, true)),
        Some(_) => Err(format!("the call {known:?} has another output already")),
        None if since().next().is_some() => Err(format!("the call {known:?} does not wait any more")),
        None => Ok((call, false)),
    }
}
