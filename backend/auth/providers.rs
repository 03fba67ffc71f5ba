//! Identity providers: whose tokens are accepted, and where their keys come from (`OpenID` Connect Discovery 1.0, 4;
//! RFC 7517, 5).
//!
//! A token never determines which address is requested: addresses are configured, or come from the discovery document
//! of the configured issuer.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::join_all;
use jsonwebtoken::Algorithm;
use reqwest::Url;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    Error,
    keys::{Keys, VerifyingKey},
};
use crate::{
    clock::Stopwatch,
    config::Provider,
    domain::limits::{PROVIDER_DOCUMENT_BYTES_MAX, PROVIDER_PAUSE_S},
};

/// How often the keys' age is checked, and the age at which they are requested again: a key that its provider withdraws
/// is refused after at most ten minutes, and no request waits for the refresh.
const CHECK_EVERY: Duration = Duration::from_mins(1);
const REQUESTED_AFTER: Duration = Duration::from_mins(9);
/// Older keys are no longer used, even if they cannot be requested again.
const KEPT: Duration = Duration::from_hours(24);
const PAUSE: Duration = Duration::from_secs(PROVIDER_PAUSE_S as u64);
const REQUEST_WAIT_MAX: Duration = Duration::from_secs(5);

/// A provider with its last known keys.
struct Source {
    provider: Provider,
    http: reqwest::Client,
    stopwatch: Stopwatch,
    keys: Mutex<Option<Arc<Keys>>>,
    /// When the last request ended. Locked during a request, so that there is one at a time.
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
    /// Sends no request yet.
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

    /// The keys that may have signed a token of this issuer. Waits for a request only if they are unknown.
    pub(super) async fn keys(
        &self,
        issuer: &str,
        kid: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Vec<VerifyingKey>, Error> {
        let source = self.sources.get(issuer).ok_or(Error::Invalid("the token's issuer is not one of this server"))?;
        source.keys(kid, algorithm).await
    }

    /// Refreshes keys that are in use, until `stop`.
    pub(super) async fn keep_fresh(&self, stop: CancellationToken) {
        let work = async {
            loop {
                tokio::time::sleep(CHECK_EVERY).await;
                self.renew_old().await;
            }
        };
        stop.run_until_cancelled(work).await;
    }

    async fn renew_old(&self) {
        let old = async |source: &Arc<Source>| {
            let now = (source.stopwatch)();
            let at = source.known().map(|keys| keys.at).filter(|at| now.saturating_sub(*at) >= REQUESTED_AFTER);
            if at.is_some() {
                source.renew(at).await;
            }
        };
        join_all(self.sources.values().map(old)).await;
    }
}

impl Source {
    fn known(&self) -> Option<Arc<Keys>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The last known keys, unless they are older than [`KEPT`].
    fn usable(&self) -> Option<Arc<Keys>> {
        let now = (self.stopwatch)();
        self.known().filter(|keys| now.saturating_sub(keys.at) < KEPT)
    }

    async fn keys(self: &Arc<Self>, kid: Option<&str>, algorithm: Algorithm) -> Result<Vec<VerifyingKey>, Error> {
        let seen = self.known().map(|keys| keys.at);
        let found = self.usable().map(|keys| keys.find(kid, algorithm));
        if let Some(found) = found.filter(|found| !found.is_empty()) {
            return Ok(found);
        }
        self.renew(seen).await;
        let found = self.usable().ok_or(Error::ProviderUnavailable)?.find(kid, algorithm);
        if found.is_empty() {
            return Err(Error::Invalid("the token is signed with a key that its issuer does not publish"));
        }
        Ok(found)
    }

    /// Requests the keys unless that was done within [`PAUSE`] or since `seen`. Concurrent callers wait for the same
    /// request, which continues even if all of them are dropped.
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
                Ok(keys) => *source.keys.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(keys)),
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

