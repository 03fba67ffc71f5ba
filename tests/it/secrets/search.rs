//! Where a secret could be, and how it could be spelled there.

use std::path::Path;

use base64::{
    Engine as _, alphabet,
    engine::general_purpose::{GeneralPurpose, NO_PAD},
};
use memchr::memmem::Finder;
use sqlx::PgConnection;

/// Words in every spelling they could be found in.
#[derive(Default)]
pub struct Needles(Vec<(String, Finder<'static>)>);

impl Needles {
    pub fn add(&mut self, what: &str, secret: &[u8]) {
        let mut spellings = vec![
            ("as it is".to_owned(), secret.to_vec()),
            ("in hexadecimal".to_owned(), hex::encode(secret).into_bytes()),
            ("in capital hexadecimal".to_owned(), hex::encode_upper(secret).into_bytes()),
        ];
        for (name, alphabet) in [("base64", alphabet::STANDARD), ("base64url", alphabet::URL_SAFE)] {
            let engine = GeneralPurpose::new(&alphabet, NO_PAD);
            for before in 0..3 {
                let text = engine.encode([&[0; 2][..before], secret].concat());
                // Only characters that hold nothing of what stands before or after.
                let (first, last) = ((before * 8).div_ceil(6), (before + secret.len()) * 8 / 6);
                spellings.push((format!("in {name} after {before} bytes"), text.as_bytes()[first..last].to_vec()));
            }
        }
        for (how, bytes) in spellings {
            // Without characters that tell them apart, two alphabets spell alike.
            if !self.0.iter().any(|(_, known)| known.needle() == bytes) {
                self.0.push((format!("{what}, {how}"), Finder::new(&bytes).into_owned()));
            }
        }
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// What these bytes hold.
    pub fn found(&self, bytes: &[u8]) -> Vec<&str> {
        self.0.iter().filter(|(_, finder)| finder.find(bytes).is_some()).map(|(what, _)| what.as_str()).collect()
    }
}

/// How much was searched, and what should not have been there.
#[derive(Debug, Default)]
pub struct Tally {
    pub tables: usize,
    pub columns: usize,
    pub rows: usize,
    pub files: usize,
    pub wal_files: usize,
    pub file_bytes: usize,
    pub log_lines: usize,
    pub answers: usize,
    pub leaks: Vec<String>,
}

impl Tally {
    fn look(&mut self, place: &str, bytes: &[u8], needles: &Needles) {
        for found in needles.found(bytes) {
            let at =
                needles.0.iter().find(|(what, _)| what == found).and_then(|(_, finder)| finder.find(bytes)).unwrap();
            let around = String::from_utf8_lossy(&bytes[at.saturating_sub(80)..at]).into_owned();
            self.leaks.push(format!("{found}: {place}, after {around:?}"));
        }
    }

    pub fn answers(&mut self, place: &str, bytes: &[u8], needles: &Needles) {
        self.answers += 1;
        self.look(place, bytes, needles);
    }

    pub fn log(&mut self, format: &str, bytes: &[u8], needles: &Needles) {
        self.log_lines += bytes.split(|byte| *byte == b'\n').count();
        assert!(bytes.len() > 10_000, "a server that tells everything says more than that");
        self.look(&format!("the {format} log"), bytes, needles);
    }

    /// Whether every kind of place was searched.
    pub fn is_wide(&self) -> bool {
        let counts = [
            (self.tables, 10),
            (self.columns, 60),
            (self.rows, 50),
            (self.files, 500),
            (self.wal_files, 1),
            (self.file_bytes, 10_000_000),
            (self.log_lines, 1_000),
            (self.answers, 500),
        ];
        counts.iter().all(|(count, least)| count >= least)
    }
}

/// How often what was stored on purpose was found.
#[derive(Debug, Default)]
pub struct Found {
    pub raw: usize,
    pub hex: usize,
}

impl Found {
    fn note(&mut self, control: &Needles, bytes: &[u8]) {
        for found in control.found(bytes) {
            self.raw += usize::from(found.ends_with("as it is"));
            self.hex += usize::from(found.ends_with("in hexadecimal"));
        }
    }
}

/// Every value of every column of every table, as text and, where it is bytes, as bytes.
pub async fn database(connection: &mut PgConnection, needles: &Needles, control: &Needles, tally: &mut Tally) -> Found {
    let columns: Vec<(String, String, String)> = sqlx::query_as(
        "select format('%I.%I', c.table_schema, c.table_name), format('%I', c.column_name), c.data_type::text
         from information_schema.columns c join information_schema.tables t using (table_schema, table_name)
         where t.table_type = 'BASE TABLE' and c.table_schema not in ('pg_catalog', 'information_schema')
         order by 1, 2",
    )
    .fetch_all(&mut *connection)
    .await
    .unwrap();
    let mut found = Found::default();
    let mut tables: Vec<&str> = columns.iter().map(|(table, ..)| table.as_str()).collect();
    tables.dedup();
    tally.tables += tables.len();
    for (table, column, kind) in &columns {
        tally.columns += 1;
        let place = format!("the column {column} of {table}");
        let select = |what: &str| sqlx::AssertSqlSafe(format!("select {what} from {table} where {column} is not null"));
        let text: Vec<String> =
            sqlx::query_scalar(select(&format!("{column}::text"))).fetch_all(&mut *connection).await.unwrap();
        for value in &text {
            tally.rows += 1;
            tally.look(&place, value.as_bytes(), needles);
            found.note(control, value.as_bytes());
        }
        if kind == "bytea" {
            let bytes: Vec<Vec<u8>> = sqlx::query_scalar(select(column)).fetch_all(&mut *connection).await.unwrap();
            for value in &bytes {
                tally.look(&place, value, needles);
                found.note(control, value);
            }
        }
    }
    found
}

/// Every file below a folder, the write-ahead log included.
pub fn files(folder: &Path, needles: &Needles, control: &Needles, tally: &mut Tally) -> Found {
    let mut found = Found::default();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                let bytes = std::fs::read(&path).unwrap();
                let place = path.display().to_string();
                tally.files += 1;
                tally.wal_files += usize::from(place.contains("/pg_wal/"));
                tally.file_bytes += bytes.len();
                tally.look(&place, &bytes, needles);
                tally.look("the name of a file", place.as_bytes(), needles);
                found.note(control, &bytes);
            }
        }
    }
    found
}
