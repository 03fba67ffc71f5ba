//! What the server says of itself and of the one who asks.

use serde_json::json;

use crate::support::server::{Server, manual_clock, setup};

#[tokio::test]
async fn the_server_says_its_version_who_asks_and_how_long_runs_stay() {
    let clock = manual_clock();
    let config = "[[retention]]\nagent = \"a\"\ntag = \"t\"\nrun_ttl = \"1h\"\n";
    let server = setup().jwt().clock(&clock).config(config).flags(&["--run-ttl", "30d"]).start().await;
    let ann = server.as_subject("ann");
    let said = ann.get("/api/server").await.expect(200);
    assert_eq!(said["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(said["now"], runreel::domain::event::timestamp(clock.now()));
    let owner = server.inner.authenticator.owner("", "ann");
    assert_eq!(
        (&said["principal"]["owner_id"], &said["principal"]["scopes"], &said["principal"]["is_authenticated"]),
        (&json!(owner.as_str()), &json!(["admin"]), &json!(true))
    );
    assert_eq!(
        said["retention"],
        json!({ "run_ttl_s": 2_592_000, "rules": [{ "agent": "a", "tag": "t", "ttl_s": 3_600 }] })
    );
    let token = ann.post("/api/tokens", json!({ "name": "t", "scopes": ["read"] })).await.expect(201);
    let reader = server.with(token["token"].as_str().unwrap());
    assert_eq!(reader.get("/api/server").await.expect(200)["principal"]["scopes"], json!(["read"]));
}

#[tokio::test]
async fn without_authentication_runs_stay_for_ever_and_belong_to_the_local_principal() {
    let server = Server::start().await;
    let said = server.get("/api/server").await.expect(200);
    assert_eq!(said["principal"]["is_authenticated"], false);
    assert_eq!(said["principal"]["expires_at"], json!(null));
    assert_eq!(said["retention"], json!({ "run_ttl_s": null, "rules": [] }));
}
