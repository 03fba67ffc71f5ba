-- Tokens and money. Each call of a model that the log tells is a row here, written by the statement that appends its
-- event, with what it cost by the prices of that moment; its run has the sums. So lists need no sum, and a server that
-- knows other prices than before goes through these rows once and corrects both.
create table store.model_call (
    run_id             uuid        not null references store.run (run_id) on delete cascade,
    seq                bigint      not null,
    owner_id           text        not null,
    -- As its producer names it; null when it names none.
    model              text,
    at                 timestamptz not null,
    -- All of the input, with what came from the provider's cache and what went into it; all of the output, with reasoning.
    input_tokens       bigint      not null,
    cached_tokens      bigint      not null,
    cache_write_tokens bigint      not null,
    output_tokens      bigint      not null,
    reasoning_tokens   bigint      not null,
    -- US dollars; null when the price is not known.
    cost_usd           numeric,
    primary key (run_id, seq)
);

-- The sums of a run. `cost_usd` is that of its calls whose price is known.
alter table store.run
    add column calls              bigint  not null default 0,
    add column input_tokens       bigint  not null default 0,
    add column cached_tokens      bigint  not null default 0,
    add column cache_write_tokens bigint  not null default 0,
    add column output_tokens      bigint  not null default 0,
    add column reasoning_tokens   bigint  not null default 0,
    add column cost_usd           numeric not null default 0,
    add column unpriced_calls     bigint  not null default 0;
grant update (calls, input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens, cost_usd, unpriced_calls)
    on store.run to runreel_writer;

-- These sums in one text, as the program reads them; null when there is no call.
create function store.spent(calls bigint, input bigint, cached bigint, cache_write bigint, output bigint, reasoning bigint,
                            cost_usd numeric, unpriced_calls bigint) returns text
    language sql immutable parallel safe as $$
    select case when calls > 0
                then json_build_array(calls, input, cached, cache_write, output, reasoning, cost_usd, unpriced_calls)::text end
$$;

-- By which prices the costs here are computed. Empty: by none yet.
create table store.price_list (
    single      boolean primary key default true check (single),
    fingerprint text    not null
);
insert into store.price_list (fingerprint) values ('');
grant select, update on store.price_list to runreel_writer;

-- What the log has told so far, read as the program reads it. The costs follow when a server has started.
create function store.tokens_of(usage json, variadic names text[]) returns bigint language sql immutable as $$
    select t.value::float8::bigint
    from unnest(names) with ordinality as wanted (name, n)
    join (select key, value #>> '{}' as value, 0 as depth from json_each(usage) where json_typeof(value) = 'number'
          union all
          select i.key, i.value #>> '{}', 1
          from json_each(usage) o cross join lateral json_each(case json_typeof(o.value) when 'object' then o.value else '{}' end) i
          where json_typeof(i.value) = 'number') t on t.key = wanted.name
    where t.value ~ '^[0-9]{1,11}(\.[0-9]+)?$'
    order by n, depth
    limit 1
$$;

insert into store.model_call (run_id, seq, owner_id, model, at, input_tokens, cached_tokens, cache_write_tokens, output_tokens,
                              reasoning_tokens)
select e.run_id, e.seq, e.owner_id, left(nullif(case json_typeof(e.payload -> 'model') when 'string' then e.payload ->> 'model' end, ''), 128), e.at,
       t.input + case when t.cached + t.cache_write > t.input then t.cached + t.cache_write else 0 end,
       t.cached, t.cache_write, greatest(t.output, t.reasoning), t.reasoning
from store.run_event e
join store.run r using (run_id)
cross join lateral (select e.payload -> 'usage' as usage) u
cross join lateral (
    select store.tokens_of(usage, 'input_tokens', 'prompt_tokens', 'inputTokens', 'promptTokens', 'gen_ai.usage.input_tokens',
                           'gen_ai.usage.prompt_tokens') as input,
           store.tokens_of(usage, 'output_tokens', 'completion_tokens', 'outputTokens', 'completionTokens',
                           'gen_ai.usage.output_tokens', 'gen_ai.usage.completion_tokens') as output,
           store.tokens_of(usage, 'cached_tokens', 'cache_read_tokens', 'cache_read', 'cachedInputTokens',
                           'gen_ai.usage.cache_read.input_tokens') as cached,
           store.tokens_of(usage, 'cache_read_input_tokens') as cached_on_top,
           store.tokens_of(usage, 'cache_write_tokens', 'cache_creation_tokens', 'cache_creation',
                           'gen_ai.usage.cache_creation.input_tokens') as cache_write,
           store.tokens_of(usage, 'cache_creation_input_tokens') as write_on_top,
           store.tokens_of(usage, 'reasoning_tokens', 'reasoning', 'reasoningTokens',
                           'gen_ai.usage.reasoning.output_tokens') as reasoning
    where json_typeof(usage) = 'object'
) n
cross join lateral (
    select coalesce(n.input, 0) + case when n.cached is null then coalesce(n.cached_on_top, 0) else 0 end
               + case when n.cache_write is null then coalesce(n.write_on_top, 0) else 0 end as input,
           coalesce(n.cached, n.cached_on_top, 0) as cached, coalesce(n.cache_write, n.write_on_top, 0) as cache_write,
           coalesce(n.output, 0) as output, coalesce(n.reasoning, 0) as reasoning
) t
where (e.type like '%.completed' or e.type like '%.failed') and e.type not like 'run.%' and e.type not like 'worker.%'
  and num_nonnulls(n.input, n.output, n.cached, n.cached_on_top, n.cache_write, n.write_on_top, n.reasoning) > 0;

