//! Tokens and keys as identity providers make them: every spelling that the standards admit is understood.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use serde_json::{Value, json};

use crate::support::{
    api::{Api, Reply},
    jwt::signed,
    provider::{Key, Provider},
    server::{Server, Setup, setup},
    shared::shared,
};

fn believing(provider: &Provider) -> Setup {
    setup().jwt().flags(&["--jwt-provider", &provider.issuer, "--jwt-audience", "runreel"])
}

/// The claims of a subject with these changed.
fn claims(server: &Server, provider: &Provider, more: &Value) -> Value {
    let mut claims = provider.claims("alice", server.clock.now().timestamp());
    claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    claims
}

async fn ask(server: &Api, token: String) -> Reply {
    server.with(token).get("/api/runs").await
}

/// RFC 7519, 2: a `NumericDate` may have a fraction (int128/kubelogin#1653, emqx/emqx#8825).
#[tokio::test]
async fn times_may_have_fractions() {
    let key = Key::ed25519();
    let provider = Provider::start(&[("k", &key)]).await;
    let server = believing(&provider).start().await;
    let now = f64::from(u32::try_from(server.clock.now().timestamp()).unwrap());
    for (more, status) in [
        (json!({ "exp": now + 60.25 }), 200),
        (json!({ "exp": now + 60.0, "nbf": now - 0.5, "iat": now - 0.75 }), 200),
        (json!({ "nbf": -1, "iat": -1.5 }), 200),
        (json!({ "iat": 1e300 }), 200),
        (json!({ "exp": now - 60.25 }), 401),
        (json!({ "exp": -0.5 }), 401),
        (json!({ "exp": 1e300 }), 401),
        (json!({ "exp": -1e300 }), 401),
        (json!({ "nbf": now + 60.5 }), 401),
        (json!({ "nbf": 1e300 }), 401),
        (json!({ "exp": null }), 401),
    ] {
        let claims = claims(&server, &provider, &more);
        let reply = ask(&server, key.sign("k", &claims)).await;
        assert_eq!(reply.status, status, "{more}: {}", reply.text);
        // The same by the server's own secret.
        let mut own = claims.clone();
        own.as_object_mut().unwrap().remove("iss");
        assert_eq!(ask(&server, signed(&own)).await.status, status, "{more}");
    }
}

/// RFC 9864: `Ed25519` is what `EdDSA` was for a key of that curve (PrefectHQ/fastmcp#4752).
#[tokio::test]
async fn ed25519_has_two_names_in_keys_and_in_tokens() {
    let (key, other) = (Key::ed25519(), Key::p256());
    let provider = Provider::start(&[]).await;
    let named = |alg: &str| {
        let mut published = key.published("k");
        published["alg"] = json!(alg);
        published
    };
    for published in [named("Ed25519"), named("EdDSA"), key.published("k")] {
        provider.publish([published.clone(), other.published("p")]);
        // Each set is read by a server of its own.
        let server = believing(&provider).start().await;
        let claims = claims(&server, &provider, &json!({}));
        for alg in ["Ed25519", "EdDSA"] {
            let reply = ask(&server, key.sign_with(json!({ "kid": "k", "alg": alg }), &claims)).await;
            assert_eq!(reply.status, 200, "{published} {alg}: {}", reply.text);
        }
        for header in [
            json!({ "kid": "k", "alg": "ES256" }),
            json!({ "kid": "k", "alg": "Ed448" }),
            json!({ "kid": "k", "alg": "ed25519" }),
            json!({ "kid": "k", "alg": "none" }),
            json!({ "kid": "k", "alg": ["EdDSA"] }),
            json!({ "kid": "p", "alg": "Ed25519" }),
        ] {
            assert_eq!(ask(&server, key.sign_with(header.clone(), &claims)).await.status, 401, "{header}");
        }
    }
}

