-- Whether a run was removed after a seal named it: a later seal says so, or the next one will, and nothing that was there at
-- the time of the seal is there. If the run came again, it was written later.
create function store.was_removed_since(seal bigint, run uuid, seq bigint) returns boolean
    language sql stable parallel safe as $$
    select exists (select from store.removed_run g
                   where g.run_id = run and g.last_seq >= seq
                     and (g.number is null
                          or g.number >= seal
                             and exists (select from store.sealed_run x
                                         where x.number = g.number and x.run_id = run and x.is_removed)))
       and not exists (select from store.run_event v join store.seal l on l.number = seal
                       where v.run_id = run and v.position <= l.positions[v.lane + 1])
$$;

create policy app_sees_its_owner on store.removed_run for select to runreel_app using (owner_id = store.current_owner());
grant select on store.removed_run to runreel_app;
