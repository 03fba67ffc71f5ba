//! The inbox: messages of channels from their arrival until they are processed.

mod join;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::Error;
use crate::domain::{
    id::RunId,
    json::Json,
    principal::OwnerId,
    session::{
        Reason,
        inbound::{ChannelName, ChatId, MessageId},
    },
};

/// A claimed message, with the ids its runs have or will have.
#[derive(Clone, Debug)]
pub struct ClaimedMessage {
    pub inbound_no: i64,
    pub owner_id: OwnerId,
    pub channel: ChannelName,
    pub content: Json,
    pub router_run_id: RunId,
    pub run_id: RunId,
    pub received_at: DateTime<Utc>,
    /// How often it was claimed, including this time.
    pub attempts: i32,
}

/// A message to be put into the inbox.
#[derive(Clone, Debug)]
pub struct Arrival<'a> {
    pub owner: &'a OwnerId,
    pub channel: &'a ChannelName,
    /// Without one, every delivery is a separate message.
    pub message_id: Option<&'a MessageId>,
    pub chat_id: &'a ChatId,
    pub content: Json,
    pub router_run_id: RunId,
    pub run_id: RunId,
    pub now: DateTime<Utc>,
    pub lease_until: DateTime<Utc>,
    /// Whether to leave it for a later claim.
    pub for_later: bool,
}

/// The state of a known delivery.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    pub inbound_no: i64,
    pub router_run_id: RunId,
    /// The run it has or would have.
    pub run_id: RunId,
    pub stands: DeliveryState,
}

/// How far a delivery has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    /// It is being processed.
    Open,
    /// Its run exists.
    Accepted,
    /// It has no run: it was filtered or abandoned, or is held until its user enters a code.
    NoRun,
}

impl DeliveryState {
    fn of(state: &str, reason: Option<&str>) -> Self {
        match (state, reason) {
            ("open", _) => Self::Open,
            ("done", None) => Self::Accepted,
            _ => Self::NoRun,
        }
    }
}

/// What happened to an arrival.
#[derive(Clone, Debug)]
pub enum Enqueued {
    /// The caller holds it for a lease, for the first time or after another worker failed.
    ClaimedMessage(Box<ClaimedMessage>),
    /// It has been processed or is being processed.
    Known(Delivery),
}

/// How the processing of a message ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// It started its run.
    Accepted,
    Filtered(Reason),
    /// It was abandoned.
    Failed,
}

#[derive(Debug)]
struct Row {
    inbound_no: i64,
    owner_id: String,
    channel: String,
    content: Option<String>,
    router_run_id: Uuid,
    run_id: Uuid,
    received_at: DateTime<Utc>,
    attempts: i32,
}

impl From<Row> for ClaimedMessage {
    fn from(row: Row) -> Self {
        Self {
            inbound_no: row.inbound_no,
            owner_id: OwnerId::trusted(&row.owner_id),
            channel: ChannelName::trusted(&row.channel),
            content: row.content.map_or_else(Json::empty, Json::trusted),
            router_run_id: RunId::trusted(row.router_run_id),
            run_id: RunId::trusted(row.run_id),
            received_at: row.received_at,
            attempts: row.attempts,
        }
    }
}

/// The key that deliveries of one message share: the chat and the id. Neither contains a control character, so
/// different pairs have different keys; a message without an id gets a key of its own.
fn key(arrival: &Arrival<'_>) -> String {
    match arrival.message_id {
        Some(id) => format!("={}\u{1f}{id}", arrival.chat_id),
        None => format!("#{}", arrival.run_id),
    }
}

#[derive(Debug)]
struct Known {
    inbound_no: i64,
    router_run_id: Uuid,
    run_id: Uuid,
    state: String,
    reason: Option<String>,
}

impl From<Known> for Delivery {
    fn from(row: Known) -> Self {
        Self {
            inbound_no: row.inbound_no,
            router_run_id: RunId::trusted(row.router_run_id),
            run_id: RunId::trusted(row.run_id),
            stands: DeliveryState::of(&row.state, row.reason.as_deref()),
        }
    }
}

repository! {
    /// Messages that were accepted, until they are processed.
    Inbox, inbox
}

