//! `motorpool logs [-f] MODEL`.
use crate::{
    args::Logs,
    chat::Lines,
    client::{Client, escaped},
    exit::Failure,
    out::{self, Form, Out},
};
use serde_json::json;

pub(super) async fn perform(client: &Client, out: Out, Logs { model, follow }: Logs) -> Result<(), Failure> {
    let key = super::ps::key_of(client, &model).await?;
    let query = if follow { "?follow=1" } else { "" };
    let path = format!("/api/motorpool/v1/engines/{}/logs{query}", escaped(&key.to_string()));
    let mut lines = Lines::new(client.get_stream(&path).await?);
    while let Some(line) = lines.next().await? {
        match out.form {
            Form::People => out::write(&(line + "\n"))?,
            Form::Json => out::write(&(json!({ "line": line }).to_string() + "\n"))?,
        }
    }
    Ok(())
}
