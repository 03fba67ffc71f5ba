//! Files and rows that somebody made to look like ours.

use std::{collections::BTreeSet, fs, io::Read as _, os::unix::fs::PermissionsExt, path::Path};

use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::{
    chain::verify_all,
    support::{
        api::Api,
        cluster::execute,
        patiently,
        process::{Said, Served, program, run, serve},
        server::Server,
        until,
    },
};

/// A backup with further files, whole by its own account.
fn with_files(backup: &Path, files: &[(&str, &str)]) -> Vec<u8> {
    let whole = fs::read(backup).unwrap();
    let mut archive = tar::Archive::new(&whole[..]);
    let (mut rest, mut summary) = (0, Vec::new());
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        if entry.path().unwrap().to_str() == Some("backup.json") {
            rest = usize::try_from(entry.raw_header_position()).unwrap();
            entry.read_to_end(&mut summary).unwrap();
        }
    }
    let file = |builder: &mut tar::Builder<Vec<u8>>, name: &str, content: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        builder.append_data(&mut header, name, content).unwrap();
    };
    let mut added = tar::Builder::new(Vec::new());
    for (name, content) in files {
        file(&mut added, name, content.as_bytes());
    }
    let mut forged = [&whole[..rest], added.get_ref().as_slice()].concat();
    let mut said: serde_json::Value = serde_json::from_slice(&summary).unwrap();
    said["sha256"] = json!(hex::encode(Sha256::digest(&forged)));
    let mut end = tar::Builder::new(Vec::new());
    file(&mut end, "backup.json", said.to_string().as_bytes());
    forged.extend(end.into_inner().unwrap());
    forged
}

async fn stop(mut served: Served) {
    let pid = rustix::process::Pid::from_raw(served.child.id().unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    patiently("the shutdown", served.child.wait()).await.unwrap();
}

#[tokio::test]
async fn a_forged_backup_runs_no_command_and_leaves_no_file_beside_its_folders() {
    let place = tempfile::tempdir().unwrap();
    // Postgres has a user of its own when we are root.
    fs::set_permissions(place.path(), PermissionsExt::from_mode(0o711)).unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let restore = async |data: &str| -> Said {
        run(program(&["restore", &path("forged.tar"), "--data-dir", &path(data)]), "").await
    };
    let serving = ["serve", "--listen", "127.0.0.1:0", "--data-dir"];
    let served = serve(program(&[&serving[..], &[path("data").as_str()]].concat())).await;
    let made = run(program(&["backup", &path("one.tar"), "--data-dir", &path("data")]), "").await;
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    stop(served).await;

    for name in [".ssh/authorized_keys", "restore.moving", "postgres.pass", "postgresql/x"] {
        fs::write(path("forged.tar"), with_files(Path::new(&path("one.tar")), &[(name, "x")])).unwrap();
        let said = restore("other").await;
        assert_eq!(said.code, Some(1), "{name}: {}", said.stderr);
        assert!(said.stderr.contains("which no backup does"), "{name}: {}", said.stderr);
        assert!(
            !Path::new(&path("other/postgres")).exists() && !Path::new(&path("other")).join(name).exists(),
            "{name}"
        );
    }

    let ran = path("ran");
    let command = format!("recovery_end_command = 'touch {ran}'\narchive_cleanup_command = 'touch {ran}'\n");
    let files = [("postgres/postgresql.auto.conf", &*command), ("postgres/postgresql.conf", &*command)];
    fs::write(path("forged.tar"), with_files(Path::new(&path("one.tar")), &files)).unwrap();
    let said = restore("restored").await;
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    fs::set_permissions(place.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let served = serve(program(&[&serving[..], &[path("restored").as_str()]].concat())).await;
    let api = Api::new(served.base.clone());
    until("the server to be ready", || async { api.get("/readyz").await.status == 200 }).await;
    stop(served).await;
    assert!(!Path::new(&ran).exists());
}

#[tokio::test]
async fn a_row_that_says_what_its_event_does_not_is_named() {
    let server = Server::start().await;
    let mut superuser = server.db.connect().await;
    let other = server.start_run().await;
    server.upload(&other, "other.txt", "other").await;
    let ended = async |output: serde_json::Value| {
        let run = server
            .create(
                json!({ "title": "t", "agent": "a", "input": { "n": 1 }, "tags": ["x"], "metadata": { "m": [1.50] },
                            "start": true }),
            )
            .await;
        let artifact = server.upload(&run, "report.txt", "kept").await["artifact_id"].as_str().unwrap().to_owned();
        server.emit(&run, json!([{ "type": "run.completed", "payload": output }])).await;
        let verified = server.get(&format!("/api/runs/{run}/verify")).await.expect(200);
        assert_eq!(verified["state"], "verified", "{verified}");
        (run, artifact)
    };
    let changes = [
        ("record", "update store.run set title = 'other' where run_id = $run"),
        ("record", "update store.run set title = null where run_id = $run"),
        ("record", "update store.run set agent = 'other' where run_id = $run"),
        ("record", "update store.run set input = '{\"n\":2}' where run_id = $run"),
        ("record", "update store.run set tags = '{y}' where run_id = $run"),
        ("record", "update store.run set metadata = '{}' where run_id = $run"),
        ("record", "update store.run set output = '\"other\"' where run_id = $run"),
        (
            "artifact",
            "update store.artifact a set sha256 = c.sha256 from store.content c where artifact_id = $artifact and a.sha256 <> c.sha256",
        ),
        ("artifact", "update store.artifact set size = 1 where artifact_id = $artifact"),
        ("artifact", "update store.artifact set name = 'x' where artifact_id = $artifact"),
        ("artifact", "update store.artifact set media_type = 'text/html' where artifact_id = $artifact"),
        ("artifact", "delete from store.artifact where artifact_id = $artifact"),
    ];
    let mut expected = BTreeSet::new();
    for (nth, (kind, change)) in changes.into_iter().enumerate() {
        let (run, artifact) = ended(if nth % 2 == 0 { json!({ "output": { "a": [null] } }) } else { json!({}) }).await;
        let change = change.replace("$run", &format!("'{run}'")).replace("$artifact", &format!("'{artifact}'"));
        execute(&mut superuser, change.clone()).await;
        let verified = server.get(&format!("/api/runs/{run}/verify")).await.expect(200);
        assert_eq!((&verified["state"], &verified["faults"][0]["kind"]), (&json!("altered"), &json!(kind)), "{change}");
        expected.insert((run, kind.to_owned()));
    }
    let (code, faults, _) = verify_all(&server.db, &[]).await;
    let text = |fault: &serde_json::Value, name: &str| fault[name].as_str().unwrap_or_default().to_owned();
    let found: BTreeSet<_> = faults.iter().map(|fault| (text(fault, "run_id"), text(fault, "kind"))).collect();
    assert_eq!((code, found), (Some(1), expected), "{faults:?}");
}
