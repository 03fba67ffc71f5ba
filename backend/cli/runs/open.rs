//! `runreel runs open`: the page of a run in a browser.

use std::process::{Command, Stdio};

use crate::cli::render::{clean, print, say};

/// Opens addresses with the person's default program.
const OPENER: &str = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };

/// Prints an address and opens it. A missing browser is no error: the address can be copied.
pub(super) fn page(url: &str) -> anyhow::Result<()> {
    print(&format!("{}\n", clean(url)))?;
    let opener =
        Command::new(OPENER).arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !opener.is_ok_and(|status| status.success()) {
        say("no browser could be opened here; open the address yourself");
    }
    Ok(())
}
