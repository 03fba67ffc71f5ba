use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn made(pieces: &[Value]) -> Result<Vec<MadeCall>, ModelError> {
    let mut calls = Calls::default();
    for piece in pieces {
        let text = piece.to_string();
        let members = Unread::parse(&text).unwrap().members();
        let form = match members.text("form").as_deref() {
            Some("whole") => Form::Whole,
            Some("announced") => Form::Announced,
            _ => Form::More,
        };
        calls.add(Piece {
            number: members.get("index").and_then(Unread::whole),
            item: members.text("item"),
            id: members.text("id"),
            name: members.text("name"),
            args: members.get("args"),
            form,
            signature: None,
        })?;
    }
    calls.end()
}

/// Calls as `id name args`.
fn of(pieces: &Value) -> Vec<String> {
    let calls = made(pieces.as_array().unwrap()).unwrap();
    calls.iter().map(|call| format!("{} {} {}", call.id.as_deref().unwrap_or("-"), call.name, call.args)).collect()
}

#[test]
fn numbers_only_tell_calls_apart() {
    for index in [0, 1, 127, 128, 12_000, 4_294_967_295_i64, i64::MAX] {
        let pieces =
            json!([{"index": index, "id": "a", "name": "f", "args": "{\"x\""}, {"index": index, "args": ":1}"}]);
        assert_eq!(of(&pieces), ["a f {\"x\":1}"], "{index}");
    }
    let two =
        json!([{"index": 2, "id": "b", "name": "g", "args": "{}"}, {"index": 1, "id": "a", "name": "f", "args": "{}"}]);
    assert_eq!(of(&two), ["a f {}", "b g {}"]);
    let twice =
        json!([{"index": 0, "id": "c", "name": "f", "args": "{}"}, {"index": 1, "id": "c", "name": "f", "args": "{}"}]);
    assert_eq!(of(&twice), ["c f {}", "c f {}"]);
}

#[test]
fn a_name_that_is_repeated_with_no_more_than_blanks_is_no_other_call() {
    let blank = json!([
        {"index": 0, "id": "a", "name": "f", "args": "{\"x\":1"}, {"index": 0, "id": "a", "name": "f", "args": "}"},
        {"index": 0, "id": "a", "name": "f", "args": "\n"},
    ]);
    assert_eq!(of(&blank), ["a f {\"x\":1}"]);
    let last = json!([
        {"index": 0, "id": "a", "name": "f", "args": "{\"x\":1}"}, {"index": 0, "name": "f", "args": ""},
    ]);
    assert_eq!(of(&last), ["a f {\"x\":1}"]);
}

#[test]
fn a_call_that_was_cut_off_before_its_arguments_were_complete_is_none() {
    let cut = |args: &str| {
        let mut calls = Calls::default();
        for (id, args) in [("a", "{\"x\":1}"), ("b", args)] {
            let (id, text) = (Some(id.to_owned()), json!(args).to_string());
            calls
                .add(Piece { id, name: Some("f".to_owned()), args: Unread::parse(&text), ..Piece::default() })
                .unwrap();
        }
        calls.cut();
        calls.end().unwrap().into_iter().filter_map(|call| call.id).collect::<Vec<_>>()
    };
    assert_eq!(
        (cut(""), cut("{\"path\":\"/da"), cut("{\"x\":[1,2}")),
        (vec!["a".to_owned()], vec!["a".to_owned()], vec!["a".to_owned()])
    );
    assert_eq!(cut("{\"x\":\"}\"}"), ["a", "b"]);
}

#[test]
fn another_id_under_the_same_number_is_another_call() {
    let pieces = json!([
        {"index": 0, "id": "a", "name": "f", "args": ""}, {"index": 0, "args": "{\"x\":1}"},
        {"index": 0, "id": "b", "name": "f", "args": ""}, {"index": 0, "args": "{\"x\":2}"},
    ]);
    assert_eq!(of(&pieces), ["a f {\"x\":1}", "b f {\"x\":2}"]);
    let mixed = json!([
        {"index": 0, "id": "a", "name": "f", "args": "{\"x\""}, {"index": 0, "id": "b", "name": "f", "args": "{\"x\""},
        {"index": 0, "id": "a", "args": ":1}"}, {"index": 0, "id": "b", "args": ":2}"},
    ]);
    assert_eq!(of(&mixed), ["a f {\"x\":1}", "b f {\"x\":2}"]);
}

