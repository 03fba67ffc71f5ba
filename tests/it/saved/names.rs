//! Names that are none: over the rule, every route and the command, nothing is written and the broken rule is told.

use runreel::domain::transcript::SavedName;
use serde_json::json;

use super::{Ground, SAVED};
use crate::support::{
    process::{program, run},
    threads::encoded_throughout,
};

/// Ways out of a folder, as they are tried.
const TRAVERSALS: [&str; 56] = [
    ".",
    "..",
    "...",
    "../",
    "/..",
    "../..",
    "../../..",
    "..\\",
    "..\\..",
    "./a",
    "a/.",
    "a/..",
    "a/../b",
    "a/../../b",
    "../a",
    "../a.json",
    "../index",
    "../index.json",
    "../../etc/passwd",
    "/etc/passwd",
    "/",
    "//",
    "///etc",
    "\\",
    "\\\\server\\share",
    "C:",
    "C:\\a",
    "C:/a",
    "c:a",
    "~",
    "~root",
    "~/a",
    "$HOME",
    "%2e%2e",
    "%2e%2e%2f",
    "..%2f",
    "..%5c",
    "%252e%252e%252f",
    "..%c0%af",
    "..%u2215",
    "....//",
    "....\\\\",
    "..;/a",
    "..../a",
    "a//b",
    "a\\b",
    ".a",
    ".lock",
    ".index.json.tmp",
    "..a",
    "a..",
    "a..b",
    "-..",
    "_..-",
    "file:///etc/passwd",
    "a/b/c",
];

/// What a terminal, a shell, a file system or a log makes something else of.
const CHARACTERS: [&str; 64] = [
    "",
    " ",
    "  ",
    " a",
    "a ",
    "a b",
    "\t",
    "a\tb",
    "\n",
    "a\nb",
    "\r",
    "a\r\nb",
    "\0",
    "a\0",
    "a\0.json",
    "\u{1b}[2J",
    "\u{7f}",
    "\u{80}",
    "\u{85}",
    "\u{a0}",
    "\u{200b}",
    "\u{202e}gpj",
    "\u{feff}",
    "\u{2028}",
    "é",
    "e\u{301}",
    "漢",
    "😀",
    "а",
    "ａ",
    "．．",
    "／",
    "∕",
    "⁄",
    "․․",
    "a:b",
    "a*",
    "a?",
    "a\"b",
    "a'b",
    "a<b",
    "a>b",
    "a|b",
    "a&b",
    "a;b",
    "a`b",
    "a$b",
    "a(b)",
    "a{b}",
    "a[b]",
    "a!b",
    "a#b",
    "a@b",
    "a+b",
    "a=b",
    "a,b",
    "a^b",
    "a%b",
    "a~b",
    "a.",
    "a.b.",
    "$(id)",
    "`id`",
    "a::$DATA",
];

fn corpus() -> Vec<String> {
    let mut names: Vec<String> = TRAVERSALS.into_iter().chain(CHARACTERS).map(str::to_owned).collect();
    for own in ["index", "metadata"] {
        let capital = format!("{}{}", own[..1].to_uppercase(), &own[1..]);
        names.extend([own.to_owned(), own.to_uppercase(), capital, format!("{own}.json"), format!("{own}.JSON")]);
    }
    let devices = ["con", "prn", "aux", "nul"].map(str::to_owned).into_iter();
    let ports = (0..10).flat_map(|n| [format!("com{n}"), format!("lpt{n}")]);
    for device in devices.chain(ports) {
        names.extend([format!("{device}.txt"), format!("{device}.a.b"), device.to_uppercase(), device]);
    }
    names.extend([65, 66, 255, 4_000].map(|length| "x".repeat(length)));
    names.push("a/".repeat(40));
    names.push("../".repeat(40));
    names
}

