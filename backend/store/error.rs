//! Database errors, as far as callers need to distinguish them.

/// A database failure, without SQL.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database cannot be reached or does not answer in time. A later retry may help.
    #[error("the database cannot be reached")]
    Unavailable(#[source] Option<sqlx::Error>),
    /// The principal has reached its limit of concurrent reads. Nothing was done.
    #[error("too many concurrent requests of the same principal")]
    Busy,
    /// What was to be written exists already, or another writer came first. Nothing was written.
    #[error("another writer was faster")]
    Conflict(#[source] sqlx::Error),
    /// The database's types cannot hold a value that was sent, such as a number of 200 000 digits.
    #[error("the database cannot hold a value of this request")]
    Unstorable(#[source] sqlx::Error),
    /// What is read or would be written has more bytes than a bound allows; the text states which. Nothing was written.
    #[error("{0}")]
    TooLarge(String),
    /// The database or its rows are in an unexpected state.
    #[error("the database answered something unexpected")]
    Broken(#[source] sqlx::Error),
    /// This program cannot work with the database; the text states what to do.
    #[error("{0}")]
    Incompatible(String),
}

/// Why the database is unusable now, as far as an operator can act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Outage {
    #[error("the database cannot be reached")]
    Unreachable,
    #[error("the database does not answer in time")]
    Slow,
    #[error("the database's disk is full")]
    Full,
    #[error("the database is read-only")]
    ReadOnly,
    #[error("the database has no connection left")]
    Crowded,
    #[error("the database gives the server no permission to write")]
    Forbidden,
}

/// Whether a failed statement was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// No answer: it may have been executed.
    Unanswered,
    /// The answer could not be decoded: it was executed.
    Unreadable,
    /// Not executed: the database temporarily does not accept such statements.
    NotAccepted,
    /// Not executed: timed out waiting for another transaction's lock.
    Locked,
    /// Not executed: another writer came first.
    Overtaken,
    /// Not executed, and not worth a retry.
    Refused,
}

/// Rejects a stored value that this version does not know: its meaning cannot be guessed.
pub(super) fn known<T>(parsed: Option<T>, word: &str) -> Result<T, Error> {
    let unknown = || {
        format!("the table contains {word:?}, which this version does not know; a newer version may have written it")
    };
    parsed.ok_or_else(|| Error::Broken(sqlx::Error::Decode(unknown().into())))
}

impl Error {
    pub fn timeout() -> Self {
        Self::Unavailable(None)
    }

    /// Why the database is unusable now; `None` if it is usable.
    pub fn outage(&self) -> Option<Outage> {
        let Self::Unavailable(cause) = self else { return None };
        let Some(sqlx::Error::Database(error)) = cause else {
            return Some(if cause.is_none() { Outage::Slow } else { Outage::Unreachable });
        };
        Some(match error.code().as_deref() {
            Some("53100") => Outage::Full,
            Some("42501") if !is_read_only_volume(error.as_ref()) => Outage::Forbidden,
            Some("25006" | "42501") => Outage::ReadOnly,
            Some("53300") => Outage::Crowded,
            Some("57014" | "55P03") => Outage::Slow,
            _ => Outage::Unreachable,
        })
    }

    /// Whether the statement was executed.
    pub fn fate(&self) -> Fate {
        match self {
            Self::Unavailable(Some(sqlx::Error::Database(error))) => match error.code().as_deref() {
                Some("55P03") => Fate::Locked,
                // From a database that is shutting down, or about a broken connection: does not say whether it was
                // executed.
                Some(code) if !code.starts_with("57P") && !code.starts_with("08") => Fate::NotAccepted,
                _ => Fate::Unanswered,
            },
            Self::Unavailable(_) => Fate::Unanswered,
            Self::Conflict(_) => Fate::Overtaken,
            Self::Broken(cause) if !matches!(cause, sqlx::Error::Database(_)) => Fate::Unreadable,
            Self::Busy | Self::Unstorable(_) | Self::TooLarge(_) | Self::Broken(_) | Self::Incompatible(_) => {
                Fate::Refused
            }
        }
    }

    /// Whether a connection failed, rather than none being available.
    pub fn is_lost_connection(&self) -> bool {
        matches!(self, Self::Unavailable(Some(sqlx::Error::Io(_) | sqlx::Error::Protocol(_))))
            || matches!(self, Self::Unavailable(Some(sqlx::Error::Database(error)))
                if error.code().is_some_and(|code| code.starts_with("57P")))
    }

    /// Whether the database cancelled a statement because it took too long.
    pub fn is_too_slow(&self) -> bool {
        matches!(self, Self::Unavailable(Some(sqlx::Error::Database(error)))
            if error.code().is_some_and(|code| code == "57014"))
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::Error as E;
        match &error {
            E::Io(_) | E::Tls(_) | E::Protocol(_) | E::PoolTimedOut | E::PoolClosed | E::WorkerCrashed => {
                Self::Unavailable(Some(error))
            }
            E::Database(database) => match database.code().as_deref() {
                Some("23505" | "40001" | "40P01") => Self::Conflict(error),
                // The partition of the event's month was just dropped; unlike a check constraint, this error has no
                // name.
                Some("23514") if database.constraint().is_none() => Self::Conflict(error),
                // 08 connection, 57P admin shutdown and crash, 53 out of resources, 57014 statement timeout, 55P03
                // lock, 25006 read-only, 25P03 idle in a transaction, 42501 a privilege or a read-only volume, 58030
                // input and output.
                Some(code)
                    if code.starts_with("08")
                        || code.starts_with("57P")
                        || code.starts_with("53")
                        || matches!(code, "57014" | "55P03" | "25006" | "25P03" | "42501" | "58030") =>
                {
                    Self::Unavailable(Some(error))
                }
                // 22 data exception, 54 program limit exceeded (a row too large for an index, say).
                Some(code) if code.starts_with("22") || code.starts_with("54") => Self::Unstorable(error),
                _ => Self::Broken(error),
            },
            _ => Self::Broken(error),
        }
    }
}

/// A volume that became read-only is reported as a lack of privilege.
fn is_read_only_volume(error: &dyn sqlx::error::DatabaseError) -> bool {
    error.message().contains("Read-only file system")
}
