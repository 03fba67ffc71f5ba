//! One server for all tests that need nothing of their own: each is a principal that no other test is.

use std::{
    io::{self, Write},
    ops::Deref,
    sync::{
        LazyLock, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use serde_json::json;
use tracing_subscriber::fmt::MakeWriter;

use super::{api::Api, cluster::Db, jwt::signed, server::setup, take_log};

/// How much of its log the server keeps for tests that fail.
const LOG_BYTES: usize = 1 << 20;

static COUNT: AtomicU32 = AtomicU32::new(0);
static LOG: Log = Log(Mutex::new((Vec::new(), 0)));

/// The shared server as one test sees it. Calls go to it as [`Api`], with a token of a subject of the test's own.
pub struct Shared {
    pub api: Api,
    /// What makes the test's subjects its own.
    number: u32,
    /// Where the server's log was when the test began.
    begun: usize,
}

/// The server that asks for JWTs, with the defaults for most tests; its clock is the system's.
pub async fn shared() -> Shared {
    static BASE: OnceLock<String> = OnceLock::new();
    let begun = LOG.end();
    let base = tokio::task::spawn_blocking(|| BASE.get_or_init(serve)).await.unwrap();
    let (api, number) = (Api::new(base.clone()), COUNT.fetch_add(1, Ordering::Relaxed));
    let nobody = Shared { api, number, begun };
    Shared { api: nobody.as_subject("somebody"), number, begun }
}

impl Shared {
    /// The server for a subject of this name, which is another in each test; for as long as tests run.
    pub fn as_subject(&self, name: &str) -> Api {
        let exp = chrono::Utc::now().timestamp() + 24 * 3_600;
        self.api.with(signed(&json!({ "sub": format!("{name}-{}", self.number), "exp": exp })))
    }
}

impl Deref for Shared {
    type Target = Api;

    fn deref(&self) -> &Api {
        &self.api
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the shared server's log, of all tests meanwhile:\n{}", LOG.since(self.begun));
        }
    }
}

/// Starts it on a runtime of its own, which ends with the process.
fn serve() -> String {
    static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
        let said = || {
            let said = tracing_subscriber::fmt().with_env_filter("info,runreel=debug").with_ansi(false);
            take_log();
            // For the rest of the thread, which is the server's.
            std::mem::forget(tracing::subscriber::set_default(said.with_writer(&LOG).finish()));
        };
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        runtime.worker_threads(2).thread_name("shared").enable_all().on_thread_start(said).build().unwrap()
    });
    RUNTIME.block_on(async {
        let db = Db::beside().await;
        let server = setup().jwt().flags(&["--db-connections", "10"]).on(&db).start().await;
        let base = server.api.base.clone();
        // It is never stopped.
        std::mem::forget(server);
        base
    })
}

/// The end of a log, and how many bytes it has had.
struct Log(Mutex<(Vec<u8>, usize)>);

impl Log {
    fn end(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    fn since(&self, begun: usize) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let from = kept.0.len().saturating_sub(kept.1 - begun);
        String::from_utf8_lossy(&kept.0[from..]).into_owned()
    }
}

impl Write for &'static Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.1 += line.len();
        kept.0.extend_from_slice(line);
        if kept.0.len() > 2 * LOG_BYTES {
            let from = kept.0.len() - LOG_BYTES;
            kept.0.drain(..from);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for &'static Log {
    type Writer = &'static Log;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}
