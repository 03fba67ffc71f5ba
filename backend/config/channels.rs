//! `[channels.NAME]` of the configuration file.

use std::{collections::BTreeMap, sync::Arc};

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Deserializer, de::Error as _};

use super::{
    Auth, Error, Secrets, error,
    retention::Ttl,
    sections::{Agent, Named},
};
use crate::domain::{
    id::Name,
    limits::{ALLOWED_USERS_MAX, IDLE_TIMEOUT_S_DEFAULT, IDLE_TIMEOUT_S_MAX, TRIGGER_CHARS_MAX},
    misread::in_words,
    session::{
        inbound::{ChannelName, UserId},
        thread::are_apart,
    },
};

/// The channel whose webhook receives Telegram's updates.
pub const TELEGRAM: &str = "telegram";

/// How a channel verifies its users, in addition to its list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChannelAuth {
    /// No verification.
    #[default]
    None,
    /// Unknown users must enter a one-time code.
    Code,
}

/// One channel.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelConfig {
    /// Users who may write; empty: all. Ids as the channel gives them, as strings or numbers.
    #[serde(default)]
    pub allowed_users: Vec<AllowedUser>,
    /// Prefix of group messages meant for the agent; absent or empty: all messages are.
    pub trigger: Option<String>,
    /// Silence after which a new session begins, seconds.
    #[serde(default = "idle_timeout")]
    pub idle_timeout_s: i64,
    /// Whether a new session gets a new thread.
    #[serde(default = "yes")]
    pub thread_per_session: bool,
    /// The agent that answers. Default: the only agent, else `assistant`.
    #[serde(default = "assistant")]
    pub agent: Name,
    /// Whether that agent has workers, according to its own section.
    #[serde(skip)]
    pub has_workers: bool,
    #[serde(default)]
    pub auth: ChannelAuth,
    /// How long a verification lasts: seconds, or a number with s, m, h or d; absent: forever.
    #[serde(default, deserialize_with = "ttl")]
    pub verified_for: Option<Ttl>,
    /// The bot's name on Telegram, without its @. Default: the trigger, if it begins with an @.
    pub bot_username: Option<String>,
    /// Owner of a channel with a webhook: the `sub` of a JWT, and its `iss`.
    pub owner_sub: Option<String>,
    #[serde(default)]
    pub owner_iss: String,
}

/// A user of an allow-list, from a text or a number.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "Word")]
pub struct AllowedUser(Result<UserId, ()>);

#[derive(Deserialize)]
#[serde(untagged)]
enum Word {
    Text(String),
    Number(i64),
}

impl Word {
    fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Number(number) => number.to_string(),
        }
    }
}

impl From<Word> for AllowedUser {
    fn from(word: Word) -> Self {
        Self(word.text().parse().map_err(|_| ()))
    }
}

fn ttl<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Ttl>, D::Error> {
    Word::deserialize(value)?.text().parse().map(Some).map_err(D::Error::custom)
}

fn idle_timeout() -> i64 {
    IDLE_TIMEOUT_S_DEFAULT
}

fn yes() -> bool {
    true
}

/// The agent that answers if no other is configured.
const ASSISTANT: &str = "assistant";

fn assistant() -> Name {
    Name::trusted(ASSISTANT)
}

/// The agent of a channel that names none.
fn usual(agents: &Named<Agent>) -> Name {
    let mut names = agents.keys();
    match (names.next(), names.next()) {
        (Some(only), None) => Name::trusted(only),
        _ => assistant(),
    }
}

impl ChannelConfig {
    /// The users on the allow-list.
    pub fn allowed(&self) -> Vec<UserId> {
        self.allowed_users.iter().filter_map(|user| user.0.clone().ok()).collect()
    }

    /// Whether every user may write, without a code.
    pub fn is_open(&self) -> bool {
        self.auth == ChannelAuth::None && self.allowed_users.is_empty()
    }

    /// The bot's name in commands such as `/new@name`.
    pub fn bot(&self) -> Option<&str> {
        let of_trigger = || self.trigger.as_deref()?.trim().strip_prefix('@');
        self.bot_username.as_deref().map(|name| name.trim_start_matches('@')).or_else(of_trigger)
    }

