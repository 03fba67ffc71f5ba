//! Incoming messages of channels, validated once.

use base64::{
    Engine as _, alphabet,
    engine::{
        DecodePaddingMode,
        general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD},
    },
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::domain::{
    id::{Malformed, ThreadId, checked_text},
    limits::{CHANNEL_NAME_BYTES_MAX, IMAGE_BYTES_MAX, KEY_CHARS_MAX, MESSAGE_TEXT_BYTES_MAX},
};

checked_text!(
    /// A channel's name in the configuration.
    ChannelName,
    "a channel is 1 to 32 characters of A-Z a-z 0-9 . _ -, the first a letter or a digit",
    |text| (1..=CHANNEL_NAME_BYTES_MAX).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
);
checked_text!(
    /// A chat of a channel: a private conversation, a group, a room.
    ChatId,
    "a chat id is 1 to 128 characters without control characters",
    is_id
);
checked_text!(
    /// A user's id in a channel; not a principal.
    UserId,
    "a user id is 1 to 128 characters without control characters",
    is_id
);
checked_text!(
    /// The channel's id of a delivery; a repeated id is the same message.
    MessageId,
    "a message id is 1 to 128 characters without control characters",
    is_id
);
checked_text!(
    /// A user's display name.
    Username,
    "a username is 1 to 128 characters without control characters",
    is_id
);

fn is_id(text: &str) -> bool {
    let chars = text.chars().count();
    (1..=KEY_CHARS_MAX).contains(&chars) && !text.chars().any(char::is_control)
}

/// The accepted kinds of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MediaType {
    #[serde(rename = "image/png")]
    Png,
    #[serde(rename = "image/jpeg")]
    Jpeg,
    #[serde(rename = "image/gif")]
    Gif,
    #[serde(rename = "image/webp")]
    Webp,
}

impl MediaType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
        }
    }

    /// The kind with this media type, ignoring case and parameters.
    pub fn of_name(name: &str) -> Option<Self> {
        let name = name.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        // Not registered, but common.
        let name = if name == "image/jpg" { "image/jpeg" } else { &name };
        [Self::Png, Self::Jpeg, Self::Gif, Self::Webp].into_iter().find(|kind| kind.as_str() == name)
    }

    /// The file extension of this kind.
    pub fn ending(self) -> &'static str {
        match self {
            Self::Png => "png",
            Self::Jpeg => "jpg",
            Self::Gif => "gif",
            Self::Webp => "webp",
        }
    }

    /// The kind that the first bytes identify, if any.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
            Some(Self::Png)
        } else if bytes.starts_with(b"\xff\xd8\xff") {
            Some(Self::Jpeg)
        } else if bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a") {
            Some(Self::Gif)
        } else if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP".as_slice()) {
            Some(Self::Webp)
        } else {
            None
        }
    }
}

/// Base64 with or without padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// An image within its bound, and the kind that its bytes identify or, if they identify none, that its sender stated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    pub media_type: MediaType,
    /// Standard alphabet, padded.
    pub base64: String,
}

/// Why an image was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidImage {
    #[error("the image is neither base64 (standard alphabet) nor a base64 data URI")]
    Encoding,
    #[error("an image may have at most {IMAGE_BYTES_MAX} bytes")]
    TooLarge,
    #[error("an image must be PNG, JPEG, GIF or WebP, and its bytes or its image_media_type must say so")]
    Kind,
    #[error("image_media_type must be one of image/png, image/jpeg, image/gif, image/webp, and match the bytes")]
    MediaType,
}

