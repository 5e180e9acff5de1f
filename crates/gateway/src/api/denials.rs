//! The last refused builds with their proof: what was asked, what it would have come to, and what it met.
use super::{Shared, usage::stamp};
use axum::{Json, extract::State};
use motorpool_pool::Denial;
use motorpool_supervisor::Denied;
use motorpool_vocab::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Serialize)]
pub(super) struct Denials {
    /// The newest first.
    denials: Vec<Row>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    at: String,
    /// `capacity-denied`, or `context-denied` when a shorter context would fit.
    event: &'static str,
    key: String,
    model: String,
    /// As the log says it.
    reason: String,
    /// For people.
    message: String,
    /// What would have helped.
    help: String,
    requested: Requested,
    /// Everything that was reserved then.
    committed_bytes: u64,
    /// What would have been committed, or was required.
    would_commit_bytes: u64,
    /// The bound it meets, or what was free.
    bound_bytes: u64,
    /// What was passed: `budget`, `co-residency`, `device`, `system-memory` or `measured`.
    which: &'static str,
    context: Option<Context>,
    /// What holds the memory and cannot go, the largest first.
    holders: Vec<Holder>,
    /// Other programs on the card that it meets the bound of.
    tenants: Vec<Tenant>,
    /// Model servers of others and what they hold of system memory, when it meets the bound of that.
    servers: Vec<Tenant>,
    /// Cards that are lost.
    lost: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Requested {
    total_bytes: u64,
    devices: BTreeMap<String, u64>,
    private_bytes: u64,
    files_bytes: u64,
}

#[derive(Serialize)]
struct Context {
    /// Tokens per slot that were asked.
    asked: u32,
    /// The most that would fit.
    fits: u32,
}

#[derive(Serialize)]
struct Holder {
    key: String,
    bytes: u64,
}

#[derive(Serialize)]
struct Tenant {
    name: String,
    bytes: u64,
}

pub(super) async fn list(State(context): Shared) -> Json<Denials> {
    Json(Denials { denials: context.handle.denials().iter().map(Row::of).collect() })
}

impl Row {
    fn of(Denied { at, denial }: &Denied) -> Self {
        let Denial { key, requested, context, committed, holders, tenants, servers, lost, .. } = denial;
        let named = |(name, bytes): &(String, Bytes)| Tenant { name: name.clone(), bytes: bytes.get() };
        Self {
            at: stamp(*at),
            event: if context.is_some() { "context-denied" } else { "capacity-denied" },
            key: key.to_string(),
            model: key.model().to_string(),
            reason: denial.to_string(),
            message: denial.prose(),
            help: denial.remedy(),
            requested: Requested {
                total_bytes: requested.total().get(),
                devices: requested.device.iter().map(|(id, bytes)| (id.to_string(), bytes.get())).collect(),
                private_bytes: requested.ram_private.get(),
                files_bytes: Bytes::sum(requested.ram_files.iter().map(|(_, bytes)| *bytes)).get(),
            },
            committed_bytes: committed.get(),
            would_commit_bytes: denial.would_commit().get(),
            bound_bytes: denial.bound().get(),
            which: denial.which(),
            context: context.map(|context| Context { asked: context.asked, fits: context.fits }),
            holders: holders.iter().map(|(key, bytes)| Holder { key: key.to_string(), bytes: bytes.get() }).collect(),
            tenants: tenants.iter().map(named).collect(),
            servers: servers.iter().map(named).collect(),
            lost: lost.iter().map(ToString::to_string).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_pool::{Excess, Host, Proof, Which};
    use motorpool_vocab::{Claim, DeviceId, EngineKey};
    use serde_json::json;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn a_denial_is_shown_with_its_arithmetic() {
        let key: EngineKey = "llama-server:a:0".parse().expect("a key");
        let excess = Excess { would_commit: Bytes::gib(4), bound: Bytes::gib(2), which: Which::Total };
        let claim =
            Claim { device: [(DeviceId("GPU-1".into()), Bytes::gib(2))].into(), ..Claim::private(Bytes::gib(1)) };
        let denial = Denial::new(key.clone(), Proof { claim, excess }, &Host::default().bounds())
            .with_holders(vec![(key, Bytes::gib(1))])
            .beside(Bytes::gib(1));
        let denied = Denied { at: UNIX_EPOCH + Duration::from_mins(1), denial };
        let shown = serde_json::to_value(Row::of(&denied)).expect("JSON");
        let gib = |n: u64| n << 30;
        assert_eq!(shown["at"], "1970-01-01T00:01:00Z");
        assert_eq!((&shown["event"], &shown["which"]), (&json!("capacity-denied"), &json!("budget")));
        let (committed, would) = (&shown["committedBytes"], &shown["wouldCommitBytes"]);
        assert_eq!((committed, would, &shown["boundBytes"]), (&json!(gib(1)), &json!(gib(4)), &json!(gib(2))));
        let requested = json!({
            "totalBytes": gib(3), "devices": {"GPU-1": gib(2)}, "privateBytes": gib(1), "filesBytes": 0,
        });
        assert_eq!((&shown["requested"], &shown["context"]), (&requested, &json!(null)));
        assert_eq!(shown["holders"], json!([{"key": "llama-server:a:0", "bytes": gib(1)}]));
        assert_eq!(shown["reason"], "budget exhausted: would commit 4294967296 against 2147483648");
    }
}
