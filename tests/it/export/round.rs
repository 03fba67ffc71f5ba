//! Out and in again: the same bytes, however often.

use serde_json::{Value, json};

use super::world::{Pair, check, command, count_runs, fill, kinds, says, without_owner};
use crate::support::{
    api::stream_of,
    runs::{assert_contiguous, parsed},
    server::Server,
    sse::envelopes,
};

#[tokio::test]
async fn what_was_exported_is_imported_and_exported_again_as_the_very_same_bytes() {
    let pair = Pair::start().await;
    let world = fill(&pair.from).await;
    let first = pair.export(&pair.from, "a.ndjson", &["--all"]).await;
    assert_eq!(first, pair.export(&pair.from, "b.ndjson", &["--all"]).await, "the same log, the same bytes");
    let told = String::from_utf8(first.clone()).unwrap();
    assert_eq!(kinds(&told)[0], "runreel_export");
    let runs = count_runs(&pair.from).await;
    assert_eq!(kinds(&told).iter().filter(|kind| *kind == "run").count(), runs);
    assert!(!told.contains("owner_id"), "whose it is stands nowhere");
    let said = pair.import("a.ndjson", &[]).await;
    check(&said, 0);
    says(&said, &format!("imported {runs} runs"));
    says(&said, "5 artifacts were not in the export");
    assert_eq!(pair.export(&pair.to, "c.ndjson", &["--all"]).await, first);
    let again = pair.import("a.ndjson", &[]).await;
    check(&again, 0);
    says(&again, &format!("imported 0 runs (0 events), {runs} runs already present"));
    assert_eq!(pair.export(&pair.to, "d.ndjson", &["--all"]).await, first);
    for run in [&world.root, &world.child, &world.asking, &world.running, &world.failed, &world.queued, &world.old] {
        let (here, there) = (pair.from.events(run).await, pair.to.events(run).await);
        let bare = |events: &[String]| events.iter().map(|event| without_owner(event)).collect::<Vec<_>>();
        assert_eq!(bare(&here), bare(&there));
        let shown = async |server: &Server| {
            let mut shown = server.run(run).await;
            // Old times and a lease: whether it reads stalled is a matter of now.
            let members = shown.as_object_mut().unwrap();
            members.retain(|name, _| !matches!(name.as_str(), "owner_id" | "stalled"));
            shown
        };
        assert_eq!(shown(&pair.from).await, shown(&pair.to).await);
    }
    assert_eq!(pair.to.run(&world.running).await["status"], "running");
    assert_eq!(pair.to.db.number("select count(*) from store.job").await, 0, "an import makes no job");
    assert_eq!(pair.from.db.number("select count(*) from store.job").await, 1);
    let text = pair.to.get("/api/threads/t:1/runs").await.expect(200);
    assert!(text["runs"].as_array().unwrap().len() >= 4, "the thread is there with its runs");
}

#[cfg(feature = "demo")]
#[tokio::test]
async fn what_agents_did_travels_like_any_log() {
    let config = "[channels.web]\n[agents.assistant]\nmodel = \"echo\"\n";
    let pair = Pair::between(crate::support::server::setup().config(config)).await;
    let said = json!({ "chat_id": "c 1", "user_id": "u", "text": "hello" });
    let answer = pair.from.post("/api/channels/web/messages?wait=true", said).await;
    assert!(answer.status < 300, "{}", answer.text);
    let tree = pair.path("tree");
    std::fs::create_dir_all(tree.join("a")).unwrap();
    std::fs::write(tree.join("a/one.rs"), "fn one() {\n    two();\n}\n").unwrap();
    let words =
        ["demo", "--url", &pair.from.base, "--pace", "0", "--answer-after", "0", "--exit", tree.to_str().unwrap()];
    check(&command(&pair.from, &words, "").await, 0);
    let tar = pair.export(&pair.from, "a", &["--all", "--with-artifacts"]).await;
    let told = String::from_utf8_lossy(&tar);
    assert!(told.contains("\"origin\":{\"channel\":\"web\",\"chat\":\"c 1\""), "where a run came from travels along");
    assert!(told.contains("worker.spawned") && told.contains("state.checkpointed"));
    let said = pair.import("a", &[]).await;
    check(&said, 0);
    assert!(!said.stderr.contains("rejected"), "{}", said.stderr);
    assert_eq!(pair.export(&pair.to, "b", &["--all", "--with-artifacts"]).await, tar);
}

