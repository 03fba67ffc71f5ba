//! `runreel threads`: the newest threads as a table.

use std::process::ExitCode;

use comfy_table::{Attribute, Cell, ColumnConstraint, Table, presets};
use serde_json::value::RawValue;

use super::{
    connection::Connection,
    render::{between, clean, duration, json_lines, print, say},
};
use crate::{
    clock::Clock,
    domain::{id::Title, limits::PAGE_ROWS_MAX},
    wire::threads::{Thread, ThreadList},
};

/// List the newest threads: conversations, and what else shares state between runs
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  runreel threads
  runreel threads --search ann
  # the runs of one
  runreel runs --thread web_ann")]
pub(super) struct Args {
    /// Only threads with this text in their id
    #[arg(long, value_name = "TEXT")]
    search: Option<Title>,
    /// Maximum number of threads
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(i64).range(1..=PAGE_ROWS_MAX))]
    limit: i64,
    /// Print each thread as one line of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: Connection,
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let search = args.search.as_ref().map(|text| ("q", text.to_string()));
    let query: Vec<_> = search.into_iter().chain([("limit", args.limit.to_string())]).collect();
    let answer: Box<RawValue> = args.connection.client()?.get(&["threads"], &query).await?;
    let page: ThreadList = serde_json::from_str(answer.get())?;
    if args.json {
        print(&json_lines(&answer, "threads")?)?;
    } else if page.threads.is_empty() {
        say("no threads");
    } else {
        print(&table(&page.threads, &Clock::System.now().to_rfc3339()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn table(threads: &[Thread], now: &str) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).enforce_styling();
    table.set_header(["THREAD", "CREATED", "LAST USED"].map(|name| Cell::new(name).add_attribute(Attribute::Dim)));
    for thread in threads {
        let age = |at: &str| between(at, now).map(|age| format!("{} ago", duration(age))).unwrap_or_default();
        table.add_row([clean(&thread.thread_id), age(&thread.created_at), age(&thread.updated_at)]);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2)).set_constraint(ColumnConstraint::ContentWidth);
    }
    format!("{}\n", table.trim_fmt())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_table_has_a_line_for_each_thread_and_no_control_characters() {
        let thread = json!({"thread_id": "web_ann\u{1b}[2J", "owner_id": "00", "metadata": {}, "ttl_s": null,
            "latest_checkpoint_id": null, "created_at": "2025-11-13T01:00:00Z", "updated_at": "2025-11-13T01:59:00Z",
            "expires_at": null, "stream_url": "/"});
        let thread = serde_json::from_value(thread).unwrap();
        let table = anstream::adapter::strip_str(&table(&[thread], "2025-11-13T02:00:00Z")).to_string();
        assert_eq!(table, "THREAD   CREATED       LAST USED     \nweb_ann  1 h 00 m ago  1 m 00 s ago\n");
    }
}
