//! `runreel session`: saves conversations as readable files, and restores them.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use serde_json::{Value, json, value::RawValue};

use super::{
    connection::Connection,
    exit::CliError,
    render::{clean, json_lines, print, say},
};
use crate::{
    client::Client,
    clock::Clock,
    domain::{
        id::{Malformed, ThreadId},
        limits::{PAGE_ROWS_MAX, SAVED_FILE_BYTES_MAX},
        transcript::{SavedName, SavedSession},
    },
    wire::saved_sessions::{Restore, RestoredThread, SaveThread, Saved, SavedList, UnreadableFile},
};

mod transcript;

/// Save conversations as files, show them, and continue from them
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A session is saved from a thread: in full when the thread's state is plain
data, otherwise from its log; then it is marked as a fallback, and only a
summary of it is restored. The server stores one file per session
(docs/operations.md says where), which can be read, edited, copied away and put
back.

A name is 1 to 64 of A-Z a-z 0-9 . _ - and not a file name that a system
reserves.

Examples:
  runreel session save trip --thread web_ann --description 'the plan for June'
  runreel session list
  runreel session show trip
  thread=$(runreel session restore trip)    a new thread continuing from there
  runreel session restore trip --thread web_bob && runreel chat web --chat bob
  runreel session export trip --format markdown -o trip.md
  runreel session export trip | ssh elsewhere runreel session import -
  runreel session import trip.json --name trip-2
  runreel session delete trip")]
