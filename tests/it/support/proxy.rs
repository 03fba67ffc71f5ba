//! A TCP proxy that simulates a bad network: cut, silent, or cut at a chosen moment.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixStream},
    sync::watch,
};

/// Where a proxy leads.
#[derive(Clone, Debug)]
pub enum Upstream {
    Tcp(String),
    Unix(PathBuf),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Open,
    /// Connections are closed, new ones at once.
    Cut,
    /// Connections stay open and nothing moves.
    Stalled,
}

/// What becomes of the connection whose bytes trigger a trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is lost before they are sent.
    Lost,
    /// They arrive and take effect, and the answer is lost.
    Unanswered,
    /// It is held before they are sent.
    HeldBefore,
    /// It is held before the message to Postgres that commits them, a `Sync`.
    HeldOpen,
    /// They arrive and take effect, and it is held before the answer.
    HeldAfter,
    /// These are bytes of an answer: it is held in the middle of it.
    HeldWithin,
}

/// How Postgres's protocol ends what it executes at once.
const SYNC: &[u8] = b"S\0\0\0\x04";

#[derive(Debug)]
struct Trap {
    needle: Vec<u8>,
    fate: Fate,
}

impl Trap {
    fn is_of(&self, answers: bool, bytes: &[u8]) -> bool {
        (self.fate == Fate::HeldWithin) == answers && bytes.windows(self.needle.len()).any(|part| part == self.needle)
    }
}

#[derive(Clone, Debug)]
struct Shared {
    mode: watch::Sender<Mode>,
    /// Incremented with every cut of open connections.
    cuts: watch::Sender<u64>,
    /// Connections that came while everything was cut.
    refused: watch::Sender<u64>,
    trap: Arc<Mutex<Option<Trap>>>,
    /// Whether a trap holds a connection.
    held: watch::Sender<bool>,
}

impl Shared {
    /// What the trap says of these bytes, once.
    fn sprung(&self, answers: bool, bytes: &[u8]) -> Option<Fate> {
        self.trap.lock().unwrap().take_if(|trap| trap.is_of(answers, bytes)).map(|trap| trap.fate)
    }

    /// Returns when what is held is let go.
    async fn hold(&self) {
        self.held.send_replace(true);
        let _ = self.held.subscribe().wait_for(|held| !held).await;
    }
}

/// A proxy on its own port; it lives as long as its test's runtime.
#[derive(Debug)]
pub struct Proxy {
    pub port: u16,
    shared: Shared,
}

impl Proxy {
    pub async fn to(upstream: Upstream) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Shared {
            mode: watch::Sender::new(Mode::Open),
            cuts: watch::Sender::new(0),
            trap: Arc::default(),
            refused: watch::Sender::new(0),
            held: watch::Sender::new(false),
        };
        let ours = shared.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *ours.mode.borrow() == Mode::Cut {
                    ours.refused.send_modify(|refused| *refused += 1);
                } else {
                    tokio::spawn(carry(client, upstream.clone(), ours.clone()));
                }
            }
        });
        Self { port, shared }
    }

    /// To one of our servers.
    pub async fn to_http(base: &str) -> Self {
        Self::to(Upstream::Tcp(base.trim_start_matches("http://").to_owned())).await
    }

    pub fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Cuts all connections, and new ones, until [`Proxy::mend`].
    pub fn cut(&self) {
        self.shared.mode.send_replace(Mode::Cut);
        self.drop_all();
    }

    /// How many connections came while everything was cut.
    pub fn refused(&self) -> watch::Receiver<u64> {
        self.shared.refused.subscribe()
    }

    /// Cuts what is open now; new connections pass.
    pub fn drop_all(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Holds all bytes back until [`Proxy::mend`].
    pub fn stall(&self) {
        self.shared.mode.send_replace(Mode::Stalled);
    }

    pub fn mend(&self) {
        self.shared.mode.send_replace(Mode::Open);
    }

    /// Cuts or holds the connection that next carries these bytes.
    pub fn trap(&self, needle: &str, fate: Fate) {
        *self.shared.trap.lock().unwrap() = Some(Trap { needle: needle.as_bytes().to_vec(), fate });
    }

    /// Whether a trap is still waiting.
    pub fn is_set(&self) -> bool {
        self.shared.trap.lock().unwrap().is_some()
    }

    /// Returns when the trap holds a connection.
    pub async fn held(&self) {
        let _ = self.shared.held.subscribe().wait_for(|held| *held).await;
    }

    /// Lets go of what is held.
    pub fn release(&self) {
        self.shared.held.send_replace(false);
    }
}

async fn carry(client: TcpStream, upstream: Upstream, shared: Shared) {
    let _ = client.set_nodelay(true);
    match upstream {
        Upstream::Tcp(address) => {
            if let Ok(server) = TcpStream::connect(address).await {
                let _ = server.set_nodelay(true);
                both_ways(client, server, shared).await;
            }
        }
        Upstream::Unix(path) => {
            if let Ok(server) = UnixStream::connect(path).await {
                both_ways(client, server, shared).await;
            }
        }
    }
}

async fn both_ways<S: AsyncRead + AsyncWrite>(client: TcpStream, server: S, shared: Shared) {
    let mut cuts = shared.cuts.subscribe();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = tokio::io::split(server);
    // What becomes of the next answer.
    let answer = watch::Sender::new(None);
    let up = async {
        let (mut buffer, mut tail, mut is_open) = (vec![0u8; 64 * 1024], Vec::new(), false);
        while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
            passes(&shared).await;
            tail.extend_from_slice(&buffer[..length]);
            match shared.sprung(false, &tail) {
                Some(Fate::Lost) => return,
                Some(Fate::HeldBefore) => shared.hold().await,
                Some(Fate::HeldOpen) => is_open = true,
                Some(fate) => _ = answer.send_replace(Some(fate)),
                None => _ = tail.drain(..tail.len().saturating_sub(256)),
            }
            let mut sent = 0;
            if is_open && buffer[..length].ends_with(SYNC) {
                // Postgres executes what it has, and waits.
                sent = length - SYNC.len();
                if to_server.write_all(&buffer[..sent]).await.is_err() {
                    return;
                }
                is_open = false;
                shared.hold().await;
            }
            if to_server.write_all(&buffer[sent..length]).await.is_err() {
                return;
            }
        }
    };
    let down = async {
        let mut buffer = vec![0u8; 64 * 1024];
        while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
            passes(&shared).await;
            let fate = answer.send_replace(None).or_else(|| shared.sprung(true, &buffer[..length]));
            let mut sent = 0;
            match fate {
                None => {}
                Some(Fate::HeldAfter) => shared.hold().await,
                Some(Fate::HeldWithin) => {
                    sent = length / 2;
                    if to_client.write_all(&buffer[..sent]).await.is_err() {
                        return;
                    }
                    shared.hold().await;
                }
                Some(_) => return,
            }
            if to_client.write_all(&buffer[sent..length]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        biased;
        // What is held when everything is cut is not sent.
        _ = cuts.changed() => {}
        () = up => {}
        () = down => {}
    }
}

/// Returns when bytes may move.
async fn passes(shared: &Shared) {
    let mut mode = shared.mode.subscribe();
    let _ = mode.wait_for(|mode| *mode != Mode::Stalled).await;
}
