//! How large a checkpoint may become, and what reading a large one takes.
//!
//! A write has seconds, whatever its size: `./just test-all` runs these tests when nothing else runs.

use runreel::{
    domain::principal::OwnerId,
    store::{Error, checkpoints::CheckpointFilter, page::Page},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpSocket,
};

use crate::support::{
    patiently,
    server::Server,
    threads::{blob, bytes_of, checkpoint_of, state_with, write, writes_of},
};

const MIB: usize = 1024 * 1024;

/// Names the values of these channels, and brings one of them.
fn naming(channels: &[&str], brought: Option<(&str, usize)>) -> Value {
    let versions: Value = channels.iter().map(|channel| ((*channel).to_owned(), json!(1))).collect();
    let blobs: Value =
        brought.iter().map(|(channel, bytes)| ((*channel).to_owned(), blob(1, &vec![0; *bytes]))).collect();
    state_with("x", json!({ "versions": versions, "blobs": blobs }))
}

#[tokio::test]
async fn the_values_of_a_checkpoint_are_bounded_together_whenever_they_came() {
    let server = Server::start().await;
    let put = async |thread: &str, id: &str, body: Value| server.try_checkpoint(thread, id, body).await;
    put("t", "1", naming(&["a"], Some(("a", 20 * MIB)))).await.expect(201);
    let too_much = naming(&["a", "b"], Some(("b", 12 * MIB)));
    put("t", "2", too_much.clone()).await.refused(413, "too_large");
    assert_eq!(server.db.number("select count(*) from store.blob").await, 1);
    server.get(&checkpoint_of("t", "2")).await.refused(404, "not_found");
    // A thread that is not there has no values to add, and a refused checkpoint makes no thread.
    let alone = naming(&["a", "b"], Some(("b", 12 * MIB)));
    put("u", "2", alone).await.expect(201);
    let fits = naming(&["a", "b"], Some(("b", 11 * MIB)));
    put("t", "2", fits.clone()).await.expect(201);
    // The same again is no second time as large.
    put("t", "2", fits).await.expect(200);
    assert_eq!(bytes_of(&server.checkpoint("t", "2").await["blobs"]["b"]).len(), 11 * MIB);
    // Values that come later than their checkpoint can still make it larger than anything that is read.
    put("v", "1", naming(&["a", "b", "c", "d"], None)).await.expect(201);
    for (id, channel) in [("2", "a"), ("3", "b"), ("4", "c"), ("5", "d")] {
        put("v", id, naming(&[channel], Some((channel, 20 * MIB)))).await.expect(201);
    }
    server.get(&checkpoint_of("v", "1")).await.refused(413, "too_large");
    server.get("/api/threads/v/checkpoints?before=2").await.refused(413, "too_large");
    assert_eq!(server.get("/api/threads/v/checkpoints/latest").await.expect(200)["checkpoint_id"], "5");
}

#[tokio::test]
async fn a_checkpoint_that_grows_before_it_is_read_is_not_read_whatever_size_another_has() {
    let server = Server::start().await;
    let put = async |id: &str, body: Value| server.try_checkpoint("t", id, body).await.expect(201);
    put("1", naming(&["a"], None)).await;
    put("2", naming(&["b"], Some(("b", MIB)))).await;
    let owner = OwnerId::trusted(server.thread("t").await["owner_id"].as_str().unwrap());
    let checkpoints = || server.inner.threads.store().checkpoints();
    let page = Page { after: None, limit: 10 };
    let found = checkpoints().find(&owner, &CheckpointFilter::default(), &page).await.unwrap();
    assert_eq!(checkpoints().read(&owner, &found).await.unwrap().len(), 2);
    put("3", naming(&["a"], Some(("a", MIB / 2)))).await;
    assert!(matches!(checkpoints().read(&owner, &found).await, Err(Error::Busy)));
    let found = checkpoints().find(&owner, &CheckpointFilter::default(), &page).await.unwrap();
    assert_eq!(checkpoints().read(&owner, &found).await.unwrap().len(), 3);
}

