//! The nodes. Each is idempotent, since it may be executed again after a crash.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{
    RoutedMessage,
    graph::{Resolved, RouteState},
    message::request_hash,
    outcome::Outcome,
};
use crate::{
    channels::codes,
    config::channels::ChannelAuth,
    domain::{
        artifact::ArtifactId,
        id::Name,
        limits::MESSAGE_INPUT_BYTES_MAX,
        run::Status,
        session::{self, ImagePlace, Reason, inbound::Inbound},
    },
    emitters::{emitter::Level, host::HostError},
    engine::{NodeContext, Stop},
    store::{
        codes::{Asked, Verdict, Verification},
        sessions::{Noted, SessionPolicy, Wanted},
    },
    timeline::{artifacts::url_of, emit::EmitError},
};

/// The kind of the question that asks for a code.
const CODE_QUESTION: &str = "code";

type Passed = Result<RouteState, Stop>;

/// Step 1 of routing: who wrote, and whether they may. The message of an unverified user waits here for a one-time
/// code.
pub(super) async fn identify(routing: RoutedMessage, context: NodeContext<RouteState>) -> Passed {
    let RoutedMessage { router, message, .. } = &routing;
    let (store, config, now) = (router.store(), &message.config, router.timeline.clock().now());
    let (owner, channel, user) = (&message.owner, &message.channel, &message.inbound.user_id);
    let identified = RouteState { identified: true, ..RouteState::default() };
    if !session::is_allowed(&config.allowed(), user) {
        return routing.refuse(&context, Reason::NotAllowed).await;
    }
    if config.auth == ChannelAuth::None {
        return Ok(identified);
    }
    let (code, expired_until) = (message.code(), config.expired_until(now));
    let another = |held_no: &i64| *held_no != message.inbound_no;
    let standing = store
        .codes()
        .verification(owner, channel, user, message.inbound_no, expired_until)
        .await
        .map_err(HostError::from)?;
    let another_waits = match standing {
        // A valid code, processed again after a crash.
        Verification::Verified { by_this, held_no } => {
            let held_no = held_no.filter(another).filter(|_| code.is_some());
            // A code that is repeated, or was not needed, is not a message to the agent.
            let is_code = match &code {
                Some(code) if !by_this && held_no.is_none() => {
                    let hash = codes::hash(&router.key, owner, channel, code);
                    store.codes().spend(owner, channel, &hash, now).await.map_err(HostError::from)?
                }
                _ => false,
            };
            let released = by_this || held_no.is_some() || is_code;
            return Ok(if released { RouteState::ends(Outcome::Released { held_no }) } else { identified });
        }
        Verification::Asked { held_no } => held_no.is_some_and(|held_no| another(&held_no)),
        Verification::Unknown => false,
    };
    if let Some(code) = code {
        let hash = codes::hash(&router.key, owner, channel, &code);
        // A valid code is consumed, a wrong one is counted.
        return match store
            .codes()
            .attempt(owner, channel, (user, message.inbound_no), &hash, now)
            .await
            .map_err(HostError::from)?
        {
            Verdict::Good { held_no } => Ok(RouteState::ends(Outcome::Released { held_no })),
            Verdict::Wrong => routing.refuse(&context, Reason::CodeWrong).await,
            Verdict::Blocked => routing.refuse(&context, Reason::CodeBlocked).await,
        };
    }
    // Only the first message of a user waits.
    if another_waits {
        return Ok(RouteState::ends(Outcome::Filtered { reason: Reason::CodeWanted }));
    }
    // Held before the question is asked: if it was held but not asked, it is asked when the user writes again.
    let asked = store.codes().hold(owner, channel, user, message.inbound_no, (now, expired_until)).await;
    match asked.map_err(HostError::from)? {
        Asked::Verified => Ok(identified),
        Asked::Another => Ok(RouteState::ends(Outcome::Filtered { reason: Reason::CodeWanted })),
        Asked::TooMany => routing.refuse(&context, Reason::CodeBlocked).await,
        Asked::Waits => {
            let question = json!({ "kind": CODE_QUESTION, "prompt": Reason::CodeWanted.reply() });
            context.ask(CODE_QUESTION, question).await?;
            // Regardless of who answered, the channel decides whether the user is verified, so it is checked again.
            Ok(RouteState::default())
        }
    }
}

