//! [`Scope`]: which files of the tree a piece of work is about.

use std::{fmt, str::FromStr};

/// Spelled `.` (the whole tree), `dir` (everything below it), `dir/*` (the files in it and nothing below) or `*`
/// (the files in the root). Never outside the root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope {
    /// The folder, `/` between names; empty for the root.
    dir: String,
    below: bool,
}

/// The text names no place inside the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a path is relative to the tree, without . or .. in it, at most 1024 bytes; /* at its end leaves out what lies deeper"
)]
pub struct Outside;

impl Scope {
    pub fn below(dir: &str) -> Self {
        Self { dir: dir.to_owned(), below: true }
    }

    pub fn directly_in(dir: &str) -> Self {
        Self { dir: dir.to_owned(), below: false }
    }

    /// Whether the file at this path belongs to it.
    pub fn covers(&self, path: &str) -> bool {
        match inside(&self.dir, path) {
            Some(rest) => !rest.is_empty() && (self.below || !rest.contains('/')),
            None => false,
        }
    }

    /// Whether a walk that looks for its files has to look at this path, file or folder.
    pub fn reaches(&self, path: &str) -> bool {
        inside(path, &self.dir).is_some()
            || inside(&self.dir, path).is_some_and(|rest| self.below || !rest.contains('/'))
    }
}

/// What of `path` comes after `dir` and its slash.
fn inside<'a>(dir: &str, path: &'a str) -> Option<&'a str> {
    if dir.is_empty() {
        return Some(path);
    }
    let rest = path.strip_prefix(dir)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}

impl FromStr for Scope {
    type Err = Outside;

    fn from_str(text: &str) -> Result<Self, Outside> {
        let (dir, below) = match text {
            "." => ("", true),
            "*" => ("", false),
            _ => text.strip_suffix("/*").map_or((text, true), |dir| (dir, false)),
        };
        let names = || dir.split('/');
        let inside = text.len() <= 1024
            && (text == "." || text == "*" || names().all(|name| !matches!(name, "" | "." | "..")))
            && !dir.contains('\0');
        if inside { Ok(Self { dir: dir.to_owned(), below }) } else { Err(Outside) }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.dir.as_str(), self.below) {
            ("", true) => f.write_str("."),
            ("", false) => f.write_str("*"),
            (dir, true) => f.write_str(dir),
            (dir, false) => write!(f, "{dir}/*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_covers_its_files_and_reaches_the_folders_on_the_way() {
        let scope: Scope = "a/b".parse().unwrap();
        assert!(scope.covers("a/b/c") && scope.covers("a/b/c/d"));
        assert!(!scope.covers("a/b") && !scope.covers("a/bc") && !scope.covers("a/x"));
        assert!(scope.reaches("") && scope.reaches("a") && scope.reaches("a/b") && scope.reaches("a/b/c/d"));
        assert!(!scope.reaches("x") && !scope.reaches("a/bc"));
        let direct: Scope = "a/*".parse().unwrap();
        assert!(direct.covers("a/b") && !direct.covers("a/b/c") && direct.reaches("a/b") && !direct.reaches("a/b/c"));
    }

    #[test]
    fn no_scope_leaves_the_tree_and_each_has_one_spelling() {
        for bad in ["", "/", "/etc", "..", "a/../..", "a//b", "./a", "a/", "a\0", "/*", "../*"] {
            assert_eq!(bad.parse::<Scope>(), Err(Outside), "{bad:?}");
        }
        for good in [".", "*", "a", "a/b/*", "a b/é"] {
            assert_eq!(good.parse::<Scope>().unwrap().to_string(), good);
        }
    }
}
