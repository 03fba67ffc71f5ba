//! A runner in this process, with the agents of a configuration.

use std::{sync::Arc, time::Duration};

use runreel::{
    agents::{agent::AgentResolver, registry},
    client::Client,
    clock::{Clock, IdSource, monotonic},
    config::{self, File},
    confine::Confinement,
    domain::id::Name,
    runners::{
        agents::Agents,
        client::{Runner, Settings},
    },
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{api::Api, patiently, server::Setup};

/// A runner, outside the server.
pub struct Hands {
    stop: CancellationToken,
    task: JoinHandle<()>,
    _folder: Option<Arc<tempfile::TempDir>>,
}

impl Hands {
    /// With the configuration and the scripts of a setup.
    pub fn of(setup: &Setup, server: &Api) -> Self {
        Self::through(setup, server, &server.base)
    }

    /// The same, with its requests on another path than its socket.
    pub fn through(setup: &Setup, server: &Api, http: &str) -> Self {
        let folder = setup.folder();
        let file = File::read(&folder.path().join("runreel.toml")).unwrap();
        let agents =
            registry::Agents::new(file, folder.path().join("data"), config::path(), Confinement::default()).unwrap();
        let client = Client::new(http, server.token.clone()).unwrap();
        Self { _folder: Some(folder), ..Self::with(Arc::new(agents), server, client) }
    }

    /// With the test's own agents.
    pub fn with(known: Arc<dyn AgentResolver>, server: &Api, client: Client) -> Self {
        let settings = Settings {
            url: server.base.clone(),
            token: server.token.clone(),
            name: Name::trusted("hands"),
            agents: known.names(),
            capacity: 8,
            grace: Duration::ZERO,
        };
        let stop = CancellationToken::new();
        let ids = IdSource::random(Clock::System);
        let runner = Runner::new(settings, Agents::new(Arc::clone(&known), client, ids, monotonic()));
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            runner.run(stopped).await.unwrap();
            known.close().await;
        });
        Self { stop, task, _folder: None }
    }

    /// Releases its jobs and disconnects.
    pub async fn stop(self) {
        self.stop.cancel();
        patiently("the runner to leave", self.task).await.unwrap();
    }
}
