//! Agents of a program's own at a runner, and what they reach of the server.

use std::sync::Arc;

use futures::future::BoxFuture;
use runreel::{
    agents::{
        agent::{Agent, Desk, Hired, Roster},
        assistant::Pictures as _,
        roster::Reach,
        spawner::Child,
        spill::Spill as _,
    },
    client::Client,
    clock::{Clock, IdSource, monotonic},
    domain::{context::RunContext, id::Name, limits::IMAGE_BYTES_MAX},
    engine::{Ended, Limits, drive::DriveError},
    runners::agents::RemoteShelf,
};

use super::*;

/// Gives work away and fails before it is done, or breaks.
struct Rash(Reach);

impl Agent for Rash {
    fn work(self: Arc<Self>, desk: Desk, _: Limits) -> BoxFuture<'static, Result<Ended<Value>, DriveError>> {
        Box::pin(async move {
            assert_eq!(desk.input, "fail", "broken on purpose");
            for title in ["one", "two"] {
                let (agent, input) = (Name::trusted("nobody"), Value::Null);
                let title = title.to_owned();
                let child = Child { run_id: None, thread_id: None, start: false, agent, title, input };
                self.0.spawner.spawn(&desk.context, child).await.unwrap();
            }
            Ok(Ended::Failed { node: None, error: "too much".to_owned() })
        })
    }
}

/// One agent.
struct Alone(Arc<Rash>);

impl Roster for Alone {
    fn names(&self) -> Vec<Name> {
        vec![Name::trusted("rash")]
    }

    fn resolve<'a>(&'a self, _: &'a Name, _: &'a RunContext) -> BoxFuture<'a, Result<Hired, String>> {
        let agent = Arc::clone(&self.0);
        let hired = Hired { agent, limits: Limits::default(), time_max: Duration::from_mins(1) };
        Box::pin(std::future::ready(Ok(hired)))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

fn reach(server: &Server) -> (Reach, Client) {
    let client = Client::new(&server.base, None).unwrap();
    (Reach::remote(&client, IdSource::random(Clock::System), monotonic()), client)
}

#[tokio::test]
async fn a_run_that_fails_at_a_runner_cancels_what_works_for_it_first() {
    let server = Server::start().await;
    let (reach, client) = reach(&server);
    let _hands = Hands::with(Arc::new(Alone(Arc::new(Rash(reach)))), &server, client);
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
    let (reach, client) = reach(&server);
    let _hands = Hands::with(Arc::new(Alone(Arc::new(Rash(reach)))), &server, client);
    let run = ask(&server, "rash", "break", json!({})).await;
    stands(&server, &run, "failed").await;
    assert_eq!(server.run(&run).await["error"]["message"], "the agent panicked");
    server.db.until_number("no job", JOBS, 0).await;
}

#[tokio::test]
async fn what_a_runner_keeps_is_one_artifact_however_often_and_comes_back_whole_or_not_at_all() {
    let server = Server::start().await;
    let (_, client) = reach(&server);
    let shelf = RemoteShelf::new(client);
    let run: runreel::domain::id::RunId = server.start_run().await.parse().unwrap();
    let owner = server.inner.authenticator.owner("", runreel::auth::LOCAL_SUBJECT);
    let context = server.inner.timeline.context(&owner, run).await.unwrap().unwrap();
    let keep = async |bytes: Vec<u8>| shelf.keep(&context, "picture.png", "image/png", bytes.into()).await.unwrap();
    let (kept, again) = (keep(vec![7; 1_000]).await, keep(vec![7; 1_000]).await);
    assert_eq!(kept, again);
    assert_eq!((kept.size, kept.media_type.as_str()), (1_000, "image/png"));
    assert_ne!(keep(vec![8; 1_000]).await.artifact_id, kept.artifact_id);
    let loaded = shelf.load(&context, &kept.artifact_id).await.unwrap();
    assert!(loaded.starts_with("BwcH") && loaded.len() == 1_336, "{loaded}");
    let large = keep(vec![7; IMAGE_BYTES_MAX + 1]).await;
    assert_eq!(shelf.load(&context, &large.artifact_id).await, None, "too large to look at");
    assert_eq!(shelf.load(&context, &new_run_id()).await, None);
    assert_eq!(shelf.load(&context, "../../runs").await, None);
}
