//! The files of an export: lines, or a tar with the lines and the bytes of artifacts.
//!
//! ```text
//! log.ndjson            the lines of an export
//! artifacts.ndjson      a line for each artifact whose bytes are here
//! artifacts/<sha256>    each content once, in the order of artifacts.ndjson
//! ```
//!
//! Names are compared and never become a path: nothing is unpacked anywhere.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    os::unix::fs::FileExt as _,
    sync::Arc,
};

use super::exit::CliError;
use crate::domain::{artifact::Hash, limits::EXPORT_LINE_BYTES_MAX};

pub(super) mod out;
pub(super) mod progress;

pub(super) const LOG: &str = "log.ndjson";
pub(super) const INDEX: &str = "artifacts.ndjson";
pub(super) const FOLDER: &str = "artifacts/";

/// Bytes read at a time.
const STEP: usize = 256 * 1024;
/// Files inside a tar are padded to a multiple of this, bytes.
const TAR_BLOCK: u64 = 512;

/// A piece of a file, read from its beginning to its end; any number of them may be read in parallel.
#[derive(Clone, Debug)]
pub(super) struct Region {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Region {
    pub(super) fn whole(file: File) -> io::Result<Self> {
        let end = file.metadata()?.len();
        Ok(Self { file: Arc::new(file), at: 0, end })
    }

    /// A part of this one.
    pub(super) fn part(&self, at: u64, length: u64) -> Self {
        Self {
            file: Arc::clone(&self.file),
            at: self.at + at,
            end: (self.at + at).saturating_add(length).min(self.end),
        }
    }

    pub(super) fn bytes_left(&self) -> u64 {
        self.end - self.at
    }

    pub(super) fn lines(&self) -> Lines {
        Lines::of(self.clone())
    }
}

impl Read for Region {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.bytes_left()).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.file.read_at(&mut buffer[..most], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// The lines of a piece, with their numbers.
pub(super) struct Lines<R = Region> {
    reader: BufReader<R>,
    line: Vec<u8>,
    pub(super) number: u64,
}

impl<R: Read> Lines<R> {
    pub(super) fn of(reader: R) -> Self {
        Self { reader: BufReader::with_capacity(STEP, reader), line: Vec::new(), number: 0 }
    }

    /// The next line without its line end.
    pub(super) fn next(&mut self) -> anyhow::Result<Option<&str>> {
        self.line.clear();
        self.number += 1;
        let number = self.number;
        let wrong = |why: &str| CliError::failed(format!("line {number}: {why}"));
        let most = EXPORT_LINE_BYTES_MAX as u64 + 1;
        let read = (&mut self.reader).take(most).read_until(b'\n', &mut self.line)?;
        if read == 0 {
            return Ok(None);
        }
        if self.line.pop() != Some(b'\n') {
            let is_long = read as u64 == most;
            return Err(wrong(if is_long {
                "the line is too long"
            } else {
                "the file ends in the middle of the line"
            })
            .into());
        }
        Ok(Some(std::str::from_utf8(&self.line).map_err(|_| wrong("not valid UTF-8"))?))
    }
}

/// The kind of a file, from its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Lines,
    Tar,
}

pub(super) fn kind_of(file: &Region) -> anyhow::Result<Kind> {
    kind_by(&head_of(&mut file.clone())?)
}

/// Enough of the first bytes to detect the kind.
pub(super) fn head_of(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    input.take(512).read_to_end(&mut head)?;
    Ok(head)
}

pub(super) fn kind_by(head: &[u8]) -> anyhow::Result<Kind> {
    let refused = |why: &str| Err(CliError::failed(why).into());
    match head {
        [] => refused("the file is empty"),
        [b'{', ..] => Ok(Kind::Lines),
        [0x1f, 0x8b, ..] | [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            refused("the file is compressed; decompress it first: zcat FILE | runreel import -")
        }
        head if head.get(257..262) == Some(b"ustar") => Ok(Kind::Tar),
        _ => refused("not an export: neither NDJSON lines nor a tar"),
    }
}

/// A file inside a tar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Log,
    Index,
    Content(Hash),
}

