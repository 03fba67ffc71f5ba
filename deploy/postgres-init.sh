#!/usr/bin/env bash
# The role and the database of docs/operations.md#a-postgres-of-yours. The Postgres image runs this on an empty volume.
set -euo pipefail

# The password stands in the URL, between the user's colon and the host's @. psql reads it from its input, because
# arguments are visible in the process list.
psql -v ON_ERROR_STOP=1 -U postgres -d postgres <<'SQL'
\set password `sed -E 's,^postgres://runreel:([^@]+)@.*,\1,' /run/secrets/database_url`
create role runreel login createrole password :'password';
create database runreel owner runreel;
SQL
