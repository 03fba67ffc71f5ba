//! Identity providers: whose tokens are accepted, and where their keys come from (`OpenID` Connect Discovery 1.0, 4;
//! RFC 7517, 5).
//!
//! Nothing in a token decides what is requested: the addresses are the configured ones, or what the configured issuer's
//! own document names.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jsonwebtoken::{
    Algorithm, DecodingKey,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse},
};
use reqwest::Url;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::Error;
use crate::{
    clock::Stopwatch,
    config::Provider,
    domain::limits::{PROVIDER_DOCUMENT_BYTES_MAX, PROVIDER_PAUSE_S},
};

/// Keys older than this are requested again before they are used; the old ones stay valid if that fails.
const REQUESTED_AFTER: Duration = Duration::from_mins(10);
/// Keys that could not be requested again for so long are not used any more.
const KEPT: Duration = Duration::from_hours(24);
const PAUSE: Duration = Duration::from_secs(PROVIDER_PAUSE_S as u64);
const REQUEST_WAIT_MAX: Duration = Duration::from_secs(5);
/// Most keys of one provider that are used.
const KEYS_MAX: usize = 100;

/// A public key, and the algorithm it is used with.
#[derive(Clone)]
pub(super) struct VerifyingKey {
    pub(super) key: DecodingKey,
    pub(super) algorithm: Algorithm,
}

/// The keys of one provider by their id.
#[derive(Default)]
struct Keys {
    keys: Vec<(Option<String>, VerifyingKey)>,
    /// When they arrived.
    at: Duration,
}

impl Keys {
    /// The key with this id; without one, the only key for the algorithm.
    fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<VerifyingKey> {
        let mut fitting = self
            .keys
            .iter()
            .filter(|(id, key)| key.algorithm == algorithm && (kid.is_none() || id.as_deref() == kid))
            .map(|(_, key)| key);
        let first = fitting.next()?;
        (kid.is_some() || fitting.next().is_none()).then(|| first.clone())
    }
}

/// A provider with the keys it had last.
struct Source {
    provider: Provider,
    http: reqwest::Client,
    stopwatch: Stopwatch,
    keys: Mutex<Option<Arc<Keys>>>,
    /// When the last request ended. Locked while one is under way, so that there is one at a time.
    requested: Arc<tokio::sync::Mutex<Option<Duration>>>,
}

/// All identity providers of a server. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Providers {
    sources: Arc<HashMap<String, Arc<Source>>>,
}

impl fmt::Debug for Providers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.sources.keys()).finish()
    }
}

impl Providers {
    /// Requests nothing yet.
    pub(super) fn new(providers: &[Provider], stopwatch: &Stopwatch) -> Result<Self, String> {
        let source = |provider: &Provider| {
            let (http, stopwatch) = (client(provider)?, Arc::clone(stopwatch));
            let (keys, requested) = (Mutex::default(), Arc::default());
            let source = Source { provider: provider.clone(), http, stopwatch, keys, requested };
            Ok((provider.issuer.clone(), Arc::new(source)))
        };
        Ok(Self { sources: Arc::new(providers.iter().map(source).collect::<Result<_, String>>()?) })
    }

    /// Whether tokens of this issuer are verified with its provider's keys.
    pub(super) fn include(&self, issuer: &str) -> bool {
        self.sources.contains_key(issuer)
    }

    /// The key that a token of this issuer must be signed with.
    pub(super) async fn key(
        &self,
        issuer: &str,
        kid: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<VerifyingKey, Error> {
        let source = self.sources.get(issuer).ok_or(Error::Invalid("the token's issuer is not one of this server"))?;
        source.key(kid, algorithm).await
    }
}

impl Source {
    fn known(&self) -> Option<Arc<Keys>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn key(self: &Arc<Self>, kid: Option<&str>, algorithm: Algorithm) -> Result<VerifyingKey, Error> {
        let now = (self.stopwatch)();
        let known = self.known();
        let fresh = known.as_ref().filter(|keys| now.saturating_sub(keys.at) < REQUESTED_AFTER);
        if let Some(key) = fresh.and_then(|keys| keys.find(kid, algorithm)) {
            return Ok(key);
        }
        self.renew(known.map(|keys| keys.at)).await;
        let now = (self.stopwatch)();
        let usable =
            self.known().filter(|keys| now.saturating_sub(keys.at) < KEPT).ok_or(Error::ProviderUnavailable)?;
        usable
            .find(kid, algorithm)
            .ok_or(Error::Invalid("the token is signed with a key that its issuer does not publish"))
    }