    /// Users who entered a code at this time or before must enter one again.
    pub fn expired_until(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.verified_for.map(|Ttl(life_s)| now - TimeDelta::seconds(life_s))
    }

    fn check(&self, name: &ChannelName) -> Result<(), Error> {
        let wrong = |rule: String| Err(error(format!("[channels.{name}]: {rule}")));
        if self.allowed_users.len() > ALLOWED_USERS_MAX {
            return wrong(format!("allowed_users can list at most {ALLOWED_USERS_MAX} users"));
        }
        if self.allowed_users.iter().any(|user| user.0.is_err()) {
            return wrong("a user in allowed_users must be 1 to 128 characters without control characters".to_owned());
        }
        if let Some(trigger) = &self.trigger {
            let chars = trigger.chars().count();
            if trigger.trim() != trigger
                || !(1..=TRIGGER_CHARS_MAX).contains(&chars)
                || trigger.contains(char::is_control)
            {
                return wrong(format!(
                    "a trigger must be 1 to {TRIGGER_CHARS_MAX} characters without space around them"
                ));
            }
        }
        if !(1..=IDLE_TIMEOUT_S_MAX).contains(&self.idle_timeout_s) {
            return wrong(format!("idle_timeout_s must be 1 to {IDLE_TIMEOUT_S_MAX}"));
        }
        if self.verified_for.is_some() && self.auth != ChannelAuth::Code {
            return wrong("verified_for has an effect only with auth = \"code\"".to_owned());
        }
        Ok(())
    }
}

/// All channels.
#[derive(Clone, Debug, Default)]
pub struct Channels(BTreeMap<ChannelName, Arc<ChannelConfig>>);

impl Channels {
    /// Parses the table `channels`, completed from the sections of the agents.
    pub fn of(table: toml::Table, agents: &Named<Agent>) -> Result<Self, Error> {
        let mut channels = BTreeMap::new();
        for (name, value) in table {
            let wrong = |rule: &dyn std::fmt::Display| error(format!("[channels.{name}]: {rule}"));
            let channel: ChannelName = name.parse().map_err(|rule| wrong(&rule))?;
            let names_agent = value.get("agent").is_some();
            let read = serde_path_to_error::deserialize(value);
            let mut config: ChannelConfig = read.map_err(|error: serde_path_to_error::Error<toml::de::Error>| {
                wrong(&format!("{}: {}", error.path(), in_words(error.inner().message())))
            })?;
            config.trigger = config.trigger.filter(|trigger| !trigger.is_empty());
            config.agent = if names_agent { config.agent } else { usual(agents) };
            config.has_workers = agents.get(config.agent.as_str()).is_some_and(|agent| !agent.workers.is_empty());
            config.check(&channel)?;
            if let Some(other) = channels.keys().find(|other| !are_apart(other, &channel)) {
                return Err(error(format!(
                    "[channels.{other}] and [channels.{channel}]: one name is a prefix of the other, so \
                     their threads could collide; rename one of them"
                )));
            }
            channels.insert(channel, Arc::new(config));
        }
        Ok(Self(channels))
    }

    /// With authentication on, the owner of a webhook's messages must be configured: they carry no credential.
    pub fn check_owners(&self, auth: Auth, secrets: &Secrets) -> Result<(), Error> {
        let telegram = self.get(&ChannelName::trusted(TELEGRAM));
        let is_set_up = secrets.telegram_bot_token.is_some() && secrets.telegram_webhook_secret.is_some();
        if auth == Auth::Jwt && is_set_up && telegram.is_some_and(|telegram| telegram.owner_sub.is_none()) {
            return Err(error(
                "[channels.telegram]: with --auth jwt the channel's messages need an owner: set owner_sub (and \
                 owner_iss) to the subject they belong to",
            ));
        }
        Ok(())
    }

    pub fn get(&self, name: &ChannelName) -> Option<&Arc<ChannelConfig>> {
        self.0.get(name)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&ChannelName, &Arc<ChannelConfig>)> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Channels, String> {
        beside(text, "")
    }

