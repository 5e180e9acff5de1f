//! Model servers of the user's that answer on this machine already, and the lines that make them ours to serve.
//!
//! They are looked at, once, on the ports that such programs use; nothing is loaded and nothing is entered.
use crate::{client::Client, remote::Remote};
use http::StatusCode;
use motorpool_catalog::{Config, ExternalKind};
use serde_json::Value;
use std::time::Duration;
use tokio::task::JoinSet;

/// Where LM Studio, llama.cpp and Ollama listen when nobody tells them otherwise.
pub(super) const PORTS: [u16; 3] = [8080, 11434, 1234];
/// Whoever takes longer on this machine is not there.
const ANSWERS_WITHIN: Duration = Duration::from_millis(800);

/// Somebody who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Neighbour {
    pub(super) port: u16,
    pub(super) what: What,
}

/// What it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// It can be served through us.
    Server(ExternalKind),
    /// A llama-server with one model of its own, which nobody else loads or unloads.
    SingleModel,
}

/// What it said when it was asked; `None`: no, or nothing that is JSON.
#[derive(Clone, Debug, Default)]
struct Said {
    ours: bool,
    ollama_version: Option<Value>,
    lm_studio_models: Option<Value>,
    llama_props: Option<Value>,
}

/// Those that answer on `ports` and that the configuration does not name.
pub(super) async fn look(config: &Config, ports: &[u16]) -> Vec<Neighbour> {
    let mut asked = JoinSet::new();
    for &port in ports.iter().filter(|port| !is_known(config, **port)) {
        asked.spawn(async move {
            let said = tokio::time::timeout(ANSWERS_WITHIN, ask(port)).await.ok()??;
            judge(&said).map(|what| Neighbour { port, what })
        });
    }
    let mut found: Vec<_> = asked.join_all().await.into_iter().flatten().collect();
    found.sort_by_key(|neighbour| ports.iter().position(|port| *port == neighbour.port));
    found
}

/// Whether it is in `[[external]]`, or an address of our own.
fn is_known(config: &Config, port: u16) -> bool {
    let ends = |address: &str| address.ends_with(&format!(":{port}"));
    let external = config.external.iter().any(|server| {
        let url = server.url.to_string();
        ends(url.trim_end_matches('/').trim_end_matches("/v1"))
    });
    external || config.server.listen.iter().any(|listen| ends(&listen.to_string()))
}

async fn ask(port: u16) -> Option<Said> {
    let client = Client::of(Remote::at(&format!("http://127.0.0.1:{port}"), None, None).ok()?);
    let get = async |path: &str| client.get::<Value>(path).await.ok();
    // Another pool speaks as Ollama does, too.
    let status = client.get::<Value>("/api/motorpool/v1/status").await;
    let ours = match status {
        Ok(status) => status.get("pool").is_some(),
        Err(crate::client::ClientError::Refused { status, code, .. }) => {
            matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) && !code.is_empty()
        }
        Err(crate::client::ClientError::Unreachable { .. }) => return None,
        Err(_) => false,
    };
    Some(Said {
        ours,
        ollama_version: get("/api/version").await,
        lm_studio_models: match get("/api/v1/models").await {
            Some(models) => Some(models),
            None => get("/api/v0/models").await,
        },
        llama_props: get("/props").await,
    })
}

fn judge(said: &Said) -> Option<What> {
    if said.ours {
        return None;
    }
    let is = |value: &Option<Value>, key: &str| value.as_ref().is_some_and(|value| value.get(key).is_some());
    if let Some(props) = &said.llama_props {
        let is_router = props["role"] == "router";
        if is_router || is(&said.llama_props, "build_info") {
            return Some(if is_router { What::Server(ExternalKind::LlamaCppRouter) } else { What::SingleModel });
        }
    }
    if is(&said.lm_studio_models, "models") || is(&said.lm_studio_models, "data") {
        return Some(What::Server(ExternalKind::LmStudio));
    }
    is(&said.ollama_version, "version").then_some(What::Server(ExternalKind::Ollama))
}

