//! Conversations through a channel, on a server that is killed again and again while its agents are at work.
//!
//! Everything is the product: `runreel serve --config` with its own database, a channel, the router, an agent that
//! gives work to two workers and writes a file, leases, checkpoints, the session's log. A sender repeats a message
//! until it is accepted, under the same `message_id`, and waits for the end of its run. A kill comes a random moment
//! after the one before, once every chat has had an answer: a run killed over and over is abandoned.
//!
//! [`judge`] defines what must hold of each chat in the end.

pub(crate) mod judge;
mod plants;
pub(crate) mod truth;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use runreel::client::Client;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use self::judge::{Said, judge};
use crate::{
    progress,
    site::{Home, Server, Site},
    stage::{END_MAX, Verdict, percentile},
    table,
};

const CHATS: usize = 4;
/// Longest wait for the answer to one message, with all the kills in between.
const ANSWER_MAX: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// A kill comes at most this long after every chat has made progress.
const LATER_MS: std::ops::Range<u64> = 0..700;
/// How many complaints of one chat are printed.
const SHOWN: usize = 4;

const CONFIG: &str = r#"
[channels.web]
agent = "chief"
[tools.files]
root = "work"
[agents.chief]
model = "script:chief.toml"
tools = ["files"]
workers = ["hand"]
[agents.hand]
model = "script:hand.toml"
"#;

/// A message makes two turns, so a conversation that lost or duplicated one would answer out of turn.
const CHIEF: &str = r#"
repeat = true
[[turns]]
text = "I have it done."
delay_ms = 40
tool_calls = [
    { name = "spawn_worker", args = { agent = "hand", task = "left", title = "left" } },
    { name = "spawn_worker", args = { agent = "hand", task = "right", title = "right" } },
    { name = "files_write", args = { path = "done", text = "x\n", mode = "append" } },
]
[[turns]]
text = "done: {user}"
delay_ms = 40
"#;

const HAND: &str = "[[turns]]\ntext = \"did {user}\"\ndelay_ms = 60\n";

/// The state shared by the chats and the killer.
#[derive(Default)]
struct Shape {
    over: AtomicBool,
    answered: [AtomicU64; CHATS],
    /// Requests without an answer that were repeated.
    again: AtomicU64,
}

pub(crate) async fn run(program: &Path, seed: u64, kills: usize) -> anyhow::Result<Verdict> {
    let site = Site::new()?;
    for (name, text) in [("runreel.toml", CONFIG), ("chief.toml", CHIEF), ("hand.toml", HAND)] {
        std::fs::write(site.file(name), text)?;
    }
    let config = site.file("runreel.toml");
    let config = config.to_str().context("the folder's name is no text")?;
    let flags = ["--config", config, "--poll-ms", "50"];
    let mut server = Server::start(program, &site, Home::Embedded, 0, &flags).await?;
    let (shape, client) = (Arc::new(Shape::default()), Client::new(&server.url(), None)?);
    let chats: Vec<_> =
        (0..CHATS).map(|number| tokio::spawn(chat(client.clone(), Arc::clone(&shape), number))).collect();
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut verdict, mut outages) = (Verdict::default(), Vec::new());
    for number in 0..kills {
        gone_on(&shape).await?;
        sleep(Duration::from_millis(rng.random_range(LATER_MS))).await;
        server.kill()?;
        let began = Instant::now();
        server.spawn()?;
        server.ready().await?;
        outages.push(began.elapsed());
        progress(format_args!("{} of {kills} kills", number + 1))?;
    }
    gone_on(&shape).await?;
    shape.over.store(true, Ordering::Relaxed);
    let mut conversations = Vec::new();
    for chat in chats {
        conversations.push(chat.await??);
    }
    let mut database = table::connect(&site).await?;
    truth::settled(&mut database).await?;
    let mut histories = Vec::new();
    for (number, said) in conversations.into_iter().enumerate() {
        histories.push(truth::read(&mut database, server.address, number, said).await?);
    }
    for (number, history) in histories.iter().enumerate() {
        let wrong = judge(history).into_iter().take(SHOWN);
        verdict.violations.extend(wrong.map(|wrong| format!("chat {number}: {wrong}")));
    }
    plants::run(&histories[0], &mut verdict);
    let messages: usize = histories.iter().map(|history| history.said.len()).sum();
    let lines = std::fs::read_to_string(site.file("work/done")).unwrap_or_default().lines().count();
    // A kill between a call's end and its being stored makes the call happen again.
    verdict.require((messages..=messages + kills * CHATS).contains(&lines), || format!("{lines} calls for {messages}"));
    outages.sort_unstable();
    verdict.fact(format!("{kills} kills in {messages} messages of {CHATS} chats, each with 3 runs and a router's"));
    verdict.fact(format!("{} events", histories.iter().map(|history| history.told.len()).sum::<usize>()));
    verdict.fact(format!("{} requests made again", shape.again.load(Ordering::Relaxed)));
    verdict.fact(format!("{} tool calls made again", lines.saturating_sub(messages)));
    verdict.fact(format!("ready again after {} ms (median)", percentile(&outages, 500).as_millis()));
    drop(database);
    let status = server.terminate(END_MAX).await?;
    verdict.require(status.is_some_and(|status| status.success()), || format!("the server ended with {status:?}"));
    verdict.violations.extend(server.panics());
    Ok(verdict)
}

