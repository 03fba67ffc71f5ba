//! `files`: list, read, search and write below one folder.
//!
//! The folder is opened once, and `cap-std` resolves every path against that handle: `..`, absolute paths and links
//! that lead out of it are refused by the kernel's own lookup, so there is no gap between a check and its use.

use std::{
    io::{Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use cap_std::{
    ambient_authority,
    fs::{Dir, OpenOptions, OpenOptionsExt},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{failed, number, text};
use crate::{
    agents::tools::{Called, Tool, ToolError},
    domain::context::RunContext,
};

/// Maximum bytes one call reads.
const READ_BYTES_MAX: u64 = 256 * 1024;
/// Maximum bytes one call writes.
const WRITE_BYTES_MAX: usize = 1024 * 1024;
/// Maximum entries of one list.
const ENTRIES_MAX: usize = 1_000;
/// Maximum lines one search returns.
const MATCHES_MAX: usize = 200;
/// Maximum files one search opens.
const SEARCHED_MAX: usize = 10_000;
/// Largest file that is searched, bytes.
const SEARCHED_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Maximum depth of a folder that is searched, levels.
const DEPTH_MAX: usize = 32;
/// Maximum characters shown of a matching line.
const LINE_CHARS_MAX: usize = 300;

/// The folder that the tools can access.
pub struct Root {
    dir: Dir,
    path: PathBuf,
    /// Whether each owner has a separate subfolder.
    per_owner: bool,
}

impl Root {
    /// Opens the folder, and creates it if it does not exist.
    pub fn open(path: &Path, per_owner: bool) -> std::io::Result<Arc<Self>> {
        Dir::create_ambient_dir_all(path, ambient_authority())?;
        let path = path.canonicalize()?;
        Ok(Arc::new(Self { dir: Dir::open_ambient_dir(&path, ambient_authority())?, path, per_owner }))
    }

    /// The name of the lock for calls that write to this run's folder.
    pub(super) fn shared(&self, context: &RunContext) -> String {
        let path = if self.per_owner { self.path.join(context.owner_id.as_str()) } else { self.path.clone() };
        format!("folder {}", path.display())
    }

    /// The run's folder, opened, and its path.
    pub(super) fn of(&self, context: &RunContext) -> std::io::Result<(Dir, PathBuf)> {
        if !self.per_owner {
            return Ok((self.dir.try_clone()?, self.path.clone()));
        }
        let owner = context.owner_id.as_str();
        self.dir.create_dir_all(owner)?;
        Ok((self.dir.open_dir(owner)?, self.path.join(owner)))
    }
}

/// What a tool does with the folder.
type Work = fn(&Dir, &RunContext, &Value, &CancellationToken) -> Result<Value, ToolError>;

struct Files {
    name: String,
    description: &'static str,
    schema: Value,
    writes: bool,
    root: Arc<Root>,
    work: Work,
}

/// The four tools over one folder, named `<prefix>_list` and so on; without `write` the three that only read.
pub fn tools(root: &Arc<Root>, prefix: &str, write: bool) -> Vec<Arc<dyn Tool>> {
    let path = json!({"type": "string", "minLength": 1, "maxLength": 4096, "description": "relative to the folder"});
    let object = |required: &[&str], properties: Value| json!({"type": "object", "required": required, "additionalProperties": false, "properties": properties});
    let all: [(&'static str, &'static str, bool, Work, Value); 4] = [
        ("list", "Lists the files and folders in a folder.", false, list, object(&[], json!({"path": path}))),
        (
            "read",
            "Reads a text file, from a byte offset where one is given.",
            false,
            read,
            object(
                &["path"],
                json!({
                    "path": path,
                    "offset": {"type": "integer", "minimum": 0},
                    "limit": {"type": "integer", "minimum": 1, "maximum": READ_BYTES_MAX},
                }),
            ),
        ),
        (
            "search",
            "Finds the lines that contain a text, in all files below a folder.",
            false,
            search,
            object(
                &["text"],
                json!({
                    "text": {"type": "string", "minLength": 1, "maxLength": 1000},
                    "path": path,
                    "ignore_case": {"type": "boolean"},
                }),
            ),
        ),
        (
            "write",
            "Writes a text file: creates a new one, replaces an existing one, or appends to it.",
            true,
            write_file,
            object(
                &["path", "text"],
                json!({
                    "path": path,
                    "text": {"type": "string", "maxLength": WRITE_BYTES_MAX},
                    "mode": {"enum": ["create", "replace", "append"], "description": "create refuses a file that exists"},
                }),
            ),
        ),
    ];
    let tools = all.into_iter().filter(|(_, _, writes, ..)| write || !writes);
    let tool = |(name, description, writes, work, schema): (&str, _, _, _, _)| -> Arc<dyn Tool> {
        Arc::new(Files { name: format!("{prefix}_{name}"), description, schema, writes, root: Arc::clone(root), work })
    };
    tools.map(tool).collect()
}

impl Tool for Files {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        self.description
    }

    fn schema(&self) -> Value {
        self.schema.clone()
    }

    fn exclusive(&self, context: &RunContext) -> Option<String> {
        self.writes.then(|| self.root.shared(context))
    }

    fn blocking(&self) -> bool {
        true
    }

    fn call<'a>(&'a self, context: &'a RunContext, args: Value, cancel: &'a CancellationToken) -> Called<'a> {
        Box::pin(async move {
            let (dir, _) = self.root.of(context).map_err(failed)?;
            (self.work)(&dir, context, &args, cancel)
        })
    }
}

