//! [`Agents`]: resolves the configuration to everything one run needs, as a snapshot.

use std::{path::PathBuf, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    agent::{Agent, AgentResolver},
    assistant::Assistant,
    builtin::{fetch, files, shell},
    exclusive::Locks,
    model::Model,
    models::scripted::{Echo, Script},
    outside::Outside,
    tools::{Called, Offered, Tool, Toolbox},
};
use crate::{
    auth::Admission,
    config::{
        File,
        models::{ModelConfig, Source},
        sections::{Agent as AgentSection, AgentKind, Exclusive, Tool as ToolSection, ToolKind},
    },
    confine::Confinement,
    domain::{context::RunContext, id::Name},
    engine::Limits,
};

/// Default for the maximum bytes of a fetch or of a command's output.
const BYTES_MAX_DEFAULT: usize = 256 * 1024;
/// Default time limit of a fetch or a command.
const TIME_MAX_DEFAULT: Duration = Duration::from_mins(1);

/// The number of usable tools of a server and notes on them, or why none can be used.
pub type Usable = Result<(usize, Vec<String>), String>;

fn usable(offered: Offered) -> Usable {
    let (tools, notes) = Toolbox::default().joined(offered)?;
    Ok((tools.iter().count(), notes))
}

/// An agent cannot be built from its configuration now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    #[error("there is no agent named {0}")]
    Unknown(String),
    #[error("agent {agent}: {why}")]
    InvalidAgent { agent: String, why: String },
}

/// The agents of the configuration. Clones share the connections.
#[derive(Clone)]
pub struct Agents {
    file: Arc<File>,
    data_dir: PathBuf,
    path: Option<std::ffi::OsString>,
    outside: Outside,
    confinement: Confinement,
    admission: Admission,
    locks: Locks,
}

impl Agents {
    /// Builds every agent once, so that errors are found at startup. Tool servers are not started yet.
    ///
    /// `path` is the `PATH` of commands and tool servers, `confinement` what they cannot reach.
    pub fn new(
        file: File,
        data_dir: PathBuf,
        path: Option<std::ffi::OsString>,
        confinement: Confinement,
    ) -> Result<Self, ResolveError> {
        let outside = Outside::new(path.clone(), confinement.clone())
            .map_err(|why| ResolveError::InvalidAgent { agent: "(any)".to_owned(), why })?;
        let agents = Self {
            file: Arc::new(file),
            data_dir,
            path,
            outside,
            confinement,
            admission: Admission::default(),
            locks: Locks::default(),
        };
        for (name, agent) in &agents.file.sections.agents {
            let invalid = |why| ResolveError::InvalidAgent { agent: name.clone(), why };
            if agent.kind == AgentKind::Agui {
                agents.proxy(agent).map_err(invalid)?;
                continue;
            }
            agents.model(agent).map_err(invalid)?;
            agents.file.system(agent).map_err(|error| invalid(error.to_string()))?;
            Toolbox::checked(agents.own_tools(agent).map_err(invalid)?).map_err(invalid)?;
        }
        Ok(agents)
    }

