//! `runreel runs list`: filters and orders of the list of runs.

use std::{io::IsTerminal as _, time::Duration};

use chrono::{DateTime, Utc};
use serde_json::value::RawValue;

use super::{Common, table};
use crate::{
    cli::{
        moment::{Moment, moment},
        render::{clean, json_lines, print, say, terminal_width},
    },
    clock::Clock,
    domain::{
        event::timestamp,
        id::{ExternalId, Name, ThreadId},
        limits::PAGE_ROWS_MAX,
        run::Status,
        search::Search,
    },
    wire::runs::RunList,
};

#[derive(Clone, Debug, clap::Args)]
pub(super) struct List {
    /// Only runs with one of these statuses
    #[arg(long, value_name = "STATUS,…", value_delimiter = ',', value_parser = Status::ALL.map(Status::as_str))]
    status: Vec<String>,
    /// Only runs of this thread
    #[arg(long, value_name = "THREAD_ID")]
    thread: Option<ThreadId>,
    /// Only runs of this agent; repeat it for several
    #[arg(long, value_name = "NAME")]
    agent: Vec<Name>,
    /// Only runs with this tag; repeat it for runs with all of them
    #[arg(long, value_name = "TAG")]
    tag: Vec<Name>,
    /// Only runs in which an event names this model
    #[arg(long, value_name = "NAME")]
    model: Option<Name>,
    /// Only the run with this id in your own system
    #[arg(long, value_name = "ID")]
    external_id: Option<ExternalId>,
    /// Only runs with this role; default: all except routers
    #[arg(long, value_parser = ["supervisor", "worker", "agent", "router"])]
    role: Option<String>,
    /// Only runs without a parent, with how many are below them
    #[arg(long)]
    roots: bool,
    /// Only runs created since this time (RFC 3339), or within an age, such as 7d
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<Moment>,
    /// Only runs created before this time, or before an age
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<Moment>,
    /// Only runs with an event since this time, or within an age
    #[arg(long, value_name = "TIME", value_parser = moment)]
    updated_since: Option<Moment>,
    /// Only runs whose last event is before this time, or before an age
    #[arg(long, value_name = "TIME", value_parser = moment)]
    updated_until: Option<Moment>,
    /// Only runs that took at least as long, such as 10s
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    min_duration: Option<Duration>,
    /// Only runs that took less, such as 10s
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    max_duration: Option<Duration>,
    /// Only runs that cost at least this many US dollars
    #[arg(long, value_name = "USD")]
    min_cost: Option<f64>,
    /// Only runs that cost less
    #[arg(long, value_name = "USD")]
    max_cost: Option<f64>,
    /// Only runs that contain all these words: in titles, messages, tool calls, errors, payloads. A word may end in *
    #[arg(long, value_name = "WORDS")]
    search: Option<String>,
    /// What the list is sorted by
    #[arg(long, value_name = "KEY", default_value = "created", value_parser = ["created", "updated", "duration", "events", "tokens", "cost"])]
    sort: String,
    /// Begin with the smallest
    #[arg(long)]
    ascending: bool,
    /// Maximum number of runs
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(i64).range(1..=PAGE_ROWS_MAX))]
    limit: i64,
    #[command(flatten)]
    common: Common,
}

pub(super) async fn list(list: &List) -> anyhow::Result<()> {
    if let Some(words) = &list.search {
        words.parse::<Search>().map_err(|rule| crate::cli::exit::CliError::usage(rule.to_string()))?;
    }
    let now = Clock::System.now();
    let answer: Box<RawValue> = list.common.connection.client()?.get(&["runs"], &query(list, now)?).await?;
    let page: RunList = serde_json::from_str(answer.get())?;
    if list.common.json {
        print(&json_lines(&answer, "runs")?)?;
    } else if page.runs.is_empty() {
        say("no runs");
    } else {
        print(&table::list(&page.runs, now, terminal_width()))?;
    }
    match page.searched.map(|searched| (searched.up_to, searched.lag_ms)) {
        None | Some((_, Some(0))) => {}
        Some((Some(up_to), _)) => say(format!("searched what was stored up to {}", clean(&up_to))),
        Some((None, _)) => say("the search index is still being filled: runs may be missing"),
    }
    if page.next_cursor.is_some() && std::io::stderr().is_terminal() {
        say(format!("more runs exist; use --limit {}", (list.limit * 5).min(PAGE_ROWS_MAX)));
    }
    Ok(())
}

fn query(list: &List, now: DateTime<Utc>) -> anyhow::Result<Vec<(&'static str, String)>> {
    let time = |moment: Option<Moment>| moment.map(|moment| moment.time(now).map(timestamp)).transpose();
    let ms = |time: Option<Duration>| time.map(|time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX).to_string());
    let names = |names: &[Name]| {
        let names: Vec<String> = names.iter().map(|name| name.as_str().replace(',', "\\,")).collect();
        Some(names.join(",")).filter(|names| !names.is_empty())
    };
    let filters = [
        ("status", Some(list.status.join(",")).filter(|statuses| !statuses.is_empty())),
        ("thread_id", list.thread.as_ref().map(ToString::to_string)),
        ("agent", names(&list.agent)),
        ("tag", names(&list.tag)),
        ("model", list.model.as_ref().map(ToString::to_string)),
        ("external_id", list.external_id.as_ref().map(ToString::to_string)),
        ("role", list.role.clone()),
        ("roots", list.roots.then(|| "true".to_owned())),
        ("since", time(list.since)?),
        ("until", time(list.until)?),
        ("updated_since", time(list.updated_since)?),
        ("updated_until", time(list.updated_until)?),
        ("duration_min_ms", ms(list.min_duration)),
        ("duration_max_ms", ms(list.max_duration)),
        ("cost_min_usd", list.min_cost.map(|usd| usd.to_string())),
        ("cost_max_usd", list.max_cost.map(|usd| usd.to_string())),
        ("q", list.search.clone()),
        ("sort", Some(list.sort.clone()).filter(|sort| sort != "created")),
        ("order", list.ascending.then(|| "asc".to_owned())),
        ("limit", Some(list.limit.to_string())),
    ];
    Ok(filters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Command {
        #[command(flatten)]
        list: List,
    }

    fn check(words: &[&str], expected: &[(&str, &str)]) {
        let list = Command::try_parse_from(["list"].iter().chain(words)).unwrap().list;
        let now = DateTime::UNIX_EPOCH + chrono::TimeDelta::hours(2);
        let found = query(&list, now).unwrap();
        let found: Vec<(&str, &str)> = found.iter().map(|(name, value)| (*name, value.as_str())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn filters_become_the_query() {
        check(
            &["--status", "failed", "--thread", "t:1", "--search", "a b", "--limit", "3"],
            &[("status", "failed"), ("thread_id", "t:1"), ("q", "a b"), ("limit", "3")],
        );
        check(
            &["--status", "failed,running", "--agent", "a,b", "--agent", "c", "--roots", "--since", "1h"],
            &[
                ("status", "failed,running"),
                ("agent", "a\\,b,c"),
                ("roots", "true"),
                ("since", "1970-01-01T01:00:00.000000Z"),
                ("limit", "20"),
            ],
        );
        check(
            &["--min-duration", "1s", "--max-duration", "2min", "--sort", "duration", "--ascending", "--model", "m"],
            &[
                ("model", "m"),
                ("duration_min_ms", "1000"),
                ("duration_max_ms", "120000"),
                ("sort", "duration"),
                ("order", "asc"),
                ("limit", "20"),
            ],
        );
    }
}
