//! What the daemon says of itself on its control socket, as far as the command line prints it.
use crate::client::{Client, ClientError};
use motorpool_vocab::{EngineKey, ModelId};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

const PATH: &str = "/api/motorpool/v1/status";

/// The daemon and its pool.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    #[serde(default)]
    pub(crate) listen: Vec<String>,
    /// Whether new work is refused: it is being ended.
    #[serde(default)]
    pub(crate) closing: bool,
    /// When it was so, by the clock of the events.
    #[serde(default)]
    pub(crate) at_ms: u64,
    pub(crate) pool: Pool,
    pub(crate) engines: Vec<Engine>,
    #[serde(default)]
    pub(crate) waiters: Vec<Waiter>,
    #[serde(default)]
    pub(crate) external: Vec<Server>,
}

/// Model servers that somebody else runs.
#[derive(Debug, Deserialize)]
pub(crate) struct Servers {
    pub(crate) targets: Vec<Server>,
}

/// One of them, by the last look at it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Server {
    pub(crate) id: String,
    pub(crate) kind: String,
    /// Whether it is on this machine.
    #[serde(default)]
    pub(crate) local: bool,
    /// Whether it ever answered.
    pub(crate) seen: bool,
    /// Why the last look failed.
    pub(crate) trouble: Option<String>,
    /// How many models it takes; `None`: unknown, 0: without limit.
    pub(crate) capacity: Option<u32>,
    /// A router: whether it heeds that it is to load for no request.
    #[serde(default)]
    pub(crate) autoload: Option<String>,
    pub(crate) residents: Vec<Resident>,
}

/// A model in its memory.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Resident {
    pub(crate) model: String,
    pub(crate) state: String,
    pub(crate) owner: String,
    pub(crate) protection: Option<String>,
    pub(crate) in_use: bool,
    pub(crate) total_bytes: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Pool {
    pub(crate) budget_bytes: Option<u64>,
    pub(crate) committed_bytes: u64,
    /// The cards, then system memory.
    #[serde(default)]
    pub(crate) memory: Vec<Memory>,
}

/// The memory of a device.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Memory {
    /// `None`: system memory.
    pub(crate) device: Option<String>,
    pub(crate) total_bytes: u64,
    pub(crate) committed_bytes: u64,
    /// What others hold, where that is known.
    pub(crate) foreign_bytes: Option<u64>,
}

/// An engine that waits for room.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Waiter {
    pub(crate) key: String,
    pub(crate) waited_ms: u64,
    pub(crate) needs_bytes: u64,
    /// The engines whose room that is.
    pub(crate) waits_for: Vec<String>,
}

/// Where the figure that an engine was planned with comes from.
#[derive(Debug, Deserialize)]
pub(crate) struct Planned {
    /// `declared`, `estimated`, `file-size` or `learned`.
    pub(crate) from: String,
    /// What is counted for it.
    #[serde(default)]
    pub(crate) reserved: Parts,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Parts {
    /// By card.
    #[serde(default)]
    pub(crate) devices: BTreeMap<String, u64>,
}

/// An engine that lives or has a history.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Engine {
    pub(crate) key: String,
    pub(crate) phase: String,
    /// Per-mille of a load.
    pub(crate) progress: Option<u16>,
    pub(crate) pid: Option<u32>,
    /// The number of its child.
    pub(crate) spawn: Option<u64>,
    /// Pieces of replies since it serves: of one that streams, about a token each.
    pub(crate) frames: Option<u64>,
    /// Tokens that it generated in a second for the last request that was counted.
    pub(crate) tokens_per_second: Option<f64>,
    #[serde(default)]
    pub(crate) leases: Vec<Value>,
    #[serde(default)]
    pub(crate) queue: u32,
    pub(crate) slots: Option<u32>,
    #[serde(default)]
    pub(crate) reserved_bytes: u64,
    /// What was planned before it ran.
    #[serde(default)]
    pub(crate) planned_bytes: u64,
    /// The most that was seen of it.
    pub(crate) measured_bytes: Option<u64>,
    pub(crate) memory: Option<Planned>,
    /// When it stops unless a request comes.
    pub(crate) unload_in_ms: Option<u64>,
    pub(crate) last_exit: Option<LastExit>,
    pub(crate) trouble: Option<Trouble>,
    /// Whether an operator has drained it.
    #[serde(default)]
    pub(crate) drained: bool,
}

/// What failures of an engine mean for its next start.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Trouble {
    pub(crate) state: String,
    pub(crate) class: String,
    /// Until time alone ends it.
    pub(crate) ends_in_ms: Option<u64>,
    pub(crate) message: String,
}

impl Trouble {
    /// Its state, and until when.
    pub(crate) fn state(&self) -> String {
        match self.ends_in_ms {
            Some(ms) => format!("{} {} s", self.state, ms.div_ceil(1000)),
            None => self.state.clone(),
        }
    }

    /// All of it about the engine `key`.
    pub(crate) fn sentence(&self, key: &str) -> String {
        format!("{key} is {}: {} ({})", self.state(), self.message, self.class)
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LastExit {
    pub(crate) reason: String,
    pub(crate) class: Option<String>,
}

impl Status {
    pub(crate) async fn ask(client: &Client) -> Result<(Self, Value), ClientError> {
        let whole: Value = client.get(PATH).await?;
        Ok((Self::deserialize(&whole)?, whole))
    }

    /// The key of a live engine of this model, else of any it had.
    pub(crate) fn key_of(&self, model: &ModelId) -> Option<EngineKey> {
        let of_it = || self.engines.iter().filter(|engine| engine.is_of(model.as_str()));
        let engine = of_it().find(|engine| engine.lives()).or_else(|| of_it().next())?;
        engine.key.parse().ok()
    }
}

impl Engine {
    /// Requests that it serves now.
    pub(crate) fn n_served(&self) -> usize {
        self.leases.len()
    }

    /// Whether it is an engine of the model with this id.
    pub(crate) fn is_of(&self, model: &str) -> bool {
        self.key.parse::<EngineKey>().is_ok_and(|key| key.model().as_str() == model)
    }

    /// Whether a child of it may exist or is about to.
    pub(crate) fn lives(&self) -> bool {
        self.phase != "idle"
    }
}
