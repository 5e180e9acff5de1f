//! [`Status`]: what a daemon says of itself on its control socket, as far as tests look at it.
use serde::Deserialize;
use serde_json::Value;

/// The daemon and its pool.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Whether new work is refused.
    #[serde(default)]
    pub closing: bool,
    /// The budget and what is taken of it.
    pub pool: Pool,
    /// Engines that live or have a history.
    pub engines: Vec<Engine>,
    /// Builds that wait for room.
    #[serde(default)]
    pub waiters: Vec<Value>,
}

/// The budget and what is taken of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    /// In bytes.
    pub budget_bytes: Option<u64>,
    /// In bytes.
    pub committed_bytes: u64,
    /// The cards, then system memory.
    #[serde(default)]
    pub memory: Vec<Memory>,
}

/// One pool of memory.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// The card; none is system memory.
    pub device: Option<String>,
    /// All of it.
    pub total_bytes: u64,
    /// What may be reserved at best.
    pub share_bytes: u64,
    /// What may be reserved now.
    pub share_now_bytes: u64,
    /// What is reserved.
    pub committed_bytes: u64,
    /// What others use, when that was read.
    pub foreign_bytes: Option<u64>,
}

/// One engine.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Engine {
    /// `llama-server:a:0`.
    pub key: String,
    /// `idle`, `starting`, `ready`, …
    pub phase: String,
    /// Of its live child.
    pub pid: Option<u32>,
    /// Requests that it serves.
    #[serde(default)]
    pub leases: Vec<Value>,
    /// Requests that wait for it.
    #[serde(default)]
    pub queue: u32,
    /// How far its load is, in thousandths.
    pub progress: Option<u16>,
    /// Requests that it can serve at a time.
    pub slots: Option<u32>,
    /// What is reserved for it, in bytes.
    #[serde(default)]
    pub reserved_bytes: u64,
    /// How its last child ended.
    pub last_exit: Option<Value>,
}

impl Status {
    /// The card that is called so.
    ///
    /// # Panics
    /// When there is none.
    pub fn card(&self, id: &str) -> &Memory {
        let found = self.pool.memory.iter().find(|memory| memory.device.as_deref() == Some(id));
        found.unwrap_or_else(|| panic!("no card {id} in {:#?}", self.pool))
    }

    /// The first replica of a model.
    pub fn engine(&self, model: &str) -> Option<&Engine> {
        self.engines.iter().find(|engine| engine.key.split(':').nth(1) == Some(model))
    }
}
