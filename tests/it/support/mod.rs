//! What the tests share: a cluster, servers, a reader of streams, a hostile network.

pub mod api;
pub mod artifacts;
pub mod cluster;
pub mod hands;
pub mod jwt;
pub mod models;
pub mod nginx;
pub mod process;
pub mod proxy;
pub mod runner;
pub mod runs;
pub mod server;
pub mod sse;
pub mod telegram;
pub mod threads;

use std::time::Duration;

/// How long a test waits for what must happen: less than a lease, so that none that lapses hides a lost wake-up.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// Waits for something, but not for ever.
pub async fn patiently<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.unwrap_or_else(|_| panic!("waited {PATIENCE:?} for {what}"))
}

/// Waits until a condition holds.
pub async fn until<F: Future<Output = bool>>(what: &str, condition: impl FnMut() -> F) {
    let mut condition = condition;
    patiently(what, async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
