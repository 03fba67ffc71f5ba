//! The folder: what lies in it, what people put there, and who sees what.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use super::{Ground, SAVED, save_of};
use crate::support::{
    cluster::Db,
    process::{program, serve},
    threads::column,
};

#[tokio::test]
async fn a_file_by_hand_or_of_another_version_loads_or_is_refused_with_its_line_and_reason() {
    let ground = Ground::new();
    let server = ground.server().await;
    std::fs::create_dir_all(ground.folder()).unwrap();
    let put = |name: &str, text: &str| std::fs::write(ground.file(&format!("{name}.json")), text).unwrap();
    put("by-hand", "{\"thread\": {\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}}");
    put(
        "later",
        r#"{"name": "later", "format": 7, "created_at": "2031-01-01T00:00:00Z", "thread": {"messages":
           [{"role": "user", "content": "hi", "new": 1}], "metadata": {"version": "9.2", "state": ["what", "is this"]}}}"#,
    );
    put("torn", "{\n  \"name\": \"torn\",\n  \"thread\": {\n");
    put(
        "wrong",
        "{\"thread\": {\"messages\": [\n  {\"role\": \"user\", \"content\": \"hi\"},\n  {\"content\": \"hi\"}\n]}}",
    );
    let page = server.get(SAVED).await.expect(200);
    assert_eq!(column(page["saved_sessions"].as_array().unwrap(), "name"), ["by-hand", "later"]);
    let unreadable = page["unreadable"].as_array().unwrap();
    assert_eq!(column(unreadable, "name"), ["torn", "wrong"]);
    assert_eq!((&unreadable[0]["line"], &unreadable[1]["line"]), (&json!(3), &json!(3)));
    assert_eq!(unreadable[1]["reason"], "message 2: a message has no role");
    for name in ["by-hand", "later"] {
        server.get(&format!("{SAVED}/{name}")).await.expect(200);
        server.post(&format!("{SAVED}/{name}/restore"), json!({ "thread_id": name })).await.expect(201);
    }
    server.create(json!({ "thread_id": "t" })).await;
    for reply in [
        server.get(&format!("{SAVED}/wrong")).await,
        server.post(&format!("{SAVED}/wrong/restore"), json!({})).await,
        server.post(SAVED, save_of("wrong", "t")).await,
    ] {
        let problem = reply.refused(422, "unreadable_session");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("line 3, column 3: message 2: a message has no role"), "{detail}");
    }
    assert!(ground.file("wrong.json").exists(), "what is damaged is not thrown away");
    let sent = "{\n\"thread\": {\"messages\": 1}}";
    let problem = server.put_text(&format!("{SAVED}/new"), sent).await.refused(400, "invalid_request");
    assert!(problem["detail"].as_str().unwrap().starts_with("line 2, column 24: "), "{problem}");
    server.delete(&format!("{SAVED}/torn")).await.expect(204);
    assert_eq!(server.get(SAVED).await.expect(200)["unreadable"].as_array().unwrap().len(), 1);
    server.delete(&format!("{SAVED}/torn")).await.refused(404, "not_found");
}

#[tokio::test]
async fn an_export_brought_in_elsewhere_is_the_same_file() {
    let (here, there) = (Ground::new(), Ground::new());
    let (one, two) = (here.server().await, there.server().await);
    let run = one.create(json!({ "thread_id": "t" })).await;
    one.emit(&run, json!({ "type": "message.completed", "payload": { "role": "user", "content": "hi é" } })).await;
    one.post(SAVED, json!({ "name": "trip", "thread_id": "t", "description": "a\nplan" })).await.expect(201);
    let text = one.get(&format!("{SAVED}/trip")).await.text;
    assert_eq!(text, std::fs::read_to_string(here.file("trip.json")).unwrap());
    two.put_text(&format!("{SAVED}/trip"), text.clone()).await.expect(201);
    assert_eq!(two.put_text(&format!("{SAVED}/trip"), text.clone()).await.expect(200)["fallback"], true);
    assert_eq!(std::fs::read_to_string(there.file("trip.json")).unwrap(), text);
}

