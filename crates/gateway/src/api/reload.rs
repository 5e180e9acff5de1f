//! `POST …/reload`: the files are read again, and what became of every item of theirs.
use super::{Refused, Shared};
use crate::{errors::Failure, family::Caller, reload::NotReloaded, service::failed};
use axum::{
    Json,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use motorpool_catalog::{Report, Row};
use serde::Serialize;
use serde_json::{Value, json};

/// What a reload did.
#[derive(Serialize)]
pub(super) struct Reloaded {
    /// Models and engines, and keys of the configuration that changed.
    items: Vec<Item>,
    /// Engines that take nobody new and end when those they serve have finished.
    draining: Vec<String>,
}

#[derive(Serialize)]
struct Item {
    kind: &'static str,
    name: String,
    outcome: &'static str,
    what: String,
}

impl From<Row> for Item {
    fn from(Row { kind, name, outcome, what }: Row) -> Self {
        Self { kind: kind.as_str(), name, outcome: outcome.as_str(), what }
    }
}

/// Why nothing was reloaded in OpenAI's shape; beside it where a bad file is wrong.
pub(super) struct Rejected(NotReloaded);

impl IntoResponse for Rejected {
    fn into_response(self) -> Response {
        let (message, file, line, column, nearest) = match self.0 {
            NotReloaded::Wrong { message, file, line, column, nearest } => (message, file, line, column, nearest),
            NotReloaded::Stopping => return Refused(Failure::ShuttingDown).into_response(),
            NotReloaded::Broken => return Refused(Failure::Internal("the reload broke off")).into_response(),
        };
        let failure = Failure::InvalidConfiguration(message);
        let mut document: Value = serde_json::from_slice(&failure.document(&Caller::ours())).unwrap_or_default();
        document["place"] = json!({ "file": file, "line": line, "column": column, "nearest": nearest });
        failed(&failure, &Caller::ours()).map(|_| Body::from(document.to_string()))
    }
}

pub(super) async fn reload(State(context): Shared) -> Response {
    if !context.handle.is_open() {
        return Refused(Failure::ShuttingDown).into_response();
    }
    let Some(reloads) = context.reloads.get() else {
        return Refused(Failure::NotSupported("reloading")).into_response();
    };
    match reloads.begin().await {
        Ok((Report { rows }, draining)) => {
            let items = rows.into_iter().map(Item::from).collect();
            Json(Reloaded { items, draining }).into_response()
        }
        Err(why) => Rejected(why).into_response(),
    }
}
