//! [`Endpoint`]: how an agent of the kind `agui` is reached.

use std::{collections::BTreeMap, time::Duration};

use reqwest::{Url, header::HeaderName};

use super::{
    File,
    check::{is_variable, seconds},
    models::check_url,
    sections::{Agent, Retry},
};

/// Longest silence, unless configured, seconds.
const SILENCE_S_DEFAULT: u64 = 120;
/// Retries of a request, unless configured.
const RETRIES_DEFAULT: u32 = 5;
/// Most retries that can be configured.
const RETRIES_MAX: u32 = 20;
/// Most headers of an endpoint.
const HEADERS_MAX: usize = 32;
/// Headers that belong to the request itself.
const OWN_HEADERS: [&str; 6] = ["accept", "connection", "content-length", "content-type", "host", "transfer-encoding"];

/// An endpoint as configured for an agent, including defaults.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub url: Url,
    /// Headers of every request, each with the variable that holds its value. See [`File::secrets`].
    pub headers_env: BTreeMap<String, String>,
    /// Longest silence: before the first byte and between two bytes.
    pub silence_max: Duration,
    /// Longest working time of a run.
    pub time_max: Duration,
    /// How often a request is retried without any progress.
    pub retries: u32,
    /// Whether a broken stream is continued with the messages completed so far.
    pub continues: bool,
}

impl File {
    /// Resolves an agent of the kind `agui`. The error names the key.
    pub fn endpoint(&self, agent: &Agent) -> Result<Endpoint, (&'static str, String)> {
        let Some(url) = agent.url.as_deref() else {
            return Err(("url", "is missing: the address of the AG-UI endpoint".to_owned()));
        };
        let url = check_url(url).map_err(|why| ("url", why))?;
        if agent.headers_env.len() > HEADERS_MAX {
            return Err(("headers_env", format!("can have at most {HEADERS_MAX} headers")));
        }
        for (name, variable) in &agent.headers_env {
            if name.parse::<HeaderName>().is_err() || OWN_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
                return Err(("headers_env", format!("{name:?} is not a header that can be set")));
            }
            if !is_variable(variable) {
                // The value is not repeated: it may be the secret itself.
                let what = format!("{name} needs the name of the environment variable that holds its value");
                return Err(("headers_env", what));
            }
        }
        let silence_s = agent.silence_s.unwrap_or(SILENCE_S_DEFAULT);
        seconds("silence_s", silence_s)?;
        let retries = agent.retries.unwrap_or(RETRIES_DEFAULT);
        if retries > RETRIES_MAX {
            return Err(("retries", format!("must be 0 to {RETRIES_MAX}")));
        }
        Ok(Endpoint {
            url,
            headers_env: agent.headers_env.clone(),
            silence_max: Duration::from_secs(silence_s),
            time_max: Duration::from_secs(agent.timeout_s),
            retries,
            continues: agent.retry != Some(Retry::Never),
        })
    }
}
