//! Builds without one of cargo's features: whoever asks for what is missing learns which build contains it.

use crate::support::process::{program, run};

/// What a command says that must fail.
#[cfg(not(all(feature = "agents", feature = "demo")))]
async fn refused(words: &[&str]) -> String {
    let said = run(program(words), "").await;
    assert_ne!(said.code, Some(0), "{}", said.stdout);
    said.stderr
}

#[cfg(not(feature = "demo"))]
#[tokio::test]
async fn a_build_without_the_demo_names_the_feature_that_contains_it() {
    let said = refused(&["demo", "--exit"]).await;
    assert!(said.contains("feature `demo`"), "{said}");
}

#[cfg(not(feature = "agents"))]
#[tokio::test]
async fn a_build_without_agents_refuses_a_providers_model_and_an_endpoint_when_it_starts() {
    let db = crate::support::cluster::Db::new().await;
    let config = db.artifacts.path().join("runreel.toml");
    for agent in ["model = \"ollama:small\"", "kind = \"agui\"\nurl = \"http://127.0.0.1:9/\""] {
        std::fs::write(&config, format!("[agents.writer]\n{agent}\n")).unwrap();
        let words = ["serve", "--listen", "127.0.0.1:0", "--database-url", &db.url(), "--config"];
        let said = refused(&[&words[..], &[config.to_str().unwrap()]].concat()).await;
        assert!(said.contains("feature `agents`"), "{said}");
    }
}

#[cfg(not(feature = "s3"))]
#[tokio::test]
async fn a_build_without_s3_refuses_a_bucket_when_it_starts() {
    let db = crate::support::cluster::Db::new().await;
    let mut command = program(&["serve", "--listen", "127.0.0.1:0", "--database-url", &db.url()]);
    command.args(["--artifact-store", "s3://bucket/prefix"]);
    command.env("RUNREEL_S3_REGION", "x").env("RUNREEL_S3_ACCESS_KEY_ID", "x");
    command.env("RUNREEL_S3_SECRET_ACCESS_KEY", "x");
    let said = run(command, "").await;
    assert!(said.code != Some(0) && said.stderr.contains("feature `s3`"), "{said:?}");
}
