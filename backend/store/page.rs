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
/// for a page requests one row more than its limit. The connection discards the remaining rows one at a time.
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{executor::block_on, stream};
    use proptest::prelude::*;

    proptest! {
        /// Each row is its own size, in eighths of the byte limit of a page.
        #[test]
        fn pages_have_every_row_once_whatever_its_size(
            rows in proptest::collection::vec(0usize..24, 0..40), limit in 1usize..10,
        ) {
            let mut read = Vec::new();
            loop {
                let rest = rows[read.len()..].iter().map(|row| Ok(*row));
                let size = |row: &usize| row * (LIST_PAGE_BYTES_MAX / 8);
                let (page, has_more) = block_on(page(limit as i64, stream::iter(rest), size)).unwrap();
                let bytes: usize = page.iter().map(size).sum();
                prop_assert!(page.len() <= limit && (bytes <= LIST_PAGE_BYTES_MAX || page.len() == 1));
                prop_assert!(!page.is_empty() || !has_more);
                read.extend(page);
                prop_assert_eq!(has_more, read.len() < rows.len());
                if !has_more {
                    break;
                }
            }
            prop_assert_eq!(read, rows);
        }
    }
}
