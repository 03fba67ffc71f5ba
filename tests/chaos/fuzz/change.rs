//! Valid inputs, changed at random.

use rand::{RngExt as _, rngs::StdRng, seq::IndexedRandom as _};

/// What programs stumble over.
const PIECES: &[&[u8]] = &[
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\n",
    b"\r\n",
    b"\0",
    b"\xff",
    b"\xc0\xaf",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"null",
    b"true",
    b"{}",
    b"[]",
    b"\"\"",
    b"-0",
    b"-1",
    b"1e999",
    b"0.1e-400",
    b"2147483648",
    b"9223372036854775807",
    b"9223372036854775808",
    b"18446744073709551616",
    b"\\u0000",
    b"\\ud800",
    b"%00",
    b"%2e%2e",
    b"../",
    b".",
    b"..",
    b"~",
    b"=",
    b"==",
    b"__proto__",
    b"stream.end",
    b"run.started",
    b"message.delta",
];
/// Times a piece is repeated, at most: deeper than a parser follows, longer than a name may be.
const REPEATS_MAX: usize = 3_000;

/// One of the inputs with up to five changes; now and then none.
pub(super) fn changed(rng: &mut StdRng, inputs: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = inputs.choose(rng).cloned().unwrap_or_default();
    for _ in 0..rng.random_range(0..6) {
        change(rng, &mut bytes, inputs);
    }
    bytes
}

fn change(rng: &mut StdRng, bytes: &mut Vec<u8>, inputs: &[Vec<u8>]) {
    let at = rng.random_range(0..=bytes.len());
    let until = rng.random_range(at..=bytes.len().min(at + 40));
    match rng.random_range(0..8) {
        0 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << rng.random_range(0..8);
            }
        }
        1 => _ = bytes.drain(at..until),
        2 => {
            let part = bytes[at..until].to_vec();
            bytes.splice(at..at, part);
        }
        3 => bytes.truncate(at),
        4 => {
            let other = inputs.choose(rng).map(Vec::as_slice).unwrap_or_default();
            let from = rng.random_range(0..=other.len());
            bytes.splice(at..until, other[from..].iter().take(200).copied());
        }
        5 => {
            let piece = PIECES.choose(rng).copied().unwrap_or_default();
            let times = if rng.random_bool(0.05) { rng.random_range(1..REPEATS_MAX) } else { 1 };
            bytes.splice(at..at, piece.repeat(times));
        }
        6 => {
            let piece = PIECES.choose(rng).copied().unwrap_or_default();
            bytes.splice(at..until, piece.iter().copied());
        }
        _ => {
            // A number becomes another one.
            let Some(digit) = bytes.iter().skip(at).position(u8::is_ascii_digit).map(|offset| at + offset) else {
                return;
            };
            let length = bytes[digit..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            let number =
                [0, 1, 255, 256, 65_536, u64::from(u32::MAX), u64::MAX].choose(rng).copied().unwrap_or_default();
            bytes.splice(digit..digit + length, number.to_string().into_bytes());
        }
    }
}
