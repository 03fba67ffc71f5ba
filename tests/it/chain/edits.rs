//! What is done to the tables, and where it shows.

use std::{collections::BTreeMap, sync::Arc};

use runreel::domain::{artifact::Hash, chain, event::Recorded, id::Seq, json::Json};
use serde_json::{Value, json};

use super::{as_superuser, eight, sealing, until_sealed, verify_all};
use crate::support::{cluster::Db, server::setup};

/// What somebody does to a run `$run`, and the first event that is named.
struct Edit {
    what: &'static str,
    sql: &'static str,
    seq: i64,
    kind: &'static str,
}

const fn edit(what: &'static str, sql: &'static str, seq: i64, kind: &'static str) -> Edit {
    Edit { what, sql, seq, kind }
}

/// Everything after seq 4 makes room for another event.
const MADE_ROOM: &str = "update store.run_event set seq = seq + 1000 where run_id = $run and seq >= 4;
    update store.run_event set seq = seq - 999 where run_id = $run and seq > 1000;
    update store.run set last_seq = 9 where run_id = $run;";

const EDITS: &[Edit] = &[
    edit("a payload", "update store.run_event set payload = '{\"n\":-5}' where $at and seq = 5", 5, "altered"),
    edit("white space", "update store.run_event set payload = '{\"n\": 5}' where $at and seq = 5", 5, "altered"),
    edit("a type", "update store.run_event set type = 'log.warn' where $at and seq = 5", 5, "altered"),
    edit("a time", "update store.run_event set at = at + interval '1 us' where $at and seq = 5", 5, "altered"),
    edit("a span", "update store.run_event set span_id = null where $at and seq = 3", 3, "altered"),
    edit("a parent", "update store.run_event set parent_span_id = 's' where $at and seq = 5", 5, "altered"),
    edit("a key", "update store.run_event set event_id = 'other' where $at and seq = 4", 4, "altered"),
    edit("a role", "update store.run_event set role = 'worker' where $at and seq = 5", 5, "altered"),
    edit("an agent", "update store.run_event set agent = 'other' where $at and seq = 5", 5, "altered"),
    edit("the owner of an event", "update store.run_event set owner_id = 'x' where $at and seq = 5", 5, "owner"),
    edit(
        "the owner of a run",
        "update store.run_event set owner_id = 'x' where $at; update store.run set owner_id = 'x' where $at",
        8,
        "sealed",
    ),
    edit("a link", "update store.run_event set link = sha256(link) where $at and seq = 5", 5, "altered"),
    edit("a link that goes", "update store.run_event set link = null where $at and seq = 5", 5, "unlinked"),
    edit(
        "all links that go",
        "update store.run_event set link = null where $at; update store.run set link = null where $at",
        1,
        "unlinked",
    ),
    edit(
        "two events that change places",
        "update store.run_event set seq = seq + 1000 where $at and seq in (4, 5);
         update store.run_event set seq = 1009 - seq where $at and seq > 1000",
        4,
        "altered",
    ),
    edit(
        "two payloads that change places",
        "update store.run_event e set payload = (select o.payload from store.run_event o where o.run_id = e.run_id
         and o.seq = 11 - e.seq) where $at and seq in (5, 6)",
        5,
        "altered",
    ),
    edit("an event that goes", "delete from store.run_event where $at and seq = 5", 5, "removed"),
    edit("the first that goes", "delete from store.run_event where $at and seq = 1", 1, "removed"),
    edit("the last that goes", "delete from store.run_event where $at and seq = 8", 8, "removed"),
    edit(
        "an end that goes, and a head that fits",
        "delete from store.run_event where $at and seq > 6;
         update store.run r set last_seq = 6, status = 'running', ended_at = null,
             link = (select e.link from store.run_event e where e.run_id = r.run_id and e.seq = 6) where $at",
        8,
        "sealed",
    ),
    edit(
        "an event in between",
        "$room insert into store.run_event select run_id, 4, lane, position, owner_id, type, role, agent, span_id,
             parent_span_id, null, at, payload, link from store.run_event where $at and seq = 6",
        4,
        "altered",
    ),
    edit(
        "an event after the end",
        "insert into store.run_event select run_id, 9, lane, position, owner_id, type, role, agent, span_id,
             parent_span_id, event_id, at, payload, null from store.run_event where $at and seq = 7",
        9,
        "unlinked",
    ),
    edit("all events that go", "delete from store.run_event where $at", 1, "removed"),
    edit("a run that goes", "delete from store.run where $at", 8, "head"),
    edit("a run that vanishes", "delete from store.run_event where $at; delete from store.run where $at", 8, "sealed"),
    edit("a head", "update store.run set link = sha256(link) where $at", 8, "head"),
    edit("a status", "update store.run set status = 'failed' where $at", 8, "status"),
    edit("a last seq", "update store.run set last_seq = 7 where $at", 8, "added"),
    // With what the next two runs have at seq 5.
    edit("events of two runs that change places", "", 5, "altered"),
    edit("the other of the two", "", 5, "altered"),
    edit("a payload and its link", "", 6, "altered"),
    edit("nothing", "", 0, ""),
];

/// The first fault that is named of each run.
fn firsts(faults: &[Value]) -> BTreeMap<String, (i64, String)> {
    let mut firsts = BTreeMap::new();
    for fault in faults.iter().filter(|fault| fault["run_id"].is_string()) {
        let named = (fault["seq"].as_i64().unwrap(), fault["kind"].as_str().unwrap().to_owned());
        firsts.entry(fault["run_id"].as_str().unwrap().to_owned()).or_insert(named);
    }
    firsts
}

