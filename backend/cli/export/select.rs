//! Which runs are exported, and in which order.

use std::collections::{BTreeMap, HashSet, VecDeque};

use chrono::{DateTime, Utc};
use serde::Deserialize;

use super::{PATIENCE, What};
use crate::{
    cli::exit::CliError,
    client::Client,
    clock::Clock,
    domain::{context::Role, event::timestamp, id::RunId, limits::PAGE_ROWS_MAX},
};

/// A run that is to be exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Chosen {
    pub(super) run_id: RunId,
    pub(super) parent_run_id: Option<RunId>,
}

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    Time(DateTime<Utc>),
    Ago(std::time::Duration),
}

pub(super) fn since(text: &str) -> Result<Since, String> {
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Ok(Since::Time(time.to_utc()));
    }
    let ago = humantime::parse_duration(text).map(Since::Ago);
    ago.map_err(|_| "must be a time such as 2026-11-22T00:00:00Z or an age such as 7d".to_owned())
}

impl Since {
    fn time(self, now: DateTime<Utc>) -> anyhow::Result<DateTime<Utc>> {
        let time = match self {
            Self::Time(time) => Some(time),
            Self::Ago(ago) => chrono::TimeDelta::from_std(ago).ok().and_then(|ago| now.checked_sub_signed(ago)),
        };
        Ok(time.ok_or_else(|| CliError::usage("--since is too far in the past"))?)
    }
}

#[derive(Deserialize)]
struct Page {
    runs: Vec<Chosen>,
    next_cursor: Option<String>,
}

/// The runs in the order of their ids, which is by time; except that a parent always comes before its children.
pub(super) async fn choose(client: &Client, what: &What) -> anyhow::Result<Vec<Chosen>> {
    let mut found = BTreeMap::new();
    if let Some(run) = what.run {
        let id = run.resolve(client).await?.to_string();
        let segments = ["runs", id.as_str()];
        let run: Chosen = client.insist(PATIENCE, |_| client.get(&segments, &[])).await?;
        found.insert(run.run_id, run);
        descend(client, &mut found).await?;
    } else if let Some(thread) = &what.thread {
        list(client, &[("thread_id", thread.to_string())], &mut found).await?;
        descend(client, &mut found).await?;
    } else if let Some(since) = what.since {
        let time = timestamp(since.time(Clock::System.now())?);
        list(client, &[("since", time)], &mut found).await?;
    } else {
        list(client, &[], &mut found).await?;
    }
    Ok(in_order(&found))
}

/// All pages of a list.
async fn list(
    client: &Client,
    filter: &[(&'static str, String)],
    found: &mut BTreeMap<RunId, Chosen>,
) -> anyhow::Result<Vec<RunId>> {
    let (mut cursor, mut fresh) = (None, Vec::new());
    loop {
        let mut query = filter.to_vec();
        // An export leaves nothing out.
        query.push(("role", Role::any()));
        query.push(("limit", PAGE_ROWS_MAX.to_string()));
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        let page: Page = client.insist(PATIENCE, |_| client.get(&["runs"], &query)).await?;
        for run in page.runs {
            if found.insert(run.run_id, run).is_none() {
                fresh.push(run.run_id);
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(fresh);
        }
    }
}

/// Adds all descendants of what was found.
async fn descend(client: &Client, found: &mut BTreeMap<RunId, Chosen>) -> anyhow::Result<()> {
    let mut parents: VecDeque<RunId> = found.keys().copied().collect();
    while let Some(parent) = parents.pop_front() {
        parents.extend(list(client, &[("parent_run_id", parent.to_string())], found).await?);
    }
    Ok(())
}

fn in_order(found: &BTreeMap<RunId, Chosen>) -> Vec<Chosen> {
    let (mut order, mut placed) = (Vec::with_capacity(found.len()), HashSet::new());
    for run in found.values() {
        // Up to the topmost that is not placed yet, then down again.
        let mut line = Vec::new();
        let mut next = Some(run);
        while let Some(run) = next.filter(|run| placed.insert(run.run_id)) {
            line.push(*run);
            next = run.parent_run_id.and_then(|parent| found.get(&parent));
        }
        order.extend(line.into_iter().rev());
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> RunId {
        format!("0198c0de-0000-7000-8000-0000000000{n:02}").parse().unwrap()
    }

    #[test]
    fn runs_come_by_id_and_a_parent_before_its_children_whatever_its_id() {
        let chosen = |n: u8, parent: Option<u8>| (id(n), Chosen { run_id: id(n), parent_run_id: parent.map(id) });
        let runs = [chosen(1, Some(5)), chosen(2, None), chosen(3, Some(2)), chosen(5, Some(9)), chosen(6, Some(1))];
        let order: Vec<RunId> = in_order(&runs.into()).iter().map(|run| run.run_id).collect();
        assert_eq!(order, [5, 1, 2, 3, 6].map(id));
    }

    #[test]
    fn since_is_a_time_or_an_age() {
        let now = DateTime::parse_from_rfc3339("2026-11-22T00:00:00Z").unwrap().to_utc();
        let of = |text: &str| timestamp(since(text).unwrap().time(now).unwrap());
        assert_eq!(of("7d"), "2026-11-15T00:00:00.000000Z");
        assert_eq!(of("2026-11-01T01:00:00+01:00"), "2026-11-01T00:00:00.000000Z");
        for bad in ["", "yesterday", "7", "2026-11-01"] {
            assert!(since(bad).is_err(), "{bad}");
        }
        assert!(since("900000years").unwrap().time(now).is_err());
    }
}
