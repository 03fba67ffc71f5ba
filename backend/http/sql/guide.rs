//! `docs/sql.md` on the views, for programs. It is read from the page itself, so the two cannot differ.

use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::limits::{QUERY_MS_MAX, QUERY_RESULT_BYTES_MAX, QUERY_ROWS_MAX};

const PAGE: &str = include_str!("../../../docs/sql.md");

/// What a query can use.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Guide {
    views: Vec<View>,
    functions: Vec<Function>,
    examples: Vec<Example>,
    limits: Limits,
}

#[derive(Debug, Serialize, ToSchema)]
struct View {
    name: &'static str,
    description: &'static str,
    columns: Vec<ViewColumn>,
}

#[derive(Debug, Serialize, ToSchema)]
struct ViewColumn {
    name: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    description: &'static str,
}

/// A function of the schema `runreel`; those of Postgres for numbers, texts, times, JSON and arrays are not listed.
#[derive(Debug, Serialize, ToSchema)]
struct Function {
    name: &'static str,
    signature: &'static str,
    description: &'static str,
}

#[derive(Debug, Serialize, ToSchema)]
struct Example {
    /// Stable for those of the group `insights`.
    id: String,
    /// `questions` or `insights`.
    group: &'static str,
    title: &'static str,
    query: &'static str,
}

#[derive(Debug, Serialize, ToSchema)]
struct Limits {
    rows_max: i64,
    bytes_max: i64,
    timeout_ms: i64,
}

impl Guide {
    pub(super) fn read() -> Self {
        let questions = examples("Twenty questions").into_iter().map(|(number, title, query)| Example {
            id: format!("question_{number}"),
            group: "questions",
            title,
            query,
        });
        let insights = examples("Insights").into_iter().map(|(id, title, query)| Example {
            id: id.to_owned(),
            group: "insights",
            title,
            query,
        });
        let functions = rows(section("Functions")).into_iter().map(|[signature, _, description]| Function {
            name: signature.split('(').next().unwrap_or_default(),
            signature,
            description,
        });
        Self {
            views: section("The views").split("\n### ").skip(1).filter_map(view).collect(),
            functions: functions.collect(),
            examples: questions.chain(insights).collect(),
            limits: Limits { rows_max: QUERY_ROWS_MAX, bytes_max: QUERY_RESULT_BYTES_MAX, timeout_ms: QUERY_MS_MAX },
        }
    }
}

/// The text under a heading.
fn section(heading: &str) -> &'static str {
    let mut parts = PAGE.split("\n## ");
    parts.find_map(|part| part.strip_prefix(heading)?.strip_prefix('\n')).unwrap_or_default()
}

fn view(text: &'static str) -> Option<View> {
    let (name, rest) = text.split_once('\n')?;
    let description = rest.trim_start().split("\n\n").next()?;
    let columns = rows(rest).into_iter().map(|[name, kind, description]| ViewColumn { name, kind, description });
    Some(View { name, description, columns: columns.collect() })
}

/// The rows of a table with three columns, of which the first is code.
fn rows(text: &'static str) -> Vec<[&'static str; 3]> {
    let row = |line: &'static str| {
        let (name, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
        let (kind, rest) = rest.split_once(" | ")?;
        Some([name, kind, rest.strip_suffix(" |")?])
    };
    text.lines().filter_map(row).collect()
}

/// The examples of a section: the parts of the bold text before and after the first full stop, and the SQL below.
fn examples(heading: &str) -> Vec<(&'static str, &'static str, &'static str)> {
    let example = |block: &'static str| {
        let (bold, rest) = block.split_once("**")?;
        let (id, title) = bold.split_once(". ")?;
        let (_, rest) = rest.split_once("```sql\n")?;
        Some((id.trim_matches('`'), title, rest.split_once("\n```")?.0))
    };
    section(heading).split("\n**").skip(1).filter_map(example).collect()
}
