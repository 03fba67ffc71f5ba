//! Finds the Postgres programs, and among several versions the one that fits the cluster.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::account::Account;
use super::command;
use super::data_dir::DataDir;
use super::error::Error;

/// The oldest Postgres used for a new cluster: older ones are no longer maintained.
const MAJOR_MIN: u32 = 14;

/// Folders with one folder per version: parent, prefix of its children's names, where in them the programs are.
const VERSIONED: [(&str, &str, &str); 7] = [
    ("/usr/lib/postgresql", "", "bin"),                          // Debian, Ubuntu
    ("/usr", "pgsql-", "bin"),                                   // the project's RPMs
    ("/usr/libexec", "postgresql", ""),                          // Alpine
    ("/opt/homebrew/opt", "postgresql", "bin"),                  // Homebrew on Apple silicon
    ("/usr/local/opt", "postgresql", "bin"),                     // Homebrew on Intel
    ("/home/linuxbrew/.linuxbrew/opt", "postgresql", "bin"),     // Homebrew on Linux
    ("/Applications/Postgres.app/Contents/Versions", "", "bin"), // Postgres.app
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Programs {
    pub(super) folder: PathBuf,
    pub(super) major: u32,
}

impl Programs {
    pub(super) fn initdb(&self) -> PathBuf {
        self.folder.join("initdb")
    }

    pub(super) fn postgres(&self) -> PathBuf {
        self.folder.join("postgres")
    }
}

/// The first programs that fit: with a cluster, its own major version; without, any that is not too old.
/// If `pg_bin` is given, only that folder is searched, else those that the cluster's user can enter.
pub(super) async fn find(
    pg_bin: Option<&Path>,
    path: Option<&OsStr>,
    home: &DataDir,
    account: Account,
    cluster: Option<u32>,
) -> Result<Programs, Error> {
    let folders = match pg_bin {
        Some(folder) => vec![folder.to_path_buf()],
        None => candidates(path).await.into_iter().filter(|folder| account.can_enter(folder)).collect(),
    };
    let mut unfit: Vec<Programs> = Vec::new();
    for folder in folders {
        if let Some(programs) = inspect(&folder).await
            && !unfit.contains(&programs)
        {
            if fits(programs.major, cluster) {
                return Ok(programs);
            }
            unfit.push(programs);
        }
    }
    let found = listed(&unfit);
    Err(match (pg_bin, cluster) {
        (Some(folder), _) if unfit.is_empty() => Error::NoPrograms { looked: format!("--pg-bin {}", folder.display()) },
        (None, _) if unfit.is_empty() => Error::NoPrograms {
            looked: "what pip or npm installed with this program, PATH, pg_config --bindir, /usr/lib/postgresql/*/bin, /usr/pgsql-*/bin, Homebrew".to_owned(),
        },
        (_, Some(cluster)) => Error::Version { path: home.cluster(), cluster, found },
        (_, None) => Error::TooOld { found, least: MAJOR_MIN },
    })
}

/// The newest programs of a later major version than the cluster's; if `folder` is given, only those there.
pub(super) async fn newer(
    folder: Option<&Path>,
    path: Option<&OsStr>,
    home: &DataDir,
    account: Account,
    cluster: u32,
) -> Result<Programs, Error> {
    let folders = match folder {
        Some(folder) => vec![folder.to_path_buf()],
        None => candidates(path).await.into_iter().filter(|folder| account.can_enter(folder)).collect(),
    };
    let mut found = Vec::new();
    for folder in folders {
        found.extend(inspect(&folder).await);
    }
    let newest = found.iter().max_by_key(|programs| programs.major).filter(|programs| programs.major > cluster);
    newest.cloned().ok_or_else(|| Error::NotNewer { path: home.cluster(), cluster, found: listed(&found) })
}

fn listed(programs: &[Programs]) -> String {
    let each: Vec<_> = programs.iter().map(|it| format!("{} in {}", it.major, it.folder.display())).collect();
    if each.is_empty() { "none at all".to_owned() } else { each.join(", ") }
}

/// A client program of Postgres, such as `psql`, of any version, from the folders searched for the server's programs.
/// Only the client may be installed, so the folder need not contain the server's.
pub(super) async fn client(name: &str, pg_bin: Option<&Path>, path: Option<&OsStr>) -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> = pg_bin.map(Path::to_path_buf).into_iter().collect();
    folders.extend(candidates(path).await);
    // Homebrew's client-only package, which is not linked into any folder of PATH.
    for libpq in ["/opt/homebrew/opt/libpq/bin", "/usr/local/opt/libpq/bin", "/home/linuxbrew/.linuxbrew/opt/libpq/bin"]
    {
        folders.push(PathBuf::from(libpq));
    }
    folders.into_iter().map(|folder| folder.join(name)).find(|program| program.is_file())
}

