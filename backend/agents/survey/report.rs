//! The survey in words and as a table. Every sentence is a template; every number in it was measured.

use comfy_table::{CellAlignment, Table as Drawn, presets};
use serde::Serialize;

use super::findings::{Counted, Duplicates, Findings, Functions, Markers, PartReport};

/// Columns and rows of text, for people and for a page that draws its own table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Table {
    pub title: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

/// What a worker says about its part.
pub fn note(report: &PartReport) -> String {
    let Counted { measured, functions, markers, duplicates } = &report.counted;
    let lines = measured.lines;
    let mut sentences = vec![format!(
        "{}: {} in {}, of which {} are code, {} comments and {} blank.",
        report.part.name,
        many(lines.total, "line"),
        many(measured.files, "text file"),
        grouped(lines.code),
        grouped(lines.comment),
        grouped(lines.blank),
    )];
    if let Some((language, share)) = measured.by_code().first() {
        sentences.push(format!("Most of it is {language} ({}).", many(share.lines.code, "line of code")));
    }
    sentences.extend(longest(functions));
    sentences.push(unfinished(markers));
    sentences.push(copied(duplicates));
    sentences.join(" ")
}

/// What the supervisor says about the whole tree.
pub fn summary(name: &str, findings: &Findings) -> String {
    let Counted { measured: total, functions, markers, duplicates } = &findings.total;
    let lines = total.lines;
    let mut first = format!(
        "{name} holds {} in {}: {} of code, {} of comments, {} blank.",
        many(lines.total, "line"),
        many(total.files, "text file"),
        grouped(lines.code),
        grouped(lines.comment),
        grouped(lines.blank),
    );
    let languages: Vec<String> = total
        .by_code()
        .iter()
        .filter(|(_, share)| share.lines.code > 0)
        .take(4)
        .map(|(language, share)| format!("{language} ({})", grouped(share.lines.code)))
        .collect();
    if !languages.is_empty() {
        first = format!("{first} By lines of code: {}.", languages.join(", "));
    }
    let mut second: Vec<String> = longest(functions).into_iter().collect();
    if let Some(largest) = total.largest.first() {
        second.push(format!("The largest file is {} with {}.", largest.path, bytes(largest.bytes)));
    }
    second.push(unfinished(markers));
    let mut paragraphs = vec![first, second.join(" "), copied(duplicates)];
    paragraphs.extend(left_out(findings));
    paragraphs.join("\n\n")
}

/// One row a part, then what is missing, then the sum.
pub fn table(findings: &Findings) -> Table {
    let mut rows: Vec<Vec<String>> =
        findings.parts.iter().map(|report| row(&report.part.name, &report.counted)).collect();
    rows.extend(findings.missing.iter().map(|missing| {
        let mut row = vec![missing.part.name.clone(), "not surveyed".to_owned()];
        row.resize(COLUMNS.len(), "–".to_owned());
        row
    }));
    rows.push(row("All", &findings.total));
    Table { title: "Findings by part".to_owned(), columns: COLUMNS.map(str::to_owned).to_vec(), rows }
}

