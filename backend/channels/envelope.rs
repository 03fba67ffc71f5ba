//! [`Envelope`]: a message as stored in the inbox.

use serde::{Deserialize, Serialize};

use super::telegram::FileId;
use crate::domain::{json::Json, limits::ALBUM_PIECES_MAX, session::inbound::Inbound};

/// The content of a row of the inbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Envelope {
    pub inbound: Inbound,
    /// An image not fetched yet.
    pub photo: Option<FileId>,
    pub target: Option<Json>,
    /// The id shared by the pieces of an album, which arrive one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub album: Option<String>,
    /// The other pieces of the album that have arrived.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more: Vec<Envelope>,
}

impl Envelope {
    /// The album with one more piece; `None` if it is full.
    pub(super) fn with(mut self, piece: Self) -> Option<Self> {
        if self.more.len() + 1 >= ALBUM_PIECES_MAX {
            return None;
        }
        self.more.push(piece);
        Some(self)
    }

    /// Combines the pieces, in the order in which they were sent, into one message with their texts and all their
    /// images.
    pub(super) fn whole(mut self) -> (Inbound, Vec<FileId>, Option<Json>) {
        let mut pieces = std::mem::take(&mut self.more);
        pieces.push(self);
        pieces.sort_by_key(|piece| {
            piece.inbound.message_id.as_ref().and_then(|id| id.as_str().parse().ok()).unwrap_or(i64::MAX)
        });
        let photos = pieces.iter().filter_map(|piece| piece.photo.clone()).collect();
        let texts: Vec<_> = pieces.iter().filter_map(|piece| piece.inbound.text.as_deref()).collect();
        let (text, addressed) = (texts.join("\n"), pieces.iter().any(|piece| piece.inbound.addressed));
        let has_text = !texts.is_empty();
        let Self { inbound, target, .. } = pieces.swap_remove(0);
        (Inbound { text: has_text.then_some(text), addressed, ..inbound }, photos, target)
    }
}
