//! Tokens of an identity provider that is not ours: `oauth2-mock-server` from npm. `./just peers` installs it.

use std::{path::Path, process::Stdio};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use chrono::TimeDelta;
use jsonwebtoken::{EncodingKey, Header, encode};
use runreel::clock::Clock;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::support::{
    api::{Api, stream_of},
    cluster::Db,
    page::{blocks, serving, task},
    patiently,
    server::{Server, setup},
    until,
};

struct Provider {
    issuer: String,
    orders: ChildStdin,
    tokens: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Provider {
    async fn start() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers");
        assert!(folder.join("node_modules").exists(), "the identity provider is not installed: run ./just peers");
        let mut node = Command::new("node");
        let node =
            node.arg(folder.join("identity.mjs")).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = node.spawn().unwrap();
        let (orders, tokens) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut tokens = BufReader::new(tokens).lines();
        let issuer = patiently("the issuer", tokens.next_line()).await.unwrap().unwrap();
        Self { issuer, orders, tokens, _child: child }
    }

    /// A token for `alice`, if nothing else is ordered.
    async fn token(&mut self, mut order: Value) -> String {
        let mut payload = json!({ "sub": "alice", "aud": "runreel" });
        payload.as_object_mut().unwrap().extend(order["payload"].as_object().cloned().unwrap_or_default());
        order["payload"] = payload;
        self.orders.write_all(format!("{order}\n").as_bytes()).await.unwrap();
        patiently("a token", self.tokens.next_line()).await.unwrap().unwrap()
    }

    async fn server(&self, clock: &Clock) -> Server {
        let flags = ["--auth", "jwt", "--jwt-provider", &self.issuer, "--jwt-audience", "runreel"];
        setup().clock(clock).flags(&flags).start().await
    }
}

#[tokio::test]
async fn a_real_providers_tokens_of_every_family_are_accepted_and_what_is_wrong_with_one_is_seen() {
    let mut provider = Provider::start().await;
    let mut good = Vec::new();
    for algorithm in ["RS256", "PS256", "ES256", "EdDSA"] {
        good.push(provider.token(json!({ "generate": algorithm, "kid": algorithm })).await);
    }
    let server = provider.server(&Clock::System).await;
    for token in good {
        server.with(token).get("/api/runs").await.expect(200);
    }
    for (what, order) in [
        ("a key id that the provider does not have", json!({ "kid": "RS256", "header": { "kid": "gone" } })),
        ("the id of another key", json!({ "kid": "RS256", "header": { "kid": "ES256" } })),
        ("another audience", json!({ "kid": "RS256", "payload": { "aud": "billing" } })),
        ("another issuer", json!({ "kid": "RS256", "payload": { "iss": "https://id.example" } })),
        ("no subject", json!({ "kid": "RS256", "payload": { "sub": null } })),
        ("the past", json!({ "kid": "RS256", "expires_in": -60 })),
    ] {
        let token = provider.token(order).await;
        let reply = server.with(token).get("/api/runs").await;
        assert_eq!(reply.status, 401, "{what}: {}", reply.text);
    }
    // What everybody may read is no secret to sign with.
    let published = reqwest::get(format!("{}/jwks", provider.issuer)).await.unwrap().text().await.unwrap();
    let published: Value = serde_json::from_str(&published).unwrap();
    let modulus = published["keys"][0]["n"].as_str().unwrap();
    let claims = json!({ "iss": provider.issuer, "aud": "runreel", "sub": "alice", "exp": 4_000_000_000_u64 });
    let header: Header = serde_json::from_value(json!({ "alg": "HS256", "kid": "RS256" })).unwrap();
    for secret in [modulus.as_bytes().to_vec(), BASE64.decode(modulus).unwrap()] {
        let token = encode(&header, &claims, &EncodingKey::from_secret(&secret)).unwrap();
        server.with(token).get("/api/runs").await.refused(401, "unauthorized");
    }
}

#[tokio::test]
async fn a_key_that_the_provider_adds_is_accepted_without_a_restart() {
    let mut provider = Provider::start().await;
    let old = provider.token(json!({ "generate": "RS256", "kid": "old" })).await;
    let server = provider.server(&Clock::System).await;
    server.with(&old).get("/api/runs").await.expect(200);
    let new = server.with(provider.token(json!({ "generate": "RS256", "kid": "new" })).await);
    // The provider is asked at most once in ten seconds.
    until("the new key to be known", || async { new.get("/api/runs").await.status == 200 }).await;
    server.with(old).get("/api/runs").await.expect(200);
}

#[tokio::test]
async fn a_stream_ends_when_a_real_providers_token_expires() {
    let mut provider = Provider::start().await;
    let clock = Clock::manual(Clock::System.now());
    let server = provider.server(&clock).await;
    let alice = server.with(provider.token(json!({ "generate": "RS256", "kid": "k" })).await);
    let run = alice.start_run().await;
    let mut stream = alice.stream(&stream_of(&run)).await;
    stream.caught_up().await;
    server.pass(TimeDelta::minutes(61).to_std().unwrap());
    assert_eq!(stream.rest().await, []);
    alice.no_stream(&stream_of(&run), None).await.refused(401, "unauthorized");
}

#[tokio::test]
async fn with_the_flags_of_its_page_a_team_sees_its_runs_and_a_reader_only_reads() {
    let mut provider = Provider::start().await;
    let mut token = async |payload: Value| provider.token(json!({ "generate": "ES256", "payload": payload })).await;
    let alice = token(json!({ "org_id": "acme", "roles": ["owner"] })).await;
    let bob = token(json!({ "sub": "bob", "org_id": "acme", "roles": ["reader"] })).await;
    let carol = token(json!({ "sub": "carol", "org_id": "other", "roles": ["owner"] })).await;
    let db = Db::new().await;
    let issued = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(db.data.path().join("cert.pem"), issued.cert.pem()).unwrap();
    std::fs::write(db.data.path().join("key.pem"), issued.signing_key.serialize_pem()).unwrap();
    let block = blocks(&task("identity-provider"), "sh")[0].replace("https://id.example", &provider.issuer);
    let process =
        serving(&block, |command| _ = command.env("DATABASE_URL", db.url()).current_dir(db.data.path())).await;
    let certificate = reqwest::Certificate::from_pem(issued.cert.pem().as_bytes()).unwrap();
    let http = reqwest::Client::builder().no_proxy().tls_certs_only([certificate]).build().unwrap();
    let server = Api { http, ..Api::new(process.base.clone()) };
    let run = server.with(alice).start_run().await;
    assert_eq!(server.with(&bob).run(&run).await["status"], "running");
    server.with(&bob).try_emit(&run, json!([{ "type": "log.info" }])).await.refused(403, "forbidden");
    server.with(carol).get(&format!("/api/runs/{run}")).await.refused(404, "not_found");
}
