//! The ways in which a database is set back, as an operator goes them.

use std::path::Path;

use crate::cluster::Cluster;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// A standby that had lost its primary is promoted.
    Failover,
    /// The cluster is stopped and replaced with an older copy of its files.
    Restore,
    /// The same, and the copy goes on by the archived log, to a moment (`docs/tasks/backup.md`).
    PointInTime,
    /// What `pg_dump` has written is loaded into another cluster (`docs/operations.md`).
    Dump,
}

impl Way {
    pub(super) const ALL: [Self; 4] = [Self::Failover, Self::Restore, Self::PointInTime, Self::Dump];

    /// What must be so before the first event.
    pub(super) async fn prepare(self, cluster: &Cluster) -> anyhow::Result<()> {
        if self == Self::PointInTime { cluster.archive().await } else { Ok(()) }
    }

    /// The copy to begin with, where it has less than it is to have in the end.
    pub(super) async fn base(self, cluster: &Cluster, folder: &Path) -> anyhow::Result<Option<Cluster>> {
        if self == Self::PointInTime { cluster.copy(folder, false).await.map(Some) } else { Ok(None) }
    }

    /// A copy that has, or will have, what exists now and nothing later.
    pub(super) async fn copy(self, cluster: &Cluster, base: Option<Cluster>, folder: &Path) -> anyhow::Result<Cluster> {
        if let Some(base) = base {
            base.recover_until(&cluster.now().await?)?;
            return Ok(base);
        }
        if self == Self::Dump {
            let other = Cluster::create(folder, None).await?;
            cluster.dump_into(&other).await?;
            return Ok(other);
        }
        let is_standby = self == Self::Failover;
        let copy = cluster.copy(folder, is_standby).await?;
        if is_standby {
            copy.start().await?;
            copy.catch_up(cluster).await?;
            copy.cut_off().await?;
        }
        Ok(copy)
    }

    /// Before the cluster is lost.
    pub(super) async fn leave(self, cluster: &Cluster) -> anyhow::Result<()> {
        if self == Self::PointInTime { cluster.archive_all().await } else { Ok(()) }
    }

    /// The copy becomes the database.
    pub(super) async fn arrive(self, copy: &Cluster) -> anyhow::Result<()> {
        match self {
            Self::Failover => copy.promote().await,
            Self::Restore => copy.start().await,
            Self::PointInTime => {
                copy.start().await?;
                copy.is_recovered().await
            }
            Self::Dump => Ok(()),
        }
    }
}
