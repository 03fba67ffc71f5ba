//! One message: sent, and its run followed to the end, with the person's answers and Ctrl-C in between.

use std::{io::Write as _, time::Duration};

use serde::Serialize;
use serde_json::Value;
use tokio::{signal::unix::Signal, time::Instant};

use super::{
    input::Input,
    text,
    view::{Event, Piece, Questions, View},
};
use crate::{
    cli::{
        exit,
        render::{clean, duration, print, say},
    },
    client::{self, Client, Follow, Frame, Notice},
    domain::{
        event::EventKind,
        id::{SpanId, Title},
        run::Status,
        session::inbound::{ChannelName, Username},
    },
    wire::{frames::StreamEnd, messages::Outcome, runs::Resume},
};

/// How long a run may stay unclaimed before the person is notified.
const QUEUE_PATIENCE: Duration = Duration::from_secs(5);

/// How a message ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Done,
    /// The run failed or was cancelled, the message was filtered, or a question was not answered.
    Unhappy,
    /// Ctrl-C, and the person wants to leave.
    Left,
}

/// The sender, in the route's form.
#[derive(Debug, Serialize)]
pub(super) struct Who {
    pub(super) chat_id: String,
    pub(super) user_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) username: Option<Username>,
}

pub(super) struct Talk<'a> {
    pub(super) client: &'a Client,
    pub(super) channel: &'a ChannelName,
    pub(super) who: Who,
    pub(super) input: Input,
    pub(super) signals: Signal,
    pub(super) width: Option<usize>,
    pub(super) last_only: bool,
}

/// A run that is followed.
struct Turn {
    run_id: String,
    view: View,
    questions: Questions,
    /// The question that is on the screen.
    asked: Option<String>,
    agent: Option<String>,
    is_queued: bool,
    was_lost: bool,
    is_cancelling: bool,
    status: Option<Status>,
}

impl Talk<'_> {
    /// Sends a message (`text` or `reset_session`) and waits until its run has ended.
    pub(super) async fn turn(&mut self, message: Value) -> anyhow::Result<End> {
        let mut body = serde_json::to_value(&self.who)?;
        if let (Value::Object(body), Value::Object(message)) = (&mut body, message) {
            body.extend(message);
        }
        let answer = tokio::select! {
            answer = self.client.message(self.channel.as_str(), &body) => answer.map_err(|error| self.explain(error))?,
            _ = self.signals.recv() => return Ok(End::Left),
        };
        let Some(run_id) = answer.run_id.filter(|_| answer.outcome == Outcome::Accepted) else {
            say(text::filtered(answer.reason, &self.who.user_id, self.channel.as_str()));
            return Ok(if text::is_fine(answer.reason) { End::Done } else { End::Unhappy });
        };
        let turn = Turn {
            run_id: run_id.to_string(),
            view: View::new(self.width, self.last_only),
            questions: Questions::default(),
            asked: None,
            agent: None,
            is_queued: true,
            was_lost: false,
            is_cancelling: false,
            status: None,
        };
        self.follow(turn).await
    }

    fn explain(&self, error: client::Error) -> anyhow::Error {
        if error.code.as_deref() == Some("not_found") {
            return text::no_channel(self.channel.as_str()).into();
        }
        error.into()
    }

    async fn follow(&mut self, mut turn: Turn) -> anyhow::Result<End> {
        let mut follow: Follow = self.client.follow(&format!("/api/stream/runs/{}", turn.run_id), None);
        let mut patience = Some(Instant::now() + QUEUE_PATIENCE);
        loop {
            self.ask(&mut turn)?;
            let until = patience.unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                _ = self.signals.recv() => {
                    if turn.is_cancelling || !self.cancel(&mut turn).await? {
                        return Ok(End::Left);
                    }
                }
                notice = follow.next() => match notice {
                    Some(notice) => turn.notice(notice?)?,
                    None => break,
                },
                line = self.input.line(), if turn.asked.is_some() => match line {
                    Some(line) => self.answer(&mut turn, &line).await?,
                    None => return Ok(turn.nobody_answers()),
                },
                () = tokio::time::sleep_until(until), if patience.is_some() => {
                    patience = None;
                    turn.say_queued()?;
                }
            }
        }
        let status = match turn.status {
            Some(status) => status,
            None => self.client.run(&turn.run_id).await?.status,
        };
        Ok(if status == Status::Completed { End::Done } else { End::Unhappy })
    }

    /// Shows the oldest question, unless it is on the screen already.
    fn ask(&mut self, turn: &mut Turn) -> anyhow::Result<()> {
        let oldest = turn.questions.0.first();
        if turn.asked.as_ref() == oldest.map(|question| &question.id) {
            return Ok(());
        }
        if turn.asked.take().is_some() {
            aside("\n");
        }
        if let Some(question) = turn.questions.0.first().cloned() {
            show(turn.view.break_line())?;
            // What was typed before the question is not an answer to it.
            self.input.hold();
            aside(&question.text);
            aside(question.prompt());
            turn.asked = Some(question.id);
        }
        Ok(())
    }

    async fn answer(&mut self, turn: &mut Turn, line: &str) -> anyhow::Result<()> {
        let Some(question) = turn.questions.0.first().cloned() else { return Ok(()) };
        let Some((decision, value)) = text::decision(question.is_approval, line) else {
            aside(question.prompt());
            return Ok(());
        };
        let answer = Resume { interrupt_id: SpanId::trusted(&question.id), decision, value };
        turn.asked = None;
        // An answered question is closed, no matter who answered it; after another error it is asked again.
        match self.client.resume(&turn.run_id, &answer).await {
            Ok(_) => turn.questions.0.retain(|open| open.id != question.id),
            Err(error) => {
                if matches!(error.code.as_deref(), Some("interrupt_closed" | "run_ended" | "not_found")) {
                    turn.questions.0.retain(|open| open.id != question.id);
                }
                exit::report(&error.into());
            }
        }
        Ok(())
    }

    /// Requests cancellation of the run; `false` if the person leaves before the server has answered.
    async fn cancel(&mut self, turn: &mut Turn) -> anyhow::Result<bool> {
        turn.is_cancelling = true;
        show(turn.view.break_line())?;
        if turn.asked.is_some() {
            aside("\n");
            turn.asked = None;
            turn.questions.0.clear();
        }
        say("cancelling; press Ctrl-C again to quit");
        let cancel = self.client.cancel(&turn.run_id, Some(Title::trusted("cancelled in the terminal")));
        tokio::select! {
            done = cancel => if let Err(error) = done && error.code.as_deref() != Some("run_ended") {
                exit::report(&error.into());
            },
            _ = self.signals.recv() => return Ok(false),
        }
        Ok(true)
    }
}

