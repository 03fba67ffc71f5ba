//! The log of a conversation, line by line, the same on every server.

use crate::store::sessions::Sessions;
use crate::{
    domain::{id::ThreadId, limits::SESSION_LINES_PAGE_ROWS, principal::OwnerId},
    store::{Error, page::page, transaction::Tx},
};

/// Lines in order, and where the next page begins.
#[derive(Debug)]
pub struct Lines {
    /// Each ends with a line feed.
    pub text: String,
    /// `None` after the last line.
    pub next: Option<i64>,
}

struct Line {
    line_no: i64,
    line: String,
}

impl Sessions<'_> {
    /// A page of a thread's lines after a line number, 0 at first.
    pub async fn lines(self, owner: &OwnerId, thread: &ThreadId, after: i64) -> Result<Lines, Error> {
        self.scoped(owner, async |mut connection| {
            let rows = sqlx::query_as!(
                Line,
                r#"select line_no, line from store.session_line
                   where owner_id = $1 and thread_id = $2 and line_no > $3 order by line_no limit $4"#,
                owner.as_str(),
                thread.as_str(),
                after,
                SESSION_LINES_PAGE_ROWS + 1
            );
            let (rows, more) =
                page(SESSION_LINES_PAGE_ROWS, rows.fetch(&mut *connection), |row| row.line.len()).await?;
            let next = rows.last().map(|row| row.line_no).filter(|_| more);
            Ok(Lines { text: rows.into_iter().map(|row| row.line).collect(), next })
        })
        .await
    }
}

/// Adds a user's message. Its key is the message's number, so adding it again has no effect.
pub(super) async fn insert_line(
    tx: &mut Tx,
    owner: &OwnerId,
    thread: &ThreadId,
    inbound_no: i64,
    line: &str,
) -> Result<(), Error> {
    sqlx::query!(
        r#"insert into store.session_line (owner_id, thread_id, line_key, line) values ($1, $2, $3, $4)
           on conflict do nothing"#,
        owner.as_str(),
        thread.as_str(),
        format!("message {inbound_no}"),
        line
    )
    .execute(&mut **tx)
    .await?;
    Ok(())
}
