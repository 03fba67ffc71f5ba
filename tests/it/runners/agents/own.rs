//! Agents of a program's own at a runner, and what they reach of the server.

use std::sync::Arc;

use futures::future::BoxFuture;
use runreel::{
    agents::agent::{Agent, AgentResolver},
    client::Client,
    domain::{
        context::RunContext,
        id::{Name, RunId},
        limits::IMAGE_BYTES_MAX,
    },
    emitters::host::{Child, HostError, RunHost},
    engine::{Ended, RunEnv},
};

use super::*;

/// Gives work away and fails before it is done, or keeps something, or breaks.
struct Rash;

impl Agent for Rash {
    fn work(self: Arc<Self>, env: RunEnv, input: Value) -> BoxFuture<'static, Result<Ended<Value>, HostError>> {
        Box::pin(async move {
            if input == "keep" {
                return Ok(Ended::Completed(kept(&*env.host).await));
            }
            assert_eq!(input, "fail", "broken on purpose");
            for title in ["one", "two"] {
                let (run_id, agent) = (RunId::trusted(env.ids.uuid()), Name::trusted("nobody"));
                let child = Child { run_id, agent, title: title.to_owned(), input: Value::Null };
                env.host.spawn(child).await.unwrap();
            }
            Ok(Ended::Failed { node: None, code: None, error: "too much".to_owned() })
        })
    }

    fn time_max(&self) -> Duration {
        Duration::from_mins(1)
    }
}

/// Keeps bytes and reads them back, and says what came of it.
async fn kept(host: &dyn RunHost) -> Value {
    let keep = async |bytes: Vec<u8>| host.keep_artifact("picture.png", "image/png", bytes.into()).await.unwrap();
    let (kept, again, other) = (keep(vec![7; 1_000]).await, keep(vec![7; 1_000]).await, keep(vec![8; 1_000]).await);
    let large = keep(vec![7; IMAGE_BYTES_MAX + 1]).await;
    let read = async |id: &str, from, bytes_max| {
        let piece = host.read_artifact(id, from, bytes_max).await.unwrap();
        piece.map(|piece| json!([piece.bytes.len(), piece.bytes.first(), piece.size, piece.media_type]))
    };
    json!({
        "kept": kept, "again": again, "other": other,
        "whole": read(&kept.artifact_id, 0, 5_000).await, "part": read(&kept.artifact_id, 990, 5_000).await,
        "beyond": read(&kept.artifact_id, 1_000, 5).await, "large": read(&large.artifact_id, 0, 10).await,
        "absent": [read(&new_run_id(), 0, 5).await, read("../../runs", 0, 5).await],
    })
}

/// One agent.
struct Alone;

impl AgentResolver for Alone {
    fn names(&self) -> Vec<Name> {
        vec![Name::trusted("rash")]
    }

    fn resolve<'a>(&'a self, _: &'a Name, _: &'a RunContext) -> BoxFuture<'a, Result<Arc<dyn Agent>, String>> {
        Box::pin(std::future::ready(Ok(Arc::new(Rash) as Arc<dyn Agent>)))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

fn hands(server: &Server) -> Hands {
    Hands::with(Arc::new(Alone), server, Client::new(&server.base, None).unwrap())
}

#[tokio::test]
async fn a_run_that_fails_at_a_runner_cancels_what_works_for_it_first() {
    let server = Server::start().await;
    let _hands = hands(&server);
    let run = ask(&server, "rash", "fail", json!({})).await;
    stands(&server, &run, "failed").await;
    let failed = server.run(&run).await;
    assert_eq!(failed["error"]["message"], "too much");
    let children = server.get(&format!("/api/runs?parent_run_id={run}")).await.expect(200)["runs"].clone();
    let children = children.as_array().unwrap();
    assert_eq!(children.len(), 2);
    for child in children {
        assert_eq!((&child["status"], &child["role"]), (&json!("cancelled"), &json!("worker")));
        assert!(child["ended_at"].as_str() <= failed["ended_at"].as_str(), "{child}");
        let events = log(&server, child["run_id"].as_str().unwrap()).await;
        assert_eq!(events.last().unwrap()["payload"]["reason"], "the run it worked for failed");
    }
}

#[tokio::test]
async fn a_run_whose_agent_breaks_at_a_runner_has_failed_and_is_not_taken_for_done() {
    let server = Server::start().await;
    let _hands = hands(&server);
    let run = ask(&server, "rash", "break", json!({})).await;
    stands(&server, &run, "failed").await;
    assert_eq!(server.run(&run).await["error"]["message"], "the agent panicked");
    server.db.until_number("no job", JOBS, 0).await;
}

#[tokio::test]
async fn what_a_runner_keeps_is_one_artifact_however_often_and_comes_back_whole_or_in_parts() {
    let server = Server::start().await;
    let _hands = hands(&server);
    let run = ask(&server, "rash", "keep", json!({})).await;
    stands(&server, &run, "completed").await;
    let kept = server.run(&run).await["output"].clone();
    assert_eq!(kept["kept"], kept["again"]);
    assert_eq!((&kept["kept"]["size"], &kept["kept"]["media_type"]), (&json!(1_000), &json!("image/png")));
    assert_ne!(kept["kept"]["artifact_id"], kept["other"]["artifact_id"]);
    assert_eq!(kept["whole"], json!([1_000, 7, 1_000, "image/png"]));
    assert_eq!(kept["part"], json!([10, 7, 1_000, "image/png"]));
    assert_eq!(kept["beyond"][0], 0, "{kept}");
    assert_eq!(kept["large"], json!([10, 7, IMAGE_BYTES_MAX + 1, "image/png"]));
    assert_eq!(kept["absent"], json!([null, null]));
}
