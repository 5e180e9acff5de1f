//! Which path means what: [`route`], a pure function of method and raw path, and the tables that it reads.
use crate::{
    assemble::Kind,
    control::Control,
    errors::Failure,
    family::Family,
    ollama::{Call, Page},
};
use http::Method;
use motorpool_catalog::Capability;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    /// A reply of a model.
    Inference(&'static Served),
    /// What can be served.
    Models,
    /// One model; its name as it stands in the path.
    Model(&'a str),
    /// `/m/…` or `/upstream/…`: a path for an engine, the model's name before it.
    Raw(&'a str),
    /// A path of llama-server's own, for the engine of the model that is named beside it.
    Engine(&'a str),
    /// What Ollama's clients ask and no engine answers.
    Ollama(Page),
    /// What clients of llama.cpp's router and of llama-swap ask of engines.
    Control(Control<'a>),
    /// Whether anybody is there; the dashboard, for a browser.
    Root,
    /// A file of the dashboard: what stands behind its folder.
    Asset(&'a str),
    /// What a router says of itself.
    Properties,
    /// Our own interface.
    Management,
    /// What there is to measure.
    Metrics,
    /// Whether the loop turns.
    Health,
    /// Whether requests make sense yet.
    Ready,
    /// Which methods a path takes.
    Options(&'static str),
}

/// A path that a model answers: one row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) path: &'static str,
    pub(crate) family: Family,
    /// What a model must be for to be asked this; `None`: any is.
    pub(crate) purpose: Option<Capability>,
    pub(crate) way: Way,
}

/// How a path is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Its reply streams, or is put together here.
    Assembled(Kind),
    /// Ollama's: asked of the engine in other words.
    Translated(Call),
    /// A form with files comes in.
    Form,
    /// Its reply may stream.
    Streamed,
    /// Its reply is one document.
    Whole,
    /// The same, and so little work that nothing is loaded for it before other things.
    Counted,
    /// The same, about a reply that an engine makes: it takes no slot.
    Aside,
}

impl Served {
    /// The kind of reply that can be put together here.
    pub(crate) const fn kind(&self) -> Option<Kind> {
        match self.way {
            Way::Assembled(kind) => Some(kind),
            Way::Form | Way::Translated(_) | Way::Streamed | Way::Whole | Way::Counted | Way::Aside => None,
        }
    }
}

const fn row(path: &'static str, family: Family, purpose: Option<Capability>, way: Way) -> Served {
    Served { path, family, purpose, way }
}

const CHAT: Option<Capability> = Some(Capability::Chat);
const EMBEDDINGS: Option<Capability> = Some(Capability::Embeddings);
const RERANK: Option<Capability> = Some(Capability::Rerank);
const TRANSCRIPTION: Option<Capability> = Some(Capability::Transcription);
const IMAGES: Option<Capability> = Some(Capability::Images);

/// The paths that models answer. All take POST and a JSON object, and reach the engine as they are spelt.
pub(crate) const SERVED: &[Served] = &[
    row("/v1/chat/completions", Family::OpenAi, CHAT, Way::Assembled(Kind::Chat)),
    row("/v1/completions", Family::OpenAi, CHAT, Way::Assembled(Kind::Text)),
    row("/v1/embeddings", Family::OpenAi, EMBEDDINGS, Way::Whole),
    row("/v1/chat/completions/input_tokens", Family::OpenAi, CHAT, Way::Counted),
    row("/v1/responses", Family::Responses, CHAT, Way::Assembled(Kind::Responses)),
    row("/v1/responses/input_tokens", Family::Responses, CHAT, Way::Counted),
    row("/v1/messages", Family::Anthropic, CHAT, Way::Assembled(Kind::Messages)),
    row("/v1/messages/count_tokens", Family::Anthropic, CHAT, Way::Counted),
    row("/chat/completions", Family::LlamaCpp, CHAT, Way::Assembled(Kind::Chat)),
    row("/chat/completions/input_tokens", Family::LlamaCpp, CHAT, Way::Counted),
    // Its replies have llama-server's own form.
    row("/completions", Family::LlamaCpp, CHAT, Way::Assembled(Kind::Native)),
    row("/completion", Family::LlamaCpp, CHAT, Way::Assembled(Kind::Native)),
    row("/infill", Family::LlamaCpp, CHAT, Way::Streamed),
    row("/responses", Family::Responses, CHAT, Way::Assembled(Kind::Responses)),
    row("/responses/input_tokens", Family::Responses, CHAT, Way::Counted),
    row("/embedding", Family::LlamaCpp, EMBEDDINGS, Way::Whole),
    row("/embeddings", Family::LlamaCpp, EMBEDDINGS, Way::Whole),
    row("/rerank", Family::LlamaCpp, RERANK, Way::Whole),
    row("/reranking", Family::LlamaCpp, RERANK, Way::Whole),
    row("/v1/rerank", Family::LlamaCpp, RERANK, Way::Whole),
    row("/v1/reranking", Family::LlamaCpp, RERANK, Way::Whole),
    row("/tokenize", Family::LlamaCpp, None, Way::Counted),
    row("/detokenize", Family::LlamaCpp, None, Way::Counted),
    row("/v1/audio/transcriptions", Family::OpenAi, TRANSCRIPTION, Way::Form),
    row("/v1/audio/translations", Family::OpenAi, TRANSCRIPTION, Way::Form),
    row("/audio/transcriptions", Family::LlamaCpp, TRANSCRIPTION, Way::Form),
    row("/v1/audio/speech", Family::OpenAi, Some(Capability::Speech), Way::Whole),
    row("/v1/images/generations", Family::OpenAi, IMAGES, Way::Whole),
    row("/v1/images/edits", Family::OpenAi, IMAGES, Way::Form),
    row("/v1/images/variations", Family::OpenAi, IMAGES, Way::Form),
    // Asks an engine about a reply that it makes.
    row("/v1/chat/completions/control", Family::OpenAi, CHAT, Way::Aside),
    row("/api/chat", Family::Ollama, CHAT, Way::Translated(Call::Chat)),
    row("/api/generate", Family::Ollama, CHAT, Way::Translated(Call::Generate)),
    row("/api/embed", Family::Ollama, EMBEDDINGS, Way::Translated(Call::Embed)),
    row("/api/embeddings", Family::Ollama, EMBEDDINGS, Way::Translated(Call::Embeddings)),
    row("/apply-template", Family::LlamaCpp, CHAT, Way::Counted),
];

/// Which family a path belongs to that no row names, by how it begins.
const BEGINNINGS: &[(&str, Family)] = &[
    ("/v1/responses", Family::Responses),
    ("/v1/messages", Family::Anthropic),
    ("/api/motorpool", Family::OpenAi),
    ("/m", Family::LlamaCpp),
    ("/upstream", Family::LlamaCpp),
    ("/props", Family::LlamaCpp),
    ("/models", Family::LlamaCpp),
    ("/running", Family::LlamaCpp),
    ("/unload", Family::LlamaCpp),
    ("/logs", Family::LlamaCpp),
    ("/api/models", Family::LlamaCpp),
    ("/api", Family::Ollama),
    ("/slots", Family::LlamaCpp),
    ("/lora-adapters", Family::LlamaCpp),
];

const GET: &str = "GET, HEAD, OPTIONS";
const POST: &str = "POST, OPTIONS";
const GET_OR_POST: &str = "GET, HEAD, POST, OPTIONS";
const ANY: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// Routes that are not offered (yet): state kept for clients, and what is not translated.
const NOT_OFFERED: &[&str] = &[
    "/api/blobs",
    "/api/copy",
    "/api/create",
    "/api/delete",
    "/api/push",
    "/audio",
    "/cors-proxy",
    "/models/sse",
    "/tools",
    "/v1/assistants",
    "/v1/audio",
    "/v1/batches",
    "/v1/conversations",
    "/v1/files",
    "/v1/fine_tuning",
    "/v1/images",
    "/v1/moderations",
    "/v1/realtime",
    "/v1/responses",
    // Its replies outlive their connections by a header that goes to no engine.
    "/v1/stream",
    "/v1/streams",
    "/v1/threads",
    "/v1/uploads",
    "/v1/vector_stores",
    "/v1/videos",
];

/// Under these paths lies what such servers keep for their clients.
const STORED: &[&str] = &["/v1/chat/completions/", "/v1/messages/"];

/// The row of `path`, if a model answers it.
pub(crate) fn served_at(path: &str) -> Option<&'static Served> {
    SERVED.iter().find(|served| served.path == path)
}

/// What `path` is for whichever method, and the methods it takes.
fn place(path: &str) -> Option<(Route<'_>, &'static str)> {
    if let Some(served) = served_at(path) {
        return Some((Route::Inference(served), POST));
    }
    Some(match path {
        "/" => (Route::Root, GET),
        "/v1/models" | "/models" => (Route::Models, GET),
        "/props" => (Route::Properties, GET_OR_POST),
        "/slots" => (Route::Engine(path), GET),
        "/lora-adapters" => (Route::Engine(path), GET_OR_POST),
        "/health" | "/v1/health" => (Route::Health, GET),
        "/ready" => (Route::Ready, GET),
        "/metrics" => (Route::Metrics, GET),
        "/models/load" => (Route::Control(Control::Load), POST),
        "/models/unload" => (Route::Control(Control::Unload), POST),
        "/running" => (Route::Control(Control::Running), GET),
        "/unload" => (Route::Control(Control::UnloadAll), GET),
        "/api/models/unload" => (Route::Control(Control::UnloadNamed(None)), POST),
        "/logs" => (Route::Control(Control::Logs), GET),
        "/logs/stream" => (Route::Control(Control::Follow(None)), GET),
        "/api/tags" => (Route::Ollama(Page::Tags), GET),
        "/api/ps" => (Route::Ollama(Page::Loaded), GET),
        "/api/version" => (Route::Ollama(Page::Version), GET),
        "/api/show" => (Route::Ollama(Page::Show), POST),
        "/api/pull" => (Route::Ollama(Page::Pull), POST),
        _ => {
            if let Some(rest) = path.strip_prefix(motorpool_dashboard::FOLDER) {
                return Some((Route::Asset(rest), GET));
            }
            if let Some(name) = path.strip_prefix("/v1/models/").filter(|name| !name.is_empty()) {
                return Some((Route::Model(name), GET));
            }
            if path.strip_prefix("/slots/").is_some_and(|slot| !slot.is_empty()) {
                return Some((Route::Engine(path), POST));
            }
            if let Some(rest) = path.strip_prefix("/m/").or_else(|| path.strip_prefix("/upstream/")) {
                return Some((Route::Raw(rest), ANY));
            }
            if let Some(name) = path.strip_prefix("/api/models/unload/") {
                return Some((Route::Control(Control::UnloadNamed(Some(name))), POST));
            }
            if let Some(name) = path.strip_prefix("/logs/stream/").filter(|name| !name.is_empty()) {
                return Some((Route::Control(Control::Follow(Some(name))), GET));
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
        // Only what is asked of it is answered for engines that do not run.
        let is_change = matches!(route, Route::Properties) && method == Method::POST;
        return Ok(if is_change { Route::Engine(path) } else { route });
    }
    Err(Failure::MethodNotAllowed { path: path.to_owned(), allow })
}

fn nothing_at(path: &str) -> Failure {
    let is_stored = |known: &&str| path.strip_prefix(known).is_some_and(|rest| !rest.is_empty());
    if NOT_OFFERED.iter().any(|known| is_part_of(path, known)) || STORED.iter().any(is_stored) {
        return Failure::NotSupported("this part of the API");
    }
    let hint = if path.starts_with("/v1/v1/") {
        "; `/v1` stands twice: a base URL that ends in `/v1` takes paths without it"
    } else {
        ""
    };
    Failure::NotFound { path: path.to_owned(), hint }
}

/// Whether `path` is `known` or lies under it.
fn is_part_of(path: &str, known: &str) -> bool {
    path.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The family that answers under this path, errors included.
pub(crate) fn family_of(path: &str) -> Family {
    let served = served_at(path).map(|served| served.family);
    let begins = || BEGINNINGS.iter().find(|(known, _)| is_part_of(path, known)).map(|(_, family)| *family);
    served.or_else(begins).unwrap_or(Family::OpenAi)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(method: &str, path: &str) -> Result<String, &'static str> {
        let method = method.parse().expect("a method");
        route(&method, path)
            .map(|route| match route {
                Route::Inference(served) => format!("{:?} {:?}", served.family, served.way),
                other => format!("{other:?}"),
            })
            .map_err(|f| f.verdict().code)
    }

    #[test]
    fn paths_and_methods_lead_somewhere_or_are_refused_in_words() {
        for (method, path, want) in [
            ("POST", "/v1/chat/completions", Ok("OpenAi Assembled(Chat)")),
            ("POST", "/v1/completions", Ok("OpenAi Assembled(Text)")),
            ("POST", "/v1/embeddings", Ok("OpenAi Whole")),
            ("GET", "/v1/models", Ok("Models")),
            ("HEAD", "/v1/models", Ok("Models")),
            ("GET", "/v1/models/org/m", Ok("Model(\"org/m\")")),
            ("GET", "/v1/models/", Err("not_found")),
            ("GET", "/logs/stream/", Err("not_found")),
            ("GET", "/health", Ok("Health")),
            ("GET", "/ready", Ok("Ready")),
            ("HEAD", "/metrics", Ok("Metrics")),
            ("POST", "/metrics", Err("method_not_allowed")),
            ("POST", "/m/a%2Fb/v1/x", Ok("Raw(\"a%2Fb/v1/x\")")),
            ("GET", "/api/motorpool/v1/status", Ok("Management")),
            ("OPTIONS", "/v1/models", Ok("Options(\"GET, HEAD, OPTIONS\")")),
            ("GET", "/v1/chat/completions", Err("method_not_allowed")),
            ("DELETE", "/v1/models/m", Err("method_not_allowed")),
            ("POST", "/health", Err("method_not_allowed")),
            ("BREW", "/m/x/y", Err("method_not_allowed")),
            ("POST", "/v1/responses", Ok("Responses Assembled(Responses)")),
            ("POST", "/v1/messages", Ok("Anthropic Assembled(Messages)")),
            ("POST", "/v1/messages/count_tokens", Ok("Anthropic Counted")),
            ("POST", "/completions", Ok("LlamaCpp Assembled(Native)")),
            ("POST", "/upstream/a/v1/x", Ok("Raw(\"a/v1/x\")")),
            ("HEAD", "/", Ok("Root")),
            ("POST", "/", Err("method_not_allowed")),
            ("GET", "/dashboard/0/app.css", Ok("Asset(\"0/app.css\")")),
            ("POST", "/dashboard/0/app.css", Err("method_not_allowed")),
            ("GET", "/dashboard", Err("not_found")),
            ("GET", "/models", Ok("Models")),
            ("GET", "/props", Ok("Properties")),
            ("GET", "/v1/health", Ok("Health")),
            ("POST", "/models/load", Ok("Control(Load)")),
            ("GET", "/models/load", Err("method_not_allowed")),
            ("GET", "/unload", Ok("Control(UnloadAll)")),
            ("POST", "/api/models/unload/org%2Fm", Ok("Control(UnloadNamed(Some(\"org%2Fm\")))")),
            ("GET", "/logs/stream/m", Ok("Control(Follow(Some(\"m\")))")),
            ("GET", "/models/sse", Err("not_supported")),
            ("POST", "/v1/chat/completions/control", Ok("OpenAi Aside")),
            ("GET", "/slots", Ok("Engine(\"/slots\")")),
            ("POST", "/slots", Err("method_not_allowed")),
            ("POST", "/slots/0", Ok("Engine(\"/slots/0\")")),
            ("GET", "/slots/0", Err("method_not_allowed")),
            ("POST", "/slots/", Err("not_found")),
            ("GET", "/lora-adapters", Ok("Engine(\"/lora-adapters\")")),
            ("POST", "/lora-adapters", Ok("Engine(\"/lora-adapters\")")),
            ("POST", "/props", Ok("Engine(\"/props\")")),
            ("DELETE", "/props", Err("method_not_allowed")),
            ("GET", "/v1/stream", Err("not_supported")),
            ("POST", "/v1/streams/lookup", Err("not_supported")),
            ("POST", "/api/chat", Ok("Ollama Translated(Chat)")),
            ("GET", "/api/tags", Ok("Ollama(Tags)")),
            ("GET", "/api/show", Err("method_not_allowed")),
            ("POST", "/api/create", Err("not_supported")),
            ("HEAD", "/api/blobs/sha256:0", Err("not_supported")),
            ("POST", "/api/chatter", Err("not_found")),
            ("POST", "/cors-proxy", Err("not_supported")),
            ("GET", "/v1/responses/resp_1", Err("not_supported")),
            ("POST", "/v1/audio/speech", Ok("OpenAi Whole")),
            ("POST", "/v1/audio/transcriptions", Ok("OpenAi Form")),
            ("POST", "/v1/audio/voices", Err("not_supported")),
            ("GET", "/v1/chat/completions/chatcmpl-1", Err("not_supported")),
            ("POST", "/v1/messages/batches", Err("not_supported")),
            ("GET", "/v1/messages/batches/1/results", Err("not_supported")),
            ("GET", "/v1/responsesque", Err("not_found")),
            ("GET", "/v1/chat/completions/", Err("not_found")),
            ("GET", "/api/motorpool/v2/status", Err("not_found")),
            ("PRI", "*", Err("version_not_supported")),
        ] {
            assert_eq!(code(method, path).as_deref().map_err(|e| *e), want, "{method} {path}");
        }
    }

    #[test]
    fn each_path_is_one_row_and_errors_are_said_as_its_family_says_them() {
        for (n, served) in SERVED.iter().enumerate() {
            assert!(SERVED[n + 1..].iter().all(|other| other.path != served.path), "{}", served.path);
            assert_eq!(family_of(served.path), served.family);
        }
        for (path, family) in [
            ("/v1/responses/resp_1", Family::Responses),
            ("/v1/messages/batches", Family::Anthropic),
            ("/api/chat", Family::Ollama),
            ("/api/motorpool/v1/status", Family::OpenAi),
            ("/m/a/v1/messages", Family::LlamaCpp),
            ("/messages", Family::OpenAi),
            ("/mm/a", Family::OpenAi),
        ] {
            assert_eq!(family_of(path), family, "{path}");
        }
    }

    #[test]
    fn a_doubled_prefix_is_named() {
        let failure = route(&Method::POST, "/v1/v1/chat/completions").expect_err("nothing there");
        assert!(failure.to_string().contains("`/v1` stands twice"), "{failure}");
    }
}
