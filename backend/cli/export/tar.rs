//! An export with the bytes of its artifacts, as one tar.
//!
//! A tar says how long a file is before the file comes, so the lines wait in a temporary file until all are there; the
//! bytes of artifacts go straight through.

use std::{
    collections::HashSet,
    fs::File,
    io::{self, BufWriter, Seek as _, Write},
};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::{
    PATIENCE,
    select::Chosen,
    write::{ExportReport, ExportWriter},
};
use crate::{
    cli::{
        archive::{FOLDER, INDEX, LOG, TAR_END, progress::Progress, tar_header, tar_padding},
        exit::CliError,
    },
    client::{
        Client, Error,
        pace::{Backoff, Pace as _, SystemPace},
    },
    domain::{
        artifact::{ArtifactId, ArtifactName, Hash, MediaType},
        export::index::AttachedArtifact,
        id::{RunId, Seq},
        limits::PAGE_ROWS_MAX,
    },
};

#[derive(Deserialize)]
struct Page {
    artifacts: Vec<Listed>,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct Listed {
    artifact_id: ArtifactId,
    name: ArtifactName,
    media_type: MediaType,
    size: u64,
    sha256: Hash,
    seq: Seq,
}

pub(super) async fn pack(
    client: &Client,
    chosen: &[Chosen],
    out: &mut (dyn Write + Send),
) -> anyhow::Result<ExportReport> {
    let mut log = BufWriter::new(tempfile::tempfile()?);
    let mut enclosed = Vec::new();
    let mut told = {
        let mut teller = ExportWriter::new(client.clone(), &mut log)?;
        let progress = Progress::of_runs(chosen.len() as u64);
        for run in chosen {
            let told = teller.run(run.run_id, &progress).await?;
            if !told.is_empty() {
                // What came after the part of the log that was told is left for another time.
                let listed = artifacts_of(client, run.run_id).await?;
                enclosed.extend(listed.into_iter().filter(|one| told.contains(one)));
            }
            progress.add(1);
        }
        teller.finish()?
    };
    let index = enclosed.iter().fold(String::new(), |index, one| index + &one.line() + "\n");
    let mut log = log.into_inner().map_err(io::IntoInnerError::into_error)?;
    copy(LOG, &mut log, out)?;
    put(INDEX, index.as_bytes(), out)?;
    told.artifacts = enclosed.len() as u64;
    let mut seen = HashSet::new();
    enclosed.retain(|one| seen.insert(one.sha256));
    let progress = Progress::of_bytes("artifacts", enclosed.iter().map(|one| one.size).sum());
    for one in &enclosed {
        content(client, one, out, &progress).await?;
    }
    out.write_all(&TAR_END)?;
    Ok(told)
}

/// The artifacts of a run in the order in which its log tells of them, as far as they are there.
async fn artifacts_of(client: &Client, run: RunId) -> anyhow::Result<Vec<AttachedArtifact>> {
    let (id, mut found, mut cursor) = (run.to_string(), Vec::new(), None);
    loop {
        let mut query = vec![("limit", PAGE_ROWS_MAX.to_string())];
        query.extend(cursor.map(|cursor: String| ("cursor", cursor)));
        let segments = ["runs", id.as_str(), "artifacts"];
        let page: Page = client.insist(PATIENCE, |_| client.get(&segments, &query)).await?;
        found.extend(page.artifacts.into_iter().map(|one| AttachedArtifact {
            run_id: run,
            seq: one.seq,
            artifact_id: one.artifact_id,
            name: one.name,
            media_type: one.media_type,
            size: one.size,
            sha256: one.sha256,
        }));
        cursor = page.next_cursor;
        if cursor.is_none() {
            found.sort_by_key(|one| one.seq);
            return Ok(found);
        }
    }
}

fn put(name: &str, bytes: &[u8], out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    out.write_all(tar_header(name, bytes.len() as u64)?.as_bytes())?;
    out.write_all(bytes)?;
    Ok(out.write_all(tar_padding(bytes.len() as u64))?)
}

fn copy(name: &str, file: &mut File, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let size = file.stream_position()?;
    file.rewind()?;
    out.write_all(tar_header(name, size)?.as_bytes())?;
    if io::copy(file, out)? != size {
        return Err(CliError::failed("the temporary file of the log was modified").into());
    }
    Ok(out.write_all(tar_padding(size))?)
}

/// The bytes of an artifact, from where they broke off if they do.
async fn content(
    client: &Client,
    one: &AttachedArtifact,
    out: &mut (dyn Write + Send),
    progress: &Progress,
) -> anyhow::Result<()> {
    out.write_all(tar_header(&format!("{FOLDER}{}", one.sha256), one.size)?.as_bytes())?;
    let (mut done, mut digest) = (0, Sha256::new());
    let (mut backoff, mut heard) = (Backoff::default(), Instant::now());
    while done < one.size {
        let had = done;
        let error = match read(client, one, &mut done, &mut digest, out, progress).await {
            Ok(()) if done > had => continue,
            Ok(()) => {
                CliError::failed(format!("the artifact {} is shorter than its recorded size", one.artifact_id)).into()
            }
            Err(error) => error,
        };
        let passing = error.downcast_ref::<Error>().filter(|error| error.kind.is_retryable());
        let Some(passing) = passing else { return Err(error) };
        if done > had {
            heard = Instant::now();
            backoff.reset();
        }
        let wait = backoff.next(passing.retry_after, SystemPace.jitter());
        if heard.elapsed() + wait > PATIENCE {
            return Err(error);
        }
        SystemPace.wait(wait).await;
    }
    if Hash::new(digest.finalize().into()) != one.sha256 {
        let what = format!("the bytes of the artifact {} do not match the hash in the log", one.artifact_id);
        return Err(CliError::failed(what).into());
    }
    Ok(out.write_all(tar_padding(one.size))?)
}

async fn read(
    client: &Client,
    one: &AttachedArtifact,
    done: &mut u64,
    digest: &mut Sha256,
    out: &mut (dyn Write + Send),
    progress: &Progress,
) -> anyhow::Result<()> {
    let mut bytes = client.artifact_bytes(&one.artifact_id.to_string(), *done).await?;
    while let Some(chunk) = bytes.next().await? {
        *done += chunk.len() as u64;
        if *done > one.size {
            return Err(
                CliError::failed(format!("the artifact {} is longer than its recorded size", one.artifact_id)).into()
            );
        }
        digest.update(&chunk);
        out.write_all(&chunk)?;
        progress.add(chunk.len() as u64);
    }
    Ok(())
}
