//! Guests on servers that only look like Ollama and LM Studio.
use crate::support::Visit;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use motorpool_external::{Body, Limits, Next, Refusal, Stay, Target};
use motorpool_residency::{Claim, Kind, ProtectedSet, Role};
use serde_json::{Value, json};
use std::time::Duration;

/// A target at the local `port`.
pub(crate) fn target(kind: Kind, port: u16) -> Target {
    let url = format!("http://localhost:{port}/v1").parse().expect("an address");
    Target::new("theirs", kind, url)
}

/// The same, protecting `models`.
pub(crate) fn protecting(target: Target, models: &[&str]) -> Target {
    let claim = |model: &&str| Claim { model: (*model).to_owned(), role: Role::Memory };
    Target { protected: ProtectedSet::Known(models.iter().map(claim).collect()), ..target }
}

/// The same, with little patience.
pub(crate) fn hasty(target: Target) -> Target {
    let soon = Duration::from_millis(200);
    Target { limits: Limits { look: soon, load: soon, unload: soon }, ..target }
}

/// A process of ours, that sees only `target`.
pub(crate) fn visit(target: Target) -> Visit {
    Visit::at::<0>(vec![target])
}

/// The chat of a caller, through `stay`, again as often as it is told to; its status and what it says.
pub(crate) async fn chat(stay: &mut Stay) -> Result<(u16, Value), Refusal> {
    let mut first = None;
    loop {
        let body = json!({"model": stay.wire_model(), "messages": []}).to_string();
        let request = || {
            let body: Body = Full::new(Bytes::from(body.clone())).map_err(|never| match never {}).boxed_unsync();
            Request::post("/").header("authorization", "Bearer ours").body(body).expect("a request")
        };
        let answer = stay.send("/v1/chat/completions", request).await.expect("it answers");
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.expect("a whole answer").to_bytes();
        let json = serde_json::from_slice(&body).unwrap_or(Value::Null);
        if status < 400 {
            stay.on_first_result().await;
            return Ok((status, json));
        }
        match stay.on_refused(status, &body).await? {
            Next::Again => drop(first.get_or_insert((status, json))),
            Next::Surface => return Ok((status, json)),
            Next::SurfaceFirst => return Ok(first.expect("it was tried before")),
        }
    }
}
