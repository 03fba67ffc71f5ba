//! Everything that can be wrong with a file, checked before anything is sent.

use std::{
    collections::HashMap,
    io::{self, Read as _},
};

use sha2::{Digest as _, Sha256};

use crate::{
    cli::{
        archive::{INDEX, Kind, LOG, Lines, Name, Region, entries, kind_of, progress::Progress},
        exit::CliError,
    },
    domain::{
        artifact::Hash,
        export::{
            Total,
            index::{AttachedArtifact, Mention, mention},
            verify::{Seen, Verifier},
        },
        id::{EventId, RunId, Seq},
        limits::ARTIFACT_BYTES_MAX,
    },
};

/// An artifact that is included.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) enclosed: AttachedArtifact,
    pub(super) event_id: EventId,
    pub(super) bytes: Region,
}

/// A file that passed all checks.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) log: Region,
    pub(super) total: Total,
    /// By run, in the order of their seqs.
    pub(super) parts: HashMap<RunId, Vec<Part>>,
    /// Artifacts that the log mentions and that are not included.
    pub(super) missing: u64,
}

impl Checked {
    pub(super) fn of_lines(log: Region, total: Total, mentions: &Mentions) -> Self {
        Self { log, total, parts: HashMap::new(), missing: mentions.len() as u64 }
    }

    pub(super) fn artifacts(&self) -> u64 {
        self.parts.values().map(|parts| parts.len() as u64).sum()
    }
}

pub(super) type Mentions = HashMap<(RunId, Seq), Mention>;

pub(super) fn check(file: &Region) -> anyhow::Result<Checked> {
    let progress = Progress::of_bytes("checked", file.bytes_left());
    if kind_of(file)? == Kind::Lines {
        let (total, mentions) = check_log(&mut file.lines(), &progress)?;
        return Ok(Checked::of_lines(file.clone(), total, &mentions));
    }
    let mut entries = entries(file)?.into_iter();
    let (Some((Name::Log, log)), Some((Name::Index, index))) = (entries.next(), entries.next()) else {
        return Err(CliError::failed(format!("the tar does not contain {LOG} and {INDEX}")).into());
    };
    let (total, mentions) = check_log(&mut log.lines(), &progress).map_err(|error| inside(LOG, &error))?;
    let enclosed = check_index(&index, &mentions).map_err(|error| inside(INDEX, &error))?;
    let contents = check_contents(entries, &enclosed, &progress)?;
    let missing = (mentions.len() - enclosed.len()) as u64;
    let mut parts: HashMap<RunId, Vec<Part>> = HashMap::new();
    for (enclosed, event_id) in enclosed {
        let bytes = contents.get(&enclosed.sha256).cloned();
        let bytes = bytes.ok_or_else(|| lacks(&enclosed))?;
        parts.entry(enclosed.run_id).or_default().push(Part { enclosed, event_id, bytes });
    }
    Ok(Checked { log, total, parts, missing })
}

fn inside(name: &str, error: &anyhow::Error) -> CliError {
    CliError::failed(format!("{name}, {error}"))
}

fn lacks(enclosed: &AttachedArtifact) -> CliError {
    CliError::failed(format!("the tar lacks the bytes of the artifact {}", enclosed.artifact_id))
}

pub(super) fn check_log(lines: &mut Lines<impl io::Read>, progress: &Progress) -> anyhow::Result<(Total, Mentions)> {
    let (mut verifier, mut mentions) = (Verifier::default(), Mentions::new());
    while let Some(line) = lines.next()? {
        progress.add(line.len() as u64 + 1);
        let seen = verifier.line(line);
        let number = lines.number;
        let seen = seen.map_err(|fault| CliError::failed(format!("line {number}: {fault}")))?;
        let Seen::Event(event) = seen else { continue };
        if let Some(mention) = mention(&event) {
            mentions.insert((event.run_id, event.seq.unwrap_or_default()), mention);
        }
    }
    let number = lines.number;
    let total = verifier.finish().map_err(|fault| CliError::failed(format!("line {number}: {fault}")))?;
    Ok((total, mentions))
}

/// Each artifact must be one that the log mentions, in the same order.
fn check_index(index: &Region, mentions: &Mentions) -> anyhow::Result<Vec<(AttachedArtifact, EventId)>> {
    let (mut lines, mut found) = (index.lines(), Vec::<(AttachedArtifact, EventId)>::new());
    let mut seen = std::collections::HashSet::new();
    while let Some(line) = lines.next()?.map(str::to_owned) {
        let number = lines.number;
        let wrong = |why: String| CliError::failed(format!("line {number}: {why}"));
        let enclosed = AttachedArtifact::read(&line).map_err(|fault| wrong(fault.to_string()))?;
        let mention = mentions.get(&(enclosed.run_id, enclosed.seq)).filter(|mention| mention.enclosed == enclosed);
        let Some(mention) = mention else {
            return Err(wrong("this artifact is not in the log, or differs from it".to_owned()).into());
        };
        if !seen.insert(enclosed.artifact_id) {
            return Err(wrong("the artifact is listed twice".to_owned()).into());
        }
        found.push((enclosed, mention.event_id.clone()));
    }
    Ok(found)
}

/// Each content must be that of an artifact, appear once, and match its hash.
fn check_contents(
    entries: impl Iterator<Item = (Name, Region)>,
    enclosed: &[(AttachedArtifact, EventId)],
    progress: &Progress,
) -> anyhow::Result<HashMap<Hash, Region>> {
    let sizes: HashMap<Hash, u64> = enclosed.iter().map(|(one, _)| (one.sha256, one.size)).collect();
    let mut found = HashMap::new();
    for (name, region) in entries {
        let Name::Content(hash) = name else { continue };
        let wrong = |why: &str| CliError::failed(format!("the content {hash} {why}"));
        let size = region.bytes_left();
        match sizes.get(&hash) {
            None => return Err(wrong("belongs to no artifact").into()),
            Some(wanted) if *wanted != size || size > ARTIFACT_BYTES_MAX => {
                return Err(wrong("has another size than its artifact").into());
            }
            Some(_) => {}
        }
        let (mut reader, mut digest, mut buffer) = (region.clone(), Sha256::new(), vec![0; 256 * 1024]);
        loop {
            let read = reader.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            digest.update(&buffer[..read]);
            progress.add(read as u64);
        }
        if Hash::new(digest.finalize().into()) != hash {
            return Err(wrong("does not match its name: its bytes were changed").into());
        }
        if found.insert(hash, region).is_some() {
            return Err(wrong("is in the tar twice").into());
        }
    }
    match enclosed.iter().find(|(one, _)| !found.contains_key(&one.sha256)) {
        Some((one, _)) => Err(lacks(one).into()),
        None => Ok(found),
    }
}
