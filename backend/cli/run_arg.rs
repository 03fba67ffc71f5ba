//! The run that a command is about: its id, the beginning of it, or `last`.

use std::str::FromStr;

use serde::Deserialize;

use super::{
    exit::{CliError, USAGE},
    render::{clean, clip},
};
use crate::{
    client::Client,
    domain::{
        id::{Malformed, RunId},
        id_prefix::RunIdPrefix,
    },
};

/// Most runs listed when a prefix is ambiguous.
const CANDIDATES_MAX: usize = 8;
/// Longest title in that list, characters.
const TITLE_CHARS_MAX: usize = 48;

/// A run as a person names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunArg {
    Id(RunId),
    Prefix(RunIdPrefix),
    Last,
}

impl FromStr for RunArg {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        const RULE: Malformed =
            Malformed("a run is named by its id, by the beginning of it (at least 4 hexadecimal digits), or by: last");
        if text == "last" {
            return Ok(Self::Last);
        }
        text.parse().map(Self::Id).or_else(|_| text.parse().map(Self::Prefix)).map_err(|_| RULE)
    }
}

/// A run of a list.
#[derive(Deserialize)]
pub(super) struct Listed {
    pub(super) run_id: RunId,
    status: String,
    #[serde(default)]
    title: Option<String>,
}

impl Listed {
    /// Status and title, on one line.
    pub(super) fn about(&self) -> String {
        let title = clip(&clean(self.title.as_deref().unwrap_or_default()), TITLE_CHARS_MAX);
        format!("{:<11} {title}", clean(&self.status)).trim_end().to_owned()
    }
}

#[derive(Deserialize)]
struct Page {
    runs: Vec<Listed>,
}

impl RunArg {
    /// The run's id. A complete id is not looked up.
    pub(super) async fn resolve(self, client: &Client) -> anyhow::Result<RunId> {
        match self {
            Self::Id(run) => Ok(run),
            Self::Last => Ok(newest(client).await?.run_id),
            Self::Prefix(prefix) => {
                let query = [("id_prefix", prefix.to_string()), ("limit", (CANDIDATES_MAX + 1).to_string())];
                let page: Page = client.get(&["runs"], &query).await?;
                Ok(only(prefix, &page.runs)?)
            }
        }
    }
}

/// The newest run of the principal.
pub(super) async fn newest(client: &Client) -> anyhow::Result<Listed> {
    let page: Page = client.get(&["runs"], &[("limit", "1".to_owned())]).await?;
    let hint = "create one: echo '{\"type\":\"log.info\",\"payload\":{\"message\":\"hello\"}}' | runreel emit";
    Ok(page.runs.into_iter().next().ok_or_else(|| CliError::not_found("there are no runs yet", hint))?)
}

/// The one run with this prefix.
fn only(prefix: RunIdPrefix, found: &[Listed]) -> Result<RunId, CliError> {
    match found {
        [] => Err(CliError::not_found(
            format!("no run of yours has an id that begins with {prefix}"),
            "runreel runs lists your newest runs",
        )),
        [one] => Ok(one.run_id),
        several => {
            let lines = several.iter().take(CANDIDATES_MAX).map(|run| format!("\n  {}  {}", run.run_id, run.about()));
            let more = if several.len() > CANDIDATES_MAX { "\n  …" } else { "" };
            let what = format!("the ids of several runs begin with {prefix}:{}{more}", lines.collect::<String>());
            Err(CliError { code: USAGE, what, hint: Some("add digits until only one is left".to_owned()) })
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::fake::{Answer, Fake};

    const RUN: &str = "0198c0de-0000-7000-8000-000000000001";

    fn listed(numbers: impl IntoIterator<Item = usize>) -> Vec<Listed> {
        let run = |n| json!({"run_id": format!("0198c0de-0000-7000-8000-0000000000{n:02}"), "status": "running", "title": "A\nB"});
        numbers.into_iter().map(|n| serde_json::from_value(run(n)).unwrap()).collect()
    }

    #[test]
    fn a_run_is_named_by_id_by_its_beginning_or_as_the_last() {
        assert_eq!(RUN.parse(), Ok(RunArg::Id(RUN.parse().unwrap())));
        assert_eq!("0198c0de-0000-7".parse(), Ok(RunArg::Prefix("0198c0de00007".parse().unwrap())));
        assert_eq!("last".parse(), Ok(RunArg::Last));
        for bad in ["", "first", "019", "not-a-run", "0198c0de-…"] {
            assert!(bad.parse::<RunArg>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_beginning_of_several_ids_names_them() {
        let prefix: RunIdPrefix = "0198".parse().unwrap();
        assert_eq!(only(prefix, &listed([1])).unwrap(), RUN.parse().unwrap());
        assert_eq!(only(prefix, &[]).unwrap_err().code, 4);
        let error = only(prefix, &listed(1..=2)).unwrap_err();
        assert_eq!(error.code, 2);
        assert_eq!(error.what.lines().nth(1).unwrap(), format!("  {RUN}  running     A B"));
        let many = only(prefix, &listed(1..=9)).unwrap_err().what;
        assert_eq!((many.lines().count(), many.lines().last()), (10, Some("  …")));
    }

    #[tokio::test]
    async fn only_a_beginning_is_asked_for() {
        let answer = Answer::json(&json!({"runs": [{"run_id": RUN, "status": "running"}]}));
        let mut fake = Fake::start([answer]).await;
        let client = Client::new(&fake.url, None).unwrap();
        let run: RunId = RUN.parse().unwrap();
        assert_eq!(RunArg::Id(run).resolve(&client).await.unwrap(), run);
        assert_eq!("0198C0DE0".parse::<RunArg>().unwrap().resolve(&client).await.unwrap(), run);
        assert!(fake.request().await.starts_with("GET /api/runs?id_prefix=0198c0de-0&limit=9 HTTP/1.1\r\n"));
    }
}
