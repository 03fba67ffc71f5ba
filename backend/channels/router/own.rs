//! [`Own`]: the run of the router's own that a message has.

use std::{sync::Arc, time::Duration};

use serde_json::json;

use super::{
    Router,
    graph::ROUTER,
    nodes::{origin, request_hash, trace},
};
use crate::{
    agents::runtime::TimelineSink,
    domain::{
        context::{Origin, Role, RunContext},
        id::{Name, Title},
        json::Json,
        run::{Spec, Status},
    },
    emitters::{
        emitter::Emitter,
        identity::{NullEmitter, SupervisorEmitter},
    },
    sessions::steps::{Routed, StartError},
    timeline::emit::EmitError,
};

/// The router's run of one message, as it was found or made.
pub(super) struct Own {
    pub context: Arc<RunContext>,
    pub status: Status,
    /// What it said at its end, if it has come to one.
    pub output: Option<Json>,
    pub emitter: Arc<dyn Emitter>,
}

impl Router {
    /// Opens the router's run, or finds it where an earlier try has left it.
    pub(super) async fn open(&self, routed: &Routed) -> Result<Own, StartError> {
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
            // Who is not allowed to speak is known by a hash only.
            origin: Some(Origin { user: None, ..origin(routed) }),
            trace_id: Some(trace(routed)),
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
        let (status, output) = if ack.already_open {
            let record = self.timeline.run(&routed.owner, routed.router_run_id).await?;
            let head = record.ok_or(EmitError::NotFound)?.head;
            (head.status, head.output.filter(|_| head.status == Status::Completed))
        } else {
            (Status::Running, None)
        };
        let emitter: Arc<dyn Emitter> = if status.is_terminal() {
            Arc::new(NullEmitter)
        } else {
            // No second try here: a message that cannot be routed now stays in the inbox.
            let sink = Arc::new(TimelineSink::new(self.timeline.clone(), Duration::ZERO));
            let emitter = SupervisorEmitter::new(context.clone(), &format!("router-{}", routed.attempts), sink);
            Arc::new(emitter.map_err(|unfit| StartError::Failed(unfit.to_string()))?.repeatable())
        };
        Ok(Own { context: Arc::new(context), status, output, emitter })
    }
}
