//! [`Drivers`]: the sources of graphics devices, each on a thread of its own, so that a driver that does not answer
//! hides no other and holds up nobody.
//!
//! One call of a driver is under way at most, whoever asked for it: what was asked at the start and never answered is
//! not asked again by the meter (**P2** of [`Prober`]).
use motorpool_devices::{Amdgpu, DeviceReading, Nvidia, NvidiaReading, Probe, Prober, Started, now};
use motorpool_vocab::Now;
use std::{io, path::Path, sync::Arc, time::Duration};
use tokio::{sync::Notify, time::timeout};

/// A driver that takes longer has no answer; the next question waits until this one is over.
const PATIENCE: Duration = Duration::from_secs(4);

/// NVIDIA's and AMD's drivers.
#[derive(Debug)]
pub struct Drivers {
    nvidia: Source<NvidiaReading>,
    amd: Source<Vec<DeviceReading>>,
}

/// What all of them said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighted {
    /// When the look began: every figure is of later.
    pub begun_at: Now,
    /// What NVIDIA's said; `None`: it did not answer in time.
    pub nvidia: Option<NvidiaReading>,
    /// What AMD's said; `None`: it did not answer in time.
    pub amd: Option<Vec<DeviceReading>>,
}

/// One driver's thread, and the bell that it rings.
#[derive(Debug)]
struct Source<T> {
    prober: Prober<T>,
    answered: Arc<Notify>,
}

impl Drivers {
    /// Starts a thread for each; nothing is asked yet.
    pub fn new() -> io::Result<Self> {
        let (mut nvidia, mut amd) = (Nvidia::new(None), Amdgpu::new(Path::new("/")));
        Self::of(move || nvidia.observe(), move || amd.observe())
    }

    /// Those that say what these give.
    pub(crate) fn of(
        nvidia: impl FnMut() -> NvidiaReading + Send + 'static,
        amd: impl FnMut() -> Vec<DeviceReading> + Send + 'static,
    ) -> io::Result<Self> {
        Ok(Self { nvidia: Source::new("nvml", PATIENCE, nvidia)?, amd: Source::new("amdgpu", PATIENCE, amd)? })
    }

    /// Asks both at once. Takes 4 s at most, and no time for one that hangs since earlier.
    pub async fn look(&self) -> Sighted {
        let ((nvidia_at, nvidia), (amd_at, amd)) = tokio::join!(self.nvidia.ask(), self.amd.ask());
        Sighted { begun_at: nvidia_at.min(amd_at), nvidia, amd }
    }
}

impl Sighted {
    /// Every device of every driver that answered.
    pub fn devices(&self) -> Vec<DeviceReading> {
        let nvidia = self.nvidia.iter().flat_map(|reading| reading.devices.iter());
        nvidia.chain(self.amd.iter().flatten()).cloned().collect()
    }
}

impl<T: Send + 'static> Source<T> {
    fn new(name: &str, patience: Duration, observe: impl FnMut() -> T + Send + 'static) -> io::Result<Self> {
        let answered = Arc::new(Notify::new());
        let bell = Arc::clone(&answered);
        Ok(Self { prober: Prober::new(name, patience, observe, move || bell.notify_one())?, answered })
    }

    /// When the look began, and what it gave, if it did in time.
    async fn ask(&self) -> (Now, Option<T>) {
        let asked_at = now();
        let begun_at = match self.prober.start(asked_at) {
            Started::Now => asked_at,
            Started::Already { since } => since,
        };
        match answer(&self.prober, &self.answered, PATIENCE).await {
            Some(answer) => (begun_at, Some(answer)),
            // That there is no answer is news of now, however long it has been so.
            None => (asked_at, None),
        }
    }
}

/// What the thread of `prober` reads; `None` when that takes too long. `answered` is rung when the thread is done.
pub(crate) async fn answer<T: Send + 'static>(prober: &Prober<T>, answered: &Notify, within: Duration) -> Option<T> {
    let wait = async {
        loop {
            match prober.poll(now()) {
                Probe::Answered(answer) => return Some(answer),
                Probe::Running { .. } => answered.notified().await,
                Probe::Stuck { .. } | Probe::Idle => return None,
            }
        }
    };
    timeout(within, wait).await.ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    fn hanging(patience: Duration) -> (Sender<u32>, Source<Option<u32>>) {
        let (release, held) = channel();
        (release, Source::new("test", patience, move || held.recv().ok()).expect("a thread"))
    }

    #[tokio::test]
    async fn a_driver_that_hangs_has_no_answer_and_one_that_comes_back_is_asked_anew() {
        let (release, source) = hanging(Duration::ZERO);
        let before = now();
        let (begun_at, answer) = source.ask().await;
        assert!(answer.is_none() && begun_at >= before);
        let (again_at, answer) = source.ask().await;
        assert!(answer.is_none() && again_at > begun_at, "that there is none is seen anew");
        release.send(7).expect("it waits");
    }

    #[tokio::test]
    async fn whoever_has_no_device_says_so() {
        let sighted = Drivers::new().expect("threads").look().await;
        assert!(sighted.nvidia.is_some() && sighted.amd.is_some(), "none is an answer too: {sighted:?}");
    }
}
