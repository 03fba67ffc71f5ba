-- Answering what a run asks takes a scope of its own, `approve`. Tokens that could do so by `emit` still can.
--
-- Row-level security holds for the table's owner as well, who is given no policy to change tokens by: it is lifted for
-- this statement.
alter table store.api_token no force row level security;
update store.api_token set scopes = scopes || 'approve'::text where 'emit' = any (scopes) and not 'approve' = any (scopes);
alter table store.api_token force row level security;
