//! Floods of requests whose answers are read.

use std::io;

use tokio::time::{Duration, sleep};

use super::attack::Attacker;
use crate::wire;

/// The same request on this many connections, forever.
pub(super) async fn again(attacker: &Attacker, path: &str, connections: usize) {
    flood(attacker, path, connections, |_| false).await;
}

/// The end of the attacker's feed, again as soon as it has caught up.
pub(super) async fn feeds(attacker: &Attacker, connections: usize) {
    let caught_up = |bytes: &[u8]| bytes.windows(16).any(|word| word == b"stream.caught_up");
    flood(attacker, "/api/stream/runs?tail=10", connections, caught_up).await;
}

async fn flood(attacker: &Attacker, path: &str, connections: usize, enough: fn(&[u8]) -> bool) {
    let tasks = (0..connections).map(|_| {
        let (attacker, path) = (attacker.clone(), path.to_owned());
        tokio::spawn(async move {
            loop {
                let answer = ask(&attacker, &path, enough).await;
                attacker.note(answer.as_ref().map_or_else(|_| "cut".to_owned(), u16::to_string));
                if !matches!(answer, Ok(200)) {
                    sleep(Duration::from_millis(20)).await;
                }
            }
        })
    });
    futures::future::join_all(tasks.collect::<Vec<_>>()).await;
}

async fn ask(attacker: &Attacker, path: &str, enough: fn(&[u8]) -> bool) -> io::Result<u16> {
    let credential = format!("authorization: Bearer {}", attacker.token);
    let mut response = wire::get(attacker.address, path, &[credential]).await?;
    while let Some(bytes) = response.next().await? {
        if enough(&bytes) {
            break;
        }
    }
    Ok(response.status)
}
