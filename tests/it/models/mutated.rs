//! Streams of every format that mean the same in many ways, over real sockets: a model of their meaning decides what is
//! expected. `./just fuzz-models` sends 100 000 of each and measures; here are fewer, and nothing is measured.

mod written;

use std::{collections::BTreeSet, time::Instant};

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng, seq::SliceRandom as _};
use serde_json::{Value, json};

use self::written::written;
use super::{agent, ask, question, text_of};
use crate::support::models::{Answer, ModelServer};

/// How many streams of each format; and what they are made from.
const COUNT: &str = "RUNREEL_FUZZ_STREAMS";
const SEED: u64 = 28;
/// Streams for one server.
const BATCH: usize = 250;

const KINDS: [(&str, &str); 5] =
    [("openai", "/v1"), ("openai-responses", "/v1"), ("anthropic", "/v1"), ("gemini", "/v1beta"), ("ollama", "")];

/// What a stream says.
pub struct Meaning {
    /// The text in pieces, in UTF-16: characters may be cut in half.
    pub texts: Vec<Vec<u16>>,
    pub calls: Vec<Call>,
}

pub struct Call {
    pub id: Option<String>,
    pub args: Value,
}

/// A stream before it is sent.
pub struct Written {
    pub events: Vec<String>,
    /// The calls in the order in which they are expected.
    pub order: Vec<usize>,
    pub is_sse: bool,
}

fn meaning(rng: &mut StdRng) -> Meaning {
    let texts = (0..rng.random_range(0..5)).map(|_| units(rng)).collect();
    let count = if rng.random_ratio(1, 50) { 128 } else { rng.random_range(0..5) };
    let call = |n: usize, rng: &mut StdRng| Call {
        id: rng.random_bool(0.8).then(|| format!("functions.x:{n}")),
        args: json!({"n": n, "text": String::from_utf16_lossy(&units(rng))}),
    };
    Meaning { texts, calls: (0..count).map(|n| call(n, rng)).collect() }
}

fn units(rng: &mut StdRng) -> Vec<u16> {
    let unit = |rng: &mut StdRng| match rng.random_range(0..6) {
        0 => 0xD83D,
        1 => 0xDE00,
        2 => u16::from(b"\\\"u\n/{"[rng.random_range(0..6_usize)]),
        3 => rng.random(),
        _ => u16::from(rng.random_range(b'a'..=b'f')),
    };
    (0..rng.random_range(0..9)).map(|_| unit(rng)).collect()
}

/// Takes from a stream, or changes its order: whether it still means the same.
fn broken(rng: &mut StdRng, written: &mut Written) -> bool {
    let events = &mut written.events;
    match rng.random_range(0..12) {
        0 if !events.is_empty() => _ = events.remove(rng.random_range(0..events.len())),
        1 => events.shuffle(rng),
        2 if events.len() > 1 => {
            let at = rng.random_range(1..events.len());
            events.swap(at - 1, at);
        }
        _ => return false,
    }
    true
}

fn body(rng: &mut StdRng, written: &Written) -> Vec<u8> {
    let mut body = if rng.random_bool(0.2) { "\u{feff}".to_owned() } else { String::new() };
    let end = if rng.random_bool(0.3) { "\r\n" } else { "\n" };
    for event in &written.events {
        if written.is_sse {
            let before = [": still here\n\n", "event: x\n", "retry: 1\nid: 7\n", "data: ping\n\n", "", ""];
            body += before[rng.random_range(0..before.len())];
            body += ["data: ", "data:"][rng.random_range(0..2_usize)];
        }
        body += event;
        body += end;
        body += if written.is_sse { end } else { "" };
    }
    if rng.random_bool(0.2) {
        body.truncate(body.trim_end().len());
    }
    body.into_bytes()
}

