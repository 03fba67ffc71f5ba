-- What Postgres does in one go, however long it takes.
--
-- A time limit ends a statement where Postgres looks for interrupts. Some operators and functions go through all of one value
-- for every part of another and never look: `like`, `translate`, `@>` of arrays, products of long numbers. Queries over HTTP
-- get them under the same names from a schema that comes before `pg_catalog` in their search path: these refuse values that
-- would take longer than a second, and larger ones come to a place where an interrupt is noticed. Small values cost nothing:
-- the planner puts the expression in the place of the call.
create schema runreel_bounded;
grant usage on schema runreel_bounded to runreel_scoped;

-- Whether so many comparisons may be made. It is called for many only; a function of this language notices an interrupt.
create function runreel_bounded.allows(comparisons bigint) returns boolean
    language plpgsql immutable parallel safe as $$
begin
    if comparisons > 100000000 then
        raise exception 'two values are too large to be put together in a query'
            using errcode = 'program_limit_exceeded',
                  hint = 'The product of their sizes may be 100 000 000 at most.';
    end if;
    return true;
end
$$;

do $$
declare
    it   record;
    call text;
begin
    for it in
        select p.oid, p.proname, p.pronargs, p.prorettype::regtype as result, p.proretset, p.provolatile, o.oprname,
               o.oprleft::regtype as oprleft, o.oprright::regtype as oprright, o.oprrest, o.oprjoin,
               oidvectortypes(p.proargtypes) as args, w.work
        from (
            select p.oid::oid as function, null::oid as operator, 'octet_length($1)::bigint * octet_length($2)' as work
            from pg_proc p
            where pronamespace = 'pg_catalog'::regnamespace and proargtypes[0] = any ('{text,bytea}'::regtype[])
              and proargtypes[1] = proargtypes[0]
              and proname = any ('{translate,btrim,ltrim,rtrim,strpos,replace,split_part,string_to_array,string_to_table,like,notlike}')
            union all
            select oprcode, oid, 'octet_length($1)::bigint * octet_length($2)' from pg_operator
            where oprnamespace = 'pg_catalog'::regnamespace and oprname = any ('{~~,!~~,~~*,!~~*}')
              and oprleft = any ('{text,bpchar,bytea}'::regtype[])
            union all
            select oprcode, oid, 'cardinality($1)::bigint * cardinality($2)' from pg_operator
            where oprnamespace = 'pg_catalog'::regnamespace and oprname = any ('{@>,<@,&&}') and oprleft = 'anyarray'::regtype
            union all
            select oprcode, oid, 'pg_column_size($1)::bigint * pg_column_size($2)' from pg_operator
            where oprnamespace = 'pg_catalog'::regnamespace
              and (oprleft = 'numeric'::regtype and oprright = 'numeric'::regtype and oprname = any ('{*,/,%}')
                   or oprleft = 'jsonb'::regtype and oprright = 'jsonb'::regtype and oprname = any ('{@>,<@}')
                   or oprleft = 'jsonb'::regtype and oprright = 'text[]'::regtype and oprname = any ('{?|,?&,-}'))
            union all
            -- Of a number of any size these take seconds at most, but one statement may have thousands of them.
            select oid, null, '100000' from pg_proc
            where pronamespace = 'pg_catalog'::regnamespace and proargtypes[0] = 'numeric'::regtype
              and prorettype = 'numeric'::regtype
              and proname = any ('{div,mod,power,exp,ln,log,sqrt,numeric_div_trunc,numeric_exp,numeric_ln,numeric_log,numeric_sqrt}')
            union all
            select oprcode, oid, '100000' from pg_operator
            where oprnamespace = 'pg_catalog'::regnamespace and oprleft = 'numeric'::regtype and oprright = 'numeric'::regtype
              and oprname = '^'
        ) w
        join pg_proc p on p.oid = w.function
        left join pg_operator o on o.oid = w.operator
    loop
        call := coalesce('$1 operator(pg_catalog.' || it.oprname || ') $2',
                         format('pg_catalog.%I(%s)', it.proname,
                                (select string_agg('$' || n, ', ') from generate_series(1, it.pronargs) as n)));
        if it.proretset then
            call := format('select part from %s as part where coalesce(%s, 0) <= 65536 or runreel_bounded.allows(%s)', call, it.work, it.work);
        else
            call := format('select case when coalesce(%s, 0) <= 65536 or runreel_bounded.allows(%s) then %s end', it.work, it.work, call);
        end if;
        execute format('create or replace function runreel_bounded.%I(%s) returns %s%s language sql %s parallel safe as %L',
                       it.proname, it.args, case when it.proretset then 'setof ' end, it.result,
                       -- Less than what it calls promises, and it would not be put in its own place.
                       case when it.provolatile = 'i' and it.work not like 'pg_column_size%' then 'immutable' else 'stable' end,
                       call);
        if it.oprname is not null then
            execute format('create operator runreel_bounded.%s (leftarg = %s, rightarg = %s, function = runreel_bounded.%I%s%s)',
                           it.oprname, it.oprleft, it.oprright, it.proname,
                           case when it.oprrest <> 0 then ', restrict = ' || it.oprrest end,
                           case when it.oprjoin <> 0 then ', join = ' || it.oprjoin end);
        end if;
    end loop;
end
$$;

alter function runreel.answer(text, int, bigint, bigint)
    set search_path = runreel_bounded, pg_catalog, runreel, pg_temp;

-- Ends a query of a principal, and says whether its backend is gone: what it does in one go it finishes before.
create function store.end_query(name text) returns boolean
    language plpgsql security definer set search_path = pg_catalog as $$
begin
    perform pg_terminate_backend(pid) from pg_stat_activity where application_name = name and name like 'runreel-query %';
    return not exists (select from pg_stat_activity where application_name = name);
end
$$;
revoke execute on function store.end_query(text) from public;
grant execute on function store.end_query(text) to runreel_writer;
