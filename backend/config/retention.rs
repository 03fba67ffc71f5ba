//! How long runs, threads and checkpoints are kept.

use std::str::FromStr;

use clap::Args;

use super::{Error, error, file::File};
use crate::domain::{
    id::Name,
    limits::{CHECKPOINTS_KEEP_DEFAULT, RETENTION_RULES_MAX, TTL_S_MAX},
    retention::{Policy, Rule},
};

/// A time to live, in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ttl(pub i64);

impl FromStr for Ttl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bare = text.parse::<u64>().ok();
        let seconds = bare.or_else(|| humantime::parse_duration(text).ok().map(|time| time.as_secs()));
        let seconds = seconds.and_then(|seconds| i64::try_from(seconds).ok());
        match seconds.filter(|seconds| (1..=TTL_S_MAX).contains(seconds)) {
            Some(seconds) => Ok(Self(seconds)),
            None => Err(error(format!("a time to live must be 1 s to 10 years, such as 3600, 90m or 30d: {text}"))),
        }
    }
}

/// The settings of what is removed by age.
#[derive(Clone, Debug, Args)]
pub struct RetentionArgs {
    /// How long a run stays after it has ended: seconds, or a number with s, m, h or d. A run may have its own time,
    /// and the configuration file rules for agents and tags. Default: forever.
    #[arg(long, env = "RUNREEL_RUN_TTL", value_name = "TIME")]
    pub run_ttl: Option<Ttl>,
    /// How long a thread may stay unused before it is removed: seconds, or a number with s, m, h or d. Default: forever.
    #[arg(long, env = "RUNREEL_THREAD_TTL", value_name = "TIME")]
    pub thread_ttl: Option<Ttl>,
    /// Checkpoints per thread that the server's own agents keep; older ones are removed. 0 keeps all.
    #[arg(long, env = "RUNREEL_CHECKPOINTS_KEEP", default_value_t = CHECKPOINTS_KEEP_DEFAULT, value_name = "COUNT")]
    pub checkpoints_keep: u32,
}

/// `[[retention]]`
#[derive(Clone, Debug, serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// The agent of the tree's root.
    pub agent: Option<String>,
    /// A tag of the tree's root.
    pub tag: Option<String>,
    /// How long the tree is kept, such as `30d`, or `never` to keep it forever.
    pub run_ttl: String,
}

impl Retention {
    fn rule(&self) -> Result<Rule, (&'static str, String)> {
        let name = |key, name: &Option<String>| {
            name.as_ref().map(|name| name.parse::<Name>()).transpose().map_err(|rule| (key, rule.to_string()))
        };
        let (agent, tag) = (name("agent", &self.agent)?, name("tag", &self.tag)?);
        if agent.is_none() && tag.is_none() {
            return Err(("", "name an agent or a tag; --run-ttl is for all other runs".to_owned()));
        }
        let ttl_s = match self.run_ttl.as_str() {
            "never" => 0,
            text => text.parse::<Ttl>().map_err(|error| ("run_ttl", format!("{error}, or \"never\"")))?.0,
        };
        Ok(Rule { agent, tag, ttl_s })
    }
}

pub(super) fn rules(sections: &[Retention]) -> Result<Vec<Rule>, (&'static str, String)> {
    if sections.len() > RETENTION_RULES_MAX {
        return Err(("", format!("there can be at most {RETENTION_RULES_MAX} of these sections")));
    }
    sections.iter().map(Retention::rule).collect()
}

/// How long runs are kept: the default and the file's rules.
pub fn policy(run_ttl: Option<Ttl>, file: &File) -> Result<Policy, Error> {
    let rules = rules(&file.sections.retention).map_err(|(key, what)| error(format!("[[retention]] {key}: {what}")))?;
    Ok(Policy { rules, ttl_s: run_ttl.map(|ttl| ttl.0) })
}
