//! The user that Postgres runs as. It refuses root, so as root the cluster belongs to `postgres`, or to `nobody` in
//! minimal images.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::data_dir::DataDir;
use super::error::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Account {
    /// The user runreel itself runs as.
    Own,
    /// runreel is root and drops to this user.
    ///
    /// The socket's folder and the cluster's files belong to this user, so every other process of the same user (a
    /// system-wide Postgres, say) can reach them; a connection still needs the password (see `secret`).
    Other { uid: u32, gid: u32 },
}

impl Account {
    pub(super) fn choose(home: &DataDir) -> Result<Self, Error> {
        let path = home.cluster();
        let me = rustix::process::geteuid().as_raw();
        let owner_of = |path: &Path| fs::metadata(path).ok().map(|meta| (meta.uid(), meta.gid()));
        // As root in a data directory of an ordinary user, the cluster will belong to that user.
        let host = owner_of(home.root()).filter(|(uid, _)| me == 0 && *uid != 0);
        let owner = owner_of(&path).or(host);
        let passwd = if me == 0 { fs::read_to_string("/etc/passwd").unwrap_or_default() } else { String::new() };
        decide(&path, me, owner, &passwd)
    }

    pub(super) fn uid(self) -> u32 {
        match self {
            Self::Own => rustix::process::geteuid().as_raw(),
            Self::Other { uid, .. } => uid,
        }
    }

    /// Whether this account may pass through `path` and every folder above it. Judged by mode bits alone: an ACL that
    /// allows more is ignored, which only causes an unnecessary fallback.
    pub(super) fn can_enter(self, path: &Path) -> bool {
        let Self::Other { uid, gid } = self else {
            return true;
        };
        path.ancestors().all(|folder| {
            fs::metadata(folder).is_ok_and(|meta| {
                let bit = if meta.uid() == uid {
                    0o100
                } else if meta.gid() == gid {
                    0o010
                } else {
                    0o001
                };
                meta.mode() & bit != 0
            })
        })
    }
}

/// An existing cluster is run by its owner: Postgres accepts no other user.
fn decide(cluster: &Path, me: u32, owner: Option<(u32, u32)>, passwd: &str) -> Result<Account, Error> {
    match owner {
        Some((uid, _)) if uid == me && me != 0 => Ok(Account::Own),
        Some((uid, group)) if uid != 0 && me == 0 => {
            // The user's own group: a folder that root created for the user often kept root's group. In a container
            // the uid may have no passwd entry.
            let gid = look_up(passwd, 2, &uid.to_string()).map_or(group, |(_, gid)| gid);
            Ok(Account::Other { uid, gid })
        }
        Some((owner, _)) => Err(Error::Owner { path: cluster.to_path_buf(), owner, me }),
        None if me != 0 => Ok(Account::Own),
        None => {
            let found = look_up(passwd, 0, "postgres").or_else(|| look_up(passwd, 0, "nobody"));
            found.map(|(uid, gid)| Account::Other { uid, gid }).ok_or(Error::NoAccount)
        }
    }
}

/// The uid and gid of the first account whose field is `value`. A line is `name:password:uid:gid:…`.
fn look_up(passwd: &str, field: usize, value: &str) -> Option<(u32, u32)> {
    let line = passwd.lines().find(|line| line.split(':').nth(field) == Some(value))?;
    let mut ids = line.split(':').skip(2);
    let uid = ids.next()?.parse().ok()?;
    let gid = ids.next()?.parse().ok()?;
    (uid != 0).then_some((uid, gid))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65533:nobody:/:\npostgres:x:101:104:,,,:/:\n";

    fn decided(me: u32, owner: Option<(u32, u32)>, passwd: &str) -> Option<Account> {
        decide(Path::new("/d/postgres"), me, owner, passwd).ok()
    }

    #[test]
    fn root_runs_a_new_cluster_as_postgres_or_else_nobody() {
        assert_eq!(decided(0, None, PASSWD), Some(Account::Other { uid: 101, gid: 104 }));
        let bare = &PASSWD[..PASSWD.find("postgres").expect("there")];
        assert_eq!(decided(0, None, bare), Some(Account::Other { uid: 65534, gid: 65533 }));
        assert!(matches!(decide(Path::new("/d"), 0, None, "root:x:0:0::/:\n"), Err(Error::NoAccount)));
    }

    #[test]
    fn an_existing_cluster_is_run_by_its_owner_only() {
        assert_eq!(decided(0, Some((1000, 1001)), PASSWD), Some(Account::Other { uid: 1000, gid: 1001 }));
        assert_eq!(decided(0, Some((101, 0)), PASSWD), Some(Account::Other { uid: 101, gid: 104 }));
        assert_eq!(decided(1000, Some((1000, 1000)), ""), Some(Account::Own));
        assert_eq!(decided(1000, Some((101, 104)), ""), None);
        assert_eq!(decided(0, Some((0, 0)), PASSWD), None);
        assert_eq!(decided(1000, None, ""), Some(Account::Own));
    }
}
