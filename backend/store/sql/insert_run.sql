-- A run is born queued at its first event; the statement that appends its events then moves its head.
insert into store.run
    (run_id, lane, owner_id, root_run_id, parent_run_id, depth, thread_id, session_id, agent, role, origin_channel,
     origin_chat, trace_id, title, input, metadata, tags, lease_ms, request_hash, status, last_seq, last_position,
     created_at, last_event_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15::text::json, $16::text::json, $17, $18, $19,
        'queued', 1, 0, $20, $20)
