//! Divides a tree into parts of about the same size, one for each worker.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{scope::Scope, source::Entry};

/// Parts a large tree is divided into; a small one into fewer.
pub const PARTS_MAX: usize = 6;
/// Pieces that are handed out, at most.
const PIECES_MAX: usize = 500;
/// All their scopes together, bytes: a part is the input of a run, and all parts are the state of one.
const SCOPE_BYTES_MAX: usize = 16 * 1024;
/// Folders deeper than this are never divided, levels.
const DEPTH_MAX: usize = 4;

/// What one worker looks at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// For people: its largest folders.
    pub name: String,
    /// [`Scope`]s as text.
    pub scopes: Vec<String>,
    pub files: u64,
    pub bytes: u64,
}

/// Files and bytes of a folder: those directly in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folder {
    /// Empty for the root.
    pub path: String,
    pub files: u64,
    pub bytes: u64,
}

/// Adds files up by folder; what lies deeper than four levels counts for its folder at the fourth.
pub fn folders(entries: &[Entry]) -> Vec<Folder> {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for entry in entries {
        let parent = entry.path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let path = parent.split('/').take(DEPTH_MAX).collect::<Vec<_>>().join("/");
        let sum = sums.entry(path).or_default();
        *sum = (sum.0 + 1, sum.1 + entry.bytes);
    }
    sums.into_iter().map(|(path, (files, bytes))| Folder { path, files, bytes }).collect()
}

/// A scope that is handed out as a whole.
struct Piece {
    scope: Scope,
    /// The folder, when it may still be divided.
    dir: Option<String>,
    files: u64,
    bytes: u64,
}

/// Top-level folders, the large ones divided again, dealt out largest first to the part that is smallest so far.
///
/// Every file is in exactly one part. The number of parts is three for a small tree and grows with its files; a tree
/// with fewer pieces has fewer parts, an empty one none.
pub fn divide(folders: &[Folder]) -> Vec<Part> {
    let total: u64 = folders.iter().map(|folder| folder.bytes).sum();
    let files: u64 = folders.iter().map(|folder| folder.files).sum();
    let mut pieces = vec![Piece { scope: Scope::below(""), dir: Some(String::new()), files, bytes: total }];
    while let Some(largest) = pieces.iter_mut().filter(|piece| piece.dir.is_some()).max_by_key(|piece| piece.bytes) {
        let (size, dir) = (largest.bytes, largest.dir.take().unwrap_or_default());
        if pieces.len() >= PARTS_MAX && size <= total / PARTS_MAX as u64 {
            break;
        }
        let children = expanded(&dir, folders);
        let bytes: usize = pieces.iter().chain(&children).map(|piece| piece.scope.to_string().len()).sum();
        if pieces.len() + children.len() <= PIECES_MAX && bytes <= SCOPE_BYTES_MAX {
            pieces.retain(|piece| piece.scope != Scope::below(&dir));
            pieces.extend(children);
        }
    }
    pieces.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.scope.cmp(&b.scope)));
    let wanted = match files {
        0..=60 => 3,
        61..=250 => 4,
        251..=1_000 => 5,
        _ => PARTS_MAX,
    };
    let mut parts: Vec<Vec<Piece>> = std::iter::repeat_with(Vec::new).take(wanted.min(pieces.len())).collect();
    for piece in pieces {
        // Of parts with the same bytes the one with fewer pieces: empty files are work too.
        let size = |part: &Vec<Piece>| (part.iter().map(|piece| piece.bytes).sum::<u64>(), part.len());
        if let Some(smallest) = parts.iter_mut().min_by_key(|part| size(part)) {
            smallest.push(piece);
        }
    }
    parts.into_iter().map(|pieces| part(&pieces)).collect()
}

