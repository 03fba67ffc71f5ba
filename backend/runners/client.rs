//! The runner's end: stays connected, executes its assignments, and loses no event it has emitted.
//!
//! [`Runner::run`] gives each assignment to an [`Executor`] with an [`Outlet`] for its events. Emitting waits for the
//! server's acknowledgement, across reconnects and restarts of the server. The cancellation token of work that is no
//! longer this runner's is cancelled.

mod address;
mod outbox;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{SinkExt as _, StreamExt as _, future::BoxFuture};
use tokio::{
    net::TcpStream,
    sync::{Notify, watch},
    time::Instant,
};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async_with_config,
    tungstenite::{
        self, Message,
        protocol::{CloseFrame, WebSocketConfig},
    },
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

use self::outbox::{Assigned, Outbox};
use crate::{
    domain::{
        context::RunContext,
        event::NewEvent,
        id::Name,
        limits::RUNNER_MESSAGE_BYTES_MAX,
        principal::OwnerId,
        runner::{Answered, Assign, CLOSE_GIVEN_BACK, FromRunner, Hello, LastAcked, Resume, ToRunner},
    },
    emitters::host::HostError,
};

/// Longest wait for a connection and for its welcome.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(10);
/// Longest silence of a server, which pings every 10 s.
const SILENCE_MAX: Duration = Duration::from_secs(25);
/// A connection that lasted this long does not count as a failure.
const STEADY_MIN: Duration = Duration::from_secs(5);
/// Upper bounds of the pauses between two attempts.
const PAUSE_FIRST: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(15);

/// A run to execute.
pub struct Work {
    pub assign: Assign,
    pub context: Arc<RunContext>,
    pub outlet: Outlet,
    /// Cancelled when the run was cancelled or has another holder now.
    pub cancel: CancellationToken,
    /// The answers to the run's interrupts so far; changes with each.
    pub answers: watch::Receiver<Vec<Answered>>,
}

/// Executes runs.
pub trait Executor: Send + Sync + 'static {
    /// Works on one run until there is nothing more to emit. A run that is still running then is completed; one that
    /// waits or is interrupted is released, and assigned again when it can continue.
    fn execute(&self, work: Work) -> BoxFuture<'static, ()>;
}

/// A runner's identity and its server.
#[derive(Clone)]
pub struct Settings {
    /// `http://127.0.0.1:7717`
    pub url: String,
    pub token: Option<String>,
    pub name: Name,
    pub agents: Vec<Name>,
    pub capacity: u16,
    /// How long a stopping runner lets its runs continue before it releases them.
    pub grace: Duration,
}

/// Why a runner cannot continue. It survives every other error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the server's address cannot be used: {0}")]
    Address(String),
    #[error("the server rejected this runner (HTTP {status}): {detail}")]
    Refused { status: u16, detail: String },
    #[error("protocol error: {0}")]
    Protocol(String),
}

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// State shared by a runner's tasks.
#[derive(Default)]
struct Shared {
    outbox: Mutex<Outbox>,
    more: Notify,
}

impl Shared {
    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How one connection ended.
enum Ended {
    /// Another attempt is worthwhile.
    Cut,
    /// There is nothing left to do.
    Finished,
}

pub struct Runner<E> {
    settings: Settings,
    executor: Arc<E>,
    shared: Arc<Shared>,
    tasks: TaskTracker,
    lease_id: Option<Uuid>,
}

impl<E: Executor> Runner<E> {
    pub fn new(settings: Settings, executor: E) -> Self {
        // Only the first call in a process installs the provider; later calls find it installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (shared, tasks) = (Arc::default(), TaskTracker::new());
        Self { settings, executor: Arc::new(executor), shared, tasks, lease_id: None }
    }

    /// Works until `stop`, then lets its runs continue for the grace period, and releases the rest.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), Error> {
        let mut failures = 0;
        let mut deadline: Option<Instant> = None;
        loop {
            if stop.is_cancelled() {
                deadline.get_or_insert(Instant::now() + self.settings.grace);
            }
            if stop.is_cancelled()
                && (self.shared.outbox().is_empty() || deadline.is_some_and(|at| Instant::now() >= at))
            {
                break;
            }
            let connected = Box::pin(self.connect()).await;
            match connected {
                Ok(socket) => {
                    let began = Instant::now();
                    if matches!(Box::pin(self.talk(socket, &stop, &mut deadline)).await, Ended::Finished) {
                        break;
                    }
                    if began.elapsed() > STEADY_MIN {
                        failures = 0;
                    }
                }
                Err(Some(error)) => {
                    self.shared.outbox().cancel_all();
                    return Err(error);
                }
                Err(None) => {}
            }
            let ceiling = PAUSE_FIRST.saturating_mul(1 << failures.min(16)).min(PAUSE_MAX);
            failures += 1;
            let pause = tokio::time::sleep(ceiling.mul_f64(rand::random()));
            if deadline.is_none() {
                tokio::select! { () = pause => {}, () = stop.cancelled() => {} }
            } else {
                pause.await;
            }
        }
        self.shared.outbox().cancel_all();
        self.tasks.close();
        // Work that ignores its cancellation does not keep the process alive.
        _ = tokio::time::timeout(self.settings.grace.min(Duration::from_secs(10)), self.tasks.wait()).await;
        Ok(())
    }

