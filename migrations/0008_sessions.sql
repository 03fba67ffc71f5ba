-- Sessions: who talks with an agent through a channel, since when, and on which thread.

-- A chat and its counter: the number of the thread of its current session, or of the next one. It only ever grows.
-- `thread_base` is what the ids of all its threads begin with.
create table store.chat (
    owner_id    text   not null,
    channel     text   not null collate "C",
    chat_id     text   not null collate "C",
    thread_base text   not null collate "C",
    counter     bigint not null default 0 check (counter >= 0),
    primary key (owner_id, channel, chat_id)
);

create table store.session (
    owner_id         text        not null,
    session_id       text        not null collate "C",
    channel          text        not null collate "C",
    chat_id          text        not null collate "C",
    thread_id        text        not null collate "C",
    -- The number in the thread's id.
    number           bigint      not null,
    started_at       timestamptz not null,
    last_activity_at timestamptz not null,
    ended_at         timestamptz,
    end_reason       text        check (end_reason in ('idle', 'reset', 'ended')),
    -- What the agent was given, and what it answered.
    messages         bigint      not null default 0,
    answers          bigint      not null default 0,
    primary key (owner_id, session_id),
    foreign key (owner_id, channel, chat_id) references store.chat (owner_id, channel, chat_id),
    check ((ended_at is null) = (end_reason is null))
);

-- One session at a time: two messages that find none make one.
create unique index session_open on store.session (owner_id, channel, chat_id) where ended_at is null;
create index session_by_owner on store.session (owner_id, started_at desc, session_id desc);
create index session_by_chat on store.session (owner_id, channel, chat_id, started_at desc, session_id desc);
create index session_by_thread on store.session (owner_id, thread_id);

-- Whether a thread of a chat is in use is asked by the beginning of its id, which takes an index in the order of bytes.
create index thread_by_name on store.thread (owner_id, thread_id collate "C");
create index run_by_thread_name on store.run (owner_id, thread_id collate "C") where thread_id is not null;

-- The largest number of a thread of a chat that has runs, a state or a session; null when none has. It reads with the
-- rights of who asks. Both arguments in the default collation: it passes on to the comparisons, and decides whether
-- they may use the indexes.
create function store.highest_thread_number(owner text, base text) returns bigint language sql stable as $$
    select max(case when k.rest = '' then 0
                    when k.rest ~ '^_s[1-9][0-9]{0,17}$' then substr(k.rest, 3)::bigint end)
    from (select substr(t.thread_id, length(base) + 1) as rest
          from (select thread_id from store.thread where owner_id = owner and thread_id collate "C" = base
                union all
                select thread_id from store.thread where owner_id = owner
                    and thread_id collate "C" >= base || '_s' and thread_id collate "C" < base || '_t'
                union all
                select thread_id from store.run where owner_id = owner and thread_id is not null
                    and thread_id collate "C" = base
                union all
                select thread_id from store.run where owner_id = owner and thread_id is not null
                    and thread_id collate "C" >= base || '_s' and thread_id collate "C" < base || '_t'
                union all
                select thread_id from store.session where owner_id = owner and thread_id = base
                union all
                select thread_id from store.session where owner_id = owner
                    and thread_id >= base || '_s' and thread_id < base || '_t'
               ) t) k
$$;

-- The inbox. A message is here, whole, before it is acknowledged, with the ids that its runs will have; so whoever
-- carries it out a second time does the same and not another thing. `unique` is what makes two deliveries one. The
-- content goes when the message is done; the row stays a while to know the message again.
create table store.inbound (
    inbound_no    bigint      generated always as identity primary key,
    owner_id      text        not null,
    channel       text        not null collate "C",
    message_key   text        not null collate "C",
    chat_id       text        not null collate "C",
    content       json,
    router_run_id uuid        not null,
    run_id        uuid        not null,
    received_at   timestamptz not null,
    state         text        not null default 'open' check (state in ('open', 'held', 'done', 'failed')),
    -- Why it started no run; null when it did.
    reason        text,
    session_id    text,
    thread_id     text,
    attempts      int         not null default 1,
    -- Until then it belongs to who took it up.
    lease_until   timestamptz not null,
    unique (owner_id, channel, message_key)
);

create index inbound_open on store.inbound (lease_until) where state = 'open';
create index inbound_open_by_chat on store.inbound (owner_id, channel, chat_id, inbound_no) where state = 'open';
create index inbound_done on store.inbound (received_at) where state in ('done', 'failed');