/// The files directly in a folder and each folder in it.
fn expanded(dir: &str, folders: &[Folder]) -> Vec<Piece> {
    let within = |path: &str| -> Option<String> {
        let rest = if dir.is_empty() { path } else { path.strip_prefix(dir)?.strip_prefix('/')? };
        let name = rest.split('/').next().filter(|name| !name.is_empty())?;
        Some(if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") })
    };
    let mut children: BTreeMap<String, Piece> = BTreeMap::new();
    for folder in folders {
        let (key, scope) = match within(&folder.path) {
            Some(child) => (child.clone(), Scope::below(&child)),
            None if folder.path == dir => (String::new(), Scope::directly_in(dir)),
            None => continue,
        };
        let piece = children.entry(key.clone()).or_insert(Piece { scope, dir: None, files: 0, bytes: 0 });
        piece.files += folder.files;
        piece.bytes += folder.bytes;
        if !key.is_empty() && folder.path != key {
            piece.dir = Some(key);
        }
    }
    children.into_values().collect()
}

fn part(pieces: &[Piece]) -> Part {
    let scopes: Vec<String> = pieces.iter().map(|piece| piece.scope.to_string()).collect();
    let shown = scopes.iter().map(|scope| if scope == "*" { "files at the top" } else { scope }).take(2);
    let shown = shown.collect::<Vec<_>>().join(", ");
    let name = match scopes.len() {
        0..=2 => shown,
        more => format!("{shown} and {} more", more - 2),
    };
    let files = pieces.iter().map(|piece| piece.files).sum();
    Part { name, files, bytes: pieces.iter().map(|piece| piece.bytes).sum(), scopes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entries(files: &[(&str, u64)]) -> Vec<Entry> {
        files.iter().map(|(path, bytes)| Entry { path: (*path).to_owned(), bytes: *bytes }).collect()
    }

    #[test]
    fn top_level_folders_are_balanced_by_bytes() {
        let tree = entries(&[("a/x", 60), ("b/x", 30), ("c/x", 20), ("d/x", 10), ("top", 5), ("e/x", 1), ("f/x", 1)]);
        let parts = divide(&folders(&tree));
        let shown: Vec<_> = parts.iter().map(|part| (part.scopes.join(" "), part.bytes)).collect();
        assert_eq!(shown, [("a".to_owned(), 60), ("b *".to_owned(), 35), ("c d e f".to_owned(), 32)]);
        assert_eq!(parts[2].name, "c, d and 2 more");
    }

    #[test]
    fn a_folder_that_holds_everything_is_divided() {
        let tree = entries(&[("src/a/x", 9), ("src/b/x", 9), ("src/c/x", 9), ("src/main", 1)]);
        let mut scopes: Vec<_> = divide(&folders(&tree)).into_iter().flat_map(|part| part.scopes).collect();
        scopes.sort();
        assert_eq!(scopes, ["src/*", "src/a", "src/b", "src/c"]);
        assert_eq!(divide(&[]), []);
        let wide: Vec<Entry> = (0..=PIECES_MAX).map(|n| Entry { path: format!("{n}/x"), bytes: 1 }).collect();
        assert_eq!(divide(&folders(&wide))[0].scopes, ["."]);
        assert_eq!(divide(&folders(&entries(&[("only", 0)]))).len(), 1);
        let long: Vec<Entry> =
            (0..20).map(|n| Entry { path: format!("{n}{}/x", "y".repeat(1_000)), bytes: 1 }).collect();
        assert_eq!(divide(&folders(&long))[0].scopes, ["."], "their names alone are too much for one run");
    }

    proptest! {
        #[test]
        fn every_file_is_in_exactly_one_part(
            paths in proptest::collection::btree_map("[ab](/[ab]){0,6}/f[0-9]|g", 0u64..100, 0..60)
        ) {
            let tree: Vec<Entry> = paths.into_iter().map(|(path, bytes)| Entry { path, bytes }).collect();
            let parts = divide(&folders(&tree));
            prop_assert!(parts.len() <= PARTS_MAX);
            let scopes: Vec<Scope> = parts.iter().flat_map(|p| &p.scopes).map(|s| s.parse().unwrap()).collect();
            for entry in &tree {
                prop_assert_eq!(scopes.iter().filter(|scope| scope.covers(&entry.path)).count(), 1, "{}", entry.path);
            }
            prop_assert_eq!(parts.iter().map(|part| part.files).sum::<u64>(), tree.len() as u64);
        }
    }
}
