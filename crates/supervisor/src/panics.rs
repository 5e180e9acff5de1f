//! [`Panics`]: tells the pool of the graphics driver's panics (pool.md §9), at the start and every 5 s.
//!
//! Which folders hold reports, and for how long one counts, is said by whoever starts the pool: nowhere but on macOS are
//! there any, and without folders nobody looks.
use crate::{handle::Post, meter::EVERY, shell::post};
use jiff::Timestamp;
use motorpool_devices::{GpuPanic, now, observe_gpu_panic};
use motorpool_pool::{GpuPause, Input};
use motorpool_vocab::Now;
use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};
use tokio::{sync::mpsc, task::spawn_blocking, time::sleep};

/// Where reports of panics are, and how long nothing is started on graphics devices after one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Panics {
    /// Folders of reports; none: nobody looks.
    pub folders: Vec<PathBuf>,
    /// For so long after a panic.
    pub pause: Duration,
}

impl Panics {
    /// The pause that holds now, by both clocks.
    pub(crate) fn observe(&self, wall: SystemTime, at: Now) -> Option<GpuPause> {
        let since = wall.checked_sub(self.pause)?;
        let panic = observe_gpu_panic(&self.folders, since)?;
        // A report from the future counts from now on.
        let ago = wall.duration_since(panic.at).unwrap_or_default();
        let until = at.after(self.pause.saturating_sub(ago));
        Some(GpuPause { happened: written(&panic), signature: panic.signature, until })
    }

    /// Looks and tells until the loop is gone.
    pub(crate) async fn run(self, inbox: mpsc::WeakUnboundedSender<Post>) {
        if self.folders.is_empty() {
            return;
        }
        while inbox.strong_count() > 0 {
            sleep(EVERY).await;
            let panics = self.clone();
            let Ok(pause) = spawn_blocking(move || panics.observe(SystemTime::now(), now())).await else { continue };
            post(&inbox, Input::GpuPause(pause));
        }
    }
}

/// To the second, as in the log.
fn written(panic: &GpuPanic) -> String {
    let at = panic.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    i64::try_from(at).ok().and_then(|at| Timestamp::from_second(at).ok()).unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, time::UNIX_EPOCH};

    #[test]
    fn a_panic_pauses_from_its_report_on_for_as_long_as_configured() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let report = folder.path().join("k.panic");
        fs::write(&report, "AGXG14 panicked").expect("written");
        let wall = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        fs::File::open(&report).expect("there").set_modified(wall(10_000)).expect("its time");
        let panics = Panics { folders: vec![folder.path().to_owned()], pause: Duration::from_hours(1) };
        let left = |seconds| {
            let at = Now::from_nanos(7);
            panics.observe(wall(seconds), at).map(|pause| pause.until.since(at).as_secs())
        };
        assert_eq!([left(10_600), left(13_599), left(13_600)], [Some(3000), Some(1), None]);
        assert_eq!(left(9_000), Some(3600), "the clock was set back");
        let none = Panics { pause: Duration::from_hours(1), ..Panics::default() };
        assert_eq!(none.observe(wall(10_600), Now::ZERO), None);
    }
}
