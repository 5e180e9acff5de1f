//! Keys, and pages in a browser.
use super::*;

#[tokio::test]
async fn the_page_needs_no_key_and_what_it_shows_does() {
    let house = House::with(&[("mp_a", of("a", &[Scope::Read]))]).await;
    let browser = "accept: text/html\r\n";
    for (path, headers, status) in [
        ("/", browser, 200),
        ("/", "accept: text/html\r\nvia: 1.1 proxy\r\n", 200),
        ("/", "", 401),
        ("/dashboard/none", "", 404),
        ("/api/motorpool/v1/status", browser, 401),
    ] {
        assert_eq!(house.get(path, headers).await, status, "{path} {headers}");
    }
}

#[tokio::test]
async fn a_page_whose_origin_is_allowed_reads_why_it_was_refused_and_no_other_does() {
    let slow = KeyRecord { per_minute: Some(1), ..of("slow", &[Scope::Inference]) };
    let house = House::with(&[("mp_slow", slow), ("mp_r", of("r", &[Scope::Read]))]).await;
    let page = "origin: http://localhost:3000\r\n";
    let evil = "origin: https://evil.example\r\n";
    assert_eq!(house.chat(&bearer("mp_slow")).await.0, 200);
    for (origin, key, status, reads) in [
        (page, "mp_wrong", 401, true),
        (page, "mp_r", 403, true),
        (page, "mp_slow", 429, true),
        (evil, "mp_wrong", 403, false),
        (evil, "mp_slow", 403, false),
    ] {
        let reply = house.server.post(CHAT, &format!("{origin}{}", bearer(key)), &ask()).await;
        assert_eq!(reply.status, status, "{origin}{key} {reply:?}");
        let allowed = reply.head.contains("access-control-allow-origin: http://localhost:3000\r\n");
        let exposed = "access-control-expose-headers: retry-after, x-motorpool-code, x-should-retry, x-request-id";
        assert_eq!((allowed, reply.head.contains(exposed)), (reads, reads), "{origin}{key} {reply:?}");
        assert_eq!(reply.head.contains("access-control-"), reads, "{origin}{key} {reply:?}");
    }
    let unasked = house.server.get("/api/motorpool/v1/status", page).await;
    assert!(unasked.status == 403 && !unasked.head.contains("access-control-"), "{unasked:?}");
}
