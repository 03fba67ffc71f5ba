//! A meaning in the words of a format, with the liberties that gateways take.

use std::fmt::Write as _;

use rand::{RngExt as _, rngs::StdRng, seq::SliceRandom as _};
use serde_json::json;

use super::{Meaning, Written};

/// A JSON string; halves of characters, and whatever else, as escapes.
fn quoted(rng: &mut StdRng, units: &[u16]) -> String {
    let mut out = String::from("\"");
    for unit in char::decode_utf16(units.iter().copied()) {
        match unit {
            Ok(c) if !c.is_control() && !matches!(c, '"' | '\\') && rng.random_bool(0.8) => out.push(c),
            Ok(c) => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| write!(out, "\\u{unit:04x}").unwrap()),
            Err(half) => write!(out, "\\u{:04X}", half.unpaired_surrogate()).unwrap(),
        }
    }
    out + "\""
}

/// A text in pieces, each a JSON string.
fn in_pieces(rng: &mut StdRng, text: &str) -> Vec<String> {
    let units: Vec<u16> = text.encode_utf16().collect();
    let mut cuts: Vec<usize> = (0..rng.random_range(0..4)).map(|_| rng.random_range(0..=units.len())).collect();
    cuts.extend([0, units.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|cut| quoted(rng, &units[cut[0]..cut[1]])).collect()
}

/// Members that nobody reads before those that count; the last of those that repeat counts.
fn noisy(rng: &mut StdRng, event: &str, repeated: &str) -> String {
    let deep = format!("\"deep\":{}{},", "[".repeat(300), "]".repeat(300));
    let noise = ["\"n\":1e999,", "\"\\ud800\":null,", "\"x\":{\"choices\":[1]}, ", &deep, repeated, "", "", "", "", ""];
    let noise = noise[rng.random_range(0..noise.len())];
    event.strip_prefix('{').map_or_else(|| event.to_owned(), |rest| format!("{{{noise}{rest}"))
}

/// Distinct numbers in some order, small or huge, and how they are written.
fn numbers(rng: &mut StdRng, count: usize) -> Vec<u64> {
    let base: u64 = [0, 1, 127, 128, 4_294_967_290, 9_007_199_254_740_000][rng.random_range(0..6_usize)];
    let step = rng.random_range(1..5);
    let mut numbers: Vec<u64> = (base..).step_by(step).take(count).collect();
    numbers.shuffle(rng);
    numbers
}

fn number(rng: &mut StdRng, number: u64) -> String {
    match rng.random_range(0..8) {
        0 => format!("{number}.0"),
        1 => format!("\"{number}\""),
        _ => number.to_string(),
    }
}

/// Queues one after the other, or each in its order between those of the others.
fn merged(rng: &mut StdRng, mut queues: Vec<Vec<String>>, are_mixed: bool) -> Vec<String> {
    if !are_mixed {
        return queues.concat();
    }
    for queue in &mut queues {
        queue.reverse();
    }
    let mut merged = Vec::new();
    while !queues.is_empty() {
        let at = rng.random_range(0..queues.len());
        match queues[at].pop() {
            Some(event) => merged.push(event),
            None => _ = queues.remove(at),
        }
    }
    merged
}

fn by(numbers: &[u64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    order.sort_by_key(|at| numbers[*at]);
    order
}

pub fn written(rng: &mut StdRng, kind: &str, meaning: &Meaning) -> Written {
    let count = meaning.calls.len();
    let texts: Vec<String> = meaning.texts.iter().map(|units| quoted(rng, units)).collect();
    match kind {
        "openai" => openai(rng, meaning, texts),
        "openai-responses" => responses(rng, meaning, texts),
        "anthropic" => anthropic(rng, meaning, texts),
        "gemini" => {
            let chunk = |part: String| format!("{{\"candidates\":[{{\"content\":{{\"parts\":[{part}]}}}}]}}");
            let mut events: Vec<String> = texts.into_iter().map(|text| chunk(format!("{{\"text\":{text}}}"))).collect();
            let call = |call: &super::Call| {
                chunk(json!({"functionCall": {"id": call.id, "name": "f", "args": call.args}}).to_string())
            };
            events.extend(meaning.calls.iter().map(call));
            events
                .push("{\"candidates\":[{\"content\":{},\"finishReason\":\"STOP\"}],\"usageMetadata\":{}}".to_owned());
            let events = events.iter().map(|event| noisy(rng, event, "\"candidates\":[],")).collect();
            Written { events, order: (0..count).collect(), is_sse: true }
        }
        _ => {
            let line = |message: String| format!("{{\"message\":{message},\"done\":false}}");
            let mut events: Vec<String> =
                texts.into_iter().map(|text| line(format!("{{\"content\":{text}}}"))).collect();
            let call = |call: &super::Call| {
                let function = json!({"index": 0, "name": "f", "arguments": call.args});
                line(json!({"tool_calls": [{"id": call.id, "function": function}]}).to_string())
            };
            events.extend(meaning.calls.iter().map(call));
            events.push("{\"message\":{},\"done\":true,\"done_reason\":\"stop\",\"eval_count\":1e400}".to_owned());
            let events = events.iter().map(|event| noisy(rng, event, "\"message\":{\"content\":\"no\"},")).collect();
            Written { events, order: (0..count).collect(), is_sse: false }
        }
    }
}

fn openai(rng: &mut StdRng, meaning: &Meaning, texts: Vec<String>) -> Written {
    let delta = |delta: String| format!("{{\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}");
    let mut events: Vec<String> = texts.into_iter().map(|text| delta(format!("{{\"content\":{text}}}"))).collect();
    let numbers = numbers(rng, meaning.calls.len());
    // With numbers that tell the calls apart; with the same number for all; with none.
    let scheme = rng.random_range(0..4);
    let queue = |(n, call): (usize, &super::Call), rng: &mut StdRng| {
        let index = match scheme {
            0 => "\"index\":0,".to_owned(),
            1 => ["", "\"index\":-1,", "\"index\":null,"][rng.random_range(0..3_usize)].to_owned(),
            _ => format!("\"index\":{},", number(rng, numbers[n])),
        };
        // Numbers that do not tell calls apart need ids that do.
        let id = call.id.clone().or_else(|| (scheme < 2).then(|| format!("id{n}")));
        let id = id.map_or_else(String::new, |id| format!("\"id\":\"{id}\","));
        let pieces = in_pieces(rng, &call.args.to_string());
        let call = |(at, args): (usize, String)| {
            let (id, name) = if at == 0 { (id.as_str(), "\"name\":\"f\",") } else { ("", "") };
            delta(format!("{{\"tool_calls\":[{{{index}{id}\"function\":{{{name}\"arguments\":{args}}}}}]}}"))
        };
        pieces.into_iter().enumerate().map(call).collect()
    };
    let queues = meaning.calls.iter().enumerate().map(|call| queue(call, rng)).collect();
    let are_mixed = scheme > 1 && rng.random_bool(0.5);
    events.extend(merged(rng, queues, are_mixed));
    let reason = if meaning.calls.is_empty() { "stop" } else { "tool_calls" };
    events.push(format!("{{\"choices\":[{{\"delta\":{{}},\"finish_reason\":\"{reason}\"}}]}}"));
    let mut events: Vec<String> = events.iter().map(|event| noisy(rng, event, "\"choices\":[],")).collect();
    if rng.random_bool(0.7) {
        events.push("[DONE]".to_owned());
    }
    let order = if scheme < 2 { (0..meaning.calls.len()).collect() } else { by(&numbers) };
    Written { events, order, is_sse: true }
}

fn responses(rng: &mut StdRng, meaning: &Meaning, texts: Vec<String>) -> Written {
    let text = |text| format!("{{\"type\":\"response.output_text.delta\",\"delta\":{text}}}");
    let mut events: Vec<String> = texts.into_iter().map(text).collect();
    let numbers = numbers(rng, meaning.calls.len());
    let scheme = rng.random_range(0..4);
    let queue = |(n, call): (usize, &super::Call), rng: &mut StdRng| {
        let id = call.id.clone().unwrap_or_else(|| format!("id{n}"));
        // Items tell calls apart, or numbers do (items are by chance, or others in each event), or both.
        let index = if scheme == 0 { "0".to_owned() } else { number(rng, numbers[n]) };
        let random = rng.random::<u32>();
        let mut events = 0;
        let mut item = || {
            events += 1;
            match scheme {
                1 => format!("random{random}"),
                2 => format!("random{random}-{events}"),
                _ => format!("item{n}"),
            }
        };
        let head = |item: String, args: &str| {
            format!(
                "\"output_index\":{index},\"item\":{{\"type\":\"function_call\",\"id\":\"{item}\",\"call_id\":\"{id}\",\"name\":\"f\",\"arguments\":{args}}}}}"
            )
        };
        let mut queue = vec![format!("{{\"type\":\"response.output_item.added\",{}", head(item(), "\"\""))];
        let args = call.args.to_string();
        for piece in in_pieces(rng, &args) {
            let item = item();
            queue.push(format!("{{\"type\":\"response.function_call_arguments.delta\",\"output_index\":{index},\"item_id\":\"{item}\",\"delta\":{piece}}}"));
        }
        let whole = json!(args).to_string();
        if rng.random_bool(0.5) {
            let item = item();
            queue.push(format!("{{\"type\":\"response.function_call_arguments.done\",\"output_index\":{index},\"item_id\":\"{item}\",\"arguments\":{whole}}}"));
        }
        if rng.random_bool(0.5) {
            queue.push(format!("{{\"type\":\"response.output_item.done\",{}", head(item(), &whole)));
        }
        queue
    };
    let queues = meaning.calls.iter().enumerate().map(|call| queue(call, rng)).collect();
    let are_mixed = rng.random_bool(0.5);
    events.extend(merged(rng, queues, are_mixed));
    events.push("{\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"output\":[]}}".to_owned());
    let events: Vec<String> = events.iter().map(|event| noisy(rng, event, "\"type\":\"ping\",")).collect();
    // Calls that share a number are expected in the order of their first pieces.
    let first = |n: usize| {
        let id = meaning.calls[n].id.clone().unwrap_or_else(|| format!("id{n}"));
        events.iter().position(|event| event.contains(&format!("\"call_id\":\"{id}\"")))
    };
    let mut order: Vec<usize> = (0..meaning.calls.len()).collect();
    order.sort_by_key(|n| first(*n));
    let order = if scheme == 0 { order } else { by(&numbers) };
    Written { events, order, is_sse: true }
}

fn anthropic(rng: &mut StdRng, meaning: &Meaning, texts: Vec<String>) -> Written {
    let mut events = vec!["{\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":7}}}".to_owned()];
    let text = |text| {
        format!(
            "{{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":{text}}}}}"
        )
    };
    events.extend(texts.into_iter().map(text));
    let numbers = numbers(rng, meaning.calls.len());
    let is_numbered = rng.random_bool(0.7);
    let queue = |(n, call): (usize, &super::Call), rng: &mut StdRng| {
        let id = call.id.clone().unwrap_or_else(|| format!("id{n}"));
        let index = if is_numbered { number(rng, numbers[n]) } else { "0".to_owned() };
        let is_announced = rng.random_bool(0.2);
        let input = if is_announced { call.args.to_string() } else { "{}".to_owned() };
        let begun = format!("{{\"type\":\"tool_use\",\"id\":\"{id}\",\"name\":\"f\",\"input\":{input}}}");
        let mut queue =
            vec![format!("{{\"type\":\"content_block_start\",\"index\":{index},\"content_block\":{begun}}}")];
        for piece in in_pieces(rng, &call.args.to_string()).into_iter().filter(|_| !is_announced) {
            queue.push(format!("{{\"type\":\"content_block_delta\",\"index\":{index},\"delta\":{{\"type\":\"input_json_delta\",\"partial_json\":{piece}}}}}"));
        }
        queue.push(format!("{{\"type\":\"content_block_stop\",\"index\":{index}}}"));
        queue
    };
    let queues = meaning.calls.iter().enumerate().map(|call| queue(call, rng)).collect();
    let are_mixed = is_numbered && rng.random_bool(0.5);
    events.extend(merged(rng, queues, are_mixed));
    let reason = if meaning.calls.is_empty() { "end_turn" } else { "tool_use" };
    events.push(format!(
        "{{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"{reason}\"}},\"usage\":{{\"output_tokens\":3}}}}"
    ));
    events.push("{\"type\":\"message_stop\"}".to_owned());
    let events = events.iter().map(|event| noisy(rng, event, "\"type\":\"ping\",")).collect();
    let order = if is_numbered { by(&numbers) } else { (0..meaning.calls.len()).collect() };
    Written { events, order, is_sse: true }
}
