//! Replaces a cluster by one of a later major version that was filled beside it.
//!
//! Invariant: a directory called `postgres` is always one of the two, complete: they are exchanged in one step, after
//! both have stopped. Until then the old cluster is unchanged, so a failed or killed upgrade can be repeated.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, lchown};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::account::Account;
use super::data_dir::{DataDir, remove};
use super::error::Error;
use super::find;
use super::lock::Lock;
use super::{Cluster, Endpoint, Options, STOP_MAX, running_endpoint};

/// Both clusters, running.
#[derive(Debug)]
pub struct Upgrade {
    home: DataDir,
    old: Cluster,
    new: Cluster,
    majors: (u32, u32),
}

impl Upgrade {
    /// Starts the data directory's cluster and, beside it, an empty one with the programs in `to`, or with the newest
    /// ones found.
    pub async fn begin(options: Options, to: Option<&Path>) -> Result<Self, Error> {
        let home = DataDir::existing(&options.data_dir)?;
        let from = home.cluster_major()?.ok_or_else(|| Error::NoCluster { path: home.root().to_owned() })?;
        let kept = home.replaced(from);
        if kept.exists() {
            return Err(Error::Replaced { path: kept });
        }
        let account = Account::choose(&home)?;
        let programs = find::newer(to, options.path_env.as_deref(), &home, account, from).await?;
        let old = Cluster::start(options.clone()).await?;
        let begun = async {
            let options = Options { data_dir: home.upgrade(), pg_bin: Some(programs.folder.clone()), ..options };
            if running_endpoint(&options.data_dir).is_some() {
                // A killed upgrade left it running.
                Cluster::start(options.clone()).await?.stop(STOP_MAX).await?;
            }
            make_room(&home)?;
            Cluster::start(options).await
        };
        match begun.await {
            Ok(new) => Ok(Self { home, old, new, majors: (from, programs.major) }),
            Err(error) => {
                let _ = old.stop(STOP_MAX).await;
                Err(error)
            }
        }
    }

    /// The major versions, old and new.
    pub fn majors(&self) -> (u32, u32) {
        self.majors
    }

    /// The endpoints, old and new.
    pub fn endpoints(&self) -> (&Endpoint, &Endpoint) {
        (self.old.endpoint(), self.new.endpoint())
    }

    /// Stops both and leaves everything as it was.
    pub async fn abandon(self) -> Result<(), Error> {
        let stopped = (self.new.stop(STOP_MAX).await, self.old.stop(STOP_MAX).await);
        remove(&self.home.upgrade())?;
        stopped.0.and(stopped.1)
    }

    /// Stops both and replaces the old one by the new one. Returns where the old one is kept.
    pub async fn finish(self) -> Result<PathBuf, Error> {
        self.new.stop(STOP_MAX).await?;
        self.old.stop(STOP_MAX).await?;
        let _lock = Lock::take(&self.home)?;
        let (cluster, kept) = (self.home.cluster(), self.home.replaced(self.majors.0));
        let filled = DataDir::existing(&self.home.upgrade())?.cluster();
        // Without it the next start sets another password, on whichever cluster it finds.
        let password = self.home.password();
        fs::remove_file(&password).map_err(Error::file(&password))?;
        renameat_with(CWD, &cluster, CWD, &filled, RenameFlags::EXCHANGE)
            .map_err(|error| Error::file(&cluster)(error.into()))?;
        fs::rename(&filled, &kept).map_err(Error::file(&kept))?;
        File::open(self.home.root()).and_then(|root| root.sync_all()).map_err(Error::file(self.home.root()))?;
        remove(&self.home.upgrade())?;
        Ok(kept)
    }
}

/// Creates an empty data directory for the new cluster, with the owner and mode of the old one's.
fn make_room(home: &DataDir) -> Result<(), Error> {
    let room = home.upgrade();
    remove(&room)?;
    let owner = fs::metadata(home.root()).map_err(Error::file(home.root()))?;
    DirBuilder::new().mode(owner.mode() & 0o777).create(&room).map_err(Error::file(&room))?;
    lchown(&room, Some(owner.uid()), Some(owner.gid())).map_err(Error::file(&room))
}
