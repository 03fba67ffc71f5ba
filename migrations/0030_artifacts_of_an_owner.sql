-- All artifacts of an owner are listed newest first, as those of a run are.
create index artifact_by_owner on store.artifact (owner_id, artifact_id desc);
