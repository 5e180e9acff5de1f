//! `motorpool plan MODEL…` and `motorpool explain MODEL`: what launches would take, by part and place, and whether they
//! fit. Nothing is started, stopped, reserved or written.
//!
//! | host | from |
//! | --- | --- |
//! | `--on HOST.toml` | the file |
//! | this machine | its memory, its graphics devices, the configuration, and what earlier loads taught |
//!
//! What launches take is laid out on the empty host, each beside those before it. Whether they fit now, and what would go
//! for them, a running daemon says of its own pool; it is not asked about another machine. A pool at an address says all
//! of it itself: its catalog, its machine, and what it holds.
mod layout;
mod now;
mod parts;
mod sheet;
mod theirs;

use crate::{
    args::{Explain, Plan},
    client::{Client, escaped},
    daemon,
    dirs::Dirs,
    engine::{calibrate::calibration_of, devices::Keep},
    exit::{Exit, Failure},
    host, machine,
    model::{ModelError, store::Store},
    out::{self, Out},
    settings::{self, Settings},
    status::Status,
};
use motorpool_broker::{Bounds, Subject};
use motorpool_catalog::{Manifest, Model};
use motorpool_pool::{Facts, NotKept, SessionsKept, StartFault, copies, sessions_kept};
use motorpool_supervisor::{Checker, Notebook};
use motorpool_vocab::{Bytes, EngineKey, FailureClass};
use serde_json::Value;
use sheet::{Launch, Verdict};
use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

pub(super) async fn plan(
    (dirs, client): (&Dirs, &Client),
    out: Out,
    (settings, mut command): (Settings, Plan),
) -> Result<(), Failure> {
    let external = theirs::take(client, &settings, &mut command).await?;
    if command.models.is_empty() && !external.is_empty() {
        out.data(&serde_json::json!({ "external": &external }), || theirs::for_people(&external))?;
        return theirs::refusal_of(&external);
    }
    let models: Vec<_> = command
        .models
        .iter()
        .map(|name| settings.catalog.resolve(name).map(Arc::clone).map_err(ModelError::from))
        .collect::<Result<_, _>>()?;
    let subject = |(key, model): (EngineKey, Arc<Model>)| {
        let facts = look_at(dirs, (&settings, &command), &model).map_err(|fault| unusable(&fault))?;
        let not_kept = not_kept(&settings, &model, &facts);
        Ok::<_, Failure>((key, subject_of(&model, &facts, &command), not_kept))
    };
    let wanted: Vec<_> = copies(&models, command.replicas).into_iter().map(subject).collect::<Result<_, _>>()?;
    let bounds = bounds(dirs, &settings, &command).await?;
    let mut sheet = layout::lay_out(bounds, wanted.iter().map(|(key, subject, _)| (key.clone(), subject)));
    for (launch, (.., not_kept)) in sheet.launches.iter_mut().zip(wanted) {
        launch.sessions_not_kept = not_kept.map(|why| why.to_string());
    }
    if command.on.is_none() {
        now::ask(client, &command, &mut sheet).await?;
    }
    sheet.external = external;
    out.data(&sheet, || sheet.for_people() + &theirs::for_people(&sheet.external))?;
    if command.on.is_none() && sheet::first_refusal(&sheet.launches).is_some() {
        theirs::say_releasable(client).await;
    }
    refusal_of(&sheet.launches)?;
    theirs::refusal_of(&sheet.external)
}

/// What the pool at an address would make of launches: its catalog and its machine count, not ours.
pub(super) async fn plan_there(client: &Client, out: Out, mut command: Plan) -> Result<(), Failure> {
    if command.on.is_some() {
        let what = "--on describes a machine, and --server names another one";
        return Err(Failure::new(Exit::Usage, what, "leave one of them out"));
    }
    let external = theirs::take_there(client, &mut command).await?;
    let launches = if command.models.is_empty() { vec![] } else { now::launches(client, &command).await? };
    out.data(&serde_json::json!({ "launches": &launches, "external": &external }), || {
        sheet::launches_for_people(&launches) + &theirs::for_people(&external)
    })?;
    refusal_of(&launches)?;
    theirs::refusal_of(&external)
}

