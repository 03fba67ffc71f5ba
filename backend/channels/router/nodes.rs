//! The nodes. Each may be visited again after a crash and does then what it did before.

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
        sessions::{Noted, SessionPolicy},
    },
    timeline::{artifacts::url_of, emit::EmitError},
};

/// The question that asks for a code.
const CODE_QUESTION: &str = "code";

type Passed = Result<RouteState, Stop>;

/// Who wrote, and whether they may: steps 1 of the message's way. A user whom the channel does not know gives a
/// one-time
/// code; the message waits here for it.
pub(super) async fn identify(way: RoutedMessage, visit: NodeContext<RouteState>) -> Passed {
    let RoutedMessage { router, message, .. } = &way;
    let (store, config, now) = (router.store(), &message.config, router.timeline.clock().now());
    let (owner, channel, user) = (&message.owner, &message.channel, &message.inbound.user_id);
    let identified = RouteState { identified: true, ..RouteState::default() };
    if !session::is_allowed(&config.allowed(), user) {
        return way.refuse(&visit, Reason::NotAllowed).await;
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
        // A code that was good, given again after a crash.
        Verification::Verified { by_this, held_no } => {
            let held_no = held_no.filter(another).filter(|_| code.is_some());
            // A code that comes again, or that was not needed, is no message to the agent.
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
        // A good one is spent, a wrong one counts.
        return match store
            .codes()
            .attempt(owner, channel, (user, message.inbound_no), &hash, now)
            .await
            .map_err(HostError::from)?
        {
            Verdict::Good { held_no } => Ok(RouteState::ends(Outcome::Released { held_no })),
            Verdict::Wrong => way.refuse(&visit, Reason::CodeWrong).await,
            Verdict::Blocked => way.refuse(&visit, Reason::CodeBlocked).await,
        };
    }
    // One message of a user waits, and it is the first.
    if another_waits {
        return Ok(RouteState::ends(Outcome::Filtered { reason: Reason::CodeWanted }));
    }
    // Held first: what is held and not asked for yet is asked for when its user writes again.
    let asked = store.codes().hold(owner, channel, user, message.inbound_no, (now, expired_until)).await;
    match asked.map_err(HostError::from)? {
        Asked::Verified => Ok(identified),
        Asked::Another => Ok(RouteState::ends(Outcome::Filtered { reason: Reason::CodeWanted })),
        Asked::TooMany => way.refuse(&visit, Reason::CodeBlocked).await,
        Asked::Waits => {
            let question = json!({ "kind": CODE_QUESTION, "prompt": Reason::CodeWanted.reply() });
            visit.ask(CODE_QUESTION, question).await?;
            // Whoever answered: it is the channel that knows the user, and it is asked again.
            Ok(RouteState::default())
        }
    }
}

/// Which session it belongs to, and what the agent reads: steps 2 to 7. The answer is promised with it.
pub(super) async fn resolve(way: RoutedMessage, visit: NodeContext<RouteState>) -> Passed {
    let RoutedMessage { router, message, .. } = &way;
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
    let fresh = Name::trusted(&router.timeline.ids().uuid().to_string());
    let (line, target) = (message.line(text), message.target.as_ref());
    let noted = Noted { line: &line, run_id: message.run_id, user_id: &inbound.user_id, target };
    let session =
        store.sessions().resolve(&message.owner, &chat, message.inbound_no, keeping, noted, (now, fresh)).await;
    let session = session.map_err(HostError::from)?;
    let input = way.input(&visit, text).await?;
    let resolved = Some(Resolved { session, text: text.to_owned(), input });
    Ok(RouteState { identified: true, resolved, outcome: None })
}

/// The message into the session's log, and the agent's run, which waits for whoever serves the agent: steps 8 and 9.
pub(super) async fn start(way: RoutedMessage, visit: NodeContext<RouteState>) -> Passed {
    let RoutedMessage { router, message, .. } = &way;
    let Some(Resolved { session, text, input }) = &visit.state.resolved else {
        return Err(Stop::failed("a message without a session"));
    };
    // What the disk refuses stops nobody: the database has it.
    if !router.log.write(&message.owner, &session.thread_id, message.line(text), message.attempts > 1).await {
        let why = "the message was not written to the session's log: disk error";
        visit.env.emitter.log_in(&visit.span, Level::Warn, why).await?;
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
    Ok(RouteState { outcome: Some(outcome), ..(*visit.state).clone() })
}

impl RoutedMessage {
    /// The message goes no further, and whoever runs the server should know.
    async fn refuse(&self, visit: &NodeContext<RouteState>, reason: Reason) -> Passed {
        let Self { router, message, .. } = self;
        let channel = &message.channel;
        let user = session::hashed(&router.key, channel, message.inbound.user_id.as_str());
        tracing::warn!(%channel, user, reason = reason.as_str(), "message refused");
        let text = format!("{}: user {user} of {channel}", reason.as_str());
        visit.env.emitter.log_in(&visit.span, Level::Warn, &text).await?;
        Ok(RouteState::ends(Outcome::Filtered { reason }))
    }

    /// The agent's input. An image that is too large for it becomes an artifact of the router's run.
    async fn input(&self, visit: &NodeContext<RouteState>, text: &str) -> Result<Value, Stop> {
        let inbound = &self.message.inbound;
        let line = session::formatted(inbound, text);
        let input = session::agent_input(&line, inbound, &ImagePlace::Inline);
        let Some(image) = inbound.image.as_ref().filter(|_| input.to_string().len() > MESSAGE_INPUT_BYTES_MAX) else {
            return Ok(input);
        };
        if self.telemetry.found.is_some_and(Status::is_terminal) {
            // Somebody has ended the run that would keep it.
            let without = Inbound { image: None, ..inbound.clone() };
            let line = format!("{line} (an image was left out: it was too large)");
            return Ok(session::agent_input(&line, &without, &ImagePlace::Inline));
        }
        let bytes = STANDARD.decode(&image.base64).map_err(Stop::failed)?;
        let name = format!("image.{}", image.media_type.ending());
        // An artifact is of a run that is there.
        self.telemetry.send().await?;
        let kept = visit.env.host.keep_artifact(&name, image.media_type.as_str(), bytes.into()).await?;
        let id: ArtifactId = kept.artifact_id.parse().map_err(Stop::failed)?;
        let place = ImagePlace::Artifact { reference: json!(kept), url: url_of(id) };
        Ok(session::agent_input(&line, inbound, &place))
    }
}
