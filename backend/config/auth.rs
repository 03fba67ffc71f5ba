//! The settings of authentication.

use clap::{Args, ValueEnum};

/// Which credentials the server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Auth {
    /// No credentials; only on a loopback address.
    Off,
    /// JWTs (HS256) and API tokens.
    Jwt,
}

/// Who the server believes.
#[derive(Clone, Debug, Args)]
pub struct AuthArgs {
    /// The credentials that are accepted.
    #[arg(long, env = "RUNREEL_AUTH", value_enum, default_value_t = Auth::Off)]
    pub auth: Auth,
    /// The issuer (`iss`) a JWT must have.
    #[arg(long, env = "RUNREEL_JWT_ISSUER", value_name = "ISS")]
    pub jwt_issuer: Option<String>,
    /// The audience (`aud`) a JWT must have.
    #[arg(long, env = "RUNREEL_JWT_AUDIENCE", value_name = "AUD")]
    pub jwt_audience: Option<String>,
}