    /// One attempt to connect; an error of `None` means that another attempt is worthwhile.
    async fn connect(&self) -> Result<Socket, Option<Error>> {
        let config = WebSocketConfig::default()
            .max_message_size(Some(RUNNER_MESSAGE_BYTES_MAX))
            .max_frame_size(Some(RUNNER_MESSAGE_BYTES_MAX));
        let connecting = connect_async_with_config(address::request(&self.settings)?, Some(config), true);
        match tokio::time::timeout(CONNECT_WAIT_MAX, connecting).await {
            Ok(Ok((socket, _))) => Ok(socket),
            Ok(Err(tungstenite::Error::Http(response))) => {
                let status = response.status().as_u16();
                let body: serde_json::Value =
                    serde_json::from_slice(response.body().as_deref().unwrap_or_default()).unwrap_or_default();
                let detail = body["detail"].as_str().unwrap_or("no reason was given").to_owned();
                let refused = matches!(status, 400 | 401 | 403 | 404 | 405 | 426);
                if !refused {
                    tracing::info!(status, "the server does not accept runners now");
                }
                Err(refused.then_some(Error::Refused { status, detail }))
            }
            Ok(Err(tungstenite::Error::Url(error))) => Err(Some(Error::Address(error.to_string()))),
            Ok(Err(error)) => {
                tracing::info!(%error, "the server cannot be reached");
                Err(None)
            }
            Err(_) => Err(None),
        }
    }

