//! Chats as clients of several protocols follow them.

use serde_json::json;

use super::{api::Api, patiently};

/// A run of an agent in a thread that has started.
pub struct Chat {
    pub run: String,
}

impl Chat {
    pub async fn of(api: &Api, thread: &str) -> Self {
        let run = api.create(json!({"agent": "helper", "thread_id": thread, "start": false})).await;
        api.emit(&run, json!([{"type": "run.started"}])).await;
        Self { run }
    }
}

/// A stream that is being read.
pub struct Live {
    response: reqwest::Response,
    told: String,
}

impl Live {
    async fn open(api: &Api, path: &str) -> Self {
        let response = patiently("a stream", api.request(reqwest::Method::GET, path).send()).await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        Self { response, told: String::new() }
    }

    pub async fn agui(api: &Api, run: &str) -> Self {
        Self::open(api, &format!("/api/agui/runs/{run}")).await
    }

    pub async fn ai_sdk(api: &Api, thread: &str) -> Self {
        Self::open(api, &format!("/api/ai-sdk/agents/helper/{thread}/stream?ended=true")).await
    }

    /// Reads until it was told this.
    pub async fn until(&mut self, words: &str) {
        patiently(words, async {
            while !self.told.contains(words) {
                let chunk = self.response.chunk().await.unwrap();
                let chunk = chunk.unwrap_or_else(|| panic!("no {words}: {}", self.told));
                self.told.push_str(std::str::from_utf8(&chunk).unwrap());
            }
        })
        .await;
    }

    /// All that it is told.
    pub async fn rest(mut self) -> String {
        patiently("the rest", async {
            while let Some(chunk) = self.response.chunk().await.unwrap() {
                self.told.push_str(std::str::from_utf8(&chunk).unwrap());
            }
            self.told
        })
        .await
    }
}
