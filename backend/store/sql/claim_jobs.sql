-- $1 agents, $2 an owner or null for all, $3 the time or null for the database's own, $4 how many lapses end a job,
-- $5 ids for the new leases, $6 who, $7 the session, $8 length of the lease in milliseconds, $9 how many leases of this
-- session one owner may have, $10 how many owners are looked at, $11 how many jobs of an owner at a time.
--
-- Owners take turns: whoever has the fewest leases of this session comes first, and of one owner's jobs the oldest. A claim
-- looks at so many of an owner's jobs, from the oldest on. These may all be such as cannot be taken, because their runs
-- wait for people or workers or for their turn in a thread: so it also looks at as many others, another part of the rest
-- each time, and whatever can be taken is found.
--
-- The row of a job is locked before it is given away, and a locked one is passed over: whoever is first has it.
with recursive moment as (
    select coalesce($3::timestamptz, now()) as now, gen_random_uuid()::text as anywhere
), owners as (
    -- From one owner to the next by the index, in a circle that begins anywhere: with more owners than are looked at,
    -- every claim looks at others.
    select a.agent, first.owner_id, first.owner_id as began_at, 1 as n
    from unnest($1::text[]) as a (agent)
    cross join lateral (
        select coalesce(
            $2::text,
            (select min(j.owner_id) from store.job j where j.agent = a.agent and j.owner_id >= (select anywhere from moment)),
            (select min(j.owner_id) from store.job j where j.agent = a.agent)) as owner_id
    ) first
    where first.owner_id is not null
    union all
    select o.agent, next.owner_id, o.began_at, o.n + 1
    from owners o
    cross join lateral (
        select coalesce(
            (select min(j.owner_id) from store.job j where j.agent = o.agent and j.owner_id > o.owner_id),
            (select min(j.owner_id) from store.job j where j.agent = o.agent)) as owner_id
    ) next
    where $2::text is null and o.n < $10 and next.owner_id <> o.began_at
), held as (
    select j.owner_id, count(*) as leases from store.job j cross join moment m
    where j.session_id = $7 and j.lease_id is not null and j.lease_until > m.now
    group by j.owner_id
), free as not materialized (
    select * from store.job j
    where (j.lease_id is null or j.lease_until <= (select now from moment))
      and j.lapses + (j.lease_id is not null)::int < $4
), turns as (
    select c.run_id, c.created_at,
           coalesce(h.leases, 0) + row_number() over (partition by o.owner_id order by c.created_at, c.run_id) as turn
    from owners o
    left join held h using (owner_id)
    cross join lateral (
        -- Part after part, and the second only as far as the first has not enough: so without an order of its own.
        select j.run_id, j.created_at
        from (
            select 0::bigint as skipped
            union all
            select $11::bigint * (1 + floor(random() * (ceil(n.jobs / $11::bigint::numeric) - 1)))::bigint
            from (select count(*) as jobs from free j where j.agent = o.agent and j.owner_id = o.owner_id) n
            where n.jobs > $11
        ) part
        cross join lateral (
            select * from free j where j.agent = o.agent and j.owner_id = o.owner_id
            order by j.created_at, j.run_id offset part.skipped limit $11
        ) j
        join store.run r on r.run_id = j.run_id
        -- A run that was never assigned and is not queued has been started by somebody else: it is no job any more.
        where (r.status = 'queued'
               or j.attempt > 0 and r.status = 'running'
               or j.attempt > 0 and r.status = 'waiting' and not exists (
                   select from store.run c
                   where c.parent_run_id = j.run_id and not store.has_ended(c.status)))
          -- Nobody works in this thread before its turn, nor while somebody does.
          and not exists (
              select from store.job o
              join store.run w on w.run_id = o.run_id
              where o.owner_id = j.owner_id and o.thread_id = j.thread_id and o.line_run_id <> j.line_run_id
                and not store.has_ended(w.status)
                and (o.attempt > 0 or w.status = 'queued')
                and ((o.line_at, o.line_run_id) < (j.line_at, j.line_run_id)
                     or o.lease_id is not null and o.lease_until > (select now from moment)))
        -- More than are wanted, because other claimers may be taking the first ones.
        limit 2 * cardinality($5::uuid[]) + 16
    ) c
), ready as (
    -- Row after row in the order of turns, until there are enough.
    select j.run_id, j.has_lapsed
    from (select * from turns t where t.turn <= $9 order by t.turn, t.created_at, t.run_id) t
    cross join lateral (
        select j.run_id, j.lease_id is not null as has_lapsed from store.job j
        where j.run_id = t.run_id and (j.lease_id is null or j.lease_until <= (select now from moment))
        for update skip locked
    ) j
    limit cardinality($5::uuid[])
), numbered as (
    select run_id, has_lapsed, row_number() over () as n from ready
), given as (
    update store.job j
    set attempt = j.attempt + 1, lapses = j.lapses + (j.lease_id is not null)::int, lease_id = l.lease_id, runner = $6,
        session_id = $7, lease_ms = $8, lease_until = m.now + $8::bigint * interval '1 millisecond'
    from numbered k
    join unnest($5::uuid[]) with ordinality l (lease_id, n) on l.n = k.n
    cross join moment m
    where j.run_id = k.run_id
    returning j.run_id, j.owner_id, j.lease_id, j.attempt, j.lapses, j.lease_until, k.has_lapsed
), over as (
    -- What a holder that fell silent was writing begins again.
    delete from store.open_text t using given g
    where g.has_lapsed and t.owner_id = g.owner_id and t.run_id = g.run_id
)
select run_id, lease_id as "lease_id!", attempt, lapses, has_lapsed as "has_lapsed!", lease_until as "lease_until!"
from given
