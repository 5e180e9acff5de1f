//! A fake Ollama: models that come when they are asked for, and stay for as long as the last request said.
use super::{Asked, Fake, Fault, Forgetting, Reply, chat, error, held};
use serde_json::{Value, json};
use std::{
    io,
    sync::{Arc, Mutex},
};

/// Seconds that a model stays when a request does not say.
const DEFAULT_KEEP_ALIVE: i64 = 300;

/// Tokens of context that a model is loaded with when a request does not say.
const DEFAULT_CONTEXT: u64 = 4096;

/// A fake Ollama. Closed when it is dropped.
#[derive(Debug)]
pub struct FakeOllama {
    fake: Fake,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    catalogue: Vec<String>,
    /// Those that only embed.
    embedding: Vec<String>,
    residents: Vec<Resident>,
    /// Of 100 bytes of a model, so many lie in graphics memory.
    vram: u64,
    /// How often a model was loaded anew because a request wanted it otherwise.
    n_reloads: usize,
}

#[derive(Debug)]
struct Resident {
    model: String,
    keep_alive: i64,
    /// What it is loaded with: tokens of context, and layers on graphics devices.
    loaded_with: (u64, i64),
}

impl FakeOllama {
    /// One that could load each of `catalogue`.
    pub async fn open(catalogue: &[&str]) -> io::Result<Self> {
        let catalogue = catalogue.iter().map(|model| full(model)).collect();
        let state = Arc::new(Mutex::new(State { catalogue, vram: 100, ..State::default() }));
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

    /// What is in its memory, and for how many seconds after its last use.
    pub fn residents(&self) -> Vec<(String, i64)> {
        held(&self.state).residents.iter().map(|one| (one.model.clone(), one.keep_alive)).collect()
    }

    /// Somebody else's request loads `model`.
    pub fn load(&self, model: &str) {
        self.load_with(model, DEFAULT_CONTEXT);
    }

    /// Somebody else's request loads `model` with so many tokens of context.
    pub fn load_with(&self, model: &str, context: u64) {
        let body = json!({"options": {"num_ctx": context}});
        held(&self.state).keep((&full(model), DEFAULT_KEEP_ALIVE), &body);
    }

    /// How often a model was loaded anew because a request wanted it otherwise.
    pub fn n_reloads(&self) -> usize {
        held(&self.state).n_reloads
    }

    /// Somebody unloads `model`.
    pub fn unload(&self, model: &str) {
        held(&self.state).residents.retain(|one| one.model != full(model));
    }

    /// From now on `model` is one for embeddings, and generates nothing.
    pub fn only_embeds(&self, model: &str) {
        held(&self.state).embedding.push(full(model));
    }

    /// From now on only so many of a model's 100 bytes are in graphics memory.
    pub fn spill(&self, vram: u64) {
        held(&self.state).vram = vram;
    }
}

/// A name without a tag is the one with `:latest`.
fn full(model: &str) -> String {
    if model.contains(':') { model.to_owned() } else { format!("{model}:latest") }
}

impl State {
    fn answer(&mut self, asked: &Asked, forgets: Forgetting) -> Reply {
        let reply = match (asked.method.as_str(), asked.path.as_str()) {
            ("GET", "/api/ps") => self.ps(),
            ("GET", "/api/tags") => {
                let row = |model: &String| json!({"name": model, "model": model});
                (200, json!({"models": self.catalogue.iter().map(row).collect::<Vec<_>>()}))
            }
            ("POST", "/api/generate") => self.generate(&asked.body),
            ("POST", "/api/embed") => self.embed(&asked.body),
            ("POST", "/v1/chat/completions" | "/api/chat") => self.chat(&asked.body),
            _ => error(404, "404 page not found"),
        };
        if forgets == Forgetting::Yes {
            self.residents.clear();
        }
        reply
    }

    fn ps(&self) -> Reply {
        let row = |one: &Resident| {
            let digest = format!("digest of {}", one.model);
            json!({
                "name": one.model, "model": one.model, "size": 100, "size_vram": self.vram, "digest": digest,
                "context_length": one.loaded_with.0,
            })
        };
        (200, json!({"models": self.residents.iter().map(row).collect::<Vec<_>>()}))
    }

    fn known(&self, body: &Value) -> Option<String> {
        let model = full(body.get("model")?.as_str()?);
        self.catalogue.contains(&model).then_some(model)
    }

    fn generate(&mut self, body: &Value) -> Reply {
        let Some(model) = self.known(body) else { return error(404, "model not found") };
        let keep_alive = body.get("keep_alive").and_then(Value::as_i64).unwrap_or(DEFAULT_KEEP_ALIVE);
        if keep_alive == 0 {
            self.residents.retain(|one| one.model != model);
            return (200, json!({"model": model, "response": "", "done": true, "done_reason": "unload"}));
        }
        // As Ollama does: who only embeds may be unloaded so, and not loaded.
        if self.embedding.contains(&model) {
            return (400, json!({"error": format!("\"{model}\" does not support generate")}));
        }
        self.keep((&model, keep_alive), body);
        (200, json!({"model": model, "response": "", "done": true, "done_reason": "load"}))
    }

    fn embed(&mut self, body: &Value) -> Reply {
        let Some(model) = self.known(body) else { return error(404, "model not found") };
        if body.get("input").is_none() {
            return error(400, "invalid input type");
        }
        let keep_alive = body.get("keep_alive").and_then(Value::as_i64).unwrap_or(DEFAULT_KEEP_ALIVE);
        self.keep((&model, keep_alive), body);
        (200, json!({"model": model, "embeddings": []}))
    }

    fn chat(&mut self, body: &Value) -> Reply {
        let Some(model) = self.known(body) else { return error(404, "model not found") };
        self.keep((&model, DEFAULT_KEEP_ALIVE), body);
        chat(&model)
    }

    fn keep(&mut self, (model, keep_alive): (&str, i64), body: &Value) {
        let option = |name: &str| body.get("options").and_then(|options| options.get(name));
        let context = option("num_ctx").and_then(Value::as_u64).unwrap_or(DEFAULT_CONTEXT);
        let loaded_with = (context, option("num_gpu").and_then(Value::as_i64).unwrap_or(-1));
        match self.residents.iter_mut().find(|one| one.model == model) {
            Some(one) => {
                self.n_reloads += usize::from(one.loaded_with != loaded_with);
                (one.keep_alive, one.loaded_with) = (keep_alive, loaded_with);
            }
            None => self.residents.push(Resident { model: model.to_owned(), keep_alive, loaded_with }),
        }
    }
}
