//! Queries of principals: which statements the server passes to Postgres.
//!
//! Invariants: it is one reading statement; every function it calls is one of [`FUNCTIONS`], provided that none of its
//! [`Query::members`] is a function; it names no catalogs, settings or roles. The text is split into tokens as in
//! Postgres, and ambiguous text is refused. This is the first of two barriers: Postgres runs what passes as a role that
//! may only select from the views, in a read-only transaction, inside a function that cannot change its role.

mod names;
mod tokens;

use self::{
    names::{BEFORE_PARENTHESES, FUNCTIONS, UNAVAILABLE, is_among, is_unavailable, is_unavailable_type},
    tokens::{Token, What, tokens},
};
use super::limits::QUERY_BYTES_MAX;

/// First words of a reading statement.
const BEGINNINGS: [&str; 4] = ["select", "with", "values", "table"];

/// Why a query is refused, and the position of the offending character, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    pub rule: String,
    pub position: usize,
}

/// A statement that may be passed to Postgres, without its final semicolon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    text: String,
    members: Vec<String>,
}

impl Query {
    /// Checks a text.
    pub fn parse(text: &str) -> Result<Self, Unavailable> {
        let at = |position: usize, rule: String| {
            let position = text.get(..position).unwrap_or(text).chars().count() + 1;
            Unavailable { rule, position }
        };
        if text.len() > QUERY_BYTES_MAX {
            return Err(at(0, format!("a query may have at most {QUERY_BYTES_MAX} bytes")));
        }
        let found = tokens(text).map_err(|unreadable| at(unreadable.at, unreadable.rule.to_owned()))?;
        let end = found.iter().position(|token| token.what == What::Mark(';'));
        let (statement, rest) = found.split_at(end.unwrap_or(found.len()));
        if let Some(second) = rest.iter().find(|token| token.what != What::Mark(';')) {
            return Err(at(second.at, "only one statement is run".to_owned()));
        }
        let first = statement.iter().find(|token| token.what != What::Mark('('));
        if !first.is_some_and(|token| BEGINNINGS.iter().any(|word| token.is_word(word))) {
            let rule = format!("a query must begin with one of: {}", BEGINNINGS.join(", "));
            return Err(at(first.map_or(0, |token| token.at), rule));
        }
        let mut members = Vec::new();
        for (index, token) in statement.iter().enumerate() {
            let (before, from_here) = (&statement[..index], &statement[index..]);
            check(before, token, &from_here[1..]).map_err(|rule| at(token.at, rule))?;
            if let (Some(What::Mark('.')), Some(name)) = (before.last().map(|token| &token.what), token.name())
                && !is_among(FUNCTIONS, name)
            {
                members.push(name.to_owned());
            }
        }
        let length = rest.first().map_or(text.len(), |semicolon| semicolon.at);
        Ok(Self { text: text.get(..length).unwrap_or(text).to_owned(), members })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The names after a dot, except available functions. `r.f` is a column; if there is none, Postgres calls the
    /// function `f` with `r`.
    pub fn members(&self) -> &[String] {
        &self.members
    }
}

/// Checks a token in its context.
fn check(before: &[Token], token: &Token, after: &[Token]) -> Result<(), String> {
    let (name, is_quoted) = match &token.what {
        What::Word(name) => (name, false),
        What::Quoted(name) => (name, true),
        What::Parameter => return Err("a query has no parameters".to_owned()),
        What::Text | What::Mark(_) => return Ok(()),
    };
    if is_unavailable(name)
        || !is_quoted && is_among(UNAVAILABLE, name)
        || is_unavailable_type(name) && is_type(before, after)
    {
        return Err(format!("{name} is not available in a query"));
    }
    if !after.first().is_some_and(|next| next.what == What::Mark('(')) {
        return Ok(());
    }
    // After `as` and `with` it is a name with columns, or a type.
    let is_name = before.last().is_some_and(|word| ["as", "with", "recursive"].iter().any(|known| word.is_word(known)));
    if is_name || is_among(FUNCTIONS, name) {
        return Ok(());
    }
    if token.is_word("trim") && has_set(&after[1..]) {
        return Err("trim with a set of characters is not available in a query: use btrim, ltrim or rtrim".to_owned());
    }
    if !is_quoted && is_among(BEFORE_PARENTHESES, name) {
        return Ok(());
    }
    let instead = if token.is_word("position") { "use strpos" } else { "before an alias with columns, write `as`" };
    Err(format!("the function {name} is not available in a query ({instead})"))
}

/// Whether a name is in the position of a type: before a string, or in a cast.
fn is_type(before: &[Token], after: &[Token]) -> bool {
    let is_cast = match before {
        [.., one, other] if one.what == What::Mark(':') => other.what == What::Mark(':'),
        [.., word] => word.is_word("as") && is_in_cast(before),
        [] => false,
    };
    is_cast || after.first().is_some_and(|next| next.what == What::Text)
}

/// Whether the innermost open parenthesis is that of a `cast`.
fn is_in_cast(before: &[Token]) -> bool {
    let mut depth = 0_usize;
    for (index, token) in before.iter().enumerate().rev() {
        match token.what {
            What::Mark(')') => depth += 1,
            What::Mark('(') if depth > 0 => depth -= 1,
            What::Mark('(') => return index > 0 && before[index - 1].is_word("cast"),
            _ => {}
        }
    }
    false
}

/// Whether the currently open parentheses contain more than one value.
fn has_set(inside: &[Token]) -> bool {
    let mut depth = 0_usize;
    for token in inside {
        match token.what {
            What::Mark('(') => depth += 1,
            What::Mark(')') if depth == 0 => return false,
            What::Mark(')') => depth -= 1,
            What::Mark(',') if depth == 0 => return true,
            _ if depth == 0 && token.is_word("from") => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests;
