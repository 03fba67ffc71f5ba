-- What verification finds beside the events: where the row of a run, or that of an artifact, says what its event does not. What
-- an event does not say is not compared: events of earlier releases have less. Of the events only those after one seq and up to
-- another are asked for their artifacts. An imported log may name artifacts that were not imported, and a request that was
-- repeated may have brought a second artifact for its event, which the event does not name and which is removed later.
create function store.row_faults(run uuid, owner text, after bigint, upto bigint) returns table (seq bigint, kind text)
    language sql stable set search_path = pg_catalog as $$
    select e.seq, 'record'
    from store.run r
    cross join lateral (select * from store.run_event v where v.run_id = r.run_id and v.seq = 1) e
    where r.run_id = run and r.owner_id = owner and e.type = 'run.created'
      and (e.agent is distinct from r.agent or e.role <> r.role
           or e.payload -> 'title' is not null and e.payload ->> 'title' is distinct from r.title
           or e.payload -> 'input' is not null
              and nullif((e.payload -> 'input')::text, 'null') is distinct from nullif(r.input::text, 'null')
           or e.payload -> 'metadata' is not null and (e.payload -> 'metadata')::text <> r.metadata::text
           or json_typeof(e.payload -> 'tags') = 'array'
              and array(select json_array_elements_text(e.payload -> 'tags')) <> r.tags
           or e.payload -> 'thread_id' is not null and e.payload ->> 'thread_id' is distinct from r.thread_id
           or e.payload -> 'session_id' is not null and e.payload ->> 'session_id' is distinct from r.session_id)
    union all
    select e.seq, 'record'
    from store.run r
    cross join lateral (select * from store.run_event v where v.run_id = r.run_id and v.seq = r.last_seq) e
    where r.run_id = run and r.owner_id = owner
      and (e.type = 'run.completed'
           and nullif(coalesce(e.payload -> 'output', case when e.payload -> '$artifact' is not null then e.payload end)::text,
                      'null') is distinct from nullif(r.output::text, 'null')
           or e.type = 'run.failed'
              and nullif(coalesce(e.payload -> 'error', e.payload)::text, 'null')
                  is distinct from nullif(r.error::text, 'null'))
    union all
    select e.seq, 'artifact'
    from store.artifact a
    cross join lateral (select * from store.run_event v where v.run_id = a.run_id and v.event_id = a.event_id) e
    where a.run_id = run and a.owner_id = owner and e.seq > after and e.seq <= upto
      and case when e.type = 'artifact.created'
          then e.payload ->> 'artifact_id' = a.artifact_id::text
               and (e.payload ->> 'sha256', e.payload ->> 'size', e.payload ->> 'name', e.payload ->> 'media_type')
                   is distinct from (encode(a.sha256, 'hex'), a.size::text, a.name, a.media_type)
          else e.payload -> '$artifact' ->> 'artifact_id' = a.artifact_id::text
               and (e.payload -> '$artifact' ->> 'sha256', e.payload -> '$artifact' ->> 'size',
                    e.payload -> '$artifact' ->> 'media_type')
                   is distinct from (encode(a.sha256, 'hex'), a.size::text, a.media_type) end
    union all
    select e.seq, 'artifact'
    from store.run r
    cross join lateral (select * from store.run_event v where v.run_id = r.run_id and v.seq > after and v.seq <= upto) e
    where r.run_id = run and r.owner_id = owner and r.imported_at is null and e.type = 'artifact.created'
      and not exists (select from store.artifact a
                      where a.run_id = e.run_id and a.artifact_id::text = e.payload ->> 'artifact_id')
    order by 1
    limit 20
$$;
revoke execute on function store.row_faults(uuid, text, bigint, bigint) from public;
grant execute on function store.row_faults(uuid, text, bigint, bigint) to runreel_app, runreel_writer;
