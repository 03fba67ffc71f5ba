//! `runreel channel`: works on the database, so it needs no running server and no credential.

use std::process::ExitCode;

use chrono::TimeDelta;
use clap::Subcommand;

use super::{
    exit::CliError,
    render::{clean, print, say},
    token::{OwnerArgs, life},
};
use crate::{
    channels::codes,
    clock::{Clock, IdSource},
    config::Secrets,
    database::Database,
    domain::{
        event::timestamp,
        limits::{CODE_LIFE_S_DEFAULT, CODE_LIFE_S_MAX, CODES_MAX, PAGE_ROWS_MAX},
        principal::OwnerId,
        session::inbound::{ChannelName, UserId},
    },
    postgres::STOP_MAX,
    store::{Settings, Store, page::Page},
};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # a code that lets a user write to the bot
  runreel channel code telegram
  # for the channel web of the person whose JWT says sub=bob
  runreel channel code web --expires 1h --sub bob
  # users who have entered a code
  runreel channel users telegram
  # this user must enter a code again
  runreel channel revoke telegram 4711")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create a one-time code. It is printed once, on stdout; only its hash is stored.
    Code {
        /// The channel's name in the configuration file.
        channel: ChannelName,
        /// How long the code is valid, at most 24h: a number with s, m, h or d. Default: 15 minutes.
        #[arg(long, value_name = "TIME", value_parser = life)]
        expires: Option<TimeDelta>,
        #[command(flatten)]
        whose: OwnerArgs,
    },
    /// List the users who have entered a code and when, including those whose verification has expired.
    Users {
        channel: ChannelName,
        #[command(flatten)]
        whose: OwnerArgs,
    },
    /// Require a user to enter a code again.
    Revoke {
        channel: ChannelName,
        /// The user's id in the channel.
        user: UserId,
        #[command(flatten)]
        whose: OwnerArgs,
    },
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (Command::Code { whose, .. } | Command::Users { whose, .. } | Command::Revoke { whose, .. }) = &args.command;
    let database = Database::attach(&whose.data).await?;
    let settings = Settings::few(database.options.clone());
    let store = Store::connect(settings).await?;
    let done = act(&args.command, &store, whose).await;
    store.close().await;
    database.detach(STOP_MAX).await?;
    done.map(|()| ExitCode::SUCCESS)
}

async fn act(command: &Command, store: &Store, whose: &OwnerArgs) -> anyhow::Result<()> {
    let clock = Clock::database();
    store.tell_time(&clock).await?;
    let ids = IdSource::random(clock.clone());
    let pepper = store.init_pepper(Secrets::read()?.pepper.as_deref(), ids.secret()).await?;
    let owner = OwnerId::derive(&pepper, &whose.iss, &whose.sub);
    match command {
        Command::Code { channel, expires, .. } => {
            let life_s = expires.map_or(CODE_LIFE_S_DEFAULT, |life| life.num_seconds());
            if life_s > CODE_LIFE_S_MAX {
                return Err(CliError::usage("a code can be valid for at most 24 hours").into());
            }
            let made = codes::make(store, &ids, &pepper, (&owner, channel), (clock.now(), life_s)).await?;
            let Some(code) = made else {
                return Err(CliError::failed(format!("the channel already has {CODES_MAX} unused codes")).into());
            };
            say(format!("a code for {channel}, valid until {}; it is shown only once:", timestamp(code.expires_at)));
            print(&format!("{}\n", code.text))?;
        }
        Command::Users { channel, .. } => {
            let mut page = Page { after: None, limit: PAGE_ROWS_MAX };
            loop {
                let (users, more) = store.codes().users(&owner, channel, None, &page).await?;
                for user in &users {
                    print(&format!("{}  since {}\n", clean(user.user_id.as_str()), timestamp(user.verified_at)))?;
                }
                page.after = users.into_iter().next_back().map(|last| last.user_id);
                if !more {
                    break;
                }
            }
        }
        Command::Revoke { channel, user, .. } => {
            if !store.codes().revoke(&owner, channel, user).await? {
                let hint = "runreel channel users lists them (--sub, --iss)";
                return Err(CliError::not_found("no such user of this channel has entered a code", hint).into());
            }
            say(format!("{user} must enter a code again"));
        }
    }
    Ok(())
}