impl Inbox<'_> {
    /// Puts a message into the inbox and claims it, or leaves it for later; no effect if it is there already and done,
    /// held or under a live lease.
    ///
    /// One statement decides: of two concurrent deliveries one is claimed and the other is known.
    pub async fn enqueue(self, arrival: Arrival<'_>) -> Result<Enqueued, Error> {
        let key = key(&arrival);
        self.scoped(arrival.owner, async |mut connection| {
            let claimed = sqlx::query_as!(
                Row,
                r#"insert into store.inbound as i
                       (owner_id, channel, message_key, chat_id, content, router_run_id, run_id, received_at,
                        lease_until, attempts)
                   values ($1, $2, $3, $4, $5::text::json, $6, $7, $8::timestamptz,
                           case when $10::bool then $8::timestamptz else $9::timestamptz end, case when $10 then 0 else 1 end)
                   on conflict (owner_id, channel, message_key) do update
                   set attempts = i.attempts + excluded.attempts, lease_until = excluded.lease_until
                   where i.state = 'open' and i.lease_until <= $8
                   returning inbound_no, owner_id, channel, content::text as content, router_run_id, run_id, received_at,
                             attempts"#,
                arrival.owner.as_str(),
                arrival.channel.as_str(),
                key,
                arrival.chat_id.as_str(),
                arrival.content.as_str(),
                arrival.router_run_id.uuid(),
                arrival.run_id.uuid(),
                arrival.now,
                arrival.lease_until,
                arrival.for_later
            )
            .fetch_optional(&mut *connection)
            .await?;
            let arrived = if let Some(row) = claimed {
                Enqueued::ClaimedMessage(Box::new(row.into()))
            } else {
                let known = sqlx::query_as!(
                    Known,
                    r#"select inbound_no, router_run_id, run_id, state, reason from store.inbound
                       where owner_id = $1 and channel = $2 and message_key = $3"#,
                    arrival.owner.as_str(),
                    arrival.channel.as_str(),
                    key
                )
                .fetch_one(&mut *connection)
                .await?;
                Enqueued::Known(known.into())
            };
            Ok(arrived)
        })
        .await
    }

    /// The current state of a delivery.
    pub async fn state(self, owner: &OwnerId, inbound_no: i64) -> Result<Option<Delivery>, Error> {
        self.scoped(owner, async |mut connection| {
            let known = sqlx::query_as!(
                Known,
                r#"select inbound_no, router_run_id, run_id, state, reason from store.inbound
                   where inbound_no = $1 and owner_id = $2"#,
                inbound_no,
                owner.as_str()
            )
            .fetch_optional(&mut *connection)
            .await?;
            Ok(known.map(Delivery::from))
        })
        .await
    }

    /// Claims waiting messages of all owners: the oldest of each chat, which keeps their order.
    pub async fn claim_waiting(
        self,
        (now, lease_until): (DateTime<Utc>, DateTime<Utc>),
        most: i64,
    ) -> Result<Vec<ClaimedMessage>, Error> {
        self.maintenance(async |mut connection| {
            let rows = sqlx::query_as!(
                Row,
                r#"update store.inbound i set attempts = i.attempts + 1, lease_until = $2
                   where inbound_no in (
                       select w.inbound_no from store.inbound w
                       where w.state = 'open' and w.lease_until <= $1
                         and not exists (select from store.inbound o where o.owner_id = w.owner_id
                                         and o.channel = w.channel and o.chat_id = w.chat_id and o.state = 'open'
                                         and o.inbound_no < w.inbound_no)
                       order by w.lease_until limit $3 for update of w skip locked)
                   returning inbound_no, owner_id, channel, content::text as content, router_run_id, run_id, received_at,
                             attempts"#,
                now,
                lease_until,
                most
            )
            .fetch_all(&mut *connection)
            .await?;
            Ok(rows.into_iter().map(ClaimedMessage::from).collect())
        })
        .await
    }

    /// Claims a message that was held until its user had entered a code.
    pub async fn claim_held(
        self,
        owner: &OwnerId,
        inbound_no: i64,
        lease_until: DateTime<Utc>,
    ) -> Result<Option<ClaimedMessage>, Error> {
        self.scoped(owner, async |mut connection| {
            let row = sqlx::query_as!(
                Row,
                r#"update store.inbound set state = 'open', reason = null, lease_until = $3, attempts = attempts + 1
                   where inbound_no = $1 and owner_id = $2 and state = 'held'
                   returning inbound_no, owner_id, channel, content::text as content, router_run_id, run_id, received_at,
                             attempts"#,
                inbound_no,
                owner.as_str(),
                lease_until
            )
            .fetch_optional(&mut *connection)
            .await?;
            Ok(row.map(ClaimedMessage::from))
        })
        .await
    }

    /// Marks the message as processed and removes its content. Does nothing if the caller no longer holds the message.
    pub async fn finish(self, claimed: &ClaimedMessage, done: Done) -> Result<(), Error> {
        let (state, reason) = match done {
            Done::Accepted => ("done", None),
            Done::Filtered(reason) => ("done", Some(reason.as_str())),
            Done::Failed => ("failed", None),
        };
        self.scoped(&claimed.owner_id, async |mut connection| {
            sqlx::query!(
                r#"update store.inbound set state = $3, reason = $4, content = null
                   where inbound_no = $1 and owner_id = $2 and attempts = $5 and state <> 'done'"#,
                claimed.inbound_no,
                claimed.owner_id.as_str(),
                state,
                reason,
                claimed.attempts
            )
            .execute(&mut *connection)
            .await?;
            Ok(())
        })
        .await
    }

    /// Releases a message: it can be claimed again from `again_at` on.
    pub async fn release(self, claimed: &ClaimedMessage, again_at: DateTime<Utc>) -> Result<(), Error> {
        self.deliveries().renew_inbound(claimed, again_at).await.map(drop)
    }
}
