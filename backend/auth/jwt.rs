//! JSON Web Tokens (RFC 7519), signed with this server's secret (HS256) or by an identity provider.

use std::{collections::HashSet, fmt};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use chrono::{DateTime, TimeDelta, Utc};
use jsonwebtoken::{Algorithm, DecodingKey, crypto};
use memchr::memmem::Finder;
use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::{
    Error,
    claims::{Body, claim},
    keys::{self, VerifyingKey},
    providers::Providers,
    signatures,
};
use crate::{
    clock::Stopwatch,
    config::AuthArgs,
    domain::{
        limits::{BODY_JWTS_MAX, JWT_BYTES_MAX, JWT_LEEWAY_S},
        principal::Scope,
    },
};

/// The prefix of every accepted JWT, and of the texts in bodies that are checked: `{"` in base64.
const OPENING: &[u8] = b"eyJ";
/// Characters of an HS256 signature: 32 bytes in base64.
const SIGNATURE_CHARS: usize = 43;
/// Longest subject, issuer or team, bytes.
const CLAIM_BYTES_MAX: usize = 1024;

const NOT_VALID: Error = Error::Invalid("the token is not a valid JWT of this server");

/// The keys and the claims a token must have.
pub struct JwtRules {
    secret: Option<DecodingKey>,
    providers: Providers,
    /// The issuer required of tokens signed with the secret.
    issuer: Option<String>,
    audiences: Vec<String>,
    team_claim: Option<String>,
    role_claim: Option<String>,
}

impl fmt::Debug for JwtRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtRules")
            .field("providers", &self.providers)
            .field("issuer", &self.issuer)
            .field("audiences", &self.audiences)
            .finish_non_exhaustive()
    }
}

/// The claims of a valid token that are used.
pub(super) struct Claims {
    pub(super) issuer: String,
    pub(super) subject: String,
    /// The team whose runs the subject reads and creates, instead of its own.
    pub(super) team: Option<String>,
    pub(super) scopes: Vec<Scope>,
    pub(super) expires_at: DateTime<Utc>,
}

/// The members of a token's header that are read. `alg` is a name of RFC 7518 or RFC 9864.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<IgnoredAny>,
}

/// The issuer that a token claims before it is verified.
#[derive(Deserialize)]
struct Issued {
    iss: Option<String>,
}

impl JwtRules {
    pub fn new(secret: Option<&[u8]>, args: &AuthArgs, stopwatch: &Stopwatch) -> Result<Self, String> {
        signatures::install();
        Ok(Self {
            secret: secret.map(DecodingKey::from_secret),
            providers: Providers::new(&args.jwt_provider, stopwatch)?,
            issuer: args.jwt_issuer.clone(),
            audiences: args.jwt_audience.clone(),
            team_claim: args.jwt_team_claim.clone(),
            role_claim: args.jwt_role_claim.clone(),
        })
    }