/// The contents of a tar, in order; only the names of an export are allowed.
pub(super) fn entries(file: &Region) -> anyhow::Result<Vec<(Name, Region)>> {
    let broken = |error: io::Error| CliError::failed(format!("the tar is damaged: {error}"));
    let mut archive = tar::Archive::new(Skipping(file.clone()));
    let mut found: Vec<(Name, Region)> = Vec::new();
    for entry in archive.entries_with_seek().map_err(broken)?.raw(true) {
        let entry = entry.map_err(broken)?;
        let path = entry.path_bytes().into_owned();
        let text = String::from_utf8_lossy(&path).into_owned();
        let wrong = |why: &str| CliError::failed(format!("the tar contains {text:?}: {why}"));
        let name = match std::str::from_utf8(&path) {
            Ok(LOG) => Name::Log,
            Ok(INDEX) => Name::Index,
            Ok(path) => {
                let hash = path.strip_prefix(FOLDER).and_then(|hash| hash.parse().ok());
                Name::Content(hash.ok_or_else(|| wrong("no file of an export has this name"))?)
            }
            Err(_) => return Err(wrong("no file of an export has this name").into()),
        };
        if !entry.header().entry_type().is_file() {
            return Err(wrong("not a regular file").into());
        }
        let in_place = match found.len() {
            0 => name == Name::Log,
            1 => name == Name::Index,
            _ => matches!(name, Name::Content(_)),
        };
        if !in_place {
            return Err(wrong("it is in the wrong place").into());
        }
        let (at, size) = (entry.raw_file_position(), entry.header().entry_size().map_err(broken)?);
        let region = file.part(at, size);
        if region.bytes_left() != size {
            return Err(wrong("the tar ends before the end of this file").into());
        }
        found.push((name, region));
    }
    let end = found.last().map_or(file.at, |(_, last)| last.end.next_multiple_of(TAR_BLOCK));
    if !is_blank(Region { at: end.min(file.end), ..file.clone() })? {
        return Err(CliError::failed("the tar has data after its end").into());
    }
    if found.len() < 2 {
        return Err(CliError::failed(format!("the tar does not contain {LOG} and {INDEX}")).into());
    }
    Ok(found)
}

/// Whether only zeros are left.
fn is_blank(mut rest: Region) -> io::Result<bool> {
    let mut buffer = vec![0; STEP];
    loop {
        match rest.read(&mut buffer)? {
            0 => return Ok(true),
            read if buffer[..read].iter().any(|byte| *byte != 0) => return Ok(false),
            _ => {}
        }
    }
}

/// A piece in which a reader may skip.
struct Skipping(Region);

impl Read for Skipping {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl io::Seek for Skipping {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let beyond = || io::Error::new(io::ErrorKind::UnexpectedEof, "it is shorter than its header states");
        let at = match to {
            io::SeekFrom::Start(at) => Some(at),
            io::SeekFrom::Current(by) => self.0.at.checked_add_signed(by),
            io::SeekFrom::End(by) => self.0.end.checked_add_signed(by),
        };
        self.0.at = at.filter(|at| *at <= self.0.end).ok_or_else(beyond)?;
        Ok(self.0.at)
    }
}

/// The header of a file inside a tar; it depends only on the name and the size.
pub(super) fn tar_header(name: &str, size: u64) -> anyhow::Result<tar::Header> {
    let mut header = tar::Header::new_ustar();
    header.set_path(name)?;
    header.set_entry_type(tar::EntryType::Regular);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header.set_cksum();
    Ok(header)
}

/// Zeros that pad a file inside a tar to the next block.
pub(super) fn tar_padding(size: u64) -> &'static [u8] {
    const ZEROS: [u8; 512] = [0; 512];
    &ZEROS[..usize::try_from((512 - size % 512) % 512).unwrap_or(0)]
}

/// The end of a tar.
pub(super) const TAR_END: [u8; 1024] = [0; 1024];
