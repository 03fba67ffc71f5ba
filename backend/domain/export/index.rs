//! The artifacts included in an export, and the events that describe them.

use serde::{Deserialize, Serialize};

use super::{LineError, check_letter, named};
use crate::domain::{
    artifact::{ArtifactId, ArtifactName, Hash, MediaType},
    event::{EventKind, Recorded},
    id::{EventId, RunId, Seq},
};

/// The artifact name of an offloaded payload.
const PAYLOAD_NAME: &str = "payload.json";

/// A line about an artifact whose bytes are included.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachedArtifact {
    pub run_id: RunId,
    /// The event that describes it.
    pub seq: Seq,
    pub artifact_id: ArtifactId,
    pub name: ArtifactName,
    pub media_type: MediaType,
    pub size: u64,
    pub sha256: Hash,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Artifact(AttachedArtifact),
}

impl AttachedArtifact {
    pub fn line(&self) -> String {
        named("artifact", self)
    }

    pub fn read(line: &str) -> Result<Self, LineError> {
        let read = serde_json::from_str(line);
        let Line::Artifact(enclosed) = read.map_err(|error| LineError::tell(format!("not an artifact: {error}")))?;
        check_letter(line, &enclosed.line()).map(|()| enclosed)
    }
}

/// An event that describes an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mention {
    pub enclosed: AttachedArtifact,
    pub event_id: EventId,
}

#[derive(Deserialize)]
struct Pointer {
    artifact_id: ArtifactId,
    name: Option<ArtifactName>,
    media_type: MediaType,
    size: u64,
    sha256: Hash,
}

/// The artifact an event describes, if any: by `artifact.created`, or as its offloaded payload.
pub fn mention(event: &Recorded) -> Option<Mention> {
    let is_created = event.event_type.is(EventKind::ArtifactCreated);
    let pointer: Pointer = if is_created {
        serde_json::from_str(event.payload.as_str()).ok()?
    } else if event.payload.as_str().starts_with("{\"$artifact\":") {
        event.payload.member("$artifact")?
    } else {
        return None;
    };
    let name = if is_created { pointer.name? } else { ArtifactName::trusted(PAYLOAD_NAME) };
    let enclosed = AttachedArtifact {
        run_id: event.run_id,
        seq: event.seq?,
        artifact_id: pointer.artifact_id,
        name,
        media_type: pointer.media_type,
        size: pointer.size,
        sha256: pointer.sha256,
    };
    Some(Mention { enclosed, event_id: event.event_id.clone()? })
}
