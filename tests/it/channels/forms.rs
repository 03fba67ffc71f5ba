//! The forms a message may have, and what is said of one that has another.

use serde_json::{Value, json};

use super::{WEB, id, log};
use crate::support::server::{Server, setup};

async fn post(server: &Server, members: &Value) -> crate::support::api::Reply {
    let mut message = json!({ "chat_id": "5", "user_id": "5", "username": "ann", "text": "hello" });
    for (name, value) in members.as_object().unwrap() {
        if value == "absent" {
            message.as_object_mut().unwrap().remove(name);
        } else {
            message[name] = value.clone();
        }
    }
    server.post("/api/channels/web/messages", message).await
}

#[tokio::test]
async fn a_time_is_read_in_its_forms_and_given_as_exactly_as_it_came() {
    let server = setup().config(WEB).start().await;
    for (ts, told) in [
        (json!("2026-11-22T05:13:58Z"), "2026-11-22T05:13:58Z"),
        (json!("2026-11-22T05:13:58.5Z"), "2026-11-22T05:13:58.5Z"),
        (json!("2026-11-22T05:13:58.120Z"), "2026-11-22T05:13:58.120Z"),
        (json!("2026-11-22T05:13:58.123456Z"), "2026-11-22T05:13:58.123456Z"),
        (json!("2026-11-22T06:13:58+01:00"), "2026-11-22T05:13:58Z"),
        (json!(1_795_324_438), "2026-11-22T05:13:58Z"),
        (json!(1_795_324_438.25), "2026-11-22T05:13:58.25Z"),
    ] {
        let body = post(&server, &json!({ "ts": ts })).await.expect(202);
        let run = server.run(&id(&body, "run_id")).await;
        let text = &run["input"]["messages"][0]["content"][0]["text"];
        assert_eq!(text, &json!(format!("[{told}] [ann]: hello")), "{ts}");
    }
    let body = post(
        &server,
        &json!({ "ts": "", "reset_session": null, "is_private": null, "username": "", "image_base64": "" }),
    )
    .await;
    let body = body.expect(202);
    let lines = log(&server, &id(&body, "session_id")).await;
    assert_eq!(lines.len(), 8);
    let raw = server.get(&format!("/api/sessions/{}/log.jsonl", id(&body, "session_id"))).await.text;
    assert!(raw.lines().nth(1).unwrap().contains("\"2026-11-22T05:13:58.500000Z\""), "the log has microseconds: {raw}");
}

#[tokio::test]
async fn a_member_of_another_form_is_named() {
    let server = setup().config(WEB).start().await;
    for (field, value, told) in [
        ("ts", json!("yesterday"), "RFC 3339"),
        ("ts", json!("1795324438"), "RFC 3339"),
        ("ts", json!(true), "RFC 3339"),
        ("ts", json!(1_795_324_438_000_i64), "between the years"),
        ("chat_id", Value::Null, "is missing"),
        ("chat_id", json!("absent"), "is missing"),
        ("user_id", json!("absent"), "is missing"),
        ("chat_id", json!(1.5), "a string or a whole number"),
        ("user_id", json!([1]), "a string or a whole number"),
        ("user_id", json!(""), "1 to 128 characters"),
        ("message_id", json!({}), "a string or a whole number"),
        ("text", json!(5), "must be a string"),
        ("username", json!(5), "must be a string"),
        ("reset_session", json!("yes"), "true or false"),
        ("is_private", json!(1), "true or false"),
        ("image_base64", json!(5), "must be a string"),
    ] {
        let problem = post(&server, &json!({ field: value })).await.refused(400, "invalid_request");
        let detail = problem["detail"].as_str().unwrap();
        assert_eq!(problem["field"], field, "{problem}");
        assert!(detail.contains(told) && !detail.contains("untagged"), "{problem}");
    }
    assert_eq!(server.db.number("select count(*) from store.inbound").await, 0);
}

#[tokio::test]
async fn whether_to_wait_is_true_or_false_and_nothing_else() {
    let server = setup().config(WEB).start().await;
    let message = json!({ "chat_id": "5", "user_id": "5", "text": "/new" });
    for (wait, waits) in [("true", true), ("1", true), ("false", false), ("0", false)] {
        let body = server.post(&format!("/api/channels/web/messages?wait={wait}"), message.clone()).await.expect(200);
        assert_eq!(body.get("response").is_some(), waits, "{wait}");
    }
    for wait in ["yes", "", "TRUE", "2"] {
        let reply = server.post(&format!("/api/channels/web/messages?wait={wait}"), message.clone()).await;
        assert_eq!(reply.refused(400, "invalid_request")["field"], "wait");
    }
}

#[tokio::test]
async fn an_image_comes_in_the_forms_that_people_have() {
    let server = setup().config(WEB).start().await;
    let (png, jpeg) = ("iVBORw0KGgo", "/9j/4A");
    for (image, kind, url) in [
        ("iVBORw0KGgo".to_owned(), Value::Null, format!("data:image/png;base64,{png}=")),
        (format!("data:image/png;base64,{png}="), Value::Null, format!("data:image/png;base64,{png}=")),
        (format!("{jpeg}=="), json!("image/jpg"), format!("data:image/jpeg;base64,{jpeg}==")),
        ("aGVsbG8".to_owned(), json!("image/webp"), "data:image/webp;base64,aGVsbG8=".to_owned()),
    ] {
        let body = post(&server, &json!({ "image_base64": image, "image_media_type": kind })).await.expect(202);
        let run = server.run(&id(&body, "run_id")).await;
        assert_eq!(run["input"]["messages"][0]["content"][1]["url"], url, "{image}");
    }
    for (image, kind, field) in [
        (format!("data:image/jpeg;base64,{png}="), Value::Null, "image_media_type"),
        (png.to_owned(), json!("image/jpg"), "image_media_type"),
        ("aGVsbG8=".to_owned(), json!("image/svg+xml"), "image_media_type"),
        ("aGVsbG8=".to_owned(), Value::Null, "image_base64"),
    ] {
        let reply = post(&server, &json!({ "image_base64": image, "image_media_type": kind })).await;
        assert_eq!(reply.refused(415, "unsupported_media_type")["field"], field, "{image}");
    }
}
