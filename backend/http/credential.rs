//! What a request proves itself with must not end up in what it leaves behind.

use axum::http::{HeaderMap, header};
use memchr::memmem;

use super::problem::{Code, Problem};

/// Shorter ones could be any word.
const CREDENTIAL_BYTES_MIN: usize = 20;

/// The bearer credential of a request. It has no `Debug` on purpose.
#[derive(Clone)]
pub(super) struct Credential(Box<[u8]>);

impl Credential {
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get(header::AUTHORIZATION)?.as_bytes();
        let credential = value.splitn(2, |byte| *byte == b' ').nth(1)?.trim_ascii();
        // The greater part is looked for: a credential without its last letters is as good as the whole.
        let part = &credential[..credential.len() * 4 / 5];
        (part.len() >= CREDENTIAL_BYTES_MIN).then(|| Self(Box::from(part)))
    }

    /// Whether these bytes hold the credential.
    pub(super) fn is_in(&self, bytes: &[u8]) -> bool {
        memmem::find(bytes, &self.0).is_some()
    }

    /// Whether this JSON holds the credential, in whatever way it is spelled.
    pub(super) fn is_spelled_in(&self, json: &[u8]) -> bool {
        self.is_in(json) || (memchr::memchr(b'\\', json).is_some() && self.is_in(&unescaped(json)))
    }

    pub(super) fn refusal() -> Problem {
        Problem::new(Code::CredentialInBody, "the body holds the credential the request was sent with")
            .hint("leave it out: what is stored is there for others to read. Nothing of this request was stored")
    }
}

/// Looks for a credential in bytes that come piece by piece, plain or as JSON spells it.
pub(super) struct Scan {
    credential: Credential,
    /// The end of what has passed: the credential may have begun there.
    tail: Vec<u8>,
}

impl Scan {
    pub(super) fn new(credential: Credential) -> Self {
        Self { credential, tail: Vec::new() }
    }

    pub(super) fn finds(&mut self, bytes: &[u8]) -> bool {
        // An escape is six letters long.
        let overlap = self.credential.0.len() * 6;
        self.tail.extend_from_slice(&bytes[..bytes.len().min(overlap)]);
        let found = self.credential.is_spelled_in(&self.tail) || self.credential.is_spelled_in(bytes);
        if bytes.len() >= overlap {
            self.tail.clear();
            self.tail.extend_from_slice(&bytes[bytes.len() - overlap..]);
        } else {
            self.tail.drain(..self.tail.len().saturating_sub(overlap));
        }
        found
    }
}

/// JSON text with the escapes of ASCII characters taken back. It is only for looking into.
fn unescaped(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        let escape = &rest[at + 1..];
        let hex = escape.get(1..5).and_then(|hex| std::str::from_utf8(hex).ok());
        let ascii = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(u8::is_ascii);
        let used = match (escape.first(), ascii) {
            (Some(b'u'), Some(byte)) => {
                out.push(byte);
                5
            }
            (Some(byte), _) => {
                out.push(*byte);
                1
            }
            (None, _) => 0,
        };
        rest = &escape[used..];
    }
    out.extend_from_slice(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(text: &str) -> Credential {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, format!("Bearer {text}").parse().unwrap());
        Credential::of(&headers).unwrap()
    }

    #[test]
    fn a_credential_is_found_in_every_spelling() {
        let credential = credential("eyJhbGciOiJIUzI1NiJ9.e30.a-b_c");
        for json in [
            r#"{"a":"eyJhbGciOiJIUzI1NiJ9.e30.a-b_c"}"#,
            r#"{"a":["x eyJhbGciOiJIUzI1NiJ9\u002ee30\u002Ea-b_c y"]}"#,
            r#"{"eyJhbGciOiJIUzI1NiJ9.e3\u0030.a-b_c":1}"#,
        ] {
            assert!(credential.is_spelled_in(json.as_bytes()), "{json}");
        }
        for json in [r#"{"a":"eyJhbGciOiJIUzI1N"}"#, r#"{"a":"\u002"}"#, "\\", r#"{"a":"\u00e9\\"}"#] {
            assert!(!credential.is_spelled_in(json.as_bytes()), "{json}");
        }
    }

    #[test]
    fn a_credential_is_found_across_pieces_of_any_size() {
        let plain = "before eyJhbGciOiJIUzI1NiJ9.e30.a-b_c after".to_owned();
        let spelled = plain.replace("NiJ9", "\\u004eiJ\\u0039").replace(".e30", "\\u002ee30");
        for (text, size) in
            [&plain, &spelled].into_iter().flat_map(|text| (1..text.len()).map(move |size| (text, size)))
        {
            let text = text.as_bytes();
            let mut scan = Scan::new(credential("eyJhbGciOiJIUzI1NiJ9.e30.a-b_c"));
            assert!(text.chunks(size).any(|piece| scan.finds(piece)), "{size}");
            let mut scan = Scan::new(credential("eyJhbGciOiJIUzI1NiJ9.e30.a-b_d.another"));
            assert!(!text.chunks(size).any(|piece| scan.finds(piece)), "{size}");
        }
    }

    #[test]
    fn a_short_word_is_no_credential() {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, "Bearer dev".parse().unwrap());
        assert!(Credential::of(&headers).is_none());
    }
}
