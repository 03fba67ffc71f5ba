//! The nodes: each asks one of the [`Steps`] and says what it found.
//!
//! A node may be visited again after a crash, and each step does then what it did before.

use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    graph::{Found, Passage},
    outcome::Outcome,
};
use crate::{
    domain::{
        context::{Origin, Role, RunContext},
        id::{Name, RunId, Title},
        json::Json,
        run::Spec,
        session::{Reason, formatted},
    },
    emitters::{emitter::Level, sink::SinkError},
    engine::{Stop, Visit},
    sessions::steps::{Hold, Identity, Proof, Routed, StartError, Steps},
    store::sessions::Settled,
    timeline::{Timeline, emit::EmitError},
};

/// The question that asks for a code.
const CODE_QUESTION: &str = "code";
/// Characters of a message that become its run's title.
const TITLE_CHARS: usize = 80;

/// What the nodes of one message work with.
pub(super) struct Work {
    pub timeline: Timeline,
    pub steps: Steps,
    pub routed: Arc<Routed>,
}

type Outcomes = Result<Found, Stop>;

/// Step 1: whether the user may speak.
pub(super) async fn identity(work: Arc<Work>, visit: Visit<Passage>) -> Outcomes {
    match work.steps.identity(&work.routed).await? {
        Identity::NotAllowed => work.refused(&visit, Reason::NotAllowed).await,
        Identity::Proven { held_no } => Ok(Found::Code { held_no: Some(held_no) }),
        identity @ (Identity::Known | Identity::Unproven { .. }) => Ok(Found::User(identity)),
    }
}

/// Step 1, with a question: either the message is a code, or it waits here until its user has given one.
pub(super) async fn code(work: Arc<Work>, visit: Visit<Passage>) -> Outcomes {
    let (steps, routed) = (&work.steps, &work.routed);
    match steps.prove(routed).await? {
        Proof::Good { held_no } => return Ok(Found::Code { held_no }),
        Proof::Wrong => return work.refused(&visit, Reason::CodeWrong).await,
        Proof::Blocked => return work.refused(&visit, Reason::CodeBlocked).await,
        Proof::None => {}
    }
    // One message of a user waits, and it is the first.
    if matches!(visit.state.identity, Some(Identity::Unproven { is_first: false })) {
        return Ok(Found::filtered(Reason::CodeWanted));
    }
    // Held first: what is held and not asked for yet is asked for when its user writes again.
    match visit.once("hold", || async { Ok(steps.hold(routed).await?) }).await? {
        Hold::TooMany => work.refused(&visit, Reason::CodeBlocked).await,
        Hold::Needless => Ok(Found::Nothing),
        Hold::Waits => {
            let question = json!({ "kind": CODE_QUESTION, "prompt": Reason::CodeWanted.reply() });
            visit.ask(CODE_QUESTION, question).await?;
            Ok(Found::Nothing)
        }
    }
}

/// Step 2: a message that asks for a new session is nothing but that.
pub(super) async fn reset(work: Arc<Work>, _: Visit<Passage>) -> Outcomes {
    let was_reset = work.steps.reset(&work.routed).await?;
    Ok(if was_reset { Found::filtered(Reason::SessionReset) } else { Found::Nothing })
}

/// Step 3: whether it was said to the agent.
pub(super) async fn trigger(work: Arc<Work>, _: Visit<Passage>) -> Outcomes {
    Ok(work.steps.trigger(&work.routed).map_or(Found::filtered(Reason::NoTrigger), Found::Text))
}

/// Step 4: whether it says anything.
pub(super) async fn empty(work: Arc<Work>, visit: Visit<Passage>) -> Outcomes {
    let is_empty = work.steps.is_empty(&work.routed, text(&visit.state)?);
    Ok(if is_empty { Found::filtered(Reason::Empty) } else { Found::Nothing })
}

/// Steps 5 and 6: the session and its thread.
pub(super) async fn session(work: Arc<Work>, _: Visit<Passage>) -> Outcomes {
    Ok(Found::Session(work.steps.session(&work.routed).await?))
}

/// Step 7: what the agent reads.
pub(super) async fn format(work: Arc<Work>, visit: Visit<Passage>) -> Outcomes {
    let (input, is_whole) = work.steps.format(&work.routed, &visit.context, text(&visit.state)?).await?;
    if !is_whole {
        let why = "the image was left out: it is too large for the input, and there is no store for it";
        visit.emitter.log_in(&visit.span, Level::Warn, why).await?;
    }
    Ok(Found::Input(input))
}