impl Turn {
    fn notice(&mut self, notice: Notice) -> anyhow::Result<()> {
        match notice {
            Notice::Connected if self.was_lost => say("reconnected"),
            Notice::Connected => {}
            Notice::Lost { reason, retry_in } => {
                self.was_lost = true;
                show(self.view.break_line())?;
                say(format!("connection lost ({}); retrying in {}", clean(&reason), duration(retry_in)));
            }
            Notice::Frame(frame) => self.frame(&frame)?,
        }
        Ok(())
    }

    fn frame(&mut self, frame: &Frame) -> anyhow::Result<()> {
        if frame.event == "stream.end" {
            self.status = serde_json::from_str::<StreamEnd>(&frame.data).ok().map(|end| end.status);
            return show(self.view.break_line());
        }
        let event = Event::of(frame);
        self.agent = event.agent.clone().or(self.agent.take());
        self.is_queued &= frame.event == EventKind::RunCreated.as_str() || frame.event.starts_with("stream.");
        self.questions.event(&event);
        if self.is_cancelling {
            self.questions.0.clear();
        }
        let pieces = self.view.event(&event);
        // The agent's text does not continue the line with the question.
        if self.asked.is_some() && !pieces.is_empty() {
            aside("\n");
            self.asked = None;
        }
        show(pieces)
    }

    fn say_queued(&mut self) -> anyhow::Result<()> {
        if self.is_queued {
            show(self.view.break_line())?;
            let agent = clean(self.agent.as_deref().unwrap_or("the agent"));
            say(format!(
                "no process has claimed this run yet: {agent} needs [agents.{agent}] in the server's --config, or a \
                 runner (runreel runner --agent {agent} --exec …)"
            ));
        }
        Ok(())
    }

    fn nobody_answers(&self) -> End {
        aside("\n");
        say(format!(
            "the run is waiting for an answer; answer with: runreel runs answer {} approve",
            clean(&self.run_id)
        ));
        End::Unhappy
    }
}

fn show(pieces: Vec<Piece>) -> anyhow::Result<()> {
    for piece in pieces {
        match piece {
            Piece::Answer(text) => print(&text)?,
            Piece::Aside(text) => aside(&text),
        }
    }
    Ok(())
}

/// Writes to stderr as is. A failure cannot be reported.
pub(super) fn aside(text: &str) {
    let mut stderr = anstream::stderr().lock();
    let _ = stderr.write_all(text.as_bytes());
    let _ = stderr.flush();
}