#[tokio::test]
async fn keys_that_cannot_be_used_do_not_spoil_the_others_and_all_with_one_id_are_tried() {
    let (key, twin, foreign) = (Key::p256(), Key::p256(), Key::p256());
    let provider = Provider::start(&[]).await;
    provider.publish([
        json!({ "kty": "AKP", "alg": "ML-DSA-65", "pub": "AAAA", "kid": "k" }),
        json!({ "kty": "RSA", "x5c": ["MIIB"], "kid": "k" }),
        json!("no key"),
        twin.published("k"),
        key.published("k"),
    ]);
    let server = believing(&provider).start().await;
    let claims = claims(&server, &provider, &json!({ "aud": ["billing", "runreel"] }));
    for (key, status) in [(&key, 200), (&twin, 200), (&foreign, 401)] {
        let reply = ask(&server, key.sign("k", &claims)).await;
        assert_eq!(reply.status, status, "{}", reply.text);
    }
}

/// Keycloak names roles in `realm_access.roles`, others in claims that are URLs.
#[tokio::test]
async fn roles_and_teams_may_be_inside_other_claims() {
    let key = Key::ed25519();
    let provider = Provider::start(&[("k", &key)]).await;
    for (role_claim, roles) in [
        ("realm_access.roles", json!({ "realm_access": { "roles": ["offline_access", "reader"] } })),
        ("resource_access.my.client.roles", json!({ "resource_access": { "my.client": { "roles": ["reader"] } } })),
        ("https://app.example/roles", json!({ "https://app.example/roles": "reader" })),
        // The name itself comes first.
        ("a.b", json!({ "a.b": "reader", "a": { "b": "admin" } })),
    ] {
        let flags = ["--jwt-role-claim", role_claim, "--jwt-team-claim", "org.id"];
        let server = believing(&provider).flags(&flags).start().await;
        let member = |more: Value| -> Api { server.with(key.sign("k", &claims(&server, &provider, &more))) };
        let mut named = roles.clone();
        named["org"] = json!({ "id": null });
        let reader = member(named);
        reader.get("/api/runs").await.expect(200);
        reader.post("/api/runs", json!({})).await.refused(403, "forbidden");
        member(json!({ "a": 7, "realm_access": ["admin"] })).get("/api/runs").await.refused(401, "unauthorized");
    }
}

#[tokio::test]
async fn a_team_that_is_null_is_none() {
    let key = Key::ed25519();
    let provider = Provider::start(&[("k", &key)]).await;
    let server = believing(&provider).flags(&["--jwt-team-claim", "org_id"]).start().await;
    let member = |more: Value| server.with(key.sign("k", &claims(&server, &provider, &more)));
    let alone = member(json!({ "org_id": null }));
    let run = alone.start_run().await;
    member(json!({})).get(&format!("/api/runs/{run}")).await.expect(200);
    member(json!({ "org_id": "null" })).get(&format!("/api/runs/{run}")).await.refused(404, "not_found");
}

/// Such a credential would not be found in a body, which must not hold one.
#[tokio::test]
async fn a_token_whose_header_does_not_begin_like_one_is_refused() {
    let key = Key::ed25519();
    let provider = Provider::start(&[("k", &key)]).await;
    let server = believing(&provider).start().await;
    let claims = claims(&server, &provider, &json!({})).to_string();
    for (header, status) in [
        (r#"{"alg":"EdDSA","kid":"k"}"#, 200),
        (r#"{"alg" : "EdDSA", "kid" : "k" }"#, 200),
        (r#"{ "alg":"EdDSA","kid":"k"}"#, 401),
        (r#" {"alg":"EdDSA","kid":"k"}"#, 401),
        ("{\n\"alg\":\"EdDSA\",\"kid\":\"k\"}", 401),
        ("{\t\"alg\":\"EdDSA\",\"kid\":\"k\"}", 401),
        (r#"["EdDSA","k"]"#, 401),
    ] {
        let token = key.sign_text(&[header, &claims].map(|part| BASE64.encode(part)).join("."));
        let reply = ask(&server, token.clone()).await;
        assert_eq!(reply.status, status, "{header}: {}", reply.text);
    }
}

#[tokio::test]
async fn of_two_credentials_none_is_believed() {
    let server = shared().await;
    let alice = server.as_subject("alice");
    let token = alice.token.clone().unwrap();
    for second in [format!("Bearer {token}"), "Bearer x".to_owned(), String::new()] {
        let request = alice.request(reqwest::Method::GET, "/api/runs").header("authorization", second);
        alice.send(request).await.refused(400, "invalid_request");
    }
    alice.get("/api/runs").await.expect(200);
}
