//! `runreel token`: works on the database, so it needs no running server and no credential.

use std::process::ExitCode;

use chrono::TimeDelta;
use clap::{Subcommand, ValueEnum};
use uuid::Uuid;

use super::{
    exit::CliError,
    render::{print, say},
    run_arg::RunArg,
};
use crate::{
    auth::{self, Grant, LOCAL_SUBJECT},
    clock::{Clock, IdSource},
    config::{DataArgs, Secrets},
    database::Database,
    domain::{
        event::timestamp,
        id::{Name, RunId},
        limits::{TOKEN_LIFE_S_MAX, TOKENS_OWN_MAX},
        principal::{OwnerId, Reach, Scope},
    },
    postgres::STOP_MAX,
    store::{Settings, Store, runs::filter::RunFilter},
};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # for a producer
  runreel token create --name ci --scope emit
  # to share one run (of the person whose JWT says sub=bob)
  runreel token create --name look --scope read --run RUN --expires 7d \\
    --sub bob
  # for the person whose JWT says sub=bob
  runreel token create --name bob --scope admin --sub bob

  runreel token list
  runreel token revoke TOKEN_ID")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create a token. It is printed once, on stdout; only its hash is stored.
    Create(Create),
    /// List the tokens of a subject.
    List(OwnerArgs),
    /// Revoke a token. Its open streams end within 5 s.
    Revoke {
        token_id: Uuid,
        #[command(flatten)]
        whose: OwnerArgs,
    },
}

