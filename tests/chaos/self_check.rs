//! The harness tests itself: damage is planted in what a stream delivered, and every kind must be detected.
//!
//! The stream goes through the same parser as a real one, cut at awkward places; a judge that finds nothing in a
//! healthy stream and something in each damaged one can be trusted when it finds nothing later.

use std::collections::BTreeMap;

use anyhow::ensure;

use crate::{
    floods,
    judge::{Ack, Attempts, Connection, Delivery, Row, Table, Tally, Trial, judge_reader, judge_table, print_of},
    pulse, setback, skew,
    stage::Verdict,
    truthful,
    wire::{Frame, Frames},
};

const EVENTS: u64 = 200;

fn data(seq: u64) -> String {
    format!("{{\"seq\":{seq},\"payload\":{{\"n\":{seq}}}}}")
}

/// A stream of the events 1 … [`EVENTS`] as sent over the wire.
fn healthy() -> Vec<String> {
    (1..=EVENTS).map(|seq| format!("event: custom.x\ndata: {}\nid: {seq}\n\n", data(seq))).collect()
}

fn table() -> Table {
    let row = |seq| Row {
        seq,
        event_id: Some(format!("e{seq}")),
        payload: print_of(&format!("{{\"n\":{seq}}}")),
        print: print_of(&data(seq)),
    };
    vec![(1..=EVENTS).map(row).collect()]
}

fn attempts() -> Attempts {
    (1..=EVENTS).map(|seq| ((0, format!("e{seq}")), print_of(&format!("{{\"n\":{seq}}}")))).collect()
}

fn acks() -> Vec<Ack> {
    (1..=EVENTS).map(|seq| Ack { run: 0, event_id: format!("e{seq}"), seq }).collect()
}

/// What a reader gets from a stream whose bytes arrive `cut` at a time.
fn read(blocks: &[String], cut: usize, after: u64) -> anyhow::Result<Connection> {
    let (mut frames, mut deliveries) = (Frames::default(), Vec::new());
    for bytes in blocks.concat().as_bytes().chunks(cut) {
        for Frame { id, data, .. } in frames.feed(bytes)? {
            let seq = id.unwrap_or_default().parse()?;
            deliveries.push(Delivery { run: 0, seq, print: print_of(&data) });
        }
    }
    Ok(Connection { after: BTreeMap::from([(0, after)]), deliveries })
}

fn judged(blocks: &[String]) -> anyhow::Result<Tally> {
    let tallies =
        [1, 7, 4_096].map(|cut| read(blocks, cut, 0).map(|connection| judge_reader(&table(), &[0], &[connection])));
    let [first, second, third] = tallies;
    let first = first?;
    ensure!(first == second? && first == third?, "how bytes are cut changes the verdict");
    Ok(first)
}

/// Whether exactly this kind of damage is counted.
pub(crate) struct Plant {
    pub(crate) name: &'static str,
    pub(crate) seen: bool,
}

fn planted_streams() -> anyhow::Result<Vec<Plant>> {
    let plant = |name, damage: &dyn Fn(&mut Vec<String>), seen: &dyn Fn(Tally) -> bool| {
        let mut blocks = healthy();
        damage(&mut blocks);
        anyhow::Ok(Plant { name, seen: seen(judged(&blocks)?) })
    };
    Ok(vec![
        plant("nothing", &|_| {}, &Tally::is_clean_owned)?,
        plant("a lost event", &|blocks| _ = blocks.remove(99), &|tally| tally.lost > 0 && tally.duplicated == 0)?,
        plant("a lost tail", &|blocks| blocks.truncate(150), &|tally| tally.lost == EVENTS - 150)?,
        plant("a lost beginning", &|blocks| _ = blocks.drain(..3), &|tally| tally.lost > 0)?,
        plant("an event twice", &|blocks| blocks.insert(100, blocks[99].clone()), &|tally| tally.duplicated == 1)?,
        plant("an old event again", &|blocks| blocks.push(blocks[3].clone()), &|tally| tally.duplicated == 1)?,
        plant("two events swapped", &|blocks| blocks.swap(50, 51), &|tally| {
            tally.out_of_order == 1 && tally.lost == 0
        })?,
        plant("a changed byte", &|blocks| blocks[70] = blocks[70].replace("\"n\":71", "\"n\":72"), &|tally| {
            tally.differing == 1
        })?,
        plant("an added space", &|blocks| blocks[70] = blocks[70].replace("\"n\":", "\"n\": "), &|tally| {
            tally.differing == 1
        })?,
        plant("an event nobody sent", &|blocks| blocks.push(healthy()[0].replace("id: 1\n", "id: 201\n")), &|tally| {
            tally.invented == 1
        })?,
    ])
}