/// The path argument; `.` if there is none.
fn path(args: &Value) -> &str {
    let path = text(args, "path").trim_start_matches("./");
    if path.is_empty() { "." } else { path }
}

fn list(root: &Dir, _: &RunContext, args: &Value, _: &CancellationToken) -> Result<Value, ToolError> {
    let mut entries = Vec::new();
    let mut more = false;
    for entry in root.read_dir(path(args)).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entries.len() == ENTRIES_MAX {
            more = true;
            break;
        }
        let kind = entry.file_type().map_err(failed)?;
        let kind = if kind.is_dir() {
            "folder"
        } else if kind.is_symlink() {
            "link"
        } else {
            "file"
        };
        let bytes = entry.metadata().map(|data| data.len()).unwrap_or_default();
        entries.push((entry.file_name().to_string_lossy().into_owned(), kind, bytes));
    }
    entries.sort();
    let entries: Vec<Value> =
        entries.into_iter().map(|(name, kind, bytes)| json!({"name": name, "kind": kind, "bytes": bytes})).collect();
    Ok(json!({"entries": entries, "more": more}))
}

/// Opens a regular file. Anything else (a pipe, a device) could block its reader, so it is refused.
fn open(root: &Dir, path: &str) -> Result<cap_std::fs::File, ToolError> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default());
    let file = root.open_with(path, &options).map_err(failed)?;
    if file.metadata().map_err(failed)?.is_file() { Ok(file) } else { Err(failed("not a file")) }
}

fn read(root: &Dir, _: &RunContext, args: &Value, _: &CancellationToken) -> Result<Value, ToolError> {
    let mut file = open(root, path(args))?;
    let size = file.metadata().map_err(failed)?.len();
    let (offset, limit) = (number(args, "offset", 0), number(args, "limit", READ_BYTES_MAX).min(READ_BYTES_MAX));
    file.seek(SeekFrom::Start(offset)).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.contains(&0) {
        return Err(failed(format!("this file is not text; it has {size} bytes")));
    }
    let end = offset.saturating_add(bytes.len() as u64);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if offset == 0 && end >= size {
        return Ok(Value::String(text));
    }
    Ok(json!({"text": text, "offset": offset, "next_offset": (end < size).then_some(end), "bytes": size}))
}

