//! What a command tells a person is so.

use tokio::process::Command;

use crate::support::{
    process::{program, run},
    server::Server,
};

fn to(server: &Server, words: &[&str]) -> Command {
    let mut command = program(words);
    command.env("RUNREEL_URL", &server.base);
    command
}

#[tokio::test]
async fn a_run_that_stays_open_is_said_to_and_one_that_ended_is_not() {
    let server = Server::start().await;
    let hint = "the run stays open; end it with: runreel emit ";
    let said = run(to(&server, &["emit", "--type", "log.info"]), "").await;
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let told = said.stderr.lines().find_map(|line| line.strip_prefix(hint)).expect("a hint").to_owned();
    // The words do what they say.
    let words: Vec<&str> = ["emit"].into_iter().chain(told.split(' ')).collect();
    let said = run(to(&server, &words), "").await;
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let run_id = words[1];
    assert_eq!(server.run(run_id).await["status"], "completed");
    for (words, stdin) in [
        (["emit", "--end", "completed"].as_slice(), "{\"type\":\"log.info\"}"),
        (&["emit"], "{\"type\":\"log.info\"}\n{\"type\":\"run.failed\"}"),
        (&["emit", &server.start_run().await, "--type", "log.info"], ""),
    ] {
        let said = run(to(&server, words), stdin).await;
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        assert!(!said.stderr.contains(hint), "{words:?}: {}", said.stderr);
    }
}

#[tokio::test]
async fn the_details_of_a_run_have_the_address_of_its_page() {
    let server = Server::start().await;
    let run_id = server.start_run().await;
    let said = run(to(&server, &["runs", "show", &run_id]), "").await;
    let page = format!("page      {}/runs/{run_id}\n", server.base);
    assert!(said.stdout.ends_with(&page), "{}", said.stdout);
}

#[tokio::test]
async fn a_server_that_finds_another_at_its_address_names_it() {
    let server = Server::start().await;
    let address = server.base.trim_start_matches("http://");
    let folder = tempfile::tempdir().unwrap();
    let mut command = program(&["serve", "--listen", address, "--data-dir"]);
    command.arg(folder.path());
    let said = run(command, "").await;
    assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""));
    for words in [address, "a Runreel server (version ", "stop it", "--listen"] {
        assert!(said.stderr.contains(words), "{words}: {}", said.stderr);
    }
    // Anything else that listens there is not said to be one.
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let mut command = program(&["serve", "--listen", &address, "--data-dir"]);
    command.arg(folder.path());
    let said = run(command, "").await;
    assert!(said.code == Some(1) && !said.stderr.contains("Runreel server"), "{}", said.stderr);
}
