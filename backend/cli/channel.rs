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
    sessions::codes,
    store::{Settings, Store},
};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  runreel channel code telegram                   a code for somebody to write to the bot
  runreel channel code web --expires 1h --sub bob for the channel web of the person whose JWT says sub=bob
  runreel channel users telegram                  who has given a code
  runreel channel revoke telegram 4711            that user has to give one again")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a one-time code. It is printed once, on stdout, and kept only as a hash.
    Code {
        /// The channel, as the configuration file calls it.
        channel: ChannelName,
        /// How long it is good, at most 24h: a number and s, m, h or d. Default: 15 minutes.
        #[arg(long, value_name = "TIME", value_parser = life)]
        expires: Option<TimeDelta>,
        #[command(flatten)]
        whose: OwnerArgs,
    },
    /// List the users who have given a code and when, also where it has expired since.
    Users {
        channel: ChannelName,
        #[command(flatten)]
        whose: OwnerArgs,
    },
    /// Make a user give a code again.
    Revoke {
        channel: ChannelName,
        /// The user's id, as the channel gives it.
        user: UserId,
        #[command(flatten)]
        whose: OwnerArgs,
    },
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (Command::Code { whose, .. } | Command::Users { whose, .. } | Command::Revoke { whose, .. }) = &args.command;
    let database = Database::visit(&whose.data).await?;
    let settings = Settings { options: database.options.clone(), connections_max: 2, own_connections_max: 2, lanes: 1 };
    let store = Store::connect(settings).await?;
    let done = act(&args.command, &store, whose).await;
    store.close().await;
    database.leave(STOP_MAX).await?;
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
                return Err(CliError::usage("a code is good for at most 24 hours").into());
            }
            let made = codes::make(store, &ids, &pepper, (&owner, channel), (clock.now(), life_s)).await?;
            let Some(code) = made else {
                return Err(CliError::failed(format!("the channel has {CODES_MAX} codes that nobody has used")).into());
            };
            say(format!("a code for {channel}, good until {}; it is shown only now:", timestamp(code.expires_at)));
            print(&format!("{}\n", code.text))?;
        }
        Command::Users { channel, .. } => {
            let mut after = None;
            loop {
                let users = store.verified_users(&owner, channel, None, after.as_ref(), PAGE_ROWS_MAX).await?;
                for user in &users {
                    print(&format!("{}  since {}\n", clean(user.user_id.as_str()), timestamp(user.verified_at)))?;
                }
                match users.into_iter().next_back() {
                    Some(last) => after = Some(last.user_id),
                    None => break,
                }
            }
        }
        Command::Revoke { channel, user, .. } => {
            if !store.revoke_user(&owner, channel, user).await? {
                let hint = "runreel channel users lists them (--sub, --iss)";
                return Err(CliError::not_found("no such user of this channel has given a code", hint).into());
            }
            say(format!("{user} has to give a code again"));
        }
    }
    Ok(())
}
