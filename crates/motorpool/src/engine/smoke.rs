//! Whether a llama-server works: its version, and one answer from a generated model of a few hundred KB.
use super::EngineError;
use crate::{
    client::{Client, ClientError},
    process::{Job, ProcessError},
};
use http::{Request, StatusCode};
use motorpool_catalog::Manifest;
use serde_json::json;
use std::{ffi::OsStr, fs, io, path::Path, time::Duration};

/// From the start to an answer. The model is tiny: more than this is a fault.
const ANSWERS_WITHIN: Duration = Duration::from_mins(1);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Why the test failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SmokeError {
    #[error("cannot prepare the test")]
    Prepare(#[source] io::Error),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("it answered {0}")]
    Answer(StatusCode),
    #[error("no answer within {} s", ANSWERS_WITHIN.as_secs())]
    Late,
}

/// The version that a program of `manifest`'s engine tells, in the way that says; `None` when it cannot be read.
pub(crate) async fn version_by(manifest: &Manifest, program: &Path, dir: &Path) -> Result<Option<String>, EngineError> {
    let mut text = String::new();
    let mut hear = |line: &str| {
        text.push_str(line);
        text.push('\n');
    };
    let probe = Job::new(program, &manifest.program.version_args, dir).run(&mut hear).await;
    probe.map_err(|source| EngineError::Probe { program: program.to_owned(), source })?;
    Ok(manifest.program.version(&text).map(str::to_owned))
}

/// What `program --version` says, on one line.
pub(crate) async fn version(program: &Path, dir: &Path) -> Result<String, EngineError> {
    let mut lines = Vec::new();
    let probe = Job::new(program, &["--version"], dir).run(&mut |line| lines.push(line.to_owned())).await;
    probe.map_err(|source| EngineError::Probe { program: program.to_owned(), source })?;
    let line = lines.iter().find_map(|line| line.trim().strip_prefix("version:")).unwrap_or_default();
    Ok(line.trim().to_owned())
}

/// Starts `program` with the generated model and asks it once.
pub(crate) async fn test(program: &Path, dir: &Path) -> Result<(), EngineError> {
    answer(program, dir).await.map_err(|source| EngineError::Smoke { program: program.to_owned(), source })
}

async fn answer(program: &Path, dir: &Path) -> Result<(), SmokeError> {
    // A short path: the name of a socket has room for little more than a hundred bytes.
    let place = tempfile::Builder::new().prefix("motorpool-").tempdir().map_err(SmokeError::Prepare)?;
    let (model, socket) = (place.path().join("smoke.gguf"), place.path().join("s.sock"));
    fs::write(&model, motorpool_gguf::write::smoke_model()).map_err(SmokeError::Prepare)?;
    let mut args: Vec<&OsStr> = vec![OsStr::new("-m"), model.as_os_str(), OsStr::new("--host"), socket.as_os_str()];
    args.extend(["-c", "256", "-np", "1", "-ngl", "0", "-t", "1", "-fit", "off", "--offline"].map(OsStr::new));
    let job = Job::new(program, &args, dir).with_env("XDG_CONFIG_HOME", place.path());
    let client = Client::new(&socket);
    let mut unheard = |_: &str| {};
    tokio::select! {
        ended = job.run(&mut unheard) => {
            ended?;
            Err(SmokeError::Late)
        }
        asked = tokio::time::timeout(ANSWERS_WITHIN, ask(&client)) => asked.map_err(|_| SmokeError::Late)?,
    }
}

/// Waits until the model is loaded, then completes a prompt.
async fn ask(client: &Client) -> Result<(), SmokeError> {
    loop {
        match client.ask(Request::get("/health"), bytes::Bytes::new()).await {
            Ok(answer) if answer.status == StatusCode::OK => break,
            Ok(_) | Err(_) => tokio::time::sleep(ASK_AGAIN_AFTER).await,
        }
    }
    let body = json!({ "prompt": "a", "n_predict": 4 }).to_string();
    let request = Request::post("/completion").header(http::header::CONTENT_TYPE, "application/json");
    let answer = client.ask(request, body.into()).await?;
    if answer.status == StatusCode::OK { Ok(()) } else { Err(SmokeError::Answer(answer.status)) }
}
