//! `motorpool drain`, `motorpool restart` and `motorpool cancel`: engines out of use and anew, requests to their end.
use crate::{
    client::{Client, escaped},
    exit::Failure,
    out::Out,
};
use clap::Args;
use motorpool_vocab::EngineKey;
use serde_json::{Value, json};

const API: &str = "/api/motorpool/v1";

#[derive(Debug, Args)]
pub(crate) struct Drain {
    /// Id, alias, or engine key
    #[arg(value_name = "MODEL|KEY")]
    model: String,
}

#[derive(Debug, Args)]
pub(crate) struct Restart {
    /// Id, alias, or engine key
    #[arg(value_name = "MODEL|KEY")]
    model: String,
    /// At once, cutting what runs
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Cancel {
    /// Its number in `motorpool queue`: that one; or its name there: all of that name, waiting or served
    #[arg(value_name = "ID")]
    request: String,
}

pub(super) async fn drain(client: &Client, out: Out, Drain { model }: Drain) -> Result<(), Failure> {
    let answer = client.post(&format!("{}/drain", path_of(&model)), &json!({})).await?;
    out.data(&answer, || {
        let n = answer["serving"].as_u64().unwrap_or_default();
        let rest = match n {
            0 => "nothing runs".to_owned(),
            1 => "1 request still runs".to_owned(),
            n => format!("{n} requests still run"),
        };
        format!("{model} takes no requests until `motorpool load {model}`; {rest}\n")
    })
}

pub(super) async fn restart(client: &Client, out: Out, Restart { model, force }: Restart) -> Result<(), Failure> {
    let body = json!({ "mode": if force { "force" } else { "drain" } });
    let answer = client.post(&format!("{}/restart", path_of(&model)), &body).await?;
    out.data(&answer, || {
        let keys = answer["restarted"].as_array().into_iter().flatten().filter_map(Value::as_str);
        format!("ready again: {}\n", keys.collect::<Vec<_>>().join(", "))
    })
}

pub(super) async fn cancel(client: &Client, out: Out, Cancel { request }: Cancel) -> Result<(), Failure> {
    let answer = client.post(&format!("{API}/requests/{}/cancel", escaped(&request)), &json!({})).await?;
    out.data(&answer, || format!("{request} is ended; its client is told so\n"))
}

/// Of an engine by its key, else of a model.
fn path_of(name: &str) -> String {
    let kind = if name.parse::<EngineKey>().is_ok() { "engines" } else { "models" };
    format!("{API}/{kind}/{}", escaped(name))
}
