//! Tokens of identity providers: whose runs they see, and what is refused.

use chrono::DateTime;
use jsonwebtoken::{EncodingKey, Header, encode};
use runreel::{clock::Clock, domain::limits::JWT_LEEWAY_S};
use serde_json::{Value, json};

use crate::support::{
    api::{Api, stream_of},
    jwt::signed,
    provider::{Key, Provider, unsigned},
    runs::numbered,
    server::{JWT_SECRET, Server, Setup, setup},
};

fn believing(provider: &Provider) -> Setup {
    setup().jwt().flags(&["--jwt-provider", &provider.issuer, "--jwt-audience", "runreel"])
}

fn subject(server: &Server, provider: &Provider, key: &Key, subject: &str) -> Api {
    server.with(key.sign("k", &provider.claims(subject, server.clock.now().timestamp())))
}

fn and(mut claims: Value, more: &Value) -> Value {
    claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    claims
}

#[tokio::test]
async fn a_provider_says_who_one_is_beside_the_servers_own_secret() {
    for key in [Key::ed25519(), Key::p256()] {
        let provider = Provider::start(&[("k", &key)]).await;
        let server = believing(&provider).start().await;
        let alice = subject(&server, &provider, &key, "alice");
        let run = alice.start_run().await;
        assert_eq!(alice.run(&run).await["status"], "running");
        // The same name from somebody else is somebody else.
        let exp = server.clock.now().timestamp() + 60;
        let namesake = server.with(signed(&json!({ "sub": "alice", "aud": "runreel", "exp": exp })));
        namesake.get(&format!("/api/runs/{run}")).await.refused(404, "not_found");
    }
}

#[tokio::test]
async fn what_the_provider_did_not_sign_for_this_server_is_refused() {
    let (key, other) = (Key::p256(), Key::p256());
    let provider = Provider::start(&[("k", &key)]).await;
    let elsewhere = Provider::start(&[("k", &other)]).await;
    let server = believing(&provider).start().await;
    let now = server.clock.now().timestamp();
    let claims = provider.claims("alice", now);
    let confused = |algorithm: &str, secret: &[u8]| {
        let header: Header = serde_json::from_value(json!({ "alg": algorithm, "kid": "k" })).unwrap();
        encode(&header, &claims, &EncodingKey::from_secret(secret)).unwrap()
    };
    let without = |name: &str| {
        let mut claims = claims.clone();
        claims.as_object_mut().unwrap().remove(name);
        claims
    };
    let none = unsigned(&json!({ "alg": "none", "kid": "k" }), &claims);
    for (what, token) in [
        ("another key under its id", other.sign("k", &claims)),
        ("an unknown key id", key.sign("z", &claims)),
        ("another audience", key.sign("k", &and(claims.clone(), &json!({ "aud": "billing" })))),
        ("no audience", key.sign("k", &without("aud"))),
        ("no subject", key.sign("k", &without("sub"))),
        ("no expiry", key.sign("k", &without("exp"))),
        ("no issuer", key.sign("k", &without("iss"))),
        ("expired", key.sign("k", &and(claims.clone(), &json!({ "exp": now - 60 })))),
        ("not valid yet", key.sign("k", &and(claims.clone(), &json!({ "nbf": now + 60 })))),
        ("another provider", other.sign("k", &elsewhere.claims("alice", now))),
        ("the public key as a secret", confused("HS256", key.public())),
        ("the server's secret in the provider's name", confused("HS256", JWT_SECRET)),
        ("no signature", format!("{none}.")),
    ] {
        let reply = server.with(token).get("/api/runs").await;
        assert_eq!(reply.status, 401, "{what}: {}", reply.text);
    }
}

/// RFC 8725 §3.10: neither a key in a token nor an address of one is believed, and a key id is looked up and nothing else.
#[tokio::test]
async fn a_token_that_brings_its_own_key_is_refused_and_nobody_is_asked_for_it() {
    let (key, other) = (Key::p256(), Key::p256());
    let provider = Provider::start(&[("k", &key)]).await;
    let server = believing(&provider).start().await;
    let claims = provider.claims("alice", server.clock.now().timestamp());
    let asked = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    asked.set_nonblocking(true).unwrap();
    let url = format!("http://{}/keys", asked.local_addr().unwrap());
    for header in [
        json!({ "kid": "k", "jwk": other.published("k") }),
        json!({ "jwk": other.published("k") }),
        json!({ "kid": "k", "jku": url }),
        json!({ "kid": url, "jku": url }),
        json!({ "kid": "k", "x5u": url }),
        json!({ "kid": "k", "x5c": ["MIIB"] }),
        json!({ "kid": "" }),
        json!({ "kid": "../../../../dev/null" }),
        json!({ "kid": "/dev/null" }),
        json!({ "kid": "z' or '1'='1" }),
        json!({ "kid": "k\u{0}" }),
        json!({ "kid": "k\r\nx: y" }),
        json!({ "kid": "k".repeat(4_000) }),
        json!({ "kid": 7 }),
        json!({ "kid": ["k"] }),
    ] {
        let reply = server.with(other.sign_with(header.clone(), &claims)).get("/api/runs").await;
        assert_eq!(reply.status, 401, "{header}: {}", reply.text);
    }
    assert_eq!(asked.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "a token sent the server somewhere");
    assert_eq!(server.with(key.sign("k", &claims)).get("/api/runs").await.status, 200);
}

