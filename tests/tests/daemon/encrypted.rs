//! Addresses with `https://`: our own command line and another pool of ours ask there, with a certificate made for the test.
use crate::support::endless;
use motorpool_testkit::{Behaviour, eventually};
use motorpool_tests::e2e::{
    House,
    talk::{CHAT, Said, chat, until_count},
};
use std::{fs, net::Ipv4Addr, os::unix::fs::PermissionsExt as _, path::PathBuf, sync::Arc};
use tokio::{io::AsyncWriteExt as _, net::TcpSocket};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        pki_types::{CertificateDer, pem::PemObject as _},
    },
};

/// A house that serves on an encrypted address, and the file of its certificate.
fn encrypted() -> (House, PathBuf) {
    let mut house = House::new();
    let (certificate, key) = (house.path("cert.pem"), house.path("key.pem"));
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).expect("made");
    fs::write(&certificate, made.cert.pem()).expect("written");
    fs::write(&key, made.signing_key.serialize_pem()).expect("written");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("ours");
    house.set("server.listen", vec!["https://127.0.0.1:0", "127.0.0.1:0"]);
    house.set("server.tls.certificate", certificate.to_str().expect("UTF-8"));
    house.set("server.tls.key", key.to_str().expect("UTF-8"));
    (house, certificate)
}

/// The port behind `https://127.0.0.1:` in what a daemon printed.
fn port_in(printed: &str) -> &str {
    let (_, rest) = printed.split_once("https://127.0.0.1:").expect("its address");
    rest.split(|c: char| !c.is_ascii_digit()).next().expect("a port")
}

#[tokio::test]
async fn the_command_line_asks_an_encrypted_address_whose_authority_it_is_told_and_no_other() {
    let (house, certificate) = encrypted();
    let daemon = house.start().await;
    let server = format!("https://127.0.0.1:{}", port_in(daemon.printed()));
    let authority = certificate.to_str().expect("UTF-8");
    let told = daemon.cli(&["--server", &server, "--ca-file", authority, "--json", "ps"]).await;
    assert_eq!(told.code, Some(0), "{told:?}");
    let untold = daemon.cli(&["--server", &server, "ps"]).await;
    assert_eq!(untold.code, daemon.cli(&["--server", "http://127.0.0.1:1", "ps"]).await.code, "{untold:?}");
    assert!(untold.stderr.contains("certificate"), "{untold:?}");
    let plain = daemon.cli(&["--server", &server.replace("https", "http"), "ps"]).await;
    assert!(plain.code == Some(2) && plain.stderr.contains("this address is encrypted"), "{plain:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_model_of_another_pool_is_served_over_an_encrypted_address() {
    let (mut far, certificate) = encrypted();
    far.fake("a", &Behaviour::default());
    let there = far.start().await;
    let mut near = House::new();
    near.set_env("SSL_CERT_FILE", certificate.to_str().expect("UTF-8"));
    let url = format!("https://localhost:{}", port_in(there.printed()));
    near.add("external", [("id", "far".into()), ("kind", "ollama".into()), ("url", url.into())]);
    near.add_to_last("external", "lifecycle", "user-managed".into());
    let here = near.start().await;
    let served = eventually("it is served", async || {
        let answer = here.http().post(CHAT, &chat("far/a", "hello")).await.expect("an answer");
        (answer.status == 200).then(|| answer.text())
    })
    .await;
    let said = Said::read(&served);
    assert!(said.is_done && said.error.is_none(), "{served}");
    here.stop().await;
    there.stop().await;
}

#[tokio::test]
async fn an_encrypted_stream_that_nobody_reads_is_held_back_and_given_up() {
    let (mut house, certificate) = encrypted();
    let model = endless(&mut house);
    let daemon = house.start().await;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&certificate).expect("PEM")).expect("a certificate");
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let port = port_in(daemon.printed()).parse::<u16>().expect("a port");
    // Little is on its way then.
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a size");
    let stream = socket.connect((Ipv4Addr::LOCALHOST, port).into()).await.expect("it listens");
    let name = "localhost".try_into().expect("a name");
    let mut client = TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("greeted");
    let body = chat("endless", "hello").to_string();
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
    client.write_all((head + &body).as_bytes()).await.expect("sent");
    let counts = until_count(&model, "aborted", 1).await;
    assert_eq!(counts["active"], 0, "{counts}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_key_that_others_can_read_serves_nobody() {
    let (house, _) = encrypted();
    fs::set_permissions(house.path("key.pem"), fs::Permissions::from_mode(0o644)).expect("ours");
    house.write_config();
    let outcome = house.start_in_vain().await;
    assert!(outcome.stderr.contains("others can read it") && outcome.stderr.contains("chmod 600"), "{outcome:?}");
}
