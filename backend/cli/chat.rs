//! `runreel chat`: a conversation with an agent in a terminal, through a channel of the server.
//!
//! The agent's words go to stdout, everything else to stderr: tools, workers, thoughts, questions, prompts.

use std::{io::IsTerminal as _, process::ExitCode};

use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use self::{
    input::Input,
    text::Line,
    turn::{End, Talk, Who, aside},
};
use super::{
    connection::Connection,
    exit::{self, CliError, FAILED, INTERRUPTED},
    render::{clean, say, terminal_width},
};
use crate::{
    config,
    domain::{
        limits::MESSAGE_TEXT_BYTES_MAX,
        session::inbound::{ChannelName, ChatId, UserId, Username},
    },
};

mod input;
mod text;
mod turn;
mod view;

/// Chat with an agent in the terminal
///
/// Messages go to a channel of the server, which stores the conversation: quit, return tomorrow, and the agent still
/// knows it. The answer streams as it is generated, with tool calls and workers inline. Actions that need approval
/// prompt you.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
The server needs a channel and an agent, in the file that
`runreel serve --config FILE` reads:
  [channels.web]
  [agents.assistant]
  model = \"echo\"
  # or \"openai:gpt-5\", \"anthropic:claude-sonnet-4-5\", \"ollama:qwen3\" …

In a chat: /new starts a new session, /help lists the commands, Ctrl-D quits,
Ctrl-C cancels the current run.
Without a terminal, each line of stdin is a message (or the answer to a
question). The exit code is 0 when everything was answered, 1 when a run failed
or was cancelled, a message was filtered or a question was left open.

Examples:
  # chat in the channel web
  runreel chat
  # one message from stdin, and only the answer goes to stdout
  git diff | runreel chat --once --chat review > review.md")]
pub(super) struct Args {
    /// The channel's name in the server's configuration
    #[arg(default_value = "web")]
    channel: ChannelName,
    /// Conversation id; each id has its own history [default: your user name and this machine's name]
    #[arg(long, value_name = "ID")]
    chat: Option<ChatId>,
    /// Your user id in the channel [default: your user name on this machine]
    #[arg(long, value_name = "ID")]
    user: Option<UserId>,
    /// Your name as shown to the agent [default: the user]
    #[arg(long, value_name = "NAME")]
    username: Option<Username>,
    /// Send one message and exit when it is answered; without TEXT it is read from stdin
    #[arg(long, value_name = "TEXT", num_args = 0..=1)]
    #[expect(clippy::option_option, reason = "how clap tells a flag with a value that may be left out")]
    once: Option<Option<String>>,
    #[command(flatten)]
    connection: Connection,
}

/// Chats until the person leaves; the exit code shows the outcome.
pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = args.connection.client()?;
    let mut input = Input::open();
    let last_only = args.once.is_some() && !std::io::stdout().is_terminal();
    let once = match &args.once {
        None => None,
        Some(Some(text)) => {
            // A caller that loops over the lines of a file wants to keep the rest of the file.
            input = if input.is_terminal { input } else { Input::closed() };
            Some(text.clone())
        }
        Some(None) if input.is_terminal => {
            return Err(CliError::usage("--once needs a text, or a message on stdin").into());
        }
        Some(None) => Some(whole(&mut input).await?),
    };
    let mut talk = Talk {
        client: &client,
        channel: &args.channel,
        who: who(&args),
        input,
        signals: signal(SignalKind::interrupt())?,
        width: terminal_width(),
        last_only,
    };
    match once {
        Some(text) if text.trim().is_empty() => Err(CliError::usage("the message is empty").into()),
        Some(text) => Ok(code(talk.turn(json!({ "text": text })).await?)),
        None => {
            let chat = clean(&talk.who.chat_id);
            let channel = &args.channel;
            say(format!("channel {channel}, chat {chat}; /help lists the commands, Ctrl-D quits"));
            converse(&mut talk).await
        }
    }
}

async fn converse(talk: &mut Talk<'_>) -> anyhow::Result<ExitCode> {
    let is_terminal = talk.input.is_terminal;
    let mut is_happy = true;
    loop {
        if is_terminal {
            aside("> ");
        }
        let line = tokio::select! {
            line = talk.input.message() => line,
            _ = talk.signals.recv() => { aside("\n"); return Ok(ExitCode::from(INTERRUPTED)) }
        };
        let Some(line) = line else {
            aside(if is_terminal { "\n" } else { "" });
            break;
        };
        let message = match Line::of(&line) {
            Line::Nothing => continue,
            Line::Quit => break,
            Line::Help => {
                say(text::HELP);
                continue;
            }
            Line::Unknown(command) => {
                say(format!("unknown command {}; /help lists the commands", clean(&command)));
                continue;
            }
            Line::New => json!({ "reset_session": true }),
            Line::Message(text) => json!({ "text": text }),
        };
        match talk.turn(message).await {
            Ok(End::Left) => return Ok(code(End::Left)),
            Ok(end) => is_happy &= end == End::Done,
            // A person sees the error and may try again; a script does not.
            Err(error) if is_terminal && exit::code_of(&error) != 0 => _ = exit::report(&error),
            Err(error) => return Err(error),
        }
    }
    // A person at a terminal has seen the outcome.
    Ok(code(if is_happy || is_terminal { End::Done } else { End::Unhappy }))
}

fn code(end: End) -> ExitCode {
    match end {
        End::Done => ExitCode::SUCCESS,
        End::Unhappy => ExitCode::from(FAILED),
        End::Left => ExitCode::from(INTERRUPTED),
    }
}

/// All of stdin, as one message.
async fn whole(input: &mut Input) -> Result<String, CliError> {
    let mut text = String::new();
    while let Some(line) = input.line().await {
        text.push_str(&line);
        text.push('\n');
        if text.len() > MESSAGE_TEXT_BYTES_MAX {
            let most = MESSAGE_TEXT_BYTES_MAX / 1024;
            return Err(CliError::failed(format!("the message on stdin is larger than {most} KiB")));
        }
    }
    Ok(text.trim_end().to_owned())
}

fn who(args: &Args) -> Who {
    let name = config::variable("USER").or_else(|| config::variable("LOGNAME"));
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let user = args.user.as_ref().map_or_else(|| text::default_user(name.as_deref()), |user| user.as_str().to_owned());
    let chat = args.chat.as_ref().map(|chat| chat.as_str().to_owned());
    let chat = chat.unwrap_or_else(|| text::default_chat(name.as_deref(), &host));
    Who { chat_id: chat, user_id: user, username: args.username.clone() }
}