fn pieces(rng: &mut StdRng, body: &[u8]) -> Vec<Vec<u8>> {
    let mut cuts: Vec<usize> = (0..rng.random_range(0..6)).map(|_| rng.random_range(0..=body.len())).collect();
    cuts.extend([0, body.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|cut| body[cut[0]..cut[1]].to_vec()).collect()
}

struct Sent {
    meaning: Meaning,
    order: Vec<usize>,
    is_whole: bool,
    body: Vec<u8>,
}

fn sent(rng: &mut StdRng, kind: &str) -> Sent {
    let meaning = meaning(rng);
    let mut written = written(rng, kind, &meaning);
    let is_broken = broken(rng, &mut written);
    let mut body = body(rng, &written);
    let is_cut = rng.random_ratio(1, 8);
    if is_cut {
        body.truncate(rng.random_range(0..=body.len()));
    }
    Sent { meaning, order: written.order, is_whole: !is_broken && !is_cut, body }
}

/// How long the slowest took, milliseconds.
async fn all_are_read_as_they_are_meant(kind: &str, path: &str, seed: u64, count: usize) -> u128 {
    let mut rng = StdRng::seed_from_u64(seed);
    let streams: Vec<Sent> = (0..count).map(|_| sent(&mut rng, kind)).collect();
    let answers = streams.iter().map(|sent| Answer::Pieces(pieces(&mut rng, &sent.body))).collect();
    let server = ModelServer::start(answers).await;
    let dir = tempfile::tempdir().unwrap();
    let agent = agent(dir.path(), &format!("{kind}:any"), &format!("{}{path}", server.base), "retries = 0").await;
    let (question, mut longest) = (question(), 0);
    for sent in &streams {
        let began = Instant::now();
        let (answer, told) = ask(&agent, &question).await;
        longest = longest.max(began.elapsed().as_millis());
        let shown = || format!("{kind}, seed {seed}: {}", String::from_utf8_lossy(&sent.body));
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                assert!(!sent.is_whole, "{error}: {}", shown());
                continue;
            }
        };
        let calls = &answer.message.tool_calls;
        let ids: BTreeSet<_> = calls.iter().map(|call| &call.id).collect();
        assert_eq!(ids.len(), calls.len(), "{}", shown());
        assert_eq!(text_of(&told), answer.message.text(), "{}", shown());
        let read: Vec<&Value> = calls.iter().map(|call| &call.args).collect();
        if sent.is_whole {
            let expected: Vec<&Value> = sent.order.iter().map(|at| &sent.meaning.calls[*at].args).collect();
            assert_eq!(read, expected, "{}", shown());
            assert_eq!(answer.message.text(), String::from_utf16_lossy(&sent.meaning.texts.concat()), "{}", shown());
        } else {
            // Pieces in another order may make another number of two digits.
            let is_told_apart = sent.meaning.calls.len() < 10;
            let numbers: Vec<i64> = read.iter().filter_map(|args| args["n"].as_i64()).collect();
            let different = numbers.iter().collect::<BTreeSet<_>>().len();
            assert!(different == numbers.len() || !is_told_apart, "twice: {}", shown());
            assert!(calls.len() <= sent.meaning.calls.len(), "more than were made: {}", shown());
        }
    }
    longest
}

/// The most memory that this process had, KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0");
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn a_stream_is_read_as_it_is_meant_however_it_is_written_and_cut() {
    let count: usize = std::env::var(COUNT).map_or(500, |count| count.parse().unwrap());
    for (kind, path) in KINDS {
        let (began, mut before, mut longest) = (Instant::now(), 0, 0);
        for batch in 0..count.div_ceil(BATCH) {
            let seed = SEED + u64::try_from(batch).unwrap();
            longest = longest.max(all_are_read_as_they_are_meant(kind, path, seed, BATCH).await);
            if batch == 0 {
                before = peak_kib();
            }
        }
        let (took, grown) = (began.elapsed().as_secs(), peak_kib().saturating_sub(before));
        eprintln!("{kind}: {count} streams in {took} s, the slowest {longest} ms, {grown} KiB more memory");
    }
}