    /// Performs the handshake and talks to the server until the connection ends.
    async fn talk(&mut self, mut socket: Socket, stop: &CancellationToken, deadline: &mut Option<Instant>) -> Ended {
        let Some(heartbeat) = self.greet(&mut socket).await else { return Ended::Cut };
        self.shared.outbox().again();
        let mut beat = tokio::time::interval(heartbeat);
        let mut heard = Instant::now();
        let mut is_draining = false;
        loop {
            let messages = self.shared.outbox().next();
            for message in messages {
                if say(&mut socket, &message).await.is_err() {
                    return Ended::Cut;
                }
            }
            if is_draining && self.shared.outbox().is_empty() {
                return self.leave(socket).await;
            }
            let grace = async {
                match *deadline {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.shared.more.notified() => {}
                _ = beat.tick() => {
                    if heard.elapsed() > SILENCE_MAX || say(&mut socket, &FromRunner::Heartbeat).await.is_err() {
                        return Ended::Cut;
                    }
                }
                message = socket.next() => {
                    heard = Instant::now();
                    match message {
                        Some(Ok(Message::Text(text))) => self.hear(text.as_str()),
                        Some(Ok(Message::Close(close))) => {
                            let reason = close.map(|close| close.reason.to_string()).unwrap_or_default();
                            tracing::info!(reason, "the server closed the connection");
                            return Ended::Cut;
                        }
                        Some(Ok(_)) => {}
                        Some(Err(_)) | None => return Ended::Cut,
                    }
                }
                () = stop.cancelled(), if !is_draining => {
                    is_draining = true;
                    deadline.get_or_insert(Instant::now() + self.settings.grace);
                    if say(&mut socket, &FromRunner::Drain).await.is_err() {
                        return Ended::Cut;
                    }
                }
                () = grace => return self.leave(socket).await,
            }
        }
    }

    /// Releases what is left and closes the connection.
    async fn leave(&self, mut socket: Socket) -> Ended {
        self.shared.outbox().cancel_all();
        let frame = CloseFrame { code: CLOSE_GIVEN_BACK.into(), reason: "leaving".into() };
        let good_bye = async {
            _ = socket.close(Some(frame)).await;
            while socket.next().await.is_some_and(|message| message.is_ok()) {}
        };
        _ = tokio::time::timeout(Duration::from_secs(2), good_bye).await;
        Ended::Finished
    }

    /// Sends the hello; returns the heartbeat interval.
    async fn greet(&mut self, socket: &mut Socket) -> Option<Duration> {
        let resume = self.lease_id.map(|lease_id| {
            let last_acked = LastAcked::Runs(self.shared.outbox().acked());
            Resume { lease_id, last_acked }
        });
        let hello = Hello {
            runner: self.settings.name.clone(),
            agents: self.settings.agents.clone(),
            capacity: self.settings.capacity,
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            resume,
        };
        say(socket, &FromRunner::Hello(hello)).await.ok()?;
        let welcome = async {
            while let Some(Ok(message)) = socket.next().await {
                if let Message::Text(text) = message {
                    return ToRunner::parse(text.as_str()).ok();
                }
            }
            None
        };
        match tokio::time::timeout(CONNECT_WAIT_MAX, welcome).await {
            Ok(Some(ToRunner::Welcome(welcome))) => {
                tracing::info!(runs = welcome.runs.len(), "connected");
                self.lease_id = Some(welcome.lease_id);
                Some(Duration::from_millis(welcome.heartbeat_ms.max(1)))
            }
            Ok(Some(ToRunner::Error(error))) => {
                tracing::error!(
                    code = error.code.as_str(),
                    detail = error.detail,
                    "the server rejected the hello message"
                );
                None
            }
            _ => None,
        }
    }

    /// Handles a message from the server.
    fn hear(&self, text: &str) {
        match ToRunner::parse(text) {
            Ok(ToRunner::Assign(assign)) => self.begin(*assign),
            Ok(ToRunner::Ack(ack)) => {
                self.shared.outbox().ack(ack);
                self.shared.more.notify_one();
            }
            Ok(ToRunner::Cancel(cancel)) => self.shared.outbox().cancel(cancel.run_id),
            Ok(ToRunner::Resume(answer)) => self.shared.outbox().answered(answer),
            Ok(ToRunner::Error(error)) => {
                tracing::warn!(code = error.code.as_str(), detail = error.detail, "the server rejected a message");
                self.shared.outbox().error(&error);
                self.shared.more.notify_one();
            }
            Ok(ToRunner::Welcome(_)) => {}
            // A newer server may send messages that this version does not know.
            Err(error) => tracing::warn!(detail = error.detail, "unknown message from the server"),
        }
    }

    fn begin(&self, assign: Assign) {
        let given = self.shared.outbox().assign(assign.run_id, assign.context.attempt);
        let Some((run, cancel, answers)) = given else { return };
        let context = Arc::new(context(&assign));
        let outlet = Outlet { run, shared: Arc::clone(&self.shared) };
        let work = Work { assign, context, outlet, cancel, answers };
        let (working, shared) = (self.executor.execute(work), Arc::clone(&self.shared));
        self.tasks.spawn(async move {
            // Also after a panic: the run must not stay with a runner that does nothing for it.
            let _done = OnDrop(move || {
                shared.outbox().done(run);
                shared.more.notify_one();
            });
            working.await;
        });
    }
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// The run's identity, as the server states it.
fn context(assign: &Assign) -> RunContext {
    let about = &assign.context;
    RunContext {
        run_id: assign.run_id,
        root_run_id: about.root_run_id,
        parent_run_id: about.parent_run_id,
        owner_id: OwnerId::trusted(&about.owner_id),
        thread_id: assign.thread_id.clone(),
        session_id: about.session_id.clone(),
        role: about.role,
        agent: assign.agent.clone(),
        origin: about.origin.clone(),
        trace_id: about.trace_id.clone(),
    }
}

/// Where the events of an assigned run go. Cheap to clone.
#[derive(Clone)]
pub struct Outlet {
    run: Assigned,
    shared: Arc<Shared>,
}

impl Outlet {
    /// Waits until the events are committed. An error means that they were not and will not be stored.
    pub async fn emit(&self, events: Vec<NewEvent>) -> Result<(), HostError> {
        let answer = self.shared.outbox().put(self.run, events);
        self.shared.more.notify_one();
        answer.await.unwrap_or_else(|_| Err(HostError::refused("the runner stopped")))
    }
}

async fn say(socket: &mut Socket, message: &FromRunner) -> Result<(), ()> {
    let text = serde_json::to_string(message).map_err(|_| ())?;
    let sent = tokio::time::timeout(CONNECT_WAIT_MAX, socket.send(Message::text(text))).await;
    if matches!(sent, Ok(Ok(()))) { Ok(()) } else { Err(()) }
}
