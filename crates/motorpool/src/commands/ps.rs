//! `motorpool ps` and `motorpool models`: the engines of the pool, and what it can serve.
use super::residency;
use crate::{
    client::{Client, ClientError, escaped},
    exit::{Exit, Failure},
    out::{self, Out},
    status::{Engine, Status},
};
use motorpool_vocab::{Bytes, EngineKey, ModelId};
use serde_json::Value;

pub(super) async fn perform(client: &Client, out: Out) -> Result<(), Failure> {
    let (status, whole) = Status::ask(client).await?;
    out.data(&whole, || for_people(&status))
}

/// The pool as a table, and one line about its memory.
pub(super) fn for_people(status: &Status) -> String {
    let bound = status.pool.budget_bytes.map_or_else(|| "no budget".to_owned(), |n| format!("of {}", Bytes::new(n)));
    let memory = format!("{} reserved {bound}", Bytes::new(status.pool.committed_bytes));
    let waiting = match status.waiters.len() {
        0 => String::new(),
        n => format!(", {n} waiting for room"),
    };
    let head = [
        "ENGINE",
        "PHASE",
        "LEASES",
        "QUEUE",
        "RESERVED",
        "PLANNED",
        "MEASURED",
        "DEVICE",
        "TOK/S",
        "UNLOAD IN",
        "PID",
        "LAST EXIT",
    ];
    let table = match status.engines.as_slice() {
        [] => "no engine has been started\n".to_owned(),
        engines => out::table(&head, engines.iter().map(row).collect()),
    };
    let doors = if status.closing {
        let n: usize = status.engines.iter().map(Engine::n_served).sum();
        format!("stopping: {n} running request{} left", if n == 1 { "" } else { "s" })
    } else {
        format!("serving on {}", status.listen.join(", "))
    };
    let servers = match status.external.as_slice() {
        [] => String::new(),
        servers => format!("\n{}", residency::status_for_people(servers)),
    };
    format!("{table}{memory}{waiting}; {doors}\n{servers}")
}

fn row(engine: &Engine) -> Vec<String> {
    let exit = engine.last_exit.as_ref().map_or_else(String::new, |exit| match &exit.class {
        Some(class) => format!("{} ({class})", exit.reason),
        None => exit.reason.clone(),
    });
    vec![
        engine.key.clone(),
        phase(engine),
        leases(engine),
        engine.queue.to_string(),
        Bytes::new(engine.reserved_bytes).to_string(),
        planned(engine),
        measured(engine),
        devices(engine),
        engine.tokens_per_second.map_or_else(String::new, pace),
        engine.unload_in_ms.map_or_else(String::new, in_short),
        engine.pid.map_or_else(String::new, |pid| pid.to_string()),
        exit,
    ]
}

/// How many it serves, of how many it can.
pub(super) fn leases(engine: &Engine) -> String {
    match engine.slots {
        Some(slots) => format!("{} of {slots}", engine.leases.len()),
        None => engine.leases.len().to_string(),
    }
}

/// What was planned for it before it ran, and where that figure comes from: declared, estimated, learned.
pub(super) fn planned(engine: &Engine) -> String {
    let from = engine.memory.as_ref().map_or_else(String::new, |memory| format!(" {}", memory.from));
    if engine.planned_bytes == 0 { String::new() } else { format!("{}{from}", Bytes::new(engine.planned_bytes)) }
}

/// The most that was seen of it.
pub(super) fn measured(engine: &Engine) -> String {
    engine.measured_bytes.map_or_else(String::new, |bytes| Bytes::new(bytes).to_string())
}

/// The cards that it lies on; where it has none, system memory.
fn devices(engine: &Engine) -> String {
    let cards: Vec<&str> =
        engine.memory.iter().flat_map(|memory| memory.reserved.devices.keys()).map(String::as_str).collect();
    match cards.as_slice() {
        [] if engine.reserved_bytes == 0 => String::new(),
        [] => "RAM".to_owned(),
        cards => cards.join(", "),
    }
}