fn write_file(root: &Dir, context: &RunContext, args: &Value, _: &CancellationToken) -> Result<Value, ToolError> {
    let (path, text) = (Path::new(path(args)), text(args, "text"));
    if text.len() > WRITE_BYTES_MAX {
        return Err(failed(format!("one write may have at most {WRITE_BYTES_MAX} bytes")));
    }
    let Some(name) = path.file_name() else { return Err(failed("not a file name")) };
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        root.create_dir_all(folder).map_err(failed)?;
    }
    match super::text(args, "mode") {
        "append" => {
            let mut options = OpenOptions::new();
            options.append(true).create(true);
            // A pipe without a reader fails to open; one with a reader is refused below.
            options.custom_flags(i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default());
            let mut file = root.open_with(path, &options).map_err(failed)?;
            if !file.metadata().map_err(failed)?.is_file() {
                return Err(failed("not a file"));
            }
            file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        }
        "replace" => {
            // Atomic: written beside the file, then renamed. Two runs do not share the temporary name.
            let beside = path.with_file_name(format!(".{}.{}", name.to_string_lossy(), context.run_id));
            let mut file = root.create(&beside).map_err(failed)?;
            let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
            let moved = written.and_then(|()| root.rename(&beside, root, path));
            if let Err(error) = moved {
                // The temporary file is of no further use.
                let _ = root.remove_file(&beside);
                return Err(failed(error));
            }
        }
        _ => {
            let mut options = OpenOptions::new();
            let mut file = root.open_with(path, options.write(true).create_new(true)).map_err(failed)?;
            file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        }
    }
    Ok(json!({"path": path.display().to_string(), "bytes_written": text.len()}))
}

/// A search through the folders.
struct Search<'a> {
    wanted: String,
    ignore_case: bool,
    cancel: &'a CancellationToken,
    found: Vec<Value>,
    opened: usize,
    more: bool,
}

fn search(root: &Dir, _: &RunContext, args: &Value, cancel: &CancellationToken) -> Result<Value, ToolError> {
    let ignore_case = args["ignore_case"] == true;
    let wanted = if ignore_case { text(args, "text").to_lowercase() } else { text(args, "text").to_owned() };
    let mut search = Search { wanted, ignore_case, cancel, found: Vec::new(), opened: 0, more: false };
    let start = path(args);
    let folder = root.open_dir(start).map_err(failed)?;
    search.folder(&folder, if start == "." { "" } else { start }, 0)?;
    Ok(json!({"matches": search.found, "files_searched": search.opened, "more": search.more}))
}

impl Search<'_> {
    /// Searches one folder. Links are not followed: targets inside the folder are found under their own paths.
    fn folder(&mut self, folder: &Dir, at: &str, depth: usize) -> Result<(), ToolError> {
        if depth > DEPTH_MAX {
            self.more = true;
            return Ok(());
        }
        let mut entries: Vec<_> = folder.entries().map_err(failed)?.flatten().collect();
        entries.sort_by_key(cap_std::fs::DirEntry::file_name);
        for entry in entries {
            if self.cancel.is_cancelled() {
                return Err(ToolError::Cancelled);
            }
            if self.found.len() >= MATCHES_MAX || self.opened >= SEARCHED_MAX {
                self.more = true;
                return Ok(());
            }
            let Ok(kind) = entry.file_type() else { continue };
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if at.is_empty() { name } else { format!("{at}/{name}") };
            if kind.is_dir() {
                let Ok(inner) = entry.open_dir() else { continue };
                self.folder(&inner, &path, depth + 1)?;
            } else if kind.is_file() && entry.metadata().is_ok_and(|data| data.len() <= SEARCHED_BYTES_MAX) {
                self.opened += 1;
                let Ok(file) = entry.open() else { continue };
                let mut bytes = Vec::new();
                if file.take(SEARCHED_BYTES_MAX).read_to_end(&mut bytes).is_ok() && !bytes.contains(&0) {
                    self.lines(&path, &String::from_utf8_lossy(&bytes));
                }
            }
        }
        Ok(())
    }

    fn lines(&mut self, path: &str, text: &str) {
        for (number, line) in (1_u64..).zip(text.lines()) {
            let found =
                if self.ignore_case { line.to_lowercase().contains(&self.wanted) } else { line.contains(&self.wanted) };
            if found {
                let shown: String = line.chars().take(LINE_CHARS_MAX).collect();
                self.found.push(json!({"path": path, "line": number, "text": shown}));
            }
            if self.found.len() >= MATCHES_MAX {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
