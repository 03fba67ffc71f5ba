//! A conversation through each channel, written down: `docs/conversations.md` is what this says, word for word.

use std::fmt::Write as _;

use chrono::DateTime;
use runreel::clock::Clock;
use serde_json::{Value, json};

use super::{id, log};
use crate::support::{
    server::{Server, setup},
    telegram::{Telegram, private},
    until,
};

const CONFIG: &str = r#"[channels.web]
agent = "assistant"
allowed_users = ["5", "6"]
trigger = "@reel"
idle_timeout_s = 1800

[channels.door]
agent = "assistant"
auth = "code"

[channels.telegram]
agent = "assistant"
allowed_users = ["5"]
trigger = "@reel_bot"

[agents.assistant]
model = "echo"
"#;

const HEAD: &str = "# A conversation through each channel

Recorded from a real server with real sockets and a real Postgres; the agent is `echo`, which repeats its input, and the
clock is set by the test. A test generates this page and fails when it differs.

```toml
";

/// The first pixels of a picture.
const PICTURE: &str = "iVBORw0KGgo=";

/// What is said and what comes of it.
struct Page {
    text: String,
    server: Server,
}

impl Page {
    fn title(&mut self, title: &str, about: &str) {
        writeln!(self.text, "\n## {title}\n\n{about}\n").unwrap();
    }

    fn line(&mut self, who: &str, what: &str) {
        writeln!(self.text, "    {who:<9} {what}").unwrap();
    }

    /// Something is said in a channel over HTTP, by somebody to an agent that answers.
    async fn say(&mut self, channel: &str, said: &str, message: Value) -> Value {
        let chat = if message["is_private"] == json!(false) { "group 77" } else { "private" };
        let who = if message["user_id"] == json!("5") { "ann" } else { "bob" };
        self.line(who, &format!("{said}  ({chat})"));
        let reply = self.server.post(&format!("/api/channels/{channel}/messages?wait=true"), message).await;
        let body = reply.json();
        let outcome = match body["reason"].as_str() {
            None => format!("accepted, thread {}: {}", body["thread_id"].as_str().unwrap(), body["response"]),
            Some(reason) => format!("filtered: {reason}"),
        };
        self.line("", &format!("{} {outcome}", reply.status));
        body
    }

    async fn log_of(&mut self, session: &str) {
        for (role, content) in log(&self.server, session).await {
            self.line("", &format!("{role:<9} {content}"));
        }
    }
}

fn ann(text: &str) -> Value {
    json!({ "chat_id": "5", "user_id": "5", "username": "ann", "text": text })
}

fn with(mut message: Value, more: Value) -> Value {
    let Value::Object(more) = more else { panic!("members are wanted") };
    message.as_object_mut().unwrap().extend(more);
    message
}

async fn over_http(page: &mut Page) {
    page.title(
        "Over HTTP",
        "The channel `web`: an allow-list, a trigger in groups, half an hour of silence ends a session.",
    );
    let first = page.say("web", "hello", with(ann("hello"), json!({ "message_id": "m1" }))).await;
    page.say("web", "hello, delivered once more", with(ann("hello"), json!({ "message_id": "m1" }))).await;
    page.say("web", "let me in", with(ann("let me in"), json!({ "chat_id": "9", "user_id": "9", "username": "bob" })))
        .await;
    page.say("web", "(spaces)", ann("   ")).await;
    let group = |text| with(ann(text), json!({ "chat_id": "77", "is_private": false }));
    page.say("web", "good morning", group("good morning")).await;
    page.say("web", "@Reel what is new?", group("@Reel what is new?")).await;
    page.say("web", "look (and a picture)", with(ann("look"), json!({ "image_base64": PICTURE }))).await;
    page.server.pass(std::time::Duration::from_mins(31));
    page.line("", "31 minutes pass");
    page.say("web", "still there?", ann("still there?")).await;
    page.say("web", "/new", ann("/new")).await;
    page.say("web", "who am I?", ann("who am I?")).await;
    page.line("", "the log of the first session:");
    page.log_of(&id(&first, "session_id")).await;
}

async fn by_code(page: &mut Page) {
    page.title(
        "Behind a one-time code",
        "The channel `door`: the first message waits, its run interrupted, until its user has given a code.",
    );
    let bob = |text: &str| json!({ "chat_id": "6", "user_id": "6", "username": "bob", "text": text });
    let held = page.say("door", "what is the weather?", bob("what is the weather?")).await;
    let router = id(&held, "router_run_id");
    let status = page.server.run(&router).await["status"].to_string();
    page.line("", &format!("the router's run is {status}"));
    page.say("door", "WXYZ-2345", bob("WXYZ-2345")).await;
    let code = id(&page.server.post("/api/channels/door/codes", json!({})).await.expect(201), "code");
    page.line("operator", "makes a code");
    page.say("door", "(the code)", bob(&code)).await;
    let status = page.server.run(&router).await["status"].to_string();
    page.line("", &format!("the router's run is {status}"));
    page.say("door", "thank you", bob("thank you")).await;
}

async fn over_telegram(page: &mut Page, telegram: &Telegram) {
    page.title("Over Telegram", "The webhook accepts an update at once; the bot's reply is shown after it.");
    telegram.holds("photos/file_1.png", b"\x89PNG\r\n\x1a\n");
    let mut photo = private(5, "");
    photo["message"] = with(
        photo["message"].clone(),
        json!({ "caption": "look", "photo": [{ "file_id": "photos/file_1.png", "width": 9, "height": 9, "file_size": 12 }] }),
    );
    photo["message"].as_object_mut().unwrap().remove("text");
    let group = |n: i64, text: &str| {
        let mut update = private(n, text);
        update["message"]["chat"] = json!({ "id": -77, "type": "group", "title": "us" });
        update
    };
    let mut stranger = private(4, "let me in");
    stranger["message"]["from"] = json!({ "id": 9, "is_bot": false, "first_name": "Bob", "username": "bob" });
    let spoken = [
        ("hello", private(1, "hello"), 1),
        ("hello, delivered once more", private(1, "hello"), 0),
        ("good morning  (group)", group(2, "good morning"), 0),
        ("@reel_bot what is new?  (group)", group(3, "@reel_bot what is new?"), 1),
        ("let me in  (bob)", stranger, 0),
        ("look (and a picture)", photo, 1),
        ("/new", private(6, "/new"), 1),
        ("who am I?", private(7, "who am I?"), 1),
    ];
    let mut answers = 0;
    for (said, update, answered) in spoken {
        page.line("ann", said);
        let status = page.server.update(update).await.status;
        page.server
            .db
            .until_number("the message to be routed", "select count(*) from store.inbound where state = 'open'", 0)
            .await;
        answers += answered;
        until("the answer", || async { telegram.sent().len() >= answers }).await;
        let told = telegram.sent();
        let bot = if answered == 0 { "nothing".to_owned() } else { told.last().unwrap()["text"].to_string() };
        page.line("", &format!("{status}; the bot says {bot}"));
    }
    assert_eq!(telegram.sent().len(), answers);
}

#[tokio::test]
async fn the_page_of_conversations_is_what_happens() {
    let telegram = Telegram::start().await;
    let clock = Clock::manual(DateTime::from_timestamp(1_780_308_000, 0).unwrap());
    let server = setup().config(CONFIG).telegram(&telegram.base).clock(&clock).start().await;
    let mut page = Page { text: format!("{HEAD}{CONFIG}```\n"), server };
    over_http(&mut page).await;
    by_code(&mut page).await;
    over_telegram(&mut page, &telegram).await;
    let committed = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/conversations.md");
    let made = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("conversations.md");
    std::fs::write(&made, &page.text).unwrap();
    let is_fresh = std::fs::read_to_string(&committed).is_ok_and(|committed| committed == page.text);
    assert!(is_fresh, "docs/conversations.md is not what happened; what did is in {}", made.display());
}
