//! Artifacts and their content: an uploader claims the bytes, a remover locks them.
//!
//! This order prevents dangling pointers: the content is claimed, its bytes are stored under their hash, the artifact
//! is inserted (the foreign key rejects it if the content is gone), and only then its event is emitted. Interrupted
//! uploads are found by [`Artifacts::reconcile`] and [`super::content`].

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{
    Error, bounded,
    content::signed,
    page::{Page, page},
};
use crate::domain::{
    artifact::{ArtifactId, ArtifactName, Hash, MediaType},
    export::index::Mention,
    id::{EventId, Name, RunId, Seq},
    limits::READ_WAIT_MS_MAX,
    principal::OwnerId,
};

/// An artifact as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    pub artifact_id: ArtifactId,
    pub run_id: RunId,
    /// The event that announces it.
    pub event_id: EventId,
    pub name: ArtifactName,
    pub media_type: MediaType,
    pub size: u64,
    pub sha256: Hash,
    pub created_at: DateTime<Utc>,
}

impl Artifact {
    /// Whether an event describes it identically.
    pub fn is_told_by(&self, mention: &Mention) -> bool {
        let enclosed = &mention.enclosed;
        (self.artifact_id, self.run_id, &self.event_id) == (enclosed.artifact_id, enclosed.run_id, &mention.event_id)
            && (&self.name, &self.media_type, self.size, self.sha256)
                == (&enclosed.name, &enclosed.media_type, enclosed.size, enclosed.sha256)
    }
}

/// An artifact in a list, with the seq of its event, and in the list of all runs its run's title and agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedArtifact {
    pub artifact: Artifact,
    pub seq: Seq,
    pub run_title: Option<String>,
    pub agent: Option<Name>,
}

/// The result of [`Artifacts::reconcile`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// Their event is in the log.
    pub kept: u64,
    /// Their event is not in the log and will not be emitted.
    pub removed: u64,
}

struct Row {
    artifact_id: Uuid,
    run_id: Uuid,
    event_id: String,
    name: String,
    media_type: String,
    size: i64,
    sha256: Vec<u8>,
    created_at: DateTime<Utc>,
}

impl From<Row> for Artifact {
    fn from(row: Row) -> Self {
        Self {
            artifact_id: ArtifactId::trusted(row.artifact_id),
            run_id: RunId::trusted(row.run_id),
            event_id: EventId::trusted(&row.event_id),
            name: ArtifactName::trusted(&row.name),
            media_type: MediaType::trusted(&row.media_type),
            size: row.size.unsigned_abs(),
            sha256: Hash::from_bytes(&row.sha256).unwrap_or(Hash::new([0; 32])),
            created_at: row.created_at,
        }
    }
}

struct ListedRow {
    artifact_id: Uuid,
    run_id: Uuid,
    event_id: String,
    name: String,
    media_type: String,
    size: i64,
    sha256: Vec<u8>,
    created_at: DateTime<Utc>,
    seq: i64,
    title: Option<String>,
    agent: Option<String>,
}

impl From<ListedRow> for ListedArtifact {
    fn from(row: ListedRow) -> Self {
        let ListedRow { artifact_id, run_id, event_id, name, media_type, size, sha256, created_at, .. } = row;
        Self {
            artifact: Row { artifact_id, run_id, event_id, name, media_type, size, sha256, created_at }.into(),
            seq: Seq::new(row.seq).unwrap_or_default(),
            run_title: row.title,
            agent: row.agent.as_deref().map(Name::trusted),
        }
    }
}

repository! {
    /// Artifacts, and the contents they refer to.
    Artifacts, artifacts
}