/// Steps 2 to 7: which session the message belongs to, and what the agent reads. This also enqueues the reply.
pub(super) async fn resolve(routing: RoutedMessage, context: NodeContext<RouteState>) -> Passed {
    let RoutedMessage { router, message, .. } = &routing;
    let (store, config, inbound) = (router.store(), &message.config, &message.inbound);
    let (chat, now) = (message.chat(), router.timeline.clock().now());
    let filtered = |reason| Ok(RouteState::ends(Outcome::Filtered { reason }));
    if session::is_reset(inbound, config.trigger.as_deref(), config.bot()) {
        store.sessions().reset(&message.owner, &chat, message.inbound_no, now).await.map_err(HostError::from)?;
        return filtered(Reason::SessionReset);
    }
    let Some(text) = session::heard(inbound, config.trigger.as_deref()) else { return filtered(Reason::NoTrigger) };
    if session::is_empty(text, inbound.image.is_some()) {
        return filtered(Reason::Empty);
    }
    let keeping =
        SessionPolicy { idle_timeout_s: config.idle_timeout_s, thread_per_session: config.thread_per_session };
    let wanted = Wanted { keeping, thread: inbound.thread_id.as_ref() };
    let fresh = Name::trusted(&router.timeline.ids().uuid().to_string());
    let (line, target) = (message.line(text), message.target.as_ref());
    let noted = Noted { line: &line, run_id: message.run_id, user_id: &inbound.user_id, target };
    let session =
        store.sessions().resolve(&message.owner, &chat, message.inbound_no, wanted, noted, (now, fresh)).await;
    let session = session.map_err(HostError::from)?;
    let input = routing.input(&context, text).await?;
    let resolved = Some(Resolved { session, text: text.to_owned(), input });
    Ok(RouteState { identified: true, resolved, outcome: None })
}

/// Steps 8 and 9: writes the message to the session's log and creates the agent's run, as a job.
pub(super) async fn start(routing: RoutedMessage, context: NodeContext<RouteState>) -> Passed {
    let RoutedMessage { router, message, .. } = &routing;
    let Some(Resolved { session, text, input }) = &context.state.resolved else {
        return Err(Stop::failed("a message without a session"));
    };
    // A disk error stops nothing: the database has the line.
    if !router.log.write(&message.owner, &session.thread_id, message.line(text), message.attempts > 1).await {
        let why = "the message was not written to the session's log: disk error";
        context.env.emitter.log_in(&context.span, Level::Warn, why).await?;
    }
    let spec = message.agent_spec(session, input, text);
    match router.timeline.open_run(spec, request_hash(message.run_id)).await {
        Ok(_) => {}
        Err(EmitError::RunExists) => return Err(Stop::failed(EmitError::RunExists)),
        Err(error) => return Err(HostError::unavailable(error).into()),
    }
    let session = session.clone();
    let outcome = Outcome::Accepted {
        run_id: message.run_id,
        session_id: session.session_id,
        thread_id: session.thread_id,
        new_session: session.is_new,
    };
    Ok(RouteState { outcome: Some(outcome), ..(*context.state).clone() })
}

impl RoutedMessage {
    /// Filters the message, with a warning for the operator.
    async fn refuse(&self, context: &NodeContext<RouteState>, reason: Reason) -> Passed {
        let Self { router, message, .. } = self;
        let channel = &message.channel;
        let user = session::hashed(&router.key, channel, message.inbound.user_id.as_str());
        tracing::warn!(%channel, user, reason = reason.as_str(), "message refused");
        let text = format!("{}: user {user} of {channel}", reason.as_str());
        context.env.emitter.log_in(&context.span, Level::Warn, &text).await?;
        Ok(RouteState::ends(Outcome::Filtered { reason }))
    }

    /// The agent's input. If its images are too large for it, they become artifacts of the router's run.
    async fn input(&self, context: &NodeContext<RouteState>, text: &str) -> Result<Value, Stop> {
        let inbound = &self.message.inbound;
        let line = session::formatted(inbound, text);
        let input = session::agent_input(&line, inbound, &[]);
        if inbound.image.is_none() || input.to_string().len() <= MESSAGE_INPUT_BYTES_MAX {
            return Ok(input);
        }
        if self.telemetry.found.is_some_and(Status::is_terminal) {
            // The run that would hold the artifact has already ended.
            let without = Inbound { image: None, more_images: Vec::new(), ..inbound.clone() };
            let line = format!("{line} (an image was left out: it was too large)");
            return Ok(session::agent_input(&line, &without, &[]));
        }
        // The run must exist before it can have an artifact.
        self.telemetry.send().await?;
        let mut places = Vec::new();
        for (n, image) in inbound.images().enumerate() {
            let number = if n == 0 { String::new() } else { (n + 1).to_string() };
            let name = format!("image{number}.{}", image.media_type.ending());
            let bytes = STANDARD.decode(&image.base64).map_err(Stop::failed)?;
            let kept = context.env.host.keep_artifact(&name, image.media_type.as_str(), bytes.into()).await?;
            let id: ArtifactId = kept.artifact_id.parse().map_err(Stop::failed)?;
            places.push(ImagePlace::Artifact { reference: json!(kept), url: url_of(id) });
        }
        Ok(session::agent_input(&line, inbound, &places))
    }
}
