-- What all runs of an owner ask now is read run by run: these are the runs that can ask. Only the change of a run's status
-- touches the index.
create index run_open_by_owner on store.run (owner_id, run_id) where not store.has_ended(status);

-- And whose silence is noticed, also while somebody holds their job.
create policy owner_reads on store.job for select to current_user using (true);

-- Who answered.
create or replace view runreel.interrupts as
select q.run_id, q.span_id as interrupt_id, q.owner_id, r.thread_id, q.role, q.agent, q.payload ->> 'kind' as kind,
       q.payload ->> 'prompt' as prompt,
       case when q.answers > 0 then 'answered' when r.ended_at is not null then 'closed' else 'open' end as status,
       case when q.answers > 0 then q.answer ->> 'decision' end as decision,
       case when q.answers > 0 then q.answer -> 'value' end as value, q.seq as request_seq,
       case when q.answers > 0 then q.answer_seq end as answer_seq, q.at as requested_at,
       case when q.answers > 0 then q.answered_at end as answered_at,
       case when q.answers > 0 then (extract(epoch from q.answered_at - q.at) * 1000)::float8 end as waited_ms,
       case when q.answers > 0 then q.answer ->> 'resolved_by' end as resolved_by
from (
    select m.*, first_value(m.seq) over answer as answer_seq, first_value(m.at) over answer as answered_at,
           first_value(m.payload) over answer as answer
    from (
        select e.*, count(*) filter (where e.type = 'interrupt.resolved')
                        over (partition by e.run_id, e.span_id order by e.seq desc) as answers
        from store.run_event e
        where e.type in ('interrupt.requested', 'interrupt.resolved') and e.type like 'interrupt.%'
          and e.span_id is not null
    ) m
    window answer as (partition by m.run_id, m.span_id, m.answers order by m.seq desc)
) q
left join store.run r using (run_id)
where q.type = 'interrupt.requested';

comment on column runreel.interrupts.resolved_by is
    'the principal key of who answered; null when the server did, without an answer, and for answers of earlier releases';
