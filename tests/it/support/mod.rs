//! What the tests share: a cluster, servers, a reader of streams, a hostile network.

pub mod api;
pub mod artifacts;
pub mod chats;
pub mod cluster;
pub mod hands;
pub mod jwt;
pub mod models;
pub mod nats_server;
pub mod nginx;
pub mod page;
pub mod pgbouncer;
pub mod process;
pub mod provider;
#[expect(dead_code, reason = "the fault harness uses the rest")]
pub mod proxy;
pub mod runner;
pub mod runs;
pub mod server;
pub mod shared;
pub mod sse;
pub mod telegram;
pub mod threads;
pub mod tools;

use std::{collections::BTreeSet, sync::Mutex, time::Duration};

/// The tests whose log is captured: a test is one thread, and so are its servers' tasks.
static LOG_TAKEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Captures the log of this test's servers, unless it is captured already.
pub fn take_log() -> bool {
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    LOG_TAKEN.lock().unwrap().insert(test)
}

/// Shows the log of this test's servers if the test fails.
pub fn show_log() {
    if take_log() {
        let said = tracing_subscriber::fmt().with_env_filter("info,runreel=debug").with_ansi(false).with_test_writer();
        // For the rest of the thread, which is the test's.
        std::mem::forget(tracing::subscriber::set_default(said.finish()));
    }
}

/// How long a test waits for what must happen: less than a lease, so that no lapsing lease hides a lost wake-up.
pub const PATIENCE: Duration = Duration::from_secs(25);

/// Waits for something, with a time limit.
pub async fn patiently<T>(what: &str, work: impl Future<Output = T>) -> T {
    within(PATIENCE, what, work).await
}

/// Like [`patiently`], with a bound for what takes longer.
pub async fn within<T>(max: Duration, what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(max, work).await;
    done.unwrap_or_else(|_| panic!("waited {max:?} for {what}"))
}

/// Waits until a condition holds.
pub async fn until<F: Future<Output = bool>>(what: &str, condition: impl FnMut() -> F) {
    patiently(what, holds(condition)).await;
}

/// Polls until a condition holds.
pub async fn holds<F: Future<Output = bool>>(mut condition: impl FnMut() -> F) {
    while !condition().await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
