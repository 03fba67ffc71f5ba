//! What the router does with a message, one function each.
//!
//! The nodes of the router's graph call these with what they know, get a plain answer and decide where to go. Each may be carried out again after a crash and does then what it did before.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{codes, log::SessionLog};
use crate::{
    clock::{Clock, IdSource},
    config::channels::{ChannelAuth, ChannelConfig},
    domain::{
        context::RunContext,
        id::{Name, RunId, ThreadId},
        json::Json,
        limits::MESSAGE_INPUT_BYTES_MAX,
        principal::OwnerId,
        session::{
            self, Chat, ImagePlace, LogLine, Reason,
            inbound::{ChannelName, Image, Inbound},
        },
    },
    store::{
        self, Store,
        codes::{Standing, Verdict},
        outbox::{NewReply, Promised},
        sessions::{Keeping, Settled},
    },
    timeline::emit::EmitError,
};

/// A message on its way, with everything a router needs. The ids of its runs are given, so that routing it twice makes
/// no second run.
#[derive(Clone, Debug)]
pub struct Routed {
    pub owner: OwnerId,
    pub channel: ChannelName,
    pub config: Arc<ChannelConfig>,
    pub inbound: Inbound,
    /// Its place in the inbox.
    pub inbound_no: i64,
    pub router_run_id: RunId,
    /// The run of the agent, should it come to one.
    pub run_id: RunId,
    /// 1 for the first time.
    pub attempts: i32,
    /// Where an answer goes; `None` when whoever wrote comes and asks.
    pub target: Option<Json>,
}

impl Routed {
    pub fn chat(&self) -> Chat {
        Chat { channel: self.channel.clone(), chat_id: self.inbound.chat_id.clone() }
    }
}

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Started {
    /// Its run is there; whoever serves the agent takes it up.
    Accepted { run_id: RunId, router_run_id: RunId, session_id: Name, thread_id: ThreadId },
    /// No run for it.
    Filtered { reason: Reason, router_run_id: RunId },
    /// It waits until its user has given a code.
    Held { router_run_id: RunId },
    /// It was a good code: the message with this place in the inbox may go its way.
    Released { inbound_no: Option<i64>, router_run_id: RunId },
}

/// Why a message could not be routed now. It stays in the inbox.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error(transparent)]
    Emit(#[from] EmitError),
    /// It never can.
    #[error("{0}")]
    Failed(String),
    #[error("{0}")]
    Other(String),
}

impl StartError {
    /// Whether another try comes to the same.
    pub fn is_lasting(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Emit(EmitError::RunExists))
    }
}

/// Routes messages.
pub trait Start: Send + Sync {
    /// Routes a message and makes its run, or says why not. The same message again is routed to the same end.
    fn start(&self, routed: Routed) -> BoxFuture<'_, Result<Started, StartError>>;

    /// Ends the router's run of a message that is given up.
    fn give_up<'a>(&'a self, owner: &'a OwnerId, router_run: RunId, why: &'a str) -> BoxFuture<'a, ()>;
}

/// Where images go that are too large for a run's input.
pub trait Images: Send + Sync {
    /// Keeps an image for a run; `None` when there is no place for it.
    fn keep<'a>(
        &'a self,
        router: &'a RunContext,
        name: String,
        image: &'a Image,
    ) -> BoxFuture<'a, Result<Option<ImagePlace>, StartError>>;
}

/// No place for images.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoImages;

impl Images for NoImages {
    fn keep<'a>(
        &'a self,
        _: &'a RunContext,
        _: String,
        _: &'a Image,
    ) -> BoxFuture<'a, Result<Option<ImagePlace>, StartError>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// Who the user is to the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    Known,
    NotAllowed,
    /// Has to give a code. With `is_first` nothing of this user's waits yet.
    Unproven {
        is_first: bool,
    },
    /// Has given a code, and this message of his still waits.
    Proven {
        held_no: i64,
    },
}

/// What a text was as an answer to the question for a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// No code at all.
    None,
    Good {
        held_no: Option<i64>,
    },
    Wrong,
    Blocked,
}

/// Whether a message waits for its user's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    Waits,
    /// The user has given one meanwhile.
    Needless,
    /// Too many users wait already.
    TooMany,
}