/// Step 8: the message into the session's log.
pub(super) async fn log(work: Arc<Work>, visit: Visit<Passage>) -> Outcomes {
    let thread = &settled(&visit.state)?.thread_id;
    if !work.steps.record(&work.routed, thread, text(&visit.state)?).await? {
        let why = "the message is not in the session's log: the disk refused it";
        visit.emitter.log_in(&visit.span, Level::Warn, why).await?;
    }
    Ok(Found::Nothing)
}

/// Step 9: the agent's run, which waits for whoever serves the agent. The answer is promised first.
pub(super) async fn start(work: Arc<Work>, visit: Visit<Passage>) -> Outcomes {
    let (routed, settled) = (&work.routed, settled(&visit.state)?);
    let input = visit.state.input.as_ref().ok_or_else(|| Stop::failed("a message without an input"))?;
    work.steps.promise(routed, settled).await?;
    let spec = agent_spec(routed, settled, input, text(&visit.state)?);
    work.timeline.open_run(spec, request_hash(routed.run_id)).await.map_err(StartError::from)?;
    let Settled { session_id, thread_id, is_new } = settled.clone();
    Ok(Found::Ends(Outcome::Accepted { run_id: routed.run_id, session_id, thread_id, new_session: is_new }))
}

impl Work {
    /// The message goes no further, and whoever runs the server should know.
    async fn refused(&self, visit: &Visit<Passage>, reason: Reason) -> Outcomes {
        let channel = &self.routed.channel;
        let user = self.steps.hashed(channel, self.routed.inbound.user_id.as_str());
        let text = format!("{}: user {user} of {channel}", reason.as_str());
        visit.emitter.log_in(&visit.span, Level::Warn, &text).await?;
        Ok(Found::filtered(reason))
    }
}

impl From<StartError> for Stop {
    /// What is away now may be there when the message is routed again; a run with its id that is another's stays.
    fn from(error: StartError) -> Self {
        match error {
            StartError::Emit(EmitError::RunExists) | StartError::Failed(_) => Self::failed(error),
            StartError::Store(_) | StartError::Emit(_) | StartError::Other(_) => Self::Later(error.to_string()),
        }
    }
}

impl From<SinkError> for StartError {
    fn from(error: SinkError) -> Self {
        Self::Other(error.reason)
    }
}

fn text(passage: &Passage) -> Result<&str, Stop> {
    passage.text.as_deref().ok_or_else(|| Stop::failed("a message without a text"))
}

fn settled(passage: &Passage) -> Result<&Settled, Stop> {
    passage.settled.as_ref().ok_or_else(|| Stop::failed("a message without a session"))
}

/// Where the runs of a message come from.
pub(super) fn origin(routed: &Routed) -> Origin {
    Origin {
        channel: Name::trusted(routed.channel.as_str()),
        chat: routed.inbound.chat_id.to_string(),
        user: Some(routed.inbound.user_id.to_string()),
    }
}

/// The trace of both runs of a message: its sender's, or one that begins with it.
pub(super) fn trace(routed: &Routed) -> String {
    routed.inbound.trace_id.clone().unwrap_or_else(|| routed.router_run_id.uuid().simple().to_string())
}

/// The run that a message starts.
fn agent_spec(routed: &Routed, settled: &Settled, input: &Value, text: &str) -> Spec {
    let line = if text.trim().is_empty() { formatted(&routed.inbound, "") } else { text.trim().to_owned() };
    let title: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).take(TITLE_CHARS).collect();
    Spec {
        context: RunContext {
            run_id: routed.run_id,
            root_run_id: routed.run_id,
            parent_run_id: None,
            owner_id: routed.owner.clone(),
            thread_id: Some(settled.thread_id.clone()),
            session_id: Some(settled.session_id.clone()),
            role: if routed.config.has_workers { Role::Supervisor } else { Role::Agent },
            agent: Some(routed.config.agent.clone()),
            origin: Some(origin(routed)),
            trace_id: Some(trace(routed)),
        },
        title: Some(Title::trusted(&title)),
        input: Some(Json::of(input)),
        metadata: Json::of(&json!({ "channel": routed.channel, "router_run_id": routed.router_run_id })),
        tags: vec![Name::trusted(routed.channel.as_str())],
        lease_ms: None,
        start: false,
    }
}

/// Nobody but the router makes a run with such an id, so its id says all of its content.
pub(super) fn request_hash(run: RunId) -> [u8; 32] {
    Sha256::digest(format!("a run of a channel {run}")).into()
}
