-- A run that says where a message goes is no agent's: lists, feeds and counts leave it out unless it is asked for.
alter table store.run drop constraint run_role_check;
alter table store.run add constraint run_role_check check (role in ('supervisor', 'worker', 'agent', 'router'));
update store.run set role = 'router' where agent = 'router' and origin_channel is not null and thread_id is null;
