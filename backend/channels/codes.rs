//! One-time codes: shown once to their creator, stored as a keyed hash, valid once and for a limited time.

use chrono::{DateTime, TimeDelta, Utc};

use crate::{
    clock::IdSource,
    domain::{
        principal::OwnerId,
        session::{inbound::ChannelName, keyed_hash},
    },
    store::{self, Store},
};

/// Letters and digits that are not easily confused.
const ALPHABET: &[u8; 30] = b"23456789ABCDEFGHJKMNPQRSTVWXYZ";
/// Characters of a code; about 39 bits.
const CODE_CHARS: usize = 8;

/// A new code.
#[derive(Clone, Debug)]
pub struct Code {
    /// `XXXX-XXXX`.
    pub text: String,
    pub expires_at: DateTime<Utc>,
}

/// Creates a code for a channel of this owner; `None` if the channel has too many unused ones.
pub async fn make(
    store: &Store,
    ids: &IdSource,
    key: &[u8],
    (owner, channel): (&OwnerId, &ChannelName),
    (now, life_s): (DateTime<Utc>, i64),
) -> Result<Option<Code>, store::Error> {
    let plain = random(ids);
    let expires_at = now + TimeDelta::seconds(life_s);
    let added = store.codes().add(owner, channel, &hash(key, owner, channel, &plain), (now, expires_at)).await?;
    let text = format!("{}-{}", &plain[..CODE_CHARS / 2], &plain[CODE_CHARS / 2..]);
    Ok(added.then_some(Code { text, expires_at }))
}

/// The hash under which the store keeps a code.
pub fn hash(key: &[u8], owner: &OwnerId, channel: &ChannelName, plain: &str) -> [u8; 32] {
    keyed_hash(key, &["channel-code", owner.as_str(), channel.as_str(), plain])
}

/// The code in a text, if the text looks like one: in upper or lower case, with or without spaces and dashes.
pub fn read(text: &str) -> Option<String> {
    let plain: String =
        text.chars().filter(|c| !c.is_whitespace() && *c != '-').map(|c| c.to_ascii_uppercase()).take(9).collect();
    (plain.len() == CODE_CHARS && plain.bytes().all(|b| ALPHABET.contains(&b))).then_some(plain)
}

fn random(ids: &IdSource) -> String {
    let mut code = String::new();
    while code.len() < CODE_CHARS {
        // Bytes from 240 on would make the first characters more likely.
        let bytes = ids.secret();
        let fair =
            bytes.iter().rev().filter(|byte| **byte < 240).map(|byte| char::from(ALPHABET[usize::from(*byte % 30)]));
        code.extend(fair.take(CODE_CHARS - code.len()));
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[test]
    fn a_code_is_read_however_people_write_it() {
        for text in ["ABCD-2345", " abcd 2345\n", "AbCd2345", "a-b-c-d-2-3-4-5"] {
            assert_eq!(read(text).as_deref(), Some("ABCD2345"), "{text}");
        }
        for text in ["", "hello", "ABCD-234", "ABCD-23456", "ABCD-234O", "ÄBCD2345", "A hello there"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn codes_differ_and_can_be_read_again() {
        let ids = IdSource::random(Clock::System);
        let codes: std::collections::HashSet<String> = (0..1_000).map(|_| random(&ids)).collect();
        assert_eq!(codes.len(), 1_000);
        assert!(codes.iter().all(|code| read(code).as_deref() == Some(code)));
    }

    #[test]
    fn a_hash_is_of_its_owner_and_channel_only() {
        let (a, b) = (OwnerId::trusted("a"), OwnerId::trusted("b"));
        let (one, other) = (ChannelName::trusted("one"), ChannelName::trusted("other"));
        let all = [(&a, &one), (&b, &one), (&a, &other)].map(|(owner, channel)| hash(b"k", owner, channel, "ABCD2345"));
        assert!(all[0] != all[1] && all[0] != all[2] && all[0] != hash(b"l", &a, &one, "ABCD2345"));
    }
}
