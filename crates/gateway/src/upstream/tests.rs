use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn an_authority_names_its_endpoint_and_no_other(n: u64, path in "/[ -~é]{0,60}", port: u16, query in "/[a-z%2F]{0,9}(\\?[a-z=]{0,9})?") {
        for endpoint in [Endpoint::Unix(path.clone().into()), Endpoint::Tcp(port)] {
            let uri = uri_of(Spawn(n), &endpoint, &query);
            prop_assert_eq!(endpoint_of(&uri), Some(endpoint.clone()));
            prop_assert_eq!(uri.path_and_query().map(ToString::to_string), Some(query.clone()));
            let other = uri_of(Spawn(n.wrapping_add(1)), &endpoint, &query);
            prop_assert_ne!(uri.authority(), other.authority());
        }
    }
}

#[test]
fn strange_authorities_lead_nowhere() {
    for text in ["http://localhost/", "http://s1.t/", "http://s1.uzz/", "http://s1.t99999/", "http://s1.x/"] {
        assert_eq!(endpoint_of(&text.parse().expect("a URI")), None, "{text}");
    }
}

#[tokio::test]
async fn where_nobody_listens_there_is_no_reply() {
    let dir = tempfile::tempdir().expect("a directory");
    let upstream = Upstream::new(Duration::from_secs(5), Duration::from_secs(5));
    let nowhere = Endpoint::Unix(dir.path().join("none.sock"));
    let sent = upstream.send((Spawn(1), &nowhere), ("/", Often::OnceMore), |uri| {
        let mut request = Request::new(crate::body::empty());
        *request.uri_mut() = uri;
        request
    });
    assert!(matches!(sent.await, Err(SendError::Connect(_))));
}

#[tokio::test(start_paused = true)]
async fn an_address_that_does_not_accept_is_given_five_seconds() {
    // A queue that is full: the kernel lets further clients wait.
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
    let listener = socket.listen(0).expect("it listens");
    let address = listener.local_addr().expect("bound");
    let mut queued = Vec::new();
    while let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await {
        queued.push(stream);
    }
    let limits = motorpool_catalog::Limits::default();
    let upstream = Upstream::new(limits.connect, limits.first_result);
    let began = tokio::time::Instant::now();
    let request = |uri| {
        let mut request = Request::new(crate::body::empty());
        *request.uri_mut() = uri;
        request
    };
    let sent = upstream.send((Spawn(1), &Endpoint::Tcp(address.port())), ("/", Often::OnceMore), request).await;
    let within = Duration::from_secs(5);
    assert!(matches!(sent, Err(SendError::Timeout(Awaited::Connection, after)) if after == within), "{sent:?}");
    let waited = began.elapsed();
    assert!(within <= waited && waited < within + Duration::from_secs(1), "{waited:?}");
}