impl Image {
    /// Checks an image in base64 or as a data URI, and the media type sent with it.
    ///
    /// The bytes decide, and a stated kind must match them. If the bytes identify none, the stated kind is used; a
    /// model may still reject the image.
    pub fn new(text: &str, claimed: Option<&str>) -> Result<Self, InvalidImage> {
        let (own, base64) = of_data_uri(text)?;
        if base64.len() > IMAGE_BYTES_MAX.div_ceil(3) * 4 {
            return Err(InvalidImage::TooLarge);
        }
        let bytes = LENIENT.decode(base64).map_err(|_| InvalidImage::Encoding)?;
        if bytes.len() > IMAGE_BYTES_MAX {
            return Err(InvalidImage::TooLarge);
        }
        let mut media_type = MediaType::of_bytes(&bytes);
        for name in [own, claimed].into_iter().flatten().filter(|name| !name.trim().is_empty()) {
            let named = MediaType::of_name(name).ok_or(InvalidImage::MediaType)?;
            if *media_type.get_or_insert(named) != named {
                return Err(InvalidImage::MediaType);
            }
        }
        let media_type = media_type.filter(|_| !bytes.is_empty()).ok_or(InvalidImage::Kind)?;
        Ok(Self { media_type, base64: STANDARD.encode(&bytes) })
    }

    pub fn of_bytes(bytes: &[u8]) -> Result<Self, InvalidImage> {
        if bytes.len() > IMAGE_BYTES_MAX {
            return Err(InvalidImage::TooLarge);
        }
        let media_type = MediaType::of_bytes(bytes).ok_or(InvalidImage::Kind)?;
        Ok(Self { media_type, base64: STANDARD.encode(bytes) })
    }

    /// The decoded image.
    pub fn bytes(&self) -> Vec<u8> {
        STANDARD.decode(&self.base64).unwrap_or_default()
    }

    /// The size of the decoded image, bytes.
    pub fn size(&self) -> usize {
        self.bytes().len()
    }

    pub fn sha256(&self) -> String {
        hex::encode(Sha256::digest(self.bytes()))
    }
}

/// The media type and base64 of a data URI; any other text is taken as base64.
fn of_data_uri(text: &str) -> Result<(Option<&str>, &str), InvalidImage> {
    if !text.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:")) {
        return Ok((None, text));
    }
    let (head, base64) = text[5..].split_once(',').ok_or(InvalidImage::Encoding)?;
    let (media_type, encoding) = head.rsplit_once(';').ok_or(InvalidImage::Encoding)?;
    if encoding.eq_ignore_ascii_case("base64") { Ok((Some(media_type), base64)) } else { Err(InvalidImage::Encoding) }
}

/// A message of a channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inbound {
    pub message_id: Option<MessageId>,
    pub chat_id: ChatId,
    /// The thread that its session must be on, if the sender names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<ThreadId>,
    pub user_id: UserId,
    pub username: Option<Username>,
    pub text: Option<String>,
    pub is_private: bool,
    /// Asks for a new session.
    pub reset_session: bool,
    /// Addressed to the agent other than by its trigger: a reply to it, a mention.
    pub addressed: bool,
    pub image: Option<Image>,
    /// Further images of an album, fetched when the message is routed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_images: Vec<Image>,
    /// When it was sent or, if unknown, when it arrived.
    pub at: DateTime<Utc>,
    /// Fractional digits that the time was sent with; the agent reads as many.
    #[serde(default)]
    pub at_digits: u8,
    /// The trace of the request that delivered it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
}

impl Inbound {
    /// All its images.
    pub fn images(&self) -> impl Iterator<Item = &Image> {
        self.image.iter().chain(&self.more_images)
    }

    /// Adds an image.
    pub fn show(&mut self, image: Image) {
        match &self.image {
            Some(_) => self.more_images.push(image),
            None => self.image = Some(image),
        }
    }
}

/// Checks that a text is within its bound and can be stored.
pub fn check_text(text: &str) -> Result<(), Malformed> {
    if text.contains('\0') {
        return Err(Malformed("a text must not contain the character U+0000"));
    }
    let json = serde_json::to_string(text).map_or(usize::MAX, |json| json.len());
    if json > MESSAGE_TEXT_BYTES_MAX {
        return Err(Malformed("a text may have at most 32 KiB as JSON"));
    }
    Ok(())
}
