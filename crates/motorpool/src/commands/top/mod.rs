//! `motorpool top`: the pool in the terminal, as it changes.
//!
//! ```text
//! keys, resizes ─┐                          ┌─► draw.rs: a frame from the view, nothing else
//! looks, 1 s     ├─► View::on_event ─► Act ─┤
//! events, stream ┘      view.rs, pure       └─► load, unload, drain: asked of the daemon; what came of it is an event
//! ```
//!
//! The terminal is given back however this ends: a key, a signal, a panic. A daemon that goes away is said so and looked
//! for until it is back.
mod draw;
mod view;

use super::events;
use crate::{
    chat::Lines,
    client::{Client, ClientError, escaped},
    exit::{Exit, Failure, chain},
    out::{Form, Out},
    status::Status,
};
use clap::Args;
use motorpool_vocab::EngineKey;
use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event as Input, KeyEventKind},
};
use serde_json::{Value, json};
use std::{
    io::{self, IsTerminal},
    time::Duration,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc::{self, Sender},
};
use view::{Act, Event, Key, View};

const API: &str = "/api/motorpool/v1";
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Longest time until the thread that reads keys notices that nobody wants them any more.
const KEYS_WITHIN: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
pub(crate) struct Top {}

/// The terminal while it is ours.
struct Screen(DefaultTerminal);

impl Screen {
    fn open() -> Result<Self, Failure> {
        // It gives the terminal back when something panics, too.
        ratatui::try_init().map(Self).map_err(|error| broken(&error))
    }

    fn draw(&mut self, view: &View) -> Result<(), Failure> {
        self.0.draw(|frame| draw::draw(view, frame)).map(drop).map_err(|error| broken(&error))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn broken(error: &io::Error) -> Failure {
    Failure::new(Exit::Failed, format_args!("the terminal cannot be used: {error}"), "use `motorpool ps` instead")
}

/// Until somebody ends it. Programs get what it would show, once.
pub(super) async fn perform(client: &Client, out: Out, Top {}: Top) -> Result<(), Failure> {
    let (first, whole) = Status::ask(client).await?;
    if out.form == Form::Json {
        return out.data(&whole, String::new);
    }
    if !(io::stdout().is_terminal() && io::stdin().is_terminal()) {
        let what = "this needs a terminal";
        return Err(Failure::new(Exit::Usage, what, "use `motorpool ps`, or `motorpool events -f`"));
    }
    let mut end = signal(SignalKind::terminate()).map_err(|error| broken(&error))?;
    let (tell, mut heard) = mpsc::channel(64);
    let mut screen = Screen::open()?;
    let looks = tokio::spawn(look(client.clone(), tell.clone()));
    let news = tokio::spawn(listen(client.clone(), tell.clone()));
    std::thread::spawn({
        let tell = tell.clone();
        move || read_keys(&tell)
    });
    let mut view = View::default();
    let _ = view.on_event(Event::Looked(Box::new(first)));
    loop {
        screen.draw(&view)?;
        let event = tokio::select! {
            event = heard.recv() => event,
            _ = end.recv() => None,
        };
        match event.map(|event| view.on_event(event)) {
            None | Some(Act::Quit) => break,
            Some(Act::Nothing) => {}
            Some(act) => drop(tokio::spawn(ask(client.clone(), act, tell.clone()))),
        }
    }
    looks.abort();
    news.abort();
    Ok(())
}

async fn look(client: Client, tell: Sender<Event>) {
    let mut every = tokio::time::interval(LOOK_EVERY);
    loop {
        every.tick().await;
        let event = match Status::ask(&client).await {
            Ok((status, _)) => Event::Looked(Box::new(status)),
            Err(error) => Event::Gone(said(error)),
        };
        if tell.send(event).await.is_err() {
            return;
        }
    }
}

/// The events that are kept and those that come; from the beginning whenever the stream has to be opened again.
async fn listen(client: Client, tell: Sender<Event>) {
    let mut every = tokio::time::interval(LOOK_EVERY);
    loop {
        every.tick().await;
        let Ok(stream) = client.get_stream(&format!("{API}/events?after=0&follow=1")).await else { continue };
        let mut lines = Lines::new(stream);
        if tell.send(Event::NewsBegin).await.is_err() {
            return;
        }
        while let Ok(Some(line)) = lines.next().await {
            let Some(news) = line.strip_prefix("data: ").and_then(|data| serde_json::from_str::<Value>(data).ok())
            else {
                continue;
            };
            let is_bad = news["event"].as_str().is_some_and(|kind| kind.contains("denied") || kind.contains("failed"));
            let _ = tell.send(Event::News { line: events::for_people(&news), is_bad }).await;
        }
    }
}

fn read_keys(tell: &Sender<Event>) {
    while !tell.is_closed() {
        match event::poll(KEYS_WITHIN) {
            Ok(false) => continue,
            Ok(true) => {}
            Err(_) => return,
        }
        let told = match event::read() {
            Ok(Input::Key(key)) if key.kind != KeyEventKind::Release => Some(Event::Key(Key::of(key))),
            Ok(Input::Resize(..)) => Some(Event::Resized),
            Ok(_) => None,
            Err(_) => return,
        };
        if told.is_some_and(|event| tell.blocking_send(event).is_err()) {
            return;
        }
    }
}

/// Has the daemon do it, and tells what came of it.
async fn ask(client: Client, act: Act, tell: Sender<Event>) {
    let (path, body, done) = match &act {
        Act::Load(key) => (engine_path(key, "load"), json!({}), format!("{key} is ready")),
        Act::Unload(key) => (engine_path(key, "unload"), json!({ "mode": "drain" }), format!("{key} is unloaded")),
        Act::Drain(key) => {
            (engine_path(key, "drain"), json!({}), format!("{key} takes no requests until it is loaded"))
        }
        Act::Nothing | Act::Quit => return,
    };
    let done = match client.post(&path, &body).await {
        Ok(_) => done,
        Err(error) => said(error),
    };
    // Who closed it wants to hear nothing.
    let _ = tell.send(Event::Told(done)).await;
}

fn engine_path(key: &EngineKey, what: &str) -> String {
    format!("{API}/engines/{}/{what}", escaped(&key.to_string()))
}

fn said(error: ClientError) -> String {
    match error {
        ClientError::NoDaemon { .. } => "no daemon answers; looking for it".to_owned(),
        other => chain(&other),
    }
}
