//! Where an archive is written: stdout, a file that only exists once it is complete, or a pipe or device by its name.

use std::{
    fs::File as Plain,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use tempfile::NamedTempFile;

use crate::cli::exit::CliError;

const BUFFER: usize = 256 * 1024;

pub(in crate::cli) enum Out {
    Stdout(BufWriter<io::Stdout>),
    File(BufWriter<NamedTempFile>, PathBuf),
    Device(BufWriter<Plain>),
}

impl Out {
    /// Opens stdout, or a temporary file beside the requested one. Only its creator may read it.
    #[expect(clippy::disallowed_methods, reason = "the file that the command is given")]
    pub(in crate::cli) fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(Self::Stdout(BufWriter::with_capacity(BUFFER, io::stdout()))) };
        if path.is_dir() {
            return Err(CliError::usage(format!("{} is a directory", path.display())).into());
        }
        if path.exists() && !path.is_file() {
            let device = Plain::options().write(true).open(path).with_context(|| path.display().to_string())?;
            return Ok(Self::Device(BufWriter::with_capacity(BUFFER, device)));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = tempfile::Builder::new().prefix(".runreel-archive-").tempfile_in(folder);
        let file = file.with_context(|| format!("a file in {}", folder.display()))?;
        Ok(Self::File(BufWriter::with_capacity(BUFFER, file), path.to_owned()))
    }

    /// Flushes the last bytes, and renames the file.
    pub(in crate::cli) fn finish(self) -> anyhow::Result<()> {
        match self {
            Self::Stdout(mut out) => Ok(out.flush()?),
            Self::Device(mut out) => Ok(out.flush()?),
            Self::File(out, path) => {
                let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
                file.as_file().sync_all()?;
                file.persist(&path).with_context(|| path.display().to_string())?;
                Ok(())
            }
        }
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout(out) => out.write(bytes),
            Self::File(out, _) => out.write(bytes),
            Self::Device(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout(out) => out.flush(),
            Self::File(out, _) => out.flush(),
            Self::Device(out) => out.flush(),
        }
    }
}
