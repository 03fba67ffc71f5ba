//! `runreel tail`: follow a run in a terminal, or feed it to a script, until it ends.

use std::process::ExitCode;

use self::view::{View, action};
use super::{
    connection::Connection,
    exit::{CliError, FAILED, INTERRUPTED},
    render::{clean, duration, local_offset, print, say, terminal_width},
    run_arg::{self, RunArg},
};
use crate::{
    client::{Client, Follow, Frame, Notice},
    clock::Clock,
    domain::{
        cursor::{FeedCursor, RunCursor},
        event::TypeFilter,
        limits::PAGE_ROWS_MAX,
        run::Status,
    },
    wire::frames::{StreamEnd, StreamGap},
};

pub(super) mod view;

/// Follow a run live, from its first event to its end
///
/// When the connection breaks, tail reconnects and resumes automatically. Events go to stdout, connection messages to
/// stderr.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  runreel tail                           the newest run
  runreel tail 0198c0de-… --last 20      the last 20 events, then live
  runreel tail 0198c0de-… --types 'tool.*,run.*'
  runreel tail 0198c0de-… --tree         the run and everything it spawned
  runreel tail 0198c0de-… --exit-status && deploy
  # alert when a run fails from now on
  runreel tail --all --since now --types run.failed --json | jq .run_id")]
pub(super) struct Args {
    #[command(flatten)]
    what: What,
    /// Print each event as one line of JSON; with --all and --tree, a member cursor comes first, for --after
    #[arg(long)]
    json: bool,
    /// Print the stack of each error, and its causes, below its event
    #[arg(long, conflicts_with = "json")]
    stacks: bool,
    /// Exit with 1 when the run failed or was cancelled
    #[arg(long)]
    exit_status: bool,
    #[command(flatten)]
    connection: Connection,
}

// Not a doc comment: clap would show it as the text of the command.
#[derive(Clone, Debug, clap::Args)]
struct What {
    /// The run: its id, the beginning of it, or last; without one, your newest
    run: Option<RunArg>,
    /// Follow all your runs instead of one
    #[arg(long, conflicts_with_all = ["run", "tree", "last", "exit_status"])]
    all: bool,
    /// Also follow all runs below this one
    #[arg(long)]
    tree: bool,
    /// Start after this event: the number of the last one seen (with --all or --tree, its cursor, p…)
    #[arg(long, value_name = "CURSOR", conflicts_with = "last")]
    after: Option<String>,
    /// Start with what happens from now on
    #[arg(long, value_name = "WHEN", value_parser = ["now"], conflicts_with_all = ["after", "last"])]
    since: Option<String>,
    /// Start with the last N events
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..=PAGE_ROWS_MAX))]
    last: Option<i64>,
    /// Only these types: exact, or families such as 'tool.*'
    #[arg(long, value_name = "TYPES", value_parser = types)]
    types: Option<String>,
    /// Leave out tokens and output chunks
    #[arg(long)]
    no_tokens: bool,
}

fn types(text: &str) -> Result<String, String> {
    text.parse::<TypeFilter>().map(|_| text.to_owned()).map_err(|rule| rule.to_string())
}

