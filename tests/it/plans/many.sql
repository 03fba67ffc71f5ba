-- Twenty thousand runs of fifty owners, and what hangs on them; only what has rows is analyzed, as autovacuum does.
insert into store.run (run_id, lane, owner_id, root_run_id, depth, thread_id, session_id, agent, role, metadata, tags, request_hash, status, last_seq, last_position, created_at, last_event_at)
select (substr(i,1,8)||'-'||substr(i,9,4)||'-7'||substr(md5(n::text),1,3)||'-8'||substr(md5(n::text),4,3)||'-'||lpad(to_hex(n),12,'0'))::uuid, 0, 'o'||n%50, gen_random_uuid(), 0, 't'||n%20000, 's'||n%1000, 'a'||n%5, 'agent','{}','{}','x', case when n%49=0 then 'running' else 'completed' end, 3, n*3, now(), now()
from (select n, lpad(to_hex((extract(epoch from now())*1000)::bigint + n),12,'0') as i from generate_series(1,20000) n) x;
update store.run set root_run_id=run_id;
update store.run r set parent_run_id = (select run_id from store.run p order by run_id limit 1) where last_position%30=0;
insert into store.run_event (run_id, seq, lane, position, owner_id, type, role, agent, span_id, event_id, at, payload)
select run_id, s, 0, last_position-3+s, owner_id, (array['step.started','interrupt.requested','message.completed'])[s], 'agent', agent, 'x'||s, 'e'||s, now(), '{"name":"a fairly long payload so that rows have a usual size of some hundred bytes or so"}' from store.run, generate_series(1,3) s;
insert into store.job (run_id, owner_id, agent, thread_id, line_run_id, line_at, created_at) select run_id, owner_id, agent, thread_id, run_id, created_at, created_at from store.run where status='running';
insert into store.thread (owner_id, thread_id, created_at, updated_at) select owner_id, thread_id, now(), now() from store.run on conflict do nothing;
insert into store.checkpoint (thread_no, owner_id, ns, checkpoint_id, run_id, t,b,metadata,versions,created_at) select thread_no, owner_id, '', s::text, 'r'||thread_no, 't', 'bytes of a state', '{}','{}', now() from store.thread, generate_series(1,3) s;
insert into store.blob select thread_no, owner_id, '', 'c', s::text, 't', 'bytes of a value' from store.thread, generate_series(1,3) s;
insert into store.pending_write select thread_no, owner_id, '', '3', 'task', s, '', 'c', 't','b' from store.thread, generate_series(1,2) s;
insert into store.chat select distinct owner_id, 'c'::text, thread_id, thread_id from store.run where last_position%10=0 on conflict do nothing;
insert into store.session (owner_id, session_id, channel, chat_id, thread_id, number, started_at, last_activity_at) select owner_id, 's'||chat_id, channel, chat_id, chat_id, 0, now(), now() from store.chat;
insert into store.inbound (owner_id, channel, message_key, chat_id, router_run_id, run_id, received_at, state, lease_until) select owner_id, 'c', run_id::text, thread_id, run_id, run_id, now(), case when last_position%100=0 then 'open' else 'done' end, now() from store.run where last_position%5=0;
insert into store.reply (owner_id, reply_key, channel, run_id, user_id, created_at, lease_until, done_at) select owner_id, run_id::text, 'c', run_id, 'u', now(), now(), case when last_position%100=0 then null else now() end from store.run where last_position%5=0;
insert into store.session_line (owner_id, thread_id, line_key, line) select owner_id, thread_id, run_id::text, 'a line' from store.run;
insert into store.content select decode(md5(run_id::text)||md5(run_id::text),'hex'), 3, null from store.run where last_position%10=0;
insert into store.artifact select run_id, owner_id, run_id, 'e1', 'n','m',3, decode(md5(run_id::text)||md5(run_id::text),'hex'), now(), now(), true from store.run where last_position%10=0;
insert into store.api_token select run_id, decode(md5(run_id::text),'hex'), owner_id, 'n', '{}', null, now() from store.run where last_position%100=0;
insert into store.owner_piece select distinct owner_id, lane, position/512 from store.run_event on conflict do nothing;
insert into store.channel_user select owner_id, 'c', chat_id, now(), null, now() from store.chat;
insert into store.channel_code select owner_id, 'c', decode(md5(chat_id),'hex'), now(), now() from store.chat;
insert into store.channel_tries select owner_id, 'c', chat_id, now(), 1 from store.chat;
insert into store.search_document select run_id, 0, owner_id, array_to_tsvector(array[left(owner_id, 8)||':word', left(owner_id, 8)||':'||run_id]) from store.run;
insert into store.open_text select owner_id, run_id, 's', 0, run_id, 'message.delta', null, 0, now(), now(), 'a text' from store.run;
do $$ declare t regclass; begin for t in select c.oid from pg_class c join pg_namespace n on n.oid=c.relnamespace where n.nspname='store' and relkind='r' and pg_relation_size(c.oid)>0 loop execute 'analyze '||t; end loop; end $$;
