//! The sandbox that keeps tool programs, which run as the server's own user, away from its data and its secrets.
//!
//! Invariant: a program started through [`Confinement`] cannot open the protected paths, except for the one folder it
//! was given, and can neither inspect nor signal a process outside the sandbox; nor can its descendants. The kernel
//! enforces this (Landlock). Without Landlock nothing is protected, and [`hold`] returns `false`.
//!
//! Landlock rules can only allow, so everything beside the protected paths is allowed one by one. Consequently, in the
//! folders above them a program can use what existed when it started, but cannot list, create or remove entries.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::{
    process::{Child, Command},
    runtime::Handle,
    sync::oneshot,
};

/// The files and folders that tool programs cannot reach. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Confinement {
    kept: Arc<[PathBuf]>,
}

impl Confinement {
    pub fn around(kept: impl IntoIterator<Item = PathBuf>) -> Self {
        Self { kept: kept.into_iter().collect() }
    }

    /// A protected path inside `folder`, if there is one.
    pub fn within(&self, folder: &Path) -> Option<&Path> {
        let folder = folder.canonicalize().ok()?;
        let lies_in = |path: &&PathBuf| path.canonicalize().is_ok_and(|path| path.starts_with(&folder));
        self.kept.iter().find(lies_in).map(PathBuf::as_path)
    }

    /// Starts a program in the sandbox. `open` is a folder that it may use although it is inside a protected one.
    pub async fn spawn(&self, mut command: Command, open: Option<&Path>) -> io::Result<Child> {
        let (kept, open, runtime) = (Arc::clone(&self.kept), open.map(Path::to_owned), Handle::current());
        let (sender, started) = oneshot::channel();
        // Landlock confines a thread and what it starts for the rest of its life, so each start uses a new thread.
        std::thread::Builder::new().name("launch".to_owned()).spawn(move || {
            let _runtime = runtime.enter();
            let child = kernel::confine(&kept, open.as_deref()).and_then(|()| command.spawn());
            // If the caller no longer waits, the child ends with its handle.
            let _ = sender.send(child);
        })?;
        started.await.map_err(io::Error::other)?
    }
}

/// Whether this kernel can enforce the sandbox.
pub fn hold() -> bool {
    kernel::can_confine()
}

#[cfg(target_os = "linux")]
mod kernel {
    use std::{io, path::Path};

    use landlock::{
        ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
        Scope,
    };

    /// The newest ABI known; on an older kernel the rules cover what that kernel supports.
    const NEWEST: ABI = ABI::V9;

    pub(super) fn can_confine() -> bool {
        let strict = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        strict.handle_access(AccessFs::from_all(ABI::V1)).and_then(Ruleset::create).is_ok()
    }

    pub(super) fn confine(kept: &[std::path::PathBuf], open: Option<&Path>) -> io::Result<()> {
        // A path that does not exist needs no protection; other processes always do.
        let kept: Vec<_> = kept.iter().filter_map(|path| path.canonicalize().ok()).collect();
        let mut allowed = Vec::new();
        super::beside(Path::new("/"), &kept, &mut allowed);
        if let Some(open) = open.and_then(|open| open.canonicalize().ok())
            && !kept.iter().any(|path| path.starts_with(&open))
        {
            allowed.push(open);
        }
        let rules = allowed.iter().filter_map(|path| {
            let rights = if path.is_dir() { AccessFs::from_all(NEWEST) } else { AccessFs::from_file(NEWEST) };
            // The path may no longer exist.
            PathFd::new(path).ok().map(|path| Ok(PathBeneath::new(path, rights)))
        });
        let confined = Ruleset::default()
            .handle_access(AccessFs::from_all(NEWEST))
            .and_then(|rules| rules.scope(Scope::Signal))
            .and_then(Ruleset::create)
            .and_then(|ruleset| ruleset.add_rules(rules))
            .and_then(landlock::RulesetCreated::restrict_self);
        confined.map(drop).map_err(io::Error::other)
    }
}

#[cfg(not(target_os = "linux"))]
mod kernel {
    use std::{io, path::Path};

    pub(super) fn can_confine() -> bool {
        false
    }

    pub(super) fn confine(_: &[std::path::PathBuf], _: Option<&Path>) -> io::Result<()> {
        Ok(())
    }
}

/// Adds to `allowed` everything below `folder` that is neither protected nor contains something protected.
#[expect(clippy::disallowed_methods, reason = "the folders above what is kept are listed, to allow the rest of them")]
fn beside(folder: &Path, kept: &[PathBuf], allowed: &mut Vec<PathBuf>) {
    if kept.iter().any(|path| path == folder) {
        return;
    }
    if !kept.iter().any(|path| path.starts_with(folder)) {
        return allowed.push(folder.to_owned());
    }
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        // The target of a link is allowed or protected at its own path.
        if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
            beside(&entry.path(), kept, allowed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beside_is_allowed_and_no_link_leads_in() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        for folder in ["a/data/files", "a/other", "b"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        std::fs::write(root.join("a/secret"), "").unwrap();
        std::fs::write(root.join("a/open"), "").unwrap();
        std::os::unix::fs::symlink(root.join("a/data"), root.join("link")).unwrap();
        let mut allowed = Vec::new();
        beside(&root, &[root.join("a/data"), root.join("a/secret")], &mut allowed);
        allowed.sort();
        assert_eq!(allowed, [root.join("a/open"), root.join("a/other"), root.join("b")]);
    }

    #[tokio::test]
    async fn a_program_opens_what_is_beside_and_what_it_was_given_and_nothing_else() {
        if !hold() {
            return;
        }
        let scratch = tempfile::tempdir().unwrap();
        for folder in ["data/files/mine", "data/files/theirs", "beside"] {
            std::fs::create_dir_all(scratch.path().join(folder)).unwrap();
        }
        for file in ["data/secret", "data/files/theirs/secret", "beside/open"] {
            std::fs::write(scratch.path().join(file), "text").unwrap();
        }
        let script = "echo new > data/files/mine/new && cat data/files/mine/new beside/open && echo new > beside/new
            cat data/secret; cat data/files/theirs/secret; ls data; rm data/secret; mv data elsewhere; echo > data/new
            kill -0 $PPID && echo signalled";
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).current_dir(scratch.path()).stdout(std::process::Stdio::piped());
        let confinement = Confinement::around([scratch.path().join("data")]);
        let child = confinement.spawn(command, Some(&scratch.path().join("data/files/mine"))).await.unwrap();
        let output = child.wait_with_output().await.unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "new\ntext");
        assert!(scratch.path().join("data/secret").exists() && !scratch.path().join("data/new").exists());
    }
}