    pub(super) async fn verify(&self, token: &str, now: DateTime<Utc>) -> Result<Claims, Error> {
        // A token with another prefix would not be detected in a body.
        if token.len() > JWT_BYTES_MAX || !token.as_bytes().starts_with(OPENING) {
            return Err(NOT_VALID);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(NOT_VALID)?;
        let (header, payload) = signed.split_once('.').ok_or(NOT_VALID)?;
        let header: Header = part(header).ok_or(NOT_VALID)?;
        // Extensions listed as critical must be understood (RFC 7515, 4.1.11), and none is supported.
        if header.crit.is_some() {
            return Err(Error::Invalid("the token's header names extensions that this server does not support"));
        }
        let claimed: Issued = part(payload).ok_or(NOT_VALID)?;
        let (keys, issuer) = self.keys(&header, claimed.iss.as_deref()).await?;
        if !keys.iter().any(|key| key.signed(signed.as_bytes(), signature)) {
            return Err(NOT_VALID);
        }
        let body: Body = part(payload).ok_or(NOT_VALID)?;
        if issuer.is_some_and(|issuer| body.iss.as_deref() != Some(issuer)) || !self.is_for(body.others.get("aud")) {
            return Err(NOT_VALID);
        }
        // Times are checked against the server's clock, which tests can move.
        let leeway = TimeDelta::seconds(i64::try_from(JWT_LEEWAY_S).unwrap_or(0));
        // A stream may last as long as a request would still be accepted.
        let expires_at = body.exp.0.checked_add_signed(leeway).ok_or(NOT_VALID)?;
        if expires_at <= now {
            return Err(Error::Invalid("the token has expired"));
        }
        if body.nbf.is_some_and(|nbf| nbf.0 > now + leeway) {
            return Err(Error::Invalid("the token is not valid yet"));
        }
        let (team, scopes) = (self.team(&body.others)?, self.scopes(&body.others)?);
        let named = body.iss.unwrap_or_default();
        if body.sub.is_empty() || body.sub.len() > CLAIM_BYTES_MAX || named.len() > CLAIM_BYTES_MAX {
            return Err(NOT_VALID);
        }
        Ok(Claims { issuer: named, subject: body.sub, team, scopes, expires_at })
    }

    /// Refreshes the providers' keys while they are in use, until `stop`.
    pub(super) async fn keep_fresh(&self, stop: CancellationToken) {
        self.providers.keep_fresh(stop).await;
    }

    /// The keys that may have signed a token, and the issuer it must have. The issuer alone selects the keys, and a key
    /// fixes the algorithm; the token's header only has to match.
    async fn keys<'a>(
        &'a self,
        header: &Header,
        issuer: Option<&'a str>,
    ) -> Result<(Vec<VerifyingKey>, Option<&'a str>), Error> {
        let algorithm = keys::algorithm(&header.alg).ok_or(NOT_VALID)?;
        match (issuer.filter(|issuer| self.providers.include(issuer)), &self.secret) {
            (Some(issuer), _) => {
                Ok((self.providers.keys(issuer, header.kid.as_deref(), algorithm).await?, Some(issuer)))
            }
            (None, Some(_)) if algorithm != Algorithm::HS256 => Err(NOT_VALID),
            (None, Some(secret)) => Ok((vec![VerifyingKey { key: secret.clone(), algorithm }], self.issuer.as_deref())),
            (None, None) => Err(Error::Invalid("the token's issuer is not one that this server accepts")),
        }
    }

    /// Whether an audience is one of this server's; always true if the server has none.
    fn is_for(&self, audience: Option<&Value>) -> bool {
        let is_own = |value: &Value| value.as_str().is_some_and(|name| self.audiences.iter().any(|own| own == name));
        self.audiences.is_empty()
            || audience
                .is_some_and(|named| named.as_array().map_or_else(|| is_own(named), |all| all.iter().any(is_own)))
    }

    fn team(&self, claims: &Map<String, Value>) -> Result<Option<String>, Error> {
        match self.team_claim.as_ref().and_then(|name| claim(claims, name)) {
            None => Ok(None),
            Some(Value::String(team)) if !team.is_empty() && team.len() <= CLAIM_BYTES_MAX => Ok(Some(team.clone())),
            Some(_) => Err(Error::Invalid("the claim that names the team is not a text")),
        }
    }

    /// The scopes of the highest role that the token names; admin if no role claim is configured.
    fn scopes(&self, claims: &Map<String, Value>) -> Result<Vec<Scope>, Error> {
        let Some(name) = &self.role_claim else { return Ok(vec![Scope::Admin]) };
        let named: Vec<&str> = match claim(claims, name) {
            Some(Value::Array(roles)) => roles.iter().filter_map(Value::as_str).collect(),
            Some(Value::String(role)) => vec![role.as_str()],
            _ => Vec::new(),
        };
        let roles = [
            ("admin", vec![Scope::Admin]),
            ("owner", vec![Scope::Read, Scope::Emit, Scope::Approve]),
            ("reader", vec![Scope::Read]),
        ];
        let greatest = roles.into_iter().find(|(role, _)| named.contains(role)).map(|(_, scopes)| scopes);
        greatest.ok_or(Error::Invalid("the token names no role of this server: reader, owner or admin"))
    }

