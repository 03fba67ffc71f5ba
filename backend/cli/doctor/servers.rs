//! The tool servers of the configuration file.

use std::path::Path;

use super::CheckResult;
use crate::{
    agents::registry::Agents,
    config::{DataArgs, File},
    confine::Confinement,
};

const FILE: &str = "correct the configuration file";
const START: &str = "check its command or url, and the variables it needs, in the configuration file";
const OFFER: &str = "tell the author of the tool server; or choose the good ones with tools = [\"name\"]";

/// One check for each server: whether it can be used, and which of its tools cannot.
pub(super) async fn tools(file: Option<&Path>, data: &DataArgs) -> Vec<(String, CheckResult)> {
    let Some(file) = file else { return Vec::new() };
    let read = File::read(file).map_err(anyhow::Error::from);
    let found = read.and_then(|file| Ok((Confinement::around(data.kept(&file)?), file)));
    let (confinement, file) = match found {
        Ok(found) => found,
        Err(error) => return vec![("tool servers".to_owned(), CheckResult::Bad(error.to_string(), FILE))],
    };
    let offered = Agents::tool_servers(&file, confinement).await.into_iter().map(|(name, offered)| {
        let outcome = match offered {
            Ok(Ok((count, notes))) if notes.is_empty() => CheckResult::Good(format!("usable: {count}")),
            Ok(Ok((count, notes))) => CheckResult::Bad(format!("usable: {count}; {}", notes.join("; ")), OFFER),
            Ok(Err(why)) => CheckResult::Bad(why, OFFER),
            Err(why) => CheckResult::Bad(why, START),
        };
        (format!("tools of {name}"), outcome)
    });
    offered.collect()
}
