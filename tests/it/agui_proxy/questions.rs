//! Interrupts of an endpoint: questions to people, whose answers its next request carries.

use serde_json::{Value, json};

use super::{before, begun, call, finished, result, text, whole};
use crate::{
    agents::{answer, ask, kinds, log, of, questions, response},
    support::models::{Answer, events, stream_of},
};

fn interrupting(said: &[Value], interrupts: &Value) -> Answer {
    let outcome = json!({"type": "interrupt", "interrupts": interrupts});
    stream_of("text/event-stream", begun(said) + &events(&[finished(&outcome)]))
}

#[tokio::test]
async fn the_answers_of_people_go_back_to_the_endpoint_that_asked() {
    let schema = json!({"type": "object", "properties": {"approved": {"type": "boolean"}}});
    let interrupts = json!([
        {"id": "int-c1", "reason": "tool_call", "message": "Delete it?", "toolCallId": "c1", "responseSchema": schema},
        {"id": "name", "reason": "input_required", "message": "Which name?", "metadata": {"hint": "short"}},
    ]);
    let first = interrupting(&call("c1", "delete", &["{\"file\":\"a\"}"], "m1"), &interrupts);
    let asks_again = interrupting(&[result("c1", "r1", "deleted")], &json!([{"id": "name", "reason": "confirmation"}]));
    let (server, endpoint) = before(vec![first, asks_again, whole(&text("m2", &["done"]))], "").await;
    let run = ask(&server, "far", "delete a", json!({"thread_id": "t"})).await;
    let asked = questions(&server, &run).await;
    assert_eq!((&asked[0]["span_id"], &asked[1]["span_id"]), (&json!("int-c1"), &json!("name")));
    let shown = &asked[0]["payload"];
    assert_eq!(
        (&shown["kind"], &shown["prompt"], &shown["tool"]),
        (&json!("approval"), &json!("Delete it?"), &json!("delete"))
    );
    assert_eq!((&shown["args"], &shown["tool_call_id"]), (&json!({"file": "a"}), &json!("c1")));
    assert_eq!(shown["response_schema"], schema);
    assert_eq!(
        (&asked[1]["payload"]["kind"], &asked[1]["payload"]["metadata"]),
        (&json!("question"), &json!({"hint": "short"}))
    );
    answer(&server, &run, &asked[0], "approve", json!({"editedArgs": {"file": "b"}})).await;
    answer(&server, &run, &asked[1], "respond", json!("Bob")).await;
    // A question with an id that was answered is another question.
    let again = crate::support::patiently("the second question", async {
        loop {
            let open = questions(&server, &run).await;
            if let Some(third) = open.get(2) {
                break third.clone();
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(again["span_id"], "name~2");
    answer(&server, &run, &again, "reject", json!("not now")).await;
    assert_eq!(response(&server, &run).await, "done");
    let requests = endpoint.asked();
    assert_eq!(requests.len(), 3);
    assert_eq!(
        requests[1].body["resume"],
        json!([
            {"interruptId": "int-c1", "status": "resolved", "payload": {"editedArgs": {"file": "b"}, "approved": true}},
            {"interruptId": "name", "status": "resolved", "payload": "Bob"},
        ])
    );
    assert_eq!(
        requests[2].body["resume"],
        json!([{"interruptId": "name", "status": "resolved", "payload": {"approved": false, "reason": "not now"}}])
    );
    let ids: Vec<&Value> = requests.iter().map(|asked| &asked.body["runId"]).collect();
    assert_eq!(ids, [&json!(run), &json!(format!("{run}~2")), &json!(format!("{run}~3"))]);
    let history = requests[1].body["messages"].as_array().unwrap();
    assert_eq!(history[1]["toolCalls"][0]["id"], "c1", "the call that waits is in the history");
    let events = log(&server, &run).await;
    assert_eq!(of(&events, "tool.started").len(), 1);
    assert_eq!(of(&events, "tool.completed")[0]["span_id"], "c1");
    assert_eq!(of(&events, "log.warn").len(), 0, "{:?}", kinds(&events));
}

#[tokio::test]
async fn a_stream_that_breaks_after_an_answer_takes_the_answer_along_while_its_call_has_no_result() {
    let asks = json!([{"id": "int-c1", "reason": "tool_call", "toolCallId": "c1"}]);
    let first = interrupting(&call("c1", "delete", &["{}"], "m1"), &asks);
    let answers = vec![
        first,
        Answer::Cut(begun(&text("m2", &["deleting"]))),
        Answer::Cut(begun(&[result("c1", "r1", "deleted")])),
        whole(&text("m3", &["done"])),
    ];
    let (server, endpoint) = before(answers, "").await;
    let run = ask(&server, "far", "delete", json!({})).await;
    let asked = questions(&server, &run).await;
    answer(&server, &run, &asked[0], "approve", Value::Null).await;
    assert_eq!(response(&server, &run).await, "done");
    let requests = endpoint.asked();
    let resume = json!([{"interruptId": "int-c1", "status": "resolved", "payload": {"approved": true}}]);
    let resumes: Vec<&Value> = requests.iter().map(|asked| &asked.body["resume"]).collect();
    assert_eq!(resumes, [&Value::Null, &resume, &resume, &Value::Null]);
    let last = requests[3].body["messages"].as_array().unwrap();
    assert!(last.iter().any(|message| message["toolCallId"] == "c1"), "{last:?}");
    let events = log(&server, &run).await;
    let counts = ["tool.started", "tool.completed", "tool.failed", "log.warn"].map(|kind| of(&events, kind).len());
    assert_eq!(counts, [1, 1, 0, 2], "{:?}", kinds(&events));
}

#[tokio::test]
async fn a_question_that_nobody_answers_in_time_is_cancelled_towards_the_endpoint() {
    let past = json!([{"id": "q", "reason": "confirmation", "expiresAt": "2020-01-01T00:00:00Z"}]);
    let (server, endpoint) = before(vec![interrupting(&[], &past), whole(&text("m", &["too late"]))], "").await;
    let run = ask(&server, "far", "go", json!({})).await;
    assert_eq!(response(&server, &run).await, "too late");
    assert_eq!(endpoint.asked()[1].body["resume"], json!([{"interruptId": "q", "status": "cancelled"}]));
}
