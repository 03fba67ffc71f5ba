//! The program: parses the arguments, runs the command, returns its exit code.

use std::{process::ExitCode, time::Duration};

use runreel::cli;

/// Returns unused memory to the system, which the system's allocator does not: docs/performance.md.
#[global_allocator]
static MEMORY: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = match cli::given() {
        Ok(cli) => cli,
        Err(error) => return cli::exit::report(&error),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return cli::exit::report(&anyhow::Error::new(error).context("cannot start the async runtime")),
    };
    let code = runtime.block_on(cli::run(cli));
    // A thread that still reads or writes a file, or waits for a key, does not delay the exit.
    runtime.shutdown_timeout(Duration::from_millis(100));
    code
}
