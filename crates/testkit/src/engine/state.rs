//! What a slot holds, written to a file and read back: only its size and its troubles are like the real one's.
use crate::{
    answer::{self, Reply},
    engine::Engine,
};
use http::StatusCode;
use serde_json::{Value, json};
use std::fs;

/// The number of the slot in a path that asks for this.
pub(crate) fn slot(path: &str) -> Option<usize> {
    path.strip_prefix("/slots/")?.parse().ok()
}

/// `POST /slots/:id?action=save|restore`.
pub(crate) async fn answer(engine: &Engine, slot: usize, query: &str, body: &[u8]) -> Reply {
    let file = serde_json::from_slice::<Value>(body).ok().and_then(|body| Some(body["filename"].as_str()?.to_owned()));
    let (Some(folder), Some(file)) = (&engine.arguments.slot_folder, file) else {
        return answer::error(StatusCode::NOT_IMPLEMENTED, "not_supported_error", "start it with --slot-save-path");
    };
    let wrong = |why: &str| answer::error(StatusCode::BAD_REQUEST, "invalid_request_error", why);
    if slot >= engine.n_slots() || file.contains('/') {
        return wrong("Invalid slot ID or filename");
    }
    let (path, trouble) = (folder.join(file), &engine.behaviour.state);
    match query {
        "action=save" => {
            let bytes = vec![b's'; usize::try_from(trouble.bytes).expect("a small state")];
            if trouble.write_hangs.is_on() {
                drop(fs::write(&path, &bytes[..bytes.len() / 2]));
                return std::future::pending().await;
            }
            let failed = trouble.write_fails.is_on() || fs::write(&path, &bytes).is_err();
            if failed { wrong("Failed to save slot") } else { done(engine, slot, "save") }
        }
        "action=restore" => {
            if trouble.read_dies.is_on() {
                std::process::abort();
            }
            let whole = fs::metadata(&path).is_ok_and(|file| file.len() == trouble.bytes);
            if trouble.read_fails.is_on() || !whole {
                return wrong("Unable to restore slot, no available space in KV cache or invalid slot save file");
            }
            done(engine, slot, "restore")
        }
        _ => wrong("Invalid action"),
    }
}

fn done(engine: &Engine, slot: usize, what: &'static str) -> Reply {
    engine.count_state(what);
    answer::json(StatusCode::OK, &json!({"id_slot": slot}))
}
