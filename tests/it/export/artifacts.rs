//! The bytes of artifacts travel along, and a tar is believed no more than a line.

use reqwest::Method;
use runreel::domain::artifact::Hash;
use sha2::{Digest as _, Sha256};

use super::world::{Pair, check, fill, lines_below, says};
use crate::support::{
    runs::{new_run_id, parsed},
    shared::shared,
};

/// Files with their contents.
type Files = Vec<(String, Vec<u8>)>;

fn unpacked(tar: &[u8]) -> Files {
    let mut archive = tar::Archive::new(tar);
    let read = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
        let mut entry = entry.unwrap();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut bytes).unwrap();
        (entry.path().unwrap().display().to_string(), bytes)
    };
    archive.entries().unwrap().map(read).collect()
}

/// The same, packed by hand; a name is taken as it is.
fn packed(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_ustar();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(77);
        header.set_cksum();
        builder.append(&header, bytes.as_slice()).unwrap();
    }
    builder.into_inner().unwrap()
}

#[tokio::test]
async fn artifacts_travel_along_with_the_same_bytes_and_names() {
    let pair = Pair::start().await;
    let world = fill(&pair.from).await;
    let tar = pair.export(&pair.from, "a.tar", &["--all", "--with-artifacts"]).await;
    assert_eq!(tar, pair.export(&pair.from, "b.tar", &["--all", "--with-artifacts"]).await);
    let files = unpacked(&tar);
    assert_eq!((files[0].0.as_str(), files[1].0.as_str()), ("log.ndjson", "artifacts.ndjson"));
    assert_eq!(files.len(), 6, "each content once: {:?}", files.iter().map(|file| &file.0).collect::<Vec<_>>());
    assert_eq!(files[0].1, pair.export(&pair.from, "log", &["--all"]).await);
    let said = pair.import("a.tar", &[]).await;
    check(&said, 0);
    says(&said, "5 artifacts");
    assert!(!said.stderr.contains("were not in the export"), "{}", said.stderr);
    assert_eq!(pair.export(&pair.to, "c.tar", &["--all", "--with-artifacts"]).await, tar);
    for artifact in &world.artifacts {
        assert_eq!(pair.to.bytes_of(artifact).await, pair.from.bytes_of(artifact).await);
    }
    for run in [&world.root, &world.child, &world.grandchild] {
        assert_eq!(pair.to.artifacts(run).await, pair.from.artifacts(run).await);
    }
    let again = pair.import("a.tar", &[]).await;
    check(&again, 0);
    assert!(!again.stderr.contains("artifact"), "nothing is brought twice: {}", again.stderr);
    assert_eq!(pair.to.db.number("select count(*) from store.artifact").await, 5);
    // Packed by another program, at another time, filled up with zeros: the same to whoever reads it.
    check(&pair.import_bytes([&tar[..], &[0; 8192]].concat(), &["--check"]).await, 0);
    check(&pair.import_bytes(packed(&files), &["--check"]).await, 0);
}

#[tokio::test]
async fn bytes_may_follow_a_log_that_came_without_them() {
    let pair = Pair::start().await;
    let world = fill(&pair.from).await;
    pair.export(&pair.from, "log", &["--all"]).await;
    pair.export(&pair.from, "tar", &["--all", "--with-artifacts"]).await;
    check(&pair.import("log", &[]).await, 0);
    let id = world.artifacts[0]["artifact_id"].as_str().unwrap();
    pair.to.get(&format!("/api/artifacts/{id}")).await.refused(404, "not_found");
    let said = pair.import("tar", &[]).await;
    check(&said, 0);
    says(&said, "imported 0 runs (0 events)");
    assert_eq!(pair.to.bytes_of(&world.artifacts[0]).await, b"the same bytes");
    let tar = std::fs::read(pair.path("tar")).unwrap();
    assert_eq!(pair.export(&pair.to, "copy", &["--all", "--with-artifacts"]).await, tar);
}

