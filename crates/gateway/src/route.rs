//! Which path means what: [`route`], a pure function of method and raw path.
use crate::{
    assemble::Kind,
    errors::{Failure, Shape},
    origin::Area,
};
use http::Method;
use motorpool_catalog::Capability;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    /// A reply of a model, by OpenAI's API.
    Inference(Inference),
    /// What can be served.
    Models,
    /// One model; its name as it stands in the path.
    Model(&'a str),
    /// `/m/…`: a path for an engine.
    Raw,
    /// Our own interface.
    Management,
    /// Whether the loop turns.
    Health,
    /// Whether requests make sense yet.
    Ready,
    /// Which methods a path takes.
    Options(&'static str),
}

/// An OpenAI route that a model answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inference {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
    /// `/v1/embeddings`.
    Embeddings,
}

impl Inference {
    /// What a model must be for to be asked this.
    pub(crate) const fn purpose(self) -> Capability {
        match self {
            Self::Chat | Self::Completions => Capability::Chat,
            Self::Embeddings => Capability::Embeddings,
        }
    }

    /// The kind of reply that can be put together here.
    pub(crate) const fn kind(self) -> Option<Kind> {
        match self {
            Self::Chat => Some(Kind::Chat),
            Self::Completions => Some(Kind::Text),
            Self::Embeddings => None,
        }
    }
}

const GET: &str = "GET, HEAD, OPTIONS";
const POST: &str = "POST, OPTIONS";
const ANY: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// OpenAI's routes that are not offered (yet).
const NOT_OFFERED: &[&str] = &[
    "/v1/assistants",
    "/v1/audio",
    "/v1/batches",
    "/v1/conversations",
    "/v1/files",
    "/v1/fine_tuning",
    "/v1/images",
    "/v1/messages",
    "/v1/moderations",
    "/v1/realtime",
    "/v1/responses",
    "/v1/threads",
    "/v1/uploads",
    "/v1/vector_stores",
    "/v1/videos",
];

/// What `path` is for whichever method, and the methods it takes.
fn place(path: &str) -> Option<(Route<'_>, &'static str)> {
    Some(match path {
        "/v1/chat/completions" => (Route::Inference(Inference::Chat), POST),
        "/v1/completions" => (Route::Inference(Inference::Completions), POST),
        "/v1/embeddings" => (Route::Inference(Inference::Embeddings), POST),
        "/v1/models" => (Route::Models, GET),
        "/health" => (Route::Health, GET),
        "/ready" => (Route::Ready, GET),
        _ => {
            if let Some(rest) = path.strip_prefix("/v1/models/") {
                return Some((Route::Model(rest), GET));
            }
            if path.starts_with("/m/") {
                return Some((Route::Raw, ANY));
            }
            return path.starts_with("/api/motorpool/v1/").then_some((Route::Management, ANY));
        }
    })
}

/// What this request asks for. `path` is raw and without query.
pub(crate) fn route<'a>(method: &Method, path: &'a str) -> Result<Route<'a>, Failure> {
    // The first line of HTTP/2, as the wire lets it through.
    if method.as_str() == "PRI" {
        return Err(Failure::VersionNotSupported);
    }
    let Some((route, allow)) = place(path) else { return Err(nothing_at(path)) };
    let method = if method == Method::HEAD { &Method::GET } else { method };
    if method == Method::OPTIONS {
        return Ok(Route::Options(allow));
    }
    if allow.split(", ").any(|m| m == method.as_str()) {
        return Ok(route);
    }
    Err(Failure::MethodNotAllowed { path: path.to_owned(), allow })
}

fn nothing_at(path: &str) -> Failure {
    let is_part_of =
        |known: &str| path.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if NOT_OFFERED.iter().any(|known| is_part_of(known)) {
        return Failure::NotSupported("this part of the API");
    }
    let hint = if path.starts_with("/v1/v1/") {
        "; `/v1` stands twice: a base URL that ends in `/v1` takes paths without it"
    } else {
        ""
    };
    Failure::NotFound { path: path.to_owned(), hint }
}

/// The form of errors under this path.
pub(crate) fn shape_of(path: &str) -> Shape {
    if path.starts_with("/m/") { Shape::LlamaCpp } else { Shape::OpenAi }
}

/// Which pages may ask for this path.
pub(crate) fn area_of(path: &str) -> Area {
    if path.starts_with("/api/motorpool/") { Area::Management } else { Area::Inference }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(method: &str, path: &str) -> Result<String, &'static str> {
        let method = method.parse().expect("a method");
        route(&method, path).map(|r| format!("{r:?}")).map_err(|f| f.verdict().code)
    }

    #[test]
    fn paths_and_methods_lead_somewhere_or_are_refused_in_words() {
        for (method, path, want) in [
            ("POST", "/v1/chat/completions", Ok("Inference(Chat)")),
            ("POST", "/v1/completions", Ok("Inference(Completions)")),
            ("POST", "/v1/embeddings", Ok("Inference(Embeddings)")),
            ("GET", "/v1/models", Ok("Models")),
            ("HEAD", "/v1/models", Ok("Models")),
            ("GET", "/v1/models/org/m", Ok("Model(\"org/m\")")),
            ("GET", "/health", Ok("Health")),
            ("GET", "/ready", Ok("Ready")),
            ("POST", "/m/a%2Fb/v1/x", Ok("Raw")),
            ("GET", "/api/motorpool/v1/status", Ok("Management")),
            ("OPTIONS", "/v1/models", Ok("Options(\"GET, HEAD, OPTIONS\")")),
            ("GET", "/v1/chat/completions", Err("method_not_allowed")),
            ("DELETE", "/v1/models/m", Err("method_not_allowed")),
            ("POST", "/health", Err("method_not_allowed")),
            ("BREW", "/m/x/y", Err("method_not_allowed")),
            ("POST", "/v1/responses", Err("not_supported")),
            ("GET", "/v1/responses/resp_1", Err("not_supported")),
            ("POST", "/v1/audio/speech", Err("not_supported")),
            ("GET", "/v1/responsesque", Err("not_found")),
            ("GET", "/v1/chat/completions/", Err("not_found")),
            ("GET", "/", Err("not_found")),
            ("GET", "/api/motorpool/v2/status", Err("not_found")),
            ("PRI", "*", Err("version_not_supported")),
        ] {
            assert_eq!(code(method, path).as_deref().map_err(|e| *e), want, "{method} {path}");
        }
    }

    #[test]
    fn a_doubled_prefix_is_named() {
        let failure = route(&Method::POST, "/v1/v1/chat/completions").expect_err("nothing there");
        assert!(failure.to_string().contains("`/v1` stands twice"), "{failure}");
    }
}
