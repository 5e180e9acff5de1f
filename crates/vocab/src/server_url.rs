//! [`ServerUrl`]: the address of a model server that somebody else runs, and [`TargetKey`]: which server that is.
//!
//! Boundary: text in, values out; no name is resolved here. Two addresses of one server have one key: scheme `ws` is
//! `http` and `wss` is `https`, the host is lower case, all names of this machine's loopback are one, and a default
//! port, user info, query, fragment, final `/` and final `/v1` do not count.
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
    sync::Arc,
};

/// Hosts by which clouds hand out credentials: no model server is there.
const METADATA: [&str; 4] = ["metadata", "metadata.google.internal", "instance-data", "instance-data.ec2.internal"];
/// The same by address, where it is not link-local: Alibaba's, and Amazon's over IPv6.
const METADATA_V4: Ipv4Addr = Ipv4Addr::new(100, 100, 100, 200);
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// An address of a server: `http://host[:port][/path]`, or with `https`, `ws`, `wss`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerUrl {
    transport: Transport,
    host: Host,
    port: u16,
    /// Empty, or `/…` without a final `/`.
    path: String,
}

/// How a server is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// In the clear.
    Http,
    /// Encrypted.
    Https,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Host {
    Address(IpAddr),
    /// Lower case, not empty.
    Name(String),
}

/// Which server: the canonical address. Two targets with the same key share residents, capacity and lock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetKey(Arc<str>);

/// Why a text is no address of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlError {
    /// Not `http`, `https`, `ws` or `wss`, followed by `://`.
    Scheme,
    /// No host, or one that holds what no host does.
    Host,
    /// Not a number of 1 to 65535.
    Port,
    /// Blanks, control characters, or what is not ASCII.
    Path,
}

impl Transport {
    /// The port that need not be said.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    /// `http` or `https`.
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

impl ServerUrl {
    /// How it is spoken to.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Its port, said or not.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address as it was configured, without what never counts: user info, query, fragment, final `/`.
    pub fn base(&self) -> String {
        format!("{}{}", self.origin(&self.host), self.path)
    }

    /// The same without a final `/v1`: where a server's own routes begin.
    pub fn root(&self) -> String {
        format!("{}{}", self.origin(&self.host), self.path.strip_suffix("/v1").unwrap_or(&self.path))
    }

    /// Which server it is.
    pub fn key(&self) -> TargetKey {
        let host = if self.is_loopback() { Host::Address(Ipv4Addr::LOCALHOST.into()) } else { self.host.clone() };
        let mut path = self.path.as_str();
        while let Some(rest) = path.strip_suffix("/v1") {
            path = rest.trim_end_matches('/');
        }
        TargetKey(format!("{}{path}", self.origin(&host)).into())
    }

    /// Whether it is this machine by its very name.
    pub fn is_loopback(&self) -> bool {
        match &self.host {
            Host::Address(IpAddr::V4(address)) => *address == Ipv4Addr::LOCALHOST,
            Host::Address(IpAddr::V6(address)) => *address == Ipv6Addr::LOCALHOST,
            Host::Name(name) => name == "localhost",
        }
    }

    /// Whether it is an address that no model server may have: link-local, or where clouds hand out credentials.
    pub fn is_off_limits(&self) -> bool {
        match &self.host {
            Host::Address(address) => is_off_limits(*address),
            Host::Name(name) => METADATA.contains(&name.as_str()),
        }
    }

    fn origin(&self, host: &Host) -> String {
        let scheme = self.transport.scheme();
        let port = if self.port == self.transport.default_port() { String::new() } else { format!(":{}", self.port) };
        match host {
            Host::Address(IpAddr::V6(address)) => format!("{scheme}://[{address}]{port}"),
            Host::Address(IpAddr::V4(address)) => format!("{scheme}://{address}{port}"),
            Host::Name(name) => format!("{scheme}://{name}{port}"),
        }
    }
}

/// Whether no model server may be at `address`, to whatever name it belongs.
fn is_off_limits(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local() || address == METADATA_V4,
        IpAddr::V6(address) => address.is_unicast_link_local() || address == METADATA_V6,
    }
}

impl TargetKey {
    /// The canonical address.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether no model server may be at `address`: link-local, or where clouds hand out credentials. For what a name
    /// turns out to mean.
    pub fn forbids(address: IpAddr) -> bool {
        is_off_limits(address.to_canonical())
    }
}

impl FromStr for ServerUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = text.trim().split_once("://").ok_or(UrlError::Scheme)?;
        let transport = match scheme.to_ascii_lowercase().as_str() {
            "http" | "ws" => Transport::Http,
            "https" | "wss" => Transport::Https,
            _ => return Err(UrlError::Scheme),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        let (host, port) = split_port(authority.rsplit_once('@').map_or(authority, |(_, host)| host))?;
        let path = rest.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
        if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(UrlError::Path);
        }
        let port = match port {
            None | Some("") => transport.default_port(),
            Some(digits) => parse_port(digits)?,
        };
        Ok(Self { transport, host: parse_host(host)?, port, path: path.to_owned() })
    }
}

/// `[::1]:80` and `host:80`; IPv6 without brackets is no host.
fn split_port(authority: &str) -> Result<(&str, Option<&str>), UrlError> {
    if authority.starts_with('[') {
        let end = authority.find(']').ok_or(UrlError::Host)?;
        let (host, rest) = authority.split_at(end + 1);
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(UrlError::Host),
        };
    }
    match authority.split_once(':') {
        Some((_, port)) if port.contains(':') => Err(UrlError::Host),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((authority, None)),
    }
}

fn parse_port(digits: &str) -> Result<u16, UrlError> {
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|port| is_number && *port != 0).ok_or(UrlError::Port)
}

fn parse_host(text: &str) -> Result<Host, UrlError> {
    if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let address: Ipv6Addr = inner.parse().map_err(|_| UrlError::Host)?;
        return Ok(Host::Address(IpAddr::V6(address).to_canonical()));
    }
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Ok(Host::Address(address.into()));
    }
    let name = text.to_ascii_lowercase();
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    // Resolvers read `0x7f.1` and `2130706433` as addresses: a name that ends in a number is a disguise.
    let last = name.strip_suffix('.').unwrap_or(&name).rsplit('.').next().unwrap_or_default();
    let is_number = last.starts_with("0x") || last.bytes().all(|byte| byte.is_ascii_digit());
    if is_number || !name.bytes().all(is_name) {
        return Err(UrlError::Host);
    }
    Ok(Host::Name(name))
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base())
    }
}

impl fmt::Display for TargetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheme => "an address begins with http:// or https://",
            Self::Host => "an address names a host, or an IP address as it is written",
            Self::Port => "a port is a number of 1 to 65535",
            Self::Path => "an address holds no blanks and nothing but ASCII",
        })
    }
}

impl std::error::Error for UrlError {}

#[cfg(test)]
#[path = "server_url_tests.rs"]
mod tests;
