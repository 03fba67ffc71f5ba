//! JSON Web Tokens (RFC 7519), signed with HS256.

use std::{collections::HashSet, fmt};

use chrono::{DateTime, TimeDelta, Utc};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, crypto, decode, decode_header};
use memchr::memmem::Finder;
use serde::Deserialize;

use super::Error;
use crate::domain::limits::{BODY_JWTS_MAX, JWT_BYTES_MAX, JWT_LEEWAY_S};

/// The beginning of every JWT header: `{"` in base64.
const OPENING: &[u8] = b"eyJ";
/// Characters of an HS256 signature: 32 bytes in base64.
const SIGNATURE_CHARS: usize = 43;
/// Longest subject or issuer, bytes.
const CLAIM_BYTES_MAX: usize = 1024;

/// The key and the claims a token must have.
pub struct JwtRules {
    key: DecodingKey,
    issuer: Option<String>,
    audience: Option<String>,
}

impl fmt::Debug for JwtRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtRules")
            .field("issuer", &self.issuer)
            .field("audience", &self.audience)
            .finish_non_exhaustive()
    }
}

/// The claims of a valid token that are used.
pub(super) struct Claims {
    pub(super) issuer: String,
    pub(super) subject: String,
    pub(super) expires_at: DateTime<Utc>,
}

/// Typed, so that a string in place of a number is rejected rather than converted.
#[derive(Deserialize)]
struct Body {
    sub: String,
    exp: u64,
    nbf: Option<u64>,
    iss: Option<String>,
}

impl JwtRules {
    /// Rules for HS256 with this secret. The key determines the algorithm, never the token's own header.
    pub fn hs256(secret: &[u8], issuer: Option<String>, audience: Option<String>) -> Self {
        Self { key: DecodingKey::from_secret(secret), issuer, audience }
    }

    pub(super) fn verify(&self, token: &str, now: DateTime<Utc>) -> Result<Claims, Error> {
        const NOT_VALID: Error = Error::Invalid("the token is not a valid JWT of this server");
        if token.len() > JWT_BYTES_MAX {
            return Err(NOT_VALID);
        }
        // Extensions listed as critical must be understood (RFC 7515, 4.1.11), and none is supported.
        if decode_header(token).map_err(|_| NOT_VALID)?.crit.is_some() {
            return Err(Error::Invalid("the token's header names extensions that this server does not support"));
        }
        let body = decode::<Body>(token, &self.key, &self.validation()).map_err(|_| NOT_VALID)?.claims;
        // Times are checked against the server's clock, which tests can move.
        let leeway = TimeDelta::seconds(i64::try_from(JWT_LEEWAY_S).unwrap_or(0));
        let moment = |seconds: u64| i64::try_from(seconds).ok().and_then(|s| DateTime::from_timestamp(s, 0));
        let expires_at = moment(body.exp).ok_or(NOT_VALID)?;
        if expires_at.checked_add_signed(leeway).ok_or(NOT_VALID)? <= now {
            return Err(Error::Invalid("the token has expired"));
        }
        if body.nbf.is_some_and(|nbf| moment(nbf).is_none_or(|nbf| nbf > now + leeway)) {
            return Err(Error::Invalid("the token is not valid yet"));
        }
        let issuer = body.iss.unwrap_or_default();
        if body.sub.is_empty() || body.sub.len() > CLAIM_BYTES_MAX || issuer.len() > CLAIM_BYTES_MAX {
            return Err(NOT_VALID);
        }
        // A stream may last as long as a request would still be accepted.
        Ok(Claims { issuer, subject: body.sub, expires_at: expires_at + leeway })
    }

    /// Whether these bytes contain a token signed with this key, regardless of its claims, or more texts that look like
    /// a token than are verified.
    pub(super) fn signed_one_in(&self, bytes: &[u8]) -> bool {
        let mut seen = HashSet::new();
        tokens_in(bytes).any(|token @ (signed, signature)| {
            let is_good = || crypto::verify(signature, signed, &self.key, Algorithm::HS256).unwrap_or(false);
            seen.insert(token) && (seen.len() > BODY_JWTS_MAX || is_good())
        })
    }

    fn validation(&self) -> Validation {
        let mut validation = Validation::new(Algorithm::HS256);
        let mut required = vec!["exp", "sub"];
        (validation.validate_exp, validation.validate_nbf) = (false, false);
        if let Some(issuer) = &self.issuer {
            validation.set_issuer(&[issuer]);
            required.push("iss");
        }
        if let Some(audience) = &self.audience {
            validation.set_audience(&[audience]);
            required.push("aud");
        } else {
            validation.validate_aud = false;
        }
        validation.set_required_spec_claims(&required);
        validation
    }
}

