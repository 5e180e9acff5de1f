//! A fake LM Studio: keys and instances, three catalogues, explicit loads, and loads by the request itself.
use super::{Asked, Fake, Fault, Forgetting, Reply, chat, error, held};
use serde_json::{Value, json};
use std::{
    io,
    sync::{Arc, Mutex},
};

/// Tokens of context that each model has at most.
const MAX_CONTEXT: u64 = 262_144;

/// The newest catalogue that a server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// `/v1/models` only.
    OpenAi,
    /// `/api/v0/models` too.
    V0,
    /// `/api/v1/models` too.
    V1,
}

/// A fake LM Studio. Closed when it is dropped.
#[derive(Debug)]
pub struct FakeLmStudio {
    fake: Fake,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    tier: Tier,
    catalogue: Vec<String>,
    instances: Vec<Instance>,
    room: usize,
    rejection: (u16, String),
    key: Option<String>,
    names: bool,
}

#[derive(Debug)]
struct Instance {
    id: String,
    key: String,
    context: u64,
}

impl FakeLmStudio {
    /// One that could load each of `catalogue`, as many as one likes.
    pub async fn open(tier: Tier, catalogue: &[&str]) -> io::Result<Self> {
        let state = Arc::new(Mutex::new(State {
            tier,
            catalogue: catalogue.iter().map(|&key| key.to_owned()).collect(),
            instances: Vec::new(),
            room: usize::MAX,
            rejection: (400, "insufficient system resources".to_owned()),
            key: None,
            names: true,
        }));
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

    /// What is held goes on.
    pub fn release(&self) {
        self.fake.release();
    }

    /// What it was asked at `path`, in order.
    pub fn asked(&self, path: &str) -> Vec<Asked> {
        self.fake.asked(path)
    }

    /// The instances in its memory, and the context of each.
    pub fn residents(&self) -> Vec<(String, u64)> {
        held(&self.state).instances.iter().map(|one| (one.id.clone(), one.context)).collect()
    }

    /// Somebody else loads `key`.
    pub fn load(&self, key: &str) {
        held(&self.state).make(key, 4096);
    }

    /// Somebody unloads `instance`.
    pub fn unload(&self, instance: &str) {
        held(&self.state).instances.retain(|one| one.id != instance);
    }

    /// From now on `key` is in the catalogue.
    pub fn add(&self, key: &str) {
        held(&self.state).catalogue.push(key.to_owned());
    }

    /// From now on `key` is not in the catalogue.
    pub fn forget(&self, key: &str) {
        held(&self.state).catalogue.retain(|known| known != key);
    }

    /// From now on `n` instances fit, and one more is refused so.
    pub fn fits(&self, n: usize, (status, text): (u16, &str)) {
        let mut state = held(&self.state);
        (state.room, state.rejection) = (n, (status, text.to_owned()));
    }

    /// From now on only who has this key is served.
    pub fn lock(&self, key: &str) {
        held(&self.state).key = Some(key.to_owned());
    }

    /// From now on a load is answered without the name of the instance.
    pub fn be_silent(&self) {
        held(&self.state).names = false;
    }
}

impl State {
    fn answer(&mut self, asked: &Asked, forgets: Forgetting) -> Reply {
        let given = asked.headers.get("authorization").and_then(|value| value.to_str().ok());
        if self.key.as_ref().is_some_and(|key| given != Some(format!("Bearer {key}").as_str())) {
            return error(401, "an API token is needed");
        }
        let reply = match (asked.method.as_str(), asked.path.as_str()) {
            ("GET", "/api/v1/models") if self.tier >= Tier::V1 => self.newest(),
            ("GET", "/api/v0/models") if self.tier >= Tier::V0 => self.older(),
            ("GET", "/v1/models") => {
                let row = |key: &String| json!({"id": key, "object": "model"});
                (200, json!({"data": self.catalogue.iter().map(row).collect::<Vec<_>>()}))
            }
            ("POST", "/api/v1/models/load") if self.tier >= Tier::V1 => self.on_load(&asked.body),
            ("POST", "/api/v1/models/unload") if self.tier >= Tier::V1 => self.on_unload(&asked.body),
            ("POST", "/v1/chat/completions") => self.on_chat(&asked.body),
            // LM Studio answers what it does not know with 200 and an error.
            _ => (200, json!({"error": format!("Unexpected endpoint or method. ({} {})", asked.method, asked.path)})),
        };
        if forgets == Forgetting::Yes {
            self.instances.clear();
        }
        reply
    }

    fn newest(&self) -> Reply {
        let row = |key: &String| {
            let own = self.instances.iter().filter(|one| one.key == *key);
            let own: Vec<Value> =
                own.map(|one| json!({"id": one.id, "config": {"context_length": one.context}})).collect();
            json!({"type": "llm", "key": key, "loaded_instances": own, "max_context_length": MAX_CONTEXT})
        };
        (200, json!({"models": self.catalogue.iter().map(row).collect::<Vec<_>>()}))
    }

    fn older(&self) -> Reply {
        let row = |key: &String| {
            let is_loaded = self.instances.iter().any(|one| one.key == *key);
            let state = if is_loaded { "loaded" } else { "not-loaded" };
            json!({"id": key, "object": "model", "state": state, "max_context_length": MAX_CONTEXT})
        };
        (200, json!({"data": self.catalogue.iter().map(row).collect::<Vec<_>>()}))
    }

    fn on_load(&mut self, body: &Value) -> Reply {
        let Some(key) = self.known(body) else { return error(404, "no such model") };
        if self.instances.len() >= self.room {
            return error(self.rejection.0, &self.rejection.1);
        }
        let context = body.get("context_length").and_then(Value::as_u64).unwrap_or(4096);
        let id = self.make(&key, context);
        let mut reply = json!({"type": "llm", "status": "loaded", "load_config": {"context_length": context}});
        if self.names {
            reply["instance_id"] = id.into();
        }
        (200, reply)
    }

    fn on_unload(&mut self, body: &Value) -> Reply {
        let Some(id) = body.get("instance_id").and_then(Value::as_str) else { return error(400, "no instance_id") };
        let before = self.instances.len();
        self.instances.retain(|one| one.id != id);
        if self.instances.len() == before { error(404, "no such instance") } else { (200, json!({"instance_id": id})) }
    }

    /// An instance answers; a bare key loads a copy, beside any that is there.
    fn on_chat(&mut self, body: &Value) -> Reply {
        let asked = body.get("model").and_then(Value::as_str).unwrap_or_default();
        if self.instances.iter().any(|one| one.id == asked) {
            return chat(asked);
        }
        let Some(key) = self.known(body) else { return error(404, "no such model") };
        if self.instances.len() >= self.room {
            return error(self.rejection.0, &self.rejection.1);
        }
        chat(&self.make(&key, 4096))
    }

    fn known(&self, body: &Value) -> Option<String> {
        let key = body.get("model")?.as_str()?;
        self.catalogue.iter().find(|known| *known == key).cloned()
    }

    fn make(&mut self, key: &str, context: u64) -> String {
        let is_free = |id: &String| self.instances.iter().all(|one| one.id != *id);
        let mut names = std::iter::once(key.to_owned()).chain((2..).map(|n: u32| format!("{key}:{n}")));
        let id = names.find(is_free).unwrap_or_default();
        self.instances.push(Instance { id: id.clone(), key: key.to_owned(), context });
        id
    }
}
