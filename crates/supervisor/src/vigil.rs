//! Asks an engine that serves whether it lives, and whether it still infers: performs [`Probe`]s, judges nothing.
//!
//! | probe | well when |
//! | --- | --- |
//! | liveness | its ready path answers as a ready engine's does |
//! | inference | one real inference ends with a status of 200 to 299; without one in its manifest, its ready path shows no more than [`Probed::Lives`] |
//!
//! Each has its time. What is late is [`Probed::Missed`]; another status, or a connection that is refused or breaks, is
//! [`Probed::Failed`]. Whoever lives is also asked what its slots did, for as long as an inference may take: llama-server
//! shows them between two steps only, and a step of a long prompt outlasts any question of life. So their silence, or
//! another status, means that nothing is known of them, and no more. They are asked for once a second at most: each
//! question delays the engine's work.
use crate::exchange::exchange;
use motorpool_catalog::Manifest;
use motorpool_pool::{Probe, Probed};
use motorpool_vocab::Endpoint;
use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};
use tokio::time::{Instant, timeout};

/// Slots are not shown more often.
const SLOTS_EVERY: Duration = Duration::from_secs(1);

/// How long probes may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeTimes {
    /// Whether it lives (5 s).
    pub liveness: Duration,
    /// One inference, or the view of its slots (30 s).
    pub inference: Duration,
}

impl Default for ProbeTimes {
    fn default() -> Self {
        Self { liveness: Duration::from_secs(5), inference: Duration::from_secs(30) }
    }
}

/// Who is asked.
#[derive(Clone, Debug)]
pub(crate) struct Vigil {
    pub(crate) endpoint: Endpoint,
    pub(crate) manifest: Arc<Manifest>,
    /// Of the model: which of its manifest's inferences is its.
    pub(crate) inference: Option<motorpool_catalog::Probe>,
    pub(crate) times: ProbeTimes,
    slots_asked_at: Option<Instant>,
}

impl Vigil {
    pub(crate) fn new(
        endpoint: Endpoint,
        manifest: Arc<Manifest>,
        inference: Option<motorpool_catalog::Probe>,
        times: ProbeTimes,
    ) -> Self {
        Self { endpoint, manifest, inference, times, slots_asked_at: None }
    }

    /// The question as a task of its own makes it: it takes nothing of the vigil with it.
    pub(crate) fn question(&mut self, probe: Probe) -> impl Future<Output = Probed> + Send + use<> {
        let shows_slots = self.manifest.slots.is_some() && probe == Probe::Liveness;
        let recent = self.slots_asked_at.is_some_and(|at| at.elapsed() < SLOTS_EVERY);
        let with_slots = shows_slots && !recent;
        if with_slots {
            self.slots_asked_at = Some(Instant::now());
        }
        let times = self.times;
        let (endpoint, manifest, inference) =
            (self.endpoint.clone(), Arc::clone(&self.manifest), self.inference.clone());
        async move {
            match (probe, inference) {
                (Probe::Inference, Some(inference)) => told(times.inference, infers(&endpoint, &inference)).await,
                (Probe::Inference, None) => match told(times.inference, is_ready(&endpoint, &manifest)).await {
                    Probed::Well(_) => Probed::Lives,
                    probed => probed,
                },
                (Probe::Liveness, _) => match told(times.liveness, is_ready(&endpoint, &manifest)).await {
                    Probed::Well(_) if with_slots => {
                        let shown = timeout(times.inference, shown_slots(&endpoint, &manifest)).await;
                        Probed::Well(shown.ok().flatten())
                    }
                    probed => probed,
                },
            }
        }
    }
}

/// What comes of a question within its time.
async fn told(within: Duration, asked: impl Future<Output = bool>) -> Probed {
    match timeout(within, asked).await {
        Ok(true) => Probed::Well(None),
        Ok(false) => Probed::Failed,
        Err(_) => Probed::Missed,
    }
}

async fn is_ready(endpoint: &Endpoint, manifest: &Manifest) -> bool {
    let answered = exchange(endpoint, &manifest.ready.path, None).await;
    answered.is_ok_and(|(status, _)| status == manifest.ready.status)
}

async fn infers(endpoint: &Endpoint, probe: &motorpool_catalog::Probe) -> bool {
    let answered = exchange(endpoint, &probe.path, Some(probe.body.clone())).await;
    answered.is_ok_and(|(status, _)| (200..300).contains(&status))
}

