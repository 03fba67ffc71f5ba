//! Public keys of identity providers (RFC 7517), and which of them a token may be signed with.

use std::time::Duration;

use jsonwebtoken::{
    Algorithm, DecodingKey, crypto,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse},
};
use serde_json::{Value, json};

/// RFC 9864's name for `EdDSA` with a key of the curve Ed25519.
const ED25519: &str = "Ed25519";
/// The older name of the same algorithm.
const EDDSA: &str = "EdDSA";
/// The members of a key that are read.
const NEEDED: [&str; 9] = ["kty", "use", "alg", "kid", "n", "e", "crv", "x", "y"];
/// Maximum number of keys used from one provider.
const KEYS_MAX: usize = 100;

/// A key, and the one algorithm it is used with.
#[derive(Clone)]
pub(super) struct VerifyingKey {
    pub(super) key: DecodingKey,
    pub(super) algorithm: Algorithm,
}

impl VerifyingKey {
    /// Whether `signature` is this key's signature of these bytes.
    pub(super) fn signed(&self, bytes: &[u8], signature: &str) -> bool {
        crypto::verify(signature, bytes, &self.key, self.algorithm).unwrap_or(false)
    }
}

/// The keys of one provider by their id.
pub(super) struct Keys {
    keys: Vec<(Option<String>, VerifyingKey)>,
    /// When they arrived.
    pub(super) at: Duration,
}

/// The algorithm of this name.
pub(super) fn algorithm(name: &str) -> Option<Algorithm> {
    if name == ED25519 { Some(Algorithm::EdDSA) } else { name.parse().ok() }
}

impl Keys {
    /// The keys of a set for signatures. Unreadable keys are skipped: providers add new kinds of keys beside the old
    /// ones.
    pub(super) fn of(set: Vec<Value>, at: Duration) -> Self {
        Self { keys: set.into_iter().filter_map(verifying).take(KEYS_MAX).collect(), at }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The keys for the algorithm with this id, of which there is usually one; without an id, the only one.
    pub(super) fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Vec<VerifyingKey> {
        let fits = |id: &Option<String>, key: &VerifyingKey| {
            key.algorithm == algorithm && (kid.is_none() || id.as_deref() == kid)
        };
        let fitting = self.keys.iter().filter(|(id, key)| fits(id, key));
        let fitting: Vec<VerifyingKey> = fitting.map(|(_, key)| key.clone()).collect();
        if kid.is_some() || fitting.len() == 1 { fitting } else { Vec::new() }
    }
}

/// The key with its id, if signatures can be verified with it. The key alone determines the algorithm, never a token.
fn verifying(mut key: Value) -> Option<(Option<String>, VerifyingKey)> {
    // Members that are not needed may be malformed.
    key.as_object_mut()?.retain(|name, _| NEEDED.contains(&name.as_str()));
    if key["alg"] == ED25519 {
        key["alg"] = json!(EDDSA);
    }
    let key: Jwk = serde_json::from_value(key).ok()?;
    let is_for_signatures = matches!(key.common.public_key_use, None | Some(PublicKeyUse::Signature));
    let algorithm = match (&key.algorithm, key.common.key_algorithm) {
        (AlgorithmParameters::RSA(_), None | Some(KeyAlgorithm::RS256)) => Algorithm::RS256,
        (AlgorithmParameters::RSA(_), Some(KeyAlgorithm::RS384)) => Algorithm::RS384,
        (AlgorithmParameters::RSA(_), Some(KeyAlgorithm::RS512)) => Algorithm::RS512,
        (AlgorithmParameters::RSA(_), Some(KeyAlgorithm::PS256)) => Algorithm::PS256,
        (AlgorithmParameters::RSA(_), Some(KeyAlgorithm::PS384)) => Algorithm::PS384,
        (AlgorithmParameters::RSA(_), Some(KeyAlgorithm::PS512)) => Algorithm::PS512,
        (AlgorithmParameters::EllipticCurve(point), None | Some(KeyAlgorithm::ES256))
            if point.curve == EllipticCurve::P256 =>
        {
            Algorithm::ES256
        }
        (AlgorithmParameters::EllipticCurve(point), None | Some(KeyAlgorithm::ES384))
            if point.curve == EllipticCurve::P384 =>
        {
            Algorithm::ES384
        }
        (AlgorithmParameters::OctetKeyPair(point), None | Some(KeyAlgorithm::EdDSA))
            if point.curve == EllipticCurve::Ed25519 =>
        {
            Algorithm::EdDSA
        }
        // Includes secrets (oct): a published secret is not secret.
        _ => return None,
    };
    let verifying = DecodingKey::from_jwk(&key).ok().filter(|_| is_for_signatures)?;
    Some((key.common.key_id, VerifyingKey { key: verifying, algorithm }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

    #[test]
    fn a_key_that_cannot_be_used_does_not_spoil_the_others() {
        let good = json!({ "kty": "OKP", "crv": "Ed25519", "x": X, "kid": "a", "alg": "Ed25519" });
        let set = vec![json!({ "kty": "new" }), json!(7), json!({ "kty": "RSA", "x5c": ["MIIB"], "kid": "a" }), good];
        assert_eq!(Keys::of(set, Duration::ZERO).find(Some("a"), Algorithm::EdDSA).len(), 1);
    }

    #[test]
    fn a_key_determines_its_algorithm_and_a_secret_is_no_key() {
        let algorithm = |key: Value| verifying(key).map(|(_, key)| key.algorithm);
        let point = |curve: &str| json!({ "kty": "EC", "crv": curve, "x": X, "y": X });
        let rsa = |more: Value| {
            let mut key = json!({ "kty": "RSA", "n": X, "e": "AQAB" });
            key.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            key
        };
        assert_eq!(algorithm(rsa(json!({}))), Some(Algorithm::RS256));
        assert_eq!(algorithm(rsa(json!({ "alg": "PS256", "use": "sig" }))), Some(Algorithm::PS256));
        assert_eq!(algorithm(point("P-256")), Some(Algorithm::ES256));
        assert_eq!(algorithm(point("P-384")), Some(Algorithm::ES384));
        assert_eq!(algorithm(json!({ "kty": "OKP", "crv": "Ed25519", "x": X })), Some(Algorithm::EdDSA));
        assert_eq!(
            algorithm(json!({ "kty": "OKP", "crv": "Ed25519", "alg": "Ed25519", "x": X })),
            Some(Algorithm::EdDSA)
        );
        // Members that are not read may be malformed.
        assert_eq!(algorithm(rsa(json!({ "x5c": "MIIB", "key_ops": 7, "x5t": null }))), Some(Algorithm::RS256));
        for key in [
            json!({ "kty": "RSA", "x5c": ["MIIB"] }),
            json!({ "kty": "OKP", "crv": "Ed448", "alg": "Ed448", "x": X }),
            json!({ "kty": "AKP", "alg": "ML-DSA-44", "pub": X }),
            rsa(json!({ "alg": "Ed25519" })),
            rsa(json!({ "alg": 7 })),
            rsa(json!({ "alg": "" })),
            json!(X),
            json!(null),
            json!({ "kty": "oct", "k": X, "alg": "HS256" }),
            rsa(json!({ "use": "enc" })),
            rsa(json!({ "alg": "HS256" })),
            rsa(json!({ "alg": "RSA-OAEP" })),
            point("secp256k1"),
            json!({ "kty": "OKP", "crv": "X25519", "x": X }),
        ] {
            assert_eq!(algorithm(key.clone()), None, "{key}");
        }
    }
}
