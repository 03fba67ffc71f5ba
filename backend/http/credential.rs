//! Keeps credentials out of what a request stores: the request's own, and any JWT that this server would accept.

use axum::http::{HeaderMap, header};
use memchr::memmem;

use super::{
    Server,
    problem::{Code, Problem},
};
use crate::{auth::Authenticator, domain::limits::JWT_BYTES_MAX};

/// A shorter one could be any word.
const CREDENTIAL_BYTES_MIN: usize = 20;
/// The longest JWT as spelled in JSON, where an escape has six characters.
const SPELLED_BYTES_MAX: usize = 6 * JWT_BYTES_MAX;

/// Searches for credentials. It has no `Debug` on purpose.
#[derive(Clone)]
pub(super) struct CredentialGuard {
    /// The first four fifths of the request's own credential: without its end it is as good as the whole.
    own: Option<Box<[u8]>>,
    authenticator: Authenticator,
}

impl CredentialGuard {
    pub(super) fn of(headers: &HeaderMap, server: &Server) -> Self {
        Self { own: own(headers), authenticator: server.authenticator.clone() }
    }

    /// Whether these bytes contain a credential.
    pub(super) fn finds(&self, bytes: &[u8]) -> bool {
        self.finds_own(bytes) || self.authenticator.finds_jwt(bytes)
    }

    /// Rejects bytes that contain a credential.
    pub(super) fn check(&self, bytes: &[u8]) -> Result<(), Problem> {
        if self.finds(bytes) { Err(refusal()) } else { Ok(()) }
    }

    /// Rejects JSON that contains a credential, however it is spelled.
    pub(super) fn check_json(&self, json: &[u8]) -> Result<(), Problem> {
        let has_nothing_to_find = self.own.is_none() && self.authenticator.is_off();
        if !has_nothing_to_find && is_spelled_in(json, |text| self.finds(text)) { Err(refusal()) } else { Ok(()) }
    }

    /// Like [`CredentialGuard::check_json`], for the request's own credential alone.
    pub(super) fn check_own(&self, json: &[u8]) -> Result<(), Problem> {
        if is_spelled_in(json, |text| self.finds_own(text)) { Err(refusal()) } else { Ok(()) }
    }

    fn finds_own(&self, bytes: &[u8]) -> bool {
        self.own.as_ref().is_some_and(|own| memmem::find(bytes, own).is_some())
    }
}

fn is_spelled_in(json: &[u8], finds: impl Fn(&[u8]) -> bool) -> bool {
    finds(json) || (memchr::memchr(b'\\', json).is_some() && finds(&unescaped(json)))
}

fn own(headers: &HeaderMap) -> Option<Box<[u8]>> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let credential = value.splitn(2, |byte| *byte == b' ').nth(1)?.trim_ascii();
    let part = &credential[..credential.len() * 4 / 5];
    (part.len() >= CREDENTIAL_BYTES_MIN).then(|| Box::from(part))
}

fn refusal() -> Problem {
    Problem::new(Code::CredentialInBody, "the body holds a credential: the request's own, or a JWT of this server")
        .hint("leave it out: what is stored is there for others to read. Nothing of this request was stored")
}

/// Searches for credentials in bytes that arrive in pieces, plain or as spelled in JSON.
pub(super) struct Scan {
    guard: CredentialGuard,
    /// Bytes not searched yet, after the last of those searched, where a credential may begin.
    pending: Vec<u8>,
}

impl Scan {
    pub(super) fn new(guard: CredentialGuard) -> Self {
        Self { guard, pending: Vec::new() }
    }

    /// Takes a piece of any size. A credential is rejected with this piece or a later one.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        self.pending.extend_from_slice(bytes);
        if self.pending.len() < 2 * SPELLED_BYTES_MAX { Ok(()) } else { self.finish() }
    }

    /// Searches everything received so far.
    pub(super) fn finish(&mut self) -> Result<(), Problem> {
        self.guard.check_json(&self.pending)?;
        self.pending.drain(..self.pending.len().saturating_sub(SPELLED_BYTES_MAX));
        Ok(())
    }
}

/// JSON text with the escapes of ASCII characters decoded. Only for searching.
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

    #[test]
    fn escapes_of_ascii_are_taken_back_and_nothing_else_is() {
        for (json, text) in [
            (r"eyJ\u002ee30\u002Ea-b_c", "eyJ.e30.a-b_c"),
            (r#"{"e\u0079J":"\/"}"#, r#"{"eyJ":"/"}"#),
            (r"\u00e9\", "u00e9"),
            (r"\u002", "u002"),
        ] {
            assert_eq!(unescaped(json.as_bytes()), text.as_bytes(), "{json}");
        }
    }

    #[test]
    fn a_short_word_is_no_credential() {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, "Bearer dev".parse().unwrap());
        assert!(own(&headers).is_none());
        headers.insert(header::AUTHORIZATION, format!("Bearer {}", "x".repeat(25)).parse().unwrap());
        assert_eq!(own(&headers).unwrap().len(), 20);
    }
}
