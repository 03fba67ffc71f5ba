//! Pages of a list: bounded in rows by the caller, and in bytes.

use futures::{Stream, TryStreamExt as _};

use super::Error;
use crate::domain::limits::LIST_PAGE_BYTES_MAX;

/// The requested page of a list: at most this many rows, after the one with this key.
#[derive(Clone, Debug)]
pub struct Page<K> {
    pub after: Option<K>,
    pub limit: i64,
}

/// The first `limit` of these rows, or fewer if they fill [`LIST_PAGE_BYTES_MAX`], and whether there are more. A query
/// for a page requests one row more than its limit. The connection skips what is not taken, a row at a time.
pub(super) async fn page<R: Send>(
    limit: i64,
    mut rows: impl Stream<Item = Result<R, sqlx::Error>> + Send + Unpin,
    size: impl Fn(&R) -> usize + Send,
) -> Result<(Vec<R>, bool), Error> {
    let (mut page, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.try_next().await? {
        bytes += size(&row);
        let is_over = bytes > LIST_PAGE_BYTES_MAX && !page.is_empty();
        if is_over || page.len() as i64 >= limit {
            return Ok((page, true));
        }
        page.push(row);
    }
    Ok((page, false))
}
