//! [`Source`]: the tree that is surveyed, read within bounds.
//!
//! What `.gitignore` and its kin leave out is left out; symbolic links are counted and not followed, so nothing
//! outside the root is read and no circle is walked. Every bound that was reached is told in [`Skipped`].

#![expect(clippy::disallowed_methods, reason = "this file reads the tree that is surveyed")]

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use ignore::WalkBuilder;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::scope::Scope;

/// How much is read at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub files_max: u64,
    /// Larger files are skipped, bytes.
    pub file_bytes_max: u64,
    pub total_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { files_max: 20_000, file_bytes_max: 2 * 1024 * 1024, total_bytes_max: 256 * 1024 * 1024 }
    }
}

/// A readable folder.
#[derive(Clone, Debug)]
pub struct Source {
    root: PathBuf,
    limits: Limits,
}

/// A file of the tree, its path relative to the root with `/` between names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub path: String,
    pub bytes: u64,
}

/// What was not looked into, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    pub symlinks: u64,
    pub binary: u64,
    pub too_large: u64,
    pub unreadable: u64,
    /// Files after the bound on files or on bytes was reached.
    pub over_bound: u64,
}

impl Skipped {
    pub fn add(&mut self, other: Self) {
        self.symlinks += other.symlinks;
        self.binary += other.binary;
        self.too_large += other.too_large;
        self.unreadable += other.unreadable;
        self.over_bound += other.over_bound;
    }
}

impl Source {
    /// Fails when the root is no folder or cannot be read.
    pub fn open(root: &Path, limits: Limits) -> io::Result<Self> {
        let root = root.canonicalize()?;
        std::fs::read_dir(&root)?;
        Ok(Self { root, limits })
    }

    /// The folder's own name.
    pub fn name(&self) -> String {
        let name = self.root.file_name().map(|name| name.to_string_lossy().into_owned());
        name.unwrap_or_else(|| "The tree".to_owned())
    }

    /// Tells this folder from others with the same name, and does not tell where it is.
    pub fn key(&self) -> String {
        hex::encode(&Sha256::digest(self.root.as_os_str().as_encoded_bytes())[..8])
    }

    /// The regular files of the scopes in the order of their paths, binary ones included.
    pub fn list(&self, scopes: &[Scope]) -> (Vec<Entry>, Skipped) {
        let (mut entries, mut skipped, mut total) = (Vec::new(), Skipped::default(), 0u64);
        for walked in self.walk(scopes) {
            let Ok(walked) = walked else {
                skipped.unreadable += 1;
                continue;
            };
            let path = relative(&self.root, walked.path());
            let Some(kind) = walked.file_type() else { continue };
            if kind.is_dir() || !scopes.iter().any(|scope| scope.covers(&path)) {
                continue;
            }
            if kind.is_symlink() {
                skipped.symlinks += 1;
                continue;
            }
            let Some(bytes) = walked.metadata().ok().filter(std::fs::Metadata::is_file).map(|found| found.len()) else {
                skipped.unreadable += 1;
                continue;
            };
            if bytes > self.limits.file_bytes_max {
                skipped.too_large += 1;
            } else if entries.len() as u64 >= self.limits.files_max || total + bytes > self.limits.total_bytes_max {
                skipped.over_bound += 1;
            } else {
                total += bytes;
                entries.push(Entry { path, bytes });
            }
        }
        (entries, skipped)
    }

    /// Gives every text file of the scopes to `look`, one at a time, so that one file is in memory at a time.
    pub fn read(&self, scopes: &[Scope], mut look: impl FnMut(&str, &[u8])) -> Skipped {
        let (entries, mut skipped) = self.list(scopes);
        for entry in entries {
            match self.bytes(&entry.path) {
                Ok(bytes) if bytes.len() as u64 > self.limits.file_bytes_max => skipped.too_large += 1,
                Ok(bytes) if is_binary(&bytes) => skipped.binary += 1,
                Ok(bytes) => look(&entry.path, &bytes),
                Err(_) => skipped.unreadable += 1,
            }
        }
        skipped
    }

    /// Reads one byte more than is allowed at most: the file may have grown since it was listed.
    fn bytes(&self, path: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.root.join(path))?.take(self.limits.file_bytes_max + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn walk(&self, scopes: &[Scope]) -> ignore::Walk {
        let (root, scopes) = (self.root.clone(), scopes.to_vec());
        WalkBuilder::new(&self.root)
            .follow_links(false)
            .require_git(false)
            .sort_by_file_path(Path::cmp)
            .filter_entry(move |entry| {
                let path = relative(&root, entry.path());
                scopes.iter().any(|scope| scope.reaches(&path))
            })
            .build()
    }
}

fn relative(root: &Path, path: &Path) -> String {
    let names = path.strip_prefix(root).unwrap_or(path).components();
    names.map(|name| name.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}

/// A zero byte near the beginning, as `grep` and `git` decide it.
fn is_binary(bytes: &[u8]) -> bool {
    bytes.iter().take(8_000).any(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in [
            (".gitignore", "target\n"),
            ("a.rs", "fn a() {}\n"),
            ("src/b.rs", "fn b() {}\n"),
            ("src/deep/c.rs", "fn c() {}\n"),
            ("target/d.rs", "fn d() {}\n"),
            ("big.txt", "0123456789012345678901234567890123456789"),
            ("image.bin", "a\0b"),
        ] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        std::os::unix::fs::symlink(dir.path().join("src"), dir.path().join("link")).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", dir.path().join("out")).unwrap();
        dir
    }

    fn read(source: &Source, scopes: &[&str]) -> (Vec<String>, Skipped) {
        let scopes: Vec<Scope> = scopes.iter().map(|scope| scope.parse().unwrap()).collect();
        let mut paths = Vec::new();
        let skipped = source.read(&scopes, |path, _| paths.push(path.to_owned()));
        (paths, skipped)
    }

    #[test]
    fn ignored_binary_large_and_linked_files_are_not_read() {
        let dir = tree();
        let limits = Limits { file_bytes_max: 30, ..Limits::default() };
        let source = Source::open(dir.path(), limits).unwrap();
        let (paths, skipped) = read(&source, &["."]);
        assert_eq!(paths, ["a.rs", "src/b.rs", "src/deep/c.rs"]);
        assert_eq!(skipped, Skipped { symlinks: 2, binary: 1, too_large: 1, unreadable: 0, over_bound: 0 });
        assert_eq!(read(&source, &["src"]).0, ["src/b.rs", "src/deep/c.rs"]);
        assert_eq!(read(&source, &["src/*", "*"]).0, ["a.rs", "src/b.rs"]);
        assert_eq!(read(&source, &["absent"]), (Vec::new(), Skipped::default()));
    }

    #[test]
    fn a_bound_that_is_reached_is_told() {
        let dir = tree();
        let source = Source::open(dir.path(), Limits { files_max: 2, ..Limits::default() }).unwrap();
        let (entries, skipped) = source.list(&[".".parse().unwrap()]);
        assert_eq!((entries.len(), skipped.over_bound), (2, 3));
        let source = Source::open(dir.path(), Limits { total_bytes_max: 12, ..Limits::default() }).unwrap();
        assert_eq!(source.list(&["src".parse().unwrap()]).1.over_bound, 1);
        assert!(Source::open(&dir.path().join("a.rs"), Limits::default()).is_err());
    }
}
