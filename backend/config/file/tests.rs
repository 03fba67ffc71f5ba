use super::*;
use crate::config::models::Kind;

fn parse(text: &str) -> Result<File, String> {
    File::parse(text, Path::new("/etc/runreel"))
}

#[test]
fn an_agent_works_without_any_other_section() {
    let file = parse("[agents.assistant]\nmodel = \"echo\"\ntools = [\"files\"]\n").unwrap();
    let agent = &file.sections.agents["assistant"];
    assert_eq!(file.model(&agent.model).unwrap().source, Source::Echo);
    assert_eq!(file.tool("files").unwrap(), (ToolKind::Files, Tool::default()));
    assert_eq!((agent.max_steps, agent.parallel, agent.timeout_s), (32, 8, 3_600));
}

#[test]
fn the_usual_key_goes_to_the_usual_address_only() {
    let file = parse(
        "[models.own]\nmodel = \"openai:qwen3\"\nbase_url = \"http://gpu:8000/v1\"\n\
         [models.other]\nmodel = \"anthropic:claude\"\napi_key_file = \"secrets/key\"\n",
    )
    .unwrap();
    let usual = file.model("openai:gpt-5").unwrap();
    assert_eq!(usual.key, Some(SecretSource::Env("OPENAI_API_KEY".to_owned())));
    assert_eq!(usual.base_url.as_str(), "https://api.openai.com/v1/");
    let own = file.model("own").unwrap();
    assert_eq!((own.key, own.base_url.as_str()), (None, "http://gpu:8000/v1/"));
    let other = file.model("other").unwrap();
    assert_eq!(other.key, Some(SecretSource::File("/etc/runreel/secrets/key".into())));
    assert_eq!(other.source, Source::Provider { kind: Kind::Anthropic, model: "claude".to_owned() });
    assert_eq!(file.model("script:a.toml").unwrap().source, Source::Script("/etc/runreel/a.toml".into()));
}

#[test]
fn what_is_wrong_is_told_with_its_line_its_key_and_what_to_do() {
    for (text, expected) in [
        ("[agents.a]\nmodle = \"echo\"", "line 2: agents.a.modle: the member modle is unknown; did you mean model?"),
        ("\n\n[agent.a]\nmodel = \"echo\"", "line 3: agent: the member agent is unknown; did you mean agents?"),
        (
            "[agents.a]\nmodel = \"echo\"\nmax_steps = \"many\"",
            "line 3: agents.a.max_steps: must be a whole number, not a text",
        ),
        ("[agents.a]\ntools = []", "line 1: [agents.a] model: is missing: name a section of [models]"),
        (
            "[agents.\"My agent\"]\nmodel = \"echo\"\nparallel = 0",
            "line 3: [agents.My agent] parallel: must be 1 to 128",
        ),
        ("[agents.\" a\"]\nmodel = \"echo\"", "line 1: [agents. a]: a name is 1 to 128"),
        (
            "[agents.coder]\nmodel = \"echo\"\nworkers = [\"codre\"]",
            "there is no section [agents.codre]; did you mean coder?",
        ),
        ("[agents.a]\nmodel = echo", "line 2: "),
        ("[agents.a]\n\nmodel = \"gpt-5\"", "line 3: [agents.a] model: \"gpt-5\" is neither a section of [models]"),
        ("[agents.a]\nmodel = \"echo\"\ntools = [\"fiels\"]", "line 3: [agents.a] tools: \"fiels\" is neither"),
        ("[agents.a]\nmodel = \"echo\"\ntools = [\"fetch\"]", "line 3: [agents.a] tools: \"fetch\" needs a section"),
        (
            "[agents.a]\nmodel = \"echo\"\nworkers = [\"b\"]",
            "line 3: [agents.a] workers: there is no section [agents.b]",
        ),
        ("[agents.a]\nmodel = \"echo\"\nparallel = 0", "line 3: [agents.a] parallel: must be 1 to 128"),
        ("[models.m]\nmodel = \"openai:x\"\nbase_url = \"https://me:pw@x/\"", "line 3: [models.m] base_url: must not"),
        (
            "[models.m]\nmodel = \"openai:x\"\napi_key = \"sk-1\"",
            "line 3: models.m.api_key: the member api_key is unknown; did you mean api_key_",
        ),
        ("[models.m]\nmodel = \"script\"", "line 2: [models.m] model: \"script\" plays the turns of"),
        ("[models.m]\nmodel = \"echo\"\nscript = {}", "line 2: [models.m] model: \"script\" plays the turns of"),
        ("[models.\"a b\"]\nmodel = \"echo\"", "[models.a b]: the name must be"),
        ("[tools.web]\nallow = [\"*\"]", "line 1: [tools.web] kind: [tools.web] needs kind"),
        ("[tools.fetch]\nallow = []", "line 2: [tools.fetch] allow: list the hosts"),
        ("[tools.files]\nexclusive = \"a b\"", "line 2: [tools.files] exclusive: the name must be 1 to"),
        ("[models.m]\nmodel = \"echo\"\ncontext_tokens = 5", "line 3: [models.m] context_tokens: must be 256 to"),
        ("[tools.files]\nallow = [\"*\"]", "line 2: [tools.files] allow: this tool has no such setting"),
        ("[mcp.x]\nargs = []", "line 1: [mcp.x]: needs either a command or a url"),
        ("[mcp.files]\ncommand = \"x\"", "line 1: [mcp.files]: a tool has this name"),
        ("[mcp.x]\nurl = \"http://h/\"\nenv = { A = \"b\" }", "line 2: [mcp.x] url: args, dir, env"),
    ] {
        let message = parse(text).unwrap_err();
        assert!(message.contains(expected), "{text}\n  {message}");
        assert!(!message.contains("sk-1"), "{message}");
    }
}

