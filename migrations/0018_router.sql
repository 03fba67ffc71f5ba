-- A run that says where a message goes is no agent's: lists, feeds and counts leave it out unless it is asked for.
alter table store.run drop constraint run_role_check;
alter table store.run add constraint run_role_check check (role in ('supervisor', 'worker', 'agent', 'router'));
-- By the owner of the table, whoever is a member of which role.
alter table store.run no force row level security;
update store.run set role = 'router' where agent = 'router' and origin_channel is not null and thread_id is null;
alter table store.run force row level security;

-- An answer is promised before its run is there.
create index inbound_open_by_run on store.inbound (run_id) where state in ('open', 'held');