fn planted_tables() -> Vec<Plant> {
    let plant = |name, damage: &dyn Fn(&mut Table, &mut Vec<Ack>, &mut Attempts), seen: &dyn Fn(Tally) -> bool| {
        let (mut table, mut acks, mut attempts) = (table(), acks(), attempts());
        damage(&mut table, &mut acks, &mut attempts);
        Plant { name, seen: seen(judge_table(&table, &acks, &attempts)) }
    };
    vec![
        plant("nothing in the table", &|_, _, _| {}, &Tally::is_clean_owned),
        plant("a hole in the table", &|table, _, _| _ = table[0].remove(10), &|tally| {
            tally.lost == 1 && tally.missing == 1
        }),
        plant("an acknowledged tail missing", &|table, _, _| _ = table[0].pop(), &|tally| tally.missing == 1),
        plant("an acknowledged seq of another event", &|_, acks, _| acks[5].seq = 7, &|tally| tally.missing == 1),
        plant(
            "an event_id stored twice",
            &|table, _, _| table[0][20].event_id = table[0][19].event_id.clone(),
            &|tally| tally.duplicated == 1,
        ),
        plant(
            "an event nobody sent in the table",
            &|_, _, attempts| _ = attempts.remove(&(0, "e9".to_owned())),
            &|tally| tally.invented == 1,
        ),
        plant("a payload changed on its way in", &|table, _, _| table[0][30].payload ^= 1, &|tally| {
            tally.differing == 1
        }),
    ]
}

/// A reconnecting reader is judged from its cursor on.
fn planted_resumes() -> anyhow::Result<Vec<Plant>> {
    let resumed = |from: usize| {
        let blocks = healthy();
        let connections = [read(&blocks[..120], 64, 0)?, read(&blocks[from..], 64, 120)?];
        anyhow::Ok(judge_reader(&table(), &[0], &connections))
    };
    let frame_broken = Frames::default().feed(b"id: 1\nid: 2\n\n").is_err();
    Ok(vec![
        Plant { name: "a resume at the cursor", seen: resumed(120)?.is_clean() },
        Plant { name: "a resume that skips one", seen: resumed(121)?.lost > 0 },
        Plant { name: "a resume that repeats one", seen: resumed(119)?.duplicated == 1 },
        Plant { name: "a frame with two ids", seen: frame_broken },
        Plant { name: "a trial without a fault", seen: !Trial { acknowledged: 1_000, faults: 0 }.counts() },
        Plant { name: "a trial without traffic", seen: !Trial { acknowledged: 199, faults: 1 }.counts() },
    ])
}

impl Tally {
    fn is_clean_owned(self) -> bool {
        self.is_clean()
    }
}

/// Plants everything and reports what was not detected.
pub(crate) fn run() -> anyhow::Result<Verdict> {
    let mut verdict = Verdict::default();
    let streams = planted_streams()?.into_iter().chain(planted_tables()).chain(planted_resumes()?);
    let others = setback::plants()
        .into_iter()
        .chain(skew::plants())
        .chain(truthful::plants())
        .chain(pulse::plants())
        .chain(floods::plants());
    let plants: Vec<Plant> = streams.chain(others).collect();
    for plant in &plants {
        verdict.require(plant.seen, || format!("planted and not judged rightly: {}", plant.name));
    }
    verdict.fact(format!("{} plants judged rightly", plants.iter().filter(|plant| plant.seen).count()));
    Ok(verdict)
}
