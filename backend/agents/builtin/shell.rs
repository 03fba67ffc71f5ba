//! `shell`: runs a command in one folder, after approval.
//!
//! The command is the operator's risk: it runs as the server's own user, and its folder is no sandbox. This module
//! ensures that it gets none of the server's environment and none of its data, is bounded in time and output, and
//! leaves no process behind.

use std::{ffi::OsString, path::Path, process::Stdio, sync::Arc, time::Duration};

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Command,
};
use tokio_util::sync::CancellationToken;

use super::{failed, files::Root, text};
use crate::{
    agents::tools::{Called, Tool, ToolError},
    confine::Confinement,
    domain::context::RunContext,
};

/// How long to wait for the last output of a command that ended.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How commands run.
#[derive(Clone)]
pub struct Settings {
    /// The folder they run in, also their `HOME`.
    pub root: Arc<Root>,
    /// Their `PATH`.
    pub path: Option<OsString>,
    /// Maximum bytes kept of each output stream; the rest is read and dropped.
    pub output_bytes_max: usize,
    pub time_max: Duration,
    /// What they cannot reach.
    pub confinement: Confinement,
}

/// The tool.
pub struct Shell(pub Settings);

impl Tool for Shell {
    fn name(&self) -> &'static str {
        "shell"
    }

    fn description(&self) -> &'static str {
        "Runs a command with /bin/sh and returns its exit code and output. It has no standard input."
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object", "required": ["command"], "additionalProperties": false,
            "properties": {"command": {"type": "string", "minLength": 1, "maxLength": 65536}},
        })
    }

    fn exclusive(&self, context: &RunContext) -> Option<String> {
        Some(self.0.root.shared(context))
    }

    fn needs_approval(&self, _: &Value) -> bool {
        true
    }

    fn time_max(&self) -> Option<Duration> {
        Some(self.0.time_max)
    }

    fn call<'a>(&'a self, context: &'a RunContext, args: Value, cancel: &'a CancellationToken) -> Called<'a> {
        Box::pin(async move {
            let (_, dir) = self.0.root.of(context).map_err(failed)?;
            self.run(context, &dir, text(&args, "command"), cancel).await
        })
    }
}

/// The process group of a command. Dropping this kills it.
struct Group(Option<Pid>);