impl Table {
    /// Drawn with lines; numbers stand right.
    pub fn text(&self) -> String {
        let mut drawn = Drawn::new();
        drawn.load_style(presets::UTF8_FULL_CONDENSED).set_header(&self.columns).add_rows(&self.rows);
        for at in [1, 2, 3, 4, 6, 7, 8] {
            if let Some(column) = drawn.column_mut(at) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        drawn.trim_fmt()
    }
}

const COLUMNS: [&str; 9] =
    ["Part", "Files", "Lines", "Code", "Comments", "Longest function", "Markers", "Copied files", "Repeated lines"];

fn row(name: &str, counted: &Counted) -> Vec<String> {
    let Counted { measured, functions, markers, duplicates } = counted;
    let lines = measured.lines;
    let longest = functions.longest.first();
    vec![
        name.to_owned(),
        grouped(measured.files),
        grouped(lines.total),
        grouped(lines.code),
        grouped(lines.comment),
        longest.map_or_else(|| "–".to_owned(), |function| format!("{} ({})", cut(&function.name), function.lines)),
        grouped(markers.count),
        grouped(duplicates.copied_files),
        grouped(duplicates.block_lines),
    ]
}

fn longest(functions: &Functions) -> Option<String> {
    let longest = functions.longest.first()?;
    let (name, path, line) = (&longest.name, &longest.path, longest.line);
    let lines = many(longest.lines as u64, "line");
    Some(format!("The longest of {} is {name} at {path}:{line} with {lines}.", many(functions.count, "function")))
}

fn unfinished(markers: &Markers) -> String {
    let Some(first) = markers.found.first() else {
        return "No comment marks unfinished work.".to_owned();
    };
    let words: Vec<String> =
        markers.by_word.iter().map(|(word, count)| format!("{} {word}", grouped(*count))).collect();
    format!("Comments mark unfinished work: {}, the first at {}:{}.", words.join(", "), first.path, first.line)
}

fn copied(duplicates: &Duplicates) -> String {
    let mut sentences = Vec::new();
    if let Some(group) = duplicates.files.first() {
        let (files, size) = (many(duplicates.copied_files, "copied file"), bytes(duplicates.copied_bytes));
        let is = if duplicates.copied_files == 1 { "is" } else { "are" };
        sentences.push(format!("There {is} {files} ({size} in all); the largest has the bytes of {}.", group.paths[0]));
    }
    if let Some(block) = duplicates.blocks.first() {
        let (first, again) = (&block.first, &block.again);
        sentences.push(format!(
            "{} of code {} in an earlier place already; the longest block, {}, is at {}:{} and again at {}:{}.",
            many(duplicates.block_lines, "line"),
            if duplicates.block_lines == 1 { "stands" } else { "stand" },
            many(block.lines as u64, "line"),
            first.path,
            first.line,
            again.path,
            again.line,
        ));
    }
    if sentences.is_empty() {
        sentences.push("No file is a copy of another and no block of six lines stands twice.".to_owned());
    }
    if !duplicates.complete {
        sentences.push("Not every line was compared: there are too many.".to_owned());
    }
    sentences.join(" ")
}

/// What the numbers do not hold.
fn left_out(findings: &Findings) -> Option<String> {
    let skipped = findings.total.measured.skipped;
    let reasons = [
        (skipped.binary, "binary"),
        (skipped.too_large, "too large"),
        (skipped.unreadable, "unreadable"),
        (skipped.symlinks, "symbolic links"),
        (skipped.over_bound, "over the bound"),
    ];
    let reasons: Vec<String> = reasons
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, why)| format!("{} {why}", grouped(*count)))
        .collect();
    let mut sentences: Vec<String> = Vec::new();
    if !reasons.is_empty() {
        sentences.push(format!("Not read: {}.", reasons.join(", ")));
    }
    for missing in &findings.missing {
        sentences.push(format!("The part {} is missing from these numbers: {}.", missing.part.name, missing.error));
    }
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// `1 line`, `2 lines`, `1 line of code`, `2 lines of code`.
fn many(count: u64, thing: &str) -> String {
    let (noun, rest) = match thing.split_once(" of ") {
        Some((noun, rest)) => (noun, format!(" of {rest}")),
        None => (thing, String::new()),
    };
    format!("{} {noun}{}{rest}", grouped(count), if count == 1 { "" } else { "s" })
}

/// A name that fits a column.
fn cut(name: &str) -> String {
    if name.chars().count() <= NAME_CHARS_MAX {
        return name.to_owned();
    }
    name.chars().take(NAME_CHARS_MAX - 1).chain(['…']).collect()
}

/// Characters of a name in the table; the sentences have it whole.
const NAME_CHARS_MAX: usize = 28;

/// Digits in groups of three.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn bytes(count: u64) -> String {
    match count {
        0..1_024 => many(count, "byte"),
        1_024..1_048_576 => format!("{} KiB", grouped(count.div_ceil(1_024))),
        _ => format!("{} MiB", grouped(count.div_ceil(1_048_576))),
    }
}

#[cfg(test)]
mod tests;