/// Follows until the stream ends (0, or 1 with `--exit-status`) or Ctrl-C (130).
pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    check_cursor(&args.what)?;
    let client = args.connection.client()?;
    let run_id = if args.what.all { None } else { Some(choose_run(&client, args.what.run).await?) };
    let mut follow = client.follow(&path(&args.what, run_id.as_deref()), args.what.after.clone());
    let mut tail = Tail {
        json: args.json,
        view: View::new(local_offset(Clock::System.now()), terminal_width(), args.what.all || args.what.tree)
            .with_stacks(args.stacks),
        status: None,
        connected: false,
    };
    let interrupted = tokio::select! {
        outcome = tail.until_end(&mut follow) => { outcome?; false }
        _ = tokio::signal::ctrl_c() => true,
    };
    if interrupted {
        say(how_to_go_on(&args.what, run_id.as_deref(), follow.cursor()));
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let status = match (tail.status, &run_id) {
        (Some(status), _) => Some(status),
        // There was nothing left to stream: the run had ended before.
        (None, Some(run_id)) => {
            let status = client.run(run_id).await?.status;
            say(format!("nothing new; the run ended: {}", status.as_str()));
            Some(status)
        }
        (None, None) => None,
    };
    let unhappy = matches!(status, Some(Status::Failed | Status::Cancelled));
    Ok(if args.exit_status && unhappy { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

/// Finds the run, which also distinguishes a missing run from a missing server before anything is retried.
async fn choose_run(client: &Client, run: Option<RunArg>) -> anyhow::Result<String> {
    let run_id = match run {
        None | Some(RunArg::Last) => {
            let newest = run_arg::newest(client).await?;
            say(format!("following {}  {}", newest.run_id, newest.about()));
            return Ok(newest.run_id.to_string());
        }
        Some(named) => named.resolve(client).await?.to_string(),
    };
    client.run(&run_id).await?;
    Ok(run_id)
}

fn check_cursor(what: &What) -> Result<(), CliError> {
    let Some(after) = &what.after else { return Ok(()) };
    let of_feed = what.all || what.tree;
    let checked = if of_feed { after.parse::<FeedCursor>().map(drop) } else { after.parse::<RunCursor>().map(drop) };
    checked.map_err(|rule| CliError::usage(format!("--after: {rule}")))
}

fn path(what: &What, run_id: Option<&str>) -> String {
    let mut query = Vec::new();
    query.extend(what.tree.then(|| "tree=true".to_owned()));
    query.extend(what.no_tokens.then(|| "tokens=false".to_owned()));
    query.extend(what.types.as_ref().map(|types| format!("types={types}")));
    let last = what.last.or(what.since.as_ref().map(|_| 0));
    query.extend(last.map(|last| format!("tail={last}")));
    let run = run_id.map(|run_id| format!("/{run_id}")).unwrap_or_default();
    let mark = if query.is_empty() { "" } else { "?" };
    format!("/api/stream/runs{run}{mark}{}", query.join("&"))
}

fn how_to_go_on(what: &What, run_id: Option<&str>, cursor: Option<&str>) -> String {
    let Some(cursor) = cursor else { return "stopped before the first event".to_owned() };
    let which = run_id.map_or_else(|| "--all".to_owned(), str::to_owned);
    let tree = if what.tree { " --tree" } else { "" };
    format!("stopped; continue with: runreel tail {which}{tree} --after {}", clean(cursor))
}

/// An event as it was received. In a feed, its cursor is known only to the frame; that of a run is the event's `seq`.
fn json_line(frame: &Frame) -> String {
    match frame.id.as_deref().filter(|id| id.parse::<FeedCursor>().is_ok()) {
        Some(cursor) => format!("{{\"cursor\":\"{cursor}\",{}\n", frame.data.trim_start_matches('{')),
        None => format!("{}\n", frame.data),
    }
}

struct Tail {
    json: bool,
    view: View,
    /// How the run ended, from `stream.end`.
    status: Option<Status>,
    connected: bool,
}

impl Tail {
    async fn until_end(&mut self, follow: &mut Follow) -> anyhow::Result<()> {
        while let Some(notice) = follow.next().await {
            match notice? {
                Notice::Connected if self.connected => say("reconnected"),
                Notice::Connected => self.connected = true,
                Notice::Lost { reason, retry_in } => {
                    // From now on a connection counts as a reconnect, even if the first one never succeeded.
                    self.connected = true;
                    print(&self.view.break_line())?;
                    say(format!("connection lost ({}); retrying in {}", clean(&reason), duration(retry_in)));
                }
                Notice::Frame(frame) => self.frame(&frame)?,
            }
        }
        print(&self.view.break_line())?;
        Ok(())
    }

    fn frame(&mut self, frame: &Frame) -> anyhow::Result<()> {
        match frame.event.as_str() {
            "stream.gap" | "stream.end" => {}
            _ if frame.event.starts_with("stream.") => return Ok(()),
            // A snapshot is not an event of its own; the durable event will contain its text.
            event if self.json && action(event) == "snapshot" => return Ok(()),
            _ if self.json => return Ok(print(&json_line(frame))?),
            _ => return Ok(print(&self.view.frame(frame))?),
        }
        print(&self.view.break_line())?;
        if frame.event == "stream.gap" {
            let StreamGap { requested_after, first_seq } = serde_json::from_str(&frame.data)?;
            let first = first_seq.map_or_else(|| "what is left".to_owned(), |seq| seq.to_string());
            say(format!(
                "retention removed events after {}; continuing with {first}",
                clean(&requested_after.to_string())
            ));
        } else {
            let StreamEnd { status, last_seq } = serde_json::from_str(&frame.data)?;
            say(format!("the run ended: {} ({last_seq} events)", status.as_str()));
            self.status = Some(status);
        }
        Ok(())
    }
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

    const RUN: &str = "0198c0de-0000-7000-8000-000000000001";

    fn parse(words: &[&str]) -> Result<What, clap::Error> {
        Command::try_parse_from(["tail"].iter().chain(words)).map(|command| command.args.what)
    }

    #[test]
    fn flags_become_the_query_of_the_stream() {
        let args = parse(&[RUN, "--tree", "--no-tokens", "--types", "tool.*,run.*", "--last", "5"]).unwrap();
        let expected = format!("/api/stream/runs/{RUN}?tree=true&tokens=false&types=tool.*,run.*&tail=5");
        assert_eq!(path(&args, Some(RUN)), expected);
        assert_eq!(path(&parse(&["--all"]).unwrap(), None), "/api/stream/runs");
        assert_eq!(path(&parse(&["--all", "--since", "now"]).unwrap(), None), "/api/stream/runs?tail=0");
    }

    #[test]
    fn what_cannot_mean_anything_is_refused_before_a_request() {
        for words in [
            ["not-a-run"].as_slice(),
            &["--all", RUN],
            &["--all", "--exit-status"],
            &["--after", "1", "--last", "2"],
            &["--since", "now", "--last", "2"],
            &["--since", "yesterday"],
            &["--types", "tool.*&x=1"],
            &["--last", "0"],
            &["--last", "1001"],
            &["--token", "rr_secret"],
        ] {
            assert!(parse(words).is_err(), "{words:?}");
        }
        for words in [["--after", "p1"].as_slice(), &["--all", "--after", "1"], &["--after", "x\r\n"]] {
            assert!(check_cursor(&parse(words).unwrap()).is_err(), "{words:?}");
        }
        for words in [["--after", "42"].as_slice(), &["--tree", "--after", "p4-2"]] {
            assert!(check_cursor(&parse(words).unwrap()).is_ok(), "{words:?}");
        }
    }

    #[test]
    fn a_line_of_a_feed_has_the_cursor_with_which_to_go_on() {
        let frame = |id: Option<&str>| Frame {
            id: id.map(str::to_owned),
            event: "log.info".into(),
            data: "{\"seq\":3}".into(),
        };
        assert_eq!(json_line(&frame(Some("p4-2"))), "{\"cursor\":\"p4-2\",\"seq\":3}\n");
        for id in [None, Some("3"), Some("x\"")] {
            assert_eq!(json_line(&frame(id)), "{\"seq\":3}\n");
        }
    }

    #[test]
    fn an_interrupted_tail_says_how_to_go_on() {
        let args = parse(&[RUN, "--tree"]).unwrap();
        let expected = format!("stopped; continue with: runreel tail {RUN} --tree --after p7");
        assert_eq!(how_to_go_on(&args, Some(RUN), Some("p7")), expected);
        assert_eq!(how_to_go_on(&args, Some(RUN), None), "stopped before the first event");
    }
}
