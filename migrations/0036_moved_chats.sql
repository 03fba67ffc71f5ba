-- A group of Telegram that becomes a supergroup has a new id, and its messages in an album arrive one by one.

-- The id that a chat had before it moved: its threads are still named after it, and what arrives late under that id is
-- of this chat.
alter table store.chat add column began_as text collate "C";
create unique index chat_moved on store.chat (owner_id, channel, began_as) where began_as is not null;

-- The deliveries that make up one message, if it came in several.
alter table store.inbound add column pieces text[];
