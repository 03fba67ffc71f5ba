//! Tool servers whose answers are not as the protocol has them: each ends its call, and takes nothing else away.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use axum::{
    Router,
    body::Bytes,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::post,
};
use runreel::{
    agents::{assistant::Assistant, registry::Agents, tools::ToolError},
    config::File,
    confine::Confinement,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    agents::{ask, log, stands, with},
    support::{
        process::{program, run},
        tools::call,
    },
};

/// What a server says, with `$ID` for the id of the request.
#[derive(Clone)]
struct Play {
    begin: String,
    pages: Vec<(&'static str, String)>,
    calls: Vec<(String, String)>,
}

const BEGIN: &str = r#"{"jsonrpc":"2.0","id":$ID,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"odd","version":"1"}}}"#;
const FINE: &str = r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"fine"}]}}"#;
const GOOD: &str = r#"{"name":"good","inputSchema":{"type":"object"}}"#;

fn page(tools: &[&str], more: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":$ID,"result":{{"tools":[{}]{more}}}}}"#, tools.join(","))
}

impl Play {
    /// A server with these tools, the first of which is as it should be.
    fn of(pages: &[(&'static str, String)]) -> Self {
        Self { begin: BEGIN.to_owned(), pages: pages.to_vec(), calls: vec![("good".to_owned(), FINE.to_owned())] }
    }

    /// The section of the configuration that starts it, with its texts beside the file.
    fn section(&self, dir: &Path) -> String {
        let pages: BTreeMap<_, _> = self.pages.iter().cloned().collect();
        let calls: BTreeMap<_, _> = self.calls.iter().cloned().collect();
        let play = json!({ "begin": self.begin, "pages": pages, "calls": calls });
        std::fs::write(dir.join("play.json"), play.to_string()).unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/met/tool_servers/odd.mjs");
        format!("[mcp.odd]\ncommand = \"node\"\nargs = [\"{script}\", \"play.json\"]\n")
    }

    fn said(&self, asked: &Value) -> Option<String> {
        let raw = match asked["method"].as_str()? {
            "initialize" => &self.begin,
            "tools/list" => {
                let cursor = asked["params"]["cursor"].as_str().unwrap_or_default();
                &self.pages.iter().find(|(name, _)| *name == cursor)?.1
            }
            _ => &self.calls.iter().find(|(name, _)| asked["params"]["name"] == **name)?.1,
        };
        asked.get("id").map(|id| raw.replace("$ID", &id.to_string()))
    }

    /// Serves it over HTTP, each answer as a body or as a stream of one event.
    async fn over_http(self, as_stream: bool) -> String {
        let play = Arc::new(self);
        let answer = move |body: Bytes| {
            let play = Arc::clone(&play);
            async move {
                let asked: Value = serde_json::from_slice(&body).unwrap();
                let Some(said) = play.said(&asked) else { return StatusCode::ACCEPTED.into_response() };
                let (media_type, said) = if as_stream {
                    ("text/event-stream", format!("data: hello\n\ndata: {said}\n\n"))
                } else {
                    ("application/json", said)
                };
                Response::builder().header(CONTENT_TYPE, media_type).body(said.into()).unwrap()
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/mcp", post(answer));
        tokio::spawn(async move { axum::serve(listener, router).await });
        format!("[mcp.odd]\nurl = \"http://{address}/mcp\"\n")
    }
}

async fn agent(dir: &Path, section: &str) -> Result<Assistant, String> {
    // No call of these tests may end by its time limit.
    let text = format!(
        "{section}prefix = \"\"\napproval = false\ntimeout_s = 3600\n[agents.a]\nmodel = \"echo\"\ntools = [\"odd\"]\n"
    );
    let path = std::env::var_os("PATH");
    let agents = Agents::new(File::parse(&text, dir).unwrap(), dir.to_owned(), path, Confinement::default()).unwrap();
    agents.assistant("a").await.map_err(|error| error.to_string())
}

/// The agent with the tools of this server, over each of the transports.
async fn everywhere(play: Play) -> Vec<(Assistant, tempfile::TempDir)> {
    let mut agents = Vec::new();
    let dir = tempfile::tempdir().unwrap();
    let stdio = play.section(dir.path());
    let sections = [stdio, play.clone().over_http(false).await, play.over_http(true).await];
    let mut dir = Some(dir);
    for section in sections {
        let dir = dir.take().unwrap_or_else(|| tempfile::tempdir().unwrap());
        agents.push((agent(dir.path(), &section).await.unwrap(), dir));
    }
    agents
}

fn names(agent: &Assistant) -> Vec<String> {
    agent.toolbox.specs().into_iter().map(|spec| spec.name).collect()
}

#[tokio::test]
async fn an_answer_ends_its_call_however_it_is_made() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("tool_servers/answers.json")).unwrap();
    let name = |case: &Value| case["tool"].as_str().unwrap().to_owned();
    let tools: Vec<String> = cases.iter().map(|case| json!({ "name": name(case) }).to_string()).collect();
    let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
    let mut play = Play::of(&[("", page(&tools, ""))]);
    play.calls.extend(cases.iter().map(|case| (name(case), case["raw"].as_str().unwrap().to_owned())));
    for (transport, (agent, _dir)) in everywhere(play).await.into_iter().enumerate() {
        for case in &cases {
            let came = call(&agent, &name(case), json!({}), &CancellationToken::new()).await;
            match (came, case.get("result"), case["error"].as_str()) {
                (Ok(came), Some(expected), _) => assert_eq!(&came, expected, "{case} over {transport}"),
                (Err(ToolError::Failed(came)), _, Some(expected)) if came.contains(expected) => {}
                (came, ..) => panic!("{case} over {transport}: {came:?}"),
            }
        }
    }
}

#[tokio::test]
async fn a_tool_that_cannot_be_used_is_named_and_takes_no_other_away() {
    let odd: Vec<Value> = serde_json::from_str(include_str!("tool_servers/tools.json")).unwrap();
    let mut tools = vec![GOOD.to_owned()];
    tools.extend(odd.iter().map(|odd| odd["tool"].to_string()));
    let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
    let notes: Vec<&str> = odd.iter().filter_map(|odd| odd["note"].as_str()).collect();
    for (agent, _dir) in everywhere(Play::of(&[("", page(&tools, ""))])).await {
        assert_eq!(names(&agent), ["anything", "draft4", "good", "int", "missing", "nowhere", "odd_members"]);
        assert_eq!(call(&agent, "good", json!({}), &CancellationToken::new()).await, Ok(json!("fine")));
        assert_eq!(agent.toolbox.get("good").unwrap().description(), "", "the first one stays");
        let wrong = agent.toolbox.fit("draft4", &json!({"n": 1}));
        assert!(matches!(wrong, Err(ToolError::Arguments(_))), "the schema says its draft");
        assert!(agent.toolbox.fit("int", &json!({"n": "x"})).is_ok(), "the server checks");
        for told in &notes {
            assert!(agent.notes.iter().any(|note| note.contains(told)), "{told}: {:?}", agent.notes);
        }
        assert_eq!(agent.notes.len(), notes.len(), "{:?}", agent.notes);
    }
}

#[tokio::test]
async fn a_list_ends_where_its_server_says_and_a_page_that_is_lost_costs_no_other() {
    let second = r#"{"name":"second"}"#;
    for (pages, expected, told) in [
        (vec![("", page(&[GOOD], r#","nextCursor":"""#))], vec!["good"], None),
        (vec![("", page(&[GOOD], r#","nextCursor":null"#))], vec!["good"], None),
        (vec![("", page(&[GOOD], r#","nextCursor":"2""#)), ("2", page(&[second], ""))], vec!["good", "second"], None),
        (
            vec![("", page(&[GOOD], r#","nextCursor":"2""#)), ("2", page(&[second], r#","nextCursor":"2""#))],
            vec!["good", "second"],
            None,
        ),
        (
            vec![
                ("", page(&[GOOD], r#","nextCursor":"2""#)),
                ("2", r#"{"id":$ID,"error":{"message":"no more"}}"#.to_owned()),
            ],
            vec!["good"],
            Some("page 2 of its list and all after it: no more"),
        ),
        (
            vec![("", page(&[GOOD], r#","nextCursor":"2""#)), ("2", r#"{"id":$ID,"result":{"tools":{}}}"#.to_owned())],
            vec!["good"],
            Some("page 2 of its list"),
        ),
    ] {
        for (agent, _dir) in everywhere(Play::of(&pages)).await {
            assert_eq!(names(&agent), expected);
            assert_eq!(agent.notes.len(), usize::from(told.is_some()), "{:?}", agent.notes);
            assert!(told.is_none_or(|told| agent.notes[0].contains(told)), "{:?}", agent.notes);
        }
    }
}

#[tokio::test]
async fn what_a_server_says_against_the_handshake_is_told() {
    let mut play = Play::of(&[]);
    play.begin = r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":"EXPIRED","message":"the key has expired"}}"#.to_owned();
    let dir = tempfile::tempdir().unwrap();
    let sections = [play.section(dir.path()), play.clone().over_http(false).await, play.over_http(true).await];
    for section in sections {
        let told = agent(dir.path(), &section).await.map(|_| ()).unwrap_err();
        assert!(told.contains("the tool server odd: EXPIRED: the key has expired"), "{told}");
    }
}

#[tokio::test]
async fn a_handshake_needs_no_more_than_the_version() {
    let mut play = Play::of(&[("", page(&[GOOD], ""))]);
    play.begin =
        r#"{"id":$ID,"result":{"protocolVersion":"2025-03-26","capabilities":{"tools":[]},"serverInfo":null}}"#
            .to_owned();
    for (agent, _dir) in everywhere(play).await {
        assert_eq!(call(&agent, "good", json!({}), &CancellationToken::new()).await, Ok(json!("fine")));
    }
}

#[tokio::test]
async fn the_log_of_a_run_and_the_doctor_name_what_was_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let section = Play::of(&[("", page(&[GOOD, r#"{"name":"bad","inputSchema":[]}"#], ""))]).section(dir.path());
    let section = section.replace("play.json", dir.path().join("play.json").to_str().unwrap());
    let config = format!("{section}[agents.a]\nmodel = \"echo\"\ntools = [\"odd\"]\n");
    let server = with(&config, &[]).start().await;
    let id = ask(&server, "a", "hello", json!({})).await;
    stands(&server, &id, "completed").await;
    let told = "the tool server odd: left out: the tool bad: its inputSchema is not a schema of an object";
    let warned: Vec<Value> = log(&server, &id).await.into_iter().filter(|event| event["type"] == "log.warn").collect();
    assert_eq!(warned.iter().map(|event| &event["payload"]["message"]).collect::<Vec<_>>(), [told]);

    std::fs::write(dir.path().join("runreel.toml"), &config).unwrap();
    let mut doctor = program(&["doctor", "--json", "--config"]);
    doctor.arg(dir.path().join("runreel.toml")).arg("--data-dir").arg(dir.path().join("data"));
    let said = run(doctor, "").await;
    let check = |line: &str| serde_json::from_str::<Value>(line).ok().filter(|check| check["check"] == "tools of odd");
    let found = said.stdout.lines().find_map(check).unwrap_or_else(|| panic!("{}\n{}", said.stdout, said.stderr));
    assert_eq!((&found["state"], said.code), (&json!("bad"), Some(1)));
    assert!(
        found["detail"].as_str().unwrap().contains("usable: 1; ") && found["detail"].as_str().unwrap().contains(told),
        "{found}"
    );
}