-- Row-level security holds for the table's owner as well, who is given no policy to change runs by.
alter table store.run no force row level security;
update store.run r
set calls = s.calls, input_tokens = s.input_tokens, cached_tokens = s.cached_tokens, cache_write_tokens = s.cache_write_tokens,
    output_tokens = s.output_tokens, reasoning_tokens = s.reasoning_tokens, unpriced_calls = s.calls
from (select run_id, count(*) as calls, sum(input_tokens) as input_tokens, sum(cached_tokens) as cached_tokens,
             sum(cache_write_tokens) as cache_write_tokens, sum(output_tokens) as output_tokens,
             sum(reasoning_tokens) as reasoning_tokens
      from store.model_call group by run_id) s
where s.run_id = r.run_id;
alter table store.run force row level security;

alter table store.model_call enable row level security;
alter table store.model_call force row level security;
create policy app_sees_its_owner on store.model_call for select to runreel_app using (owner_id = store.current_owner());
create policy writer_appends on store.model_call to runreel_writer using (true) with check (true);
create policy readers_see_what_they_may on store.model_call for select to runreel_viewer using
    ((select pg_has_role(current_user, 'runreel_reader', 'member'))
     or owner_id = (select store.reader_owner(current_user)));
create policy owner_reads on store.model_call for select to current_user using (true);
grant select on store.model_call to runreel_app, runreel_viewer;
grant select, insert on store.model_call to runreel_writer;
grant update (cost_usd) on store.model_call to runreel_writer;

drop function store.tokens_of(json, text[]);

create or replace view runreel.runs as
select run_id, root_run_id, parent_run_id, owner_id, thread_id, session_id, agent, role, title, status, input, output,
       error, metadata, tags, last_seq, created_at, started_at, ended_at, last_event_at,
       greatest((extract(epoch from coalesce(ended_at, last_event_at) - started_at) * 1000)::float8, 0) as duration_ms,
       external_id, ttl_s, calls, input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens,
       case when calls > unpriced_calls then cost_usd end as cost_usd, unpriced_calls > 0 as cost_is_partial
from store.run;

create view runreel.model_calls as
select c.run_id, c.seq, c.owner_id, r.root_run_id, r.thread_id, r.role, r.agent, c.model, c.at, c.input_tokens,
       c.cached_tokens, c.cache_write_tokens, c.output_tokens, c.reasoning_tokens, c.cost_usd
from store.model_call c
join store.run r using (run_id);

grant create on schema runreel to runreel_viewer;
alter view runreel.model_calls owner to runreel_viewer;
grant select on runreel.model_calls to runreel_reader, runreel_scoped;
revoke create on schema runreel from runreel_viewer;

comment on view runreel.model_calls is 'One row per call of a model: the ends of messages and of other spans that tell their tokens in `usage`.';
do $$
declare
    about record;
begin
    for about in select * from (values
('runs', 'calls', 'calls of models that told their tokens'),
('runs', 'input_tokens', 'of these calls, all of the input'),
('runs', 'cached_tokens', 'of the input, what came from the provider''s cache'),
('runs', 'cache_write_tokens', 'of the input, what went into the provider''s cache'),
('runs', 'output_tokens', 'of these calls, all of the output'),
('runs', 'reasoning_tokens', 'of the output, reasoning'),
('runs', 'cost_usd', 'US dollars, of the calls whose price is known; null when it is known of none'),
('runs', 'cost_is_partial', 'whether there are calls whose price is not known'),
('model_calls', 'run_id', 'the run'),
('model_calls', 'seq', 'of the event that tells it'),
('model_calls', 'owner_id', 'the principal key of the run''s owner'),
('model_calls', 'root_run_id', 'the top of the run''s tree'),
('model_calls', 'thread_id', 'the run''s; null when it has none'),
('model_calls', 'role', 'the run''s'),
('model_calls', 'agent', 'the run''s; null when it has none'),
('model_calls', 'model', 'the payload''s `model`; null when it has none'),
('model_calls', 'at', 'the time of its event'),
('model_calls', 'input_tokens', 'all of the input'),
('model_calls', 'cached_tokens', 'of the input, what came from the provider''s cache'),
('model_calls', 'cache_write_tokens', 'of the input, what went into the provider''s cache'),
('model_calls', 'output_tokens', 'all of the output'),
('model_calls', 'reasoning_tokens', 'of the output, reasoning'),
('model_calls', 'cost_usd', 'US dollars; null when the price is not known')
    ) as said (view, name, meaning) loop
        execute format('comment on column runreel.%I.%I is %L', about.view, about.name, about.meaning);
    end loop;
end
$$;
