//! Buffers a pipe in an unnamed file, so that nothing is sent before all of it is checked.
//!
//! Lines are checked as they arrive, so that data that is not an export does not fill the disk.

use std::{
    fs::File,
    io::{self, BufWriter, Read, Write as _},
};

use super::check::{Checked, check, check_log};
use crate::cli::{
    archive::{Kind, LOG, Lines, Region, head_of, kind_by, progress::Progress},
    exit::CliError,
};

/// Default maximum of bytes to read.
pub(super) const BYTES_MAX: u64 = 64 * 1024 * 1024 * 1024;

pub(super) fn spool(input: &mut dyn Read, bytes_max: u64) -> anyhow::Result<Checked> {
    let mut input = Bounded { input, left: bytes_max };
    let head = head_of(&mut input)?;
    let kind = kind_by(&head)?;
    if kind == Kind::Tar && !head.starts_with(format!("{LOG}\0").as_bytes()) {
        return Err(CliError::failed(format!("the tar does not begin with {LOG}")).into());
    }
    let mut tee = Tee { input: head.as_slice().chain(input), file: BufWriter::new(tempfile::tempfile()?) };
    if kind == Kind::Tar {
        io::copy(&mut tee, &mut io::sink())?;
        return check(&tee.finish()?);
    }
    let progress = Progress::of_bytes("checked", 0);
    let (total, mentions) = check_log(&mut Lines::of(&mut tee), &progress)?;
    Ok(Checked::of_lines(tee.finish()?, total, &mentions))
}

/// A pipe that must end before it exceeds the maximum.
struct Bounded<'a> {
    input: &'a mut dyn Read,
    left: u64,
}

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        let over = || io::Error::other("the input is larger than --pipe-max allows");
        self.left = self.left.checked_sub(read as u64).ok_or_else(over)?;
        Ok(read)
    }
}

/// Copies what it reads.
struct Tee<R> {
    input: R,
    file: BufWriter<File>,
}

impl<R: Read> Read for Tee<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.file.write_all(&buffer[..read])?;
        Ok(read)
    }
}

impl<R> Tee<R> {
    fn finish(self) -> anyhow::Result<Region> {
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(Region::whole(file)?)
    }
}
