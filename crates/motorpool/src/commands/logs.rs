//! `motorpool logs [-f] MODEL`: from the daemon; without one, from the file that it left in the state directory.
use crate::{
    args::Logs,
    chat::Lines,
    client::{Client, ClientError, escaped},
    dirs::Dirs,
    exit::{Exit, Failure},
    model::ModelError,
    out::{self, Form, Out},
    settings::Settings,
};
use http::StatusCode;
use motorpool_vocab::EngineKey;
use serde_json::json;
use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

pub(super) async fn perform(
    (client, dirs): (&Client, &Dirs),
    out: Out,
    (config, Logs { model, follow }): (Option<&Path>, Logs),
) -> Result<(), Failure> {
    let key = match super::ps::key_of(client, &model).await {
        Err(failure) if failure.exit == Exit::NoDaemon => {
            if follow {
                out::say("no daemon is running: nothing is added to this");
            }
            return left_behind(dirs, out, &key_in_catalog(&Settings::load(dirs, config)?, &model)?);
        }
        other => other?,
    };
    let query = if follow { "?follow=1" } else { "" };
    let path = format!("/api/motorpool/v1/engines/{}/logs{query}", escaped(&key.to_string()));
    let mut lines = match client.get_stream(&path).await {
        Err(ClientError::Refused { status: StatusCode::NOT_FOUND, .. }) => return Err(silent(&key)),
        body => Lines::new(body?),
    };
    while let Some(line) = lines.next().await? {
        print(out, &line)?;
    }
    Ok(())
}

fn print(out: Out, line: &str) -> Result<(), Failure> {
    match out.form {
        Form::People => out::write(&[line, "\n"].concat()),
        Form::Json => out::write_as_it_is(&(json!({ "line": line }).to_string() + "\n")),
    }
}

/// Nothing was ever written down for it.
fn silent(key: &EngineKey) -> Failure {
    let cure = format!("it has one once it ran: `motorpool load {}`", key.model());
    Failure::new(Exit::NotFound, format_args!("there is no log of {key}"), cure)
}

/// The engine that `name` means by the catalog alone: a key, or the first one of a model.
fn key_in_catalog(settings: &Settings, name: &str) -> Result<EngineKey, Failure> {
    if let Ok(key) = name.parse() {
        return Ok(key);
    }
    let model = settings.catalog.resolve(name).map_err(ModelError::from)?;
    let key = EngineKey::new(&model.engine, model.id.clone(), 0);
    key.map_err(|error| Failure::new(Exit::NotFound, error, "run `motorpool model list` for what there is"))
}

/// The log as the last daemon left it.
fn left_behind(dirs: &Dirs, out: Out, key: &EngineKey) -> Result<(), Failure> {
    let Ok(log) = File::open(dirs.log_of(key)) else { return Err(silent(key)) };
    let mut log = BufReader::new(log);
    let mut line = Vec::new();
    loop {
        line.clear();
        match log.read_until(b'\n', &mut line) {
            Ok(0) => return Ok(()),
            Ok(_) => print(out, String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']))?,
            Err(error) => return Err(Failure::new(Exit::Failed, error, "check the state directory's disk")),
        }
    }
}
