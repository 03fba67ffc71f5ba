//! Checks of the configuration file that types cannot express: names, bounds, and that all references resolve.

use std::collections::BTreeSet;

use super::{
    file::File,
    models::check_base_url,
    sections::{Agent, AgentKind, Exclusive, Mcp, Model, Tool, ToolKind},
};
use crate::domain::{
    id::Name,
    limits::{PRICE_USD_MAX, PRICES_MAX},
    misread::did_you_mean,
    price::Price,
};

/// Longest time that can be configured, seconds.
const TIME_S_MAX: u64 = 24 * 60 * 60;
/// Longest name of a section of tools or models, characters. Together with a tool's own name it must form a tool name.
const NAME_CHARS_MAX: usize = 32;

/// An error and its location.
pub(super) struct Wrong {
    /// Such as `agents.assistant`.
    pub(super) section: String,
    /// The key in it, or empty.
    pub(super) key: &'static str,
    pub(super) what: String,
}

pub(super) type Checked = Result<(), (&'static str, String)>;

pub(super) fn check(file: &File) -> Result<(), Wrong> {
    let sections = &file.sections;
    each("models", &sections.models, |name, model| short(name).and_then(|()| check_model(file, name, model)))?;
    each("tools", &sections.tools, |name, tool| short(name).and_then(|()| check_tool(file, name, tool)))?;
    each("mcp", &sections.mcp, |name, mcp| {
        short(name)?;
        if sections.tools.contains_key(name) || ToolKind::parse(name).is_some() {
            return Err(("", format!("a tool has this name; choose a name other than {name} for the server")));
        }
        check_mcp(mcp)
    })?;
    each("agents", &sections.agents, |name, agent| check_agent(file, name, agent))?;
    super::retention::rules(&sections.retention).map_err(|(key, what)| Wrong {
        section: "retention".to_owned(),
        key,
        what,
    })?;
    if sections.prices.len() > PRICES_MAX {
        let what = format!("there can be at most {PRICES_MAX} of these sections");
        return Err(Wrong { section: "prices".to_owned(), key: "", what });
    }
    each("prices", &sections.prices, |_, price| check_price(price))?;
    each("channels", &sections.channels, |name, _| {
        name.parse::<Name>().map(drop).map_err(|rule| ("", rule.to_string()))
    })
}

fn each<T>(sort: &str, sections: &super::sections::Named<T>, check: impl Fn(&str, &T) -> Checked) -> Result<(), Wrong> {
    for (name, section) in sections {
        check(name, section).map_err(|(key, what)| Wrong { section: format!("{sort}.{name}"), key, what })?;
    }
    Ok(())
}

fn short(name: &str) -> Checked {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if (1..=NAME_CHARS_MAX).contains(&name.chars().count()) && name.chars().all(fits) {
        return Ok(());
    }
    Err(("", format!("the name must be 1 to {NAME_CHARS_MAX} of A-Z, a-z, 0-9, _ and -")))
}

fn check_price(price: &Price) -> Checked {
    let Price { input, output, cached, cache_write } = *price;
    let all = [("input", Some(input)), ("output", Some(output)), ("cached", cached), ("cache_write", cache_write)];
    match all.into_iter().find(|(_, price)| price.is_some_and(|price| !(0.0..=PRICE_USD_MAX).contains(&price))) {
        Some((key, _)) => Err((key, format!("must be 0 to {PRICE_USD_MAX} US dollars for a million tokens"))),
        None => Ok(()),
    }
}

fn exclusive(exclusive: &Exclusive) -> Checked {
    match exclusive {
        Exclusive::Is(_) => Ok(()),
        Exclusive::Named(name) => short(name).map_err(|(_, what)| ("exclusive", what)),
    }
}

pub(super) fn is_variable(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(fits) && !name.starts_with(|c: char| c.is_ascii_digit())
}

pub(super) fn seconds(key: &'static str, value: u64) -> Checked {
    if (1..=TIME_S_MAX).contains(&value) { Ok(()) } else { Err((key, format!("must be 1 to {TIME_S_MAX} seconds"))) }
}

fn temperature(value: Option<f64>) -> Checked {
    match value {
        Some(value) if !(0.0..=2.0).contains(&value) => Err(("temperature", "must be from 0 to 2".to_owned())),
        _ => Ok(()),
    }
}

fn check_model(file: &File, name: &str, model: &Model) -> Checked {
    seconds("timeout_s", model.timeout_s)?;
    seconds("silence_s", model.silence_s)?;
    temperature(model.temperature)?;
    if model.retries > 10 {
        return Err(("retries", "must be 0 to 10".to_owned()));
    }
    if !(256..=100_000_000).contains(&model.context_tokens) {
        return Err(("context_tokens", "must be 256 to 100000000".to_owned()));
    }
    if let Some(Err(why)) = model.base_url.as_deref().map(check_base_url) {
        return Err(("base_url", why));
    }
    if model.api_key_env.as_deref().is_some_and(|name| !is_variable(name)) {
        // The value is not repeated: it may be the key itself.
        return Err(("api_key_env", "is not a valid name of an environment variable".to_owned()));
    }
    if name == "echo" || name.contains(':') {
        return Err(("", "a section cannot have the name of a model that needs none, such as echo".to_owned()));
    }
    if file.sections.models.contains_key(&model.model) {
        return Err(("model", "refers to another section; use a model such as openai:gpt-5".to_owned()));
    }
    file.model(name).map(drop).map_err(|what| ("model", what))
}

fn check_tool(file: &File, name: &str, tool: &Tool) -> Checked {
    let (kind, _) = file.tool(name).map_err(|what| ("kind", what))?;
    if let Some(value) = tool.timeout_s {
        seconds("timeout_s", value)?;
    }
    let of = |set: bool, key: &'static str, kinds: &[ToolKind]| {
        if set && !kinds.contains(&kind) { Err((key, "this tool has no such setting".to_owned())) } else { Ok(()) }
    };
    of(tool.root.is_some(), "root", &[ToolKind::Files, ToolKind::Shell])?;
    of(tool.write.is_some(), "write", &[ToolKind::Files])?;
    of(tool.allow.is_some(), "allow", &[ToolKind::Fetch])?;
    of(tool.allow_private.is_some(), "allow_private", &[ToolKind::Fetch])?;
    of(tool.bytes_max.is_some(), "bytes_max", &[ToolKind::Fetch, ToolKind::Shell])?;
    if tool.bytes_max.is_some_and(|bytes| !(1..=64 * 1024 * 1024).contains(&bytes)) {
        return Err(("bytes_max", "must be 1 byte to 64 MiB".to_owned()));
    }
    if kind == ToolKind::Fetch && tool.allow.as_ref().is_none_or(Vec::is_empty) {
        return Err(("allow", "list the hosts it may reach, such as [\"example.org\"] or [\"*\"]".to_owned()));
    }
    tool.exclusive.iter().try_for_each(exclusive)?;
    let allow = tool.allow.iter().flatten();
    let covers = |host: &str| {
        let of = |allowed: &String| {
            let name = allowed.split_once(':').map_or(allowed.as_str(), |(name, _)| name);
            name.strip_prefix('*').is_some_and(|end| host.ends_with(end)) || name == host
        };
        !host.contains('*') && allow.clone().any(of)
    };
    match tool.allow_private.iter().flatten().find(|host| !covers(host)) {
        Some(host) => Err(("allow_private", format!("{host:?} is not a single host that allow covers"))),
        None => Ok(()),
    }
}

