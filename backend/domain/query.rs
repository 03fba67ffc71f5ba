//! A principal's own query: which texts the server gives to Postgres.
//!
//! Invariants: it is one statement that reads; every function it calls is one of [`FUNCTIONS`]; it names nothing of the
//! catalogs, of settings or of roles. The text is read by its tokens, as Postgres does, and what could be read in two
//! ways is refused. This is the first of two walls: Postgres runs what passes as a role that may only select from the
//! views, in a read-only transaction, inside a function that cannot change its role.

mod names;
mod tokens;

use self::{
    names::{BEFORE_PARENTHESES, FUNCTIONS, UNAVAILABLE, is_among, is_unavailable},
    tokens::{Token, What, tokens},
};
use super::limits::QUERY_BYTES_MAX;

/// How a statement that reads may begin.
const BEGINNINGS: [&str; 4] = ["select", "with", "values", "table"];

/// Why a text is not an available query, and where: the character, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    pub rule: String,
    pub position: usize,
}

/// A text that may be given to Postgres, without the semicolon at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query(String);

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
        for (index, token) in statement.iter().enumerate() {
            let (before, after) =
                (index.checked_sub(1).and_then(|index| statement.get(index)), statement.get(index + 1));
            check(before, token, after).map_err(|rule| at(token.at, rule))?;
        }
        let length = rest.first().map_or(text.len(), |semicolon| semicolon.at);
        Ok(Self(text.get(..length).unwrap_or(text).to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Checks a token between its neighbours.
fn check(before: Option<&Token>, token: &Token, after: Option<&Token>) -> Result<(), String> {
    let (name, is_quoted) = match &token.what {
        What::Word(name) => (name, false),
        What::Quoted(name) => (name, true),
        What::Parameter => return Err("a query has no parameters".to_owned()),
        What::Text | What::Mark(_) => return Ok(()),
    };
    if is_unavailable(name) || !is_quoted && is_among(UNAVAILABLE, name) {
        return Err(format!("{name} is not available in a query"));
    }
    if !after.is_some_and(|next| next.what == What::Mark('(')) {
        return Ok(());
    }
    // After `as`, and after `with`, it is a name with columns, or a type.
    let is_name = before.is_some_and(|word| ["as", "with", "recursive"].iter().any(|known| word.is_word(known)));
    if is_name || is_among(FUNCTIONS, name) || !is_quoted && is_among(BEFORE_PARENTHESES, name) {
        return Ok(());
    }
    Err(format!("the function {name} is not available in a query (before an alias with columns, write `as`)"))
}

#[cfg(test)]
mod tests;
