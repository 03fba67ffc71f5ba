use std::{sync::Arc, time::Duration};

use futures::executor::block_on;
use serde_json::{Value, json};

use super::*;
use crate::emitters::{
    emitter::{Level, RESULT_BYTES_MAX},
    testing::{World, context},
};

fn supervisor() -> (Arc<World>, SupervisorEmitter) {
    let world = World::endless();
    let emitter = SupervisorEmitter::new(world.host(context(1, Role::Supervisor, "lead")), "p").unwrap();
    (world, emitter)
}

#[test]
fn an_emitter_refuses_to_speak_for_a_run_of_another_role() {
    let make = |role| World::endless().host(context(1, role, "a"));
    assert_eq!(SupervisorEmitter::new(make(Role::Worker), "p").err(), Some(InvalidIdentity::Role(Role::Worker)));
    for role in [Role::Supervisor, Role::Agent] {
        assert_eq!(WorkerEmitter::new(make(role), "p").err(), Some(InvalidIdentity::Role(role)));
        assert!(SupervisorEmitter::new(make(role), "p").is_ok());
    }
    for prefix in ["", "a\nb", &"x".repeat(PREFIX_CHARS_MAX + 1)] {
        assert_eq!(WorkerEmitter::new(make(Role::Worker), prefix).err(), Some(InvalidIdentity::Prefix));
    }
}

#[test]
fn every_durable_event_has_an_id_of_its_own_and_a_delta_has_none() {
    let (world, emitter) = supervisor();
    let span = "m1".parse().unwrap();
    block_on(async {
        emitter.log(Level::Warn, "one").await.unwrap();
        emitter.message_delta(&span, "two").await.unwrap();
        emitter.message(&span, &json!({}), None).await.unwrap();
    });
    let ids: Vec<_> = world.events().iter().map(|event| event.event_id.as_ref().map(ToString::to_string)).collect();
    assert_eq!(ids, [Some("p-1".to_owned()), None, Some("p-2".to_owned())]);
}

#[test]
fn a_result_over_the_bound_is_cut_and_says_so() {
    let (world, emitter) = supervisor();
    let span = "t1".parse().unwrap();
    let whole = json!("x".repeat(RESULT_BYTES_MAX - 2));
    let long = json!("é".repeat(RESULT_BYTES_MAX));
    block_on(async {
        emitter.tool_completed(&span, "t", &whole, Duration::from_micros(1_500), None).await.unwrap();
        emitter.tool_completed(&span, "t", &long, Duration::ZERO, None).await.unwrap();
    });
    let payloads: Vec<Value> =
        world.events().iter().map(|event| serde_json::from_str(event.payload.as_str()).unwrap()).collect();
    assert_eq!(payloads[0], json!({"tool_call_id": "t1", "name": "t", "result": whole, "duration_ms": 1.5}));
    assert_eq!(payloads[1]["truncated"], true);
    assert_eq!(payloads[1]["result"]["bytes"], 2 * RESULT_BYTES_MAX + 2);
    assert!(payloads[1].to_string().len() < RESULT_BYTES_MAX);
}

#[test]
fn an_event_of_the_programs_own_stays_in_its_own_family() {
    let (world, emitter) = supervisor();
    block_on(async {
        let span = "table".parse().unwrap();
        emitter.custom(&span, "table", &json!({})).await.unwrap();
        assert!(emitter.custom(&span, "Table!", &json!({})).await.is_err());
    });
    assert_eq!(world.types(emitter.context().run_id), ["custom.table"]);
}

#[test]
fn every_sentence_is_a_type_a_producer_may_emit() {
    let (world, emitter) = supervisor();
    let span = "s1".parse().unwrap();
    let child = context(2, Role::Worker, "w");
    let (now, text) = (Duration::ZERO, "x");
    block_on(async {
        for emitted in [
            emitter.run_waiting(text, &[child.run_id]),
            emitter.run_resumed(text),
            emitter.run_completed(json!(1)),
            emitter.run_failed(text),
            emitter.step_started(&span, text),
            emitter.step_completed(&span, text, now),
            emitter.step_failed(&span, text, text, now),
            emitter.tool_started(&span, text, &json!({}), None),
            emitter.tool_failed(&span, text, text, now, None),
            emitter.worker_spawned(&child, text, None),
            emitter.worker_completed(child.run_id, text, &json!({}), now),
            emitter.worker_failed(child.run_id, text, text, now),
            emitter.message_delta(&span, text),
            emitter.log(Level::Debug, text),
            emitter.log(Level::Info, text),
            emitter.log(Level::Error, text),
        ] {
            emitted.await.unwrap();
        }
    });
    assert_eq!(world.events().len(), 16);
    for event in world.events() {
        assert_eq!(event.event_type.check_producer(), Ok(()), "{}", event.event_type);
    }
}

#[test]
fn the_null_emitter_says_nothing_and_agrees_to_everything() {
    assert_eq!(block_on(NullEmitter.run_failed("x")), Ok(()));
}
