//! What can be served, and what of it is there: the listing of `/v1/models`.
//!
//! One row carries OpenAI's members and those of llama-server's router. It is made of the catalog and the last snapshot,
//! and waits for nobody.
use crate::{
    context::Context,
    keys::Rights,
    outside::{self, Listed, Outside},
};
use motorpool_catalog::{ContextWish, Model};
use motorpool_external::residency::Seen;
use motorpool_vocab::{Bytes, EntryView, PhaseView, Snapshot};
use serde::Serialize;
use std::sync::Arc;

/// A list in OpenAI's form.
#[derive(Serialize)]
pub(crate) struct List {
    object: &'static str,
    data: Vec<Row>,
}

/// One model.
#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) id: String,
    object: &'static str,
    created: u64,
    pub(crate) owned_by: String,
    aliases: Vec<String>,
    tags: Vec<String>,
    capabilities: Vec<&'static str>,
    status: Status,
    meta: Meta,
    /// The server that has it, when that is not ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

#[derive(Serialize)]
struct Status {
    value: &'static str,
    /// 0 to 1, while it loads and says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<bool>,
    /// The class of the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'static str>,
}

#[derive(Serialize)]
struct Meta {
    n_ctx: Option<u32>,
    /// Bytes reserved for it now.
    #[serde(skip_serializing_if = "Option::is_none")]
    reserved: Option<u64>,
}

/// Where a model stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// No engine has it.
    Unloaded,
    /// An engine is being built for it; progress in per-mille.
    Loading(Option<u16>),
    /// An engine serves it.
    Loaded,
    /// The last attempt failed, with this class.
    Failed(&'static str),
}

impl Standing {
    /// The best that its engines have. One that goes for a reload is none of them: it serves nobody who comes now.
    pub(crate) fn of(model: &Model, snapshot: &Snapshot) -> Self {
        let is_its = |entry: &&EntryView| *entry.key.model() == model.id && !entry.goes_for_good;
        let entries = || snapshot.entries.iter().filter(is_its);
        if entries().any(|entry| matches!(entry.phase, PhaseView::Ready | PhaseView::Suspect)) {
            return Self::Loaded;
        }
        let building = entries().find_map(|entry| match entry.phase {
            PhaseView::Starting { progress } => Some(progress),
            PhaseView::Validating | PhaseView::WaitsForRoom | PhaseView::WaitsForSlot => Some(None),
            PhaseView::Idle
            | PhaseView::Ready
            | PhaseView::Suspect
            | PhaseView::Stopping
            | PhaseView::Reclaiming
            | PhaseView::Stuck => None,
        });
        if let Some(progress) = building {
            return Self::Loading(progress);
        }
        entries().find_map(failed_with).map_or(Self::Unloaded, Self::Failed)
    }

    /// Its name in listings.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Unloaded => "unloaded",
            Self::Loading(_) => "loading",
            Self::Loaded => "loaded",
            Self::Failed(_) => "failed",
        }
    }
}

fn failed_with(entry: &EntryView) -> Option<&'static str> {
    entry.last_exit.as_ref()?.class.map(motorpool_vocab::FailureClass::as_str)
}

/// Every model that whoever asks may use: ours, and those of others' servers.
pub(crate) fn usable<'a>(context: &'a Context, rights: Option<&Rights>) -> (Vec<&'a Arc<Model>>, Vec<Listed>) {
    let mut theirs = outside::listed(context);
    let is_hidden = |m: &Model| theirs.iter().any(|listed| listed.hides.as_deref() == Some(m.id.as_str()));
    let may_use = |m: &&Arc<Model>| rights.is_none_or(|rights| rights.may_use(m)) && !is_hidden(m);
    let ours = context.catalog.models().filter(may_use).collect();
    theirs.retain(|listed| rights.is_none_or(|rights| rights.may_use_any(&listed.foreign.names(context))));
    (ours, theirs)
}

