use super::*;
use proptest::prelude::*;

fn key(text: &str) -> String {
    text.parse::<ServerUrl>().expect(text).key().to_string()
}

#[test]
fn each_way_to_write_an_address_of_one_server_has_the_same_key() {
    for (rule, texts, canonical) in [
        ("ws is http", &["http://h:1", "ws://h:1"][..], "http://h:1"),
        ("wss is https", &["https://h:1", "wss://h:1"], "https://h:1"),
        ("no final slash", &["http://h:1/a", "http://h:1/a/", "http://h:1/a//"], "http://h:1/a"),
        ("no final /v1", &["http://h:1", "http://h:1/v1", "http://h:1/v1/", "http://h:1/v1/v1"], "http://h:1"),
        ("no default port of http", &["http://h", "http://h:80", "ws://h:80/", "http://h:"], "http://h"),
        ("no default port of https", &["https://h", "https://h:443/v1"], "https://h"),
        ("no user info", &["http://h:1", "http://me:secret@h:1", "http://a@b@h:1"], "http://h:1"),
        (
            "no query or fragment",
            &["http://h:1/a", "http://h:1/a?b=/v1", "http://h:1/a#c", "http://h:1/a/?x#y"],
            "http://h:1/a",
        ),
        ("the host is lower case", &["http://Host.Example:1", "HTTP://HOST.example:1"], "http://host.example:1"),
        (
            "one loopback",
            &["http://localhost:1", "http://127.0.0.1:1", "http://[::1]:1", "http://LocalHost:1", "http://[0:0::1]:1"],
            "http://127.0.0.1:1",
        ),
        ("leading zeros of a port", &["http://h:0081", "http://h:81"], "http://h:81"),
    ] {
        for text in texts {
            assert_eq!(key(text), canonical, "{rule}: {text}");
        }
    }
}

#[test]
fn what_is_another_server_has_another_key() {
    for (one, other) in [
        ("http://h:80", "https://h:80"),
        ("http://h:1", "http://h:2"),
        ("http://h/a", "http://h/A"),
        ("http://h/v1/a", "http://h/a"),
        ("http://127.0.0.1:1", "http://127.0.0.2:1"),
        ("http://h/av1", "http://h/a"),
    ] {
        assert_ne!(key(one), key(other), "{one} {other}");
    }
}

#[test]
fn base_keeps_what_root_drops() {
    let url: ServerUrl = "ws://me@LocalHost:8080/x/v1/?a".parse().expect("an address");
    assert_eq!((url.base().as_str(), url.root().as_str()), ("http://localhost:8080/x/v1", "http://localhost:8080/x"));
    let bare: ServerUrl = "https://h/".parse().expect("an address");
    assert_eq!((bare.base(), bare.root()), (bare.root(), "https://h".to_owned()));
}

#[test]
fn what_is_no_address_is_refused_with_the_part_that_is_wrong() {
    for (text, why) in [
        ("", UrlError::Scheme),
        ("h:1", UrlError::Scheme),
        ("ftp://h", UrlError::Scheme),
        ("unix:/run/x.sock", UrlError::Scheme),
        ("http://", UrlError::Host),
        ("http:///v1", UrlError::Host),
        ("http://::1:80", UrlError::Host),
        ("http://[::1", UrlError::Host),
        ("http://[::1]x", UrlError::Host),
        ("http://a b", UrlError::Host),
        ("http://h:70000", UrlError::Port),
        ("http://h:0", UrlError::Port),
        ("http://h:+1", UrlError::Port),
        ("http://h/a b", UrlError::Path),
    ] {
        assert_eq!(text.parse::<ServerUrl>(), Err(why), "{text}");
    }
}

#[test]
fn link_local_and_metadata_addresses_are_off_limits_in_every_disguise() {
    for text in [
        "http://169.254.169.254",
        "http://169.254.0.1:8080/v1",
        "http://[fe80::1]",
        "http://[::ffff:169.254.169.254]",
        "http://metadata.google.internal",
        "http://METADATA",
        "http://100.100.100.200",
        "http://[fd00:ec2::254]",
    ] {
        assert!(text.parse::<ServerUrl>().expect(text).is_off_limits(), "{text}");
    }
    for text in ["http://2852039166", "http://0xa9fea9fe", "http://169.254.43518", "http://0251.0376.0251.0376"] {
        assert_eq!(text.parse::<ServerUrl>(), Err(UrlError::Host), "{text}");
    }
    for text in ["http://localhost:1", "http://192.168.1.5:1", "http://box.lan", "http://[fd00::1]"] {
        assert!(!text.parse::<ServerUrl>().expect(text).is_off_limits(), "{text}");
    }
    assert!(TargetKey::forbids(IpAddr::from([169, 254, 1, 1])) && !TargetKey::forbids(IpAddr::from([10, 0, 0, 1])));
}

fn some_url() -> impl Strategy<Value = String> {
    let host = prop_oneof![
        Just("localhost".to_owned()),
        Just("127.0.0.1".to_owned()),
        Just("[::1]".to_owned()),
        "[a-zA-Z][a-zA-Z0-9]{0,5}(\\.[a-z]{1,4})?",
    ];
    let path = "(/[a-z1v]{0,3}){0,3}(/v1)?/{0,2}";
    ("https?|wss?", host, proptest::option::of(1u16..), path).prop_map(|(scheme, host, port, path)| {
        format!("{scheme}://{host}{}{path}", port.map_or_else(String::new, |port| format!(":{port}")))
    })
}

proptest! {
    #[test]
    fn a_key_is_the_key_of_itself(text in some_url()) {
        let once = key(&text);
        prop_assert_eq!(key(&once), once);
    }

    #[test]
    fn what_never_counts_never_counts(text in some_url(), noise in "[a-z]{1,4}") {
        let (scheme, rest) = text.split_once("://").expect("one of ours");
        let dressed = format!("{}://{noise}:{noise}@{rest}/?{noise}#{noise}", scheme.to_uppercase());
        prop_assert_eq!(key(&dressed), key(&text));
        prop_assert_eq!(key(&format!("{text}/v1")), key(&text));
    }

    #[test]
    fn no_text_is_too_strange(text in "\\PC{0,40}") {
        let _ = text.parse::<ServerUrl>().map(|url| (url.key(), url.base(), url.root()));
    }

    #[test]
    fn base_and_root_are_addresses_of_the_same_server(text in some_url()) {
        let url: ServerUrl = text.parse().expect("an address");
        prop_assert_eq!(key(&url.base()), url.key().to_string());
        prop_assert_eq!(key(&url.root()), url.key().to_string());
    }
}
