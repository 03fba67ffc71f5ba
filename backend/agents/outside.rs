//! [`Outside`]: the external services of agents: models of providers, MCP servers and AG-UI endpoints. The feature
//! `agents` contains them, with the libraries they need.

use std::{ffi::OsString, sync::Arc};

use super::{
    agui::Proxy,
    mcp::Servers,
    model::Model,
    models::{
        Web,
        provider::{Provider, Settings},
    },
    tools::Offered,
};
use crate::{
    config::{
        File,
        endpoint::Endpoint,
        models::{Kind, ModelConfig},
        sections::{Agent, Mcp},
    },
    confine::Confinement,
};

/// Clones share the connections.
#[derive(Clone)]
pub(super) struct Outside {
    web: Web,
    servers: Servers,
}

impl Outside {
    /// Connects to nothing yet. `path` is the `PATH` of tool servers, `confinement` what they cannot reach.
    pub(super) fn new(path: Option<OsString>, confinement: Confinement) -> Result<Self, String> {
        let web = Web::new()?;
        Ok(Self { servers: Servers::new(web.clone(), path, confinement), web })
    }

    /// A provider's model. Its credential is read here.
    pub(super) fn model(&self, config: &ModelConfig, kind: Kind, model: &str) -> Result<Arc<dyn Model>, String> {
        let key = config.key.as_ref().map(crate::config::SecretSource::read).transpose();
        let key = key.map_err(|error| {
            format!("the model {} needs a key: {error}; set it, or name another with api_key_env", config.source)
        })?;
        let settings = Settings {
            kind,
            model: model.to_owned(),
            base_url: config.base_url.clone(),
            key,
            answer_time_max: config.answer_time_max,
            silence_max: config.silence_max,
            retries: config.retries,
            reasoning: config.reasoning,
        };
        Ok(Arc::new(Provider::new(settings, &self.web)?))
    }

    /// The agent behind an AG-UI endpoint. The values of its headers are read here.
    pub(super) fn proxy(&self, config: &Endpoint) -> Result<Arc<dyn super::agent::Agent>, String> {
        Ok(Arc::new(Proxy { endpoint: Arc::new(super::agui::Endpoint::new(config, &self.web)?) }))
    }

    /// The current tools of the MCP servers that an agent names.
    pub(super) async fn tools(&self, agent: &Agent, file: &File) -> Result<Offered, String> {
        let servers = agent.tools.iter().filter_map(|name| Some((name, file.sections.mcp.get(name)?)));
        let listed = servers.map(|(name, config)| self.servers.tools(name, config, file));
        let listed: Vec<_> = futures::future::join_all(listed).await.into_iter().collect::<Result<_, _>>()?;
        let mut all = Offered::default();
        for of_one in listed {
            all.tools.extend(of_one.tools);
            all.left_out.extend(of_one.left_out);
        }
        Ok(all)
    }

    /// The current tools of one MCP server.
    pub(super) async fn offered(&self, name: &str, config: &Mcp, file: &File) -> Result<Offered, String> {
        self.servers.tools(name, config, file).await
    }

    /// Stops the tool servers that were started.
    pub(super) async fn close(&self) {
        self.servers.close().await;
    }
}