/// The same as a listing, ours first.
pub(crate) fn list(context: &Context, rights: Option<&Rights>) -> List {
    let snapshot = context.handle.snapshot();
    let (ours, theirs) = usable(context, rights);
    let ours = ours.into_iter().map(|model| row(context, model, &snapshot));
    List { object: "list", data: ours.chain(theirs.into_iter().map(|listed| listed.row)).collect() }
}

impl Row {
    /// Whether something serves it.
    pub(crate) fn is_loaded(&self) -> bool {
        self.status.value == Standing::Loaded.as_str()
    }

    /// One model of somebody else's server.
    pub(crate) fn foreign(context: &Context, (server, seen): (&Outside, &Seen), id: String) -> Self {
        Self {
            id,
            object: "model",
            created: context.started_at,
            owned_by: server.config.kind.as_str().to_owned(),
            aliases: seen.aliases.clone(),
            tags: seen.tags.clone(),
            capabilities: vec![],
            status: status(outside::standing(seen.phase)),
            meta: Meta { n_ctx: None, reserved: None },
            target: Some(server.config.id.clone()),
        }
    }
}

/// One model.
pub(crate) fn row(context: &Context, model: &Model, snapshot: &Snapshot) -> Row {
    let standing = Standing::of(model, snapshot);
    let reserved = snapshot.entries.iter().filter(|e| *e.key.model() == model.id).map(|e| e.reserved);
    let reserved = Some(Bytes::sum(reserved)).filter(|bytes| !bytes.is_zero());
    Row {
        id: model.id.to_string(),
        object: "model",
        created: context.started_at,
        owned_by: model.engine.clone(),
        aliases: model.aliases.clone(),
        tags: model.tags.clone(),
        capabilities: model.capabilities.iter().map(|c| c.as_str()).collect(),
        status: status(standing),
        meta: Meta { n_ctx: model.context.and_then(ContextWish::tokens), reserved: reserved.map(Bytes::get) },
        target: None,
    }
}

fn status(standing: Standing) -> Status {
    let value = standing.as_str();
    let plain = Status { value, progress: None, failed: None, class: None };
    match standing {
        Standing::Unloaded | Standing::Loaded => plain,
        Standing::Loading(progress) => Status { progress: progress.map(|n| f64::from(n) / 1000.0), ..plain },
        Standing::Failed(class) => Status { failed: Some(true), class: Some(class), ..plain },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{catalog, entry};
    use motorpool_vocab::{FailureClass, ModelId};

    #[test]
    fn a_model_stands_where_the_best_of_its_engines_stands() {
        let catalog = catalog(&[("a", &[])]);
        let model = catalog.model(&ModelId::new("a").expect("an id")).expect("it is there");
        let standing = |entries| Standing::of(model, &Snapshot { entries, ..Snapshot::default() });
        let failed = || entry("llama-server:a:1", PhaseView::Idle, Some(FailureClass::ModelCorrupt));
        let loading = |progress| entry("llama-server:a:2", PhaseView::Starting { progress }, None);
        let ready = || entry("llama-server:a:0", PhaseView::Ready, None);
        assert_eq!(standing(vec![]), Standing::Unloaded);
        assert_eq!(standing(vec![entry("llama-server:b:0", PhaseView::Ready, None)]), Standing::Unloaded);
        assert_eq!(standing(vec![entry("llama-server:a:0", PhaseView::Stopping, None)]), Standing::Unloaded);
        assert_eq!(standing(vec![failed()]), Standing::Failed("model-corrupt"));
        assert_eq!(standing(vec![failed(), loading(Some(630))]), Standing::Loading(Some(630)));
        assert_eq!(standing(vec![failed(), loading(None), ready()]), Standing::Loaded);
        let going = || EntryView { goes_for_good: true, ..ready() };
        assert_eq!(standing(vec![going()]), Standing::Unloaded);
        assert_eq!(standing(vec![going(), loading(None)]), Standing::Loading(None));
    }
}