#[tokio::test]
async fn the_pending_writes_of_a_checkpoint_are_bounded_together() {
    let server = Server::start().await;
    let put = async |task: &str, bytes: usize| {
        let body = json!({ "task_id": task, "upsert": true, "writes": [write(0, "c", &vec![0; bytes])] });
        server.put(&writes_of("t", "1"), body).await
    };
    put("a", 20 * MIB).await.expect(200);
    put("b", 12 * MIB).await.refused(413, "too_large");
    put("b", 11 * MIB).await.expect(200);
    // One that takes the place of another counts instead of it.
    put("a", 20 * MIB).await.expect(200);
    put("a", 22 * MIB).await.refused(413, "too_large");
    assert_eq!(server.db.number("select sum(octet_length(b)) from store.pending_write").await, (31 * MIB) as i64);
    // Without replacing, what is there stays, and sending it again is no second time as much.
    let put = async |bytes: &[usize]| {
        let writes = bytes.iter().enumerate().map(|(n, bytes)| write(n as i64, "c", &vec![0; *bytes]));
        let body = json!({ "task_id": "a", "writes": writes.collect::<Vec<_>>() });
        server.put(&writes_of("u", "1"), body).await
    };
    put(&[20 * MIB]).await.expect(200);
    put(&[20 * MIB]).await.expect(200);
    put(&[1, 12 * MIB]).await.refused(413, "too_large");
    put(&[1, 11 * MIB]).await.expect(200);
    // Tasks that finish at the same time count each other.
    let put = async |task: usize| {
        let body = json!({ "task_id": task.to_string(), "writes": [write(0, "c", &vec![0; 12 * MIB])] });
        server.put(&writes_of("v", "1"), body).await.status
    };
    let mut together = futures::future::join_all((0..4).map(put)).await;
    together.sort_unstable();
    assert!(together.starts_with(&[200, 200, 413]), "{together:?}");
    server.get("/api/threads/v").await.expect(200);
}

#[tokio::test]
async fn a_large_checkpoint_is_read_when_its_principal_has_room_for_it() {
    let server = Server::start().await;
    server.try_checkpoint("t", "1", naming(&["a"], Some(("a", 20 * MIB)))).await.expect(201);
    let paths =
        [checkpoint_of("t", "1"), "/api/threads/t/checkpoints/latest".to_owned(), "/api/checkpoints".to_owned()];
    // Its head has arrived, its body stays on the way.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    let authority = server.base.trim_start_matches("http://");
    let mut unread = socket.connect(authority.parse().unwrap()).await.unwrap();
    let head = format!("GET {} HTTP/1.1\r\nhost: {authority}\r\n\r\n", paths[0]);
    unread.write_all(head.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    unread.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    let refused = paths.iter().map(|path| async { server.get(path).await.refused(429, "busy") });
    futures::future::join_all(refused).await;
    drop(unread);
    let read = patiently("room for it", async {
        loop {
            let reply = server.get(&paths[0]).await;
            if reply.status != 429 {
                return reply.expect(200);
            }
        }
    });
    assert_eq!(bytes_of(&read.await["blobs"]["a"]).len(), 20 * MIB);
}

#[tokio::test]
async fn a_body_of_thirty_two_mebibytes_is_kept_and_one_byte_more_is_not() {
    const MOST: usize = 32 * MIB;
    let server = Server::start().await;
    let sized = |prefix: &str, suffix: &str, bytes: usize| {
        let room = bytes - prefix.len() - suffix.len();
        // Base64 comes in fours; what is left over is white space.
        format!("{prefix}{}{suffix}{}", "QUJD".repeat(room / 4), " ".repeat(room % 4))
    };
    let (prefix, suffix) = (r#"{"checkpoint":{"t":"x","b":""#, r#""}}"#);
    server.put_text(&checkpoint_of("t", "1"), sized(prefix, suffix, MOST)).await.expect(201);
    let read = server.checkpoint("t", "1").await;
    assert_eq!(read["checkpoint"]["b"].as_str().unwrap().len(), (MOST - prefix.len() - suffix.len()) / 4 * 4);
    server.put_text(&checkpoint_of("t", "2"), sized(prefix, suffix, MOST + 1)).await.refused(413, "too_large");
    let (prefix, suffix) = (r#"{"task_id":"a","writes":[{"idx":0,"channel":"c","t":"x","b":""#, r#""}]}"#);
    server.put_text(&writes_of("t", "1"), sized(prefix, suffix, MOST)).await.expect(200);
    server.put_text(&writes_of("t", "2"), sized(prefix, suffix, MOST + 1)).await.refused(413, "too_large");
    // The other bodies keep the bound they had.
    let spaces = |bytes: usize| format!("{}{{}}", " ".repeat(bytes - 2));
    server.put_text("/api/threads/t", spaces(8 * MIB)).await.expect(200);
    server.put_text("/api/threads/t", spaces(8 * MIB + 1)).await.refused(413, "too_large");
    server.get(&checkpoint_of("t", "2")).await.refused(404, "not_found");
}
