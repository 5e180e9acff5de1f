//! How servers are reached: in the clear or over TLS with the system's authorities, and never where no model server may
//! be, whatever name leads there.
use crate::kept::Counting;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::{
    HttpConnector,
    dns::{GaiResolver, Name},
};
use motorpool_vocab::TargetKey;
use std::{
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
    vec,
};
use tower::Service;

/// Until a server takes the connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Connects to servers.
pub(crate) type Connector = HttpsConnector<Counting<HttpConnector<Guarded>>>;

/// The system's resolver, without the addresses that are off limits.
#[derive(Clone, Debug)]
pub(crate) struct Guarded(GaiResolver);

/// A connector for all servers. Fails when the system has no certificate authorities.
pub(crate) fn connector() -> io::Result<Connector> {
    let mut http = HttpConnector::new_with_resolver(Guarded(GaiResolver::new()));
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT_WITHIN));
    let https = HttpsConnectorBuilder::new()
        .with_provider_and_native_roots(rustls::crypto::ring::default_provider())?
        .https_or_http()
        .enable_http1()
        .wrap_connector(Counting(http));
    Ok(https)
}

impl Service<Name> for Guarded {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let found = self.0.call(name);
        Box::pin(async move { allowed(found.await?.collect()).map(Vec::into_iter) })
    }
}

/// One forbidden address condemns the name: whoever answers so is not to be trusted with the others either.
fn allowed(found: Vec<SocketAddr>) -> io::Result<Vec<SocketAddr>> {
    if found.iter().any(|address| TargetKey::forbids(address.ip())) {
        let why = "its name means a link-local or metadata address, where no model server may be";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_means_a_link_local_or_metadata_address_leads_nowhere() {
        let at = |ip: &str| SocketAddr::new(ip.parse().expect("an address"), 80);
        for bad in ["169.254.169.254", "169.254.0.1", "fe80::1", "100.100.100.200", "::ffff:169.254.169.254"] {
            assert!(allowed(vec![at("127.0.0.1"), at(bad)]).is_err(), "{bad}");
        }
        assert_eq!(allowed(vec![at("127.0.0.1"), at("10.0.0.1")]).expect("fine").len(), 2);
    }
}