#[test]
fn an_id_that_is_made_up_for_each_piece_makes_no_calls() {
    let pieces = json!([
        {"index": 0, "id": "r1", "name": "f"}, {"index": 0, "id": "r2", "args": "{\"x\""},
        {"index": 0, "id": "r3", "args": ":1}"},
    ]);
    assert_eq!(of(&pieces), ["r1 f {\"x\":1}"]);
}

#[test]
fn without_numbers_an_id_begins_a_call_and_what_has_none_continues_it() {
    for index in [Value::Null, json!(-1)] {
        let pieces = json!([
            {"index": index, "id": "a", "name": "f", "args": ""}, {"index": index, "args": "{\"x\":1}"},
            {"index": index, "id": "b", "name": "g"}, {"index": index, "id": "b", "args": "{\"x\":"},
            {"index": index, "args": "2}"},
        ]);
        assert_eq!(of(&pieces), ["a f {\"x\":1}", "b g {\"x\":2}"], "{index}");
    }
    let nameless = json!([{"name": "f", "args": "{\"x\":1}"}, {"name": "f", "args": "{\"x\":2}"}, {"name": "g"}]);
    assert_eq!(of(&nameless), ["- f {\"x\":1}", "- f {\"x\":2}", "- g {}"]);
}

#[test]
fn pieces_may_come_before_their_head_and_whole_calls_twice() {
    let late =
        json!([{"index": 1, "args": "{\"x\":1"}, {"index": 1, "id": "a", "name": "f"}, {"index": 1, "args": "}"}]);
    assert_eq!(of(&late), ["a f {\"x\":1}"]);
    let call = json!({"index": 0, "id": "a", "name": "f", "args": "{\"x\":1}"});
    assert_eq!(of(&json!([call, call])), ["a f {\"x\":1}"]);
    let whole = json!({"id": "a", "name": "f", "args": {"x": 1}, "form": "whole"});
    assert_eq!(of(&json!([whole, whole])), ["a f {\"x\":1}"]);
    let same = json!({"name": "f", "args": {}, "form": "whole"});
    assert_eq!(of(&json!([same, same])), ["- f {}", "- f {}"]);
}

#[test]
fn what_is_whole_outweighs_its_pieces_whatever_their_order() {
    let head = json!({"item": "i", "index": 0, "id": "a", "name": "f", "args": ""});
    let cut = json!({"item": "i", "index": 0, "args": "{\"x\":"});
    let whole = json!({"item": "i", "index": 0, "args": "{\"x\":1}", "form": "whole"});
    for pieces in
        [json!([head, cut, whole]), json!([cut, head, whole]), json!([whole, head, cut]), json!([head, whole, cut])]
    {
        assert_eq!(of(&pieces), ["a f {\"x\":1}"], "{pieces}");
    }
    let announced = |args: Value| json!({"index": 0, "id": "a", "name": "f", "args": args, "form": "announced"});
    assert_eq!(of(&json!([announced(json!({"x": 1}))])), ["a f {\"x\":1}"]);
    assert_eq!(of(&json!([announced(json!({"x": 1})), {"index": 0, "args": "{\"x\":2}"}])), ["a f {\"x\":2}"]);
}

#[test]
fn items_tell_calls_apart_where_numbers_do_not() {
    let piece = |item: &str, args: &str, form: &str| json!({"item": item, "index": 0, "args": args, "form": form});
    let head = |item: &str, id: &str| json!({"item": item, "index": 0, "id": id, "name": "f"});
    let early = json!([piece("i", "{\"x\":1}", ""), piece("j", "{\"x\":2}", "whole"), head("i", "a"), head("j", "b")]);
    assert_eq!(of(&early), ["a f {\"x\":1}", "b f {\"x\":2}"]);
    let anew = json!([head("r1", "a"), piece("r2", "{\"x\":1}", ""), piece("r3", "{\"x\":1}", "whole")]);
    assert_eq!(of(&anew), ["a f {\"x\":1}"]);
}

#[test]
fn an_item_that_begins_late_or_never_takes_nothing_of_the_other_call_of_its_number() {
    let first = json!({"index": 0, "item": "i", "id": "a", "name": "f", "args": ""});
    let pieces = [
        json!({"index": 0, "item": "j", "args": "{\"x\":"}),
        json!({"index": 0, "item": "j", "args": "2}"}),
        json!({"index": 0, "item": "j", "args": "{\"x\":2}", "form": "whole"}),
        json!({"index": 0, "item": "i", "args": "{\"x\":1}"}),
    ];
    let late = json!({"index": 0, "item": "j", "id": "b", "name": "f", "args": "{\"x\":2}", "form": "whole"});
    for end in 1..=4 {
        for last in 2..=3 {
            // With any number of the pieces before the late beginning, and whole arguments or not.
            let pieces = pieces.iter().take(last).chain(&pieces[3..]).collect::<Vec<_>>();
            let (before, after) = pieces.split_at(end.min(pieces.len()));
            let all = [&[&first], before, &[&late], after].concat().into_iter().cloned().collect();
            assert_eq!(of(&Value::Array(all)), ["a f {\"x\":1}", "b f {\"x\":2}"]);
        }
    }
    let never = [&[first], &pieces[..]].concat();
    assert!(made(&never).unwrap_err().message.contains("without a name"));
}

