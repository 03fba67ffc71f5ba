//! The process with the AI SDK in it, ordered line by line.

use std::{path::Path, process::Stdio};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use super::route;
use crate::support::{api::Api, patiently};

pub struct Peer {
    orders: ChildStdin,
    states: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Peer {
    pub fn start() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers");
        assert!(folder.join("node_modules/ai").exists(), "the AI SDK is not installed: run ./just peers");
        let mut node = Command::new("node");
        let node = node.arg(folder.join("ai_sdk.mjs")).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = node.spawn().unwrap();
        let (orders, states) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { orders, states: BufReader::new(states).lines(), _child: child }
    }

    /// Orders something; returns the chat's state afterwards.
    pub async fn order(&mut self, order: Value) -> Value {
        self.orders.write_all(format!("{order}\n").as_bytes()).await.unwrap();
        let state = patiently(&order.to_string(), self.states.next_line()).await.unwrap();
        serde_json::from_str(&state.unwrap_or_else(|| panic!("the AI SDK's process ended at {order}"))).unwrap()
    }

    /// Opens a chat with an agent; `more` has its id.
    pub async fn open(&mut self, api: &Api, agent: &str, more: Value) {
        let mut order = json!({"do": "open", "api": format!("{}{}", api.base, route(agent)), "token": api.token});
        order.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.order(order).await;
    }
}