-- The outbox: an answer that is owed. It is here before the run that will give it. `parts_sent` is how much of it the
-- other side has acknowledged.
create table store.reply (
    reply_no    bigint      generated always as identity primary key,
    owner_id    text        not null,
    -- The run, or the message it answers: an answer is owed once.
    reply_key   text        not null collate "C",
    channel     text        not null collate "C",
    run_id      uuid,
    -- What to say when no run says it.
    body        text,
    session_id  text,
    thread_id   text,
    user_id     text        not null,
    -- Where it goes; null when whoever wrote comes and asks.
    target      json,
    created_at  timestamptz not null,
    attempts    int         not null default 0,
    -- Until then nobody else tries.
    lease_until timestamptz not null,
    logged_at   timestamptz,
    parts_sent  int         not null default 0,
    done_at     timestamptz,
    failure     text,
    unique (owner_id, reply_key)
);

create index reply_open on store.reply (lease_until) where done_at is null;
create index reply_done on store.reply (done_at) where done_at is not null;

-- Users of a channel that asks for a one-time code. `held_no` is the message that waits for it.
create table store.channel_user (
    owner_id      text        not null,
    channel       text        not null collate "C",
    user_id       text        not null collate "C",
    verified_at   timestamptz,
    held_no       bigint,
    asked_at      timestamptz not null,
    primary key (owner_id, channel, user_id)
);

-- Only a keyed hash of the code.
create table store.channel_code (
    owner_id   text        not null,
    channel    text        not null collate "C",
    code_hash  bytea       not null,
    created_at timestamptz not null,
    expires_at timestamptz not null,
    used_at    timestamptz,
    primary key (owner_id, channel, code_hash)
);

-- Wrong codes since `window_at`; the user '' stands for the whole channel.
create table store.channel_tries (
    owner_id  text        not null,
    channel   text        not null collate "C",
    user_id   text        not null collate "C",
    window_at timestamptz not null,
    tries     int         not null,
    primary key (owner_id, channel, user_id)
);

-- The same two walls as everywhere: every query names its owner, and the policy asks again. What serves all owners at
-- once, which is to find messages and answers that wait and to raise counters, is the writer's, column by column.
do $$
declare
    name text;
begin
    foreach name in array array['chat', 'session', 'inbound', 'reply', 'channel_user', 'channel_code', 'channel_tries'] loop
        execute format('alter table store.%I enable row level security', name);
        execute format('alter table store.%I force row level security', name);
        execute format('create policy app_keeps_its_owner on store.%I to runreel_app '
                       'using (owner_id = store.current_owner()) with check (owner_id = store.current_owner())', name);
        execute format('grant select, insert, update on store.%I to runreel_app', name);
    end loop;
end
$$;

create policy writer_raises_counters on store.chat to runreel_writer using (true) with check (true);
create policy writer_looks on store.session for select to runreel_writer using (true);
create policy writer_finds_what_waits on store.inbound to runreel_writer using (true) with check (true);
create policy writer_finds_what_waits on store.reply to runreel_writer using (true) with check (true);
create policy owner_reads on store.session for select to current_user using (true);

grant select, update (counter) on store.chat to runreel_writer;
grant select on store.session to runreel_writer;
grant select, delete, update (attempts, lease_until) on store.inbound, store.reply to runreel_writer;
grant delete on store.channel_tries, store.channel_code to runreel_app;

-- Sessions of channels, and the labels that runs of other origin carry.
create or replace view runreel.sessions as
select k.owner_id, k.session_id, coalesce(s.thread_id collate "default", r.thread_id) as thread_id, coalesce(r.runs, 0) as runs,
       r.first_run_at, r.last_event_at, s.channel, s.chat_id, s.started_at, s.last_activity_at, s.ended_at, s.end_reason,
       s.messages, s.answers
from (select owner_id, session_id collate "default" as session_id from store.session
      union
      select owner_id, session_id from store.run where session_id is not null) k
left join store.session s on s.owner_id = k.owner_id and s.session_id = k.session_id collate "C"
left join (select owner_id, session_id, min(thread_id) as thread_id, count(*) as runs, min(created_at) as first_run_at,
                  max(last_event_at) as last_event_at
           from store.run where session_id is not null group by owner_id, session_id) r
    on r.owner_id = k.owner_id and r.session_id = k.session_id;
