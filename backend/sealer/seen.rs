//! The last seal that a server has seen, stored outside the database: in a file of the data directory.

#![expect(clippy::disallowed_methods, reason = "this is the one file of the sealer")]

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::{fs, io::AsyncWriteExt as _};

use crate::domain::{artifact::Hash, chain::seal::SealRef};

/// The file. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SeenFile(Arc<PathBuf>);

impl SeenFile {
    /// The file for one log below a data directory; its folder is created by the first write.
    pub fn of(data_dir: &Path, log: Hash) -> Self {
        Self(Arc::new(data_dir.join("history").join(format!("{log}.seal.json"))))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The seal; `None` if there is no file.
    pub async fn read(&self) -> io::Result<Option<SealRef>> {
        match fs::read(self.path()).await {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the seal; the new file is synced before it takes the old one's place.
    pub async fn write(&self, seen: SealRef) -> io::Result<()> {
        if let Some(folder) = self.path().parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).await?;
        }
        // Several servers may share a data directory.
        let new = self.path().with_extension(format!("{}.new", std::process::id()));
        let mut file = fs::File::create(&new).await?;
        file.write_all(&serde_json::to_vec(&seen)?).await?;
        file.sync_all().await?;
        fs::rename(&new, self.path()).await
    }
}
