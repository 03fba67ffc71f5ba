use proptest::prelude::*;

use super::*;
use crate::domain::checkpoint::Namespace;

fn json_value(value: &Value) -> checkpoint::Value {
    checkpoint::Value { t: ValueType::trusted("json"), b: Bytes64(value.to_string().into_bytes()) }
}

fn version(text: &str) -> Version {
    serde_json::from_str(text).unwrap()
}

fn checkpoint(value: &Value, channels: &[(&str, &str, Option<checkpoint::Value>)]) -> Checkpoint {
    let channel = |name: &str| Channel::trusted(name);
    let blobs = channels.iter().filter_map(|(name, since, value)| {
        let checkpoint::Value { t, b } = value.clone()?;
        Some((channel(name), Blob { version: version(since), t, b }))
    });
    Checkpoint {
        thread_id: "t".parse().unwrap(),
        ns: Namespace::default(),
        checkpoint_id: CheckpointId::trusted("0198c0de-0000-7000-8000-000000000001"),
        parent_id: None,
        run_id: None,
        checkpoint: json_value(value),
        metadata: Json::of(&json!({"step": 4})),
        versions: Channels(channels.iter().map(|(name, since, _)| (channel(name), version(since))).collect()),
        blobs: Channels(blobs.collect()),
        writes: Vec::new(),
        created_at: DateTime::UNIX_EPOCH,
    }
}

fn whole(checkpoint: Checkpoint) -> SavedThread {
    match of_checkpoint(checkpoint) {
        CheckpointContent::Thread(thread) => thread,
        held => panic!("{held:?}"),
    }
}

fn fresh() -> Uuid {
    "0198c0de-0000-7000-8000-0000000000ff".parse().unwrap()
}

fn again(restored: Restored) -> Checkpoint {
    let Restored { checkpoint_id, checkpoint: value, versions, blobs, .. } = restored;
    Checkpoint { checkpoint_id, checkpoint: value, versions, blobs, ..checkpoint(&json!({}), &[]) }
}

fn value_in(blobs: &Channels<Blob>, channel: &str) -> Value {
    let blob = blobs.0.iter().find(|(name, _)| name.as_str() == channel).unwrap();
    serde_json::from_slice(&blob.1.b.0).unwrap()
}

#[test]
fn what_nobody_edited_comes_back_to_the_byte_and_an_edit_comes_back_in_its_place() {
    let messages = json!([{"type": "human", "content": "hi", "id": "h"}, {"type": "ai", "content": [{"type": "text", "text": "ho"}]}]);
    let spaced = checkpoint::Value { t: ValueType::trusted("json"), b: Bytes64(format!(" {messages}\n").into_bytes()) };
    let odd = Some(checkpoint::Value { t: ValueType::trusted("pickle"), b: Bytes64(vec![0, 1, 2]) });
    let channels = [("messages", "7.50", Some(spaced)), ("odd", "\"2\"", odd), ("gone", "3", None)];
    let before = checkpoint(&json!({"v": 4, "versions_seen": {"a": {"odd": "2"}}}), &channels);
    let mut saved = whole(before.clone());
    assert_eq!(saved.messages[0], json!({"role": "user", "content": "hi", "id": "h"}));
    // As read from its file.
    saved.metadata = serde_json::from_str(&serde_json::to_string(&saved.metadata).unwrap()).unwrap();
    let restored = saved.restored(fresh(), DateTime::UNIX_EPOCH);
    assert_eq!((&restored.checkpoint_id, restored.step), (&before.checkpoint_id, 4));
    assert_eq!((&restored.checkpoint, &restored.blobs.0[1..]), (&before.checkpoint, &before.blobs.0[1..]));
    assert_eq!(restored.blobs.0[0].1.b, before.blobs.0[0].1.b);
    assert_eq!(restored.versions.0[1..], before.versions.0[1..]);
    saved.messages[0]["content"] = json!("edited");
    let edited = saved.restored(fresh(), DateTime::UNIX_EPOCH);
    assert_eq!((&edited.checkpoint, &edited.blobs.0[1..]), (&before.checkpoint, &before.blobs.0[1..]));
    let text = json!([{"type": "text", "text": "ho"}]);
    let messages = json!([{"role": "user", "content": "edited", "id": "h"}, {"role": "assistant", "content": text}]);
    assert_eq!(value_in(&edited.blobs, "messages"), messages);
}