    async fn request(&self) -> Result<Keys, String> {
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
        let keys = Keys::of(set.keys, (self.stopwatch)());
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

fn client(provider: &Provider) -> Result<reqwest::Client, String> {
    // Only the first call in a process installs the provider of TLS; later calls find it installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("runreel/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .timeout(REQUEST_WAIT_MAX);
    if provider.keys_url.as_ref().map_or(provider.issuer.as_str(), Url::as_str).starts_with("http:") {
        // A machine without certificates must still be able to reach a plain HTTP provider.
        builder = builder.tls_certs_only([]).no_proxy();
    }
    builder.build().map_err(|error| crate::client::describe(&error))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

    use axum::{Json, Router, extract::State, http::StatusCode};
    use futures::FutureExt as _;
    use serde_json::json;

    use super::*;

    /// A provider that publishes an Ed25519 key under each of these key ids.
    #[derive(Clone, Default)]
    struct Site {
        issuer: String,
        names: Arc<Mutex<Vec<&'static str>>>,
        requests: Arc<AtomicUsize>,
        is_down: Arc<AtomicBool>,
        is_silent: Arc<AtomicBool>,
        /// The verifier's clock.
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
        if site.is_silent.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        let names = site.names.lock().unwrap().clone();
        let keys = names.into_iter().map(|name| json!({ "kty": "OKP", "crv": "Ed25519", "x": X, "kid": name }));
        Ok(Json(json!({ "keys": keys.collect::<Vec<_>>() })))
    }

    const X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

    async fn ask(providers: &Providers, site: &Site, kid: &str) -> Result<(), String> {
        let keys = providers.keys(&site.issuer, Some(kid), Algorithm::EdDSA).await;
        keys.map(drop).map_err(|error| error.to_string())
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
            providers.keys(&site.issuer, Some("a"), Algorithm::EdDSA).await,
            Err(Error::ProviderUnavailable)
        ));
        site.is_down.store(false, Ordering::SeqCst);
        site.pass(PAUSE);
        ask(&providers, &site, "a").await.unwrap();
        site.is_down.store(true, Ordering::SeqCst);
        site.pass(REQUESTED_AFTER);
        providers.renew_old().await;
        ask(&providers, &site, "a").await.unwrap();
        assert_eq!(site.requests(), 3);
        site.pass(KEPT);
        ask(&providers, &site, "a").await.unwrap_err();
    }

    #[tokio::test]
    async fn keys_that_are_known_are_used_at_once_while_their_provider_is_silent() {
        let (site, providers) = Site::start(&["a"]).await;
        ask(&providers, &site, "a").await.unwrap();
        site.is_silent.store(true, Ordering::SeqCst);
        site.pass(REQUESTED_AFTER);
        let mut renewal = Box::pin(providers.renew_old());
        while site.requests() < 2 {
            assert!(futures::poll!(&mut renewal).is_pending());
            tokio::task::yield_now().await;
        }
        for _ in 0..3 {
            ask(&providers, &site, "a").now_or_never().expect("nobody waits").unwrap();
            site.pass(PAUSE);
        }
    }

    #[tokio::test]
    async fn a_key_that_is_withdrawn_is_not_used_once_the_keys_were_read_again() {
        let (site, providers) = Site::start(&["a"]).await;
        ask(&providers, &site, "a").await.unwrap();
        *site.names.lock().unwrap() = vec!["b"];
        providers.renew_old().await;
        assert_eq!(site.requests(), 1, "they are not old");
        site.pass(REQUESTED_AFTER);
        providers.renew_old().await;
        ask(&providers, &site, "a").await.unwrap_err();
        ask(&providers, &site, "b").await.unwrap();
        assert_eq!(site.requests(), 2);
    }

    #[tokio::test]
    async fn a_token_without_a_key_id_fits_the_only_key() {
        let (site, providers) = Site::start(&["a"]).await;
        assert!(providers.keys(&site.issuer, None, Algorithm::EdDSA).await.is_ok());
        assert!(providers.keys(&site.issuer, None, Algorithm::RS256).await.is_err());
        *site.names.lock().unwrap() = vec!["a", "b"];
        site.pass(REQUESTED_AFTER);
        providers.renew_old().await;
        assert!(providers.keys(&site.issuer, None, Algorithm::EdDSA).await.is_err());
    }

    #[tokio::test]
    async fn all_keys_with_one_id_are_tried() {
        let (site, providers) = Site::start(&["a", "a"]).await;
        assert_eq!(providers.keys(&site.issuer, Some("a"), Algorithm::EdDSA).await.unwrap().len(), 2);
    }
}