impl Neighbour {
    /// What there is to say of it.
    pub(super) fn lines(self) -> Vec<String> {
        let Self { port, what } = self;
        let kind = match what {
            What::Server(kind) => kind.as_str(),
            What::SingleModel => {
                return vec![format!(
                    "server  a llama-server with one model answers on port {port}: it is left as it is (without a model, as a router, it could be served here)"
                )];
            }
        };
        vec![
            format!("server  {kind} answers on port {port}; these lines in motorpool.toml serve its models here too:"),
            "            [[external]]".to_owned(),
            format!("            id = \"{kind}\""),
            format!("            kind = \"{kind}\""),
            format!("            url = \"http://127.0.0.1:{port}\""),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    /// A server that answers 404 but for these paths.
    async fn server(answers: &'static [(&'static str, &'static str)]) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        let Ok(byte) = stream.read_u8().await else { return };
                        head.push(byte);
                    }
                    let head = String::from_utf8(head).expect("text");
                    let asked = |(path, _): &&(&str, &str)| head.starts_with(&format!("GET {path} "));
                    let (status, body) = match answers.iter().find(asked) {
                        Some((_, body)) => (body.split_once(' ').map_or("200", |(status, _)| status), *body),
                        None => ("404", "404 {}"),
                    };
                    let body = body.split_once(' ').map_or(body, |(_, body)| body);
                    let answer = format!(
                        "HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                        body.len()
                    );
                    let _ = stream.write_all(answer.as_bytes()).await;
                });
            }
        });
        port
    }

    #[tokio::test]
    async fn servers_are_told_by_what_they_say_and_those_that_are_known_or_no_servers_are_not() {
        let ollama = server(&[("/api/version", "200 {\"version\":\"0.9\"}")]).await;
        let lm_studio = server(&[("/api/v0/models", "200 {\"data\":[]}")]).await;
        let router = server(&[("/props", "200 {\"role\":\"router\"}")]).await;
        let single = server(&[("/props", "200 {\"build_info\":\"b1\"}")]).await;
        let ours =
            server(&[("/api/motorpool/v1/status", "200 {\"pool\":{}}"), ("/api/version", "200 {\"version\":\"1\"}")])
                .await;
        let keyed = server(&[
            ("/api/motorpool/v1/status", "401 {\"error\":{\"code\":\"no_key\"}}"),
            ("/api/version", "200 {\"version\":\"1\"}"),
        ])
        .await;
        let web = server(&[("/api/version", "200 <html>")]).await;
        let nobody = {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            listener.local_addr().expect("bound").port()
        };
        let found = look(&Config::default(), &[nobody, router, ollama, web, ours, keyed, single, lm_studio]).await;
        let found: Vec<_> = found.into_iter().map(|one| (one.port, one.what)).collect();
        let expected = [
            (router, What::Server(ExternalKind::LlamaCppRouter)),
            (ollama, What::Server(ExternalKind::Ollama)),
            (single, What::SingleModel),
            (lm_studio, What::Server(ExternalKind::LmStudio)),
        ];
        assert_eq!(found, expected);
        let known = format!("[[external]]\nid = \"x\"\nkind = \"ollama\"\nurl = \"http://localhost:{ollama}/v1\"\n");
        let source = motorpool_catalog::Source { file: "x", text: &known };
        let config = motorpool_catalog::parse_config(source, &|_| None).expect("right");
        assert!(look(&config, &[ollama]).await.is_empty());
    }

    #[test]
    fn the_lines_that_are_printed_are_a_valid_configuration() {
        for kind in [ExternalKind::Ollama, ExternalKind::LmStudio, ExternalKind::LlamaCppRouter] {
            let lines = Neighbour { port: 1234, what: What::Server(kind) }.lines();
            let text = lines[1..].iter().map(|line| line.trim()).collect::<Vec<_>>().join("\n");
            let source = motorpool_catalog::Source { file: "x", text: &text };
            let config = motorpool_catalog::parse_config(source, &|_| None).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(config.external[0].kind, kind);
            assert!(is_known(&config, 1234) && !is_known(&config, 234));
        }
        assert_eq!(Neighbour { port: 8080, what: What::SingleModel }.lines().len(), 1);
    }

    #[test]
    fn a_pool_of_ours_is_no_server_of_the_users() {
        let version = Some(json!({ "version": "1" }));
        assert_eq!(judge(&Said { ours: true, ollama_version: version.clone(), ..Said::default() }), None);
        assert!(judge(&Said { ollama_version: version, ..Said::default() }).is_some());
        assert_eq!(judge(&Said::default()), None);
    }
}
