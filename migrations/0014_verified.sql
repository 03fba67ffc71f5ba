-- A user of a channel who has given a one-time code can be made to give one anew: the row that says so goes. How long it
-- counts otherwise stands in the channel's configuration, so that a change there holds for everybody at once.
grant delete on store.channel_user to runreel_app;
