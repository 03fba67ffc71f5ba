//! Outputs that clients send for their calls: each must be for a call that waits for it, or repeat an earlier output.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{
    Server,
    problem::{Code, Problem},
};
use crate::{
    domain::{
        context::Role,
        id::{Name, RunId, ThreadId},
        json::Json,
        limits::CALL_RUNS_MAX,
        principal::OwnerId,
        run::Status,
    },
    store::runs::{RunRecord, filter::RunFilter},
};

/// A rejected output: its index among the messages, and the rule it breaks.
pub(super) struct Unasked {
    pub index: usize,
    pub rule: String,
}

/// A run of the conversation: the calls it asked its client for, and the outputs it was given.
struct Turn {
    run: RunId,
    status: Status,
    /// `None` if its output does not name calls.
    asked: Option<Vec<String>>,
    given: HashMap<String, Value>,
}

impl Turn {
    async fn of(server: &Server, record: RunRecord) -> Result<Self, Problem> {
        let input = match record.fields.input {
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

    fn is_over(&self) -> bool {
        matches!(self.status, Status::Failed | Status::Cancelled)
    }
}

/// The id of the call whose output a message of a run's input has.
fn output_of(message: &Value) -> Option<&str> {
    let id = message.get("tool_call_id").or_else(|| message.get("toolCallId"));
    (message["role"] == "tool").then(|| id.and_then(Value::as_str).unwrap_or_default())
}

/// Rejects a job for one of the server's agents if its input has an output that no call waits for.
pub(super) async fn check(
    server: &Server,
    owner: &OwnerId,
    (agent, thread): (&Name, Option<&ThreadId>),
    input: Option<&Json>,
) -> Result<(), Problem> {
    if !server.authenticator.admission().remembers(agent) {
        return Ok(());
    }
    let messages = input.and_then(|input| input.member("messages"));
    let mut messages: Vec<Value> = messages.unwrap_or_default();
    let settled = settle(server, owner, (agent, thread), &mut messages).await?;
    settled.map(|_| ()).map_err(|Unasked { index, rule }| {
        Problem::new(Code::InvalidRequest, rule).field(format!("input.messages[{index}].tool_call_id"))
    })
}

/// Matches the outputs among an input's messages with calls: each gets the agent's id of its call. Returns for each
/// message whether it only repeats what the conversation has.
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
    let calls = Calls::of(&turns, is_ours);
    let mut brought: HashMap<String, Value> = HashMap::new();
    for (index, message) in messages.iter_mut().enumerate() {
        let Some(known) = output_of(message) else { continue };
        if index % AT_ONCE == AT_ONCE - 1 {
            // There may be very many messages.
            tokio::task::yield_now().await;
        }
        let (call, is_repeated) = match calls.find(known, &message["content"]) {
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

/// Messages after which other tasks have their turn.
const AT_ONCE: usize = 256;

/// The calls of a conversation by the client's ids: the agent's own, or `{run_id}/{id}`.
struct Calls<'a> {
    turns: &'a [Turn],
    runs: HashMap<RunId, usize>,
    /// The newest turn that asked for each id, and all pairs of turn and id.
    newest: HashMap<&'a str, usize>,
    asked: HashSet<(usize, &'a str)>,
    is_ours: bool,
}

impl<'a> Calls<'a> {
    fn of(turns: &'a [Turn], is_ours: bool) -> Self {
        let runs = turns.iter().enumerate().map(|(at, turn)| (turn.run, at)).collect();
        let (mut newest, mut asked) = (HashMap::new(), HashSet::new());
        for (at, turn) in turns.iter().enumerate() {
            for id in turn.asked.iter().flatten() {
                newest.entry(id.as_str()).or_insert(at);
                asked.insert((at, id.as_str()));
            }
        }
        Self { turns, runs, newest, asked, is_ours }
    }

    /// Splits `{run_id}/{id}` into the turn of the run and the id.
    fn scoped<'b>(&self, known: &'b str) -> Option<(usize, &'b str)> {
        let (run, id) = known.split_once('/')?;
        Some((*self.runs.get(&run.parse().ok()?)?, id))
    }

    /// The newest call with this id. An external producer may not name its calls in the run's output.
    fn asked(&self, known: &str) -> Option<(usize, String)> {
        let is_asked = |at: usize, id: &str| match self.turns[at].asked {
            Some(_) => self.asked.contains(&(at, id)),
            None => !self.is_ours,
        };
        let scoped = self.scoped(known).filter(|(at, id)| is_asked(*at, id)).map(|(at, id)| (at, id.to_owned()));
        let plain = self.newest.get(known).map(|at| (*at, known.to_owned()));
        scoped.into_iter().chain(plain).min_by_key(|(at, _)| *at)
    }

    /// The call that an output is for, and whether the conversation already has the output.
    fn find(&self, known: &str, content: &Value) -> Result<(String, bool), String> {
        let Some((at, call)) = self.asked(known) else {
            // Clients of some protocols send back outputs of the agent's own tools, which the conversation has.
            let rule = || format!("no call of this conversation has the id {known:?}");
            return self.scoped(known).map(|_| (known.to_owned(), true)).ok_or_else(rule);
        };
        // A failed or cancelled run may not have used the output.
        let since = || self.turns[..at].iter().rev().filter(|turn| !turn.is_over());
        match since().find_map(|turn| turn.given.get(&call)) {
            Some(before) if before == content => Ok((call, true)),
            Some(_) => Err(format!("the call {known:?} has another output already")),
            None if since().next().is_some() => Err(format!("the call {known:?} does not wait any more")),
            None => Ok((call, false)),
        }
    }
}