    /// Whether these bytes contain a token that is signed with the secret or names a provider, regardless of its other
    /// claims, or more candidate tokens than are checked.
    pub(super) fn signed_one_in(&self, bytes: &[u8]) -> bool {
        let mut seen = HashSet::new();
        tokens_in(bytes).any(|token @ (signed, signature)| {
            let is_signed =
                |secret: &DecodingKey| crypto::verify(signature, signed, secret, Algorithm::HS256).unwrap_or(false);
            let is_good = || self.secret.as_ref().is_some_and(is_signed) || self.names_provider(signed);
            seen.insert(token) && (seen.len() > BODY_JWTS_MAX || is_good())
        })
    }

    fn names_provider(&self, signed: &[u8]) -> bool {
        let issued = signed.splitn(2, |byte| *byte == b'.').nth(1).and_then(part::<Issued>);
        issued.and_then(|issued| issued.iss).is_some_and(|issuer| self.providers.include(&issuer))
    }
}

/// A part of a token: JSON in base64.
fn part<T: DeserializeOwned>(text: impl AsRef<[u8]>) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
}

/// Candidate tokens: the signed part and the first letters of the signature. Reads each byte at most three times.
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
    use futures::FutureExt as _;
    use jsonwebtoken::{EncodingKey, Header, encode};
    use serde_json::json;

    use super::*;
    use crate::{clock::monotonic, config::Auth};

    const SECRET: &[u8] = b"a secret of at least thirty-two bytes";
    const NOW: i64 = 1_800_000_000;

    fn rules(issuer: Option<&str>, audience: Option<&str>) -> JwtRules {
        let args = AuthArgs {
            auth: Auth::Jwt,
            jwt_provider: Vec::new(),
            jwt_issuer: issuer.map(str::to_owned),
            jwt_audience: audience.map(str::to_owned).into_iter().collect(),
            jwt_team_claim: Some("org".to_owned()),
            jwt_role_claim: None,
        };
        JwtRules::new(Some(SECRET), &args, &monotonic()).unwrap()
    }

    /// Without a provider, verification completes at once.
    fn verify(rules: &JwtRules, token: &str, at: i64) -> Result<Claims, Error> {
        rules.verify(token, DateTime::from_timestamp(at, 0).unwrap()).now_or_never().unwrap()
    }

    fn check(claims: &Value, algorithm: Algorithm, secret: &[u8], rules: &JwtRules) -> Result<String, String> {
        let token = encode(&Header::new(algorithm), claims, &EncodingKey::from_secret(secret)).unwrap();
        verify(rules, &token, NOW).map(|claims| claims.subject).map_err(|error| error.to_string())
    }

    fn hs(claims: &Value) -> Result<String, String> {
        check(claims, Algorithm::HS256, SECRET, &rules(None, None))
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
        let (claims, rules) = (json!({"sub": "a", "exp": NOW + 60}), rules(None, None));
        assert!(check(&claims, Algorithm::HS512, SECRET, &rules).is_err());
        assert!(check(&claims, Algorithm::HS256, b"another", &rules).is_err());
        let none = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIiwiZXhwIjo5OTk5OTk5OTk5fQ.";
        assert!(verify(&rules, none, 0).is_err());
    }

    #[test]
    fn a_header_that_calls_something_critical_is_refused() {
        let rules = rules(None, None);
        for names in [vec![], vec!["b64"], vec!["exp"], vec!["urn:example:unknown"]] {
            let crit = Some(names.into_iter().map(str::to_owned).collect());
            let header = Header { crit, ..Header::new(Algorithm::HS256) };
            let claims = json!({"sub": "a", "exp": NOW + 60});
            let token = encode(&header, &claims, &EncodingKey::from_secret(SECRET)).unwrap();
            assert!(verify(&rules, &token, NOW).is_err(), "{token}");
        }
    }

    #[test]
    fn a_token_of_this_key_is_found_wherever_it_stands_and_another_is_not() {
        let rules = rules(Some("https://id"), None);
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
        let rules = rules(Some("https://id"), Some("runreel"));
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