#[tokio::test]
async fn a_stream_of_an_imported_run_replays_the_same_frames_and_a_feed_shows_it_coming() {
    let pair = Pair::start().await;
    let world = fill(&pair.from).await;
    pair.export(&pair.from, "one.ndjson", &["--run", &world.root]).await;
    let mut feed = pair.to.stream("/api/stream/runs").await;
    feed.caught_up().await;
    check(&pair.import("one.ndjson", &[]).await, 0);
    let events = pair.from.events(&world.root).await;
    let seen = feed.durable(events.len()).await;
    let bare = |events: Vec<String>| events.iter().map(|event| without_owner(event)).collect::<Vec<_>>();
    assert_eq!(bare(envelopes(&seen)), bare(events));
    for run in [&world.root, &world.child, &world.grandchild] {
        let replay = async |server: &Server| {
            let frames = server.stream(&stream_of(run)).await.rest().await;
            let of = |frame: &crate::support::sse::Frame| {
                (frame.id.clone(), frame.event.clone(), without_owner(&frame.data))
            };
            frames.iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(replay(&pair.from).await, replay(&pair.to).await);
    }
    let tree = pair.to.stream(&format!("{}?tree=true", stream_of(&world.root))).await.rest().await;
    let runs: std::collections::BTreeSet<String> =
        envelopes(&tree).iter().map(|event| event.split('"').nth(3).unwrap().to_owned()).collect();
    assert_eq!(runs.len(), 3, "the tree is whole");
}

#[tokio::test]
async fn an_export_takes_what_was_asked_for_and_parents_come_first() {
    let pair = Pair::start().await;
    let world = fill(&pair.from).await;
    let runs = async |words: &[&str]| {
        let text = String::from_utf8(pair.export(&pair.from, "x", words).await).unwrap();
        let lines = text.lines().filter(|line| line.starts_with("{\"run\":")).map(|line| parsed(&line));
        lines.map(|line| line["run"]["run_id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let tree = [world.root.clone(), world.child.clone(), world.grandchild.clone()];
    assert_eq!(runs(&["--run", &world.root]).await, tree);
    assert_eq!(runs(&["--run", &world.child]).await, tree[1..]);
    assert_eq!(runs(&["--thread", "t:1"]).await, [&tree[..], std::slice::from_ref(&world.asking)].concat());
    assert_eq!(runs(&["--thread", "no-such"]).await, Vec::<String>::new());
    let all = runs(&["--all"]).await;
    assert!(all.is_sorted() && all[0] == world.old);
    // The old run says itself when it was created, and that is long ago.
    assert_eq!(runs(&["--since", "7d"]).await, all[1..]);
    assert_eq!(runs(&["--since", "2000-01-01T00:00:00Z"]).await, all);
    let out = command(&pair.from, &["export", "--run", &world.failed], "").await;
    check(&out, 0);
    assert_eq!(kinds(&out.stdout), ["runreel_export", "run", "event", "event", "event", "end", "total"]);
    says(&out, "1 run, 3 events, 0 artifacts");
    for words in [&["export"][..], &["export", "--all", "--run", &world.root], &["export", "--since", "soon"]] {
        check(&command(&pair.from, words, "").await, 2);
    }
    check(&command(&pair.from, &["export", "--run", "0198c0de-0000-7000-8000-000000000001"], "").await, 4);
    let folder = pair.path("folder");
    std::fs::create_dir(&folder).unwrap();
    check(&command(&pair.from, &["export", "--all", "-o", folder.to_str().unwrap()], "").await, 2);
    let nowhere = command(&pair.from, &["export", "--all", "-o", "/dev/null"], "").await;
    check(&nowhere, 0);
    let nothing = command(&pair.from, &["export", "--thread", "no-such"], "").await;
    check(&nothing, 0);
    says(&nothing, "nothing to export");
    assert_eq!(kinds(&nothing.stdout), ["runreel_export", "total"]);
    assert_eq!(std::fs::read_dir(pair.folder.path()).unwrap().count(), 2, "no temporary file is left");
}

#[tokio::test]
async fn a_run_that_goes_on_is_exported_up_to_where_it_stands_and_later_the_rest_follows() {
    let pair = Pair::start().await;
    let run = pair.from.start_run().await;
    pair.from.emit_many(&run, 0, 10).await;
    let early = pair.export(&pair.from, "early", &["--all"]).await;
    pair.from.emit_many(&run, 10, 1_500).await;
    pair.from.complete(&run).await;
    let late = pair.export(&pair.from, "late", &["--all"]).await;
    check(&pair.import("early", &[]).await, 0);
    assert_eq!(pair.to.run(&run).await["status"], "running");
    let said = pair.import("late", &[]).await;
    check(&said, 0);
    says(&said, "imported 1 run (1501 events)");
    assert_eq!(pair.export(&pair.to, "copy", &["--all"]).await, late);
    // What is older than what is there changes nothing.
    let said = pair.import_bytes(&early, &[]).await;
    check(&said, 0);
    says(&said, "imported 0 runs (0 events), 1 run already present");
    assert_contiguous(&pair.to.events(&run).await, 1_513);
}

#[tokio::test]
async fn the_clock_leaves_an_imported_run_alone_and_people_do_not_have_to() {
    let pair = Pair::start().await;
    let ask = async |expires_at: Value| {
        let run = pair.from.start_run().await;
        let asked = json!({ "type": "interrupt.requested", "span_id": "i", "payload": { "expires_at": expires_at } });
        pair.from.emit(&run, json!([asked, { "type": "run.interrupted" }])).await;
        run
    };
    let (over, open) = (ask(json!("2100-01-01T00:00:00Z")).await, ask(Value::Null).await);
    let past = super::world::run_id_at(pair.from.clock.now());
    let asked = [("interrupt.requested", "{\"expires_at\":\"2020-01-01T00:00:00Z\"}"), ("run.interrupted", "{}")];
    let expired = super::world::file_of(&[super::world::lines_below(&past, None, &asked)]);
    check(&pair.import_bytes(&expired, &[]).await, 0);
    pair.export(&pair.from, "open", &["--all"]).await;
    check(&pair.import("open", &[]).await, 0);
    assert_eq!(pair.to.inner.timeline.expire_interrupts().await.unwrap(), 0);
    assert_eq!(pair.to.run(&past).await["status"], "interrupted");
    let answer = json!({ "interrupt_id": "i", "decision": "approve" });
    for run in [&over, &open] {
        let shown = pair.to.post(&format!("/api/runs/{run}/resume"), answer.clone()).await.expect(202);
        assert_eq!(shown["status"], "running");
        pair.to.complete(run).await;
    }
    pair.to.post(&format!("/api/runs/{past}/resume"), answer).await.refused(409, "interrupt_closed");
    assert_eq!(pair.to.run(&past).await["status"], "running", "it expired when somebody came");
}
