//! Output formats of a result. All but the table for people are streamed.

use std::{collections::HashSet, io};

use comfy_table::{Table, presets};
use serde_json::Value;

use crate::{
    cli::render::{clean, hand_out, print, say},
    domain::cell::{csv_line, json},
    store::query::{Column, RowSink},
};

/// How many bytes are collected before they are written.
const PIECE: usize = 64 * 1024;

/// Most rows of a table: more than a person reads.
const TABLE_ROWS_MAX: usize = 10_000;

pub(super) enum Form {
    Table(Drawn),
    Csv(Csv),
    Json(Json),
}

impl Form {
    /// Writes what is left; only a complete result is finished.
    pub(super) fn finish(self) -> io::Result<()> {
        match self {
            Self::Table(drawn) => drawn.finish(),
            Self::Csv(csv) => hand_out(&csv.text),
            Self::Json(json) => hand_out(&json.finished()),
        }
    }
}

impl RowSink for Form {
    fn columns(&mut self, columns: &[Column]) -> io::Result<()> {
        match self {
            Self::Table(drawn) => drawn.columns(columns),
            Self::Csv(csv) => csv_line(&mut csv.text, columns.iter().map(|column| Some(column.name.as_str()))),
            Self::Json(json) => json.columns(columns),
        }
        Ok(())
    }

    fn row(&mut self, cells: &[Option<&str>]) -> io::Result<()> {
        match self {
            Self::Table(drawn) => {
                drawn.row(cells);
                Ok(())
            }
            Self::Csv(csv) => {
                csv_line(&mut csv.text, cells.iter().copied());
                hand_on(&mut csv.text)
            }
            Self::Json(json) => {
                json.row(cells);
                hand_on(&mut json.text)
            }
        }
    }
}

fn hand_on(text: &mut String) -> io::Result<()> {
    if text.len() >= PIECE {
        hand_out(text)?;
        text.clear();
    }
    Ok(())
}

/// A table for people. The last row may set a column's width, so all rows are held, up to [`TABLE_ROWS_MAX`].
pub(super) struct Drawn {
    table: Table,
    left_out: u64,
}

impl Default for Drawn {
    fn default() -> Self {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        Self { table, left_out: 0 }
    }
}

impl Drawn {
    fn columns(&mut self, columns: &[Column]) {
        self.table.set_header(columns.iter().map(|column| clean(&column.name)));
    }

    fn row(&mut self, cells: &[Option<&str>]) {
        if self.table.row_count() == TABLE_ROWS_MAX {
            self.left_out += 1;
            return;
        }
        self.table.add_row(cells.iter().map(|cell| cell.map_or_else(|| "·".to_owned(), clean)));
    }

    fn finish(self) -> io::Result<()> {
        print(&format!("{}\n", self.table))?;
        if self.left_out > 0 {
            say(format!("the table is cut off after {TABLE_ROWS_MAX} rows; csv, json and ndjson contain all of them"));
        }
        Ok(())
    }
}

#[derive(Default)]
pub(super) struct Csv {
    text: String,
}

/// Objects, one per line, with or without an array around them.
pub(super) struct Json {
    /// The names as JSON strings, and the types.
    columns: Vec<(String, String)>,
    array: bool,
    rows: u64,
    text: String,
}

impl Json {
    pub(super) fn array() -> Self {
        Self { columns: Vec::new(), array: true, rows: 0, text: String::new() }
    }

    pub(super) fn lines() -> Self {
        Self { array: false, ..Self::array() }
    }

    /// A repeated column name gets a number that makes it unique, because an object has each name once.
    fn columns(&mut self, columns: &[Column]) {
        let given: HashSet<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        let mut seen = HashSet::new();
        for column in columns {
            let mut name = column.name.clone();
            let mut numbered = (2..).map(|number| format!("{}_{number}", column.name));
            while seen.contains(&name) {
                name = numbered.find(|name| !given.contains(name.as_str())).unwrap_or_default();
            }
            seen.insert(name.clone());
            self.columns.push((Value::from(name).to_string(), column.kind.clone()));
        }
    }

    fn row(&mut self, cells: &[Option<&str>]) {
        if self.array {
            self.text.push_str(if self.rows == 0 { "[" } else { ",\n " });
        }
        self.rows += 1;
        self.text.push('{');
        for (index, ((name, kind), cell)) in self.columns.iter().zip(cells).enumerate() {
            if index > 0 {
                self.text.push(',');
            }
            self.text.push_str(name);
            self.text.push(':');
            json(&mut self.text, kind, *cell);
        }
        self.text.push('}');
        if !self.array {
            self.text.push('\n');
        }
    }

    fn finished(mut self) -> String {
        if self.array {
            self.text.push_str(if self.rows == 0 { "[]\n" } else { "]\n" });
        }
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_each_name_once_and_an_array_of_none_is_an_array() {
        let column = |name: &str, kind: &str| Column { name: name.to_owned(), kind: kind.to_owned() };
        let columns = [column("n", "INT8"), column("n", "TEXT"), column("a \"b\"", "BOOL")];
        let mut lines = Json::lines();
        lines.columns(&columns);
        lines.row(&[Some("1"), Some("x\ny"), Some("t")]);
        lines.row(&[None, Some(""), None]);
        let whole =
            "{\"n\":1,\"n_2\":\"x\\ny\",\"a \\\"b\\\"\":true}\n{\"n\":null,\"n_2\":\"\",\"a \\\"b\\\"\":null}\n";
        assert_eq!(lines.finished(), whole);
        let mut array = Json::array();
        array.columns(&columns);
        assert_eq!(array.finished(), "[]\n");
        let mut lines = Json::lines();
        lines.columns(&["n", "n", "n", "n_2", "n_2"].map(|name| column(name, "INT8")));
        lines.row(&[Some("1"), Some("2"), Some("3"), Some("4"), Some("5")]);
        assert_eq!(lines.finished(), "{\"n\":1,\"n_3\":2,\"n_4\":3,\"n_2\":4,\"n_2_2\":5}\n");
    }

    #[test]
    fn a_table_ends_where_nobody_reads_on() {
        let mut drawn = Drawn::default();
        for _ in 0..TABLE_ROWS_MAX + 3 {
            drawn.row(&[Some("x")]);
        }
        assert_eq!((drawn.table.row_count(), drawn.left_out), (TABLE_ROWS_MAX, 3));
    }
}
