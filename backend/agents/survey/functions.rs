//! Functions and how long they are, found without a parser.
//!
//! With braces: each `{` is looked at together with its header, the code since the last `;`, `{` or `}`. When the
//! header reads like a function of that language, the function goes from its name's line to the matching `}`.
//! By indentation (Python): a function goes from its `def` to the last line that is indented deeper.
//!
//! What this does not see: functions made by macros, K&R headers in C, methods whose return type is an object literal
//! in TypeScript; functions without a name count as part of the one around them. Decorators and attributes above a
//! function are not counted.

use serde::{Deserialize, Serialize};

use super::{
    header,
    language::{Bodies, Family, Language},
    lexer::{Kind, masked},
};

/// One function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    pub path: String,
    pub name: String,
    /// The line its name stands in, from 1.
    pub line: usize,
    /// Lines from there to its end, both included.
    pub lines: usize,
}

/// All named functions of a file, in the order they end.
pub fn find(path: &str, source: &[u8], kinds: &[Kind], language: &Language) -> Vec<Function> {
    let code = masked(source, kinds);
    match language.bodies {
        Bodies::Braces(family) => braced(path, &code, family),
        Bodies::Indent => indented(path, &code, kinds),
        Bodies::None => Vec::new(),
    }
}

/// One open brace.
struct Frame {
    /// Name and line of the function it opens, if it opens one.
    function: Option<(String, usize)>,
    /// Where the header it stands in began, when that header goes on behind the closing brace.
    header: Option<usize>,
    /// Open parentheses around it.
    parens: usize,
}

fn braced(path: &str, code: &[u8], family: Family) -> Vec<Function> {
    let (mut found, mut frames) = (Vec::new(), Vec::<Frame>::new());
    let (mut header, mut parens, mut line) = (0, 0usize, 1);
    for (at, byte) in code.iter().enumerate() {
        match byte {
            b'\n' => line += 1,
            b'(' | b'[' => parens += 1,
            b')' | b']' => parens = parens.saturating_sub(1),
            b';' if parens == 0 => header = at + 1,
            b'{' => {
                let before = &code[header..at];
                // A brace within a header (a pattern, an inline type) does not end it.
                let within = parens > 0 || header::goes_on(before, family);
                let name = if within { None } else { header::name(before, family) };
                let function = name.map(|(name, offset)| {
                    let below = before[offset..].split(|byte| *byte == b'\n').count() - 1;
                    (name, line - below)
                });
                frames.push(Frame { function, header: within.then_some(header), parens });
                (header, parens) = (at + 1, 0);
            }
            b'}' => {
                if let Some(frame) = frames.pop() {
                    if let Some((name, from)) = frame.function {
                        found.push(Function { path: path.to_owned(), name, line: from, lines: line - from + 1 });
                    }
                    header = frame.header.unwrap_or(at + 1);
                    parens = frame.parens;
                }
            }
            _ => {}
        }
    }
    found
}

/// One open `def`.
struct Open {
    name: String,
    indent: usize,
    from: usize,
    last: usize,
}

fn indented(path: &str, code: &[u8], kinds: &[Kind]) -> Vec<Function> {
    let (mut found, mut open) = (Vec::new(), Vec::<Open>::new());
    let (mut at, mut parens) = (0, 0usize);
    let close = |open: Open| Function {
        path: path.to_owned(),
        name: open.name,
        line: open.from,
        lines: open.last - open.from + 1,
    };
    for (index, line) in code.split_inclusive(|byte| *byte == b'\n').enumerate() {
        // A line that begins inside a text or inside parentheses belongs to the one before it.
        let goes_on = parens > 0 || (at > 0 && kinds[at - 1] == Kind::Text);
        at += line.len();
        for byte in line {
            match byte {
                b'(' | b'[' | b'{' => parens += 1,
                b')' | b']' | b'}' => parens = parens.saturating_sub(1),
                _ => {}
            }
        }
        let indent = line.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        if line[indent..].trim_ascii().is_empty() {
            continue;
        }
        if !goes_on {
            while let Some(ended) = open.pop_if(|open| open.indent >= indent) {
                found.push(close(ended));
            }
            if let Some(name) = header::python(&line[indent..]) {
                open.push(Open { name, indent, from: index + 1, last: index + 1 });
            }
        }
        for inside in &mut open {
            inside.last = index + 1;
        }
    }
    found.extend(open.into_iter().rev().map(close));
    found
}

#[cfg(test)]
mod tests;