#[test]
fn this_programs_state_comes_back_with_its_usage_and_what_langgraph_wants_to_see() {
    let messages = json!([{"role": "user", "content": [{"type": "text", "text": "hi"}]}]);
    let head = json!({"v": 1, "graph": "assistant", "step": 3, "next": ["tools"]});
    let usage = json!({"input_tokens": 7, "output_tokens": 1});
    let channels = [("messages", "\"a\"", Some(json_value(&messages))), ("usage", "\"b\"", Some(json_value(&usage)))];
    let saved = whole(checkpoint(&head, &channels));
    assert!(!saved.is_fallback());
    assert_eq!(saved.metadata["version"], "1.0");
    let restored = saved.restored(fresh(), DateTime::UNIX_EPOCH);
    assert_eq!((value_in(&restored.blobs, "messages"), value_in(&restored.blobs, "usage")), (messages, usage));
    let value: Value = serde_json::from_slice(&restored.checkpoint.b.0).unwrap();
    assert_eq!((&value["v"], &value["channel_versions"]), (&json!(4), &json!({"messages": "a", "usage": "b"})));
    assert_eq!((&value["id"], &value["versions_seen"]), (&json!("0198c0de-0000-7000-8000-000000000001"), &json!({})));
    // Saving and restoring it again changes nothing.
    let twice = whole(again(saved.restored(fresh(), DateTime::UNIX_EPOCH))).restored(fresh(), DateTime::UNIX_EPOCH);
    assert_eq!((twice.checkpoint, twice.blobs), (restored.checkpoint, restored.blobs));
}

#[test]
fn messages_are_found_where_other_frameworks_have_them_and_edited_ones_go_back_there() {
    let messages = json!([{"type": "human", "content": "hi"}, {"type": "ai", "content": "ho"}]);
    let inside = json!({"v": 4, "channel_values": {"messages": messages, "n": 1}, "versions_seen": {"a": {"n": 2}}});
    for (value, place) in [(inside, "/channel_values/messages"), (json!({"messages": messages, "v": 9}), "/messages")] {
        let mut saved = whole(checkpoint(&value, &[("n", "2", None)]));
        assert_eq!(saved.messages[0], json!({"role": "user", "content": "hi"}));
        assert_eq!(saved.restored(fresh(), DateTime::UNIX_EPOCH).checkpoint, json_value(&value));
        saved.messages.pop();
        let restored = saved.restored(fresh(), DateTime::UNIX_EPOCH);
        let back: Value = serde_json::from_slice(&restored.checkpoint.b.0).unwrap();
        assert_eq!(back.pointer(place), Some(&json!([{"role": "user", "content": "hi"}])));
        assert_eq!((&back["v"], restored.step, restored.blobs.0.len()), (&value["v"], 4, 0));
    }
}

#[test]
fn a_state_without_messages_is_kept_and_one_whose_messages_nobody_can_read_is_not() {
    let list = |value: Value| Some(json_value(&value));
    let good = || list(json!([{"role": "user", "content": "hi"}]));
    let pickled = Some(checkpoint::Value { t: ValueType::trusted("pickle"), b: Bytes64(vec![1]) });
    for channels in [
        vec![("messages", "1", pickled.clone())],
        vec![("messages", "1", list(json!("hi")))],
        vec![("messages", "1", list(json!([{"content": "hi"}])))],
        // A conversation cannot continue after a tool message that names no call.
        vec![("messages", "1", list(json!([{"role": "tool", "content": "x"}])))],
    ] {
        assert_eq!(of_checkpoint(checkpoint(&json!({}), &channels)), CheckpointContent::Nothing, "{channels:?}");
    }
    let mut foreign = checkpoint(&json!({}), &[("messages", "1", good())]);
    foreign.checkpoint.t = ValueType::trusted("acme");
    whole(foreign);
    for channels in [vec![("other", "1", pickled)], vec![("messages", "1", None)], vec![]] {
        let before = checkpoint(&json!({"a": 1}), &channels);
        let CheckpointContent::State(metadata) = of_checkpoint(before.clone()) else { panic!("a state") };
        // The messages from the log get their own channel.
        let saved = SavedThread { messages: vec![json!({"role": "user", "content": "hi"})], metadata };
        let restored = saved.restored(fresh(), DateTime::UNIX_EPOCH);
        assert_eq!(restored.checkpoint, before.checkpoint);
        assert_eq!(value_in(&restored.blobs, "messages"), json!(saved.messages));
        let versions = restored.versions.0.iter().filter(|(channel, _)| channel.as_str() == "messages");
        assert_eq!(versions.count(), 1);
    }
    let empty = Some(checkpoint::Value { t: ValueType::trusted("empty"), b: Bytes64::default() });
    whole(checkpoint(&json!({}), &[("messages", "1", good()), ("x", "1", empty)]));
    let critic =
        whole(checkpoint(&json!({}), &[("messages", "1", list(json!([{"type": "critic", "content": "no"}])))]));
    assert_eq!(critic.messages, [json!({"role": "critic", "content": "no"})]);
}