impl Group {
    fn end(&self) {
        if let Some(group) = self.0 {
            // An error means that no process is left.
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shell {
    async fn run(
        &self,
        context: &RunContext,
        dir: &Path,
        command: &str,
        cancel: &CancellationToken,
    ) -> Result<Value, ToolError> {
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(command).current_dir(dir).env_clear().envs(context.environment());
        shell.env("HOME", dir).env("LANG", "C.UTF-8").env("PATH", self.0.path.clone().unwrap_or_default());
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        shell.process_group(0).kill_on_drop(true);
        let mut child = self.0.confinement.spawn(shell, Some(dir)).await.map_err(failed)?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let group = Group(pid);
        let (mut out, mut err) = (Captured::new(self.0.output_bytes_max), Captured::new(self.0.output_bytes_max));
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let ended = {
            let mut reading = std::pin::pin!(async { tokio::join!(out.read(stdout), err.read(stderr)) });
            let mut read = false;
            let status = loop {
                // Full pipes would block the command, so both are read while it runs.
                tokio::select! {
                    () = cancel.cancelled() => break None,
                    status = child.wait() => break Some(status),
                    _ = &mut reading, if !read => read = true,
                }
            };
            // Processes it left in the background must not keep the pipes open.
            group.end();
            if status.is_some() && !read {
                let _ = tokio::time::timeout(LAST_WORDS, reading).await;
            }
            status
        };
        let Some(status) = ended else {
            // Reaped, so that no zombie is left.
            let _ = child.wait().await;
            return Err(ToolError::Cancelled);
        };
        let status = status.map_err(failed)?;
        Ok(json!({
            "exit_code": status.code(),
            "stdout": out.text(),
            "stderr": err.text(),
            "truncated": out.over || err.over,
        }))
    }
}

/// The beginning of a stream.
struct Captured {
    bytes: Vec<u8>,
    max: usize,
    over: bool,
}

impl Captured {
    fn new(max: usize) -> Self {
        Self { bytes: Vec::new(), max, over: false }
    }

    async fn read(&mut self, stream: Option<impl AsyncRead + Unpin>) {
        let Some(mut stream) = stream else { return };
        let mut chunk = vec![0; 8 * 1024];
        while let Ok(read @ 1..) = stream.read(&mut chunk).await {
            let room = self.max.saturating_sub(self.bytes.len());
            self.bytes.extend_from_slice(&chunk[..read.min(room)]);
            self.over |= read > room;
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{domain::context::Role, emitters::testing::context};

    fn shell(dir: &std::path::Path) -> Shell {
        Shell(Settings {
            root: Root::open(dir, false).unwrap(),
            path: Some("/usr/bin:/bin".into()),
            output_bytes_max: 100,
            time_max: Duration::from_secs(5),
            confinement: Confinement::default(),
        })
    }

    async fn run(shell: &Shell, command: &str, cancel: &CancellationToken) -> Result<Value, ToolError> {
        shell.call(&context(1, Role::Agent, "a"), json!({"command": command}), cancel).await
    }

    #[tokio::test]
    async fn a_command_has_its_folder_and_its_run_and_nothing_of_the_servers_environment() {
        let dir = tempfile::tempdir().unwrap();
        let shell = shell(dir.path());
        let command = "pwd; env | cut -d= -f1 | grep -v OLDPWD | sort | tr '\\n' ' '; echo oh >&2; exit 3";
        let done = run(&shell, command, &CancellationToken::new()).await.unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let stdout = done["stdout"].as_str().unwrap();
        assert!(stdout.starts_with(dir.to_str().unwrap()), "{stdout}");
        assert!(stdout.ends_with("HOME LANG PATH PWD RUNREEL_AGENT RUNREEL_RUN_ID "), "{stdout}");
        assert_eq!((&done["exit_code"], &done["stderr"]), (&json!(3), &json!("oh\n")));
        assert!(shell.needs_approval(&json!({})) && shell.exclusive(&context(1, Role::Agent, "a")).is_some());
    }

    #[tokio::test]
    async fn a_command_that_says_too_much_is_heard_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let done =
            run(&shell(dir.path()), "yes | head -c 1000000; echo end >&2", &CancellationToken::new()).await.unwrap();
        assert_eq!((done["stdout"].as_str().unwrap().len(), &done["truncated"]), (100, &json!(true)));
        assert_eq!(done["stderr"], "end\n");
    }

    /// Whether a process exists; a zombie does not count.
    fn lives(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }

    /// Waits until a process is gone: the kernel may take a moment to remove one that no parent waits for.
    async fn gone(pid: &str) {
        let gone = async {
            while lives(pid) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), gone).await.unwrap();
    }

    #[tokio::test]
    async fn nothing_a_command_started_outlives_it() {
        let dir = tempfile::tempdir().unwrap();
        let command = "sleep 600 & echo $!";
        let done = run(&shell(dir.path()), command, &CancellationToken::new()).await.unwrap();
        gone(done["stdout"].as_str().unwrap().trim()).await;
        let pids = dir.path().join("pids");
        let cancel = CancellationToken::new();
        let started = async {
            while std::fs::read_to_string(&pids).unwrap_or_default().lines().count() < 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            cancel.cancel();
        };
        let shell = shell(dir.path());
        let command = "echo $$ >> pids; sleep 600 & echo $! >> pids; wait";
        let (done, ()) = tokio::join!(run(&shell, command, &cancel), started);
        assert_eq!(done, Err(ToolError::Cancelled));
        for pid in std::fs::read_to_string(&pids).unwrap().lines() {
            gone(pid).await;
        }
    }
}
