//! `motorpool load` and `motorpool unload`.
use crate::{
    args::{Load, Reset, Unload},
    client::{Client, ClientError, escaped},
    exit::Failure,
    out::{self, Out},
    progress::{Progress, Unit},
    status::Status,
};
use motorpool_vocab::EngineKey;
use serde_json::{Value, json};
use std::time::Duration;

const API: &str = "/api/motorpool/v1";
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub(super) async fn load(client: &Client, out: Out, Load { model }: Load) -> Result<(), Failure> {
    let answer = until_ready(client, &model).await?;
    out.data(&answer, || format!("{model} is ready\n"))
}

/// Has `model` loaded, and shows how far it is.
pub(super) async fn until_ready(client: &Client, model: &str) -> Result<Value, ClientError> {
    let (path, body) = (format!("{API}/models/{}/load", escaped(model)), json!({}));
    let mut progress = Progress::begin(&format!("loading {model}"), Unit::Percent);
    tokio::select! {
        answer = client.post(&path, &body) => answer,
        () = follow(client, model, &mut progress) => unreachable!("it follows until it is dropped"),
    }
}

/// Shows how far the load of `model` is, as long as it is polled.
async fn follow(client: &Client, model: &str, progress: &mut Progress) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Ok((status, _)) = Status::ask(client).await else { continue };
        let starting = status.engines.iter().filter(|engine| engine.is_of(model)).find_map(|engine| engine.progress);
        if let Some(per_mille) = starting {
            progress.set(u64::from(per_mille / 10));
        }
    }
}

/// Says what an unload has to wait for, if for anything.
async fn announce_wait(client: &Client, name: &str) -> Result<(), ClientError> {
    let id = if let Ok(key) = name.parse::<EngineKey>() {
        key.model().to_string()
    } else {
        let model: Value = client.get(&format!("{API}/models/{}", escaped(name))).await?;
        model["id"].as_str().unwrap_or_default().to_owned()
    };
    let (status, _) = Status::ask(client).await?;
    for engine in status.engines.iter().filter(|engine| engine.is_of(&id)) {
        match engine.n_served() {
            0 => {}
            1 => out::say(format_args!("waiting for 1 request at {}; --force cuts it", engine.key)),
            n => out::say(format_args!("waiting for {n} requests at {}; --force cuts them", engine.key)),
        }
    }
    Ok(())
}

pub(super) async fn unload(client: &Client, out: Out, Unload { model, idle, force }: Unload) -> Result<(), Failure> {
    let Some(name) = model else {
        let answer = client.post(&format!("{API}/unload-idle"), &json!({})).await?;
        let n_busy = answer["busy"].as_array().map_or(0, Vec::len);
        return out.data(&answer, || match n_busy {
            0 => "everything is unloaded\n".to_owned(),
            n => format!("everything idle is unloaded; {n} in use\n"),
        });
    };
    let kind = if name.parse::<EngineKey>().is_ok() { "engines" } else { "models" };
    let body = match (idle, force) {
        (true, _) => json!({ "mode": "idle" }),
        (_, true) => json!({ "mode": "force" }),
        _ => json!({ "mode": "drain" }),
    };
    if !idle && !force {
        announce_wait(client, &name).await?;
    }
    let answer = client.post(&format!("{API}/{kind}/{}/unload", escaped(&name)), &body).await?;
    out.data(&answer, || match answer["unloaded"].as_bool() {
        Some(true) => format!("{name} is unloaded\n"),
        _ => format!("{name} was not loaded\n"),
    })
}

pub(super) async fn reset(client: &Client, out: Out, Reset { model }: Reset) -> Result<(), Failure> {
    let path = match &model {
        Some(name) => format!("{API}/models/{}/reset", escaped(name)),
        None => format!("{API}/reset"),
    };
    let answer = client.post(&path, &json!({})).await?;
    out.data(&answer, || {
        let keys: Vec<_> = answer["reset"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        match keys.as_slice() {
            [] => "nothing had failed\n".to_owned(),
            keys => format!("forgotten: {}\n", keys.join(", ")),
        }
    })
}
