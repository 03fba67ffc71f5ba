use std::os::unix::fs::symlink;

use super::*;
use crate::{agents::tools::Toolbox, domain::context::Role, emitters::testing::context};

struct Place {
    /// Holds the tools' folder, `inside`, and a secret beside it.
    dir: tempfile::TempDir,
    tools: Toolbox,
}

fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("secret"), "s3cret").unwrap();
    let root = Root::open(&dir.path().join("inside"), false).unwrap();
    Place { tools: Toolbox::checked(tools(&root, "files", true)).unwrap(), dir }
}

impl Place {
    fn inside(&self) -> std::path::PathBuf {
        self.dir.path().join("inside")
    }

    async fn call(&self, tool: &str, args: Value) -> Result<Value, ToolError> {
        let tool = self.tools.fit(tool, &args)?;
        tool.call(&context(1, Role::Agent, "a"), args, &CancellationToken::new()).await
    }
}

#[tokio::test]
async fn what_was_written_is_listed_read_and_found() {
    let place = place();
    let text = "first line\nSecond Line\n";
    place.call("files_write", json!({"path": "notes/a.txt", "text": text})).await.unwrap();
    let again = place.call("files_write", json!({"path": "notes/a.txt", "text": "x"})).await;
    assert!(matches!(again, Err(ToolError::Failed(_))), "a file that is there stays");
    assert_eq!(place.call("files_read", json!({"path": "notes/a.txt"})).await.unwrap(), json!(text));
    place.call("files_write", json!({"path": "notes/a.txt", "text": "third\n", "mode": "append"})).await.unwrap();
    let part = place.call("files_read", json!({"path": "notes/a.txt", "offset": 23, "limit": 3})).await.unwrap();
    assert_eq!(part, json!({"text": "thi", "offset": 23, "next_offset": 26, "bytes": 29}));
    let found = place.call("files_search", json!({"text": "second", "ignore_case": true})).await.unwrap();
    assert_eq!(found["matches"], json!([{"path": "notes/a.txt", "line": 2, "text": "Second Line"}]));
    place.call("files_write", json!({"path": "notes/a.txt", "text": "new", "mode": "replace"})).await.unwrap();
    let listed = place.call("files_list", json!({"path": "notes"})).await.unwrap();
    assert_eq!(listed["entries"], json!([{"name": "a.txt", "kind": "file", "bytes": 3}]));
}

#[tokio::test]
async fn no_path_and_no_link_leaves_the_folder() {
    let place = place();
    let (inside, outside) = (place.inside(), place.dir.path().to_owned());
    symlink(outside.join("secret"), inside.join("link")).unwrap();
    symlink(&outside, inside.join("folder")).unwrap();
    symlink("../secret", inside.join("relative")).unwrap();
    std::fs::create_dir(inside.join("sub")).unwrap();
    let absolute = outside.join("secret").display().to_string();
    let paths =
        ["link", "relative", "folder/secret", "../secret", "sub/../../secret", absolute.as_str(), "/etc/passwd"];
    for path in paths {
        assert!(place.call("files_read", json!({"path": path})).await.is_err(), "read {path}");
        for mode in ["create", "append"] {
            let written = place.call("files_write", json!({"path": path, "text": "x", "mode": mode})).await;
            assert!(written.is_err(), "{mode} {path}");
        }
    }
    for path in ["folder/new", "../new", "sub/../../new"] {
        let args = json!({"path": path, "text": "x", "mode": "replace"});
        assert!(place.call("files_write", args).await.is_err(), "replace {path}");
    }
    for path in ["..", "folder", "/"] {
        assert!(place.call("files_list", json!({"path": path})).await.is_err(), "list {path}");
        assert!(place.call("files_search", json!({"path": path, "text": "s3cret"})).await.is_err(), "search {path}");
    }
    let found = place.call("files_search", json!({"text": "s3cret"})).await.unwrap();
    assert_eq!(found["matches"], json!([]));
    // Replacing a link replaces the link, not its target.
    place.call("files_write", json!({"path": "link", "text": "mine", "mode": "replace"})).await.unwrap();
    assert_eq!(std::fs::read_to_string(outside.join("secret")).unwrap(), "s3cret");
    assert!(!outside.join("new").exists());
}

#[tokio::test]
async fn a_pipe_and_a_binary_are_refused_and_nobody_waits() {
    let place = place();
    let pipe = place.inside().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    std::fs::write(place.inside().join("binary"), [0, 1, 2]).unwrap();
    for name in ["pipe", "binary"] {
        assert!(place.call("files_read", json!({"path": name})).await.is_err(), "{name}");
    }
    assert!(place.call("files_write", json!({"path": "pipe", "text": "x", "mode": "append"})).await.is_err());
}

#[tokio::test]
async fn a_search_stops_when_it_is_told_and_at_its_bound() {
    let place = place();
    std::fs::write(place.inside().join("many"), "same\n".repeat(1_000)).unwrap();
    let found = place.call("files_search", json!({"text": "same"})).await.unwrap();
    assert_eq!((found["matches"].as_array().unwrap().len(), &found["more"]), (MATCHES_MAX, &json!(false)));
    let cancel = CancellationToken::new();
    cancel.cancel();
    let tool = place.tools.get("files_search").unwrap();
    let ended = tool.call(&context(1, Role::Agent, "a"), json!({"text": "same"}), &cancel).await;
    assert_eq!(ended, Err(ToolError::Cancelled));
}

#[test]
fn a_folder_that_is_only_looked_at_has_no_tool_that_writes() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::open(dir.path(), false).unwrap();
    let names: Vec<String> = tools(&root, "files", false).iter().map(|tool| tool.name().to_owned()).collect();
    assert_eq!(names, ["files_list", "files_read", "files_search"]);
}

#[tokio::test]
async fn two_owners_do_not_see_each_others_files() {
    let dir = tempfile::tempdir().unwrap();
    let toolbox = Toolbox::checked(tools(&Root::open(dir.path(), true).unwrap(), "files", true)).unwrap();
    let (write, read) = (toolbox.get("files_write").unwrap(), toolbox.get("files_read").unwrap());
    let (mine, cancel) = (context(1, Role::Agent, "a"), CancellationToken::new());
    let mut theirs = context(2, Role::Agent, "a");
    theirs.owner_id = crate::domain::principal::OwnerId::trusted("11aa");
    write.call(&mine, json!({"path": "a", "text": "mine"}), &cancel).await.unwrap();
    assert_eq!(read.call(&mine, json!({"path": "a"}), &cancel).await, Ok(json!("mine")));
    for path in ["a", "../00ff/a"] {
        assert!(read.call(&theirs, json!({"path": path}), &cancel).await.is_err(), "{path}");
    }
}