#[test]
fn the_effective_values_have_the_defaults_and_no_secret() {
    let text = "[mcp.x]\ncommand = \"srv\"\nenv = { TOKEN = \"t0ken\" }\nenv_from = { KEY = \"MY_KEY\" }\n\
                [agents.a]\nmodel = \"echo\"\n[channels.c]\nsecret = \"s\"\n";
    let rows = parse(text).unwrap().effective();
    let find = |key: &str| rows.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
    assert_eq!(find("mcp.x.env.TOKEN"), Some("(set, not shown)"));
    assert_eq!(find("mcp.x.env_from.KEY"), Some("\"MY_KEY\""));
    assert_eq!(find("agents.a.max_steps"), Some("32"));
    assert!(rows.iter().all(|(_, value)| !value.contains("t0ken")) && find("channels.c.secret").is_none());
}

#[test]
fn an_endpoint_of_ag_ui_has_its_own_settings_and_no_secret_in_the_file() {
    let with = |more: &str| parse(&format!("[agents.far]\nkind = \"agui\"\n{more}"));
    let file = with("url = \"https://agents.example/run\"\nheaders_env = { Authorization = \"FAR_AUTH\" }").unwrap();
    let endpoint = file.endpoint(&file.sections.agents["far"]).unwrap();
    assert_eq!(endpoint.url.as_str(), "https://agents.example/run", "no slash is added");
    assert_eq!((endpoint.retries, endpoint.continues, endpoint.silence_max.as_secs()), (5, true, 120));
    let url = "url = \"http://a/\"\n";
    for (text, expected) in [
        (String::new(), "line 1: [agents.far] url: is missing"),
        ("url = \"ftp://a/\"".to_owned(), "line 3: [agents.far] url: must begin with http:// or https://"),
        ("url = \"https://me:pw@a/\"".to_owned(), "url: must not contain a user name or password"),
        ("url = \"https://a/?key=1\"".to_owned(), "url: must have a host, and must not contain ? or #"),
        (format!("{url}headers_env = {{ Authorization = \"Bearer abc\" }}"), "line 4: [agents.far] headers_env: Auth"),
        (format!("{url}headers_env = {{ Host = \"A\" }}"), "headers_env: \"Host\" is not a header that can be set"),
        (format!("{url}silence_s = 0"), "line 4: [agents.far] silence_s: must be 1 to 86400 seconds"),
        (format!("{url}retries = 21"), "retries: must be 0 to 20"),
        (format!("{url}retry = \"maybe\""), "agents.far.retry"),
        (format!("{url}model = \"echo\""), "model: only an agent with kind = \"assistant\" has this setting"),
        (format!("{url}tools = [\"files\"]"), "tools: only an agent with kind = \"assistant\""),
    ] {
        let message = with(&text).unwrap_err();
        assert!(message.contains(expected), "{text}: {message}");
        assert!(!message.contains("abc"), "{message}");
    }
    let message = parse("[agents.a]\nmodel = \"echo\"\nretries = 1").unwrap_err();
    assert!(message.contains("line 3: [agents.a] retries: only an agent with kind = \"agui\""), "{message}");
}
