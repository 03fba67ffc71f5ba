//! The signals that end a query.

use std::{io, process::ExitCode};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::exit::{INTERRUPTED, TERMINATED};

/// Ctrl-C, and the signals of a service manager or a closing terminal.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    pub(super) fn heed() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// The exit code of the first signal.
    pub(super) async fn end(&mut self) -> ExitCode {
        self.end_beside(false).await
    }

    /// Like [`Signals::end`], but ignores Ctrl-C beside a program that handles it itself.
    pub(super) async fn end_beside(&mut self, takes_interrupts: bool) -> ExitCode {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => {
                    if !takes_interrupts {
                        return ExitCode::from(INTERRUPTED);
                    }
                }
                _ = self.terminate.recv() => return ExitCode::from(TERMINATED),
                _ = self.hang_up.recv() => return ExitCode::from(TERMINATED),
            }
        }
    }
}
