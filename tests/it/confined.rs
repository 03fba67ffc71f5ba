//! What the programs of tools cannot reach, although they are of the server's own user.

use std::{os::unix::fs::PermissionsExt as _, path::Path, process::Stdio};

use serde_json::json;
use tokio::process::Command;

use crate::support::{
    api::Api,
    patiently,
    process::{Served, program, run, serve},
    until,
};

/// Any user that is not root; the kernel keeps nothing from root.
const ORDINARY: u32 = 65_534;

/// Everything that a program of the same user could try. Each way in says `IN` when it is open.
const SCRIPT: &str = r"
for role in runreel runreel_reader; do psql -w -h DATA/socket -U $role -d runreel -c 'select 1' && echo IN as $role; done
for file in postgres.pass postgres/pg_hba.conf postgres/PG_VERSION; do cat DATA/$file && echo IN $file; done
ls DATA && echo IN the folder
echo 'local all all trust' > DATA/postgres/pg_hba.conf && echo IN the rules
for process in /proc/[0-9]*; do
    [ $process = /proc/$$ ] && continue
    grep -q DATA $process/cmdline || continue
    for name in environ auxv; do cat $process/$name > copy && echo IN $name of $process; done
    readlink $process/fd/0 > copy && echo IN the descriptors of $process
    head -c 1 $process/mem && echo IN the memory of $process
    kill -0 ${process#/proc/} && echo IN the signals of $process
done
echo done";

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = Self { folder };
        let config = "[tools.shell]\nroot = \"work\"\napproval = false\n\
            [agents.hand]\nmodel = \"script:hand.toml\"\ntools = [\"shell\"]\n";
        let script = place.script().replace('\\', "\\\\");
        let turns =
            format!("[[turns]]\ntool_calls = [{{ name = \"shell\", args = {{ command = '''{script}''' }} }}]\n");
        std::fs::write(place.path().join("runreel.toml"), config).unwrap();
        std::fs::write(place.path().join("hand.toml"), format!("{turns}[[turns]]\ntext = \"done\"\n")).unwrap();
        std::fs::copy(env!("CARGO_BIN_EXE_runreel"), place.path().join("runreel")).unwrap();
        std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["data", "work"] {
            std::fs::create_dir(place.path().join(name)).unwrap();
            if rustix::process::geteuid().is_root() {
                std::os::unix::fs::chown(place.path().join(name), Some(ORDINARY), Some(ORDINARY)).unwrap();
            }
        }
        place
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn script(&self) -> String {
        SCRIPT.replace("DATA", self.path().join("data").to_str().unwrap())
    }

    /// The program as an ordinary user's, with what every command is given here.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = program(words);
        let mut own = Command::new(self.path().join("runreel"));
        own.args(command.as_std().get_args()).kill_on_drop(true).stdin(Stdio::null());
        own.stdout(Stdio::piped()).stderr(Stdio::piped()).env("HOME", self.path().join("work"));
        for (name, value) in command.as_std().get_envs() {
            match value {
                Some(value) => own.env(name, value),
                None => own.env_remove(name),
            };
        }
        command = own;
        command.arg("--data-dir").arg(self.path().join("data"));
        as_ordinary(&mut command);
        command
    }

    async fn serve(&self) -> (Served, Api) {
        let mut command = self.command(&["serve", "--listen", "127.0.0.1:0"]);
        command.arg("--config").arg(self.path().join("runreel.toml"));
        let served = serve(command).await;
        let api = Api::new(served.base.clone());
        until("the server to be ready", || async { api.get("/readyz").await.status == 200 }).await;
        (served, api)
    }
}

fn as_ordinary(command: &mut Command) {
    if rustix::process::geteuid().is_root() {
        command.uid(ORDINARY).gid(ORDINARY);
    }
}

#[tokio::test]
async fn a_command_of_a_tool_gets_neither_into_the_database_nor_at_its_password() {
    let place = Place::new();
    let (mut served, api) = place.serve().await;
    let created = api.post("/api/runs", json!({ "agent": "hand", "start": false, "input": "go" })).await.expect(201);
    let path = format!("/api/runs/{}", created["run_id"].as_str().unwrap());
    until("the run to end", || async { api.get(&path).await.json()["status"] == "completed" }).await;
    let events = api.get(&format!("{path}/events?limit=100")).await.json();
    let ended = events["events"].as_array().unwrap().iter().find(|event| event["type"] == "tool.completed").unwrap();
    let said = ended["payload"]["result"]["stdout"].as_str().unwrap_or_else(|| panic!("{ended}"));
    if runreel::confine::hold() {
        assert_eq!(said, "done\n", "{ended}");
    } else {
        assert!(!said.contains("IN as"), "{ended}");
    }

    // The same from outside: what holds without the kernel's help, and that the script would have seen the rest.
    let mut outside = Command::new("sh");
    outside.arg("-c").arg(place.script()).current_dir(place.path().join("work")).stdin(Stdio::null());
    as_ordinary(&mut outside);
    let output = patiently("the script", outside.output()).await.unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(!said.contains("IN as"), "{said}");
    assert!(["IN postgres.pass", "IN environ", "IN the signals"].iter().all(|way| said.contains(way)), "{said}");

    // The operator is let in.
    let asked = run(place.command(&["sql", "--format", "csv", "select count(*) from runs"]), "").await;
    assert_eq!((asked.code, asked.stdout.as_str()), (Some(0), "count\r\n1\r\n"), "{}", asked.stderr);
    let pid = rustix::process::Pid::from_raw(served.child.id().unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(patiently("the shutdown", served.child.wait()).await.unwrap().code(), Some(0));
}
