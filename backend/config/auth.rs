//! The settings of authentication.

use std::{fmt, str::FromStr};

use clap::{Args, ValueEnum};
use reqwest::Url;

use super::{Error, error};

/// Which credentials the server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Auth {
    /// No credentials; only on a loopback address.
    Off,
    /// JWTs and API tokens.
    Jwt,
}

/// Who the server believes.
#[derive(Clone, Debug, Args)]
pub struct AuthArgs {
    /// The credentials that are accepted.
    #[arg(long, env = "RUNREEL_AUTH", value_enum, default_value_t = Auth::Off)]
    pub auth: Auth,
    /// Identity providers (`OpenID` Connect) whose tokens are accepted, by their issuer, such as <https://id.example>; or
    /// ISSUER=URL with the URL of the keys. Separated by commas or given several times.
    #[arg(long, env = "RUNREEL_JWT_PROVIDER", value_name = "ISSUER", value_delimiter = ',')]
    pub jwt_provider: Vec<Provider>,
    /// The issuer (`iss`) that a JWT signed with the secret must have.
    #[arg(long, env = "RUNREEL_JWT_ISSUER", value_name = "ISS")]
    pub jwt_issuer: Option<String>,
    /// The audiences (`aud`) of which a JWT must have one. Required with --jwt-provider.
    #[arg(long, env = "RUNREEL_JWT_AUDIENCE", value_name = "AUD", value_delimiter = ',')]
    pub jwt_audience: Vec<String>,
    /// The claim whose value owns what its members make, such as `org_id`, so that they see the same runs. Without it, or
    /// for a token without the claim, each subject (`sub`) owns what it makes. A claim inside another is named by its path,
    /// such as `org.id`.
    #[arg(long, env = "RUNREEL_JWT_TEAM_CLAIM", value_name = "CLAIM")]
    pub jwt_team_claim: Option<String>,
    /// The claim that names the role: reader, owner or admin, alone or in a list. It may be inside another, such as
    /// `realm_access.roles`. Without it, everybody is an admin of what they own.
    #[arg(long, env = "RUNREEL_JWT_ROLE_CLAIM", value_name = "CLAIM")]
    pub jwt_role_claim: Option<String>,
}

impl AuthArgs {
    /// Checks what the types cannot express; `has_secret`: whether a secret that signs tokens is set.
    pub(super) fn check(&self, has_secret: bool) -> Result<(), Error> {
        if self.auth == Auth::Off {
            return Ok(());
        }
        if !has_secret && self.jwt_provider.is_empty() {
            return Err(error(
                "--auth jwt requires an identity provider (--jwt-provider) or the secret that signs the tokens: set \
                 RUNREEL_JWT_SECRET or RUNREEL_JWT_SECRET_FILE (at least 32 bytes, for example from: openssl rand -hex 32)",
            ));
        }
        if !self.jwt_provider.is_empty() && self.jwt_audience.is_empty() {
            return Err(error(
                "--jwt-provider requires --jwt-audience: otherwise tokens for every other service of the provider are \
                 accepted here too",
            ));
        }
        Ok(())
    }
}

/// An identity provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// Exactly as in its tokens.
    pub issuer: String,
    /// The URL of its keys; without it, its discovery document names it (`OpenID` Connect Discovery 1.0, 4).
    pub keys_url: Option<Url>,
}

impl Provider {
    /// The URL of its discovery document.
    pub fn document_url(&self) -> String {
        format!("{}/.well-known/openid-configuration", self.issuer.trim_end_matches('/'))
    }

    /// Requires TLS except on this machine, so that keys cannot be replaced in transit.
    pub fn check_url(url: &Url) -> Result<(), Error> {
        let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let is_local = host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback());
        let is_bare = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
        match url.scheme() {
            "https" if is_bare => Ok(()),
            "http" if is_bare && is_local => Ok(()),
            _ => Err(error(format!("a URL that begins with https:// is needed, or http:// on this machine: {url}"))),
        }
    }
}

impl FromStr for Provider {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (issuer, keys_url) = match text.split_once('=') {
            Some((issuer, keys)) => (issuer, Some(keys)),
            None => (text, None),
        };
        let url = |text: &str| {
            let url = Url::parse(text)
                .map_err(|_| error(format!("an issuer is a URL such as https://id.example: {text}")))?;
            Self::check_url(&url).map(|()| url)
        };
        url(issuer)?;
        Ok(Self { issuer: issuer.to_owned(), keys_url: keys_url.map(url).transpose()? })
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.keys_url {
            Some(url) => write!(f, "{}={url}", self.issuer),
            None => f.write_str(&self.issuer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_its_issuer_and_maybe_the_url_of_its_keys() {
        let plain: Provider = "https://id.example/realms/a".parse().unwrap();
        assert_eq!(plain.document_url(), "https://id.example/realms/a/.well-known/openid-configuration");
        // Auth0's issuers end with a slash, and so do its tokens.
        let slash: Provider = "https://a.auth0.example/".parse().unwrap();
        assert_eq!(
            (slash.issuer.as_str(), slash.document_url().as_str()),
            ("https://a.auth0.example/", "https://a.auth0.example/.well-known/openid-configuration",)
        );
        let keys: Provider = "https://id.example=https://keys.example/jwks?v=1".parse().unwrap();
        assert_eq!(keys.keys_url.unwrap().as_str(), "https://keys.example/jwks?v=1");
        assert!("http://127.0.0.1:8080/a".parse::<Provider>().is_ok());
    }

    #[test]
    fn an_address_over_which_keys_could_be_exchanged_is_refused() {
        for text in
            ["", "id.example", "http://id.example", "https://user@id.example", "https://id.example=http://k.example"]
        {
            assert!(text.parse::<Provider>().is_err(), "{text}");
        }
    }
}
