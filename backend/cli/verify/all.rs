//! Verification of everything: the chains of all runs, the number of events of each lane, and the seals.

use std::{collections::HashMap, process::ExitCode};

use anyhow::Context as _;
use serde_json::json;
use uuid::Uuid;

use super::Args;
use crate::{
    cli::{
        exit::FAILED,
        render::{print, say},
    },
    database::Database,
    domain::{
        artifact::Hash,
        chain::{
            Fault, FaultKind, Head, Walk,
            seal::{Seal, SealRef},
        },
        id::{RunId, Seq},
        limits::{EVENT_PAGE_BYTES_MAX, REPLAY_ROWS},
        splice::LogPosition,
    },
    postgres::STOP_MAX,
    sealer::seen::SeenFile,
    store::{self, Settings, Store, seals::StoredSeal},
};

/// The faults that were found, and what was checked.
#[derive(Debug, Default)]
struct Report {
    faults: u64,
    runs: u64,
    events: u64,
    /// Runs with events that have no link because they are older.
    uncovered: u64,
    seals: i64,
    /// The hash of the last seal.
    last: Option<Hash>,
    /// The last seal that the server with this data directory has seen.
    seen: Option<SealRef>,
}

pub(super) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let database = Database::attach(&args.data).await?;
    let settings = Settings::few(database.options.clone());
    let store = Store::connect(settings).await?;
    let done = verify(&store, args).await;
    store.close().await;
    database.detach(STOP_MAX).await?;
    let report = done?;
    if args.json {
        let last = report.last.map(|seal| seal.to_string());
        print(&format!(
            "{}\n",
            json!({
                "faults": report.faults, "runs": report.runs, "events": report.events, "uncovered_runs": report.uncovered,
                "seals": report.seals, "last_seal": last, "seen_seal": report.seen.map(|seen| seen.number),
            })
        ))?;
    } else {
        let Report { runs, events, uncovered, seals, .. } = report;
        say(format!("{runs} runs, {events} events, {uncovered} runs not or partly covered, {seals} seals"));
        say(match report.seen {
            Some(seen) => format!("the server with this data directory has seen seal {}", seen.number),
            None => "no server with this data directory has seen a seal".to_owned(),
        });
        if let Some(last) = report.last {
            say(format!("the last seal is {last}"));
        }
        say(if report.faults == 0 { "all is as it was written" } else { "not all is as it was written" });
    }
    Ok(ExitCode::from(if report.faults == 0 { 0 } else { FAILED }))
}

impl Report {
    fn fault(&mut self, what: &serde_json::Value, text: &str, as_json: bool) -> anyhow::Result<()> {
        self.faults += 1;
        print(&if as_json { format!("{what}\n") } else { format!("{text}\n") })?;
        Ok(())
    }

    fn of_run(&mut self, run: RunId, fault: Fault, args: &Args) -> anyhow::Result<()> {
        let Fault { seq, kind } = fault;
        let what = json!({ "run_id": run, "seq": seq, "kind": kind, "detail": kind.detail() });
        self.fault(&what, &format!("{run} seq {seq}: {}", kind.detail()), args.json)
    }

    /// `missing` events of a lane are neither there nor removed by their owner or age; there may be too many instead.
    fn of_lane(&mut self, lane: u8, missing: i64, args: &Args) -> anyhow::Result<()> {
        let text = match missing {
            0.. => format!("lane {lane}: {missing} events are missing that were not removed by their owner or age"),
            ..0 => format!("lane {lane}: {} events are there that this log never numbered", -missing),
        };
        self.fault(&json!({ "lane": lane, "missing": missing }), &text, args.json)
    }

    fn of_seal(&mut self, number: i64, detail: &str, args: &Args) -> anyhow::Result<()> {
        self.fault(&json!({ "seal": number, "detail": detail }), &format!("seal {number}: {detail}"), args.json)
    }
}

async fn verify(store: &Store, args: &Args) -> anyhow::Result<Report> {
    let file = SeenFile::of(&args.data.data_dir()?, store.seals().log().await?);
    let seen = file.read().await.with_context(|| file.path().display().to_string())?;
    let mut report = Report { seen, ..Report::default() };
    chains(store, args, &mut report).await?;
    let mut after = Uuid::nil();
    loop {
        let (empty, next) = store.chains().empty_runs(after).await?;
        for run in empty {
            report.of_run(run, Fault { seq: Seq::ZERO.next(), kind: FaultKind::Removed }, args)?;
        }
        let Some(next) = next else { break };
        after = next;
    }
    seals(store, args, &mut report).await?;
    Ok(report)
}

