//! Bytes in an S3-compatible bucket, through `object_store`.
//!
//! Content of up to one part is put under its name at once. Larger content is uploaded part by part under a temporary
//! name, copied to its name inside the bucket, and the temporary object deleted. A bucket shows only complete objects,
//! so content that has its name is complete here, too.

use std::{io, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use chrono::{DateTime, Utc};
use futures::{StreamExt as _, TryStreamExt as _, stream::BoxStream};
use object_store::{
    ClientOptions, GetOptions, MultipartUpload, ObjectStore, ObjectStoreExt as _, PutPayload, RetryConfig,
    aws::AmazonS3Builder,
    client::{HttpClient, HttpConnector},
    path::Path,
};
use uuid::Uuid;

use super::{Error, Stored};
use crate::{config::S3, domain::artifact::Hash};

/// The smallest part that S3 accepts; also the memory an upload needs.
const PART_BYTES: usize = 5 * 1024 * 1024;
/// How long a request to the bucket is retried; an emit that stores its payload there has a time limit of its own.
const RETRIES_MAX: Duration = Duration::from_secs(3);
/// Contents in one chunk of a listing.
const LIST_CHUNK: usize = 500;

/// The part of a bucket that belongs to one database. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Remote {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
}

impl Remote {
    /// Any object store, below a prefix.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: &str, home: Uuid) -> Self {
        let prefix = Path::from(prefix).parts().chain(Path::from(home.simple().to_string()).parts()).collect();
        Self { store, prefix }
    }

    /// A bucket. Nothing is sent yet.
    pub fn s3(settings: &S3, home: Uuid) -> Result<Self, object_store::Error> {
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&settings.bucket)
            .with_region(&settings.region)
            .with_allow_http(true)
            .with_retry(RetryConfig { max_retries: 3, retry_timeout: RETRIES_MAX, ..RetryConfig::default() })
            .with_http_connector(Connector { is_plain: settings.is_plain() });
        if let Some(endpoint) = &settings.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        builder = match (&settings.access_key_id, &settings.secret_access_key) {
            (Some(id), Some(secret)) => builder.with_access_key_id(id).with_secret_access_key(secret),
            // Without keys: the machine's own credentials, such as an instance role.
            _ => builder,
        };
        Ok(Self::new(Arc::new(builder.build()?), &settings.prefix, home))
    }

    fn name_of(&self, hash: Hash) -> Path {
        let digits = hash.to_string();
        self.below(&["sha256", &digits[..2], &digits])
    }

    fn below(&self, steps: &[&str]) -> Path {
        steps.iter().fold(self.prefix.clone(), |path, step| path.join(*step))
    }

    pub(super) fn begin(&self, name: Uuid) -> RemoteWriter {
        let staging = self.below(&["tmp", &name.simple().to_string()]);
        RemoteWriter { store: Arc::clone(&self.store), staging, part: BytesMut::new(), upload: None }
    }

    pub(super) async fn publish(&self, staged: Staged, hash: Hash) -> Result<(), Error> {
        let name = self.name_of(hash);
        match staged {
            Staged::Whole(bytes) => _ = self.store.put(&name, PutPayload::from_bytes(bytes)).await?,
            Staged::Parts(staging) => {
                self.store.copy(&staging, &name).await?;
                if let Err(error) = self.store.delete(&staging).await {
                    tracing::debug!(error = &error as &dyn std::error::Error, "upload left to the sweep");
                }
            }
        }
        Ok(())
    }

    pub(super) async fn read(
        &self,
        hash: Hash,
        size: u64,
        from: u64,
        length: u64,
    ) -> Result<BoxStream<'static, io::Result<Bytes>>, Error> {
        let name = self.name_of(hash);
        if length == 0 {
            let found = self.store.head(&name).await?;
            return if found.size == size { Ok(futures::stream::empty().boxed()) } else { Err(Error::Damaged) };
        }
        let options = GetOptions::new().with_range(Some(from..from + length));
        let found = self.store.get_opts(&name, options).await?;
        if found.meta.size != size {
            return Err(Error::Damaged);
        }
        Ok(found.into_stream().map_err(io::Error::other).boxed())
    }

    pub(super) async fn remove(&self, hash: Hash) -> Result<(), Error> {
        match self.store.delete(&self.name_of(hash)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn remove_unfinished(&self, before: DateTime<Utc>) -> Result<u64, Error> {
        let mut listed = self.store.list(Some(&self.below(&["tmp"])));
        let mut removed = 0;
        while let Some(object) = listed.next().await.transpose()? {
            if object.last_modified < before {
                self.store.delete(&object.location).await?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    pub(super) fn list(&self) -> BoxStream<'static, Result<Vec<Stored>, Error>> {
        let stored = |object: object_store::ObjectMeta| {
            Some(Stored { hash: object.location.filename()?.parse().ok()?, size: object.size })
        };
        let listed = self.store.list(Some(&self.below(&["sha256"])));
        listed
            .map_err(Error::from)
            .try_filter_map(move |object| std::future::ready(Ok(stored(object))))
            .try_chunks(LIST_CHUNK)
            .map_err(|error| error.1)
            .boxed()
    }
}

/// An upload that has no name yet.
#[derive(Debug)]
pub(super) enum Staged {
    /// Small enough for a single put.
    Whole(Bytes),
    /// Complete in the bucket, under this temporary name.
    Parts(Path),
}

/// An upload that is being written.
#[derive(Debug)]
pub(super) struct RemoteWriter {
    store: Arc<dyn ObjectStore>,
    staging: Path,
    part: BytesMut,
    upload: Option<Box<dyn MultipartUpload>>,
}

impl RemoteWriter {
    pub(super) async fn write(&mut self, bytes: &Bytes) -> Result<(), Error> {
        self.part.extend_from_slice(bytes);
        while self.part.len() > PART_BYTES {
            let part = self.part.split_to(PART_BYTES).freeze();
            self.put(part).await?;
        }
        Ok(())
    }

    async fn put(&mut self, part: Bytes) -> Result<(), Error> {
        let upload = match &mut self.upload {
            Some(upload) => upload,
            upload @ None => upload.insert(self.store.put_multipart(&self.staging).await?),
        };
        Ok(upload.put_part(PutPayload::from_bytes(part)).await?)
    }

    pub(super) async fn finish(mut self) -> Result<Staged, Error> {
        let part = self.part.split().freeze();
        if self.upload.is_none() {
            return Ok(Staged::Whole(part));
        }
        self.put(part).await?;
        if let Some(upload) = &mut self.upload {
            upload.complete().await?;
        }
        Ok(Staged::Parts(self.staging))
    }

    /// Aborts the multipart upload, which deletes its parts.
    pub(super) async fn abort(mut self) {
        if let Some(upload) = &mut self.upload
            && let Err(error) = upload.abort().await
        {
            tracing::debug!(error = &error as &dyn std::error::Error, "parts of an upload left in the bucket");
        }
    }
}

/// Creates the HTTP client: with this program's TLS provider, and without certificates for plain HTTP.
#[derive(Debug)]
struct Connector {
    is_plain: bool,
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        // Only the first call in a process installs the provider; for later ones it is already installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("runreel/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(5))
            .read_timeout(Duration::from_secs(30));
        if self.is_plain {
            // A machine without certificates must still be able to reach a plain HTTP server.
            builder = builder.tls_certs_only([]);
        }
        let client =
            builder.build().map_err(|error| object_store::Error::Generic { store: "S3", source: Box::new(error) })?;
        Ok(HttpClient::new(client))
    }
}

#[cfg(test)]
mod tests;