fn fits(major: u32, cluster: Option<u32>) -> bool {
    cluster.map_or(major >= MAJOR_MIN, |cluster| major == cluster)
}

async fn candidates(path: Option<&OsStr>) -> Vec<PathBuf> {
    // An empty or relative entry of PATH depends on the working directory, from which no programs are run.
    let mut folders: Vec<PathBuf> = path
        .map(|path| std::env::split_paths(path).filter(|folder| folder.is_absolute()).collect())
        .unwrap_or_default();
    if let Some(pg_config) = folders.iter().map(|folder| folder.join("pg_config")).find(|it| it.is_file())
        && let Ok(output) = command::plain(&pg_config).arg("--bindir").kill_on_drop(true).output().await
        && let Ok(folder) = String::from_utf8(output.stdout)
    {
        folders.push(PathBuf::from(folder.trim()));
    }
    for (parent, prefix, programs) in VERSIONED {
        let entries = fs::read_dir(parent).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        folders.extend(newest_first(names, prefix).iter().map(|name| Path::new(parent).join(name).join(programs)));
    }
    folders.push(PathBuf::from("/usr/local/pgsql/bin"));
    folders
}

/// Sorts numerically, not alphabetically (9.6 < 16), folders without a number last.
fn newest_first(mut names: Vec<String>, prefix: &str) -> Vec<String> {
    names.retain(|name| name.starts_with(prefix));
    names.sort_by_cached_key(|name| {
        let number = name[prefix.len()..].trim_start_matches('@').split('.').next().and_then(|it| it.parse().ok());
        std::cmp::Reverse((number.unwrap_or(0_u32), name.clone()))
    });
    names
}

/// Both programs must exist (client-only packages have neither), and `postgres` must report its version.
async fn inspect(folder: &Path) -> Option<Programs> {
    // The real folder: Postgres finds its libraries relative to its program.
    let folder = fs::canonicalize(folder).ok()?;
    let programs = Programs { folder, major: 0 };
    if !programs.initdb().is_file() || !programs.postgres().is_file() {
        return None;
    }
    let output = command::plain(&programs.postgres()).arg("--version").kill_on_drop(true).output().await.ok()?;
    let major = major_of(&String::from_utf8_lossy(&output.stdout))?;
    Some(Programs { major, ..programs })
}

/// `postgres (PostgreSQL) 15.13 (Debian 15.13-0+deb12u1)`, `… 18beta1`, `… 17devel`.
fn major_of(version: &str) -> Option<u32> {
    let number = version.trim().strip_prefix("postgres (PostgreSQL) ")?;
    let digits = number.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(number.len());
    number[..digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_from_what_postgres_says_of_itself() {
        assert_eq!(major_of("postgres (PostgreSQL) 15.13 (Debian 15.13-0+deb12u1)\n"), Some(15));
        assert_eq!(major_of("postgres (PostgreSQL) 18beta1"), Some(18));
        assert_eq!(major_of("psql (PostgreSQL) 15.13"), None);
        assert_eq!(major_of(""), None);
    }

    #[test]
    fn newer_folders_come_first_by_number() {
        let names = ["9.6", "16", "15", "common"].map(str::to_owned).to_vec();
        assert_eq!(newest_first(names, ""), ["16", "15", "9.6", "common"]);
        let brew = ["postgresql", "postgresql@9", "postgresql@17", "openssl"].map(str::to_owned).to_vec();
        assert_eq!(newest_first(brew, "postgresql"), ["postgresql@17", "postgresql@9", "postgresql"]);
    }

    #[tokio::test]
    async fn a_client_program_is_looked_for_in_the_named_folder_first_and_needs_no_server_beside_it() {
        let (named, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        for folder in [&named, &other] {
            fs::write(folder.path().join("psql-of-a-test"), "").expect("a file");
        }
        let path = Some(other.path().as_os_str());
        let found = client("psql-of-a-test", Some(named.path()), path).await;
        assert_eq!(found, Some(named.path().join("psql-of-a-test")));
        assert_eq!(client("psql-of-a-test", None, path).await, Some(other.path().join("psql-of-a-test")));
        assert_eq!(client("psql-of-nobody", Some(named.path()), path).await, None);
    }

    #[test]
    fn an_existing_cluster_asks_for_its_own_version_and_a_new_one_for_any_maintained() {
        assert!(fits(15, None) && fits(15, Some(15)) && fits(9, Some(9)));
        assert!(!fits(16, Some(15)) && !fits(13, None));
    }
}
