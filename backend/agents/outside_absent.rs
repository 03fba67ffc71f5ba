//! `outside` in a build without the feature `agents`: each use fails with an error that names the feature.

#![expect(
    clippy::unnecessary_wraps,
    clippy::unused_async,
    clippy::unused_self,
    reason = "the same functions as those of `outside`"
)]

use std::{ffi::OsString, sync::Arc};

use super::{model::Model, tools::Offered};
use crate::{
    config::{
        File,
        endpoint::Endpoint,
        models::{Kind, ModelConfig},
        sections::{Agent, Mcp},
    },
    confine::Confinement,
};

const HINT: &str = "which this build does not contain; build Runreel with the feature `agents`";

#[derive(Clone)]
pub(super) struct Outside;

impl Outside {
    pub(super) fn new(_: Option<OsString>, _: Confinement) -> Result<Self, String> {
        Ok(Self)
    }

    pub(super) fn model(&self, config: &ModelConfig, _: Kind, _: &str) -> Result<Arc<dyn Model>, String> {
        Err(format!("the model {} needs the models of providers, {HINT}", config.source))
    }

    pub(super) fn proxy(&self, _: &Endpoint) -> Result<Arc<dyn super::agent::Agent>, String> {
        Err(format!("kind = \"agui\" needs the AG-UI client, {HINT}"))
    }

    pub(super) async fn tools(&self, agent: &Agent, file: &File) -> Result<Offered, String> {
        match agent.tools.iter().find(|name| file.sections.mcp.contains_key(*name)) {
            Some(name) => Err(format!("the tool server {name} needs MCP, {HINT}")),
            None => Ok(Offered::default()),
        }
    }

    pub(super) async fn offered(&self, name: &str, _: &Mcp, _: &File) -> Result<Offered, String> {
        Err(format!("the tool server {name} needs MCP, {HINT}"))
    }

    pub(super) async fn close(&self) {}
}
