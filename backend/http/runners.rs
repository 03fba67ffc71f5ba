//! Runners: the WebSocket route.

use axum::{
    Extension,
    extract::{
        State,
        ws::{WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    },
    http::{HeaderMap, header},
    response::Response,
};
use serde_json::value::RawValue;
use utoipa_axum::router::OpenApiRouter;

use super::{
    Server,
    credential::CredentialGuard,
    events,
    extract::Caller,
    handler::routes,
    problem::{Code, Problem},
};
use crate::{
    domain::{
        context::RunContext,
        event::NewEvent,
        limits::{RUNNER_MESSAGE_BYTES_MAX, RUNNER_READ_BYTES},
        principal::Scope,
        runner::{RunnerCode, RunnerError, SUBPROTOCOL},
    },
    runners::{Peer, RunnerInput, intake::Intake},
};

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(connect))
}

/// Connect a runner: a WebSocket of the subprotocol `runreel.runner.v1`, see docs/protocol.md.
#[utoipa::path(get, operation_id = "connect_runner", path = "/api/runners/connect", tag = "runners",
    responses((status = 101, description = "A WebSocket with the subprotocol runreel.runner.v1"),
    (status = 400, body = Problem, description = "The subprotocol is not offered"), (status = 403, body = Problem, description = "`forbidden`, `host_not_allowed`"),
    (status = 426, body = Problem, description = "`upgrade_required`"), (status = 429, body = Problem, description = "`busy`")))]
async fn connect(
    State(server): State<Server>,
    caller: Caller,
    Extension(intake): Extension<Intake>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let owner = caller.needs_all(Scope::Emit)?.owner().clone();
    refuse_other_origin(&headers)?;
    let upgrade = upgrade.map_err(|_| {
        Problem::new(Code::UpgradeRequired, "this route is a WebSocket")
            .hint("connect with GET, Upgrade: websocket and Sec-WebSocket-Protocol: runreel.runner.v1")
    })?;
    let upgrade = upgrade.protocols([SUBPROTOCOL]);
    if upgrade.selected_protocol().is_none() {
        return Err(Problem::new(Code::InvalidRequest, "only the subprotocol runreel.runner.v1 is supported")
            .field("Sec-WebSocket-Protocol"));
    }
    if server.draining.is_cancelled() {
        return Err(Problem::new(Code::Unavailable, "the server is draining").hint("connect again after Retry-After"));
    }
    let place = server.runners.place(&owner).map_err(|full| Problem::busy(full, "runners"))?;
    let peer = Peer {
        owner,
        expires_at: caller.expires_at(),
        watched: caller.token_id().map(|token| server.revocations.watch(token)),
        input: Box::new(Producers(CredentialGuard::of(&headers, &server))),
        intake,
    };
    let upgrade = upgrade
        .read_buffer_size(RUNNER_READ_BYTES)
        .max_message_size(RUNNER_MESSAGE_BYTES_MAX)
        .max_frame_size(RUNNER_MESSAGE_BYTES_MAX);
    Ok(upgrade.on_upgrade(move |socket| server.runners.clone().serve(socket, peer, place)))
}

/// Browsers send the page's origin and let any page open a WebSocket, so the server has to check.
fn refuse_other_origin(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    // A WebSocket begins with HTTP/1.1, which has this header.
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    let same = matches!((origin, host), (Some(("http" | "https", origin)), Some(host)) if origin == host);
    if same { Ok(()) } else { Err(Problem::new(Code::HostNotAllowed, "pages of other origins may not connect")) }
}

/// The checks that every producer is subject to.
struct Producers(CredentialGuard);

impl RunnerInput for Producers {
    fn admits(&self, text: &str) -> Result<(), RunnerError> {
        self.0.check_own(text.as_bytes()).map_err(|problem| runner_error(&problem))
    }

    fn events(&self, context: &RunContext, events: &RawValue) -> Result<Vec<NewEvent>, RunnerError> {
        let checked = self.0.check_json(events.get().as_bytes());
        checked.and_then(|()| events::read(context, events.get(), false)).map_err(|problem| runner_error(&problem))
    }
}

fn runner_error(problem: &Problem) -> RunnerError {
    let (code, detail) = problem.for_runner();
    let code = match code {
        Code::InvalidEvent | Code::InvalidRequest => RunnerCode::InvalidEvent,
        Code::RoleMismatch => RunnerCode::RoleMismatch,
        Code::TooLarge => RunnerCode::TooLarge,
        Code::CredentialInBody => RunnerCode::CredentialInBody,
        _ => RunnerCode::Internal,
    };
    code.because(detail)
}
