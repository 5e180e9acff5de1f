//! From the first instruction to the exit, in llama-server's order: bind, load, ready, stop.
use crate::{
    arguments::{Arguments, Listen},
    engine::{Engine, Phase},
    load, log, server, stop, trouble,
};
use motorpool_testkit::{Behaviour, Bind, ModelFiles, Moment, Start};
use std::{fs::OpenOptions, io, io::Write as _, path::Path, process::ExitCode, sync::Arc};

/// Lives one life.
pub(crate) fn live(arguments: Arguments) -> ExitCode {
    trouble::leave_no_core();
    let prepared = Behaviour::beside(&arguments.model).and_then(|b| Ok((b, write_down_start(&arguments)?)));
    let (behaviour, n_start) = match prepared {
        Ok(prepared) => prepared,
        Err(e) => {
            log::plain(&format!("error: sidecar: {e}"));
            return ExitCode::from(3);
        }
    };
    let engine = Arc::new(Engine::new(arguments, behaviour, n_start));
    stop::be_deaf(&engine);
    trouble::begin(&engine);
    trouble::pass(&engine, Moment::Start);
    // One thread: a test that sees two things in order saw them in order.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let code = runtime.block_on(serve(&engine));
    // Threads may wait for gates or for stdin.
    runtime.shutdown_background();
    code
}

async fn serve(engine: &Arc<Engine>) -> ExitCode {
    match engine.behaviour.bind {
        Bind::Works => {}
        Bind::Refused => return bind_failed(engine),
        Bind::Never => return std::future::pending().await,
    }
    let Ok(listener) = server::bind(&engine.arguments.listen).await else { return bind_failed(engine) };
    let address = listener.address();
    tokio::spawn(server::serve(Arc::clone(engine), listener));
    trouble::pass(engine, Moment::Bound);
    if let Err(why) = load::load(engine).await {
        log::line('E', &format!("load_model: failed to load model, '{}'", engine.arguments.model.display()));
        log::line('I', "operator(): cleaning up before exit...");
        log::line('E', &format!("main: exiting due to model loading error ({why})"));
        return ExitCode::FAILURE;
    }
    let stop = stop::listen(engine).expect("signal handlers");
    engine.phase.send_replace(Phase::Ready);
    engine.protocol.report("ready", &crate::answer::model_row(engine));
    log::line('I', &format!("main: server is listening on {address} - starting the main loop"));
    trouble::pass(engine, Moment::Ready);
    stop.until_over().await
}

fn bind_failed(engine: &Engine) -> ExitCode {
    let (host, port) = match &engine.arguments.listen {
        Listen::Unix(path) => (path.display().to_string(), 8080),
        Listen::Tcp(port) => ("127.0.0.1".to_owned(), *port),
    };
    log::line('E', &format!("start: couldn't bind HTTP server socket, hostname: {host}, port: {port}"));
    log::line('E', "main: exiting due to HTTP server error");
    ExitCode::FAILURE
}

/// Adds a line to the starts of the model and counts them. A directory that cannot be written has no starts.
fn write_down_start(arguments: &Arguments) -> io::Result<u32> {
    let address = match &arguments.listen {
        Listen::Unix(path) => path.display().to_string(),
        Listen::Tcp(port) => format!("127.0.0.1:{port}"),
    };
    let start = Start { pid: std::process::id(), address };
    let file = ModelFiles::of(&arguments.model).starts();
    match append(&file, &serde_json::to_string(&start)?) {
        Ok(()) => {
            let n = std::fs::read_to_string(&file)?.lines().count();
            u32::try_from(n).map_err(io::Error::other)
        }
        Err(e) if matches!(e.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound) => Ok(1),
        Err(e) => Err(e),
    }
}

/// One write, so that lines of several processes never mix.
pub(crate) fn append(file: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).open(file)?.write_all(format!("{line}\n").as_bytes())
}
