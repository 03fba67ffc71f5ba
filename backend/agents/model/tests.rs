use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::domain::transcript;

#[test]
fn a_message_is_kept_as_events_carry_it() {
    let mut message = Message::user("look");
    message.content.push(Part::image_of_data_uri("data:image/png;base64,aGk=").unwrap());
    message.content.push(Part::Image {
        media_type: "image/jpeg".to_owned(),
        source: ImageSource::ArtifactId("0198c0de".to_owned()),
    });
    let kept = json!({"role": "user", "content": [
        {"type": "text", "text": "look"},
        {"type": "image", "media_type": "image/png", "data": "aGk="},
        {"type": "image", "media_type": "image/jpeg", "artifact_id": "0198c0de"},
    ]});
    assert_eq!(serde_json::to_value(&message).unwrap(), kept);
    assert_eq!(serde_json::from_value::<Message>(kept).unwrap(), message);
}

#[test]
fn calls_results_and_thoughts_survive_a_checkpoint() {
    let answer = Message {
        content: vec![Part::Reasoning { text: "hm".to_owned(), signature: Some("s".to_owned()) }, Part::text("yes")],
        tool_calls: vec![ToolCall {
            id: "c1".to_owned(),
            name: "files".to_owned(),
            args: json!({"path": "a"}),
            signatures: vec!["opaque".to_owned()],
            origin: Some(Origin { provider: "openai:0a".to_owned(), id: Some("c.1:0".to_owned()) }),
        }],
        ..Message::assistant("")
    };
    for message in [answer.clone(), Message::tool("c1", "text"), Message::system("be kind")] {
        let kept = serde_json::to_string(&message).unwrap();
        assert_eq!(serde_json::from_str::<Message>(&kept).unwrap(), message);
    }
    assert_eq!(answer.visible(), [Part::text("yes")]);
    assert_eq!(answer.text(), "yes");
    // What an earlier version stored has fewer members.
    let old: Message = serde_json::from_value(json!({"role": "assistant", "content": []})).unwrap();
    assert!(old.tool_calls.is_empty() && old.tool_call_id.is_none());
}

#[test]
fn usage_adds_up_and_leaves_out_what_is_nothing() {
    let mut usage = Usage { input_tokens: 3, output_tokens: 2, ..Usage::default() };
    usage += Usage { input_tokens: 1, reasoning_tokens: 7, ..Usage::default() };
    assert_eq!(
        serde_json::to_value(usage).unwrap(),
        json!({"input_tokens": 4, "output_tokens": 2, "reasoning_tokens": 7})
    );
}

/// Never answers.
struct Silent;

impl Model for Silent {
    fn name(&self) -> &'static str {
        "silent"
    }

    fn complete<'a>(&'a self, _: &'a Request, _: &'a mut Deltas<'_>) -> Completing<'a> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_cancelled_call_ends_at_once() {
    let cancel = CancellationToken::new();
    let ended = std::pin::pin!(complete_until_owned(cancel.clone()));
    let (ended, ()) = futures::join!(ended, async { cancel.cancel() });
    assert_eq!(ended, Err(ModelError::cancelled()));
}

async fn complete_until_owned(cancel: CancellationToken) -> Result<Completion, ModelError> {
    complete_until(&Silent, &Request::default(), &mut |_| {}, &cancel).await
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i16>().prop_map(Value::from),
        "text|image|reasoning|user|ai|tool|[a-c]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        let names = "type|text|media_type|data|url|image_url|id|name|args|signatures|signature|[a-b]";
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::vec((names, inner), 0..4).prop_map(|members| members.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn every_message_that_a_saved_session_may_hold_is_read(
        role in "user|human|assistant|ai|system|developer|tool|function",
        content in prop_oneof![any_json(), proptest::collection::vec(any_json(), 0..4).prop_map(Value::from)],
        calls in proptest::collection::vec((any_json(), any_json(), any_json()), 0..3),
        more in proptest::collection::vec(("tool_call_id|role|name|id|[a-c]", any_json()), 0..4),
    ) {
        let call = |(id, args, signatures)| json!({"id": id, "name": "x", "args": args, "signatures": signatures});
        let mut message: Value = more.into_iter().collect();
        message["role"] = json!(role);
        message["content"] = content;
        message["tool_calls"] = calls.into_iter().map(call).collect();
        if transcript::message::check(&message).is_ok() {
            let usable = transcript::message::usable(&[message.clone()]);
            let read = serde_json::from_value::<Message>(usable[0].clone());
            prop_assert!(read.is_ok(), "{message} became {}: {:?}", usable[0], read.err());
        }
    }
}