impl Artifacts<'_> {
    /// The name of this database's part of an artifact store.
    pub async fn home(self) -> Result<Uuid, Error> {
        self.maintenance(async |mut connection| {
            Ok(sqlx::query_scalar!("select home from store.artifact_home").fetch_one(&mut *connection).await?)
        })
        .await
    }

    /// Inserts artifacts whose bytes are durable; `false`, with nothing done, if one of the contents is gone.
    pub async fn insert(self, owner: &OwnerId, artifacts: &[Artifact]) -> Result<bool, Error> {
        let column = |text: fn(&Artifact) -> String| artifacts.iter().map(text).collect::<Vec<_>>();
        let ids: Vec<Uuid> = artifacts.iter().map(|artifact| artifact.artifact_id.uuid()).collect();
        let runs: Vec<Uuid> = artifacts.iter().map(|artifact| artifact.run_id.uuid()).collect();
        let sizes: Vec<i64> = artifacts.iter().map(|artifact| signed(artifact.size)).collect();
        let hashes: Vec<Vec<u8>> = artifacts.iter().map(|artifact| artifact.sha256.as_bytes().to_vec()).collect();
        let times: Vec<DateTime<Utc>> = artifacts.iter().map(|artifact| artifact.created_at).collect();
        self.scoped(owner, async |mut connection| {
            let done = sqlx::query!(
                r#"insert into store.artifact
                       (artifact_id, owner_id, run_id, event_id, name, media_type, size, sha256, created_at, touched_at)
                   select n.artifact_id, $1, n.run_id, n.event_id, n.name, n.media_type, n.size, n.sha256,
                          n.created_at, n.created_at
                   from unnest($2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::bytea[],
                               $9::timestamptz[])
                        as n(artifact_id, run_id, event_id, name, media_type, size, sha256, created_at)"#,
                owner.as_str(),
                &ids,
                &runs,
                &column(|artifact| artifact.event_id.as_str().to_owned()),
                &column(|artifact| artifact.name.as_str().to_owned()),
                &column(|artifact| artifact.media_type.as_str().to_owned()),
                &sizes,
                &hashes,
                &times
            )
            .execute(&mut *connection)
            .await;
            match done {
                Ok(_) => {}
                Err(sqlx::Error::Database(error)) if error.is_foreign_key_violation() => return Ok(false),
                Err(error) => return Err(error.into()),
            }
            Ok(true)
        })
        .await
    }

    /// Artifacts left by earlier attempts at the same events: same event id and same content. Postpones their removal.
    pub async fn reuse(
        self,
        owner: &OwnerId,
        run: RunId,
        wanted: &[(EventId, Hash)],
        now: DateTime<Utc>,
    ) -> Result<Vec<Artifact>, Error> {
        let events: Vec<String> = wanted.iter().map(|(event, _)| event.as_str().to_owned()).collect();
        let hashes: Vec<Vec<u8>> = wanted.iter().map(|(_, hash)| hash.as_bytes().to_vec()).collect();
        self.scoped(owner, async |mut connection| {
            let rows = sqlx::query_as!(
                Row,
                r#"update store.artifact a set touched_at = greatest(touched_at, $5)
                   from unnest($3::text[], $4::bytea[]) as w(event_id, sha256)
                   where a.owner_id = $1 and a.run_id = $2 and a.event_id = w.event_id and a.sha256 = w.sha256
                   returning a.artifact_id, a.run_id, a.event_id, a.name, a.media_type, a.size, a.sha256, a.created_at"#,
                owner.as_str(),
                run.uuid(),
                &events,
                &hashes,
                now
            )
            .fetch_all(&mut *connection)
            .await?;
            Ok(rows.into_iter().map(Artifact::from).collect())
        })
        .await
    }

    /// The artifacts uploaded for events with these ids.
    pub async fn of_events(self, owner: &OwnerId, run: RunId, events: &[EventId]) -> Result<Vec<Artifact>, Error> {
        let events: Vec<String> = events.iter().map(|event| event.as_str().to_owned()).collect();
        self.scoped(owner, async |mut connection| {
            let rows = sqlx::query_as!(
                Row,
                r#"select artifact_id, run_id, event_id, name, media_type, size, sha256, created_at
                   from store.artifact where owner_id = $1 and run_id = $2 and event_id = any ($3)"#,
                owner.as_str(),
                run.uuid(),
                &events
            )
            .fetch_all(&mut *connection)
            .await?;
            Ok(rows.into_iter().map(Artifact::from).collect())
        })
        .await
    }

    /// Removes the artifacts among these that have no event.
    pub async fn forget(self, owner: &OwnerId, artifacts: &[ArtifactId]) -> Result<(), Error> {
        let ids: Vec<Uuid> = artifacts.iter().map(|artifact| artifact.uuid()).collect();
        self.scoped(owner, async |mut connection| {
            sqlx::query!(
                r#"delete from store.artifact a where a.owner_id = $1 and a.artifact_id = any ($2)
                   and not exists (select from store.run_event e where e.run_id = a.run_id and e.event_id = a.event_id
                                   and store.artifact_named_by(e.payload) = a.artifact_id::text)"#,
                owner.as_str(),
                &ids
            )
            .execute(&mut *connection)
            .await?;
            Ok(())
        })
        .await
    }

    /// One artifact of this owner.
    pub async fn get(self, owner: &OwnerId, artifact: ArtifactId) -> Result<Option<Artifact>, Error> {
        self.scoped(owner, async |mut connection| {
            let row = sqlx::query_as!(
                Row,
                r#"select artifact_id, run_id, event_id, name, media_type, size, sha256, created_at
                   from store.artifact where artifact_id = $1 and owner_id = $2"#,
                artifact.uuid(),
                owner.as_str()
            )
            .fetch_optional(&mut *connection)
            .await?;
            Ok(row.map(Artifact::from))
        })
        .await
    }

    /// The artifact that an event of a run announces.
    pub async fn of_event(self, owner: &OwnerId, run: RunId, event: &EventId) -> Result<Option<Artifact>, Error> {
        self.scoped(owner, async |mut connection| {
            let row = sqlx::query_as!(
                Row,
                r#"select a.artifact_id, a.run_id, a.event_id, a.name, a.media_type, a.size, a.sha256, a.created_at
                   from store.artifact a join store.run_event e on e.run_id = a.run_id and e.event_id = a.event_id
                   where a.run_id = $2 and a.event_id = $3 and a.owner_id = $1 and e.type = 'artifact.created'
                     and store.artifact_named_by(e.payload) = a.artifact_id::text"#,
                owner.as_str(),
                run.uuid(),
                event.as_str()
            )
            .fetch_optional(&mut *connection)
            .await?;
            Ok(row.map(Artifact::from))
        })
        .await
    }

    /// The artifacts in a run's log, newest first, each with its event's seq.
    pub async fn list(
        self,
        owner: &OwnerId,
        run: RunId,
        wanted: &Page<ArtifactId>,
    ) -> Result<(Vec<ListedArtifact>, bool), Error> {
        self.scoped(owner, async |mut connection| {
            let rows = sqlx::query_as!(
                ListedRow,
                r#"select a.artifact_id, a.run_id, a.event_id, a.name, a.media_type, a.size, a.sha256,
                          e.at as created_at, e.seq, null::text as title, null::text as agent
                   from store.artifact a join store.run_event e on e.run_id = a.run_id and e.event_id = a.event_id
                   where a.run_id = $2 and a.owner_id = $1 and ($3::uuid is null or a.artifact_id < $3)
                     and store.artifact_named_by(e.payload) = a.artifact_id::text
                   order by a.artifact_id desc limit $4"#,
                owner.as_str(),
                run.uuid(),
                wanted.after.map(ArtifactId::uuid),
                wanted.limit + 1
            );
            let (rows, more) = page(wanted.limit, rows.fetch(&mut *connection), |row| row.name.len()).await?;
            Ok((rows.into_iter().map(ListedArtifact::from).collect(), more))
        })
        .await
    }

    /// The same for all runs, each with its run's title and agent.
    pub async fn list_all(
        self,
        owner: &OwnerId,
        wanted: &Page<ArtifactId>,
    ) -> Result<(Vec<ListedArtifact>, bool), Error> {
        self.scoped(owner, async |mut connection| {
            let rows = sqlx::query_as!(
                ListedRow,
                r#"select a.artifact_id, a.run_id, a.event_id, a.name, a.media_type, a.size, a.sha256,
                          e.at as created_at, e.seq, r.title, r.agent
                   from store.artifact a
                   join store.run_event e on e.run_id = a.run_id and e.event_id = a.event_id
                   join store.run r on r.run_id = a.run_id
                   where a.owner_id = $1 and r.owner_id = $1 and ($2::uuid is null or a.artifact_id < $2)
                     and store.artifact_named_by(e.payload) = a.artifact_id::text
                   order by a.artifact_id desc limit $3"#,
                owner.as_str(),
                wanted.after.map(ArtifactId::uuid),
                wanted.limit + 1
            );
            let (rows, more) = page(wanted.limit, rows.fetch(&mut *connection), |row| row.name.len()).await?;
            Ok((rows.into_iter().map(ListedArtifact::from).collect(), more))
        })
        .await
    }

    /// Looks for the events of artifacts untouched since `before`, and removes those that have none.
    pub async fn reconcile(self, before: DateTime<Utc>, limit: i64) -> Result<Reconciled, Error> {
        bounded(READ_WAIT_MS_MAX, async {
            let mut tx = self.upkeep_transaction().await?;
            let old = sqlx::query_scalar!(
                r#"select artifact_id from store.artifact where not settled and touched_at < $1
                   order by touched_at limit $2 for update skip locked"#,
                before,
                limit
            )
            .fetch_all(&mut *tx)
            .await?;
            let kept = sqlx::query!(
                r#"update store.artifact a set settled = true where a.artifact_id = any ($1)
                   and exists (select from store.run_event e where e.run_id = a.run_id and e.event_id = a.event_id
                               and store.artifact_named_by(e.payload) = a.artifact_id::text)"#,
                &old
            )
            .execute(&mut *tx)
            .await?
            .rows_affected();
            let removed = sqlx::query!("delete from store.artifact where artifact_id = any ($1) and not settled", &old)
                .execute(&mut *tx)
                .await?
                .rows_affected();
            tx.commit().await?;
            Ok(Reconciled { kept, removed })
        })
        .await
    }
}