/// The steps. Cheap to clone.
#[derive(Clone)]
pub struct Steps {
    store: Store,
    log: SessionLog,
    images: Arc<dyn Images>,
    clock: Clock,
    ids: IdSource,
    /// Keys the hashes of users and codes.
    key: Arc<[u8]>,
}

impl Steps {
    pub fn new(
        store: Store,
        log: SessionLog,
        images: Arc<dyn Images>,
        (clock, ids): (Clock, IdSource),
        key: Arc<[u8]>,
    ) -> Self {
        Self { store, log, images, clock, ids, key }
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    pub fn log(&self) -> &SessionLog {
        &self.log
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    pub fn ids(&self) -> &IdSource {
        &self.ids
    }

    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// An id of the channel's as it may be logged.
    pub fn hashed(&self, channel: &ChannelName, id: &str) -> String {
        session::hashed(&self.key, channel, id)
    }

    /// Step 1: whether the user may speak.
    pub async fn identity(&self, routed: &Routed) -> Result<Identity, StartError> {
        let user = &routed.inbound.user_id;
        if !session::is_allowed(&routed.config.allowed(), user) {
            let user = self.hashed(&routed.channel, user.as_str());
            tracing::warn!(channel = %routed.channel, user, "a message of a user who is not allowed was refused");
            return Ok(Identity::NotAllowed);
        }
        if routed.config.auth == ChannelAuth::None {
            return Ok(Identity::Known);
        }
        let own = |held_no: &i64| *held_no != routed.inbound_no;
        let expired_until = routed.config.expired_until(self.clock.now());
        Ok(match self.store.standing(&routed.owner, &routed.channel, user, expired_until).await? {
            Standing::Verified { held_no } => match held_no.filter(own) {
                Some(held_no) if code_in(routed).is_some() => Identity::Proven { held_no },
                _ => Identity::Known,
            },
            Standing::Asked { held_no } => {
                Identity::Unproven { is_first: !held_no.is_some_and(|held_no| own(&held_no)) }
            }
            Standing::Unknown => Identity::Unproven { is_first: true },
        })
    }

    /// Step 1, with a question: whether the message is a code that is good. A good one is spent, a wrong one counts.
    pub async fn prove(&self, routed: &Routed) -> Result<Proof, StartError> {
        let Some(code) = code_in(routed) else { return Ok(Proof::None) };
        let hash = codes::hash(&self.key, &routed.owner, &routed.channel, &code);
        let user = &routed.inbound.user_id;
        let verdict = self.store.try_code(&routed.owner, &routed.channel, user, &hash, self.clock.now()).await?;
        Ok(match verdict {
            Verdict::Good { held_no } => Proof::Good { held_no },
            Verdict::Wrong | Verdict::Blocked => {
                let user = self.hashed(&routed.channel, user.as_str());
                tracing::warn!(channel = %routed.channel, user, ?verdict, "a one-time code was not good");
                if verdict == Verdict::Wrong { Proof::Wrong } else { Proof::Blocked }
            }
        })
    }

    /// Notes that this message waits for its user's code, unless the user has given one meanwhile.
    pub async fn hold(&self, routed: &Routed) -> Result<Hold, StartError> {
        let (owner, channel, user) = (&routed.owner, &routed.channel, &routed.inbound.user_id);
        let now = self.clock.now();
        let expired_until = routed.config.expired_until(now);
        if let Standing::Verified { .. } = self.store.standing(owner, channel, user, expired_until).await? {
            return Ok(Hold::Needless);
        }
        if !self.store.ask_user(owner, channel, user, routed.inbound_no, (now, expired_until)).await? {
            return Ok(Hold::TooMany);
        }
        self.store.hold_inbound(owner, routed.inbound_no).await?;
        Ok(Hold::Waits)
    }

    /// Step 2: ends the session when the message asks for it; says whether it did.
    pub async fn reset(&self, routed: &Routed) -> Result<bool, StartError> {
        let config = &routed.config;
        if !session::is_reset(&routed.inbound, config.trigger.as_deref(), config.bot()) {
            return Ok(false);
        }
        self.store.reset_chat(&routed.owner, &routed.chat(), routed.inbound_no, self.clock.now()).await?;
        Ok(true)
    }

    /// Step 3: the text without the trigger; `None` when it was not said to the agent.
    pub fn trigger(&self, routed: &Routed) -> Option<String> {
        session::heard(&routed.inbound, routed.config.trigger.as_deref()).map(str::to_owned)
    }

    /// Step 4: whether it says nothing.
    pub fn is_empty(&self, routed: &Routed, text: &str) -> bool {
        session::is_empty(text, routed.inbound.image.is_some())
    }

    /// Steps 5 and 6: the session and its thread.
    pub async fn session(&self, routed: &Routed) -> Result<Settled, StartError> {
        let config = &routed.config;
        let sessions = Keeping { idle_timeout_s: config.idle_timeout_s, thread_per_session: config.thread_per_session };
        let fresh = Name::trusted(&self.ids.uuid().to_string());
        let now = self.clock.now();
        Ok(self.store.settle_session(&routed.owner, &routed.chat(), routed.inbound_no, sessions, (now, fresh)).await?)
    }

    /// Step 7: the agent's input. An image that is too large for it goes into an artifact of the router's run; `false`
    /// when there was no place for it and it was left out.
    pub async fn format(&self, routed: &Routed, run: &RunContext, text: &str) -> Result<(Value, bool), StartError> {
        let line = session::formatted(&routed.inbound, text);
        let input = session::agent_input(&line, &routed.inbound, &ImagePlace::Inline);
        let Some(image) = &routed.inbound.image else { return Ok((input, true)) };
        if input.to_string().len() <= MESSAGE_INPUT_BYTES_MAX {
            return Ok((input, true));
        }
        let name = format!("image.{}", image.media_type.ending());
        if let Some(place) = self.images.keep(run, name, image).await? {
            return Ok((session::agent_input(&line, &routed.inbound, &place), true));
        }
        let without = Inbound { image: None, ..routed.inbound.clone() };
        let line = format!("{line} (an image was left out: it was too large)");
        Ok((session::agent_input(&line, &without, &ImagePlace::Inline), false))
    }

    /// Step 8: the message into the log. What the disk refuses is told and stops nobody: the database has it.
    pub async fn record(&self, routed: &Routed, thread: &ThreadId, text: &str) -> Result<bool, StartError> {
        let line = LogLine::of_user(&routed.channel, &routed.inbound, text).to_line();
        self.store.add_line(&routed.owner, thread, routed.inbound_no, &line).await?;
        Ok(self.write(&routed.owner, thread, line, routed.attempts > 1).await)
    }

    /// Writes a line; says whether the disk took it.
    pub async fn write(&self, owner: &OwnerId, thread: &ThreadId, line: String, again: bool) -> bool {
        match self.log.append(owner, thread, line, again).await {
            Ok(()) => true,
            Err(error) => {
                metrics::counter!("runreel_session_log_failures_total").increment(1);
                tracing::warn!(error = &error as &dyn std::error::Error, "a line of a session's log was not written");
                false
            }
        }
    }

    /// Before step 9: notes that an answer will be owed, so that none is forgotten whoever stops when.
    pub async fn promise(&self, routed: &Routed, settled: &Settled) -> Result<(), StartError> {
        let what =
            Promised::Run { run_id: routed.run_id, session_id: &settled.session_id, thread_id: &settled.thread_id };
        Ok(self.store.promise(self.reply(routed, what)).await?)
    }

    /// Notes that the user is to be told why nothing follows, where the channel can tell.
    pub async fn explain(&self, routed: &Routed, reason: Reason) -> Result<(), StartError> {
        let (Some(body), Some(_)) = (reason.reply(), &routed.target) else { return Ok(()) };
        let what = Promised::Text { inbound_no: routed.inbound_no, body };
        Ok(self.store.promise(self.reply(routed, what)).await?)
    }

    fn reply<'a>(&self, routed: &'a Routed, what: Promised<'a>) -> NewReply<'a> {
        NewReply {
            owner: &routed.owner,
            channel: &routed.channel,
            user_id: &routed.inbound.user_id,
            what,
            target: routed.target.as_ref(),
            now: self.clock.now(),
        }
    }
}

fn code_in(routed: &Routed) -> Option<String> {
    codes::read(routed.inbound.text.as_deref()?)
}
