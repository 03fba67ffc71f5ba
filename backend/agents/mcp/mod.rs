//! Tools of MCP servers, started here or reached over HTTP.
//!
//! Invariant kept here: a run works with a snapshot. Whenever it starts or resumes, its tools are listed and
//! credentials read once, and then do not change. If a server dies, its calls fail, and it is started again for the
//! next run.
//!
//! A server is trusted no further than necessary: names, schemas, results and their sizes are bounded before anything
//! uses them. Its messages are read leniently: an answer ends its request, readable or not, and a tool, a page of the
//! list or a block of a result that cannot be used is reported and does not affect the others.
//!
//! Start reading at [`Servers`], then `message` (what is read), `connection` and `tool`.

use std::{collections::BTreeMap, ffi::OsString, sync::Arc, time::Duration};

use tokio::sync::Mutex;
use tokio_util::task::TaskTracker;

mod connection;
mod http;
mod message;
mod pipes;
mod result;
mod tool;

use self::connection::{Connection, LaunchOptions};
use super::{models::Web, tools::Offered};
use crate::{
    config::{File, sections::Mcp},
    confine::Confinement,
};

/// The connection of one server; only one caller connects at a time.
type ConnectionSlot = Arc<Mutex<Option<Arc<Connection>>>>;

/// The tool servers of the configuration. Clones share the connections.
#[derive(Clone)]
pub struct Servers {
    slots: Arc<Mutex<BTreeMap<String, ConnectionSlot>>>,
    web: Web,
    path: Option<OsString>,
    confinement: Confinement,
    tasks: TaskTracker,
}

impl Servers {
    /// `path` is the `PATH` of the programs that are started, `confinement` what they cannot reach.
    pub fn new(web: Web, path: Option<OsString>, confinement: Confinement) -> Self {
        Self { slots: Arc::default(), web, path, confinement, tasks: TaskTracker::new() }
    }

    /// The server's current tools; it is started if it is not running.
    pub async fn tools(&self, name: &str, config: &Mcp, file: &File) -> Result<Offered, String> {
        let within = Duration::from_secs(config.start_timeout_s);
        let with_name = |why: String| format!("the tool server {name}: {why}");
        let tools = tokio::time::timeout(within, self.list(name, config, file)).await;
        tools.map_err(|_| with_name(format!("it was not ready within {within:?}")))?.map_err(with_name)
    }

    async fn list(&self, name: &str, config: &Mcp, file: &File) -> Result<Offered, String> {
        if config.per_run {
            return tool::list(name, config, &Arc::new(self.connect(name, config, file).await?)).await;
        }
        let place = Arc::clone(self.slots.lock().await.entry(name.to_owned()).or_default());
        let mut place = place.lock().await;
        if let Some(connection) = place.take().filter(|connection| !connection.is_closed()) {
            // A lost HTTP server is only noticed by a request.
            if let Ok(tools) = tool::list(name, config, &connection).await {
                *place = Some(connection);
                return Ok(tools);
            }
        }
        let connection = Arc::new(self.connect(name, config, file).await?);
        let tools = tool::list(name, config, &connection).await?;
        *place = Some(connection);
        Ok(tools)
    }

    async fn connect(&self, name: &str, config: &Mcp, file: &File) -> Result<Connection, String> {
        match (&config.command, &config.url) {
            (Some(command), _) => {
                let means =
                    LaunchOptions { path: self.path.as_ref(), confinement: &self.confinement, tasks: &self.tasks };
                Connection::start(name, command, config, file, means).await
            }
            (None, Some(url)) => Connection::reach(url, config, &self.web).await,
            (None, None) => Err("neither command nor url is set".to_owned()),
        }
    }

    /// Ends the servers that were started. Calls of runs that still have their tools fail.
    pub async fn close(&self) {
        let slots = std::mem::take(&mut *self.slots.lock().await);
        for place in slots.into_values() {
            if let Some(connection) = place.lock().await.take() {
                connection.end();
            }
        }
        self.tasks.close();
        self.tasks.wait().await;
    }
}
