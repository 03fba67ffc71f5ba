//! Calls of an agent's tools, without a run.

use runreel::{
    agents::{assistant::Assistant, tools::ToolError},
    domain::context::{Role, RunContext},
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::patiently;

pub fn context() -> RunContext {
    let run_id = "0198c0de-0000-7000-8000-000000000001".parse().unwrap();
    RunContext {
        run_id,
        root_run_id: run_id,
        parent_run_id: None,
        owner_id: runreel::domain::principal::OwnerId::trusted("00ff"),
        thread_id: None,
        session_id: None,
        role: Role::Agent,
        agent: None,
        origin: None,
        trace_id: None,
    }
}

pub async fn call(agent: &Assistant, tool: &str, args: Value, cancel: &CancellationToken) -> Result<Value, ToolError> {
    let tool = agent.toolbox.fit(tool, &args)?;
    patiently("a tool", tool.call(&context(), args, cancel)).await
}
