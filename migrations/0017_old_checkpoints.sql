-- Old checkpoints of threads that go on are removed by the program's own upkeep, which looks for them among all owners: it
-- may see where there are many, and nothing of what they are. The removal itself is done as their owner.
create policy writer_counts on store.checkpoint for select to runreel_writer using (true);
grant select (thread_no, ns) on store.checkpoint to runreel_writer;