/// Texts that look like an HS256 token: the signed part and the signature. Reads each byte at most three times.
fn tokens_in(bytes: &[u8]) -> impl Iterator<Item = (&[u8], &str)> {
    let opening = Finder::new(OPENING);
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    // The end of the letters from here on, if a dot follows them.
    let dot = move |from: usize| {
        let end = from + bytes[from..].iter().position(|byte| !is_letter(byte))?;
        (bytes[end] == b'.').then_some(end)
    };
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let start = from + opening.find(&bytes[from..])?;
            let header = start + bytes[start..].iter().take_while(|byte| is_letter(byte)).count();
            from = header;
            let Some(payload) = dot(header).and_then(|end| dot(end + 1)) else { continue };
            let Some(signature) = bytes.get(payload + 1..payload + 1 + SIGNATURE_CHARS) else { continue };
            if payload - start < JWT_BYTES_MAX && signature.iter().all(is_letter) {
                return Some((&bytes[start..payload], std::str::from_utf8(signature).ok()?));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{EncodingKey, Header, encode};
    use serde_json::{Value, json};

    use super::*;

    const SECRET: &[u8] = b"a secret of at least thirty-two bytes";
    const NOW: i64 = 1_800_000_000;

    fn check(claims: &Value, algorithm: Algorithm, secret: &[u8], rules: &JwtRules) -> Result<String, String> {
        let token = encode(&Header::new(algorithm), claims, &EncodingKey::from_secret(secret)).unwrap();
        let now = DateTime::from_timestamp(NOW, 0).unwrap();
        rules.verify(&token, now).map(|claims| claims.subject).map_err(|error| error.to_string())
    }

    fn hs(claims: &Value) -> Result<String, String> {
        check(claims, Algorithm::HS256, SECRET, &JwtRules::hs256(SECRET, None, None))
    }

    #[test]
    fn a_valid_token_names_its_subject() {
        assert_eq!(hs(&json!({"sub": "alice", "exp": NOW + 60})), Ok("alice".to_owned()));
        assert_eq!(hs(&json!({"sub": "alice", "exp": NOW - 3, "aud": "x"})), Ok("alice".to_owned()));
    }

    #[test]
    fn missing_mistyped_and_expired_claims_are_refused() {
        for claims in [
            json!({"exp": NOW + 60}),
            json!({"sub": "", "exp": NOW + 60}),
            json!({"sub": 7, "exp": NOW + 60}),
            json!({"sub": "a"}),
            json!({"sub": "a", "exp": (NOW + 60).to_string()}),
            json!({"sub": "a", "exp": -1}),
            json!({"sub": "a", "exp": NOW - 31}),
            json!({"sub": "a", "exp": 8_210_266_876_799_u64}),
            json!({"sub": "a", "exp": u64::MAX}),
            json!({"sub": "a", "exp": NOW + 60, "nbf": 8_210_266_876_799_u64}),
            json!({"sub": "a", "exp": NOW + 60, "nbf": NOW + 31}),
            json!({"sub": "a".repeat(2000), "exp": NOW + 60}),
        ] {
            assert!(hs(&claims).is_err(), "{claims}");
        }
    }

    #[test]
    fn the_key_chooses_the_algorithm_and_another_key_opens_nothing() {
        let (claims, rules) = (json!({"sub": "a", "exp": NOW + 60}), JwtRules::hs256(SECRET, None, None));
        assert!(check(&claims, Algorithm::HS512, SECRET, &rules).is_err());
        assert!(check(&claims, Algorithm::HS256, b"another", &rules).is_err());
        let none = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIiwiZXhwIjo5OTk5OTk5OTk5fQ.";
        assert!(rules.verify(none, DateTime::UNIX_EPOCH).is_err());
    }

    #[test]
    fn a_header_that_calls_something_critical_is_refused() {
        let rules = JwtRules::hs256(SECRET, None, None);
        for names in [vec![], vec!["b64"], vec!["exp"], vec!["urn:example:unknown"]] {
            let crit = Some(names.into_iter().map(str::to_owned).collect());
            let header = Header { crit, ..Header::new(Algorithm::HS256) };
            let claims = json!({"sub": "a", "exp": NOW + 60});
            let token = encode(&header, &claims, &EncodingKey::from_secret(SECRET)).unwrap();
            assert!(rules.verify(&token, DateTime::from_timestamp(NOW, 0).unwrap()).is_err(), "{token}");
        }
    }

    #[test]
    fn a_token_of_this_key_is_found_wherever_it_stands_and_another_is_not() {
        let rules = JwtRules::hs256(SECRET, Some("https://id".to_owned()), None);
        let token = |secret: &[u8], n: usize| {
            encode(&Header::default(), &json!({"sub": "a", "n": n, "exp": 7}), &EncodingKey::from_secret(secret))
                .unwrap()
        };
        let (own, other) = (token(SECRET, 1), token(b"another", 1));
        for (before, after) in
            [("", ""), ("\"", "\""), ("Bearer ", "."), ("eyJx.", "_x"), ("eyJ.eyJ.", ".y"), (&other, " ")]
        {
            assert!(rules.signed_one_in(format!("{before}{own}{after}").as_bytes()), "{before} {after}");
            assert!(!rules.signed_one_in(format!("{before}{other}{after}").as_bytes()), "{before} {after}");
            assert!(!rules.signed_one_in(format!("{before}{}", &own[..own.len() - 1]).as_bytes()));
        }
        let many = |count| (0..count).map(|n| token(b"another", n)).collect::<Vec<_>>().join(" ");
        assert!(!rules.signed_one_in(format!("{0} {0}", many(BODY_JWTS_MAX)).as_bytes()));
        assert!(rules.signed_one_in(many(BODY_JWTS_MAX + 1).as_bytes()));
        for text in ["eyJ", "eyJ.", "eyJ..", "eyJ.eyJ", "eyJ.x.", ""] {
            assert!(!rules.signed_one_in(text.repeat(100).as_bytes()), "{text}");
        }
    }

    #[test]
    fn issuer_and_audience_are_required_once_they_are_configured() {
        let rules = JwtRules::hs256(SECRET, Some("https://id".to_owned()), Some("runreel".to_owned()));
        let good = json!({"sub": "a", "exp": NOW + 60, "iss": "https://id", "aud": ["x", "runreel"]});
        assert!(check(&good, Algorithm::HS256, SECRET, &rules).is_ok());
        for (name, value) in
            [("iss", json!("https://evil")), ("aud", json!("other")), ("iss", Value::Null), ("aud", Value::Null)]
        {
            let mut bad = good.clone();
            bad[name] = value;
            assert!(check(&bad, Algorithm::HS256, SECRET, &rules).is_err(), "{bad}");
        }
    }
}
