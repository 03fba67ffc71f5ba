-- Four roles share the work, so that no single slip of the program can do everything.
--
--   runreel_app        serves requests: reads what one owner may see, appends nothing
--   runreel_writer     the writer lanes: append events and move run heads
--   runreel_retention  the only one that may remove events
--   runreel_reader     people with SQL: reads, and nothing else
--
-- None of them can log in. The server connects as the role its URL names and then says `set role`. Roles belong to the
-- whole cluster, so another database of the same cluster may have made them a moment ago: that is fine.
do $$
declare
    wanted text;
begin
    foreach wanted in array array['runreel_app', 'runreel_writer', 'runreel_retention', 'runreel_reader'] loop
        begin
            if not exists (select from pg_roles where rolname = wanted) then
                execute format('create role %I nologin', wanted);
            end if;
        exception when duplicate_object or unique_violation then
            null;
        end;
        -- A superuser may become any role; anybody else has to be a member of it.
        if not pg_has_role(current_user, wanted, 'member') then
            execute format('grant %I to %I', wanted, current_user);
        end if;
    end loop;
end
$$;

create schema store;
create schema runreel;

grant usage on schema store to runreel_app, runreel_writer, runreel_retention;
grant usage on schema runreel to runreel_app, runreel_reader;
