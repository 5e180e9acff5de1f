//! Stopping as llama-server does: at once no more tokens, then it waits for its clients, then it exits with 0.
//!
//! Before it is ready no handler is installed, so a signal ends it by default. A second signal exits with 1, the end
//! of stdin too. Stdin is read only after loading, and only when the child protocol is spoken.
use crate::{
    engine::{Engine, Phase},
    load, log,
    log::Protocol,
    trouble,
};
use motorpool_testkit::Deaf;
use nix::sys::signal::{SigHandler, Signal};
use std::{io, io::BufRead as _, process::ExitCode, sync::Arc, time::Duration};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

/// Something asks to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Signal,
    ExitCommand,
    EndOfStdin,
}

/// Hears what asks to stop, once the engine is ready.
pub(crate) struct Ears {
    engine: Arc<Engine>,
    asked: mpsc::UnboundedReceiver<Asked>,
}

/// Ignores what is never to be heard, from the first instruction on.
pub(crate) fn be_deaf(engine: &Engine) {
    if engine.is_deaf_to(Deaf::Sigterm) {
        trouble::set_action(Signal::SIGTERM, SigHandler::SigIgn);
    }
}

/// Begins to listen.
pub(crate) fn listen(engine: &Arc<Engine>) -> io::Result<Ears> {
    let (tell, asked) = mpsc::unbounded_channel();
    if !engine.is_deaf_to(Deaf::Sigterm) {
        for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
            let (mut signals, tell) = (signal(kind)?, tell.clone());
            tokio::spawn(async move { while signals.recv().await.is_some() && tell.send(Asked::Signal).is_ok() {} });
        }
    }
    if engine.protocol == Protocol::Spoken {
        let engine = Arc::clone(engine);
        std::thread::spawn(move || read_stdin(&engine, &tell));
    }
    Ok(Ears { engine: Arc::clone(engine), asked })
}

fn read_stdin(engine: &Engine, tell: &mpsc::UnboundedSender<Asked>) {
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        if line.contains("cmd_router_to_child:exit") && !engine.is_deaf_to(Deaf::ExitCommand) {
            log::line('I', "operator(): exit command received, exiting...");
            // Nobody hears it any more when the engine already ends.
            let _ = tell.send(Asked::ExitCommand);
        }
    }
    if !engine.is_deaf_to(Deaf::EndOfStdin) {
        let _ = tell.send(Asked::EndOfStdin);
    }
}

impl Ears {
    /// Until the engine may exit, and with what.
    pub(crate) async fn until_over(mut self) -> ExitCode {
        if self.next().await == Asked::EndOfStdin {
            return forced();
        }
        self.engine.phase.send_replace(Phase::Stopping);
        let engine = Arc::clone(&self.engine);
        tokio::select! {
            () = leave(&engine) => ExitCode::SUCCESS,
            code = self.impatience() => code,
        }
    }

    /// A second request that is not polite.
    async fn impatience(&mut self) -> ExitCode {
        loop {
            match self.next().await {
                Asked::ExitCommand => {}
                Asked::EndOfStdin => return forced(),
                Asked::Signal => {
                    log::plain("Received second interrupt, terminating immediately.");
                    return ExitCode::FAILURE;
                }
            }
        }
    }

    async fn next(&mut self) -> Asked {
        match self.asked.recv().await {
            Some(asked) => asked,
            // Deaf on every ear.
            None => std::future::pending().await,
        }
    }
}

fn forced() -> ExitCode {
    log::line('W', "operator(): EOF on stdin detected, forcing shutdown...");
    ExitCode::FAILURE
}

async fn leave(engine: &Engine) {
    log::line('I', "operator(): cleaning up before exit...");
    loop {
        let ended = engine.ended.notified();
        if engine.n_active() == 0 {
            break;
        }
        ended.await;
    }
    if engine.behaviour.stop.to_last_connection {
        let _ = engine.n_connected.subscribe().wait_for(|n| *n == 0).await;
    }
    tokio::time::sleep(Duration::from_millis(engine.behaviour.stop.linger_ms)).await;
    if let Some(gate) = &engine.behaviour.stop.gate {
        load::wait_for(gate.clone()).await;
    }
}

impl Engine {
    fn is_deaf_to(&self, what: Deaf) -> bool {
        self.behaviour.stop.deaf_to.contains(&what)
    }
}
