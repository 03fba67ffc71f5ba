//! An identity provider of the tests: its document, its keys, and the tokens it signs.

use std::sync::{Arc, Mutex};

use axum::{Json, Router, extract::State, routing::get};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _},
};
use serde_json::{Value, json};

/// What it signs with.
#[derive(Clone)]
pub enum Key {
    Ed25519(Arc<Ed25519KeyPair>),
    P256(Arc<EcdsaKeyPair>),
}

impl Key {
    pub fn ed25519() -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::Ed25519(Arc::new(Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap()))
    }

    pub fn p256() -> Self {
        let (random, kind) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
        Self::P256(Arc::new(EcdsaKeyPair::from_pkcs8(kind, pkcs8.as_ref(), &random).unwrap()))
    }

    /// The bytes that everybody knows.
    pub fn public(&self) -> &[u8] {
        match self {
            Self::Ed25519(pair) => pair.public_key().as_ref(),
            Self::P256(pair) => pair.public_key().as_ref(),
        }
    }

    /// The key as its provider shows it.
    pub fn published(&self, kid: &str) -> Value {
        match self {
            Self::Ed25519(_) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "kid": kid, "x": BASE64.encode(self.public()) })
            }
            Self::P256(_) => {
                let (x, y) = self.public()[1..].split_at(32);
                json!({ "kty": "EC", "crv": "P-256", "kid": kid, "x": BASE64.encode(x), "y": BASE64.encode(y) })
            }
        }
    }

    /// A token with these claims.
    pub fn sign(&self, kid: &str, claims: &Value) -> String {
        self.sign_with(json!({ "kid": kid }), claims)
    }

    /// The same with these members in its header.
    pub fn sign_with(&self, mut header: Value, claims: &Value) -> String {
        header["typ"] = json!("JWT");
        if header["alg"].is_null() {
            header["alg"] = match self {
                Self::Ed25519(_) => json!("EdDSA"),
                Self::P256(_) => json!("ES256"),
            };
        }
        self.sign_text(&unsigned(&header, claims))
    }

    /// A token with this signed part.
    pub fn sign_text(&self, signed: &str) -> String {
        let signature = match self {
            Self::Ed25519(pair) => pair.sign(signed.as_bytes()).as_ref().to_vec(),
            Self::P256(pair) => pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap().as_ref().to_vec(),
        };
        format!("{signed}.{}", BASE64.encode(signature))
    }
}

/// The part of a token that is signed.
pub fn unsigned(header: &Value, claims: &Value) -> String {
    [header, claims].map(|part| BASE64.encode(part.to_string())).join(".")
}

/// A running provider.
#[derive(Clone)]
pub struct Provider {
    pub issuer: String,
    keys: Arc<Mutex<Vec<Value>>>,
}

impl Provider {
    pub async fn start(keys: &[(&str, &Key)]) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let keys = keys.iter().map(|(kid, key)| key.published(kid)).collect();
        let provider = Self { issuer, keys: Arc::new(Mutex::new(keys)) };
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(document))
            .route("/keys", get(published))
            .with_state(provider.clone());
        tokio::spawn(super::models::axum_serve(listener, router));
        provider
    }

    /// Exchanges its keys.
    pub fn publish(&self, keys: impl IntoIterator<Item = Value>) {
        *self.keys.lock().unwrap() = keys.into_iter().collect();
    }

    /// One that nobody reaches.
    pub fn away() -> Self {
        Self { issuer: "http://127.0.0.1:9".to_owned(), keys: Arc::default() }
    }

    /// Claims that are accepted for an hour from `now`.
    pub fn claims(&self, subject: &str, now: i64) -> Value {
        json!({ "iss": self.issuer, "aud": "runreel", "sub": subject, "exp": now + 3_600 })
    }
}

async fn document(State(provider): State<Provider>) -> Json<Value> {
    let issuer = &provider.issuer;
    Json(json!({ "issuer": issuer, "jwks_uri": format!("{issuer}/keys") }))
}

async fn published(State(provider): State<Provider>) -> Json<Value> {
    Json(json!({ "keys": *provider.keys.lock().unwrap() }))
}
