-- People type the beginning of a run's id. It is a range of the ids of one owner, however many runs others have.
create index run_by_owner_and_id on store.run (owner_id, run_id);