    /// Everything a run of this agent needs. Credentials are read here and nowhere later.
    pub async fn assistant(&self, name: &str) -> Result<Assistant, ResolveError> {
        let agent = self.file.sections.agents.get(name);
        let agent = agent.ok_or_else(|| ResolveError::Unknown(name.to_owned()))?;
        let invalid = |why: String| ResolveError::InvalidAgent { agent: name.to_owned(), why };
        let parse = |name: &str| name.parse::<Name>().map_err(|_| invalid(format!("{name} is not a valid agent name")));
        let (model, config) = self.model(agent).map_err(invalid)?;
        let own = Toolbox::checked(self.own_tools(agent).map_err(invalid)?).map_err(invalid)?;
        let offered = self.outside.tools(agent, &self.file).await.map_err(invalid)?;
        let (toolbox, notes) = own.joined(offered).map_err(invalid)?;
        // A configured step is two steps of the graph: one of the model and one of its tools.
        let limits = Limits {
            steps_max: agent.max_steps.saturating_mul(2),
            node_time_max: Duration::from_secs(agent.timeout_s),
        };
        Ok(Assistant {
            system: self.file.system(agent).map_err(|error| invalid(error.to_string()))?,
            model,
            toolbox,
            notes,
            locks: self.locks.clone(),
            workers: agent.workers.iter().map(|name| parse(name)).collect::<Result<_, _>>()?,
            client_tools: Vec::new(),
            parallel_max: agent.parallel,
            temperature: agent.temperature.or(config.temperature),
            max_tokens: agent.max_tokens.or(config.max_tokens),
            context_tokens: config.context_tokens,
            call_time_max: Duration::from_secs(agent.tool_timeout_s),
            limits,
        })
    }

    /// What each tool server of a configuration offers now; the outer `Err` if it could not be queried.
    pub async fn tool_servers(file: &File, confinement: Confinement) -> Vec<(String, Result<Usable, String>)> {
        let outside = match Outside::new(crate::config::path(), confinement) {
            Ok(outside) => outside,
            Err(why) => return vec![("(any)".to_owned(), Err(why))],
        };
        let asked = file.sections.mcp.iter().map(|(name, config)| {
            let offered = outside.offered(name, config, file);
            // Reduced to a summary here, because tools keep their server running.
            async move { (name.clone(), offered.await.map(usable)) }
        });
        let offered = futures::future::join_all(asked).await;
        outside.close().await;
        offered
    }

    /// The agent behind an AG-UI endpoint.
    fn proxy(&self, agent: &AgentSection) -> Result<Arc<dyn Agent>, String> {
        let endpoint = self.file.endpoint(agent).map_err(|(key, why)| format!("{key}: {why}"))?;
        self.outside.proxy(&endpoint)
    }

    /// Restricts which owners may use which agents. Checked here because every run is resolved here, however it was
    /// created.
    #[must_use]
    pub fn admitting(self, admission: Admission) -> Self {
        Self { admission, ..self }
    }

    fn model(&self, agent: &AgentSection) -> Result<(Arc<dyn Model>, ModelConfig), String> {
        let config = self.file.model(&agent.model)?;
        let model: Arc<dyn Model> = match &config.source {
            Source::Echo => Arc::new(Echo),
            Source::Script(path) => {
                let text = File::script(path).map_err(|error| error.to_string())?;
                let script = Script::parse(&config.source.to_string(), &text);
                Arc::new(script.map_err(|error| format!("the script {}: {}", path.display(), error.message()))?)
            }
            Source::OwnScript => {
                let script = Script::of(&config.source.to_string(), config.script.clone().unwrap_or_default());
                Arc::new(script.map_err(|error| format!("the script: {}", error.message()))?)
            }
            Source::Provider { kind, model } => self.outside.model(&config, *kind, model)?,
        };
        Ok((model, config))
    }

    /// The tools that need no tool server.
    fn own_tools(&self, agent: &AgentSection) -> Result<Vec<Arc<dyn Tool>>, String> {
        let mut tools = Vec::new();
        for name in agent.tools.iter().filter(|name| !self.file.sections.mcp.contains_key(*name)) {
            let (kind, section) = self.file.tool(name)?;
            let made = self.builtin(name, kind, &section).map_err(|why| format!("the tool {name}: {why}"))?;
            tools.extend(made.into_iter().map(|tool| configured(name, kind, &section, tool)));
        }
        Ok(tools)
    }

