//! The dashboard's page at the address itself: who gets it, and what stands around it.
use super::*;

const BROWSER: &str = "accept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8\r\n";

/// The first file that the page names.
fn named(page: &str) -> &str {
    page.split("href=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("it names files")
}

#[tokio::test]
async fn a_browser_gets_the_page_and_a_program_a_word() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    for plain in ["", "accept: */*\r\n", "accept: application/json\r\n"] {
        let reply = server.get("/", plain).await;
        assert_eq!((reply.status, reply.body.as_str()), (200, "Motorpool is running"), "{plain}");
        assert!(reply.head.contains("vary: accept"), "{}", reply.head);
    }
    let page = server.get("/", BROWSER).await;
    assert!(page.status == 200 && page.body.starts_with("<!doctype html>"), "{page:?}");
    for part in
        ["content-type: text/html", "cache-control: no-cache", "vary: accept", "nosniff", "frame-ancestors 'none'"]
    {
        assert!(page.head.contains(part), "{part}: {}", page.head);
    }
    assert!(page.head.contains("content-security-policy: default-src 'none'; script-src 'self'"), "{}", page.head);
    assert!(!page.head.contains("unsafe") && !page.head.contains("set-cookie"), "{}", page.head);
}

#[tokio::test]
async fn files_of_the_page_are_kept_for_ever_and_asked_for_once() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    let page = server.get("/", BROWSER).await;
    let file = named(&page.body);
    let reply = server.get(file, "").await;
    assert_eq!(reply.status, 200, "{file}: {reply:?}");
    assert!(reply.head.contains("immutable") && reply.head.contains("content-security-policy"), "{}", reply.head);
    let tag = reply.head.split("etag: ").nth(1).and_then(|rest| rest.split("\r\n").next()).expect("a tag");
    for path in ["/", file] {
        let known = server.get(path, &format!("{BROWSER}if-none-match: \"x\", W/{tag}\r\n")).await;
        assert_eq!((known.status, known.body.as_str()), (304, ""), "{path}");
    }
    assert_eq!(server.get(file, "if-none-match: \"x\"\r\n").await.status, 200);
    for lost in ["/dashboard/", "/dashboard/0000000000000000/app.css", "/dashboard/../api/motorpool/v1/status"] {
        let reply = server.get(lost, "").await;
        assert_eq!((reply.status, reply.code()), (404, json!("not_found")), "{lost}");
    }
}

#[tokio::test]
async fn whoever_unpacks_gets_the_page_packed_and_nobody_else() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    let page = server.get("/", BROWSER).await;
    let length = |head: &str| -> usize {
        let told = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
        told.and_then(|text| text.parse().ok()).expect("a length")
    };
    for path in ["/", named(&page.body)] {
        let plain = server.get(path, BROWSER).await;
        assert!(!plain.head.contains("content-encoding") && plain.head.contains("accept-encoding"), "{}", plain.head);
        for takes in ["gzip", "br, GZIP;q=0.5"] {
            let packed = server.get(path, &format!("{BROWSER}accept-encoding: {takes}\r\n")).await;
            assert!(packed.status == 200 && packed.head.contains("content-encoding: gzip"), "{}", packed.head);
            assert!(length(&packed.head) < length(&plain.head), "{}", packed.head);
            assert_ne!(packed.head.split("etag: ").nth(1), plain.head.split("etag: ").nth(1));
        }
        for not in ["identity", "gzip;q=0", "br"] {
            let plain = server.get(path, &format!("{BROWSER}accept-encoding: {not}\r\n")).await;
            assert!(!plain.head.contains("content-encoding"), "{not}: {}", plain.head);
        }
    }
}

#[tokio::test]
async fn a_link_from_elsewhere_opens_the_page_and_no_other_page_reads_it() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    let followed =
        format!("{BROWSER}sec-fetch-site: cross-site\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\n");
    let page = server.get("/", &followed).await;
    assert_eq!(page.status, 200, "{page:?}");
    let framed = followed.replace("dest: document", "dest: iframe");
    assert_eq!(server.get("/", &framed).await.status, 403);
    let file = named(&page.body);
    for elsewhere in
        ["sec-fetch-site: cross-site\r\n", "origin: http://localhost:1\r\n", "origin: https://evil.example\r\n"]
    {
        assert_eq!(server.get(file, elsewhere).await.status, 403, "{elsewhere}");
    }
    // What it shows is asked for under the rules of any page.
    assert_eq!(server.get("/api/motorpool/v1/status", &followed).await.status, 403);
}