#[tokio::test]
async fn a_name_that_breaks_a_rule_is_refused_everywhere_and_writes_nothing() {
    let ground = Ground::new();
    let server = ground.server().await;
    server.create(json!({ "thread_id": "t" })).await;
    server.post(SAVED, super::save_of("good", "t")).await.expect(201);
    let before = ground.tree();
    let names = corpus();
    assert!(names.len() >= 200, "{}", names.len());
    for name in &names {
        let rule = name.parse::<SavedName>().unwrap_err().to_string();
        let body = json!({ "name": name, "thread_id": "t" });
        let problem = server.post(SAVED, body).await.refused(400, "invalid_request");
        assert_eq!((&problem["field"], &problem["detail"]), (&json!("name"), &json!(rule)), "{name:?}");
        let path = format!("{SAVED}/{}", encoded_throughout(name));
        for (method, path, body) in [
            ("GET", path.clone(), ""),
            ("DELETE", path.clone(), ""),
            ("PUT", path.clone(), r#"{"thread":{"messages":[]}}"#),
            ("POST", format!("{path}/restore"), "{}"),
        ] {
            let (status, text) = server.raw(method, &path, body).await;
            if name.is_empty() {
                assert!([400, 404, 405].contains(&status), "{method} {path}: {status} {text}");
            } else {
                assert_eq!(status, 400, "{method} {path}: {text}");
                let problem: serde_json::Value = serde_json::from_str(&text).unwrap();
                assert_eq!((&problem["field"], &problem["detail"]), (&json!("name"), &json!(rule)), "{name:?}");
            }
        }
        if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic()) {
            // As it is, for whoever resolves paths before or after they are read.
            let (status, text) = server.raw("GET", &format!("{SAVED}/{name}"), "").await;
            assert!((400..500).contains(&status), "{name:?}: {status} {text}");
        }
    }
    assert_eq!(ground.tree(), before);
}

#[tokio::test]
async fn what_looks_like_an_option_is_no_new_name_and_an_old_one_is_still_read_and_removed() {
    let ground = Ground::new();
    let server = ground.server().await;
    server.create(json!({ "thread_id": "t" })).await;
    server.post(SAVED, super::save_of("good", "t")).await.expect(201);
    std::fs::rename(ground.file("good.json"), ground.file("-rf.json")).unwrap();
    let text = std::fs::read_to_string(ground.file("-rf.json")).unwrap().replace("\"good\"", "\"-rf\"");
    std::fs::write(ground.file("-rf.json"), &text).unwrap();
    for name in ["-rf", "-", "--help"] {
        let refused = server.post(SAVED, super::save_of(name, "t")).await.refused(400, "invalid_request");
        assert_eq!(refused["field"], "name");
        server.put_text(&format!("{SAVED}/{name}"), text.replace("-rf", name)).await.refused(400, "invalid_request");
    }
    server.get(&format!("{SAVED}/-rf")).await.expect(200);
    server.delete(&format!("{SAVED}/-rf")).await.expect(204);
    assert!(!ground.file("-rf.json").exists());
}

#[tokio::test]
async fn the_command_refuses_them_before_it_asks_anybody() {
    let names: Vec<String> = corpus().into_iter().filter(|name| !name.contains('\0')).collect();
    for some in names.chunks(16) {
        let said = some.iter().map(|name| async move {
            // An address where nobody listens: a request would end with another code.
            let words = ["session", "restore", "--url", "http://127.0.0.1:9", "--", name];
            (name, run(program(&words), "").await)
        });
        for (name, said) in futures::future::join_all(said).await {
            assert_eq!(said.code, Some(2), "{name:?}: {}", said.stderr);
            let rule = name.parse::<SavedName>().unwrap_err().to_string();
            let told = said.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(told.contains(rule.split(':').next().unwrap()), "{name:?}: {}", said.stderr);
        }
    }
}

#[tokio::test]
async fn a_file_that_is_called_so_is_brought_in_under_a_name_only() {
    let ground = Ground::new();
    let server = ground.server().await;
    let file = ground.dir.path().join("bad name.json");
    for text in [r#"{"thread":{"messages":[]}}"#, r#"{"name":"../../out","thread":{"messages":[]}}"#] {
        std::fs::write(&file, text).unwrap();
        let before = ground.tree();
        let said = run(program(&["session", "import", file.to_str().unwrap(), "--url", &server.base]), "").await;
        assert_eq!((said.code, ground.tree()), (Some(2), before), "{}", said.stderr);
        assert!(said.stderr.contains("only have the characters") && said.stderr.contains("--name"), "{}", said.stderr);
    }
    let put = r#"{"name":"../../out","thread":{"messages":[]}}"#;
    let reply = server.put_text(&format!("{SAVED}/fine"), put).await;
    assert_eq!(reply.refused(400, "invalid_request")["field"], "name");
    assert!(!ground.file("fine.json").exists());
}