    fn builtin(&self, name: &str, kind: ToolKind, section: &ToolSection) -> Result<Vec<Arc<dyn Tool>>, String> {
        let time_max = section.timeout_s.map_or(TIME_MAX_DEFAULT, Duration::from_secs);
        let bytes_max = section.bytes_max.unwrap_or(BYTES_MAX_DEFAULT);
        let held = section.root.as_ref().and_then(|root| self.confinement.within(&self.file.path(root)));
        if let Some(held) = held {
            return Err(format!(
                "its folder contains {}, which belongs to the server: set another root",
                held.display()
            ));
        }
        // Without a configured folder, every owner has one of their own.
        let root = match &section.root {
            Some(root) => files::Root::open(&self.file.path(root), false),
            None => files::Root::open(&self.data_dir.join("files"), true),
        };
        let root = root.map_err(|error| format!("its folder cannot be opened: {error}"));
        Ok(match kind {
            ToolKind::Files => files::tools(&root?, name, section.write.unwrap_or(true)),
            ToolKind::Fetch => vec![Arc::new(fetch::Fetch::new(fetch::Settings {
                allow: section.allow.clone().unwrap_or_default(),
                allow_private: section.allow_private.clone().unwrap_or_default(),
                bytes_max,
                time_max,
            })?)],
            ToolKind::Shell => vec![Arc::new(shell::Shell(shell::Settings {
                root: root?,
                path: self.path.clone(),
                output_bytes_max: bytes_max,
                time_max,
                confinement: self.confinement.clone(),
            }))],
        })
    }
}

impl AgentResolver for Agents {
    fn names(&self) -> Vec<Name> {
        self.file.sections.agents.keys().filter_map(|name| name.parse().ok()).collect()
    }

    fn resolve<'a>(&'a self, agent: &'a Name, run: &'a RunContext) -> BoxFuture<'a, Result<Arc<dyn Agent>, String>> {
        Box::pin(async move {
            if !self.admission.may_use(&run.owner_id, agent) {
                return Err(format!("the owner of this run may not use the agent {agent}"));
            }
            let section = self.file.sections.agents.get(agent.as_str());
            if let Some(section) = section.filter(|section| section.kind == AgentKind::Agui) {
                return self.proxy(section);
            }
            let assistant = self.assistant(agent.as_str()).await.map_err(|error| error.to_string())?;
            Ok(Arc::new(assistant) as Arc<dyn Agent>)
        })
    }

    /// Stops the tool servers that were started.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.outside.close())
    }
}

/// A tool with the name, time limit, approval and exclusivity of its section.
struct Configured {
    name: String,
    section: String,
    approval: Option<bool>,
    exclusive: Option<Exclusive>,
    time_max: Option<Duration>,
    inner: Arc<dyn Tool>,
}

fn configured(name: &str, kind: ToolKind, section: &ToolSection, inner: Arc<dyn Tool>) -> Arc<dyn Tool> {
    // The file tools carry the section's name already.
    let (section_name, name) = (name.to_owned(), if kind == ToolKind::Files { inner.name() } else { name }.to_owned());
    Arc::new(Configured {
        name,
        section: section_name,
        approval: section.approval,
        exclusive: section.exclusive.clone(),
        time_max: section.timeout_s.map(Duration::from_secs),
        inner,
    })
}

impl Tool for Configured {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        self.inner.description()
    }

    fn schema(&self) -> Value {
        self.inner.schema()
    }

    fn exclusive(&self, context: &RunContext) -> Option<String> {
        match &self.exclusive {
            Some(exclusive) => exclusive.shared(&self.section),
            None => self.inner.exclusive(context),
        }
    }

    fn blocking(&self) -> bool {
        self.inner.blocking()
    }

    fn needs_approval(&self, args: &Value) -> bool {
        self.approval.unwrap_or_else(|| self.inner.needs_approval(args))
    }

    fn time_max(&self) -> Option<Duration> {
        self.time_max.or_else(|| self.inner.time_max())
    }

    fn call<'a>(&'a self, context: &'a RunContext, args: Value, cancel: &'a CancellationToken) -> Called<'a> {
        self.inner.call(context, args, cancel)
    }
}