/// Follows the chain of every run, and counts the events of every lane.
async fn chains(store: &Store, args: &Args, report: &mut Report) -> Result<(), anyhow::Error> {
    let before = store.chains().lanes().await?;
    // Of each lane: the events up to where it stood before, and the greatest position.
    let mut counts: HashMap<u8, (i64, i64)> = HashMap::new();
    let (mut place, mut open): (_, Option<(RunId, Walk, Option<Head>)>) = ((Uuid::nil(), 0), None);
    let mut rows = REPLAY_ROWS;
    loop {
        let (page, bytes) = store.chains().all_after(place, rows).await?;
        let Some(last) = page.last() else { break };
        // As many as make a page in bytes: the database sends all requested rows.
        rows = i64::try_from(EVENT_PAGE_BYTES_MAX * page.len() / bytes.max(1))
            .unwrap_or(REPLAY_ROWS)
            .clamp(16, REPLAY_ROWS);
        place = (last.stored.event.run_id.uuid(), last.place.seq.get());
        for row in page {
            let (run, LogPosition { lane, position, .. }) = (row.stored.event.run_id, row.place);
            let (count, last) = counts.entry(lane).or_default();
            *count += i64::from(position <= before.get(&lane).map_or(0, |lane| lane.position));
            *last = position.max(*last);
            if let Some((finished, walk, head)) = open.take_if(|(open, ..)| *open != run) {
                finish(store, report, (finished, walk, head), args).await?;
            }
            let (_, walk, head) = open.get_or_insert_with(|| (run, Walk::new(run), None));
            report.events += 1;
            *head = row.head;
            let owner = head.as_ref().map_or(&*row.stored.event.owner_id, |head| &head.owner_id);
            walk.take(&row.stored, owner);
        }
    }
    if let Some((run, walk, head)) = open {
        finish(store, report, (run, walk, head), args).await?;
    }
    for (lane, after) in store.chains().lanes().await? {
        let (count, last) = counts.get(&lane).copied().unwrap_or_default();
        let before = before.get(&lane).copied().unwrap_or_default();
        // An event removed meanwhile is in at least one of the two sums: no fault.
        let (missing, extra) = (before.position - after.removed - count, count + before.removed - before.position);
        if missing > 0 {
            report.of_lane(lane, missing, args)?;
        }
        if extra.max(last - after.position) > 0 {
            report.of_lane(lane, -extra.max(last - after.position), args)?;
        }
    }
    Ok(())
}

async fn finish(
    store: &Store,
    report: &mut Report,
    (run, mut walk, head): (RunId, Walk, Option<Head>),
    args: &Args,
) -> anyhow::Result<()> {
    match &head {
        Some(head) => {
            walk.finish(head);
            let faults = store.chains().any_row_faults(&head.owner_id, run, walk.checked_to).await?;
            for fault in faults {
                walk.note(fault);
            }
        }
        None => walk.note(Fault { seq: walk.checked_to, kind: FaultKind::Head }),
    }
    // A run that was removed between two pages is not counted.
    if !walk.faults().is_empty() && store.chains().was_removed(run).await? {
        return Ok(());
    }
    report.runs += 1;
    report.uncovered += u64::from(walk.covered_from != Some(Seq::ZERO.next()));
    walk.faults().iter().try_for_each(|fault| report.of_run(run, *fault, args))
}

/// Follows the chain of seals, and checks what they name.
async fn seals(store: &Store, args: &Args, report: &mut Report) -> anyhow::Result<()> {
    let key = args.key.map(|key| key.to_string());
    let (mut is_noted, mut is_seen, mut is_signed) = (args.seal.is_none(), report.seen.is_none(), false);
    while let Some(stored) = next_seal(store, report).await? {
        let StoredSeal { seal, entries, unaccounted } = stored;
        let number = report.seals + 1;
        if seal.number != number {
            report.of_seal(number, "it is missing", args)?;
        }
        let found = Seal::of(report.last, (seal.number, seal.at), seal.positions.clone(), &entries, None);
        if found.sha256 != seal.sha256 {
            report.of_seal(seal.number, "it, or what it names, was changed", args)?;
        }
        if seal.signature.as_ref().is_some_and(|signature| !signature.is_of(seal.sha256)) {
            report.of_seal(seal.number, "its signature is wrong", args)?;
        }
        for entry in unaccounted {
            if entry.is_removed {
                report.of_seal(seal.number, &format!("the note of the removal of {} is gone", entry.run_id), args)?;
            } else {
                report.of_run(entry.run_id, Fault { seq: entry.last_seq, kind: FaultKind::Sealed }, args)?;
            }
        }
        let by_key = key.is_some() && seal.signature.as_ref().map(|by| &by.key) == key.as_ref();
        if is_signed && !by_key {
            report.of_seal(seal.number, "it is not signed by the given key, which signed one before it", args)?;
        }
        is_signed |= by_key;
        is_noted |= args.seal == Some(seal.sha256);
        is_seen |= report.seen == Some(seal.reference());
        (report.seals, report.last) = (seal.number, Some(seal.sha256));
    }
    // A signed seal binds those before it, which may be older than the key.
    if key.is_some() && !is_signed {
        report.of_seal(report.seals, "none up to here is signed by the given key", args)?;
    }
    if let Some(SealRef { number, .. }) = report.seen.filter(|_| !is_seen) {
        report.of_seal(number, "the server has seen it, and it is not there or another one", args)?;
    }
    if !is_noted {
        report.of_seal(report.seals + 1, "the seal that was noted elsewhere is not there", args)?;
    }
    Ok(())
}

async fn next_seal(store: &Store, report: &Report) -> Result<Option<StoredSeal>, store::Error> {
    store.seals().after(report.seals).await
}