/// Waits until every chat has got another answer.
async fn gone_on(shape: &Shape) -> anyhow::Result<()> {
    let count = |chat: &AtomicU64| chat.load(Ordering::Relaxed);
    let before: Vec<u64> = shape.answered.iter().map(count).collect();
    let going = async {
        while shape.answered.iter().zip(&before).any(|(chat, before)| count(chat) == *before) {
            sleep(LOOK_EVERY).await;
        }
    };
    timeout(ANSWER_MAX, going).await.context("a chat stands still")
}

/// Sends one message after another and waits for each answer.
async fn chat(client: Client, shape: Arc<Shape>, number: usize) -> anyhow::Result<Vec<Said>> {
    let mut said = Vec::new();
    while !shape.over.load(Ordering::Relaxed) {
        let text = format!("message {} of chat {number}", said.len());
        let answered = timeout(ANSWER_MAX, ask(&client, &shape, number, &text)).await;
        said.push(answered.with_context(|| format!("{text} has no answer"))??);
        shape.answered[number].fetch_add(1, Ordering::Relaxed);
    }
    Ok(said)
}

async fn ask(client: &Client, shape: &Shape, number: usize, text: &str) -> anyhow::Result<Said> {
    let message =
        json!({ "message_id": text, "chat_id": format!("{number}"), "user_id": format!("{number}"), "text": text });
    let receipt = until_answered(shape, || client.message("web", &message)).await?;
    let router_run_id = receipt.router_run_id.to_string();
    let run_id = loop {
        // A duplicate names only the router's run, which knows the rest when it has ended.
        let router = until_answered(shape, || client.run(&router_run_id)).await;
        match router.ok().and_then(|router| router.output?.member::<String>("run_id")) {
            Some(run_id) => break run_id,
            None => sleep(LOOK_EVERY).await,
        }
    };
    loop {
        let run = until_answered(shape, || client.run(&run_id)).await?;
        if run.ended_at.is_some() {
            return Ok(Said { text: text.to_owned(), run_id, router_run_id });
        }
        sleep(LOOK_EVERY).await;
    }
}

/// One request, repeated while the server is away. A router's run that does not exist yet is waited for by the caller.
async fn until_answered<T, F>(shape: &Shape, request: impl Fn() -> F) -> anyhow::Result<T>
where
    F: Future<Output = Result<T, runreel::client::Error>>,
{
    loop {
        match request().await {
            Ok(answer) => return Ok(answer),
            Err(error) if error.kind.is_retryable() => {
                shape.again.fetch_add(1, Ordering::Relaxed);
                sleep(LOOK_EVERY).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}
