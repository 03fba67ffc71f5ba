-- Tokens for a tree or a thread, beside those for one run, which the API creates as well: so each owner's are bounded,
-- and what has ended goes.
alter table store.api_token
    -- With `run_id`: its descendants too.
    add column tree boolean not null default false,
    add column thread_id text,
    add constraint api_token_covers_one_thing
        check ((not tree or run_id is not null) and (run_id is null or thread_id is null));

grant delete on store.api_token to runreel_app;