#[derive(Debug, clap::Args)]
struct Create {
    /// The token's purpose, 1 to 128 characters.
    #[arg(long)]
    name: Name,
    /// What it allows; can be given more than once.
    #[arg(long = "scope", value_enum, required = true)]
    scopes: Vec<WireScope>,
    /// Limit it to this run (and its stream): its id, the beginning of it, or last.
    #[arg(long, value_name = "RUN")]
    run: Option<RunArg>,
    /// Time to live: a number with s, m, h or d. Without it, the token does not expire.
    #[arg(long, value_name = "TIME", value_parser = life)]
    expires: Option<TimeDelta>,
    #[command(flatten)]
    whose: OwnerArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct OwnerArgs {
    /// The subject it acts for (a JWT's `sub`).
    #[arg(long, default_value = LOCAL_SUBJECT)]
    pub(super) sub: String,
    /// The issuer that names the subject (a JWT's `iss`).
    #[arg(long, default_value = "")]
    pub(super) iss: String,
    #[command(flatten)]
    pub(super) data: DataArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum WireScope {
    /// Read runs, their events and streams.
    Read,
    /// Create runs and emit their events.
    Emit,
    /// Answer interrupts.
    Approve,
    /// Everything.
    Admin,
}

impl From<WireScope> for Scope {
    fn from(scope: WireScope) -> Self {
        match scope {
            WireScope::Read => Self::Read,
            WireScope::Emit => Self::Emit,
            WireScope::Approve => Self::Approve,
            WireScope::Admin => Self::Admin,
        }
    }
}

pub(super) fn life(text: &str) -> Result<TimeDelta, String> {
    let wrong = || "must be a number with s, m, h or d, such as 12h or 30d".to_owned();
    let split = text.len().checked_sub(1).filter(|at| text.is_char_boundary(*at)).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(split);
    let unit_s = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let seconds = number.parse::<i64>().ok().and_then(|n| n.checked_mul(unit_s)).ok_or_else(wrong)?;
    if (1..=TOKEN_LIFE_S_MAX).contains(&seconds) {
        Ok(TimeDelta::seconds(seconds))
    } else {
        Err("a token's lifetime must be one second to ten years".to_owned())
    }
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let whose = match &args.command {
        Command::Create(create) => &create.whose,
        Command::List(whose) | Command::Revoke { whose, .. } => whose,
    };
    let database = Database::attach(&whose.data).await?;
    let settings = Settings::few(database.options.clone());
    let store = Store::connect(settings).await?;
    let clock = Clock::database();
    store.tell_time(&clock).await?;
    let ids = IdSource::random(clock.clone());
    let pepper = store.init_pepper(Secrets::read()?.pepper.as_deref(), ids.secret()).await?;
    let owner = OwnerId::derive(&pepper, &whose.iss, &whose.sub);
    let done = act(&args.command, &store, &ids, &clock, owner).await;
    store.close().await;
    database.detach(STOP_MAX).await?;
    done.map(|()| ExitCode::SUCCESS)
}

/// Finds the named run of a subject.
async fn find(store: &Store, owner: &OwnerId, named: RunArg, subject: &str) -> anyhow::Result<RunId> {
    let found = match named {
        RunArg::Id(run) => store.runs().get(owner, run).await?.into_iter().collect(),
        RunArg::Prefix(prefix) => store.runs().with_prefix(owner, prefix, 2).await?,
        RunArg::Last => store.runs().newest(owner, &RunFilter::default(), 1).await?,
    };
    match found.as_slice() {
        [] => {
            let hint = "name the subject that the run belongs to, with --sub and --iss";
            Err(CliError::not_found(format!("the subject {subject} has no such run"), hint).into())
        }
        [run] => Ok(run.context.run_id),
        _ => Err(CliError::usage("several runs have ids that begin like this").with_hint("add digits").into()),
    }
}

async fn act(command: &Command, store: &Store, ids: &IdSource, clock: &Clock, owner: OwnerId) -> anyhow::Result<()> {
    let now = clock.now();
    match command {
        Command::Create(create) => {
            let scopes = create.scopes.iter().map(|scope| Scope::from(*scope)).collect();
            let expires_at = create.expires.map(|life| now + life);
            let run = match create.run {
                Some(named) => Some(find(store, &owner, named, &create.whose.sub).await?),
                None => None,
            };
            let name = create.name.as_str().to_owned();
            let grant = Grant { name, scopes, reach: run.map_or(Reach::Everything, Reach::Run), expires_at };
            let Some(issued) = auth::issue(store, ids, owner, grant, now).await? else {
                let detail = format!("this subject has {TOKENS_OWN_MAX} tokens, as many as it may have");
                return Err(CliError::failed(detail)
                    .with_hint("revoke some: runreel token list, runreel token revoke")
                    .into());
            };
            say(format!("token {} was created; it is shown only once:", issued.record.token_id));
            print(&format!("{}\n", issued.secret))?;
        }
        Command::List(_) => {
            let tokens = store.tokens().list(&owner).await?;
            say(if tokens.is_empty() {
                "this subject has no token; another one's are listed with --sub and --iss"
            } else {
                "TOKEN ID                              NAME  SCOPES  COVERS  VALID"
            });
            for token in tokens {
                let until = token
                    .expires_at
                    .map_or_else(|| "never expires".to_owned(), |at| format!("until {}", timestamp(at)));
                let state = if token.revoked_at.is_some() { "revoked".to_owned() } else { until };
                let reach = match &token.reach {
                    Reach::Everything => "every run".to_owned(),
                    Reach::Run(run) => format!("run {run}"),
                    Reach::Tree(run) => format!("run {run} and those below"),
                    Reach::Thread(thread) => format!("thread {thread}"),
                };
                let scopes: Vec<String> =
                    token.scopes.iter().map(|scope| format!("{scope:?}").to_lowercase()).collect();
                print(&format!("{}  {}  {}  {reach}  {state}\n", token.token_id, token.name, scopes.join(",")))?;
            }
        }
        Command::Revoke { token_id, .. } => {
            if !store.tokens().revoke(&owner, *token_id, true, now).await? {
                let hint = "runreel token list lists the tokens of a subject (--sub, --iss)";
                return Err(CliError::not_found("this subject has no such token", hint).into());
            }
            say(format!("token {token_id} is revoked"));
        }
    }
    Ok(())
}
