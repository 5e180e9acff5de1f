//! Keys, and paths of engines that are not for inference.
use super::*;

/// A server with a key for inference, `i`, and one that manages too, `b`.
async fn house() -> House {
    let both = of("b", &[Scope::Inference, Scope::Manage]);
    House::with(&[("i", of("i", &[Scope::Inference])), ("b", both)]).await
}

#[tokio::test]
async fn an_engines_unlisted_paths_are_for_keys_that_manage_and_two_of_them_for_nobody() {
    let house = house().await;
    let asked = async |path: &str, headers: String| house.server.post(path, &headers, &json!({})).await.status;
    let from_page = |key| bearer(key) + "origin: http://localhost:3000\r\n";
    for (path, own) in [
        ("/m/m/props", "/props"),
        ("/upstream/m/slots/0?action=erase", "/slots/0?action=erase"),
        // So they are where llama-server has them.
        ("/slots/0?action=erase&model=alias", "/slots/0?action=erase&model=alias"),
        ("/lora-adapters?model=m", "/lora-adapters?model=m"),
        ("/props?model=m", "/props?model=m"),
    ] {
        assert_eq!((asked(path, bearer("i")).await, asked(path, from_page("b")).await), (403, 403), "{path}");
        house.engine.json(200, "{}");
        assert_eq!(asked(path, bearer("b")).await, 200, "{path}");
        let heard = house.engine.heard().await.head;
        assert!(heard.starts_with(&format!("post {own} http/1.1")), "{heard}");
    }
    for path in ["/m/m/tools", "/m/m/%74ools", "/m/m/cors-proxy/x", "/upstream/m/cors-proxy?url=http://10.0.0.1"] {
        assert_eq!(asked(path, bearer("b")).await, 403, "{path}");
    }
}

#[tokio::test]
async fn the_model_of_an_engines_path_is_named_beside_it() {
    let house = house().await;
    let asked = async |path: &str, more: &str| house.get(path, &(bearer("b") + more)).await;
    assert_eq!(house.get("/slots?model=m", &bearer("i")).await, 403);
    house.engine.json(200, "[]");
    assert_eq!(asked("/slots", "x-motorpool-model: m\r\n").await, 200);
    assert!(house.engine.heard().await.head.starts_with("get /slots http/1.1"));
    assert_eq!(asked("/slots?model=none", "").await, 404);
    assert_eq!(asked("/slots", "").await, 400, "none of several");
    assert_eq!(asked("/slots?model=m", "x-motorpool-model: vectors\r\n").await, 400, "two");
}
