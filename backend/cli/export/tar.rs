//! An export with the bytes of its artifacts, as one tar.
//!
//! A tar states the length of a file before the file, so the lines are collected in a temporary file; the bytes of
//! artifacts are streamed through.

use std::{
    collections::HashSet,
    fs::File,
    io::{self, BufWriter, Seek as _, Write},
};

use sha2::{Digest as _, Sha256};

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
    client::{Client, Error},
    domain::{artifact::Hash, export::index::AttachedArtifact},
};

pub(super) async fn pack(
    client: &Client,
    chosen: &[Chosen],
    out: &mut (dyn Write + Send),
) -> anyhow::Result<ExportReport> {
    let mut log = BufWriter::new(tempfile::tempfile()?);
    let mut enclosed = Vec::new();
    let mut report = {
        let mut teller = ExportWriter::new(client.clone(), &mut log)?;
        let progress = Progress::of_runs(chosen.len() as u64);
        for run in chosen {
            let mentioned = teller.run(run.run_id, &progress).await?;
            if !mentioned.is_empty() {
                // Artifacts created after the exported part of the log are left for another export.
                let listed = client.artifacts(run.run_id, PATIENCE).await?;
                enclosed.extend(listed.into_iter().filter(|one| mentioned.contains(one)));
            }
            progress.add(1);
        }
        teller.finish()?
    };
    let index = enclosed.iter().fold(String::new(), |index, one| index + &one.line() + "\n");
    let mut log = log.into_inner().map_err(io::IntoInnerError::into_error)?;
    copy(LOG, &mut log, out)?;
    put(INDEX, index.as_bytes(), out)?;
    report.artifacts = enclosed.len() as u64;
    let mut seen = HashSet::new();
    enclosed.retain(|one| seen.insert(one.sha256));
    let progress = Progress::of_bytes("artifacts", enclosed.iter().map(|one| one.size).sum());
    for one in &enclosed {
        content(client, one, out, &progress).await?;
    }
    out.write_all(&TAR_END)?;
    Ok(report)
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

/// The bytes of an artifact, resumed after interruptions.
async fn content(
    client: &Client,
    one: &AttachedArtifact,
    out: &mut (dyn Write + Send),
    progress: &Progress,
) -> anyhow::Result<()> {
    out.write_all(tar_header(&format!("{FOLDER}{}", one.sha256), one.size)?.as_bytes())?;
    let (mut done, mut digest) = (0, Sha256::new());
    let mut retries = client.retries(PATIENCE);
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
            retries.progressed();
        }
        if !retries.wait(passing.retry_after).await {
            return Err(error);
        }
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
