//! The types of events, which the program has in one table, against what says them by hand: the contract and the packages.

use std::{collections::BTreeSet, fs};

use runreel::domain::{
    event::{EventKind, EventType},
    run::Status,
};

fn read(path: &str) -> String {
    fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// What the log may hold: every kind but tokens.
fn durable() -> impl Iterator<Item = EventKind> {
    EventKind::ALL.iter().copied().filter(|kind| !EventType::from(*kind).is_ephemeral())
}

/// What stands in quotes in a text.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).step_by(2)
}

fn words(kinds: impl Iterator<Item = EventKind>) -> BTreeSet<String> {
    kinds.map(|kind| kind.as_str().to_owned()).collect()
}

#[test]
fn the_table_of_the_contract_has_every_type_and_marks_those_that_nobody_may_emit() {
    let document = read("docs/protocol.md");
    let table = document.split_once("| family | types |").expect("the table of types").1;
    let (mut all, mut reserved) = (BTreeSet::new(), BTreeSet::new());
    for line in table.lines().skip(2).take_while(|line| line.starts_with('|')).filter(|line| !line.contains("`stream`"))
    {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let (family, types) = (cells.next().unwrap().trim_matches('`'), cells.next().unwrap());
        let types = types.split('(').next().unwrap();
        for word in types.split([' ', ',']).filter(|word| !word.is_empty()) {
            let event_type = format!("{family}.{}", word.trim_matches('`'));
            if word.starts_with('`') {
                reserved.insert(event_type.clone());
            }
            all.insert(event_type);
        }
    }
    assert_eq!(all, words(durable()));
    assert_eq!(reserved, words(durable().filter(|kind| kind.is_the_servers())));
}

#[test]
fn the_typescript_client_declares_a_payload_for_every_type() {
    let source = read("sdk/typescript/packages/client/src/events.ts");
    let payloads = source.split_once("export interface Payloads {").expect("the payloads").1;
    let members = payloads.lines().take_while(|line| *line != "}").filter_map(|line| line.strip_prefix("  \""));
    let declared = members.map(|member| member.split('"').next().unwrap().to_owned());
    assert_eq!(declared.collect::<BTreeSet<_>>(), words(durable()));
}

#[test]
fn both_clients_know_what_status_a_type_leads_to() {
    let source = read("sdk/typescript/packages/client/src/read.ts");
    let map = source.split_once("new Map<string, RunStatus>([").expect("the map of statuses").1;
    let rows = map.lines().skip(1).take_while(|line| line.starts_with("  ["));
    let known = rows.map(|row| quoted(row).map(str::to_owned).collect::<Vec<_>>());
    let leads = |kind: EventKind| Some(vec![kind.as_str().to_owned(), kind.status()?.as_str().to_owned()]);
    assert_eq!(known.collect::<BTreeSet<_>>(), durable().filter_map(leads).collect());

    let source = read("sdk/python/src/runreel/_events.py");
    let line = source.lines().find(|line| line.starts_with("TERMINAL_TYPES")).expect("the types that end a run");
    let is_last = |kind: &EventKind| kind.status().is_some_and(Status::is_terminal);
    assert_eq!(quoted(line).map(str::to_owned).collect::<BTreeSet<_>>(), words(durable().filter(is_last)));
}