fn check_mcp(mcp: &Mcp) -> Checked {
    seconds("timeout_s", mcp.timeout_s)?;
    seconds("start_timeout_s", mcp.start_timeout_s)?;
    match (&mcp.command, &mcp.url) {
        (Some(command), None) if command.is_empty() => Err(("command", "is empty".to_owned())),
        (Some(_), None) if !mcp.headers_env.is_empty() => Err(("headers_env", "a program has no headers".to_owned())),
        (Some(_), None) => Ok(()),
        (None, Some(url)) => {
            check_base_url(url).map_err(|why| ("url", why))?;
            let own = !mcp.args.is_empty() || mcp.dir.is_some() || !mcp.env.is_empty() || !mcp.env_from.is_empty();
            if own { Err(("url", "args, dir, env and env_from are only for a command".to_owned())) } else { Ok(()) }
        }
        _ => Err(("", "needs either a command or a url".to_owned())),
    }?;
    mcp.exclusive.values().try_for_each(exclusive)?;
    match mcp.prefix.as_deref() {
        None | Some("") => Ok(()),
        Some(prefix) => short(prefix).map_err(|(_, what)| ("prefix", what)),
    }
}

fn check_agent(file: &File, name: &str, agent: &Agent) -> Checked {
    name.parse::<Name>().map_err(|rule| ("", rule.to_string()))?;
    match agent.kind {
        AgentKind::Assistant if agent.model.is_empty() => {
            let what = "is missing: name a section of [models], or a model such as echo or openai:gpt-5";
            return Err(("model", what.to_owned()));
        }
        AgentKind::Assistant => file.model(&agent.model).map(drop).map_err(|what| ("model", what))?,
        AgentKind::Agui => file.endpoint(agent).map(drop)?,
    }
    of_its_kind(agent)?;
    temperature(agent.temperature)?;
    seconds("tool_timeout_s", agent.tool_timeout_s)?;
    seconds("timeout_s", agent.timeout_s)?;
    if !(1..=1_000).contains(&agent.max_steps) {
        return Err(("max_steps", "must be 1 to 1000".to_owned()));
    }
    if !(1..=128).contains(&agent.parallel) {
        return Err(("parallel", "must be 1 to 128".to_owned()));
    }
    if agent.system.is_some() && agent.system_file.is_some() {
        return Err(("system_file", "set either system or system_file, not both".to_owned()));
    }
    let mut seen = BTreeSet::new();
    for tool in &agent.tools {
        if !seen.insert(tool) {
            return Err(("tools", format!("lists {tool:?} twice")));
        }
        if !file.sections.mcp.contains_key(tool) {
            file.tool(tool).map_err(|what| ("tools", what))?;
        }
    }
    for (key, subjects) in [("allow", &agent.allow), ("approvers", &agent.approvers)] {
        if subjects.iter().flatten().any(|subject| subject.sub().is_empty()) {
            return Err((key, "a subject must not be empty".to_owned()));
        }
    }
    for worker in &agent.workers {
        if !file.sections.agents.contains_key(worker) {
            let known = file.sections.agents.keys().map(String::as_str);
            let meant = did_you_mean(worker, known);
            return Err(("workers", format!("there is no section [agents.{worker}]{meant}")));
        }
    }
    Ok(())
}

