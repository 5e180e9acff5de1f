//! What a llama.cpp router's `GET /models` and `GET /props` mean.
use motorpool_residency::{Capacity, Listing, Phase, Seen};
use serde_json::Value;

/// The rows of `GET /models`; `None` when none of them has a state that a router's rows have: a plain server, which is
/// not ours to manage.
pub(crate) fn listing(json: &Value) -> Option<Listing> {
    let rows = json.get("data").or_else(|| json.get("models"))?.as_array()?;
    let known: Vec<Option<Seen>> = rows.iter().map(row).collect();
    if known.iter().all(Option::is_none) && !rows.is_empty() {
        return None;
    }
    Some(Listing { rows: known.into_iter().flatten().collect() })
}

/// `max_instances` of `GET /props`: an integer of at least 1 is a capacity, 0 is without limit, all else is unknown.
pub(crate) fn capacity(json: &Value) -> Capacity {
    match json.get("max_instances").and_then(Value::as_u64).map(u32::try_from) {
        Some(Ok(0)) => Capacity::Unlimited,
        Some(Ok(n)) => Capacity::Of(n),
        Some(Err(_)) | None => Capacity::Unknown,
    }
}

/// Whether `GET /props` says that the build knows when not to load for a request: one that tells of the setting reads it
/// from each request too.
pub(crate) fn tells_autoload(json: &Value) -> bool {
    json.get("models_autoload").is_some_and(Value::is_boolean)
}

fn row(json: &Value) -> Option<Seen> {
    let status = json.get("status")?;
    let value = status.as_str().or_else(|| status.get("value")?.as_str())?;
    let mut seen = Seen::new(json.get("id")?.as_str()?, phase(value, json)?);
    seen.aliases = texts(json.get("aliases"));
    seen.tags = texts(json.get("tags"));
    seen.instance = port(&texts(status.get("args")));
    Some(seen)
}

fn phase(value: &str, row: &Value) -> Option<Phase> {
    let of = |name: &str| row.get("status").and_then(|status| status.get(name)).or_else(|| row.get(name));
    let failed = Phase::Failed(of("exit_code").and_then(Value::as_i64));
    Some(match value {
        "loading" => Phase::Loading,
        "loaded" => Phase::Loaded,
        "sleeping" => Phase::Sleeping,
        "failed" => failed,
        "unloaded" | "downloading" | "downloaded" if of("failed").and_then(Value::as_bool) == Some(true) => failed,
        "unloaded" | "downloading" | "downloaded" => Phase::Absent,
        _ => return None,
    })
}

fn texts(list: Option<&Value>) -> Vec<String> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The port of the router's child: another load of the same model has another.
fn port(args: &[String]) -> Option<String> {
    let at = args.iter().position(|arg| arg == "--port")?;
    args.get(at + 1).filter(|port| *port != "0").cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Phase::{Absent, Failed, Loaded, Loading, Sleeping};
    use serde_json::json;

    fn phases(json: &Value) -> Vec<Phase> {
        listing(json).expect("a router's").rows.iter().map(|seen| seen.phase).collect()
    }

    #[test]
    fn each_state_of_new_and_old_builds_is_read() {
        let data = json!({"data": [
            {"id": "a", "status": {"value": "loading"}},
            {"id": "b", "status": "loaded"},
            {"id": "c", "status": {"value": "sleeping"}},
            {"id": "d", "status": {"value": "unloaded"}},
            {"id": "e", "status": {"value": "unloaded", "failed": true, "exit_code": 1}},
            {"id": "f", "status": "failed", "exit_code": 9},
            {"id": "g", "status": {"value": "downloading"}},
            {"id": "h", "status": {"value": "loaded", "failed": true}},
            {"id": "i", "status": {"value": "dreaming"}},
        ]});
        let wanted = [Loading, Loaded, Sleeping, Absent, Failed(Some(1)), Failed(Some(9)), Absent, Loaded];
        assert_eq!(phases(&data), wanted);
    }

    #[test]
    fn rows_without_a_state_are_a_plain_server_and_none_at_all_an_empty_router() {
        assert_eq!(listing(&json!({"data": [{"id": "a"}, {"id": "b", "status": 3}]})), None);
        assert_eq!(listing(&json!({"data": []})), Some(Listing::default()));
        for other in [json!({}), json!([]), json!({"data": {}}), json!(null)] {
            assert_eq!(listing(&other), None, "{other}");
        }
    }

    #[test]
    fn names_tags_and_the_childs_port_are_read() {
        let args = json!(["llama-server", "--port", "42755", "--alias", "p"]);
        let status = json!({"value": "loaded", "args": args});
        let data = json!({"data": [{"id": "p", "aliases": ["q"], "tags": ["pinned:true", 7], "status": status}]});
        let seen = listing(&data).expect("a router's").rows.remove(0);
        assert!(seen.is_called("q"));
        assert_eq!((seen.tags, seen.instance), (vec!["pinned:true".to_owned()], Some("42755".into())));
        assert_eq!(port(&["--port".into(), "0".into()]), None);
        assert_eq!(port(&["--port".into()]), None);
    }

    #[test]
    fn who_tells_of_the_setting_knows_it() {
        assert!(
            tells_autoload(&json!({"models_autoload": true})) && tells_autoload(&json!({"models_autoload": false}))
        );
        assert!(!tells_autoload(&json!({"max_instances": 4})) && !tells_autoload(&json!({"models_autoload": null})));
    }

    #[test]
    fn only_a_whole_number_is_a_capacity() {
        assert_eq!(capacity(&json!({"max_instances": 2})), Capacity::Of(2));
        assert_eq!(capacity(&json!({"max_instances": 0})), Capacity::Unlimited);
        for other in
            [json!({}), json!({"max_instances": -1}), json!({"max_instances": 1.5}), json!({"max_instances": "2"})]
        {
            assert_eq!(capacity(&other), Capacity::Unknown, "{other}");
        }
    }
}
