//! Sessions of the database whose client is gone, and what they keep.

use crate::support::{cluster::execute, runs::numbered, server::Server, until};

#[tokio::test]
async fn a_writer_that_was_cut_off_in_the_middle_of_an_append_does_not_keep_the_lane() {
    let server = Server::start().await;
    let run = server.start_run().await;
    let mut cut_off = server.db.connect().await;
    execute(&mut cut_off, "begin; update store.lane set position = position".to_owned()).await;
    until("an event to be stored", || async { server.try_emit(&run, numbered(1)).await.status == 200 }).await;
    let alive = sqlx::query_scalar::<_, i32>("select 1").fetch_one(&mut cut_off).await;
    assert!(alive.is_err(), "the session that held the lane is ended");
}