pub(super) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Action {
    /// Save a thread as it is now; the same name again replaces what was saved
    Save {
        /// The session's name
        name: SavedName,
        /// The thread
        #[arg(long, value_name = "THREAD_ID")]
        thread: ThreadId,
        /// A description; without it, a session that is saved again keeps its own
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
        #[command(flatten)]
        connection: Connection,
    },
    /// List saved sessions
    List {
        /// Print each session as one line of JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show a session
    Show(Named),
    /// Create a thread that continues from a session, and print its id
    Restore {
        #[command(flatten)]
        named: Named,
        /// An existing thread without checkpoints, or the id of a new one; without it, a new thread
        #[arg(long, value_name = "THREAD_ID")]
        thread: Option<ThreadId>,
    },
    /// Print a session's file, or write it to a file
    Export {
        #[command(flatten)]
        named: Named,
        /// json can be imported again; markdown is for reading
        #[arg(long, value_enum, default_value_t = Format::Json)]
        format: Format,
        /// Where to write it; without it, stdout
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Overwrite the file if it exists
        #[arg(long, requires = "output")]
        force: bool,
    },
    /// Import a session from a file
    Import {
        /// The file; - is stdin
        file: PathBuf,
        /// The session's name; without it, the name in the file, else the file name
        #[arg(long, value_name = "NAME")]
        name: Option<SavedName>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Delete a session; threads restored from it stay
    Delete(Named),
}

#[derive(Clone, Debug, clap::Args)]
struct Named {
    /// The session
    name: SavedName,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Json,
    Markdown,
}

impl Named {
    /// The session's file, byte for byte.
    async fn file(&self) -> Result<Box<RawValue>> {
        Ok(self.connection.client()?.get(&["saved-sessions", self.name.as_str()], &[]).await?)
    }

    async fn session(&self) -> Result<SavedSession> {
        read(&self.name, self.file().await?.get().as_bytes())
    }
}

pub(super) async fn run(args: Args) -> Result<ExitCode> {
    match args.action {
        Action::Save { name, thread, description, connection } => {
            let body = SaveThread { name: name.to_string(), thread_id: thread, description };
            let saved: Saved = connection.client()?.post(&["saved-sessions"], &body).await?;
            let how = if saved.fallback { "as a fallback: its messages only, without its state" } else { "in full" };
            say(format!("{name} is saved {how}; {}", transcript::messages(saved.message_count)));
            if saved.fallback && saved.message_count == 0 {
                say(format!(
                    "warning: {name} is empty: the server cannot read the thread's state, and its log has no messages"
                ));
            }
        }
        Action::List { json, connection } => list(&connection.client()?, json).await?,
        Action::Show(named) => print(&transcript::shown(&named.session().await?))?,
        Action::Restore { named, thread } => {
            let path = ["saved-sessions", named.name.as_str(), "restore"];
            let made: RestoredThread = named.connection.client()?.post(&path, &Restore { thread_id: thread }).await?;
            let what = if made.fallback { "a summary" } else { "its messages" };
            say(format!(
                "the thread continues from {} with {what}, available to the next run with this thread_id:",
                named.name
            ));
            let thread = clean(&made.thread_id);
            print(&format!("{thread}\n"))?;
            say(match made.session_id {
                Some(_) => format!("the chat of {thread} continues with it: runreel chat, or its channel"),
                None => format!(
                    "use it with POST /api/runs {{\"agent\":\"…\",\"thread_id\":\"{thread}\",\"input\":\"…\",\"start\":false}}; \
                     or restore to a chat's thread (CHANNEL_CHAT, which has no open session) and use runreel chat"
                ),
            });
        }
        Action::Export { named, format, output, force } => {
            let text = match format {
                Format::Json => format!("{}\n", named.file().await?.get()),
                Format::Markdown => transcript::markdown(&named.session().await?),
            };
            match output {
                None => print(&text)?,
                Some(path) => write(&path, &text, force)?,
            }
        }
        Action::Import { file, name, connection } => import(&file, name, &connection.client()?).await?,
        Action::Delete(named) => {
            named.connection.client()?.delete(&["saved-sessions", named.name.as_str()]).await?;
            say(format!("{} is deleted", named.name));
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(client: &Client, json: bool) -> Result<()> {
    let (mut sessions, mut lines, mut cursor): (Vec<Saved>, _, Option<String>) = (Vec::new(), String::new(), None);
    loop {
        let mut query = vec![("limit", PAGE_ROWS_MAX.to_string())];
        query.extend(cursor.take().map(|cursor| ("cursor", cursor)));
        let answer: Box<RawValue> = client.get(&["saved-sessions"], &query).await?;
        let page: SavedList = serde_json::from_str(answer.get())?;
        lines += &json_lines(&answer, "saved_sessions")?;
        sessions.extend(page.saved_sessions);
        for UnreadableFile { name, line, column, reason } in page.unreadable {
            say(format!("{} cannot be read: line {line}, column {column}: {}", clean(&name), clean(&reason)));
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    if json {
        print(&lines)?;
    } else if sessions.is_empty() {
        say("no saved sessions");
    } else {
        print(&transcript::table(&sessions, Clock::System.now()))?;
    }
    Ok(())
}

async fn import(file: &Path, name: Option<SavedName>, client: &Client) -> Result<()> {
    let is_stdin = file == Path::new("-");
    let from = if is_stdin { "stdin".to_owned() } else { file.display().to_string() };
    let text = load(file, is_stdin).with_context(|| from.clone())?;
    let refused = |why: &dyn std::fmt::Display| CliError::failed(format!("{from}: {why}"));
    let own = SavedSession::named(text.as_bytes()).map_err(|unreadable| refused(&unreadable))?;
    let stem = file.file_stem().and_then(|stem| stem.to_str()).filter(|_| !is_stdin).map(str::to_owned);
    let name = match (name, own.clone().or(stem)) {
        (Some(name), _) => name,
        (None, Some(named)) => {
            let hint = Some("choose another name with --name".to_owned());
            named.parse().map_err(|rule: Malformed| CliError { hint, ..CliError::usage(format!("{from}: {rule}")) })?
        }
        (None, None) => return Err(CliError::usage("the file has no session name; set one with --name").into()),
    };
    // Parsed here as the server will parse it, so that a wrong line is reported before anything is sent.
    SavedSession::read(name.clone(), text.as_bytes(), Clock::System.now())
        .map_err(|unreadable| refused(&unreadable))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let body = if own.is_some_and(|own| own != name.as_str()) {
        let mut renamed: Value = serde_json::from_str(text)?;
        renamed["name"] = json!(name);
        serde_json::value::to_raw_value(&renamed)?
    } else {
        RawValue::from_string(text.to_owned())?
    };
    let saved: Saved = client.put(&["saved-sessions", name.as_str()], &body).await?;
    say(format!("{name} is saved; {}", transcript::messages(saved.message_count)));
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the user's own file, named on the command line")]
fn load(file: &Path, is_stdin: bool) -> Result<String> {
    let mut bytes = Vec::new();
    let most = SAVED_FILE_BYTES_MAX as u64 + 1;
    if is_stdin {
        io::stdin().take(most).read_to_end(&mut bytes)?
    } else {
        File::open(file)?.take(most).read_to_end(&mut bytes)?
    };
    String::from_utf8(bytes).map_err(|error| error.utf8_error()).context("not valid UTF-8")
}

#[expect(clippy::disallowed_methods, reason = "the user's own file, named on the command line")]
fn write(path: &Path, text: &str, force: bool) -> Result<()> {
    let mut options = File::options();
    let opened = options.write(true).create(true).truncate(true).create_new(!force).open(path);
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| {
        let shown = path.display();
        if error.kind() != io::ErrorKind::AlreadyExists {
            return anyhow::Error::new(error).context(shown.to_string());
        }
        let hint = Some("choose another file, or overwrite it with --force".to_owned());
        CliError { hint, ..CliError::failed(format!("{shown} already exists")) }.into()
    })
}

/// Parses a file from the server, which has parsed it before.
fn read(name: &SavedName, bytes: &[u8]) -> Result<SavedSession> {
    let session = SavedSession::read(name.clone(), bytes, Clock::System.now());
    Ok(session.map_err(|unreadable| CliError::failed(format!("the server's answer: {unreadable}")))?)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn parse(words: &[&str]) -> Result<Args, clap::Error> {
        Command::try_parse_from(["session"].iter().chain(words)).map(|command| command.args)
    }

    #[test]
    fn a_name_that_breaks_a_rule_is_refused_before_a_request_and_told_which() {
        for words in
            [["show", "a/b"].as_slice(), &["save", "..", "--thread", "t"], &["delete", "nul"], &["restore", "é"]]
        {
            let refused = parse(words).unwrap_err();
            assert_eq!(refused.exit_code(), 2, "{words:?}");
            assert!(refused.to_string().contains("a name") || refused.to_string().contains("reserved"), "{refused}");
        }
        assert!(parse(&["save", "trip"]).is_err(), "a thread is wanted");
        assert!(parse(&["export", "trip", "--format", "markdown", "-o", "x"]).is_ok());
        assert!(parse(&["import", "-", "--name", "trip"]).is_ok());
    }
}
