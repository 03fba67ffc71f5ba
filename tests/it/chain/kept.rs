//! What happens to a log without anybody editing it leaves its chains whole.

use serde_json::{Value, json};

use super::{as_superuser, eight, sealing, until_sealed, verified, verify_all};
use crate::support::{
    cluster::Db,
    process::{program, run},
    runs::numbered,
    server::{Server, setup},
};

#[tokio::test]
async fn what_two_servers_write_into_one_run_is_one_chain() {
    let db = Db::new().await;
    let (a, b) = (setup().on(&db).start().await, setup().on(&db).start().await);
    let id = a.start_run().await;
    // In turns, together, and with calls of models, which are written by the larger statement.
    for n in 0..6 {
        (if n % 2 == 0 { &a } else { &b }).emit(&id, numbered(n)).await;
    }
    let call = json!({ "type": "message.completed", "span_id": "m", "payload": { "text": "", "usage": { "input_tokens": 1 } } });
    let all = (0..24).map(|n| {
        let body = if n % 5 == 0 { json!([call, { "type": "log.info" }]) } else { numbered(n) };
        (if n % 3 == 0 { &a } else { &b }).emit(&id, body)
    });
    futures::future::join_all(all).await;
    b.complete(&id).await;
    let found = verified(&a, &id).await;
    assert_eq!((&found["state"], &found["last_seq"], &found["faults"]), (&json!("verified"), &json!(38), &json!([])));
    assert_eq!(verified(&b, &id).await["head"], found["head"]);
}

#[tokio::test]
async fn a_log_that_is_older_is_covered_from_the_next_event_on() {
    let server = Server::start().await;
    let (id, old) = (eight(&server).await, server.start_run().await);
    server.emit(&old, numbered(1)).await;
    let db = std::sync::Arc::clone(&server.db);
    // The server that wrote it is another one, which neither linked nor sealed.
    server.stop().await;
    let older = "update store.run_event set link = null; update store.run set link = null, link_before = null;
         update store.lane set unlinked_to = position; delete from store.sealed_run; delete from store.seal";
    as_superuser(&db, older).await;
    let server = setup().on(&db).start().await;
    assert_eq!(verified(&server, &id).await["state"], "uncovered");
    server.emit(&old, numbered(2)).await;
    server.complete(&old).await;
    let found = verified(&server, &old).await;
    assert_eq!(
        (&found["state"], &found["covered_from"], &found["last_seq"]),
        (&json!("verified"), &json!(4), &json!(5))
    );
    let (code, faults, summary) = verify_all(&db, &[]).await;
    assert_eq!((code, faults.len(), &summary["uncovered_runs"]), (Some(0), 0, &json!(2)), "{faults:?}");
}

#[tokio::test]
async fn an_export_states_the_head_and_its_copy_has_the_same() {
    let [source, target] = Db::two().await;
    let (from, to) = (setup().on(&source).start().await, setup().on(&target).start().await);
    let id = eight(&from).await;
    let head = verified(&from, &id).await["head"].clone();
    let export = from.get(&format!("/api/runs/{id}/export")).await;
    let lines: Vec<&str> = export.text.lines().collect();
    let end: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
    assert_eq!(end["end"]["head"], head);
    let events = lines[..lines.len() - 1].join("\n");
    to.post_text(&format!("/api/runs/{id}/import"), "application/x-ndjson", events).await.expect(201);
    let copy = verified(&to, &id).await;
    assert_eq!((&copy["state"], &copy["head"]), (&json!("verified"), &head));
}

#[tokio::test]
async fn what_was_removed_by_its_owner_is_no_edit() {
    let server = sealing(setup()).start().await;
    let (gone, stays) = (eight(&server).await, eight(&server).await);
    until_sealed(&server.db, 2).await;
    server.delete(&format!("/api/runs/{gone}")).await.expect(204);
    let (code, faults, _) = verify_all(&server.db, &[]).await;
    assert_eq!((code, faults), (Some(0), vec![]));
    let removed = "select count(*) from store.sealed_run where is_removed and last_seq = 8";
    server.db.until_number("the removal to be sealed", removed, 1).await;
    let (code, faults, summary) = verify_all(&server.db, &[]).await;
    assert_eq!((code, faults, &summary["runs"]), (Some(0), vec![], &json!(1)));
    assert_eq!(verified(&server, &stays).await["state"], "verified");
}

#[tokio::test]
async fn a_person_verifies_a_run_by_the_beginning_of_its_id() {
    let server = Server::start().await;
    let id = eight(&server).await;
    let verify =
        async |words: &[&str]| run(program(&[&["verify", "--url", &server.base, &id[..23]], words].concat()), "").await;
    let said = verify(&[]).await;
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stderr.contains("is as it was written: 8 events, head "), "{}", said.stderr);
    as_superuser(&server.db, "update store.run_event set at = at + interval '1 hour' where seq = 6").await;
    let said = verify(&[]).await;
    assert_eq!(said.code, Some(1));
    assert_eq!(said.stdout, format!("{id} seq 6: the event, or the link of the one before it, was changed\n"));
    let found: Value = serde_json::from_str(&verify(&["--json"]).await.stdout).unwrap();
    assert_eq!(found["faults"][0]["kind"], "altered");
}