#[tokio::test]
async fn a_stream_ends_when_a_providers_token_expires() {
    let now = DateTime::from_timestamp(Clock::System.now().timestamp(), 0).unwrap();
    let key = Key::ed25519();
    let provider = Provider::start(&[("k", &key)]).await;
    let server = believing(&provider).clock(&Clock::manual(now)).start().await;
    let alice = subject(&server, &provider, &key, "alice");
    let run = alice.start_run().await;
    let exp = now.timestamp() + 1 - i64::try_from(JWT_LEEWAY_S).unwrap();
    let brief = and(provider.claims("alice", now.timestamp()), &json!({ "exp": exp }));
    let mut stream = server.with(key.sign("k", &brief)).stream(&stream_of(&run)).await;
    stream.caught_up().await;
    server.pass(std::time::Duration::from_secs(1));
    assert_eq!(stream.rest().await, []);
    alice.emit(&run, numbered(1)).await;
}

#[tokio::test]
async fn the_members_of_a_team_see_the_same_runs_each_in_their_role() {
    let key = Key::ed25519();
    let provider = Provider::start(&[("k", &key)]).await;
    let claims = ["--jwt-team-claim", "org_id", "--jwt-role-claim", "roles"];
    let server = believing(&provider).flags(&claims).start().await;
    let member = |subject: &str, more: Value| {
        let claims = provider.claims(subject, server.clock.now().timestamp());
        server.with(key.sign("k", &and(claims, &more)))
    };
    let owner = member("alice", json!({ "org_id": "acme", "roles": ["billing", "owner"] }));
    let reader = member("bob", json!({ "org_id": "acme", "roles": "reader" }));
    let admin = member("carol", json!({ "org_id": "acme", "roles": ["reader", "admin"] }));
    let stranger = member("dave", json!({ "org_id": "other", "roles": "admin" }));
    let alone = member("acme", json!({ "roles": "admin" }));
    let run = owner.start_run().await;
    let path = format!("/api/runs/{run}");
    for caller in [&owner, &reader, &admin] {
        caller.get(&path).await.expect(200);
    }
    for caller in [&stranger, &alone] {
        caller.get(&path).await.refused(404, "not_found");
    }
    reader.post(&format!("{path}/events"), json!({ "type": "log.info" })).await.refused(403, "forbidden");
    owner.post(&format!("{path}/events"), json!({ "type": "run.completed" })).await.expect(200);
    owner.delete(&path).await.refused(403, "forbidden");
    admin.delete(&path).await.expect(204);
    member("eve", json!({ "org_id": "acme", "roles": ["billing"] })).get(&path).await.refused(401, "unauthorized");
    member("eve", json!({ "org_id": 7, "roles": "admin" })).get(&path).await.refused(401, "unauthorized");
}

#[tokio::test]
async fn a_providers_token_is_stored_nowhere() {
    let key = Key::p256();
    let provider = Provider::start(&[("k", &key)]).await;
    let server = believing(&provider).start().await;
    let alice = subject(&server, &provider, &key, "alice");
    let run = alice.start_run().await;
    let other = key.sign("k", &provider.claims("bob", 0));
    let event = json!({ "type": "log.info", "payload": { "header": format!("Bearer {other}") } });
    alice.post(&format!("/api/runs/{run}/events"), event).await.refused(400, "credential_in_body");
}

#[tokio::test]
async fn a_provider_that_was_never_reached_is_an_outage_and_no_refusal() {
    let key = Key::ed25519();
    let provider = Provider::away();
    let server = believing(&provider).start().await;
    let reply = subject(&server, &provider, &key, "alice").get("/api/runs").await;
    reply.refused(503, "provider_unavailable");
    assert_eq!(reply.headers["retry-after"], "10");
    // The server's own tokens go on.
    let exp = server.clock.now().timestamp() + 60;
    server.with(signed(&json!({ "sub": "bob", "aud": "runreel", "exp": exp }))).get("/api/runs").await.expect(200);
}

#[tokio::test]
async fn a_server_may_have_providers_alone() {
    let key = Key::ed25519();
    let provider = Provider::start(&[("k", &key)]).await;
    let flags = ["--auth", "jwt", "--jwt-provider", &provider.issuer, "--jwt-audience", "runreel"];
    let server = setup().flags(&flags).start().await;
    subject(&server, &provider, &key, "alice").get("/api/runs").await.expect(200);
    let exp = server.clock.now().timestamp() + 60;
    server
        .with(signed(&json!({ "sub": "bob", "aud": "runreel", "exp": exp })))
        .get("/api/runs")
        .await
        .refused(401, "unauthorized");
}