    /// Requests the keys, unless that was done a moment ago or since `seen`. Others wait for the same request; it goes on
    /// if nobody waits any more.
    async fn renew(self: &Arc<Self>, seen: Option<Duration>) {
        let mut requested = Arc::clone(&self.requested).lock_owned().await;
        let is_recent = requested.is_some_and(|at| (self.stopwatch)().saturating_sub(at) < PAUSE);
        if is_recent || self.known().map(|keys| keys.at) != seen {
            return;
        }
        let source = Arc::clone(self);
        #[expect(clippy::disallowed_methods, reason = "ends by itself within the time limit of its requests")]
        let request = tokio::spawn(async move {
            match source.request().await {
                Ok(keys) => {
                    let at = (source.stopwatch)();
                    let keys = Arc::new(Keys { keys, at });
                    *source.keys.lock().unwrap_or_else(PoisonError::into_inner) = Some(keys);
                }
                Err(error) => tracing::warn!(
                    issuer = source.provider.issuer,
                    error,
                    "the keys of an identity provider cannot be read"
                ),
            }
            *requested = Some((source.stopwatch)());
        });
        let _ = request.await;
    }

    async fn request(&self) -> Result<Vec<(Option<String>, VerifyingKey)>, String> {
        #[derive(Deserialize)]
        struct Document {
            issuer: String,
            jwks_uri: String,
        }
        #[derive(Deserialize)]
        struct KeySet {
            keys: Vec<Value>,
        }
        let keys_url = if let Some(url) = &self.provider.keys_url {
            url.clone()
        } else {
            let document: Document = self.get(parsed(&self.provider.document_url())?).await?;
            if document.issuer != self.provider.issuer {
                return Err(format!("the document of the provider names another issuer: {}", document.issuer));
            }
            parsed(&document.jwks_uri)?
        };
        let set: KeySet = self.get(keys_url).await?;
        // A key that cannot be read is one that is not used: providers add new kinds of keys beside the old ones.
        let keys = set.keys.into_iter().filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
        let keys: Vec<_> =
            keys.filter_map(|key| Some((key.common.key_id.clone(), verifying(&key)?))).take(KEYS_MAX).collect();
        if keys.is_empty() { Err("it has no key for signatures that can be used".to_owned()) } else { Ok(keys) }
    }

    async fn get<T: DeserializeOwned>(&self, url: Url) -> Result<T, String> {
        let failed = |error: &reqwest::Error| format!("{url}: {}", crate::client::describe(error));
        let mut answer = self.http.get(url.clone()).send().await.map_err(|error| failed(&error))?;
        if !answer.status().is_success() {
            return Err(format!("{url}: status {}", answer.status().as_u16()));
        }
        let mut body = Vec::new();
        while let Some(bytes) = answer.chunk().await.map_err(|error| failed(&error))? {
            if body.len() + bytes.len() > PROVIDER_DOCUMENT_BYTES_MAX {
                return Err(format!("{url}: more than {PROVIDER_DOCUMENT_BYTES_MAX} bytes"));
            }
            body.extend_from_slice(&bytes);
        }
        serde_json::from_slice(&body).map_err(|error| format!("{url}: {error}"))
    }
}

fn parsed(url: &str) -> Result<Url, String> {
    let url = url.parse::<Url>().map_err(|error| format!("{url}: {error}"))?;
    Provider::check_url(&url).map_err(|error| error.to_string())?;
    Ok(url)
}

/// The key, if signatures can be verified with it. The key alone determines the algorithm, never a token.
fn verifying(key: &Jwk) -> Option<VerifyingKey> {
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
        // Secrets (oct) among them: a published secret is none.
        _ => return None,
    };
    let key = DecodingKey::from_jwk(key).ok().filter(|_| is_for_signatures)?;
    Some(VerifyingKey { key, algorithm })
}

