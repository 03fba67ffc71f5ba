//! Processes that are killed while their agents are at work.

use serde_json::json;

use super::{ask, assert_once, kinds, log, of, response, said, with};
use crate::support::{api::Api, cluster::Db, process::serve_again, until};

const CONFIG: &str = r#"
[tools.files]
root = "work"
[agents.slow]
model = "script:slow.toml"
tools = ["files"]
"#;

/// Turns that take their time; each call leaves a line.
const SLOW: &str = r#"
[[turns]]
text = "one"
delay_ms = 150
tool_calls = [{ name = "files_write", args = { path = "done", text = "1\n", mode = "append" } }]
[[turns]]
text = "two"
delay_ms = 3000
tool_calls = [{ name = "files_write", args = { path = "done", text = "2\n", mode = "append" } }]
[[turns]]
text = "three"
delay_ms = 150
"#;

#[tokio::test]
async fn an_agent_whose_process_is_killed_goes_on_in_the_next_and_does_nothing_twice() {
    let (db, folder) = (Db::new().await, with(CONFIG, &[("slow.toml", SLOW)]).folder());
    let (file, data) = (folder.path().join("runreel.toml"), folder.path().join("data"));
    let start = async || serve_again(&db.url(), &file, &data).await;
    let mut served = start().await;
    let api = Api::new(served.base.clone());
    let run = ask(&api, "slow", "go", json!({ "thread_id": "t" })).await;
    let other = ask(&api, "slow", "go too", json!({ "thread_id": "t" })).await;
    // Its second answer is on its way for a long time yet, also where others have the processors.
    until("the second answer", || async { of(&log(&api, &run).await, "step.started").len() == 3 }).await;
    served.child.kill().await.unwrap();
    let served = start().await;
    let api = Api::new(served.base.clone());
    assert_eq!(response(&api, &run).await, "three");
    let events = log(&api, &run).await;
    assert_once(&events);
    let texts: Vec<String> = said(&events).into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["go", "one", "two", "three"], "{:?}", kinds(&events));
    let tools = of(&events, "tool.completed").len();
    assert_eq!((tools, of(&events, "tool.failed").len(), of(&events, "run.started").len()), (2, 0, 1));
    assert_eq!(std::fs::read_to_string(folder.path().join("work/done")).unwrap(), "1\n2\n");
    // The run that stood behind it in the thread had its turn then; the script is over in it.
    assert_eq!(response(&api, &other).await, "The script has no more turns.");
    db.until_number("no job", super::JOBS, 0).await;
}