#[tokio::test]
async fn lists_have_pages_and_an_index_that_was_destroyed_is_there_again() {
    let ground = Ground::new();
    let server = ground.server().await;
    server.create(json!({ "thread_id": "t" })).await;
    for n in 0..5 {
        server.post(SAVED, save_of(&format!("s{n}"), "t")).await.expect(201);
    }
    let names = |rows: Vec<Value>| column(&rows, "name").iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let all = ["s0", "s1", "s2", "s3", "s4"];
    for damage in ["", "{", "[]", "{\"sessions\":[{\"name\":\"../x\"}]}"] {
        std::fs::write(ground.file("index.json"), damage).unwrap();
        assert_eq!(names(server.pages(&format!("{SAVED}?limit=2"), "saved_sessions").await), all);
        let index: Value = serde_json::from_slice(&std::fs::read(ground.file("index.json")).unwrap()).unwrap();
        assert_eq!(column(index["sessions"].as_array().unwrap(), "name"), all);
    }
    server.get(&format!("{SAVED}?cursor=x")).await.refused(400, "invalid_cursor");
    server.post(SAVED, save_of("S1", "t")).await.refused(400, "invalid_request");
}

#[tokio::test]
async fn each_owner_has_a_folder_and_sees_no_other() {
    let ground = Ground::new();
    let server = ground.setup("").jwt().start().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let run = alice.create(json!({ "thread_id": "t" })).await;
    alice.post(SAVED, save_of("trip", "t")).await.expect(201);
    bob.post(SAVED, save_of("mine", "t")).await.refused(404, "not_found");
    assert_eq!(bob.get(SAVED).await.expect(200)["saved_sessions"], json!([]));
    let absent = bob.get(&format!("{SAVED}/absent")).await;
    let foreign = bob.get(&format!("{SAVED}/trip")).await;
    assert_eq!((foreign.status, &foreign.text), (404, &absent.text));
    let owner = alice.run(&run).await["owner_id"].as_str().unwrap().to_owned();
    let file = ground.file(&owner).join("trip.json");
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(&ground.file(&owner)), mode(&ground.folder())), (0o600, 0o700, 0o700));
}

#[tokio::test]
async fn two_processes_that_save_at_once_lose_nothing() {
    let (ground, db) = (Ground::new(), std::sync::Arc::new(Db::new().await));
    let folder = ground.folder();
    let data = ground.dir.path().join("data");
    let start = || async {
        let words = ["serve", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap(), "--database-url"];
        let mut command = program(&words);
        command.arg(db.url()).arg("--sessions-dir").arg(&folder);
        serve(command).await
    };
    let (one, two) = (start().await, start().await);
    let apis = [&one, &two].map(|served| crate::support::api::Api::new(served.base.clone()));
    apis[0].create(json!({ "thread_id": "t" })).await;
    let saves = (0..60).map(|n| {
        let api = &apis[n % 2];
        async move {
            let name = if n % 3 == 0 { "shared".to_owned() } else { format!("s{n}") };
            let body = json!({ "name": name, "thread_id": "t", "description": format!("save {n}") });
            let reply = api.post(SAVED, body).await;
            assert!([200, 201].contains(&reply.status), "{} {}", reply.status, reply.text);
            reply.status
        }
    });
    let statuses = futures::future::join_all(saves).await;
    assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 41, "one of the shared ones is the first");
    let index: Value = serde_json::from_slice(&std::fs::read(ground.file("index.json")).unwrap()).unwrap();
    assert_eq!(index["sessions"].as_array().unwrap().len(), 41);
    for api in &apis {
        let page = api.get(SAVED).await.expect(200);
        assert_eq!((page["saved_sessions"].as_array().unwrap().len(), &page["unreadable"]), (41, &json!([])));
    }
    assert!(ground.tree().iter().all(|path| !path.ends_with(".tmp")));
}

#[tokio::test]
async fn without_a_flag_the_folder_lies_in_the_data_directory() {
    let said = crate::support::process::run(program(&["config", "--data-dir", "/nowhere/data"]), "").await;
    assert!(said.stdout.contains("/nowhere/data/sessions"), "{}", said.stdout);
}
