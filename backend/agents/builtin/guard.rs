//! Which network addresses a fetch may reach: hosts by name, and addresses after resolution.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};

/// A host that may be fetched from: `example.org`, `*.example.org`, `*`, each also with `:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    name: String,
    port: Option<u16>,
}

impl Host {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a host such as example.org, *.example.org, * or example.org:8080");
        let lower = text.trim().to_ascii_lowercase();
        let (name, port) = match lower.rsplit_once(':') {
            Some((name, port)) if !name.contains(':') || name.ends_with(']') => {
                (name.to_owned(), Some(port.parse().map_err(|_| wrong())?))
            }
            _ => (lower, None),
        };
        let bare = name.strip_prefix("*.").unwrap_or(&name);
        let fits = bare == "*" || (!bare.is_empty() && !bare.contains(['*', '/', '@', ' ']));
        if fits { Ok(Self { name, port }) } else { Err(wrong()) }
    }

    /// Whether a host and port match; without a port of its own, 80 and 443 do.
    fn covers(&self, host: &str, port: u16) -> bool {
        let by_name = match self.name.strip_prefix("*.") {
            Some(parent) => host.strip_suffix(parent).is_some_and(|child| child.ends_with('.')),
            None => self.name == "*" || self.name == host,
        };
        by_name && self.port.map_or(matches!(port, 80 | 443), |allowed| allowed == port)
    }
}

/// The hosts of one tool.
#[derive(Clone, Debug, Default)]
pub(super) struct Hosts {
    pub(super) allowed: Vec<Host>,
    /// Of these, those whose addresses may be private.
    pub(super) private: Vec<Host>,
}

impl Hosts {
    /// Whether the text of a URL is allowed; its addresses are checked when it is resolved.
    pub(super) fn check(&self, url: &Url) -> Result<(), String> {
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return Err("this URL has no host".to_owned());
        };
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("{} is neither http nor https", url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("URLs with a user name or password are not allowed".to_owned());
        }
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        if !self.allowed.iter().any(|allowed| allowed.covers(&host, port)) {
            return Err(format!("{host}:{port} is not an allowed host"));
        }
        let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        match literal {
            Ok(address) if !self.reachable(&host, address) => Err(private(&host)),
            _ => Ok(()),
        }
    }

    fn reachable(&self, host: &str, address: IpAddr) -> bool {
        is_public(address) || (!is_never(address) && self.private.iter().any(|own| own.name == host))
    }
}

fn private(host: &str) -> String {
    format!("{host} resolves to a private address")
}

/// Resolves names, to allowed addresses only. The connection uses these addresses and does not resolve the name again,
/// so a later change of the name has no effect.
pub(super) struct Resolver(pub(super) Arc<Hosts>);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (hosts, name) = (Arc::clone(&self.0), name.as_str().trim_end_matches('.').to_ascii_lowercase());
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let reachable: Vec<SocketAddr> =
                found.iter().copied().filter(|address| hosts.reachable(&name, address.ip())).collect();
            if reachable.is_empty() {
                return Err(if found.is_empty() {
                    format!("{name} does not resolve to an address")
                } else {
                    private(&name)
                }
                .into());
            }
            Ok(Box::new(reachable.into_iter()) as Addrs)
        })
    }
}

/// Whether it is an address of the public internet.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        // Global unicast, except documentation, benchmarks and the other special blocks below 2001::/23.
        IpAddr::V6(v6) => embedded_v4(v6).map_or_else(
            || {
                let [a, b, ..] = v6.segments();
                (a & 0xe000) == 0x2000 && !(a == 0x2001 && b < 0x0200) && !(a == 0x2001 && b == 0x0db8) && a != 0x3fff
            },
            is_public_v4,
        ),
    }
}

fn is_public_v4(v4: Ipv4Addr) -> bool {
    let [a, b, c, _] = v4.octets();
    let special = v4.is_private()
        || v4.is_loopback()
        || v4.is_link_local()
        || v4.is_documentation()
        || a == 0
        || a >= 224
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (18..20).contains(&b));
    !special
}

/// Addresses that no configuration allows; the link-local ones hold the metadata services of clouds.
fn is_never(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_multicast() || v4.is_broadcast() || v4.is_unspecified(),
        IpAddr::V6(v6) => match embedded_v4(v6) {
            Some(v4) => is_never(IpAddr::V4(v4)),
            // fd00:ec2::254 is the metadata service of AWS.
            None => {
                v6.is_unicast_link_local()
                    || v6.is_multicast()
                    || v6.is_unspecified()
                    || v6.segments()[..2] == [0xfd00, 0xec2]
            }
        },
    }
}

/// The IPv4 address embedded in an IPv6 one: mapped, compatible, translated (NAT64, 6to4).
fn embedded_v4(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let of = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match v6.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => Some(of(high, low)),
        [0, 0, 0, 0, 0, 0, high, low] if !v6.is_loopback() && !v6.is_unspecified() => Some(of(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(of(high, low)),
        [0x2002, high, low, ..] => Some(of(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_open_internet_are_public() {
        for address in ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "192.0.2.1",
            "192.0.0.8",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "2002:7f00:1::",
            "::7f00:1",
            "2001:db8::1",
            "2001::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn hosts_are_allowed_by_name_and_port() {
        let host = |text: &str| Host::parse(text).unwrap();
        let hosts = Hosts {
            allowed: ["example.org", "*.docs.rs", "wiki.local:8080", "10.0.0.1", "[::1]:9"].map(host).to_vec(),
            private: vec![host("wiki.local")],
        };
        let check = |url: &str| hosts.check(&Url::parse(url).unwrap());
        for good in
            ["https://example.org/x?y", "http://EXAMPLE.org./", "https://a.b.docs.rs/", "http://wiki.local:8080/"]
        {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            "https://docs.rs/",
            "https://notexample.org/",
            "https://evildocs.rs/",
            "https://example.org:8443/",
            "http://wiki.local/",
            "ftp://example.org/",
            "https://me:pw@example.org/",
            "http://10.0.0.1/",
            "http://[::1]:9/",
            "http://0x0a000001/",
            "file:///etc/passwd",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
        for wrong in ["", "a/b", "*a.org", "a.org:port", "a@b"] {
            assert!(Host::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn metadata_is_out_of_reach_even_of_private_hosts() {
        let hosts = Hosts { allowed: Vec::new(), private: vec![Host::parse("intranet").unwrap()] };
        assert!(hosts.reachable("intranet", "10.0.0.7".parse().unwrap()));
        assert!(!hosts.reachable("intranet", "169.254.169.254".parse().unwrap()));
        assert!(!hosts.reachable("elsewhere", "10.0.0.7".parse().unwrap()));
    }
}