/// Rejects the settings of the other kind.
fn of_its_kind(agent: &Agent) -> Checked {
    let (other, keys) = match agent.kind {
        AgentKind::Assistant => (
            "agui",
            vec![
                ("url", agent.url.is_some()),
                ("headers_env", !agent.headers_env.is_empty()),
                ("silence_s", agent.silence_s.is_some()),
                ("retries", agent.retries.is_some()),
                ("retry", agent.retry.is_some()),
            ],
        ),
        AgentKind::Agui => (
            "assistant",
            vec![
                ("model", !agent.model.is_empty()),
                ("system", agent.system.is_some()),
                ("system_file", agent.system_file.is_some()),
                ("tools", !agent.tools.is_empty()),
                ("workers", !agent.workers.is_empty()),
                ("temperature", agent.temperature.is_some()),
                ("max_tokens", agent.max_tokens.is_some()),
            ],
        ),
    };
    match keys.into_iter().find(|(_, is_set)| *is_set) {
        Some((key, _)) => Err((key, format!("only an agent with kind = \"{other}\" has this setting"))),
        None => Ok(()),
    }
}

/// The line of a key, counted from 1; if it is not found, that of its section.
pub(super) fn line_of(text: &str, section: &str, key: &str) -> Option<usize> {
    let plain = |line: &str| line.trim_start_matches('[').split(']').next().unwrap_or_default().replace(['"', ' '], "");
    let mut at = None;
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if line.starts_with('[') {
            if at.is_some() {
                break;
            }
            at = (plain(line) == section.replace(' ', "")).then_some(number);
        } else if at.is_some() && !key.is_empty() {
            let here = line.split('=').next().is_some_and(|name| name.trim().trim_matches('"') == key);
            if here {
                return Some(number);
            }
        }
    }
    at
}