/// Tokens in a second.
pub(super) fn pace(rate: f64) -> String {
    if rate < 100.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

/// What it is doing, as people read it.
pub(super) fn phase(engine: &Engine) -> String {
    match engine.progress {
        Some(progress) if engine.phase == "starting" => format!("starting {} %", progress / 10),
        _ if let Some(trouble) = engine.trouble.as_ref().filter(|_| engine.phase == "idle") => trouble.state(),
        _ if engine.drained && engine.phase == "idle" => "drained".to_owned(),
        _ if engine.drained => format!("{} (drained)", engine.phase),
        _ => engine.phase.clone(),
    }
}

/// The next whole minute, or seconds below two of them.
pub(super) fn in_short(ms: u64) -> String {
    let seconds = ms.div_ceil(1000);
    if seconds < 120 { format!("{seconds} s") } else { format!("{} min", seconds.div_ceil(60)) }
}

/// What can be served, as the daemon lists it.
pub(super) async fn models(client: &Client, out: Out) -> Result<(), Failure> {
    let whole: Value = client.get("/api/motorpool/v1/models").await?;
    out.data(&whole, || {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = |value: &Value| {
            value.as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
        };
        let cells = |model: &Value| {
            let context = model["context"].as_u64().map_or_else(|| "-".to_owned(), |n| n.to_string());
            vec![
                text(&model["id"]),
                text(&model["state"]),
                context,
                list(&model["capabilities"]),
                list(&model["aliases"]),
            ]
        };
        let rows = whole["models"].as_array().into_iter().flatten().map(cells).collect();
        out::table(&["MODEL", "STATE", "CONTEXT", "FOR", "ALIASES"], rows)
    })
}

/// The engine that `name` means: a key, or the id or an alias of its model.
pub(super) async fn key_of(client: &Client, name: &str) -> Result<EngineKey, Failure> {
    if let Ok(key) = name.parse() {
        return Ok(key);
    }
    let model: Value = client.get(&format!("/api/motorpool/v1/models/{}", escaped(name))).await?;
    let id = model["id"].as_str().and_then(|id| ModelId::new(id).ok());
    let (status, _) = Status::ask(client).await?;
    id.and_then(|id| status.key_of(&id)).ok_or_else(|| {
        Failure::new(
            Exit::NotFound,
            format_args!("no engine was started for `{name}`"),
            "run `motorpool ps` for what there is",
        )
    })
}

/// The first engine that a running daemon has, or that somebody waits for, and that `fits`.
pub(super) async fn in_use(client: &Client, fits: impl Fn(&EngineKey) -> bool) -> Result<Option<EngineKey>, Failure> {
    let status = match Status::ask(client).await {
        Err(ClientError::NoDaemon { .. }) => return Ok(None),
        other => other?.0,
    };
    let waiting = status.waiters.iter().filter_map(|waiter| waiter.key.parse().ok());
    let live = status.engines.iter().filter(|engine| engine.lives()).filter_map(|engine| engine.key.parse().ok());
    Ok(live.chain(waiting).find(fits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[test]
    fn a_row_tells_what_was_planned_by_whom_what_was_seen_where_and_how_fast_it_is() {
        const GIB: u64 = 1 << 30;
        let engines = json!([
            {"key": "llama-server:a:0", "phase": "ready", "leases": [{}], "slots": 4, "queue": 2,
             "reservedBytes": 9 * GIB, "plannedBytes": 8 * GIB, "measuredBytes": 9 * GIB, "tokensPerSecond": 41.72,
             "memory": {"from": "learned", "reserved": {"devices": {"GPU-1": 8 * GIB, "GPU-2": GIB}}},
             "unloadInMs": 540_000},
            {"key": "llama-server:b:0", "phase": "ready", "slots": 1, "reservedBytes": GIB, "plannedBytes": GIB,
             "tokensPerSecond": 512.4, "memory": {"from": "declared", "reserved": {"devices": {}}}},
            {"key": "llama-server:c:0", "phase": "idle"},
        ]);
        let whole = json!({"pool": {"committedBytes": 10 * GIB}, "engines": engines});
        insta::assert_snapshot!(for_people(&Status::deserialize(&whole).expect("a status")));
    }
}
