//! What the programs of tools cannot reach, although they are of the server's own user: its data and its secrets.
//!
//! Invariant kept here: a program that is started through [`Confinement`] opens nothing of what they are around, save the one
//! folder it was given, looks into no process outside and signals none; nor do those that it starts, ever. Linux sees to
//! that (Landlock). Where the kernel has none, nothing is kept and [`hold`] says so.
//!
//! The rules can only allow, so everything beside what is kept is allowed one by one. What follows from it: in the
//! folders above what is kept, a program uses what is there when it starts, and lists, makes and removes nothing.

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

/// Around files and folders that programs of tools cannot reach. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Confinement {
    kept: Arc<[PathBuf]>,
}

impl Confinement {
    pub fn around(kept: impl IntoIterator<Item = PathBuf>) -> Self {
        Self { kept: kept.into_iter().collect() }
    }

    /// Something of what is kept that lies in `folder`.
    pub fn within(&self, folder: &Path) -> Option<&Path> {
        let folder = folder.canonicalize().ok()?;
        let lies_in = |path: &&PathBuf| path.canonicalize().is_ok_and(|path| path.starts_with(&folder));
        self.kept.iter().find(lies_in).map(PathBuf::as_path)
    }

    /// Starts a program outside. `open` is a folder that it may use although it lies within.
    pub async fn spawn(&self, mut command: Command, open: Option<&Path>) -> io::Result<Child> {
        let (kept, open, runtime) = (Arc::clone(&self.kept), open.map(Path::to_owned), Handle::current());
        let (sender, started) = oneshot::channel();
        // A thread is confined for the rest of its life, and what it starts with it. So it is one for this alone.
        std::thread::Builder::new().name("launch".to_owned()).spawn(move || {
            let _runtime = runtime.enter();
            let child = kernel::confine(&kept, open.as_deref()).and_then(|()| command.spawn());
            // When nobody waits any more, the child goes with its handle.
            let _ = sender.send(child);
        })?;
        started.await.map_err(io::Error::other)?
    }
}

/// Whether this kernel keeps programs out.
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

    /// What newer kernels can refuse is refused there.
    const NEWEST: ABI = ABI::V9;

    pub(super) fn can_confine() -> bool {
        let strict = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        strict.handle_access(AccessFs::from_all(ABI::V1)).and_then(Ruleset::create).is_ok()
    }

    pub(super) fn confine(kept: &[std::path::PathBuf], open: Option<&Path>) -> io::Result<()> {
        // What is not there needs no wall; other processes always do.
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
            // It may be gone by now.
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

/// Everything below `folder` that neither is kept nor holds something that is.
#[expect(clippy::disallowed_methods, reason = "the folders above what is kept are listed, to allow the rest of them")]
fn beside(folder: &Path, kept: &[PathBuf], allowed: &mut Vec<PathBuf>) {
    if kept.iter().any(|path| path == folder) {
        return;
    }
    if !kept.iter().any(|path| path.starts_with(folder)) {
        return allowed.push(folder.to_owned());
    }
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        // What a link leads to is allowed where it is, or kept.
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