#[test]
fn an_item_that_is_named_anew_in_each_event_is_one_call() {
    let pieces = json!([
        {"index": 0, "item": "i", "id": "a", "name": "f", "args": ""},
        {"index": 0, "item": "j", "args": "{\"x\":\"\u{1f600}"}, {"index": 0, "item": "k", "args": "\"}"},
        {"index": 0, "item": "l", "args": "{\"x\":\"\u{1f600}\"}", "form": "whole"},
        {"index": 0, "item": "m", "id": "a", "name": "f", "args": "{\"x\": \"\u{1f600}\"}", "form": "whole"},
        {"index": 1, "item": "n", "id": "b", "name": "f", "args": ""}, {"index": 1, "item": "o", "args": "{}"},
    ]);
    for end in [3, 4, 5] {
        let pieces: Vec<Value> =
            pieces.as_array().unwrap()[..end].iter().chain(&pieces.as_array().unwrap()[5..]).cloned().collect();
        assert_eq!(of(&pieces.into()), ["a f {\"x\":\"\u{1f600}\"}", "b f {}"], "{end}");
    }
}

#[test]
fn no_arguments_are_an_empty_object_and_others_stay_as_they_are() {
    for (args, expected) in [
        (json!(""), json!({})),
        (json!(" "), json!({})),
        (json!("null"), json!({})),
        (Value::Null, json!({})),
        (json!({"x": 1}), json!({"x": 1})),
        (json!("{\"x\":\"\\ud83d\"}"), json!({"x": "\u{fffd}"})),
        (json!("not json"), json!("not json")),
    ] {
        let calls = made(&[json!({"index": 0, "id": "a", "name": "f", "args": args})]).unwrap();
        assert_eq!(calls[0].args, expected, "{args}");
    }
}

#[test]
fn there_are_128_calls_at_most_and_each_has_a_name() {
    let call = |n: usize| json!({"index": n, "id": format!("c{n}"), "name": "f", "args": "{}"});
    assert_eq!(made(&(0..128).map(call).collect::<Vec<_>>()).unwrap().len(), 128);
    assert_eq!(made(&(0..129).map(call).collect::<Vec<_>>()).unwrap_err(), too_long());
    assert_eq!(made(&[json!({"index": 0, "args": "{}"})]).unwrap_err().kind, ModelErrorKind::Transient);
    assert_eq!(of(&json!([{"index": 0}])), [""; 0], "of nothing, nothing is made");
}

proptest! {
    #[test]
    fn each_call_is_made_once_however_its_pieces_lie_between_those_of_others(
        lengths in prop::collection::vec(prop::collection::vec(1_usize..9, 0..5), 1..6),
        numbers in prop::sample::subsequence((0_i64..2_000).collect::<Vec<_>>(), 6),
        order in any::<u64>(),
    ) {
        let mut queues: Vec<Vec<Value>> = Vec::new();
        let mut expected = Vec::new();
        for (n, lengths) in lengths.iter().enumerate() {
            let args = json!({"n": n, "text": "é".repeat(lengths.iter().sum())});
            expected.push(format!("c{n} f {args}"));
            let mut rest: Vec<char> = args.to_string().chars().rev().collect();
            let mut queue = vec![json!({"index": numbers[n], "id": format!("c{n}"), "name": "f"})];
            for length in lengths.iter().chain([&usize::MAX]) {
                let piece: String = rest.split_off(rest.len().saturating_sub(*length)).into_iter().rev().collect();
                queue.push(json!({"index": numbers[n], "args": piece}));
            }
            queues.push(queue);
        }
        let mut pieces = Vec::new();
        let mut turn = order;
        while queues.iter().any(|queue| !queue.is_empty()) {
            turn = turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let open: Vec<usize> = (0..queues.len()).filter(|n| !queues[*n].is_empty()).collect();
            pieces.push(queues[open[usize::try_from(turn >> 40).unwrap() % open.len()]].remove(0));
        }
        prop_assert_eq!(of(&Value::Array(pieces)), expected);
    }
}
