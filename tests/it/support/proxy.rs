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

/// Whether the bytes that trigger a trap still reach the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The connection is lost before they are sent.
    Lost,
    /// They arrive and take effect, and the answer is lost.
    Unanswered,
}

#[derive(Debug)]
struct Trap {
    needle: Vec<u8>,
    fate: Fate,
}

#[derive(Clone, Debug)]
struct Shared {
    mode: watch::Sender<Mode>,
    /// Incremented with every cut of open connections.
    cuts: watch::Sender<u64>,
    /// Connections that came while everything was cut.
    refused: watch::Sender<u64>,
    trap: Arc<Mutex<Option<Trap>>>,
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

    /// Cuts the connection that next sends these bytes upstream.
    pub fn trap(&self, needle: &str, fate: Fate) {
        *self.shared.trap.lock().unwrap() = Some(Trap { needle: needle.as_bytes().to_vec(), fate });
    }

    /// Whether a trap is still waiting.
    pub fn is_set(&self) -> bool {
        self.shared.trap.lock().unwrap().is_some()
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
    let unanswered = watch::Sender::new(false);
    let up = async {
        let (mut buffer, mut tail) = (vec![0u8; 64 * 1024], Vec::new());
        while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
            passes(&shared).await;
            tail.extend_from_slice(&buffer[..length]);
            let sprung = {
                let mut trap = shared.trap.lock().unwrap();
                let hit = |trap: &mut Trap| tail.windows(trap.needle.len()).any(|bytes| bytes == trap.needle);
                trap.take_if(hit).map(|trap| trap.fate)
            };
            match sprung {
                Some(Fate::Lost) => return,
                Some(Fate::Unanswered) => _ = unanswered.send_replace(true),
                None => _ = tail.drain(..tail.len().saturating_sub(256)),
            }
            if to_server.write_all(&buffer[..length]).await.is_err() {
                return;
            }
        }
    };
    let down = async {
        let mut buffer = vec![0u8; 64 * 1024];
        while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
            passes(&shared).await;
            if *unanswered.borrow() || to_client.write_all(&buffer[..length]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = up => {}
        () = down => {}
        _ = cuts.changed() => {}
    }
}

/// Returns when bytes may move.
async fn passes(shared: &Shared) {
    let mut mode = shared.mode.subscribe();
    let _ = mode.wait_for(|mode| *mode != Mode::Stalled).await;
}
