//! Words that look the same are the same.

use crate::{
    search::{found, indexed},
    support::{cluster::execute, server::Server, threads::encoded},
};
use serde_json::json;

#[tokio::test]
async fn a_run_is_found_by_what_its_words_look_like() {
    let server = Server::start().await;
    for (said, asked) in [
        ("r\u{e9}sum\u{e9}", "re\u{301}sume\u{301}"),
        ("nai\u{308}ve", "na\u{ef}ve"),
        ("Stra\u{df}e", "STRASSE"),
        ("\u{39f}\u{394}\u{39f}\u{3a3}", "\u{3bf}\u{3b4}\u{3bf}\u{3c2}"),
        ("\u{130}zmir", "izmir"),
        ("\u{ff32}\u{ff35}\u{ff2e}reel", "runreel"),
        ("o\u{fb03}ce", "office"),
    ] {
        let run = server.create(json!({ "title": said })).await;
        indexed(&server.db).await;
        for text in [said, asked] {
            assert_eq!(found(&server, text).await, std::slice::from_ref(&run), "{said} by {text}");
            let hits = server.get(&format!("/api/runs/{run}/search?q={}", encoded(text))).await.expect(200);
            assert_eq!(hits["hits"].as_array().unwrap().len(), 1, "{said} by {text} in the run");
        }
    }
    assert_eq!(found(&server, "resume").await, Vec::<String>::new());
}

#[tokio::test]
async fn what_an_earlier_release_indexed_is_still_found() {
    let server = Server::start().await;
    let run = server.create(json!({ "title": "x" })).await;
    indexed(&server.db).await;
    let old = format!(
        "insert into store.search_document
         select run_id, 99, owner_id, array_to_tsvector(array[left(owner_id, 8) || ':stra\u{df}e', left(owner_id, 8) || ':resume'])
         from store.run where run_id = '{run}'"
    );
    execute(&mut server.db.connect().await, old).await;
    for asked in ["Stra\u{df}e", "re\u{301}sume\u{301}", "stra\u{df}*"] {
        assert_eq!(found(&server, asked).await, std::slice::from_ref(&run), "{asked}");
    }
}
