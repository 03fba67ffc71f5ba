//! The paths that tool programs must not reach.

use std::path::PathBuf;

use super::{ArtifactStore, DataArgs, Error, File, Secrets, ServeArgs, own_variables, variable};

impl DataArgs {
    /// The data directory, and the files that contain secrets.
    pub fn kept(&self, file: &File) -> Result<Vec<PathBuf>, Error> {
        let own = own_variables().into_iter().filter_map(|name| name.into_string().ok());
        let own = own.filter(|name| name.ends_with("_FILE")).filter_map(|name| variable(&name).map(PathBuf::from));
        Ok([self.data_dir()?].into_iter().chain(own).chain(file.secret_files()).collect())
    }
}

impl ServeArgs {
    /// Like [`DataArgs::kept`], plus this server's own folders.
    pub fn kept(&self, file: &File, secrets: &Secrets) -> Result<Vec<PathBuf>, Error> {
        let mut kept = self.data.kept(file)?;
        kept.push(self.sessions_dir()?);
        kept.extend(self.seals.seal_key_file.clone());
        if let ArtifactStore::Folder(folder) = self.artifact_store(secrets)? {
            kept.push(folder);
        }
        Ok(kept)
    }
}
