//! Postgres values, converted from psql's text form to JSON or CSV.

use serde_json::Value;

/// Appends a value. Numbers keep their digits; what JSON cannot represent (`NaN`, a timestamp) is a string.
pub fn json(out: &mut String, kind: &str, text: Option<&str>) {
    let Some(text) = text else { return out.push_str("null") };
    match kind {
        "BOOL" => out.push_str(if text.starts_with('t') { "true" } else { "false" }),
        "INT2" | "INT4" | "INT8" | "OID" | "FLOAT4" | "FLOAT8" | "NUMERIC" if is_finite(text) => out.push_str(text),
        // In JSON text, line breaks occur only between tokens; the output object must be one line.
        "JSON" | "JSONB" => out.extend(text.chars().map(|c| if matches!(c, '\n' | '\r') { ' ' } else { c })),
        // The only array type whose elements are not separated by commas.
        "BOX[]" => out.push_str(&Value::from(text).to_string()),
        _ => match kind.strip_suffix("[]").and_then(|kind| array(kind, text)) {
            Some(array) => out.push_str(&array),
            None => out.push_str(&Value::from(text).to_string()),
        },
    }
}

/// First characters of a spreadsheet formula (OWASP, CSV Injection), full-width forms included.
const FORMULAS: [char; 11] = ['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠'];

/// Appends a line of RFC 4180: a field with a comma, a quote or a line break is quoted, and a quote is doubled. Null is
/// empty. A field that a spreadsheet would evaluate is prefixed with an apostrophe, except numbers.
pub fn csv_line<'a>(out: &mut String, cells: impl Iterator<Item = Option<&'a str>>) {
    for (index, cell) in cells.enumerate() {
        if index > 0 {
            out.push(',');
        }
        let cell = cell.unwrap_or_default();
        let apostrophe = if cell.starts_with(FORMULAS) && cell.parse::<f64>().is_err() { "'" } else { "" };
        if cell.contains([',', '"', '\n', '\r']) {
            out.push('"');
            out.push_str(apostrophe);
            out.push_str(&cell.replace('"', "\"\""));
            out.push('"');
        } else {
            out.push_str(apostrophe);
            out.push_str(cell);
        }
    }
    out.push_str("\r\n");
}

/// Postgres writes numbers as JSON does, except for these words.
fn is_finite(text: &str) -> bool {
    !matches!(text, "NaN" | "Infinity" | "-Infinity")
}

/// `{a,"b c",NULL,{…}}` as `["a","b c",null,[…]]`; `None` for other forms, such as one with explicit bounds.
fn array(kind: &str, text: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = text;
    let mut fresh = true;
    while let Some(c) = rest.chars().next() {
        match c {
            '{' => out.push('['),
            '}' => out.push(']'),
            ',' => out.push(','),
            '"' => {
                let (element, length) = quoted(rest)?;
                json(&mut out, kind, Some(&element));
                rest = &rest[length..];
                continue;
            }
            _ if fresh => return None,
            _ => {
                let length = rest.find([',', '}'])?;
                json(&mut out, kind, (&rest[..length] != "NULL").then_some(&rest[..length]));
                rest = &rest[length..];
                continue;
            }
        }
        fresh = false;
        rest = &rest[1..];
    }
    Some(out)
}

/// The quoted element at the start of a text, unescaped, and its length in the text.
fn quoted(text: &str) -> Option<(String, usize)> {
    let mut element = String::new();
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => {
                element.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '"' => return Some((element, at + 1)),
            _ => element.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(kind: &str, text: &str) -> String {
        let mut out = String::new();
        json(&mut out, kind, Some(text));
        out
    }

    #[test]
    fn what_json_has_a_word_for_is_that_word() {
        for (kind, text, expected) in [
            ("INT8", "-9007199254740993", "-9007199254740993"),
            ("NUMERIC", "0.10", "0.10"),
            ("FLOAT8", "1e+300", "1e+300"),
            ("FLOAT8", "NaN", "\"NaN\""),
            ("NUMERIC", "-Infinity", "\"-Infinity\""),
            ("BOOL", "f", "false"),
            ("BOOL", "true", "true"),
            ("JSON", "{\"a\" :\n 1e400}", "{\"a\" :  1e400}"),
            ("TEXT", "12", "\"12\""),
            ("TIMESTAMPTZ", "2026-05-05 10:00:00+00", "\"2026-05-05 10:00:00+00\""),
            ("TEXT[]", "{}", "[]"),
            ("TEXT[]", r#"{prod,"a,b","say \"hi\" \\","NULL",NULL}"#, r#"["prod","a,b","say \"hi\" \\","NULL",null]"#),
            ("INT4[]", "{{1,2},{NULL,4}}", "[[1,2],[null,4]]"),
            ("BOOL[]", "{t,f}", "[true,false]"),
            ("INT4[]", "[0:1]={1,2}", "\"[0:1]={1,2}\""),
            ("BOX[]", "{(1,1),(0,0);(2,2),(1,1)}", "\"{(1,1),(0,0);(2,2),(1,1)}\""),
            ("INTERVAL", "00:00:01", "\"00:00:01\""),
        ] {
            let written = written(kind, text);
            assert_eq!(written, expected, "{kind} {text}");
            assert!(serde_json::from_str::<Box<serde_json::value::RawValue>>(&written).is_ok(), "{written}");
        }
    }

    #[test]
    fn csv_quotes_what_would_break_a_line() {
        let mut text = String::new();
        csv_line(&mut text, [Some("a"), None, Some("b,c"), Some("say \"hi\"\n"), Some("")].into_iter());
        assert_eq!(text, "a,,\"b,c\",\"say \"\"hi\"\"\n\",\r\n");
    }
    #[test]
    fn csv_has_no_formulas_and_leaves_numbers_alone() {
        for (cell, expected) in [
            ("=HYPERLINK(\"http://evil.example\")", "\"'=HYPERLINK(\"\"http://evil.example\"\")\""),
            ("@SUM(1)", "'@SUM(1)"),
            ("+1+cmd|' /C calc'!A0", "'+1+cmd|' /C calc'!A0"),
            ("-2+3", "'-2+3"),
            ("-", "'-"),
            ("\t=1", "'\t=1"),
            ("\r=1", "\"'\r=1\""),
            ("\n=1", "\"'\n=1\""),
            ("＝1", "'＝1"),
            ("-9007199254740993", "-9007199254740993"),
            ("-0.10", "-0.10"),
            ("-1e+300", "-1e+300"),
            ("+5", "+5"),
            ("-Infinity", "-Infinity"),
            ("a=1", "a=1"),
            (" =1", " =1"),
            ("'=1", "'=1"),
        ] {
            let mut text = String::new();
            csv_line(&mut text, [Some(cell)].into_iter());
            assert_eq!(text, format!("{expected}\r\n"), "{cell}");
        }
    }
}
