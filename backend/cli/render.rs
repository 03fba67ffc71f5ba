//! Text for people: nothing in a payload may control their terminal.
//!
//! Names, messages and outputs come from agents and from what those read. [`clean`] is applied to every line printed
//! for a person; `--json` output is data and stays as it was received.

use std::{
    collections::HashMap,
    fmt::Display,
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

use chrono::{DateTime, FixedOffset, Local, Utc};
use serde_json::value::RawValue;

pub use crate::domain::readable::{clean, clean_lines, clip};

// Not a doc comment: clap would show it as the text of the program.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Colors {
    /// When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = clap::ColorChoice::Auto)]
    pub color: clap::ColorChoice,
}

impl Colors {
    /// Configures the output streams of this process; call it once, before anything is printed.
    pub fn apply(self) {
        match self.color {
            clap::ColorChoice::Auto => anstream::ColorChoice::Auto,
            clap::ColorChoice::Always => anstream::ColorChoice::Always,
            clap::ColorChoice::Never => anstream::ColorChoice::Never,
        }
        .write_global();
    }
}

/// Writes text to stdout and flushes; colours stay only where they are shown.
pub fn print(text: &str) -> io::Result<()> {
    let mut stdout = anstream::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Writes data for a program to stdout, byte for byte. On a terminal it is cleaned: there a person reads it.
pub fn hand_out(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    if stdout.is_terminal() {
        stdout.write_all(clean_lines(&text.replace("\r\n", "\n")).as_bytes())?;
    } else {
        stdout.write_all(text.as_bytes())?;
    }
    stdout.flush()
}

/// The rows of a page, each as the server wrote it on a line of its own.
pub fn json_lines(page: &RawValue, rows: &str) -> serde_json::Result<String> {
    let members: HashMap<&str, &RawValue> = serde_json::from_str(page.get())?;
    let rows: Vec<&RawValue> = members.get(rows).map_or(Ok(Vec::new()), |rows| serde_json::from_str(rows.get()))?;
    Ok(rows.into_iter().fold(String::new(), |lines, row| lines + row.get() + "\n"))
}

/// Writes a line to stderr. A failure cannot be reported.
pub fn say(line: impl Display) {
    let _ = writeln!(anstream::stderr().lock(), "{line}");
}

/// Columns of the terminal on stdout, if it is one.
pub fn terminal_width() -> Option<usize> {
    comfy_table::Table::new().width().map(usize::from)
}

/// A duration in its two largest units.
pub fn duration(length: Duration) -> String {
    let whole_s = length.as_secs();
    match whole_s {
        0 => format!("{} ms", length.as_millis()),
        1..=59 => format!("{:.1} s", length.as_secs_f64()),
        60..=3_599 => format!("{} m {:02} s", whole_s / 60, whole_s % 60),
        3_600..=86_399 => format!("{} h {:02} m", whole_s / 3_600, whole_s / 60 % 60),
        _ => format!("{} d {:02} h", whole_s / 86_400, whole_s / 3_600 % 24),
    }
}

/// A duration from a payload; an invalid one is zero.
pub fn from_ms(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms.max(0.0) / 1_000.0).unwrap_or_default()
}

/// From one RFC 3339 time to another, zero if it goes backwards; `None` if one of them is not a time.
pub fn between(from: &str, to: &str) -> Option<Duration> {
    let at = |text| DateTime::parse_from_rfc3339(text).ok();
    Some((at(to)? - at(from)?).to_std().unwrap_or_default())
}

/// The offset of this machine's clock at a time.
pub fn local_offset(at: DateTime<Utc>) -> FixedOffset {
    *at.with_timezone(&Local).offset()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_told_in_the_units_that_matter() {
        for (ms, expected) in [
            (-1.0, "0 ms"),
            (f64::NAN, "0 ms"),
            (f64::INFINITY, "0 ms"),
            (340.4, "340 ms"),
            (1_240.0, "1.2 s"),
            (64_000.0, "1 m 04 s"),
            (7_500_000.0, "2 h 05 m"),
            (180_000_000.0, "2 d 02 h"),
        ] {
            assert_eq!(duration(from_ms(ms)), expected);
        }
        assert_eq!(between("2025-01-01T00:00:00Z", "2025-01-01T01:00:01.5+01:00"), Some(Duration::from_millis(1_500)));
        assert_eq!(between("", "2025-01-01T00:00:01Z"), None);
    }
}
