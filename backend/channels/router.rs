//! The way of one message, one step after the other, told on the timeline of a run of its own.
//!
//! The router's run is `router`; each step is a `step.*` pair, and its output says what became of the message. A message
//! that waits for its user's code leaves the run interrupted; the answer lets it go on.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::{
    agents::runtime::TimelineSink,
    domain::{
        context::{Origin, Role, RunContext},
        event::NewEvent,
        id::{EventId, Name, RunId, SpanId, Title},
        interrupt::{Answer, Decision},
        json::Json,
        principal::OwnerId,
        run::{Refusal, Spec, Status},
        session::{Reason, formatted},
    },
    emitters::{
        emitter::{Emitter, Level},
        identity::{NullEmitter, SupervisorEmitter},
        sink::SinkError,
    },
    sessions::steps::{Identity, Proof, Routed, Start, StartError, Started, Steps},
    store::sessions::Settled,
    timeline::{Timeline, emit::EmitError},
};

/// The agent name of the router's runs.
pub const ROUTER: &str = "router";
/// The interrupt that asks for a code.
const CODE_INTERRUPT: &str = "code";
/// Characters of a message that become its run's title.
const TITLE_CHARS: usize = 80;

/// Routes messages in this process.
#[derive(Clone)]
pub struct Router {
    timeline: Timeline,
    steps: Steps,
}

/// A message, and who tells of it.
struct Visit<'a> {
    routed: &'a Routed,
    context: RunContext,
    emitter: Box<dyn Emitter>,
    /// The run stood interrupted when the message was taken up.
    was_interrupted: bool,
}

impl Router {
    pub fn new(timeline: Timeline, steps: Steps) -> Self {
        Self { timeline, steps }
    }

    async fn route(&self, routed: &Routed) -> Result<Started, StartError> {
        let visit = self.visit(routed).await?;
        let router_run_id = routed.router_run_id;
        let identity = visit.step("identity", self.steps.identity(routed)).await?;
        match identity {
            Identity::NotAllowed => return self.filtered(&visit, Reason::NotAllowed).await,
            Identity::Unproven { is_first } => return self.question(&visit, is_first).await,
            Identity::Proven { held_no } => return self.released(&visit, Some(held_no)).await,
            Identity::Known if visit.was_interrupted => self.answer(&visit).await?,
            Identity::Known => {}
        }
        if visit.step("reset", self.steps.reset(routed)).await? {
            return self.filtered(&visit, Reason::SessionReset).await;
        }
        let Some(text) = visit.step("trigger", async { Ok(self.steps.trigger(routed)) }).await? else {
            return self.filtered(&visit, Reason::NoTrigger).await;
        };
        if visit.step("empty", async { Ok(self.steps.is_empty(routed, &text)) }).await? {
            return self.filtered(&visit, Reason::Empty).await;
        }
        let settled = visit.step("session", self.steps.session(routed)).await?;
        let (input, is_whole) = visit.step("format", self.steps.format(routed, &visit.context, &text)).await?;
        if !is_whole {
            visit
                .log(Level::Warn, "the image was left out: it is too large for the input, and there is no store for it")
                .await;
        }
        let logged =
            visit.step("log", async { Ok(self.steps.record(routed, &settled.thread_id, &text).await) }).await?;
        if !logged {
            visit.log(Level::Warn, "the message is not in the session's log: the disk refused it").await;
        }
        visit.step("start", self.start_agent(routed, &settled, input, &text)).await?;
        visit
            .end(json!({
                "outcome": "accepted", "run_id": routed.run_id, "session_id": settled.session_id,
                "thread_id": settled.thread_id, "new_session": settled.is_new,
            }))
            .await?;
        let Settled { session_id, thread_id, .. } = settled;
        Ok(Started::Accepted { run_id: routed.run_id, router_run_id, session_id, thread_id })
    }

