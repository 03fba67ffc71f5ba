//! Seals that are edited, and the key that signs them.

use std::{path::PathBuf, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use runreel::sealer::Sealer;
use serde_json::{Value, json};

use super::{as_superuser, eight, sealing, until_sealed, verified, verify_all, verify_beside};
use crate::support::{cluster::Db, server::setup};

/// A private key of nobody, in the form that openssl writes.
fn key_file(db: &Db, first: u8) -> PathBuf {
    let prefix = hex::decode("302e020100300506032b657004220420").unwrap();
    let body = STANDARD.encode([prefix, (first..first + 32).collect()].concat());
    let path = db.data.path().join(format!("seal-{first}.pem"));
    std::fs::write(&path, format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n")).unwrap();
    path
}

async fn text(db: &Db, query: &'static str) -> String {
    let mut connection = db.connect().await;
    sqlx::query_scalar(query).fetch_one(&mut connection).await.unwrap()
}

/// A database with three seals at least, all signed: each run is in one of its own, and the last one names a removal.
async fn sealed() -> Arc<Db> {
    let db = Db::new().await;
    let key = key_file(&db, 0);
    let server = sealing(setup().on(&db)).flags(&["--seal-key-file", key.to_str().unwrap()]).start().await;
    let first = eight(&server).await;
    until_sealed(&db, 1).await;
    eight(&server).await;
    until_sealed(&db, 2).await;
    let seal = verified(&server, &first).await["seal"].clone();
    assert_eq!(seal["key"], text(&db, "select key from store.seal limit 1").await.as_str());
    server.delete(&format!("/api/runs/{first}")).await.expect(204);
    db.until_number("the removal to be sealed", "select count(*) from store.sealed_run where is_removed", 1).await;
    server.stop().await;
    db
}

/// Edits of seals, the number of the first that is named, and what is said of it. `$last` is the last one.
const EDITS: &[(&str, &str, &str)] = &[
    ("update store.seal set sha256 = sha256(sha256) where number = 2", "2", "was changed"),
    ("update store.seal set at = at + interval '1 us' where number = 2", "2", "was changed"),
    ("update store.seal set positions[1] = positions[1] + 1 where number = 2", "2", "was changed"),
    ("update store.sealed_run set last_seq = 7 where number = 2", "2", "was changed"),
    ("update store.sealed_run set link = sha256(link) where number = 2", "2", "was changed"),
    ("update store.sealed_run set owner_id = 'x' where number = 2", "2", "was changed"),
    ("delete from store.sealed_run where number = 2", "2", "was changed"),
    ("update store.sealed_run set is_removed = true where number = 2", "2", "was changed"),
    ("delete from store.sealed_run where is_removed", "$last", "was changed"),
    ("delete from store.removed_run", "$last", "the note of the removal"),
    ("delete from store.sealed_run where number = 2; delete from store.seal where number = 2", "2", "missing"),
    ("update store.seal set signature = repeat('0', 128) where number = 2", "2", "signature is wrong"),
    ("update store.seal set key = repeat('0', 64) where number = 2", "2", "signature is wrong"),
    ("update store.seal set key = null, signature = null where number = 2", "2", "not signed by the given key"),
    ("delete from store.sealed_run; delete from store.seal", "1", "noted elsewhere is not there"),
    (
        "delete from store.sealed_run where number = $last; delete from store.seal where number = $last",
        "$last",
        "noted elsewhere is not there",
    ),
];

#[tokio::test]
async fn every_edit_of_a_seal_is_found_and_names_it() {
    let db = sealed().await;
    let key = text(&db, "select key from store.seal limit 1").await;
    let last = text(&db, "select max(number)::text from store.seal").await;
    let noted = text(&db, "select encode(sha256, 'hex') from store.seal order by number desc limit 1").await;
    let verify = async || verify_all(&db, &["--key", &key, "--seal", &noted]).await;
    let (code, faults, summary) = verify().await;
    assert_eq!((code, faults), (Some(0), vec![]));
    assert_eq!(summary["last_seal"], noted.as_str());
    let copies =
        "create table public.seal as table store.seal; create table public.sealed_run as table store.sealed_run;
        create table public.removed_run as table store.removed_run";
    as_superuser(&db, copies).await;
    let back = "delete from store.sealed_run; delete from store.seal; delete from store.removed_run;
        insert into store.seal table public.seal; insert into store.sealed_run table public.sealed_run;
        insert into store.removed_run table public.removed_run";
    for (sql, number, detail) in EDITS {
        as_superuser(&db, &sql.replace("$last", &last)).await;
        let (code, faults, _) = verify().await;
        let wanted: i64 = number.replace("$last", &last).parse().unwrap();
        let is_named = |fault: &&Value| fault["seal"] == wanted && fault["detail"].as_str().unwrap().contains(detail);
        assert!(code == Some(1) && faults.iter().any(|fault| is_named(&fault)), "{sql}: {faults:?}");
        as_superuser(&db, back).await;
    }
    assert_eq!(verify().await.0, Some(0));
    // A run that vanishes with a note of its removal, as if an earlier seal had named that.
    let forged = "insert into store.removed_run (run_id, owner_id, last_seq, link, number)
            select run_id, owner_id, last_seq, link, 3 from store.run;
        delete from store.run_event; delete from store.run; update store.removed set events = events + 8";
    as_superuser(&db, forged).await;
    let (code, faults, _) = verify().await;
    assert_eq!((code, &faults[0]["kind"], faults.len()), (Some(1), &json!("sealed"), 1), "{faults:?}");
}

#[tokio::test]
async fn the_last_seal_is_signed_by_the_given_key_whatever_signed_those_before() {
    let db = sealed().await;
    let key = text(&db, "select key from store.seal limit 1").await;
    as_superuser(&db, "update store.seal set key = null, signature = null where number < 3").await;
    assert_eq!(verify_all(&db, &["--key", &key]).await.0, Some(0));
    let (code, faults, _) = verify_all(&db, &["--key", &"0".repeat(64)]).await;
    assert_eq!((code, faults.len()), (Some(1), 1), "{faults:?}");
    // One without a signature would hide from the next ones what happened before it.
    let forged = "insert into store.seal (number, at, positions, sha256)
            select number + 1, at, positions, sha256(sha256) from store.seal order by number desc limit 1";
    as_superuser(&db, forged).await;
    let (_, faults, _) = verify_all(&db, &["--key", &key]).await;
    assert!(
        faults.iter().any(|fault| fault["detail"].as_str().unwrap().contains("which signed one before")),
        "{faults:?}"
    );
}

#[tokio::test]
async fn nothing_is_sealed_on_top_of_seals_that_were_replaced_until_the_operator_agrees() {
    let db = sealed().await;
    let server = setup().on(&db).start().await;
    let sealer = Sealer {
        store: server.inner.timeline.store().clone(),
        clock: server.clock.clone(),
        every: Duration::ZERO,
        key: None,
        data_dir: db.data.path().to_owned(),
    };
    sealer.seal_if_due().await.unwrap();
    let verify = async || verify_beside(&db, db.data.path(), &[]).await;
    assert_eq!(verify().await.0, Some(0));
    as_superuser(&db, "delete from store.sealed_run; delete from store.seal").await;
    let refusal = sealer.seal_if_due().await.unwrap_err().to_string();
    assert_eq!(db.number("select count(*) from store.seal").await, 0);
    let (code, faults, _) = verify().await;
    assert_eq!((code, faults.len()), (Some(1), 1), "{faults:?}");
    assert!(faults[0]["detail"].as_str().unwrap().contains("has seen it"), "{faults:?}");
    let file = refusal.split_whitespace().find(|word| word.ends_with(".seal.json")).unwrap();
    std::fs::remove_file(file).unwrap();
    sealer.seal_if_due().await.unwrap();
    assert!(db.number("select count(*) from store.seal").await > 0);
    assert_eq!(verify().await.0, Some(0));
}

#[tokio::test]
async fn a_run_that_was_removed_and_made_again_is_as_it_was_written_also_before_the_next_seal() {
    let db = Db::new().await;
    let server = sealing(setup().on(&db)).start().await;
    let run = eight(&server).await;
    until_sealed(&db, 1).await;
    server.stop().await;
    let server = setup().on(&db).start().await;
    server.delete(&format!("/api/runs/{run}")).await.expect(204);
    server.create(json!({ "run_id": run })).await;
    server.emit(&run, json!({ "type": "log.info" })).await;
    let found = verified(&server, &run).await;
    assert_eq!((&found["state"], &found["faults"]), (&json!("verified"), &json!([])), "{found}");
    let (code, faults, _) = verify_all(&db, &[]).await;
    assert_eq!((code, faults), (Some(0), vec![]));
    // Not so if something of it is older than the seal.
    as_superuser(&db, "update store.run_event set position = 1 where seq = 1").await;
    assert_eq!(verified(&server, &run).await["state"], "altered");
}

#[tokio::test]
async fn a_note_of_a_removal_excuses_no_run_that_is_still_there() {
    let db = sealed().await;
    let forged = "insert into store.removed_run (run_id, owner_id, last_seq, link)
            select run_id, owner_id, last_seq, link from store.run;
        delete from store.run_event where seq > 6; update store.removed set events = events + 2;
        update store.run r set last_seq = 6, status = 'running', ended_at = null,
            link = (select e.link from store.run_event e where e.run_id = r.run_id and e.seq = 6)";
    as_superuser(&db, forged).await;
    let (code, faults, _) = verify_all(&db, &[]).await;
    let is_named = |fault: &Value| fault["kind"] == "sealed" && fault["seq"] == 8;
    assert!(code == Some(1) && faults.iter().any(is_named), "{faults:?}");
}

#[tokio::test]
async fn two_servers_make_one_row_of_seals() {
    let db = Db::new().await;
    let start = async || sealing(setup().on(&db)).start().await;
    let (a, b) = (start().await, start().await);
    for _ in 0..3 {
        eight(&a).await;
        eight(&b).await;
        until_sealed(&db, db.number("select count(*) from store.run").await).await;
    }
    let (code, faults, _) = verify_all(&db, &[]).await;
    assert_eq!((code, faults), (Some(0), vec![]));
}

#[tokio::test]
async fn a_key_that_is_none_stops_the_server_at_its_start() {
    let db = Db::new().await;
    let path = db.data.path().join("no.pem");
    std::fs::write(&path, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").unwrap();
    for path in [path.as_path(), std::path::Path::new("/nowhere.pem")] {
        let args = crate::support::server::serve_args(&["--seal-key-file", path.to_str().unwrap()]);
        let error = args.seals.key().unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
    }
}
