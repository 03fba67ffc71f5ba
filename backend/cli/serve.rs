//! `runreel serve`.

use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::render::{print, say};
use crate::{
    app::App,
    config::{Auth, Secrets, ServeArgs},
    http::tls::Tls,
    telemetry,
};

/// Starts the server, prints its address, and serves until SIGTERM or Ctrl-C.
pub(super) async fn run(args: ServeArgs) -> anyhow::Result<ExitCode> {
    telemetry::logs(args.log_format);
    raise_descriptors();
    let began = tokio::time::Instant::now();
    let secrets = Secrets::read()?;
    // Signals are caught from the start, so that Ctrl-C while the database starts still stops the database.
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let app = tokio::select! {
        app = App::start(&args, &secrets) => app?,
        _ = terminate.recv() => return Ok(ExitCode::SUCCESS),
        _ = interrupt.recv() => return Ok(ExitCode::from(super::exit::INTERRUPTED)),
    };
    let url = format!("{}://{}", args.tls.scheme(), app.address()?);
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
    if let Some(tls) = app.tls() {
        #[expect(clippy::disallowed_methods, reason = "ends with the process")]
        tokio::spawn(renew(tls.clone(), signal(SignalKind::hangup())?));
    }
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

/// Uses a renewed certificate for new connections, after each SIGHUP.
async fn renew(tls: Tls, mut hang_up: Signal) {
    while hang_up.recv().await.is_some() {
        match tls.reload() {
            Ok(()) => tracing::info!("certificate read again"),
            Err(error) => tracing::warn!(error, "certificate not read again; the previous one stays in use"),
        }
    }
}

/// Allows as many open files as this user may have: every stream needs one, and shells allow 1 024.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let may_grow = |current| limit.maximum.is_none_or(|maximum| current < maximum);
    if limit.current.is_some_and(may_grow) {
        // On failure, the current limit is enough for a few hundred streams.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
}