    /// Opens the router's run, or finds it where an earlier try has left it.
    async fn visit<'a>(&self, routed: &'a Routed) -> Result<Visit<'a>, StartError> {
        let hashed = |id: &str| self.steps.hashed(&routed.channel, id);
        let inbound = &routed.inbound;
        let input = json!({
            "channel": routed.channel, "chat": hashed(inbound.chat_id.as_str()),
            "user": hashed(inbound.user_id.as_str()), "is_private": inbound.is_private,
            "has_text": inbound.text.is_some(), "has_image": inbound.image.is_some(),
        });
        let context = RunContext {
            run_id: routed.router_run_id,
            root_run_id: routed.router_run_id,
            parent_run_id: None,
            owner_id: routed.owner.clone(),
            thread_id: None,
            session_id: None,
            role: Role::Agent,
            agent: Some(Name::trusted(ROUTER)),
            origin: Some(origin(routed)),
            trace_id: None,
        };
        let spec = Spec {
            context: context.clone(),
            title: Title::trusted(&format!("A message from {}", routed.channel)).into(),
            input: Some(Json::of(&input)),
            metadata: Json::empty(),
            tags: vec![Name::trusted(routed.channel.as_str())],
            lease_ms: None,
            start: true,
        };
        let ack = self.timeline.open_run(spec, request_hash(routed.router_run_id)).await?;
        let status = if ack.already_open {
            let record = self.timeline.run(&routed.owner, routed.router_run_id).await?;
            record.ok_or(EmitError::NotFound)?.head.status
        } else {
            Status::Running
        };
        let emitter: Box<dyn Emitter> = if status.is_terminal() {
            Box::new(NullEmitter)
        } else {
            let prefix = format!("router-{}", routed.attempts);
            // No second try here: a message that cannot be routed now stays in the inbox.
            let sink = Arc::new(TimelineSink::new(self.timeline.clone(), Duration::ZERO));
            let emitter = SupervisorEmitter::new(context.clone(), &prefix, sink);
            Box::new(emitter.map_err(|unfit| StartError::Other(unfit.to_string()))?)
        };
        Ok(Visit { routed, context, emitter, was_interrupted: status == Status::Interrupted })
    }

    /// The message starts nothing; its run says why.
    async fn filtered(&self, visit: &Visit<'_>, reason: Reason) -> Result<Started, StartError> {
        let routed = visit.routed;
        if matches!(reason, Reason::NotAllowed | Reason::CodeWrong | Reason::CodeBlocked) {
            let user = self.steps.hashed(&routed.channel, routed.inbound.user_id.as_str());
            visit.log(Level::Warn, &format!("{}: user {user} of {}", reason.as_str(), routed.channel)).await;
        }
        visit.end(json!({ "outcome": "filtered", "reason": reason.as_str() })).await?;
        Ok(Started::Filtered { reason, router_run_id: routed.router_run_id })
    }

    async fn released(&self, visit: &Visit<'_>, inbound_no: Option<i64>) -> Result<Started, StartError> {
        visit.end(json!({ "outcome": "filtered", "reason": Reason::CodeAccepted.as_str() })).await?;
        Ok(Started::Released { inbound_no, router_run_id: visit.routed.router_run_id })
    }

    /// The user has to give a code: either this is one, or the run asks for it and waits.
    async fn question(&self, visit: &Visit<'_>, is_first: bool) -> Result<Started, StartError> {
        let routed = visit.routed;
        match visit.step("code", self.steps.prove(routed)).await? {
            Proof::Good { held_no } => return self.released(visit, held_no).await,
            Proof::Wrong => return self.filtered(visit, Reason::CodeWrong).await,
            Proof::Blocked => return self.filtered(visit, Reason::CodeBlocked).await,
            Proof::None if !is_first => return self.filtered(visit, Reason::CodeWanted).await,
            Proof::None => {}
        }
        // Held first: what is held and not asked for yet is asked for when its user writes again.
        if !self.steps.hold(routed).await? {
            return self.filtered(visit, Reason::CodeBlocked).await;
        }
        if !visit.was_interrupted {
            let question = json!({ "question": Reason::CodeWanted.reply(), "kind": "code" });
            let events = vec![
                NewEvent::new("interrupt.requested", Json::of(&question))
                    .span(SpanId::trusted(CODE_INTERRUPT))
                    .event_id(EventId::trusted("code-requested")),
                NewEvent::new("run.interrupted", Json::of(&json!({ "reason": "code" })))
                    .event_id(EventId::trusted("code-interrupted")),
            ];
            self.timeline.emit_run_event(&Arc::new(visit.context.clone()), events).await?;
        }
        Ok(Started::Held { router_run_id: routed.router_run_id })
    }

    /// The user has given a code: the question is answered and the run goes on.
    async fn answer(&self, visit: &Visit<'_>) -> Result<(), StartError> {
        let answer = Answer {
            interrupt_id: SpanId::trusted(CODE_INTERRUPT),
            decision: Decision::Respond,
            value: Some(Json::of(&json!({ "verified": true }))),
        };
        let context = Arc::new(visit.context.clone());
        self.timeline
            .answer_interrupt(&context, &answer)
            .await
            .map_err(|error| StartError::Other(format!("the question was not answered: {error}")))
    }

    /// The agent's run, which waits for whoever serves the agent.
    async fn start_agent(
        &self,
        routed: &Routed,
        settled: &Settled,
        input: Value,
        text: &str,
    ) -> Result<(), StartError> {
        self.steps.promise(routed, settled).await?;
        let spec = agent_spec(routed, settled, &input, text);
        self.timeline.open_run(spec, request_hash(routed.run_id)).await?;
        Ok(())
    }
}

