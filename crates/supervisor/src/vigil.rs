//! Asks an engine that serves whether it lives, and whether it still infers: performs [`Probe`]s, judges nothing.
//!
//! | probe | well when |
//! | --- | --- |
//! | liveness | its ready path answers as a ready engine's does, and its slots, where it shows them, are shown |
//! | inference | one real inference ends with a status of 200 to 299; without one in its manifest, its ready path |
//!
//! Each has its time, and none that is late counts. Slots are asked for once a second at most: each question delays the
//! engine's work.
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
    /// One inference (30 s).
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
        let within = match probe {
            Probe::Liveness => self.times.liveness,
            Probe::Inference => self.times.inference,
        };
        let (endpoint, manifest, inference) =
            (self.endpoint.clone(), Arc::clone(&self.manifest), self.inference.clone());
        async move {
            let asked = async {
                match (probe, inference) {
                    (Probe::Inference, Some(inference)) => infers(&endpoint, &inference).await,
                    (Probe::Inference, None) => is_ready(&endpoint, &manifest).await.then_some(None),
                    (Probe::Liveness, _) if !is_ready(&endpoint, &manifest).await => None,
                    (Probe::Liveness, _) if with_slots => shown_slots(&endpoint, &manifest).await.map(Some),
                    (Probe::Liveness, _) => Some(None),
                }
            };
            timeout(within, asked).await.ok().flatten().map_or(Probed::Missed, Probed::Well)
        }
    }
}

async fn is_ready(endpoint: &Endpoint, manifest: &Manifest) -> bool {
    let answered = exchange(endpoint, &manifest.ready.path, None).await;
    answered.is_ok_and(|(status, _)| status == manifest.ready.status)
}

async fn infers(endpoint: &Endpoint, probe: &motorpool_catalog::Probe) -> Option<Option<u64>> {
    let (status, _) = exchange(endpoint, &probe.path, Some(probe.body.clone())).await.ok()?;
    (200..300).contains(&status).then_some(None)
}

/// What slots show as one number: another number means that something was done.
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
    use std::path::Path;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::UnixListener,
    };

    fn vigil(path: &Path, within: Duration) -> Vigil {
        let (manifests, _) = motorpool_catalog::shipped();
        let manifest = manifests.into_iter().find(|manifest| manifest.name == "llama-server").expect("shipped");
        let inference = manifest.probes.chat.clone();
        let times = ProbeTimes { liveness: within, inference: within };
        Vigil::new(Endpoint::Unix(path.to_owned()), Arc::new(manifest), inference, times)
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

    #[tokio::test]
    async fn an_engine_that_answers_and_fails_to_infer_is_told_apart() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("e.sock");
        answering(
            UnixListener::bind(&path).expect("free"),
            &[("/health", OK), ("/slots", OK), ("/completion", BROKEN)],
        );
        let mut vigil = vigil(&path, Duration::from_mins(1));
        assert!(matches!(vigil.question(Probe::Liveness).await, Probed::Well(Some(_))));
        assert_eq!(vigil.question(Probe::Liveness).await, Probed::Well(None), "slots are asked once a second at most");
        assert_eq!(vigil.question(Probe::Inference).await, Probed::Missed);
    }

    #[tokio::test]
    async fn what_does_not_answer_in_time_is_missed() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("e.sock");
        answering(UnixListener::bind(&path).expect("free"), &[("/health", OK)]);
        let mut vigil = vigil(&path, Duration::from_millis(30));
        assert_eq!(vigil.question(Probe::Liveness).await, Probed::Missed, "its slots are not shown");
        assert_eq!(vigil.question(Probe::Inference).await, Probed::Missed);
        let mut nobody = self::vigil(&folder.path().join("none"), Duration::from_mins(1));
        assert_eq!(nobody.question(Probe::Liveness).await, Probed::Missed);
    }
}
