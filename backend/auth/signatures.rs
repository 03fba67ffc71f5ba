//! The signatures of JWTs (RFC 7518, 3.2 to 3.4; RFC 8037, 3.1), by ring, which TLS uses as well.
//!
//! `jsonwebtoken` leaves the choice of the implementation to the program. Its own implementations can sign with RSA,
//! whose timing reveals private keys (RUSTSEC-2023-0071); nothing here holds a private key.

use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey,
    crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils},
    errors::{Error, ErrorKind},
    signature::{self, Signer, Verifier},
};
use ring::{hmac, signature as public};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |algorithm, key| Ok(Box::new(Keyed::signing(*algorithm, key)?)),
    verifier_factory: |algorithm, key| Ok(Box::new(Keyed::verifying(*algorithm, key)?)),
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes `jsonwebtoken` sign and verify with this module. Required before the first JWT; further calls have no effect.
pub fn install() {
    let _ = PROVIDER.install_default();
}

/// A key and the one algorithm it is used with.
struct Keyed {
    algorithm: Algorithm,
    key: Key,
}

enum Key {
    Secret(hmac::Key),
    /// 2048 to 8192 bits.
    Rsa(&'static public::RsaParameters, public::RsaPublicKeyComponents<Vec<u8>>),
    /// A point on an elliptic curve.
    Point(public::UnparsedPublicKey<Vec<u8>>),
}

impl Keyed {
    fn signing(algorithm: Algorithm, key: &EncodingKey) -> Result<Self, Error> {
        let hash = hash(algorithm).ok_or(ErrorKind::InvalidAlgorithm)?;
        Ok(Self { algorithm, key: Key::Secret(hmac::Key::new(hash, key.as_bytes())) })
    }

    fn verifying(algorithm: Algorithm, key: &DecodingKey) -> Result<Self, Error> {
        // Checks the family too: otherwise the bytes of a public key could be used as an HMAC secret.
        let key = match (key.family(), key.kind()) {
            (AlgorithmFamily::Hmac, DecodingKeyKind::SecretOrDer(secret)) => {
                hash(algorithm).map(|hash| Key::Secret(hmac::Key::new(hash, secret)))
            }
            (AlgorithmFamily::Rsa, DecodingKeyKind::RsaModulusExponent { n, e }) => {
                let (n, e) = (without_zeros(n), without_zeros(e));
                rsa(algorithm).map(|parameters| Key::Rsa(parameters, public::RsaPublicKeyComponents { n, e }))
            }
            (AlgorithmFamily::Ec | AlgorithmFamily::Ed, DecodingKeyKind::SecretOrDer(point)) => {
                curve(algorithm).map(|curve| Key::Point(public::UnparsedPublicKey::new(curve, point.clone())))
            }
            _ => None,
        };
        let key = key.ok_or(ErrorKind::InvalidAlgorithm)?;
        Ok(Self { algorithm, key })
    }
}

/// Some providers publish a leading zero byte (RFC 7518, 6.3.1.1), which ring refuses.
fn without_zeros(number: &[u8]) -> Vec<u8> {
    number.iter().copied().skip_while(|byte| *byte == 0).collect()
}

fn hash(algorithm: Algorithm) -> Option<hmac::Algorithm> {
    match algorithm {
        Algorithm::HS256 => Some(hmac::HMAC_SHA256),
        Algorithm::HS384 => Some(hmac::HMAC_SHA384),
        Algorithm::HS512 => Some(hmac::HMAC_SHA512),
        _ => None,
    }
}

fn rsa(algorithm: Algorithm) -> Option<&'static public::RsaParameters> {
    match algorithm {
        Algorithm::RS256 => Some(&public::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Some(&public::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Some(&public::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Some(&public::RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Some(&public::RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Some(&public::RSA_PSS_2048_8192_SHA512),
        _ => None,
    }
}

fn curve(algorithm: Algorithm) -> Option<&'static dyn public::VerificationAlgorithm> {
    match algorithm {
        Algorithm::ES256 => Some(&public::ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => Some(&public::ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => Some(&public::ED25519),
        _ => None,
    }
}

impl Signer<Vec<u8>> for Keyed {
    fn try_sign(&self, message: &[u8]) -> Result<Vec<u8>, signature::Error> {
        match &self.key {
            Key::Secret(key) => Ok(hmac::sign(key, message).as_ref().to_vec()),
            Key::Rsa(..) | Key::Point(_) => Err(signature::Error::new()),
        }
    }
}

impl JwtSigner for Keyed {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for Keyed {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let verified = match &self.key {
            Key::Secret(key) => hmac::verify(key, message, signature),
            Key::Rsa(parameters, key) => key.verify(parameters, message, signature),
            Key::Point(key) => key.verify(message, signature),
        };
        verified.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for Keyed {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
