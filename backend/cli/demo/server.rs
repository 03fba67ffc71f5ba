//! [`Server`]: `runreel serve` as a child process.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    path::PathBuf,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, ChildStderr, Command},
    task::JoinHandle,
    time::timeout,
};

/// Longest wait for a server to become ready. The first start may have to download a database and to set it up.
const READY_WAIT_MAX: Duration = Duration::from_mins(5);
/// Longest wait for a server to end after it was asked to; it promises ten seconds.
const END_WAIT_MAX: Duration = Duration::from_secs(15);
/// Lines of the server's log that are kept to show if it fails.
const LOG_LINES_MAX: usize = 20;
/// Longest wait for the last lines of a server that has ended.
const LOG_WAIT_MAX: Duration = Duration::from_millis(500);

/// A running server that ends with this program.
pub(super) struct Server {
    child: Child,
    /// Its address.
    pub(super) url: String,
}

impl Server {
    /// Starts a server and waits until it is ready.
    pub(super) async fn start(listen: SocketAddr, data_dir: Option<PathBuf>) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot determine the path of this program")?;
        let mut command = Command::new(program);
        command.arg("serve").arg("--listen").arg(listen.to_string());
        if let Some(data_dir) = data_dir {
            command.arg("--data-dir").arg(data_dir);
        }
        // Its own process group: Ctrl-C in the terminal is for this program, which then stops the server cleanly.
        command.process_group(0).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start the server")?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let log = Log::of(stderr.context("cannot read the server's log")?);
        // It prints its address once it can serve, and nothing else.
        let mut output = BufReader::new(stdout.context("cannot read the server's output")?).lines();
        match timeout(READY_WAIT_MAX, output.next_line()).await {
            Ok(Ok(Some(url))) => Ok(Self { child, url }),
            Ok(_) => anyhow::bail!("the server ended before it was ready\n{}", log.whole().await),
            Err(_) => {
                child.kill().await.context("cannot stop the server")?;
                anyhow::bail!("the server is not ready after {READY_WAIT_MAX:?}\n{}", log.whole().await)
            }
        }
    }

    /// Asks the server to end and waits until it has.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        if let Some(pid) = pid {
            // It may have ended already.
            let _ = kill_process(pid, Signal::TERM);
        }
        if timeout(END_WAIT_MAX, self.child.wait()).await.is_err() {
            self.child.kill().await.context("cannot stop the server")?;
        }
        Ok(())
    }
}

/// The last lines a server wrote.
struct Log {
    lines: Arc<Mutex<VecDeque<String>>>,
    filling: JoinHandle<()>,
}

impl Log {
    #[expect(clippy::disallowed_methods, reason = "ends with the child's stderr")]
    fn of(stderr: ChildStderr) -> Self {
        let lines = Arc::default();
        Self { filling: tokio::spawn(fill(Arc::clone(&lines), stderr)), lines }
    }

    /// The log of a server that has ended. A process it started may keep the pipe open, so the wait is short.
    async fn whole(mut self) -> String {
        let _ = timeout(LOG_WAIT_MAX, &mut self.filling).await;
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

/// Reads to the end, so that the server never blocks on its log.
async fn fill(lines: Arc<Mutex<VecDeque<String>>>, stderr: ChildStderr) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).await.is_ok_and(|bytes| bytes > 0) {
        let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LOG_LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(String::from_utf8_lossy(&line).trim_end().to_owned());
        line.clear();
    }
}
