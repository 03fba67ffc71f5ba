//! The program.

use std::process::ExitCode;

/// Returns unused memory to the system, which the system's allocator does not: docs/performance.md.
#[global_allocator]
static MEMORY: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    runreel::cli::main()
}