pub(super) async fn explain_there(client: &Client, out: Out, command: Explain) -> Result<(), Failure> {
    let path = format!("/api/motorpool/v1/models/{}", escaped(&command.model));
    if let Ok(model) = client.get::<Value>(&path).await
        && let Some(id) = model["id"].as_str()
    {
        say_troubles(client, id).await;
    }
    plan_there(client, out, Plan::of(command)).await
}

pub(super) async fn explain(
    at: (&Dirs, &Client),
    out: Out,
    (settings, command): (Settings, Explain),
) -> Result<(), Failure> {
    if let Ok(model) = settings.catalog.resolve(&command.model) {
        say_troubles(at.1, model.id.as_str()).await;
    }
    plan(at, out, (settings, Plan::of(command))).await
}

/// What failures of the engines of `model` mean for their next start, where a pool runs.
async fn say_troubles(client: &Client, model: &str) {
    let Ok((status, _)) = Status::ask(client).await else { return };
    for engine in status.engines.iter().filter(|engine| engine.is_of(model)) {
        if let Some(trouble) = &engine.trouble {
            out::say(format_args!("{}", trouble.sentence(&engine.key)));
        }
    }
}

/// What a build looks at first. A plan needs no program: one that is not there was not measured.
fn look_at(dirs: &Dirs, (settings, command): (&Settings, &Plan), model: &Model) -> Result<Facts, StartFault> {
    let (for_programs, for_measurements) = (dirs.clone(), dirs.clone());
    let store = Store::new(dirs);
    let program = move |manifest: &Manifest| daemon::locate_programs(&for_programs, manifest);
    let checker = Checker::new(
        Box::new(move |manifest| Ok(program(manifest).unwrap_or_else(|_| vec![PathBuf::new()]))),
        Box::new(move |model| daemon::locate_model(&store, model)),
        Box::new(move |program| calibration_of(&for_measurements, program)),
    );
    // What was learned here is not known of another machine.
    let checker = if command.on.is_none() { checker.with_lessons(Notebook::look_at(&dirs.state)) } else { checker };
    let manifest = settings.catalog.manifest(&model.engine).expect("Catalog::new: every model has an engine");
    checker.check(manifest, model, &BTreeSet::new())
}

/// What a build of `model` would be planned from, with what the command line says in the catalog's place.
fn subject_of(model: &Model, facts: &Facts, command: &Plan) -> Subject {
    match command.context {
        Some(wish) => motorpool_pool::subject(&model.with_context(wish), facts),
        None => motorpool_pool::subject(model, facts),
    }
}

/// Why contexts of its sessions would not outlive it, if they would not.
fn not_kept(settings: &Settings, model: &Model, facts: &Facts) -> Option<NotKept> {
    let manifest = settings.catalog.manifest(&model.engine).map(AsRef::as_ref);
    match (settings.config.session_state.disk, sessions_kept(model, facts, manifest)) {
        (Bytes::ZERO, _) => Some(NotKept::SwitchedOff),
        (_, SessionsKept::No(why)) => Some(why),
        (_, SessionsKept::Yes) => None,
    }
}

async fn bounds(dirs: &Dirs, settings: &Settings, command: &Plan) -> Result<Bounds, Failure> {
    let host = match &command.on {
        Some(path) => host::described(&settings::described_host(path)?),
        None => machine::look(dirs, settings, Keep::No).await?.1.host,
    };
    Ok(host.bounds())
}

/// What a build would fail with before it is planned.
fn unusable(fault: &StartFault) -> Failure {
    let (exit, cure) = match fault.class {
        FailureClass::ModelMissing => (Exit::NotFound, "run `motorpool model list` for what is on this machine"),
        FailureClass::ModelCorrupt => (Exit::Broken, "get the file again from where it came from"),
        _ => (Exit::Failed, "check the file and its permissions"),
    };
    Failure::new(exit, &fault.message, cure)
}

/// One that does not fit is a refusal, after all was printed.
fn refusal_of(launches: &[Launch]) -> Result<(), Failure> {
    match sheet::first_refusal(launches) {
        None => Ok(()),
        Some((key, verdict)) => {
            let cure = match verdict {
                Verdict::Fails { .. } => "run `motorpool doctor` there for what is missing",
                _ => "plan it smaller, or on a larger machine with --on",
            };
            Err(Failure::new(Exit::Refused, format_args!("{key} {}", verdict.for_people()), cure))
        }
    }
}
