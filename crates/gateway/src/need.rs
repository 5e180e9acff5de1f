//! What a request does, by its method and path: what a key must be for, and which pages may ask.
use crate::origin::Area;
use http::Method;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// It asks a model.
    Inference,
    /// It asks what there is.
    List,
    /// It looks into the pool: engines, logs.
    See,
    /// It changes the pool, whatever its method.
    Change,
}

/// Paths outside our own interface that do more than ask a model; what lies under them does the same.
const OTHERS: &[(&str, Need)] = &[
    ("/v1/models", Need::List),
    ("/api/tags", Need::List),
    ("/api/ps", Need::List),
    ("/api/show", Need::List),
    ("/api/version", Need::List),
    ("/running", Need::List),
    ("/props", Need::List),
    ("/logs", Need::See),
    ("/metrics", Need::See),
    ("/dashboard", Need::See),
    ("/api/pull", Need::Change),
    ("/api/models/unload", Need::Change),
    ("/models/load", Need::Change),
    ("/models/unload", Need::Change),
    ("/models", Need::List),
    ("/unload", Need::Change),
];

/// What this request does.
pub(crate) fn need_of(method: &Method, path: &str) -> Need {
    let looks = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    match path.strip_prefix("/api/motorpool/v1/") {
        Some("plan" | "residency/plan") => Need::See,
        Some(_) if looks => Need::See,
        Some(_) => Need::Change,
        None => other(path),
    }
}

fn other(path: &str) -> Need {
    let is_part = |known: &str| path.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    OTHERS.iter().find(|(known, _)| is_part(known)).map_or(Need::Inference, |(_, need)| *need)
}

/// Which pages may ask for this path.
pub(crate) fn area_of(path: &str) -> Area {
    let is_ours = path.starts_with("/api/motorpool/") || matches!(other(path), Need::See | Need::Change);
    if is_ours { Area::Management } else { Area::Inference }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_something_needs_more_than_what_looks_whatever_its_method() {
        for (method, path, need, area) in [
            ("POST", "/v1/chat/completions", Need::Inference, Area::Inference),
            ("POST", "/m/a/v1/x", Need::Inference, Area::Inference),
            ("GET", "/v1/models/a", Need::List, Area::Inference),
            ("GET", "/models", Need::List, Area::Inference),
            ("POST", "/models/load", Need::Change, Area::Management),
            ("GET", "/unload", Need::Change, Area::Management),
            ("POST", "/api/models/unload/org/a", Need::Change, Area::Management),
            ("POST", "/api/pull", Need::Change, Area::Management),
            ("POST", "/api/chat", Need::Inference, Area::Inference),
            ("GET", "/api/ps", Need::List, Area::Inference),
            ("GET", "/logs/stream/a", Need::See, Area::Management),
            ("GET", "/metrics", Need::See, Area::Management),
            ("GET", "/logsome", Need::Inference, Area::Inference),
            ("GET", "/running", Need::List, Area::Inference),
            ("GET", "/dashboard/0/app.css", Need::See, Area::Management),
            ("GET", "/api/motorpool/v1/status", Need::See, Area::Management),
            ("POST", "/api/motorpool/v1/plan", Need::See, Area::Management),
            ("GET", "/api/motorpool/v1/budget", Need::See, Area::Management),
            ("GET", "/api/motorpool/v1/explain", Need::See, Area::Management),
            ("GET", "/api/motorpool/v1/openapi.json", Need::See, Area::Management),
            ("POST", "/api/motorpool/v1/models/a/load", Need::Change, Area::Management),
            ("POST", "/api/motorpool/v1/engines/e:a:0/drain", Need::Change, Area::Management),
            ("POST", "/api/motorpool/v1/models/a/restart", Need::Change, Area::Management),
            ("POST", "/api/motorpool/v1/requests/req_1/cancel", Need::Change, Area::Management),
        ] {
            let method = method.parse().expect("a method");
            assert_eq!((need_of(&method, path), area_of(path)), (need, area), "{method} {path}");
        }
    }
}
