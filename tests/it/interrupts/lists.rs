//! The open interrupts of all runs: who sees what, in which order, and how a change arrives.

use serde_json::{Value, json};

use super::{answer, ask};
use crate::support::{api::Api, server::setup, shared::shared, sse::names};

async fn listed(api: &Api, query: &str) -> Value {
    api.get(&format!("/api/interrupts{query}")).await.expect(200)
}

fn ids(list: &Value) -> Vec<&str> {
    list["interrupts"].as_array().unwrap().iter().map(|open| open["interrupt_id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn what_all_runs_ask_is_one_list_with_the_newest_first_and_everything_a_person_needs() {
    let server = shared().await;
    let first = server.create(json!({ "title": "Tidy up", "agent": "coder", "thread_id": "t" })).await;
    let payload = json!({
        "kind": "approval", "prompt": "Delete the branch?", "tool": "git", "args": { "branch": "old" },
        "options": ["yes", "no"], "expires_at": "2999-01-01T00:00:00Z",
    });
    ask(&server, &first, "old", payload.clone()).await;
    let second = server.start_run().await;
    ask(&server, &second, "new", json!({ "kind": 7 })).await;
    server.emit(&second, json!({ "type": "interrupt.requested", "span_id": "newest", "payload": ["?"] })).await;
    let all = listed(&server, "").await;
    assert_eq!(ids(&all), ["newest", "new", "old"]);
    assert_eq!((&all["next_cursor"], &all["interrupts"][1]["seq"]), (&json!(null), &json!(3)));
    assert_eq!(all["interrupts"][0]["payload"], json!(["?"]));
    let old = &all["interrupts"][2];
    assert_eq!(old["payload"], payload);
    for (member, expected) in [
        ("run_id", json!(first)),
        ("seq", json!(3)),
        ("kind", json!("approval")),
        ("prompt", json!("Delete the branch?")),
        ("expires_at", json!("2999-01-01T00:00:00Z")),
        ("may_answer", json!(true)),
    ] {
        assert_eq!(old[member], expected, "{member}");
    }
    let run = json!({
        "title": "Tidy up", "agent": "coder", "role": "agent", "status": "interrupted", "thread_id": "t",
        "root_run_id": first, "parent_run_id": null,
    });
    assert_eq!(old["run"], run);
    assert_eq!((&all["interrupts"][1]["kind"], &all["interrupts"][1]["prompt"]), (&json!(null), &json!(null)));
    let (mut paged, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = listed(&server, &format!("?limit=1{cursor}")).await;
        paged.extend(ids(&page).into_iter().map(str::to_owned));
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(paged, ["newest", "new", "old"]);
    for bad in ["cursor=x", "cursor=r1.2", "limit=0", "cursor=i1.2.3"] {
        assert_eq!(server.get(&format!("/api/interrupts?{bad}")).await.status, 400, "{bad}");
    }
}

#[tokio::test]
async fn an_answer_and_the_end_of_a_run_take_a_question_off_the_list_and_the_feed_says_so() {
    let server = shared().await;
    let (answered, ended, kept) = (server.start_run().await, server.start_run().await, server.start_run().await);
    for (run, id) in [(&answered, "a"), (&ended, "b"), (&kept, "c")] {
        ask(&server, run, id, json!({})).await;
    }
    let before = listed(&server, "").await;
    assert_eq!(ids(&before), ["c", "b", "a"]);
    let cursor = before["stream_cursor"].as_str().unwrap();
    let path = format!("/api/stream/runs?types=interrupt.*,run.completed,run.failed,run.cancelled&after={cursor}");
    let mut feed = server.stream(&path).await;
    assert_eq!(feed.caught_up().await, 0);
    answer(&server, &answered, "a", "approve").await.expect(202);
    server.post(&format!("/api/runs/{ended}/cancel"), json!({})).await.expect(202);
    server.emit(&kept, json!({ "type": "interrupt.requested", "span_id": "d" })).await;
    let told = feed.durable(4).await;
    assert_eq!(names(&told), ["interrupt.resolved", "interrupt.resolved", "run.cancelled", "interrupt.requested"]);
    assert_eq!(ids(&listed(&server, "").await), ["d", "c"]);
    server.emit(&kept, json!({ "type": "run.resumed" })).await;
    assert_eq!(ids(&listed(&server, "").await), ["d", "c"], "a run that goes on may still ask");
    server.complete(&kept).await;
    assert_eq!(ids(&listed(&server, "").await), [""; 0]);
}

#[tokio::test]
async fn the_list_is_the_callers_own_and_not_for_credentials_of_one_run() {
    let server = setup().jwt().start().await;
    let (ann, bob) = (server.as_subject("ann"), server.as_subject("bob"));
    let run = ann.start_run().await;
    ask(&ann, &run, "i", json!({})).await;
    assert_eq!(ids(&listed(&bob, "").await), [""; 0]);
    let made = ann.post(&format!("/api/runs/{run}/tokens"), json!({})).await.expect(201);
    let reader = server.with(made["token"].as_str().unwrap());
    reader.get("/api/interrupts").await.refused(403, "forbidden");
    let scopes = json!({ "name": "t", "scopes": ["read"] });
    let made = ann.post("/api/tokens", scopes).await.expect(201);
    let reader = server.with(made["token"].as_str().unwrap());
    assert_eq!(listed(&reader, "").await["interrupts"][0]["may_answer"], false, "it may only read");
    assert_eq!(listed(&ann, "").await["interrupts"][0]["may_answer"], true);
}

#[tokio::test]
async fn an_answer_says_who_gave_it_and_the_same_answer_of_another_is_the_same() {
    let config = "[agents.coder]\nmodel = \"echo\"\napprovers = [\"ann\", \"bob\"]\n";
    let server = setup().jwt().config(config).start().await;
    let (ann, bob) = (server.as_subject("ann"), server.as_subject("bob"));
    let run = ann.create(json!({ "agent": "coder" })).await;
    ask(&ann, &run, "i", json!({})).await;
    answer(&bob, &run, "i", "approve").await.expect(202);
    let owner_of = |subject: &str| server.inner.authenticator.owner("", subject).as_str().to_owned();
    let resolved = super::payloads(&ann, &run, "interrupt.resolved").await.remove(0);
    assert_eq!(
        resolved,
        json!({ "interrupt_id": "i", "decision": "approve", "value": null, "resolved_by": owner_of("bob") })
    );
    answer(&ann, &run, "i", "approve").await.expect(202);
    answer(&ann, &run, "i", "reject").await.refused(409, "interrupt_closed");
    assert_eq!(super::payloads(&ann, &run, "interrupt.resolved").await.len(), 1);
    // Nobody's answer has nobody's name.
    ask(&ann, &run, "j", json!({})).await;
    ann.post(&format!("/api/runs/{run}/cancel"), json!({})).await.expect(202);
    let resolved = super::payloads(&ann, &run, "interrupt.resolved").await.remove(1);
    assert_eq!(resolved, json!({ "interrupt_id": "j", "decision": "cancelled", "value": null }));
}
