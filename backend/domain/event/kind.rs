//! The events that have a meaning to this program, in one table. All others belong to their producers.

use crate::domain::run::Status;

/// Declares the kinds, each with its event type.
macro_rules! kinds {
    ($($kind:ident $word:literal $($status:ident)?,)+) => {
        /// The kind of an event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum EventKind {
            $(#[doc = concat!("`", $word, "`")] $kind,)+
        }

        impl EventKind {
            pub const ALL: &[Self] = &[$(Self::$kind),+];

            /// Its event type.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$kind => $word,)+
                }
            }

            /// The kind with this event type.
            pub fn parse(text: &str) -> Option<Self> {
                match text {
                    $($word => Some(Self::$kind),)+
                    _ => None,
                }
            }

            /// The status of the run after it; `None` if it does not change.
            pub const fn status(self) -> Option<Status> {
                match self {
                    $($(Self::$kind => Some(Status::$status),)?)+
                    _ => None,
                }
            }
        }
    };
}

impl EventKind {
    /// The first word.
    pub fn family(self) -> &'static str {
        self.as_str().split('.').next().unwrap_or_default()
    }

    /// Whether only the server emits it: it records a request that has its own endpoint.
    pub fn is_the_servers(self) -> bool {
        matches!(self, Self::RunCreated | Self::InterruptResolved | Self::ArtifactCreated)
    }
}

kinds! {
    RunCreated "run.created" Queued,
    RunStarted "run.started" Running,
    RunWaiting "run.waiting" Waiting,
    RunInterrupted "run.interrupted" Interrupted,
    RunResumed "run.resumed" Running,
    RunCompleted "run.completed" Completed,
    RunFailed "run.failed" Failed,
    RunCancelled "run.cancelled" Cancelled,
    StepStarted "step.started",
    StepCompleted "step.completed",
    StepFailed "step.failed",
    ToolStarted "tool.started",
    ToolCompleted "tool.completed",
    ToolFailed "tool.failed",
    WorkerSpawned "worker.spawned",
    WorkerCompleted "worker.completed",
    WorkerFailed "worker.failed",
    MessageCompleted "message.completed",
    MessageDelta "message.delta",
    ReasoningCompleted "reasoning.completed",
    ReasoningDelta "reasoning.delta",
    ArtifactCreated "artifact.created",
    StateCheckpointed "state.checkpointed",
    StateCompacted "state.compacted",
    InterruptRequested "interrupt.requested",
    InterruptResolved "interrupt.resolved",
    LogDebug "log.debug",
    LogInfo "log.info",
    LogWarn "log.warn",
    LogError "log.error",
}
