//! A fake llama.cpp router: models with tags that are loaded and unloaded by name, each load with a port of its own, and no
//! news. What a real one does is shown by a real one; this one does what a real one does only seldom.
use super::{Asked, Fake, Fault, Forgetting, Reply, chat, error, held};
use serde_json::{Value, json};
use std::{
    io,
    sync::{Arc, Mutex},
};

/// A fake router. Closed when it is dropped.
#[derive(Debug)]
pub struct FakeRouter {
    fake: Fake,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    rows: Vec<Row>,
    capacity: u32,
    /// Goes with the next load.
    displaced: Option<String>,
    n_loads: u16,
}

#[derive(Debug)]
struct Row {
    model: String,
    tags: Vec<String>,
    /// Of its process, when it is loaded.
    port: Option<u16>,
}

impl FakeRouter {
    /// One that could load each of `catalogue`, and says that `capacity` fit (0: without limit).
    pub async fn open(capacity: u32, catalogue: &[&str]) -> io::Result<Self> {
        let row = |model: &&str| Row { model: (*model).to_owned(), tags: Vec::new(), port: None };
        let rows = catalogue.iter().map(row).collect();
        let state = Arc::new(Mutex::new(State { rows, capacity, ..State::default() }));
        let of_it = Arc::clone(&state);
        let fake = Fake::open(Arc::new(move |asked, forgets| held(&of_it).answer(asked, forgets))).await?;
        Ok(Self { fake, state })
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.fake.port
    }

    /// The next `n` requests to `path` fail so.
    pub fn fail(&self, path: &str, fault: Fault, n: u32) {
        self.fake.fail(path, fault, n);
    }

    /// The same, once `n_well` more went well.
    pub fn fail_after(&self, path: &str, after: (u32, Fault), n: u32) {
        self.fake.fail_after(path, after, n);
    }

    /// What is held goes on.
    pub fn release(&self) {
        self.fake.release();
    }

    /// What it was asked at `path`, in order.
    pub fn asked(&self, path: &str) -> Vec<Asked> {
        self.fake.asked(path)
    }

    /// Who is loaded, by name.
    pub fn residents(&self) -> Vec<String> {
        held(&self.state).rows.iter().filter(|row| row.port.is_some()).map(|row| row.model.clone()).collect()
    }

    /// Somebody else loads `model`.
    pub fn load(&self, model: &str) {
        held(&self.state).load(model);
    }

    /// Somebody unloads `model`.
    pub fn unload(&self, model: &str) {
        held(&self.state).unload(model);
    }

    /// From now on it could load `model` too.
    pub fn add(&self, model: &str) {
        held(&self.state).rows.push(Row { model: model.to_owned(), tags: Vec::new(), port: None });
    }

    /// From now on it has no such model.
    pub fn forget(&self, model: &str) {
        held(&self.state).rows.retain(|row| row.model != model);
    }

    /// From now on `model` has this tag.
    pub fn tag(&self, model: &str, tag: &str) {
        if let Some(row) = held(&self.state).row(model) {
            row.tags.push(tag.to_owned());
        }
    }

    /// `model` goes with the next load of another.
    pub fn displace(&self, model: &str) {
        held(&self.state).displaced = Some(model.to_owned());
    }
}

impl State {
    fn answer(&mut self, asked: &Asked, forgets: Forgetting) -> Reply {
        let reply = match (asked.method.as_str(), asked.path.as_str()) {
            ("GET", "/v1/models") => self.list(),
            ("GET", "/props") => (200, json!({"max_instances": self.capacity, "models_autoload": true})),
            ("POST", "/models/load") => self.by_name(&asked.body, Self::load),
            ("POST", "/models/unload") => self.by_name(&asked.body, Self::unload),
            ("POST", "/v1/chat/completions") => self.by_name(&asked.body, Self::chat),
            _ => error(404, "File Not Found"),
        };
        if forgets == Forgetting::Yes {
            self.rows.iter_mut().for_each(|row| row.port = None);
        }
        reply
    }

    fn list(&self) -> Reply {
        let row = |row: &Row| {
            let value = if row.port.is_some() { "loaded" } else { "unloaded" };
            let args: Vec<String> = row.port.iter().flat_map(|port| ["--port".to_owned(), port.to_string()]).collect();
            json!({"id": row.model, "tags": row.tags, "status": {"value": value, "args": args}})
        };
        (200, json!({"data": self.rows.iter().map(row).collect::<Vec<_>>()}))
    }

    fn by_name(&mut self, body: &Value, perform: impl Fn(&mut Self, &str) -> Reply) -> Reply {
        let model = body.get("model").and_then(Value::as_str).unwrap_or_default();
        if self.row(model).is_none() { error(404, "model is not found") } else { perform(self, model) }
    }

    fn row(&mut self, model: &str) -> Option<&mut Row> {
        self.rows.iter_mut().find(|row| row.model == model)
    }

    fn load(&mut self, model: &str) -> Reply {
        let (n, gone) = (self.n_loads, self.displaced.take());
        self.n_loads += 1;
        match self.row(model) {
            Some(row) if row.port.is_some() => return error(400, "model is already running"),
            Some(row) => row.port = Some(40_000 + n),
            None => {}
        }
        if let Some(gone) = gone {
            self.unload(&gone);
        }
        (200, json!({"success": true}))
    }

    fn unload(&mut self, model: &str) -> Reply {
        let was_there = self.row(model).and_then(|row| row.port.take()).is_some();
        if was_there { (200, json!({"success": true})) } else { error(400, "model is not running") }
    }

    fn chat(&mut self, model: &str) -> Reply {
        let is_there = self.row(model).is_some_and(|row| row.port.is_some());
        if is_there { chat(model) } else { error(400, "model is not loaded") }
    }
}
