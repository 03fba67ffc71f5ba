//! Where the artifacts' bytes are stored: a folder, or an S3-compatible bucket.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    str::FromStr,
};

use crate::postgres::ARTIFACTS_NOTE;

use super::{DataArgs, Error, Secrets, ServeArgs, error, secret_from_file, variable};

/// A bucket and a prefix in it, written `s3://bucket/prefix`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketUrl {
    pub bucket: String,
    pub prefix: String,
}

impl FromStr for BucketUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (bucket, prefix) =
            text.strip_prefix("s3://").map_or(("", ""), |rest| rest.split_once('/').unwrap_or((rest, "")));
        let is_word = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let steps = prefix.trim_end_matches('/').split('/');
        let is_prefix = prefix.trim_end_matches('/').is_empty()
            || steps.clone().all(|step| !step.is_empty() && !matches!(step, "." | "..") && step.chars().all(is_word));
        if bucket.is_empty() || !bucket.chars().all(is_word) || !is_prefix {
            return Err(error(format!(
                "an artifact store must be s3://bucket/prefix of letters, digits and - . _, not: {text}"
            )));
        }
        Ok(Self { bucket: bucket.to_owned(), prefix: prefix.trim_end_matches('/').to_owned() })
    }
}

/// The connection to a bucket.
#[derive(Clone)]
pub struct S3 {
    pub bucket: String,
    pub prefix: String,
    pub endpoint: Option<String>,
    pub region: String,
    pub access_key_id: Option<String>,
    pub secret_access_key: Option<String>,
}

impl S3 {
    /// Whether the connection is without TLS.
    pub fn is_plain(&self) -> bool {
        self.endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"))
    }
}

/// Where the artifacts' bytes are stored.
#[derive(Clone)]
pub enum ArtifactStore {
    Folder(PathBuf),
    Bucket(S3),
}

/// The settings of S3: `RUNREEL_S3_ENDPOINT`, `RUNREEL_S3_REGION`, `RUNREEL_S3_ACCESS_KEY_ID` and
/// `RUNREEL_S3_SECRET_ACCESS_KEY`.
#[derive(Clone, Default)]
pub struct S3Settings {
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub access_key_id: Option<String>,
    pub secret_access_key: Option<String>,
}

impl S3Settings {
    pub(super) fn read() -> Result<Self, Error> {
        let value = |name: &str| variable(name).map_or_else(|| secret_from_file(name), |value| Ok(Some(value)));
        Ok(Self {
            endpoint: value("RUNREEL_S3_ENDPOINT")?,
            region: value("RUNREEL_S3_REGION")?,
            access_key_id: value("RUNREEL_S3_ACCESS_KEY_ID")?,
            secret_access_key: value("RUNREEL_S3_SECRET_ACCESS_KEY")?,
        })
    }
}

#[expect(clippy::disallowed_methods, reason = "read before the server runs")]
impl DataArgs {
    /// The folder of artifacts: the given one; else the one last used by a server with the embedded database, so that
    /// every command uses the same folder, wherever it is started; else `artifacts/` in the data directory or, if only
    /// that exists, in the working directory.
    pub fn artifacts_dir(&self, given: Option<&PathBuf>) -> Result<PathBuf, Error> {
        if let Some(dir) = given {
            return Ok(dir.clone());
        }
        if let Some(dir) = self.noted_artifacts_dir()? {
            return Ok(dir);
        }
        let (own, here) = (self.data_dir()?.join("artifacts"), PathBuf::from("artifacts"));
        Ok(if !own.is_dir() && here.is_dir() { here } else { own })
    }

    fn noted_artifacts_dir(&self) -> Result<Option<PathBuf>, Error> {
        let Some(note) = self.artifacts_note()? else { return Ok(None) };
        let text = match std::fs::read_to_string(&note) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self::error(format!("cannot read {}: {error}", note.display()))),
        };
        let (data, mut lines) = (self.data_dir()?, text.lines());
        Ok(match (lines.next(), lines.next()) {
            // A missing final newline means an incomplete write.
            _ if !text.ends_with('\n') => None,
            (Some(inside), None) if !inside.is_empty() => Some(data.join(inside)),
            // A copy of the data directory must not use the folder of its original.
            (Some(folder), Some(of)) if data.canonicalize().is_ok_and(|data| data.as_os_str() == of) => {
                Some(PathBuf::from(folder))
            }
            _ => None,
        })
    }

    /// Records the artifacts folder of a server with an embedded database: relative if inside the data directory, else
    /// absolute and followed by the data directory.
    pub fn note_artifacts_dir(&self, dir: &Path) -> io::Result<()> {
        let Some(note) = self.artifacts_note().map_err(io::Error::other)? else { return Ok(()) };
        let data = self.data_dir().map_err(io::Error::other)?.canonicalize()?;
        let dir = dir.canonicalize()?;
        let text = match dir.strip_prefix(&data) {
            Ok(inside) => format!("{}\n", inside.display()),
            Err(_) => format!("{}\n{}\n", dir.display(), data.display()),
        };
        if std::fs::read_to_string(&note).is_ok_and(|noted| noted == text) {
            return Ok(());
        }
        let fresh = note.with_extension("fresh");
        let mut file = std::fs::File::create(&fresh)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(fresh, note)
    }

    fn artifacts_note(&self) -> Result<Option<PathBuf>, Error> {
        let is_embedded = self.database_url()?.is_none();
        Ok(if is_embedded { Some(self.data_dir()?.join(ARTIFACTS_NOTE)) } else { None })
    }
}

impl ServeArgs {
    /// Where artifacts are stored. A bucket takes precedence over a folder.
    pub fn artifact_store(&self, secrets: &Secrets) -> Result<ArtifactStore, Error> {
        if let Some(url) = &self.artifact_store {
            let s3 = secrets.s3.clone();
            if s3.access_key_id.is_some() != s3.secret_access_key.is_some() {
                return Err(error(
                    "RUNREEL_S3_ACCESS_KEY_ID and RUNREEL_S3_SECRET_ACCESS_KEY must be set together; one is missing",
                ));
            }
            if s3.endpoint.as_ref().is_some_and(|e| !e.starts_with("http://") && !e.starts_with("https://")) {
                return Err(error("RUNREEL_S3_ENDPOINT must begin with http:// or https://"));
            }
            return Ok(ArtifactStore::Bucket(S3 {
                bucket: url.bucket.clone(),
                prefix: url.prefix.clone(),
                endpoint: s3.endpoint,
                region: s3.region.unwrap_or_else(|| "us-east-1".to_owned()),
                access_key_id: s3.access_key_id,
                secret_access_key: s3.secret_access_key,
            }));
        }
        Ok(ArtifactStore::Folder(self.data.artifacts_dir(self.artifacts_dir.as_ref())?))
    }
}