#[test]
fn a_state_that_was_made_something_else_or_has_the_last_id_of_all_goes_on_all_the_same() {
    let messages = vec![json!({"role": "user", "content": "hi"})];
    let mut last = checkpoint(&json!({"v": 4}), &[]);
    last.checkpoint_id = CheckpointId::trusted(&Uuid::max().to_string());
    for state in [json!({"checkpoint": {"v": 7}, "channels": [1]}), json!(7), serde_json::to_value(last).unwrap()] {
        let metadata = Map::from_iter([("state".to_owned(), state)]);
        let restored = SavedThread { messages: messages.clone(), metadata }.restored(fresh(), DateTime::UNIX_EPOCH);
        assert_eq!(restored.checkpoint_id.as_str(), fresh().to_string());
        assert_eq!(value_in(&restored.blobs, "messages"), json!(messages));
    }
}

#[test]
fn a_fallback_comes_back_as_its_summary_and_a_thread_by_hand_as_its_messages() {
    let messages = vec![json!({"role": "user", "content": "find it"}), json!({"role": "assistant", "content": "yes"})];
    let restored = SavedThread::fallback(messages.clone()).restored(fresh(), DateTime::UNIX_EPOCH);
    assert_eq!(restored.checkpoint_id.as_str(), fresh().to_string());
    let stored = value_in(&restored.blobs, "messages");
    let text = stored[0]["content"].as_str().unwrap();
    assert_eq!((stored.as_array().unwrap().len(), &stored[0]["role"]), (1, &json!("user")));
    assert!(text.contains("1. find it") && text.contains("Messages in total: 2"), "{text}");
    let by_hand = SavedThread { messages, metadata: Map::new() };
    let restored = by_hand.restored(fresh(), DateTime::UNIX_EPOCH);
    assert_eq!(value_in(&restored.blobs, "messages")[1]["content"], "yes");
    let spelled = restored.versions.0[0].1.as_json();
    assert_eq!(spelled, "\"00000000000000000000000000000001.0000000000ff\"");
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z0-9-]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let names = "messages|channel_values|graph|step|next|v|runreel|id|channels|version|value|[a-c]";
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((names, inner), 0..5).prop_map(|members| members.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_a_state_is_its_messages_come_back(state in any_json(), value in any_json(), id in "[0-9a-f-]{0,40}") {
        let mut state = state;
        if state.is_object() {
            state["checkpoint"] = value;
            state["checkpoint_id"] = json!(id);
        }
        let messages = vec![json!({"role": "user", "content": "hi"})];
        let metadata = Map::from_iter([("version".to_owned(), json!("7")), ("state".to_owned(), state)]);
        let restored = SavedThread { messages: messages.clone(), metadata }.restored(fresh(), DateTime::UNIX_EPOCH);
        prop_assert_eq!(value_in(&restored.blobs, "messages"), json!(messages));
        prop_assert!(Uuid::try_parse(restored.checkpoint_id.as_str()).is_ok());
    }

    #[test]
    fn what_can_be_read_comes_back_as_it_was(value in any_json(), messages in any_json()) {
        let before = checkpoint(&value, &[("messages", "1", Some(json_value(&messages)))]);
        if let CheckpointContent::Thread(saved) = of_checkpoint(before.clone()) {
            let restored = saved.restored(fresh(), DateTime::UNIX_EPOCH);
            prop_assert_eq!(&restored.blobs, &before.blobs);
            let back = whole(again(restored));
            prop_assert_eq!(back.messages, saved.messages);
        }
    }
}