    fn beside(text: &str, agents: &str) -> Result<Channels, String> {
        Channels::of(text.parse().unwrap(), &toml::from_str(agents).unwrap()).map_err(|error| error.to_string())
    }

    fn agent_of(text: &str, agents: &str) -> (String, bool) {
        let channels = beside(text, agents).unwrap();
        let config = channels.get(&"web".parse().unwrap()).unwrap();
        (config.agent.to_string(), config.has_workers)
    }

    #[test]
    fn a_channel_that_names_no_agent_has_the_only_one_or_the_assistant() {
        let (lead, other) = ("[lead]\nmodel = \"echo\"\nworkers = [\"a\"]\n", "[other]\nmodel = \"echo\"\n");
        let agent = |agents: &str| agent_of("[web]", agents);
        assert_eq!(agent(""), ("assistant".to_owned(), false));
        assert_eq!(agent(lead), ("lead".to_owned(), true));
        assert_eq!(agent(&format!("{lead}{other}")), ("assistant".to_owned(), false));
        assert_eq!(agent("[assistant]\nmodel = \"echo\"\nworkers = [\"a\"]\n"), ("assistant".to_owned(), true));
        assert_eq!(agent_of("[web]\nagent = \"assistant\"", lead), ("assistant".to_owned(), false), "it is named");
        assert_eq!(agent_of("[web]\nagent = \"other\"", &format!("{lead}{other}")), ("other".to_owned(), false));
    }

    #[test]
    fn an_empty_trigger_is_none() {
        let channels = read("[web]\ntrigger = \"\"").unwrap();
        assert_eq!(channels.get(&"web".parse().unwrap()).unwrap().trigger, None);
    }

    #[test]
    fn a_channel_needs_nothing_but_its_name() {
        let channels = read("[web]").unwrap();
        let web = channels.get(&"web".parse().unwrap()).unwrap();
        assert_eq!((web.idle_timeout_s, web.thread_per_session, web.agent.as_str()), (1_800, true, "assistant"));
        for (text, seconds) in [("3600", 3_600), ("\"90m\"", 5_400), ("\"30d\"", 2_592_000)] {
            let channels = read(&format!("[web]\nauth = \"code\"\nverified_for = {text}")).unwrap();
            assert_eq!(channels.get(&"web".parse().unwrap()).unwrap().verified_for, Some(Ttl(seconds)));
        }
        assert!(web.allowed().is_empty() && web.bot().is_none() && web.auth == ChannelAuth::None);
    }

    #[test]
    fn users_may_be_written_as_numbers_and_a_trigger_names_the_bot() {
        let channels = read("[t]\nallowed_users = [123456, \"ann\"]\ntrigger = \"@Reel\"\nauth = \"code\"").unwrap();
        let config = channels.get(&"t".parse().unwrap()).unwrap();
        let users: Vec<String> = config.allowed().iter().map(ToString::to_string).collect();
        assert_eq!(
            (users, config.bot(), config.auth),
            (vec!["123456".to_owned(), "ann".to_owned()], Some("Reel"), ChannelAuth::Code)
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_its_channel() {
        for (text, part) in [
            ("[t]\nalowed_users = []", "alowed_users: the member alowed_users is unknown; did you mean allowed_users?"),
            ("[t]\nidle_timeout_s = \"x\"", "[channels.t]: idle_timeout_s: must be a whole number, not a text"),
            ("[t]\nidle_timeout_s = 0", "idle_timeout_s must be 1 to"),
            ("[t]\ntrigger = \" \"", "a trigger must be 1 to"),
            ("[t]\nallowed_users = [\"\"]", "a user in allowed_users"),
            ("[t]\nverified_for = \"30d\"", "only with auth"),
            ("[t]\nauth = \"code\"\nverified_for = \"soon\"", "a time to live must be 1 s to"),
            ("[t]\nauth = \"code\"\nverified_for = 0", "a time to live must be 1 s to"),
            ("[t]\nagent = \"two\\nlines\"", "agent: a name is 1 to 128"),
            ("[\"a/b\"]", "a channel is 1 to 32"),
            ("[a]\n[a_b]", "their threads could collide"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(read("[a]\n[a-b]\n[ab]\n[b_a]").is_ok());
    }
}