impl Start for Router {
    fn start(&self, routed: Routed) -> BoxFuture<'_, Result<Started, StartError>> {
        Box::pin(async move { self.route(&routed).await })
    }
}

impl Visit<'_> {
    /// One step, as the timeline shows it.
    async fn step<T>(&self, name: &str, work: impl Future<Output = Result<T, StartError>>) -> Result<T, StartError> {
        let span = SpanId::trusted(&format!("{name}-{}", self.routed.attempts));
        self.emitter.step_started(&span, name).await.map_err(told)?;
        let began = Instant::now();
        let done = work.await;
        match &done {
            Ok(_) => self.emitter.step_completed(&span, name, began.elapsed()).await.map_err(told)?,
            // What failed is what matters; it may be the very reason why nothing can be told.
            Err(error) => drop(self.emitter.step_failed(&span, name, &error.to_string(), began.elapsed()).await),
        }
        done
    }

    async fn log(&self, level: Level, text: &str) {
        if let Err(error) = self.emitter.log(level, text).await {
            tracing::debug!(%error, "a line of the router's run was not stored");
        }
    }

    async fn end(&self, output: Value) -> Result<(), StartError> {
        self.emitter.run_completed(output).await.map_err(told)
    }
}

fn told(error: SinkError) -> StartError {
    StartError::Other(error.reason)
}

fn origin(routed: &Routed) -> Origin {
    Origin { channel: Name::trusted(routed.channel.as_str()), chat: routed.inbound.chat_id.to_string() }
}

/// The run that a message starts.
pub fn agent_spec(routed: &Routed, settled: &Settled, input: &Value, text: &str) -> Spec {
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
            role: Role::Agent,
            agent: Some(routed.config.agent.clone()),
            origin: Some(origin(routed)),
            trace_id: None,
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
fn request_hash(run: RunId) -> [u8; 32] {
    Sha256::digest(format!("a run of a channel {run}")).into()
}

/// Ends the run of a message that is given up.
pub async fn give_up(timeline: &Timeline, owner: &OwnerId, run: RunId, why: &str) {
    let Ok(Some(context)) = timeline.context(owner, run).await else { return };
    let failed = NewEvent::new("run.failed", Json::of(&json!({ "error": { "code": "given_up", "message": why } })));
    match timeline.emit_run_event(&context, vec![failed]).await {
        Ok(_) | Err(EmitError::Refused(Refusal::Ended { .. })) => {}
        Err(error) => tracing::warn!(%error, "the end of a router's run was not stored"),
    }
}
