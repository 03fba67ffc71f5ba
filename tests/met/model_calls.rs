//! Streams of models whose calls, texts and ends are not written as in the documentation of their format.
//!
//! A call is executed once, with its own arguments, whatever numbers and ids its gateway gives; a text is what its
//! pieces add up to; an answer in which nothing can be read is an error that may pass.

use serde_json::{Value, json};

use crate::{
    agents::{ask, kinds, log, of, response, stands},
    support::{
        models::{Answer, ModelServer, chat, delta, events, named_events, stream_of},
        server::{Server, setup},
    },
};

const DONE: &str = "data: [DONE]\n\n";

fn sse(chunks: &[Value], end: &str) -> Answer {
    stream_of("text/event-stream", format!("{}{end}", events(chunks)))
}

fn finished(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

/// An answer of chat completions that calls tools in these pieces.
fn calling(pieces: &[Value]) -> Answer {
    let mut chunks: Vec<Value> = pieces.iter().map(|piece| delta(&json!({"tool_calls": [piece]}))).collect();
    chunks.push(finished("tool_calls"));
    sse(&chunks, DONE)
}

/// Arguments that can be used once: a file that is there is not written again.
fn write(name: &str) -> String {
    json!({"path": format!("{name}.txt"), "text": "A"}).to_string()
}

fn head(index: &Value, id: &str, args: &str) -> Value {
    let mut piece = json!({"id": id, "type": "function", "function": {"name": "files_write", "arguments": args}});
    if !index.is_null() {
        piece["index"] = index.clone();
    }
    piece
}

/// An agent of a real server whose model gives these answers, with a folder to write to.
async fn working(kind: &str, path: &str, answers: Vec<Answer>) -> (Server, ModelServer) {
    let model = ModelServer::start(answers).await;
    let config = format!(
        "[models.m]\nmodel = \"{kind}:any\"\nbase_url = \"{}{path}\"\nretries = 0\n\
         [agents.a]\nmodel = \"m\"\ntools = [\"files\"]\n",
        model.base
    );
    (setup().config(&config).start().await, model)
}

/// The calls of a run as their arguments and how they ended.
fn calls(events: &[Value]) -> Vec<(String, String)> {
    let ends = ["tool.completed", "tool.failed"];
    let end = |span: &Value| {
        let end =
            events.iter().find(|event| event["span_id"] == *span && ends.contains(&event["type"].as_str().unwrap()));
        end.map_or("never", |event| event["type"].as_str().unwrap()).to_owned()
    };
    let call =
        |event: &&Value| (event["payload"]["args"]["path"].as_str().unwrap_or("?").to_owned(), end(&event["span_id"]));
    of(events, "tool.started").iter().map(call).collect()
}

fn more(index: &Value, args: &str) -> Value {
    let mut piece = json!({"function": {"arguments": args}});
    if !index.is_null() {
        piece["index"] = index.clone();
    }
    piece
}

#[tokio::test]
async fn each_call_is_executed_once_whatever_numbers_and_ids_a_gateway_gives() {
    type Pieces = fn(&str, &str) -> Vec<Value>;
    let cases: [(&str, usize, Pieces); 11] = [
        ("one", 1, |one, _| vec![head(&json!(1), "a", one)]),
        ("one and two", 2, |one, two| vec![head(&json!(1), "a", one), head(&json!(2), "b", two)]),
        ("in pieces", 1, |one, _| vec![head(&json!(1), "a", &one[..9]), more(&json!(1), &one[9..])]),
        ("0 twice", 2, |one, two| vec![head(&json!(0), "a", one), head(&json!(0), "b", two)]),
        ("large", 1, |one, _| vec![head(&json!(4_294_967_295_u32), "a", one)]),
        ("larger", 1, |one, _| vec![head(&json!(1e30), "a", one)]),
        ("missing", 2, |one, two| {
            vec![head(&Value::Null, "a", &one[..9]), more(&Value::Null, &one[9..]), head(&Value::Null, "b", two)]
        }),
        ("-1", 2, |one, two| vec![head(&json!(-1), "a", one), head(&json!(-1), "b", two)]),
        ("texts", 2, |one, two| vec![head(&json!("1"), "a", one), head(&json!("0"), "b", two)]),
        ("late head", 1, |one, _| vec![more(&json!(0), &one[..9]), head(&json!(0), "a", &one[9..])]),
        ("repeated", 1, |one, _| vec![head(&json!(0), "a", one), head(&json!(0), "a", one)]),
    ];
    let name = |what: &str, n: usize| format!("{what} {n}");
    let answers = cases.iter().flat_map(|(what, _, pieces)| {
        [calling(&pieces(&write(&name(what, 1)), &write(&name(what, 2)))), chat(&["done"], &[])]
    });
    let (api, _model) = working("openai", "/v1", answers.collect()).await;
    for (what, count, _) in &cases {
        let run = ask(&api, "a", what, json!({})).await;
        assert_eq!(response(&api, &run).await, "done", "{what}");
        let mut made = calls(&log(&api, &run).await);
        made.sort();
        let expected: Vec<_> =
            (1..=*count).map(|n| (format!("{}.txt", name(what, n)), "tool.completed".to_owned())).collect();
        assert_eq!(made, expected, "{what}");
    }
}

#[tokio::test]
async fn more_calls_than_the_bound_are_refused_and_none_is_executed() {
    let pieces: Vec<Value> =
        (0..129).map(|n| head(&json!(n * 1_000_000), &format!("c{n}"), &write(&n.to_string()))).collect();
    let (api, model) = working("openai", "/v1", vec![calling(&pieces)]).await;
    let run = ask(&api, "a", "too many", json!({})).await;
    stands(&api, &run, "failed").await;
    assert!(!kinds(&log(&api, &run).await).contains(&"tool.started"));
    assert_eq!(model.asked().len(), 1);
}

#[tokio::test]
async fn the_calls_of_every_format_are_executed_once() {
    let block = |index: u32, id: &str, name: &str| {
        let tool = json!({"type": "tool_use", "id": id, "name": "files_write", "input": {}});
        let args = json!({"type": "input_json_delta", "partial_json": write(name)});
        [
            json!({"type": "content_block_start", "index": index, "content_block": tool}),
            json!({"type": "content_block_delta", "index": index, "delta": args}),
        ]
    };
    let stop = |reason: &str| {
        let delta = json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 3}});
        [delta, json!({"type": "message_stop"})]
    };
    // Blocks that are open together, and one number for two of them.
    let anthropic = [block(7, "t1", "a1"), block(7, "t2", "a2"), stop("tool_use")].concat();
    let text = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "done"}});
    let anthropic = vec![named_events(&anthropic), named_events(&[vec![text], stop("end_turn").to_vec()].concat())];

    let args = |name: &str| serde_json::from_str::<Value>(&write(name)).unwrap();
    let part = |part: Value| json!({"candidates": [{"content": {"parts": [part]}}]});
    let call =
        |id: Value, name: &str| part(json!({"functionCall": {"id": id, "name": "files_write", "args": args(name)}}));
    let end =
        json!({"candidates": [{"content": {}, "finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 7}});
    let twice = call(json!("g"), "g2");
    let gemini = vec![
        sse(&[call(Value::Null, "g1"), twice.clone(), twice, end.clone()], ""),
        sse(&[part(json!({"text": "done"})), end], ""),
    ];

    let line = |message: Value, done: bool| format!("{}\n", json!({"message": message, "done": done}));
    let function = |name: &str| json!({"function": {"index": 9, "name": "files_write", "arguments": args(name)}});
    let ollama = vec![
        stream_of(
            "application/x-ndjson",
            line(json!({"content": "", "tool_calls": [function("o1"), function("o2")]}), false)
                + &line(json!({}), true),
        ),
        stream_of("application/x-ndjson", line(json!({"content": "done"}), true)),
    ];

    let added = |index: u32, item: &str, id: &str| {
        let item = json!({"type": "function_call", "id": item, "call_id": id, "name": "files_write", "arguments": ""});
        json!({"type": "response.output_item.added", "output_index": index, "item": item})
    };
    let args = |item: &str, name: &str| json!({"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": item, "delta": write(name)});
    let completed = json!({"type": "response.completed", "response": {"status": "completed", "output": []}});
    let said = json!({"type": "response.output_text.delta", "delta": "done"});
    let responses = vec![
        sse(&[added(0, "i1", "r"), added(0, "i2", "s"), args("i2", "r2"), args("i1", "r1"), completed.clone()], ""),
        sse(&[said, completed], ""),
    ];

    for (kind, path, answers, files) in [
        ("anthropic", "/v1", anthropic, ["a1", "a2"]),
        ("gemini", "/v1beta", gemini, ["g1", "g2"]),
        ("ollama", "", ollama, ["o1", "o2"]),
        ("openai-responses", "/v1", responses, ["r1", "r2"]),
    ] {
        let (api, _model) = working(kind, path, answers).await;
        let run = ask(&api, "a", "write", json!({})).await;
        assert_eq!(response(&api, &run).await, "done", "{kind}");
        let mut made = calls(&log(&api, &run).await);
        made.sort();
        assert_eq!(made, files.map(|file| (format!("{file}.txt"), "tool.completed".to_owned())), "{kind}");
    }
}

#[tokio::test]
async fn an_id_goes_back_to_its_provider_to_the_byte() {
    let ids = ["functions.files_list:0".to_owned(), "x".repeat(70), format!("call_1__thought__{}/+=", "s".repeat(930))];
    let call = |id: &String| chat(&[], &[(id.as_str(), "files_list", &[""])]);
    let answers = ids.iter().flat_map(|id| [call(id), chat(&["done"], &[])]).collect();
    let (api, model) = working("openai", "/v1", answers).await;
    for (n, id) in ids.iter().enumerate() {
        let run = ask(&api, "a", "look", json!({})).await;
        assert_eq!(response(&api, &run).await, "done");
        let body = &model.asked()[2 * n + 1].body;
        let messages = body["messages"].as_array().unwrap();
        let [.., made, result] = messages.as_slice() else { panic!("{body}") };
        assert_eq!((&made["tool_calls"][0]["id"], &result["tool_call_id"]), (&json!(id), &json!(id)));
    }
}

#[tokio::test]
async fn no_arguments_are_an_empty_object() {
    let bare = json!({"index": 0, "id": "b", "type": "function", "function": {"name": "files_list"}});
    let answers = vec![chat(&[], &[("a", "files_list", &[""])]), calling(&[bare]), chat(&["done"], &[])];
    let (api, _model) = working("openai", "/v1", answers).await;
    let run = ask(&api, "a", "look", json!({})).await;
    assert_eq!(response(&api, &run).await, "done");
    let events = log(&api, &run).await;
    let args: Vec<_> = of(&events, "tool.started").iter().map(|call| call["payload"]["args"].clone()).collect();
    assert_eq!((args, of(&events, "tool.failed").len()), (vec![json!({}), json!({})], 0));
}

#[tokio::test]
async fn a_character_in_two_halves_is_one_and_half_a_character_is_a_replacement() {
    let frame = |text: &str| format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n");
    let stop = format!("{}{DONE}", events(&[finished("stop")]));
    let (halves, lone) = (["a", "\\ud83d", "\\ude00", "z"], ["a", "\\ud83d", "", "z\\ude00 \\ud83d"]);
    let body = |pieces: [&str; 4]| pieces.map(frame).concat() + &stop;
    let answers = vec![
        stream_of("text/event-stream", body(halves)),
        stream_of("text/event-stream", format!("\u{feff}{}", body(lone))),
    ];
    let (api, _model) = working("openai", "/v1", answers).await;
    for expected in ["a\u{1f600}z", "a\u{fffd}z\u{fffd} \u{fffd}"] {
        let run = ask(&api, "a", "say", json!({})).await;
        assert_eq!(response(&api, &run).await, expected);
    }
}

#[tokio::test]
async fn a_reason_ends_an_answer_and_nothing_else_has_to() {
    let whole = [delta(&json!({"content": "whole"})), finished("stop")];
    let message = json!({"choices": [{"message": {"role": "assistant", "content": "whole"}, "finish_reason": "stop"}]});
    let answers = vec![
        sse(&whole, ""),
        Answer::Cut(events(&whole)),
        stream_of("text/event-stream", events(&whole).trim_end().to_owned()),
        sse(std::slice::from_ref(&message), DONE),
        stream_of("application/json", format!("{message:#}")),
    ];
    let count = answers.len();
    let (api, _model) = working("openai", "/v1", answers).await;
    for n in 0..count {
        let run = ask(&api, "a", "say", json!({})).await;
        assert_eq!(response(&api, &run).await, "whole", "{n}");
    }
}

#[tokio::test]
async fn an_answer_in_which_nothing_can_be_read_is_asked_for_again_and_then_told() {
    let page = || stream_of("text/html", "<html>a captive portal</html>".to_owned());
    let nothing = |n: u32| match n {
        0 => sse(&[], DONE),
        1 => sse(&[finished("tool_calls")], DONE),
        2 => sse(&[json!({"choices": [{"message": {}, "finish_reason": "stop"}]})], DONE),
        3 => sse(&[json!({"choices": []}), json!({"usage": {"prompt_tokens": 1}})], DONE),
        4 => page(),
        5 => calling(&[json!({"index": 0, "function": {"arguments": "{}"}})]),
        _ => stream_of("text/event-stream", String::new()),
    };
    let answers = (0..7).flat_map(|n| [nothing(n), chat(&["at last"], &[])]).chain([page()]).collect();
    let model = ModelServer::start(answers).await;
    let config = |retries: u32| {
        format!(
            "[models.m]\nmodel = \"openai:any\"\nbase_url = \"{}\"\nretries = {retries}\n[agents.a]\nmodel = \"m\"\n",
            model.base
        )
    };
    let api = setup().config(&config(1)).start().await;
    for n in 0..7 {
        let run = ask(&api, "a", "say", json!({})).await;
        assert_eq!(response(&api, &run).await, "at last", "{n}");
    }
    let api = setup().config(&config(0)).start().await;
    let run = ask(&api, "a", "say", json!({})).await;
    stands(&api, &run, "failed").await;
    let told = api.run(&run).await["error"].to_string();
    assert!(told.contains("text/html") && !told.contains("portal"), "{told}");
}
