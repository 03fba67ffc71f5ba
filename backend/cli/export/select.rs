//! Which runs are exported, and in which order.

use std::collections::{BTreeMap, HashSet, VecDeque};

use serde::Deserialize;

use super::{PATIENCE, What};
use crate::{
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

#[derive(Deserialize)]
struct Page {
    runs: Vec<Chosen>,
    next_cursor: Option<String>,
}

/// The runs in the order of their ids, that is, by time; but a parent always comes before its children.
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
        // An export includes all roles.
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
}