#[tokio::test]
async fn a_tar_that_is_not_as_it_was_is_refused_and_nothing_of_it_arrives() {
    let pair = Pair::start().await;
    let world = fill(&pair.from).await;
    let tar = pair.export(&pair.from, "a.tar", &["--run", &world.child, "--with-artifacts"]).await;
    let files = unpacked(&tar);
    let with = |change: &dyn Fn(&mut Files)| {
        let mut files = files.clone();
        change(&mut files);
        packed(&files)
    };
    let content = format!("artifacts/{}", world.artifacts[0]["sha256"].as_str().unwrap());
    let at = files.iter().position(|file| file.0 == content).unwrap();
    let mut cases: Vec<(Vec<u8>, &str)> = vec![
        (with(&|files| files[at].1[0] ^= 1), "its bytes were changed"),
        (with(&|files| files[at].1.push(0)), "another size"),
        (with(&|files| drop(files.remove(at))), "lacks the bytes"),
        (with(&|files| files.push(files[at].clone())), "is in the tar twice"),
        (with(&|files| files.push((format!("artifacts/{}", "0".repeat(64)), Vec::new()))), "belongs to no artifact"),
        (with(&|files| files[0].1[200] ^= 1), "log.ndjson, line 3"),
        (with(&|files| files.swap(0, 1)), "wrong place"),
        (with(&|files| drop(files.remove(1))), "wrong place"),
        (with(&|files| files.truncate(1)), "does not contain"),
        (with(&|files| files[1].1 = b"{}\n".to_vec()), "artifacts.ndjson, line 1"),
        (with(&|files| files[1].1.extend(b"x")), "artifacts.ndjson, line 5"),
        (tar[..tar.len() / 2].to_vec(), "before the end of this file"),
        ([&tar[..], b"more"].concat(), "has data after its end"),
        ([&tar[..], &tar].concat(), "has data after its end"),
    ];
    for name in ["../../etc/passwd", "/etc/passwd", "artifacts/../x", "artifacts/", "./log.ndjson", "artifacts/ABC"] {
        cases.push((with(&|files| files.push((name.to_owned(), b"x".to_vec()))), "no file of an export has this name"));
    }
    let line = String::from_utf8(files[1].1.clone()).unwrap().lines().next().unwrap().to_owned();
    let renamed = line.replacen(parsed(&line)["artifact"]["name"].as_str().unwrap(), "other", 1);
    cases.push((with(&|files| files[1].1 = format!("{renamed}\n").into_bytes()), "this artifact is not in the log"));
    // An entry that claims to be huge, one that is a link, and a name of another's making before it.
    for (kind, size, why) in
        [(b'0', u64::MAX / 4, "tar"), (b'2', 0, "not a regular file"), (b'L', 9_000_000_000, "not a regular file")]
    {
        let mut header = tar::Header::new_gnu();
        header.as_mut_bytes()[..content.len()].copy_from_slice(content.as_bytes());
        header.set_size(size);
        header.set_entry_type(tar::EntryType::new(kind));
        header.set_cksum();
        let end = tar.len() - 1024;
        cases.push(([&tar[..end], header.as_bytes(), &tar[end..]].concat(), why));
    }
    for (tar, why) in cases {
        let said = pair.import_bytes(tar, &[]).await;
        check(&said, 1);
        says(&said, why);
    }
    assert_eq!(pair.to.db.number("select count(*) from store.run").await, 0);
    assert_eq!(pair.to.db.number("select count(*) from store.artifact").await, 0);
}

#[tokio::test]
async fn an_event_and_the_bytes_that_come_for_it_say_the_same() {
    let server = shared().await;
    let (run, artifact, hash) = (new_run_id(), new_run_id(), Hash::new(Sha256::digest(b"bytes").into()));
    let told = |name: &str, size: u64| {
        format!(
            "{{\"artifact_id\":\"{artifact}\",\"name\":\"{name}\",\"media_type\":\"text/plain\",\"size\":{size},\
             \"sha256\":\"{hash}\",\"url\":\"x\"}}"
        )
    };
    let lines = |payload: &str| lines_below(&run, None, &[("artifact.created", payload), ("custom.n", "{}")]);
    let part = |lines: &[String], of: &[usize]| of.iter().map(|at| lines[*at].clone() + "\n").collect::<String>();
    let bring = async |name: &str, event: &str| {
        let path = format!("/api/runs/{run}/artifacts/{artifact}?name={name}&event_id={event}&sha256={hash}");
        let request = server.request(Method::PUT, &path).header("content-type", "text/plain").body("bytes");
        server.send(request).await
    };
    let right = lines(&told("a.txt", 5));
    server.import_text(&run, part(&right, &[0, 1, 2])).await.expect(201);
    bring("a.txt", "key-3").await.expect(201);
    for wrong in [told("b.txt", 5), told("a.txt", 6), told("a.txt", 5).replace("plain", "html")] {
        let wrong = lines(&wrong);
        let problem = server.import_text(&run, part(&wrong, &[0, 3])).await.refused(409, "artifact_exists");
        assert_eq!(problem["field"], "seq 3");
    }
    assert_eq!(server.run(&run).await["last_seq"], 2);
    server.import_text(&run, part(&right, &[0, 3, 4])).await.expect(200);
    bring("a.txt", "key-3").await.expect(200);
    bring("b.txt", "key-3").await.refused(409, "artifact_exists");
    bring("a.txt", "key-4").await.refused(400, "invalid_request");
    assert_eq!(server.artifacts(&run).await.len(), 1);
}
