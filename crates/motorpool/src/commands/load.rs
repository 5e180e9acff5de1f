//! `motorpool load` and `motorpool unload`.
use crate::{
    args::{Load, Unload},
    client::{Client, escaped},
    exit::Failure,
    out::{self, Out},
};
use motorpool_vocab::EngineKey;
use serde_json::{Value, json};

const API: &str = "/api/motorpool/v1";

pub(super) async fn load(client: &Client, out: Out, Load { model }: Load) -> Result<(), Failure> {
    out::say(format_args!("loading {model} ..."));
    let answer = client.post(&format!("{API}/models/{}/load", escaped(&model)), &json!({})).await?;
    out.data(&answer, || format!("{model} is ready\n"))
}

pub(super) async fn unload(client: &Client, out: Out, Unload { model, idle, force }: Unload) -> Result<(), Failure> {
    let Some(name) = model else {
        let answer = client.post(&format!("{API}/unload-idle"), &json!({})).await?;
        return out.data(&answer, || "everything idle is unloaded\n".to_owned());
    };
    let kind = if name.parse::<EngineKey>().is_ok() { "engines" } else { "models" };
    let body = match (idle, force) {
        (true, _) => json!({ "mode": "idle" }),
        (_, true) => json!({ "mode": "force" }),
        _ => Value::Object(serde_json::Map::new()),
    };
    let answer = client.post(&format!("{API}/{kind}/{}/unload", escaped(&name)), &body).await?;
    out.data(&answer, || format!("{name} is unloaded\n"))
}
