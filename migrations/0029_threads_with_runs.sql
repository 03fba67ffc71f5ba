-- The row of a thread that a run names first is written with the run, in the lane's statement: who sees the run finds the
-- thread, and a run that is refused leaves none. The same holds for an alias, which is written with the answers that it
-- follows.
create policy writer_begins on store.thread for insert to runreel_writer with check (true);
grant insert (owner_id, thread_id, created_at, updated_at) on store.thread to runreel_writer;

create policy writer_names on store.run_alias to runreel_writer using (true) with check (true);
grant select, insert on store.run_alias to runreel_writer;
