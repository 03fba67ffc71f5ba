//! The survey's five tools: they read the tree and answer with numbers.
//!
//! Each takes `{"scopes": […]}` (see [`Scope`]) and, where it lists things, `"top"`. All of them read files, so all of
//! them are blocking; none writes, so none is exclusive.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    count::Lines,
    duplicates::Search,
    findings::{Duplicates, Functions, LISTED_MAX, Markers, Measured, Share, Walked, largest_first, longest_first},
    functions, language,
    lexer::kinds,
    markers,
    parts::{divide, folders},
    scope::Scope,
    source::{Entry, Source},
};
use crate::{
    agents::tools::{Called, Tool, ToolError, Toolbox},
    domain::context::RunContext,
};

/// Most scopes of one call.
const SCOPES_MAX: usize = 1_000;
/// Most entries a caller may ask for.
const TOP_MAX: usize = 100;

/// What a tool measures.
type Measure = fn(&Source, &[Scope], usize) -> Value;

struct Surveying {
    name: &'static str,
    description: &'static str,
    source: Arc<Source>,
    measure: Measure,
}

/// All five tools over one tree.
pub fn toolbox(source: &Arc<Source>) -> Toolbox {
    let tools: [(&'static str, &'static str, Measure); 5] = [
        ("walk_tree", "adds up the files of the scopes and divides them into parts of about the same size", walk_tree),
        ("measure_files", "counts files, bytes, languages and lines: blank, comment, code", measure_files),
        ("find_long_functions", "finds functions and names the longest ones", find_long_functions),
        ("find_todos", "finds the words that mark unfinished work in comments", find_todos),
        ("find_duplicates", "finds files with the same bytes and blocks of lines that stand twice", find_duplicates),
    ];
    Toolbox::new(tools.map(|(name, description, measure)| -> Arc<dyn Tool> {
        Arc::new(Surveying { name, description, source: Arc::clone(source), measure })
    }))
}

impl Tool for Surveying {
    fn name(&self) -> &str {
        self.name
    }

    fn description(&self) -> &str {
        self.description
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object", "required": ["scopes"], "additionalProperties": false,
            "properties": {
                "scopes": {"type": "array", "items": {"type": "string"}, "maxItems": SCOPES_MAX},
                "top": {"type": "integer", "minimum": 1, "maximum": TOP_MAX},
            },
        })
    }

    fn blocking(&self) -> bool {
        true
    }

    fn call<'a>(&'a self, _: &'a RunContext, args: Value, _: &'a CancellationToken) -> Called<'a> {
        Box::pin(async move {
            let scopes = args["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::parse);
            let scopes = scopes.collect::<Result<Vec<Scope>, _>>();
            let scopes = scopes.map_err(|error| ToolError::Arguments(error.to_string()))?;
            let top = args["top"].as_u64().and_then(|top| usize::try_from(top).ok()).unwrap_or(LISTED_MAX);
            Ok((self.measure)(&self.source, &scopes, top))
        })
    }
}

fn walk_tree(source: &Source, scopes: &[Scope], _: usize) -> Value {
    let (entries, skipped) = source.list(scopes);
    let bytes = entries.iter().map(|entry| entry.bytes).sum();
    answer(&Walked { files: entries.len() as u64, bytes, skipped, parts: divide(&folders(&entries)) })
}

fn measure_files(source: &Source, scopes: &[Scope], top: usize) -> Value {
    let mut measured = Measured::default();
    measured.skipped = source.read(scopes, |path, bytes| {
        let language = language::of(path);
        let lines = Lines::of(bytes, &kinds(bytes, &language));
        let size = bytes.len() as u64;
        measured.files += 1;
        measured.bytes += size;
        measured.lines.add(lines);
        let share = measured.languages.entry(language.name.to_owned()).or_default();
        share.add(Share { files: 1, bytes: size, lines });
        measured.largest.push(Entry { path: path.to_owned(), bytes: size });
        if measured.largest.len() > 4 * TOP_MAX {
            largest_first(&mut measured.largest, top);
        }
    });
    largest_first(&mut measured.largest, top);
    answer(&measured)
}

fn find_long_functions(source: &Source, scopes: &[Scope], top: usize) -> Value {
    let mut found = Functions::default();
    source.read(scopes, |path, bytes| {
        let language = language::of(path);
        let functions = functions::find(path, bytes, &kinds(bytes, &language), &language);
        found.count += functions.len() as u64;
        found.longest.extend(functions);
        longest_first(&mut found.longest, top);
    });
    answer(&found)
}

fn find_todos(source: &Source, scopes: &[Scope], top: usize) -> Value {
    let mut markers = Markers::default();
    source.read(scopes, |path, bytes| {
        let language = language::of(path);
        for marker in markers::find(path, bytes, &kinds(bytes, &language), &language) {
            markers.count += 1;
            *markers.by_word.entry(marker.word.clone()).or_default() += 1;
            if markers.found.len() < top {
                markers.found.push(marker);
            }
        }
    });
    answer(&markers)
}

fn find_duplicates(source: &Source, scopes: &[Scope], top: usize) -> Value {
    let mut search = Search::default();
    source.read(scopes, |path, bytes| search.add(path, bytes, language::of(path).code));
    let found = search.finish();
    let copies = |paths: &[String]| paths.len().saturating_sub(1) as u64;
    let mut duplicates = Duplicates {
        copied_files: found.files.iter().map(|group| copies(&group.paths)).sum(),
        copied_bytes: found.files.iter().map(|group| group.bytes * copies(&group.paths)).sum(),
        block_count: found.blocks.len() as u64,
        block_lines: found.blocks.iter().map(|block| block.lines as u64).sum(),
        files: found.files,
        blocks: found.blocks,
        complete: found.complete,
    };
    duplicates.files.truncate(top);
    duplicates.blocks.truncate(top);
    duplicates.files.iter_mut().for_each(|group| group.paths.truncate(top));
    answer(&duplicates)
}

fn answer(measured: &impl Serialize) -> Value {
    serde_json::to_value(measured).unwrap_or_default()
}
