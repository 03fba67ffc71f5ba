//! What a person types, line by line; also the lines of a pipe.

use std::{
    collections::VecDeque,
    io::{self, BufRead as _, IsTerminal as _, Read as _},
};

use tokio::sync::mpsc;

/// Lines read ahead while a run is in progress.
const LINES_MAX: usize = 64;
/// A longer line is split. Messages are limited to far less.
const LINE_BYTES_MAX: u64 = 1024 * 1024;

pub(super) struct Input {
    /// `None` until the first line is requested: what is not read is left to the program after this one.
    lines: Option<mpsc::Receiver<String>>,
    /// Typed ahead: messages, not answers to a question that was asked later.
    held: VecDeque<String>,
    pub(super) is_terminal: bool,
}

impl Input {
    pub(super) fn open() -> Self {
        Self { lines: None, held: VecDeque::new(), is_terminal: io::stdin().is_terminal() }
    }

    /// An empty input; stdin is not touched.
    pub(super) fn closed() -> Self {
        Self { lines: Some(mpsc::channel(1).1), held: VecDeque::new(), is_terminal: false }
    }

    /// The next line that has not been taken, without its line end; `None` if there will be none. Cancel-safe: dropping
    /// it while it waits loses nothing.
    pub(super) async fn line(&mut self) -> Option<String> {
        self.lines.get_or_insert_with(read).recv().await
    }

    /// The next message: what was typed ahead comes first.
    pub(super) async fn message(&mut self) -> Option<String> {
        match self.held.pop_front() {
            Some(line) => Some(line),
            None => self.line().await,
        }
    }

    /// Puts aside what a person typed before a question appeared. A pipe's lines stay: it cannot know the question.
    pub(super) fn hold(&mut self) {
        if let (true, Some(lines)) = (self.is_terminal, &mut self.lines) {
            self.held.extend(std::iter::from_fn(|| lines.try_recv().ok()));
        }
    }
}

fn read() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(LINES_MAX);
    // A thread of its own, not one of tokio's: nothing can wake a read of stdin, and the runtime would wait for it at
    // exit. This one just ends with the process.
    std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        loop {
            let mut line = Vec::new();
            match (&mut stdin).take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            let line = String::from_utf8_lossy(&line);
            if sender.blocking_send(line.trim_end_matches(['\r', '\n']).to_owned()).is_err() {
                break;
            }
        }
    });
    lines
}
