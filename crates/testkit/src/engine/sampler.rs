//! Makes the tokens of one reply, in a task of its own: a client that goes does not always end it.
use crate::{
    engine::{Engine, Phase, Work},
    load, trouble,
};
use motorpool_testkit::{Aborts, Moment, token};
use std::{sync::Arc, time::Duration};
use tokio::{sync::mpsc, time::sleep};

/// What a reply is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Token(String),
    /// It broke off.
    Failed,
    /// It is complete.
    Done(FinishReason),
}

/// Why a reply is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinishReason {
    Stop,
    Length,
}

/// How the client reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    Stream,
    Whole,
}

/// A reply to make.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) prompt: String,
    /// The request's own limit.
    pub(crate) limit: Option<u32>,
    pub(crate) reading: Reading,
}

/// Begins a reply; its pieces come through the channel.
pub(crate) fn begin(engine: &Arc<Engine>, work: Work, job: Job) -> mpsc::Receiver<Piece> {
    let (out, pieces) = mpsc::channel(1);
    tokio::spawn(run(Arc::clone(engine), work, job, out));
    pieces
}

async fn run(engine: Arc<Engine>, mut work: Work, job: Job, out: mpsc::Sender<Piece>) {
    let heeds_client = match engine.behaviour.inference.aborts {
        Aborts::AtOnce => true,
        Aborts::StreamsOnly => job.reading == Reading::Stream,
        Aborts::Never => false,
    };
    tokio::select! {
        biased;
        () = out.closed(), if heeds_client => {}
        // Nobody is told, and only the clients' going lets the engine exit.
        () = stopping(&engine) => out.closed().await,
        () = sample(&engine, &mut work, &job, &out) => work.finish(),
    }
}

async fn stopping(engine: &Engine) {
    let mut phase = engine.phase.subscribe();
    phase.wait_for(|phase| *phase == Phase::Stopping).await.expect("the engine outlives its work");
}

async fn sample(engine: &Engine, work: &mut Work, job: &Job, out: &mpsc::Sender<Piece>) {
    let (tokens, inference) = (&engine.behaviour.tokens, &engine.behaviour.inference);
    work.take_slot().await;
    let n = job.limit.map_or(tokens.count, |limit| limit.min(tokens.count));
    for index in 0..n {
        // The shortest sleep is a millisecond, which would be a pace.
        let pause = if index == 0 { tokens.prefill_ms } else { tokens.pace_ms };
        if pause > 0 {
            sleep(Duration::from_millis(pause)).await;
        }
        // A request for one token is a probe, and a start is not what these gates hold.
        for gate in tokens.gates.iter().filter(|gate| gate.before == index && job.limit != Some(1)) {
            load::wait_for(gate.file.clone()).await;
        }
        if inference.hangs.is_on() {
            std::future::pending::<()>().await;
        }
        if inference.error_after == Some(index) {
            return send(out, Piece::Failed).await;
        }
        send(out, Piece::Token(token(&job.prompt, index))).await;
        crash_if_due(engine, Moment::Token(engine.count_token())).await;
    }
    let reason = if n < tokens.count { FinishReason::Length } else { FinishReason::Stop };
    send(out, Piece::Done(reason)).await;
}

/// A client that has gone is heeded elsewhere.
async fn send(out: &mpsc::Sender<Piece>, piece: Piece) {
    drop(out.send(piece).await);
}

async fn crash_if_due(engine: &Engine, moment: Moment) {
    if engine.behaviour.exit.as_ref().is_some_and(|exit| exit.at == moment) {
        // The loop writes what was sent before it waits for this.
        sleep(Duration::from_millis(5)).await;
        trouble::pass(engine, moment);
    }
}
