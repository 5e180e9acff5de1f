use super::*;
use crate::{
    KeeperProgram, Launcher, ProbeTimes, check::Checker, handle::open_handle, lookout::Lookout, looks::Looks,
    state_files::StateFiles,
};
use motorpool_catalog::{Catalog, Model, ModelSource, shipped};
use motorpool_pool::{Ask, Calibration, Host, PoolConfig};
use motorpool_vocab::{Bytes, ModelId, PhaseView};
use parking_lot::Mutex;
use std::path::Path;

/// A shell whose looks at files end when the sender is dropped, on a clock of the test's own.
fn shell(folder: &Path, looks_end: std::sync::mpsc::Receiver<()>) -> (Shell, crate::PoolHandle) {
    let keeper = KeeperProgram { program: "/bin/false".into(), args: vec![] };
    let launcher = Launcher::open(keeper, folder).expect("a fresh directory");
    let source = ModelSource::File("/nowhere/a.gguf".into());
    let model = Model::new(ModelId::new("a").expect("an id"), "llama-server", source);
    let catalog = Arc::new(Catalog::new(shipped().0, vec![model]).expect("a catalog"));
    let looks_end = Mutex::new(looks_end);
    let discover: crate::check::Discover = Box::new(move |_| {
        let _ = looks_end.lock().recv();
        Err(StartFault { class: FailureClass::EngineMissing, message: "not here".into(), tail: vec![] })
    });
    let locate: crate::check::Locate = Box::new(|_| Ok("/nowhere".into()));
    let checker = Checker::new(discover, locate, Box::new(|_| Calibration::default()));
    let workshop = Workshop {
        launcher,
        environment: HashMap::new(),
        run: folder.into(),
        empty: folder.into(),
        checker,
        meter: Arc::default(),
        lookout: Arc::new(Lookout::new(crate::Devices::default(), &Host::default())),
        looks: Looks::default(),
        probes: ProbeTimes::default(),
        state_files: Arc::new(StateFiles::open(folder.join("slots"), Bytes::gib(1))),
    };
    let (shared, snapshots) = Shared::new(folder.join("logs"));
    let (handle, posts) = open_handle(Arc::clone(&shared));
    let (notebook, incidents) = (Notebook::open(folder), Incidents::at(folder.join("incidents.jsonl")));
    let outside = Outside { shared, snapshots, on_denial: Box::new(|_| {}), notebook, incidents };
    let pool = Pool::new(PoolConfig::default(), catalog, Spawn(1));
    (Shell::new(pool, (handle.weak_inbox(), posts), Arc::new(workshop), outside), handle)
}

#[tokio::test]
async fn the_time_that_a_machine_slept_counts_against_no_look_and_the_time_that_it_ran_does() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (end, looks_end) = std::sync::mpsc::channel();
    let (mut shell, handle) = shell(folder.path(), looks_end);
    let begun = now();
    let at = |seconds: u64| begun.after(Duration::from_secs(seconds));
    let (answer, mut answered) = oneshot::channel();
    let ask = Ask::resident(ModelId::new("a").expect("an id"));
    let ask = Ask { queue_wait: Some(Duration::from_hours(24)), ..ask };
    shell.take(begun, Post::Load { id: RequestId(1), ask, answer });
    let phase = |handle: &crate::PoolHandle| handle.snapshot().entries.first().map(|entry| entry.phase);
    assert_eq!(phase(&handle), Some(PhaseView::Validating));
    // Two hours in which nothing turned: the look that is out has had none of them.
    shell.take(at(7_200), Post::Input(Input::Tick));
    assert_eq!((phase(&handle), answered.try_recv().is_err()), (Some(PhaseView::Validating), true), "H6");
    // A minute in which the loop turns is one in which it could have come.
    for second in 1..=61 {
        shell.take(at(7_200 + second), Post::Input(Input::Tick));
    }
    let told = answered.try_recv().expect("told").expect_err("its file system does not answer");
    assert!(matches!(&told, Refusal::StartFailed { fault, .. } if fault.class == FailureClass::LoadStalled), "{told}");
    drop(end);
}
