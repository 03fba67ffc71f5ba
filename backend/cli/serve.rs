//! `runreel serve`.

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

use super::render::{print, say};
use crate::{
    app::App,
    config::{Auth, Secrets, ServeArgs},
    telemetry,
};

/// Starts the server, prints its address, and serves until SIGTERM or Ctrl-C.
pub(super) async fn run(args: ServeArgs) -> anyhow::Result<ExitCode> {
    telemetry::logs(args.log_format);
    let began = tokio::time::Instant::now();
    let secrets = Secrets::read()?;
    // Signals are caught from the start, so that Ctrl-C while the database starts still stops the database.
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let app = tokio::select! {
        app = App::start(&args, &secrets) => app?,
        _ = terminate.recv() => return Ok(ExitCode::SUCCESS),
        _ = interrupt.recv() => return Ok(ExitCode::from(super::exit::INTERRUPTED)),
    };
    let url = format!("http://{}", app.address()?);
    let database = match &app.database().endpoint {
        Some(endpoint) => format!("embedded, socket {}", endpoint.socket_dir.display()),
        None => "DATABASE_URL".to_owned(),
    };
    let auth = match args.auth.auth {
        Auth::Off => "off (this machine only)",
        Auth::Jwt => "jwt and API tokens",
    };
    say(format!("runreel {} is ready in {} ms", env!("CARGO_PKG_VERSION"), began.elapsed().as_millis()));
    say(format!("  timeline  {url}\n  api       {url}/docs\n  database  {database}\n  auth      {auth}"));
    print(&format!("{url}\n"))?;
    let shutdown = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("draining");
    };
    app.run(shutdown).await?;
    Ok(ExitCode::SUCCESS)
}