/// Changes the payload of seq 5, with the link that it would have had.
async fn forge(db: &Arc<Db>, run: &str, event: &Value) {
    let text = |name: &str| event[name].as_str().unwrap();
    let forged = Recorded {
        run_id: run.parse().unwrap(),
        seq: Seq::new(5),
        event_type: text("type").parse().unwrap(),
        role: serde_json::from_value(event["role"].clone()).unwrap(),
        agent: None,
        owner_id: Arc::from(""),
        span_id: None,
        parent_span_id: None,
        event_id: None,
        at: text("at").parse().unwrap(),
        payload: Json::parse("{\"n\":-5}").unwrap(),
    };
    let mut connection = db.connect().await;
    let before: Vec<u8> = sqlx::query_scalar("select link from store.run_event where run_id = $1::uuid and seq = 4")
        .bind(run)
        .fetch_one(&mut connection)
        .await
        .unwrap();
    let link = chain::chained(Hash::from_bytes(&before), forged.run_id, Seq::new(5).unwrap(), &forged).link;
    let sql = format!(
        "update store.run_event set payload = '{}', link = decode('{link}', 'hex') where run_id = '{run}' and seq = 5",
        forged.payload
    );
    as_superuser(db, &sql).await;
}

#[tokio::test]
async fn every_edit_of_the_tables_is_found_and_names_the_event() {
    let db = Db::new().await;
    // A log that was sealed just now is not sealed again for a day, so that no seal names a run that has not ended.
    let server = sealing(setup().on(&db)).start().await;
    eight(&server).await;
    until_sealed(&db, 1).await;
    server.stop().await;
    let server = setup().on(&db).start().await;
    let mut runs = Vec::new();
    for _ in EDITS {
        runs.push(eight(&server).await);
    }
    server.stop().await;
    let server = sealing(setup().on(&db)).start().await;
    until_sealed(&db, EDITS.len() as i64 + 1).await;
    let event = server.get(&format!("/api/runs/{}/events?after=4&limit=1", runs[EDITS.len() - 2])).await.expect(200);
    let (code, faults, summary) = verify_all(&db, &[]).await;
    assert_eq!((code, faults.len()), (Some(0), 0), "{faults:?}");
    assert_eq!((&summary["events"], &summary["uncovered_runs"]), (&json!(8 * (EDITS.len() + 1)), &json!(0)));
    server.stop().await;

    for (Edit { sql, .. }, run) in EDITS.iter().zip(&runs) {
        let at = format!("run_id = '{run}'");
        as_superuser(&db, &sql.replace("$room", MADE_ROOM).replace("$at", &at).replace("$run", &format!("'{run}'")))
            .await;
    }
    let (one, other) = (&runs[EDITS.len() - 4], &runs[EDITS.len() - 3]);
    let swap = format!(
        "update store.run_event set run_id = '{one}', seq = 1005 where run_id = '{other}' and seq = 5;
         update store.run_event set run_id = '{other}' where run_id = '{one}' and seq = 5;
         update store.run_event set seq = 5 where run_id = '{one}' and seq = 1005"
    );
    as_superuser(&db, &swap).await;
    forge(&db, &runs[EDITS.len() - 2], &event["events"][0]).await;

    let (code, faults, _) = verify_all(&db, &[]).await;
    assert_eq!(code, Some(1));
    let firsts = firsts(&faults);
    for (Edit { what, seq, kind, .. }, run) in EDITS.iter().zip(&runs) {
        let wanted = (!kind.is_empty()).then(|| (*seq, (*kind).to_owned()));
        assert_eq!(firsts.get(run), wanted.as_ref(), "{what}");
    }
    assert!(faults.iter().any(|fault| fault["lane"] == 0 && fault["missing"].as_i64() > Some(0)), "{faults:?}");
}

#[tokio::test]
async fn a_server_names_what_was_edited_in_a_run_of_ones_own() {
    let server = sealing(setup()).start().await;
    let (run, whole) = (eight(&server).await, eight(&server).await);
    until_sealed(&server.db, 2).await;
    let before = super::verified(&server, &run).await;
    assert_eq!(
        (&before["state"], &before["covered_from"], &before["checked_to"]),
        (&json!("verified"), &json!(1), &json!(8))
    );
    assert_eq!((&before["seal"]["last_seq"], &before["seal"]["key"]), (&json!(8), &json!(null)));
    as_superuser(
        &server.db,
        &format!("update store.run_event set type = 'log.warn' where run_id = '{run}' and seq = 4"),
    )
    .await;
    let after = super::verified(&server, &run).await;
    assert_eq!((&after["state"], &after["head"]), (&json!("altered"), &before["head"]));
    let fault = &after["faults"][0];
    assert_eq!(
        (&fault["seq"], &fault["kind"], after["faults"].as_array().unwrap().len()),
        (&json!(4), &json!("altered"), 1)
    );
    // After it nothing is wrong.
    let rest = server.get(&format!("/api/runs/{run}/verify?after=4")).await.expect(200);
    assert_eq!((&rest["state"], &rest["checked_to"]), (&json!("verified"), &json!(8)));
    assert_eq!(super::verified(&server, &whole).await["state"], "verified");
    let problem = server.get(&format!("/api/runs/{run}/verify?after=9")).await.refused(400, "invalid_request");
    assert_eq!(problem["field"], "after");
}
