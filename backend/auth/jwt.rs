//! JSON Web Tokens (RFC 7519), signed with this server's secret (HS256) or by an identity provider.

use std::{collections::HashSet, fmt};

use chrono::{DateTime, TimeDelta, Utc};
use jsonwebtoken::{
    Algorithm, DecodingKey, Header, Validation, crypto, dangerous::insecure_decode_claims, decode, decode_header,
};
use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    Error,
    providers::{Providers, VerifyingKey},
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

/// The beginning of every JWT header: `{"` in base64.
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
    /// Of tokens signed with the secret.
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
    /// Whose runs the subject sees and makes, instead of its own.
    pub(super) team: Option<String>,
    pub(super) scopes: Vec<Scope>,
    pub(super) expires_at: DateTime<Utc>,
}

/// Typed, so that a string in place of a number is rejected rather than converted.
#[derive(Deserialize)]
struct Body {
    sub: String,
    exp: u64,
    nbf: Option<u64>,
    iss: Option<String>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// What a token says of its issuer before it is verified.
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
        if token.len() > JWT_BYTES_MAX {
            return Err(NOT_VALID);
        }
        let header = decode_header(token).map_err(|_| NOT_VALID)?;
        // Extensions listed as critical must be understood (RFC 7515, 4.1.11), and none is supported.
        if header.crit.is_some() {
            return Err(Error::Invalid("the token's header names extensions that this server does not support"));
        }
        let issued: Issued = insecure_decode_claims(token).map_err(|_| NOT_VALID)?;
        let (key, validation) = self.key(&header, issued.iss.as_deref()).await?;
        let body = decode::<Body>(token, &key, &validation).map_err(|_| NOT_VALID)?.claims;
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
        let (team, scopes) = (self.team(&body.others)?, self.scopes(&body.others)?);
        let named = body.iss.unwrap_or_default();
        if body.sub.is_empty() || body.sub.len() > CLAIM_BYTES_MAX || named.len() > CLAIM_BYTES_MAX {
            return Err(NOT_VALID);
        }
        // A stream may last as long as a request would still be accepted.
        Ok(Claims { issuer: named, subject: body.sub, team, scopes, expires_at: expires_at + leeway })
    }

    /// The key of a token and what it must contain. The issuer alone determines where the key comes from, and the key
    /// the algorithm; what the token's header says only has to agree.
    async fn key(&self, header: &Header, issuer: Option<&str>) -> Result<(DecodingKey, Validation), Error> {
        match (issuer.filter(|issuer| self.providers.include(issuer)), &self.secret) {
            (Some(issuer), _) => {
                let VerifyingKey { key, algorithm } =
                    self.providers.key(issuer, header.kid.as_deref(), header.alg).await?;
                Ok((key, self.validation(algorithm, Some(issuer))))
            }
            (None, Some(secret)) => Ok((secret.clone(), self.validation(Algorithm::HS256, self.issuer.as_deref()))),
            (None, None) => Err(Error::Invalid("the token's issuer is not one that this server accepts")),
        }
    }

    fn team(&self, claims: &Map<String, Value>) -> Result<Option<String>, Error> {
        match self.team_claim.as_ref().and_then(|name| claims.get(name)) {
            None => Ok(None),
            Some(Value::String(team)) if !team.is_empty() && team.len() <= CLAIM_BYTES_MAX => Ok(Some(team.clone())),
            Some(_) => Err(Error::Invalid("the claim that names the team is not a text")),
        }
    }

    /// The greatest of the roles that the token names.
    fn scopes(&self, claims: &Map<String, Value>) -> Result<Vec<Scope>, Error> {
        let Some(name) = &self.role_claim else { return Ok(vec![Scope::Admin]) };
        let named: Vec<&str> = match claims.get(name) {
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
    /// claims, or more texts that look like a token than are examined.
    pub(super) fn signed_one_in(&self, bytes: &[u8]) -> bool {
        let mut seen = HashSet::new();
        tokens_in(bytes).any(|token @ (signed, signature)| {
            let is_signed =
                |secret: &DecodingKey| crypto::verify(signature, signed, secret, Algorithm::HS256).unwrap_or(false);
            let is_good = || self.secret.as_ref().is_some_and(is_signed) || self.names_provider(signed, signature);
            seen.insert(token) && (seen.len() > BODY_JWTS_MAX || is_good())
        })
    }

    fn names_provider(&self, signed: &[u8], signature: &str) -> bool {
        let token = [signed, b".", signature.as_bytes()].concat();
        let issued = insecure_decode_claims::<Issued>(token).ok();
        issued.and_then(|issued| issued.iss).is_some_and(|issuer| self.providers.include(&issuer))
    }

    fn validation(&self, algorithm: Algorithm, issuer: Option<&str>) -> Validation {
        let mut validation = Validation::new(algorithm);
        let mut required = vec!["exp", "sub"];
        (validation.validate_exp, validation.validate_nbf) = (false, false);
        if let Some(issuer) = issuer {
            validation.set_issuer(&[issuer]);
            required.push("iss");
        }
        if self.audiences.is_empty() {
            validation.validate_aud = false;
        } else {
            validation.set_audience(&self.audiences);
            required.push("aud");
        }
        validation.set_required_spec_claims(&required);
        validation
    }
}

/// Texts that look like a token: the signed part and the first letters of the signature. Reads each byte at most three times.
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
    use jsonwebtoken::{EncodingKey, encode};
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

    /// Without a provider nothing is waited for.
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
