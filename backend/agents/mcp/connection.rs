//! [`Connection`]: a session with one MCP server, and the process behind it.

use std::{collections::HashMap, ffi::OsString, process::Stdio, sync::Mutex, sync::PoisonError};

use reqwest::{
    Url,
    header::{HeaderName, HeaderValue},
};
use rmcp::{
    RoleClient,
    model::{ClientCapabilities, ClientConfig, Implementation},
    service::{ClientInitializeError, Peer, RunningService, serve_client},
    transport::{StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig},
};
use rustix::process::{Pid, Signal};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{Child, Command},
};
use tokio_util::task::TaskTracker;

use super::{
    http::{self, Http},
    pipes::Pipes,
};
use crate::{
    agents::models::Web,
    config::{File, sections::Mcp},
    confine::Confinement,
};

/// Characters kept of a server's error.
pub(super) const ERROR_CHARS_MAX: usize = 1_000;
/// Longest logged line of a server's standard error, bytes.
const LOG_LINE_BYTES_MAX: u64 = 1_000;

pub(super) struct Connection {
    service: RunningService<RoleClient, ClientConfig>,
    /// The program started for it, which ends with the connection.
    process: Mutex<Option<Process>>,
}

/// How programs are started.
pub(super) struct LaunchOptions<'a> {
    /// Their `PATH`.
    pub(super) path: Option<&'a OsString>,
    pub(super) confinement: &'a Confinement,
    /// The tasks that log their standard error.
    pub(super) tasks: &'a TaskTracker,
}

/// A program and everything it started (a launcher often starts the actual server).
struct Process {
    group: Option<Pid>,
    /// Killed and reaped by the runtime when this is dropped.
    _child: Child,
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            // An error means that no process is left.
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
    }
}

fn myself() -> ClientConfig {
    ClientConfig::new(ClientCapabilities::default(), Implementation::new("runreel", env!("CARGO_PKG_VERSION")))
}

impl Connection {
    /// Starts a program and performs the handshake.
    pub(super) async fn start(
        name: &str,
        command: &str,
        config: &Mcp,
        file: &File,
        means: LaunchOptions<'_>,
    ) -> Result<Self, String> {
        let LaunchOptions { path, confinement, tasks } = means;
        let dir = file.path(config.dir.as_deref().unwrap_or_else(|| std::path::Path::new(".")));
        // A path with a slash is relative to the configuration file; a bare name is searched for in PATH.
        let program = if command.contains('/') { file.path(command.as_ref()) } else { command.into() };
        let mut program = Command::new(program);
        program.args(&config.args).current_dir(&dir).env_clear();
        program.env("PATH", path.cloned().unwrap_or_default()).env("LANG", "C.UTF-8").env("HOME", &dir);
        program.envs(&config.env);
        for (variable, secret) in File::secrets(&config.env_from).map_err(|error| error.to_string())? {
            program.env(variable, secret.expose());
        }
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        program.process_group(0).kill_on_drop(true);
        let child = confinement.spawn(program, None).await;
        let mut child = child.map_err(|error| format!("{command} cannot be started: {error}"))?;
        let group = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let process = Process { group, _child: child };
        let (Some(stdin), Some(stdout)) = (stdin, stdout) else {
            return Err("its stdin or stdout is missing".to_owned());
        };
        if let Some(stderr) = stderr {
            // Ends with the program.
            tasks.spawn(complaints(name.to_owned(), stderr));
        }
        let service = serve_client(myself(), Pipes::new(stdin, stdout)).await;
        let service = service.map_err(|error| {
            refused(&error).unwrap_or_else(|| format!("{command} does not speak MCP on its stdout"))
        })?;
        Ok(Self { service, process: Mutex::new(Some(process)) })
    }

    /// Connects to a server over HTTP.
    pub(super) async fn reach(url: &str, config: &Mcp, web: &Web) -> Result<Self, String> {
        let address = Url::parse(url).map_err(|error| format!("invalid url: {error}"))?;
        let mut headers = HashMap::new();
        for (name, secret) in File::secrets(&config.headers_env).map_err(|error| error.to_string())? {
            let name_of = HeaderName::try_from(&name).map_err(|_| format!("{name:?} is not a header name"))?;
            http::check_header(&name_of)?;
            let value = HeaderValue::try_from(secret.expose());
            let mut value = value.map_err(|_| format!("the value for {name} cannot be sent in a header"))?;
            value.set_sensitive(true);
            headers.insert(name_of, value);
        }
        let mut settings = StreamableHttpClientTransportConfig::with_uri(url);
        settings.custom_headers = headers;
        let transport = StreamableHttpClientTransport::with_client(Http(web.client(&address)?), settings);
        let service = serve_client(myself(), transport).await;
        // The library's other errors may contain headers of the request.
        let service = service
            .map_err(|error| refused(&error).unwrap_or_else(|| "it does not respond like an MCP server".to_owned()))?;
        Ok(Self { service, process: Mutex::new(None) })
    }

    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.service.is_closed() || self.service.peer().is_transport_closed()
    }

    /// Ends the session and the program.
    pub(super) fn end(&self) {
        self.service.cancellation_token().cancel();
        drop(self.process.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// The server's own error for the handshake, if it sent one.
fn refused(error: &ClientInitializeError) -> Option<String> {
    match error {
        ClientInitializeError::JsonRpcError(error) => Some(error.message.chars().take(ERROR_CHARS_MAX).collect()),
        _ => None,
    }
}

/// Logs a program's standard error at debug level.
async fn complaints(server: String, stderr: tokio::process::ChildStderr) {
    let mut lines = BufReader::new(stderr);
    let mut line = Vec::new();
    while let Ok(1..) = (&mut lines).take(LOG_LINE_BYTES_MAX).read_until(b'\n', &mut line).await {
        tracing::debug!(server, "{}", String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
}
