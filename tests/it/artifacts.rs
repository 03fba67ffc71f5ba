//! Artifacts: bytes go in as a stream, lie under their hash, and come out whole or in parts.

mod faults;
mod spill;
mod sweep;

use reqwest::{Method, Response};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{
    api::stream_of,
    artifacts::{files, hashes},
    patiently,
    process::{program, serve},
    runs::{new_run_id, parsed},
    server::{Server, setup},
    shared::shared,
    threads::{column, encoded},
};

fn hash(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

#[tokio::test]
async fn an_artifact_comes_back_as_it_was_and_the_log_tells_of_it() {
    let server = shared().await;
    let run = server.start_run().await;
    let mut reader = server.stream(&stream_of(&run)).await;
    reader.caught_up().await;
    for bytes in [&b""[..], b"x", b"hello\n", &[0, 255, 13, 10, 0]] {
        let path = format!("/api/runs/{run}/artifacts?name=r%C3%A9port.txt&span_id=s&parent_span_id=step");
        let reply = server.post_text(&path, "text/plain; charset=utf-8", bytes).await;
        let location = reply.headers["location"].to_str().unwrap().to_owned();
        let artifact = reply.expect(201);
        let id = artifact["artifact_id"].as_str().unwrap();
        let expected = json!({ "artifact_id": id, "name": "réport.txt", "media_type": "text/plain; charset=utf-8",
            "size": bytes.len(), "sha256": hash(bytes), "url": format!("/api/artifacts/{id}") });
        assert_eq!((&artifact, location.as_str()), (&expected, expected["url"].as_str().unwrap()));
        let event = reader.durable(1).await.remove(0).json();
        assert_eq!((&event["type"], &event["payload"]), (&json!("artifact.created"), &expected));
        assert_eq!((&event["span_id"], &event["parent_span_id"]), (&json!("s"), &json!("step")));
        assert_eq!(server.bytes_of(&artifact).await, bytes);
        let listed = server.artifacts(&run).await.remove(0);
        assert_eq!((&listed["artifact_id"], &listed["seq"]), (&artifact["artifact_id"], &event["seq"]));
        assert_eq!(listed["created_at"], event["at"]);
    }
    assert_eq!(server.artifacts(&run).await.len(), 4);
    let plain = server.send(server.request(Method::POST, &format!("/api/runs/{run}/artifacts?name=n")).body("x")).await;
    assert_eq!(plain.expect(201)["media_type"], "application/octet-stream");
}

#[tokio::test]
async fn the_artifacts_of_all_runs_are_one_list_newest_first_and_each_owner_has_its_own() {
    let server = shared().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let mut made = Vec::new();
    for title in ["one", "two", "three"] {
        let run = alice.create(json!({ "agent": "a", "title": title })).await;
        let path = format!("/api/runs/{run}/artifacts?name={title}.txt");
        let artifact = alice.post_text(&path, "text/plain", title.as_bytes()).await.expect(201);
        made.push((artifact, run));
    }
    let run = bob.start_run().await;
    bob.post_text(&format!("/api/runs/{run}/artifacts?name=b"), "text/plain", "b").await.expect(201);
    let (mut listed, mut path) = (Vec::new(), "/api/artifacts?limit=2".to_owned());
    loop {
        let page = alice.get(&path).await.expect(200);
        listed.extend(page["artifacts"].as_array().unwrap().iter().cloned());
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/api/artifacts?limit=2&cursor={cursor}");
    }
    assert_eq!(listed.len(), 3);
    for (listed, ((artifact, run), title)) in listed.iter().rev().zip(made.iter().zip(["one", "two", "three"])) {
        assert_eq!(
            (&listed["artifact_id"], &listed["run_id"], &listed["run_title"], &listed["agent"]),
            (&artifact["artifact_id"], &json!(run), &json!(title), &json!("a"))
        );
        let of_run = alice.artifacts(run).await.remove(0);
        assert_eq!((&listed["seq"], &listed["created_at"]), (&of_run["seq"], &of_run["created_at"]));
    }
    assert_eq!(bob.get("/api/artifacts").await.expect(200)["artifacts"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn equal_bytes_lie_on_the_disk_once_whoever_sends_them() {
    let server = setup().jwt().start().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let mut ids = Vec::new();
    for api in [&alice, &alice, &bob] {
        let run = api.start_run().await;
        let one = api.upload(&run, "one", "the same").await;
        let two = api.upload(&run, "two", "the same").await;
        ids.extend([one["artifact_id"].clone(), two["artifact_id"].clone()]);
        assert_eq!(api.bytes_of(&two).await, b"the same");
    }
    ids.sort_by_key(ToString::to_string);
    ids.dedup();
    assert_eq!(ids.len(), 6);
    let kept = files(server.db.artifacts.path());
    assert_eq!(kept.len(), 1, "{kept:?}");
    let (file, sha) = (&kept[0], hash(b"the same"));
    assert!(file.ends_with(format!("sha256/{}/{sha}", &sha[..2])), "{file:?}");
    assert_eq!(std::fs::read(file).unwrap(), b"the same");
}

#[tokio::test]
async fn bytes_that_changed_on_the_disk_never_arrive_whole() {
    let server = Server::start().await;
    let run = server.start_run().await;
    for size in [1, 1_000, 300_000] {
        let bytes = vec![b'a'; size];
        let artifact = server.upload(&run, "a", bytes.clone()).await;
        let path = format!("/api/artifacts/{}", artifact["artifact_id"].as_str().unwrap());
        let file = server.db.artifacts.path().to_owned();
        let file = files(&file).into_iter().find(|file| file.ends_with(hash(&bytes))).unwrap();
        let mut changed = bytes.clone();
        changed[size / 2] ^= 1;
        std::fs::write(file, changed).unwrap();
        let whole = async { server.request(reqwest::Method::GET, &path).send().await?.bytes().await };
        assert!(whole.await.is_err(), "{size}");
    }
    assert!(server.get("/metrics").await.text.contains("runreel_artifacts_damaged_total"));
}

#[tokio::test]
async fn a_part_of_an_artifact_is_given_as_the_standard_says() {
    let server = shared().await;
    let run = server.start_run().await;
    let text = "0123456789";
    let artifact = server.upload(&run, "digits.txt", text).await;
    let id = artifact["artifact_id"].as_str().unwrap();
    let etag = format!("\"{}\"", hash(text.as_bytes()));
    for (headers, status, range, body) in [
        (&[][..], 200, "", text),
        (&[("range", "bytes=0-0")], 206, "bytes 0-0/10", "0"),
        (&[("range", "bytes=2-4")], 206, "bytes 2-4/10", "234"),
        (&[("range", "bytes=7-")], 206, "bytes 7-9/10", "789"),
        (&[("range", "bytes=-2")], 206, "bytes 8-9/10", "89"),
        (&[("range", "bytes=-99")], 206, "bytes 0-9/10", text),
        (&[("range", "bytes=3-99")], 206, "bytes 3-9/10", "3456789"),
        (&[("range", "bytes=0-1,4-5")], 200, "", text),
        (&[("range", "bytes=nonsense")], 200, "", text),
        (&[("range", "bytes=1-2"), ("if-range", etag.as_str())], 206, "bytes 1-2/10", "12"),
        (&[("range", "bytes=1-2"), ("if-range", "\"another\"")], 200, "", text),
        (&[("if-none-match", "\"another\"")], 200, "", text),
        (&[("if-none-match", etag.as_str())], 304, "", ""),
        (&[("if-none-match", "*"), ("range", "bytes=1-2")], 304, "", ""),
    ] {
        let response = server.download(id, headers).await;
        assert_eq!(response.status(), status, "{headers:?}");
        assert_eq!((header(&response, "content-range"), header(&response, "etag")), (range, etag.as_str()));
        let expected = [
            ("accept-ranges", "bytes"),
            ("x-content-type-options", "nosniff"),
            ("content-security-policy", "sandbox; default-src 'none'"),
            ("content-disposition", "attachment; filename=\"digits.txt\"; filename*=UTF-8''digits.txt"),
        ];
        for (name, value) in expected {
            assert_eq!(header(&response, name), value, "{headers:?}");
        }
        assert_eq!(response.text().await.unwrap(), body, "{headers:?}");
    }
    for range in ["bytes=10-", "bytes=-0", "bytes=99-100"] {
        let response = server.download(id, &[("range", range)]).await;
        assert_eq!((response.status().as_u16(), header(&response, "content-range")), (416, "bytes */10"), "{range}");
        let problem: Value = response.json().await.unwrap();
        assert_eq!(problem["code"], "range_not_satisfiable");
    }
    let head = server.send(server.request(Method::HEAD, &format!("/api/artifacts/{id}"))).await;
    assert_eq!((head.status, &head.headers["content-length"], head.text.as_str()), (200, &"10".parse().unwrap(), ""));
}

#[tokio::test]
async fn a_name_stays_a_name() {
    let server = Server::start().await;
    let run = server.start_run().await;
    let long = "é".repeat(255);
    for name in ["a b.txt", "quote\".txt", "50%.txt", "ключ 🗝.pdf", "...", "CON", ".hidden", "a;b=c", &long] {
        let artifact = server.upload(&run, name, "x").await;
        assert_eq!(artifact["name"], name);
        let response = server.download(artifact["artifact_id"].as_str().unwrap(), &[]).await;
        let disposition = header(&response, "content-disposition").to_owned();
        let coded = disposition.split_once("filename*=UTF-8''").unwrap().1;
        assert_eq!(percent_encoding::percent_decode_str(coded).decode_utf8().unwrap(), name);
    }
    let last = server.run(&run).await["last_seq"].clone();
    let too_long = "é".repeat(256);
    for name in ["", ".", "..", "a/b", "../../etc/passwd", "a\\b", "a\nb", "a\0b", "\u{7f}", "a\u{202e}b", &too_long] {
        let problem = server.try_upload(&run, name, "", "x").await.refused(400, "invalid_request");
        assert_eq!(problem["field"], "name", "{name:?}");
    }
    let path = format!("/api/runs/{run}/artifacts");
    for (path, media_type, field) in [
        (path.clone(), "text/plain", "name"),
        (format!("{path}?name=a&name=b"), "text/plain", "name"),
        (format!("{path}?name=a"), "text", "Content-Type"),
        (format!("{path}?name=a"), "text/plain/x", "Content-Type"),
        (format!("{path}?name=a&event_id=runreel:x"), "text/plain", "event_id"),
        (format!("{path}?name=a&event_id={}", encoded("a\nb")), "text/plain", "event_id"),
        (format!("{path}?name=a&span_id={}", "x".repeat(129)), "text/plain", "span_id"),
    ] {
        let problem = server.post_text(&path, media_type, "x").await.refused(400, "invalid_request");
        assert_eq!(problem["field"], field, "{path}");
    }
    let request = server.request(Method::POST, &format!("{path}?name=a")).header("content-encoding", "gzip").body("x");
    server.send(request).await.refused(415, "unsupported_media_type");
    assert_eq!(server.run(&run).await["last_seq"], last);
    assert_eq!(files(server.db.artifacts.path()).len(), 1, "all of them had the same bytes");
}

#[tokio::test]
async fn an_artifact_is_its_owners_and_a_run_tokens_only_in_its_run() {
    use runreel::domain::principal::Scope;
    let server = setup().jwt().start().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let (run, other) = (alice.start_run().await, alice.start_run().await);
    let artifact = alice.upload(&run, "secret name", "secret").await;
    let id = artifact["artifact_id"].as_str().unwrap().to_owned();
    let here = server.api_token("alice", &[Scope::Read], Some(&run), None).await.0;
    let there = server.api_token("alice", &[Scope::Read], Some(&other), None).await.0;
    let emitter = server.api_token("alice", &[Scope::Emit], None, None).await.0;
    assert_eq!(here.bytes_of(&artifact).await, b"secret");
    let path = |id: &str| format!("/api/artifacts/{id}");
    for api in [&bob, &there] {
        let (foreign, absent) = (api.get(&path(&id)).await, api.get(&path(&new_run_id())).await);
        assert_eq!((foreign.status, &foreign.text), (404, &absent.text));
        assert_eq!((absent.status, api.get(&path("nonsense")).await.text), (404, absent.text));
    }
    emitter.get(&path(&id)).await.refused(403, "forbidden");
    emitter.get(&path(&new_run_id())).await.refused(403, "forbidden");
    emitter.try_upload(&run, "a", "", "x").await.expect(201);
    here.try_upload(&run, "a", "", "x").await.refused(403, "forbidden");
    bob.try_upload(&run, "a", "", "x").await.refused(404, "not_found");
    let secret = alice.token.clone().unwrap();
    let forwarded = server.as_subject("another").token.clone().unwrap();
    for secret in [secret, forwarded] {
        for before in ["begin ".to_owned(), "x".repeat(300_000), "eyJ.".repeat(40_000)] {
            let held = format!("{before}{secret} end");
            alice.try_upload(&run, "a", "", held).await.refused(400, "credential_in_body");
        }
    }
    assert_eq!(column(&alice.artifacts(&run).await, "name"), ["a", "secret name"]);
}

#[tokio::test]
async fn a_repeated_upload_is_one_artifact() {
    let server = Server::start().await;
    let run = server.start_run().await;
    let first = server.try_upload(&run, "a", "&event_id=e1", "one").await.expect(201);
    assert_eq!(server.try_upload(&run, "a", "&event_id=e1", "one").await.expect(200), first);
    assert_eq!(server.try_upload(&run, "b", "&event_id=e1", "two").await.expect(200), first, "the first one stands");
    let uploads = (0..6).map(|_| server.try_upload(&run, "c", "&event_id=e2", "three"));
    let replies = futures::future::join_all(uploads).await;
    assert_eq!(replies.iter().filter(|reply| reply.status == 201).count(), 1);
    assert!(replies.iter().all(|reply| reply.json()["artifact_id"] == replies[0].json()["artifact_id"]));
    server.emit(&run, json!({ "type": "log.info", "event_id": "e3" })).await;
    let problem = server.try_upload(&run, "d", "&event_id=e3", "four").await.refused(400, "invalid_request");
    assert_eq!(problem["field"], "event_id");
    server.complete(&run).await;
    assert_eq!(server.try_upload(&run, "a", "&event_id=e1", "one").await.expect(200), first);
    server.try_upload(&run, "a", "&event_id=e9", "late bytes").await.refused(409, "run_ended");
    server.try_upload(&run, "a", "", "late bytes").await.refused(409, "run_ended");
    assert_eq!(server.artifacts(&run).await.len(), 2);
    assert_eq!(server.db.number("select count(*) from store.artifact").await, 2, "losers leave no row");
    assert!(!hashes(server.db.artifacts.path()).contains(&hash(b"late bytes")), "nothing is kept of a refused one");
    let created =
        server.events(&run).await.iter().map(parsed).filter(|event| event["type"] == "artifact.created").count();
    assert_eq!(created, 2);
}

/// The most memory a process has used so far, KiB.
fn peak_kib(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn sixty_four_mebibytes_pass_through_without_being_held() {
    const PIECE: usize = 1024 * 1024;
    let db = crate::support::cluster::Db::new().await;
    let dir = db.artifacts.path().display().to_string();
    let served =
        serve(program(&["serve", "--listen", "127.0.0.1:0", "--database-url", &db.url(), "--artifacts-dir", &dir]))
            .await;
    let api = crate::support::api::Api::new(served.base.clone());
    let run = api.start_run().await;
    api.upload(&run, "warm", vec![1u8; PIECE]).await;
    let before = peak_kib(served.child.id().unwrap());
    let piece = |n: u8| vec![n; PIECE];
    let pieces = futures::stream::iter((0..64).map(move |n| Ok::<_, std::io::Error>(piece(n))));
    let artifact = api.upload(&run, "large", reqwest::Body::wrap_stream(pieces)).await;
    let mut response = api.download(artifact["artifact_id"].as_str().unwrap(), &[]).await;
    let (mut digest, mut size) = (Sha256::new(), 0);
    while let Some(chunk) = patiently("a piece", response.chunk()).await.unwrap() {
        digest.update(&chunk);
        size += chunk.len();
    }
    assert_eq!((size, hex::encode(digest.finalize())), (64 * PIECE, artifact["sha256"].as_str().unwrap().to_owned()));
    // The kernel counts in pieces of its own: it may say a little less than before.
    let grown = peak_kib(served.child.id().unwrap()).saturating_sub(before);
    assert!(grown < 16 * 1024, "the server grew by {grown} KiB");
}
