//! Loading: the model file's first bytes, memory, steps with their gates and reports.
use crate::{engine::Engine, graphics::Graphics, log, trouble};
use motorpool_testkit::{ClaimTime, GraphicsClaim, Moment, await_file};
use serde_json::json;
use std::{io::Read as _, path::PathBuf, time::Duration};

/// Goes through all steps. `Err` says why the model cannot be loaded, after llama-server's own line.
pub(crate) async fn load(engine: &Engine) -> Result<(), &'static str> {
    log::line('I', &format!("load_model: loading model '{}'", engine.arguments.model.display()));
    engine.behaviour.load.log.iter().for_each(|line| log::plain(line));
    check_model(engine)?;
    let load = &engine.behaviour.load;
    let n_steps = load.steps.max(u32::try_from(load.gates.len()).expect("a few gates")).max(1);
    claim(engine, (0, n_steps))?;
    report(engine, 0.0);
    for step in 0..n_steps {
        if step == n_steps / 2 {
            trouble::pass(engine, Moment::Loading);
        }
        trouble::take_memory(engine.behaviour.memory / u64::from(n_steps));
        tokio::time::sleep(Duration::from_millis(load.ms / u64::from(n_steps))).await;
        if let Some(gate) = load.gates.get(usize::try_from(step).expect("a few steps")) {
            wait_for(gate.clone()).await;
        }
        claim(engine, (step + 1, n_steps))?;
        report(engine, f64::from(step + 1) / f64::from(n_steps));
    }
    log::line('I', "load_model: model loaded");
    Ok(())
}

/// Claims what it holds of cards after so many steps of loading.
fn claim(engine: &Engine, (step, n_steps): (u32, u32)) -> Result<(), &'static str> {
    let held = |claim: &GraphicsClaim| {
        let bytes = match claim.when {
            ClaimTime::Start => claim.bytes,
            ClaimTime::Gradually => claim.bytes / u64::from(n_steps) * u64::from(step),
            ClaimTime::Ready if step == n_steps => claim.bytes,
            ClaimTime::Ready => 0,
        };
        GraphicsClaim { bytes, ..*claim }
    };
    let held: Vec<GraphicsClaim> = engine.behaviour.graphics.iter().map(held).collect();
    if held.is_empty() {
        return Ok(());
    }
    let claimed = Graphics::of_the_environment().claim(engine.arguments.devices.as_deref(), &held);
    claimed.map_err(|_| "no claim")
}

/// Waits on a thread of its own: the loop goes on answering.
pub(crate) async fn wait_for(file: PathBuf) {
    let waited = tokio::task::spawn_blocking(move || await_file(&file)).await.expect("no panic");
    if let Err(e) = waited {
        log::plain(&format!("error: gate: {e}"));
        std::future::pending::<()>().await;
    }
}

fn report(engine: &Engine, value: f64) {
    if engine.behaviour.load.progress {
        let payload = json!({"stages": ["text_model"], "current": "text_model", "value": value});
        engine.protocol.report("loading", &payload);
    }
}

fn check_model(engine: &Engine) -> Result<(), &'static str> {
    let path = &engine.arguments.model;
    let Ok(mut file) = std::fs::File::open(path) else {
        let shown = path.display();
        log::plain(&format!("gguf_init_from_file: failed to open GGUF file '{shown}' (No such file or directory)"));
        return Err("missing");
    };
    let mut magic = [0; 4];
    if file.read_exact(&mut magic).is_err() {
        log::plain("gguf_init_from_reader: failed to read magic");
        return Err("too short");
    }
    if &magic != b"GGUF" {
        let shown = String::from_utf8_lossy(&magic);
        log::plain(&format!("gguf_init_from_reader: invalid magic characters: '{shown}', expected 'GGUF'"));
        return Err("no GGUF");
    }
    Ok(())
}