/// What slots show as one number: another number means that something was done. `None`: they are not shown.
async fn shown_slots(endpoint: &Endpoint, manifest: &Manifest) -> Option<u64> {
    let view = manifest.slots.as_ref()?;
    let (status, body) = exchange(endpoint, &view.path, None).await.ok()?;
    if !(200..300).contains(&status) {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    Some(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::UnixListener,
    };

    fn vigil(path: &Path, (liveness, inference): (Duration, Duration)) -> Vigil {
        let (manifests, _) = motorpool_catalog::shipped();
        let manifest = manifests.into_iter().find(|manifest| manifest.name == "llama-server").expect("shipped");
        let probe = manifest.probes.chat.clone();
        Vigil::new(Endpoint::Unix(path.to_owned()), Arc::new(manifest), probe, ProbeTimes { liveness, inference })
    }

    /// Answers by path; a path that is not named is not answered.
    fn answering(listener: UnixListener, answers: &'static [(&'static str, &'static str)]) {
        tokio::spawn(async move {
            let mut kept = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 1024];
                let n = stream.read(&mut request).await.unwrap_or(0);
                let head = String::from_utf8_lossy(&request[..n]).into_owned();
                let found = answers.iter().find(|(path, _)| head.contains(&format!(" {path} ")));
                match found {
                    Some((_, answer)) => drop(stream.write_all(answer.as_bytes()).await),
                    None => kept.push(stream),
                }
            }
        });
    }

    const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]";
    const BROKEN: &str = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";

    const LONG: Duration = Duration::from_mins(1);
    const SHORT: Duration = Duration::from_millis(30);

    /// An engine that answers so.
    fn engine(folder: &Path, answers: &'static [(&'static str, &'static str)]) -> PathBuf {
        let path = folder.join("e.sock");
        answering(UnixListener::bind(&path).expect("free"), answers);
        path
    }

    #[tokio::test]
    async fn an_engine_that_answers_and_fails_to_infer_is_told_apart() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = engine(folder.path(), &[("/health", OK), ("/slots", OK), ("/completion", BROKEN)]);
        let mut vigil = vigil(&path, (LONG, LONG));
        assert!(matches!(vigil.question(Probe::Liveness).await, Probed::Well(Some(_))));
        assert_eq!(vigil.question(Probe::Liveness).await, Probed::Well(None), "slots are asked once a second at most");
        assert_eq!(vigil.question(Probe::Inference).await, Probed::Failed);
    }

    #[tokio::test]
    async fn one_that_nothing_can_be_asked_of_is_only_known_to_live() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = engine(folder.path(), &[("/health", OK)]);
        let unasked = |path: &Path| Vigil { inference: None, ..vigil(path, (LONG, LONG)) };
        assert_eq!(unasked(&path).question(Probe::Inference).await, Probed::Lives);
        let nobody = folder.path().join("none");
        assert_eq!(unasked(&nobody).question(Probe::Inference).await, Probed::Failed);
    }

    #[tokio::test]
    async fn what_does_not_answer_in_time_is_missed_and_what_refuses_or_breaks_off_has_failed() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = engine(folder.path(), &[("/slots", OK)]);
        let mut silent = vigil(&path, (SHORT, SHORT));
        assert_eq!(silent.question(Probe::Liveness).await, Probed::Missed);
        assert_eq!(silent.question(Probe::Inference).await, Probed::Missed);
        let mut nobody = vigil(&folder.path().join("none"), (LONG, LONG));
        assert_eq!(nobody.question(Probe::Liveness).await, Probed::Failed);
        assert_eq!(nobody.question(Probe::Inference).await, Probed::Failed);
        let breaks = tempfile::tempdir().expect("a temporary directory");
        let path =
            engine(breaks.path(), &[("/health", ""), ("/completion", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n")]);
        let mut breaks = vigil(&path, (LONG, LONG));
        assert_eq!(breaks.question(Probe::Liveness).await, Probed::Failed);
        assert_eq!(breaks.question(Probe::Inference).await, Probed::Failed);
    }

    #[tokio::test]
    async fn an_engine_whose_slots_are_silent_lives() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = engine(folder.path(), &[("/health", OK)]);
        assert_eq!(vigil(&path, (LONG, SHORT)).question(Probe::Liveness).await, Probed::Well(None));
    }

    #[tokio::test(start_paused = true)]
    async fn slots_that_are_shown_after_a_step_longer_than_a_question_of_life_count() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("e.sock");
        let listener = UnixListener::bind(&path).expect("free");
        let (liveness, step) = (Duration::from_secs(5), Duration::from_secs(25));
        tokio::spawn(async move {
            let (mut health, _) = listener.accept().await.expect("asked");
            let n = health.read(&mut [0; 1024]).await.expect("a question");
            assert!(n > 0);
            health.write_all(OK.as_bytes()).await.expect("asked for it");
            drop(health);
            let (mut slots, _) = listener.accept().await.expect("asked");
            let n = slots.read(&mut [0; 1024]).await.expect("a question");
            assert!(n > 0);
            let gone = timeout(step, slots.read(&mut [0; 1])).await;
            assert!(gone.is_err(), "it was not waited for");
            slots.write_all(OK.as_bytes()).await.expect("still asked for it");
        });
        let mut vigil = vigil(&path, (liveness, LONG));
        assert!(matches!(vigil.question(Probe::Liveness).await, Probed::Well(Some(_))));
    }

    #[tokio::test]
    async fn slots_that_are_not_served_say_nothing_of_an_engine_that_lives() {
        for answer in [
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 501 Not Implemented\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n",
        ] {
            let folder = tempfile::tempdir().expect("a temporary directory");
            let path = engine(folder.path(), vec![("/health", OK), ("/slots", answer)].leak());
            let probed = vigil(&path, (LONG, LONG)).question(Probe::Liveness).await;
            assert_eq!(probed, Probed::Well(None), "{answer}");
        }
    }
}