fn client(provider: &Provider) -> Result<reqwest::Client, String> {
    // Only the first call in a process installs the provider of TLS; later calls find it installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("runreel/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .timeout(REQUEST_WAIT_MAX);
    if provider.keys_url.as_ref().map_or(provider.issuer.as_str(), Url::as_str).starts_with("http:") {
        // A machine without certificates can still reach a provider of its own.
        builder = builder.tls_certs_only([]).no_proxy();
    }
    builder.build().map_err(|error| crate::client::describe(&error))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

    use axum::{Json, Router, extract::State, http::StatusCode};
    use serde_json::json;

    use super::*;

    /// A provider that publishes an Ed25519 key under each of some names.
    #[derive(Clone, Default)]
    struct Site {
        issuer: String,
        names: Arc<Mutex<Vec<&'static str>>>,
        requests: Arc<AtomicUsize>,
        is_down: Arc<AtomicBool>,
        /// Of the one who asks.
        now_s: Arc<AtomicU64>,
    }

    impl Site {
        async fn start(names: &[&'static str]) -> (Self, Providers) {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let issuer = format!("http://{}/realm", listener.local_addr().unwrap());
            let site = Self { issuer: issuer.clone(), names: Arc::new(Mutex::new(names.to_vec())), ..Self::default() };
            let router = Router::new()
                .route("/realm/.well-known/openid-configuration", axum::routing::get(document))
                .route("/keys", axum::routing::get(keys))
                .with_state(site.clone());
            tokio::spawn(axum::serve(listener, router).into_future());
            let now_s = Arc::clone(&site.now_s);
            let stopwatch: Stopwatch = Arc::new(move || Duration::from_secs(now_s.load(Ordering::SeqCst)));
            let providers = Providers::new(&[issuer.parse().unwrap()], &stopwatch).unwrap();
            (site, providers)
        }

        fn requests(&self) -> usize {
            self.requests.load(Ordering::SeqCst)
        }

        fn pass(&self, time: Duration) {
            self.now_s.fetch_add(time.as_secs(), Ordering::SeqCst);
        }
    }

    async fn document(State(site): State<Site>) -> Json<Value> {
        let origin = site.issuer.trim_end_matches("/realm");
        Json(json!({ "issuer": site.issuer, "jwks_uri": format!("{origin}/keys") }))
    }

    async fn keys(State(site): State<Site>) -> Result<Json<Value>, StatusCode> {
        site.requests.fetch_add(1, Ordering::SeqCst);
        if site.is_down.load(Ordering::SeqCst) {
            return Err(StatusCode::BAD_GATEWAY);
        }
        let names = site.names.lock().unwrap().clone();
        let keys = names.into_iter().map(|name| json!({ "kty": "OKP", "crv": "Ed25519", "x": X, "kid": name }));
        Ok(Json(json!({ "keys": keys.collect::<Vec<_>>() })))
    }

    const X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

    async fn ask(providers: &Providers, site: &Site, kid: &str) -> Result<(), String> {
        let key = providers.key(&site.issuer, Some(kid), Algorithm::EdDSA).await;
        key.map(drop).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn keys_are_requested_once_and_again_for_an_unknown_one_after_a_pause() {
        let (site, providers) = Site::start(&["a"]).await;
        let asking = (0..50).map(|_| ask(&providers, &site, "a"));
        assert!(futures::future::join_all(asking).await.iter().all(Result::is_ok));
        assert_eq!(site.requests(), 1);
        *site.names.lock().unwrap() = vec!["b"];
        for _ in 0..50 {
            ask(&providers, &site, "b").await.unwrap_err();
        }
        assert_eq!(site.requests(), 1, "whoever sends tokens does not decide how often");
        site.pass(PAUSE);
        ask(&providers, &site, "b").await.unwrap();
        ask(&providers, &site, "a").await.unwrap_err();
        assert_eq!(site.requests(), 2);
    }

    #[tokio::test]
    async fn known_keys_outlast_a_provider_that_is_away_and_not_for_ever() {
        let (site, providers) = Site::start(&["a"]).await;
        site.is_down.store(true, Ordering::SeqCst);
        assert!(matches!(
            providers.key(&site.issuer, Some("a"), Algorithm::EdDSA).await,
            Err(Error::ProviderUnavailable)
        ));
        site.is_down.store(false, Ordering::SeqCst);
        site.pass(PAUSE);
        ask(&providers, &site, "a").await.unwrap();
        site.is_down.store(true, Ordering::SeqCst);
        site.pass(REQUESTED_AFTER);
        ask(&providers, &site, "a").await.unwrap();
        assert_eq!(site.requests(), 3);
        site.pass(KEPT);
        ask(&providers, &site, "a").await.unwrap_err();
    }

    #[tokio::test]
    async fn a_token_without_a_key_id_fits_the_only_key() {
        let (site, providers) = Site::start(&["a"]).await;
        assert!(providers.key(&site.issuer, None, Algorithm::EdDSA).await.is_ok());
        assert!(providers.key(&site.issuer, None, Algorithm::RS256).await.is_err());
        *site.names.lock().unwrap() = vec!["a", "b"];
        site.pass(REQUESTED_AFTER);
        assert!(providers.key(&site.issuer, None, Algorithm::EdDSA).await.is_err());
    }

    #[test]
    fn a_key_determines_its_algorithm_and_a_secret_is_no_key() {
        let algorithm = |key: Value| verifying(&serde_json::from_value(key).ok()?).map(|key| key.algorithm);
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
        for key in [
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
