//! What the daemon says of itself on its control socket, as far as the command line prints it.
use crate::client::{Client, ClientError};
use motorpool_vocab::{EngineKey, ModelId};
use serde::Deserialize;
use serde_json::Value;

const PATH: &str = "/api/motorpool/v1/status";

/// The daemon and its pool.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    #[serde(default)]
    pub(crate) listen: Vec<String>,
    pub(crate) pool: Pool,
    pub(crate) engines: Vec<Engine>,
    #[serde(default)]
    pub(crate) waiters: Vec<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Pool {
    pub(crate) budget_bytes: Option<u64>,
    pub(crate) committed_bytes: u64,
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
    #[serde(default)]
    pub(crate) leases: Vec<Value>,
    #[serde(default)]
    pub(crate) queue: u32,
    pub(crate) slots: Option<u32>,
    #[serde(default)]
    pub(crate) reserved_bytes: u64,
    pub(crate) last_exit: Option<LastExit>,
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
        let keys = |lives: bool| {
            let engines = self.engines.iter().filter(move |engine| !lives || engine.lives());
            let mut keys = engines.filter_map(|engine| engine.key.parse::<EngineKey>().ok());
            keys.find(|key| key.model() == model)
        };
        keys(true).or_else(|| keys(false))
    }
}

impl Engine {
    /// Whether a child of it may exist or is about to.
    pub(crate) fn lives(&self) -> bool {
        self.phase != "idle"
    }
}
