//! [`Lookout`]: what the drivers of graphics devices say, every 5 s and when the pool asks.
//!
//! ```text
//!  whose processes? ─► Drivers::look ─► whose processes? ─► Cards::sights ─► Input::Cards
//!                           │ a device that was not known           ▲ a look at once
//!                           ▼                                       │
//!   Surveys::again ───►  Survey, beside the looks ── ends ─► Input::Host
//! ```
//!
//! A survey asks every engine for its devices, which takes seconds: until its end looks go on with what is known. One
//! is under way at most, and one that found nothing is tried again at the next tick.
//!
//! Processes are looked at before the drivers and after them: one that ends meanwhile is still ours. What engines say
//! that they hold counts from before, as it may have come while the driver was asked.
use crate::{
    cards::{Called, Cards, Names, Ours},
    drivers::{Drivers, Sighted},
    handle::Post,
    meter::{EVERY, Meter},
    servers::LocalServers,
    shell::post,
};
use motorpool_devices::{DeviceReading, Gpu, Graphics, now, processes};
use motorpool_pool::{Host, Input};
use motorpool_vocab::{DeviceId, Spawn};
use parking_lot::Mutex;
use std::{collections::BTreeMap, fmt, future::pending, path::Path, sync::Arc};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    task::{JoinHandle, spawn_blocking},
    time::{MissedTickBehavior, interval},
};

/// What this machine is, from what was just seen of its devices; `None`: nothing can be said. May block.
pub type Survey = Box<dyn Fn(Sighted) -> Option<Found> + Send + Sync>;

/// What a survey finds.
#[derive(Debug)]
pub struct Found {
    /// The machine.
    pub host: Host,
    /// Its graphics devices.
    pub graphics: Graphics,
}

/// Has the machine surveyed again: what its operator says of it has changed.
#[derive(Clone, Debug, Default)]
pub struct Surveys(Arc<Wanted>);

#[derive(Debug)]
struct Wanted {
    /// Who waits for one that has not begun; `None` once nobody looks any more.
    asked: Mutex<Option<Vec<oneshot::Sender<()>>>>,
    nudge: Notify,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { asked: Mutex::new(Some(Vec::new())), nudge: Notify::new() }
    }
}

impl Surveys {
    /// Begins a survey, and comes back when the loop has been told what it found, or when nobody looks any more.
    pub async fn again(&self) {
        let (done, told) = oneshot::channel();
        match &mut *self.0.asked.lock() {
            None => return,
            Some(asked) => asked.push(done),
        }
        self.0.nudge.notify_one();
        // An error: whoever looked is gone.
        let _ = told.await;
    }

    fn take(&self) -> Vec<oneshot::Sender<()>> {
        self.0.asked.lock().as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn close(&self) {
        *self.0.asked.lock() = None;
    }
}

/// A survey that is under way, and who waits for its end.
type Surveying = (JoinHandle<Option<Found>>, Vec<oneshot::Sender<()>>);

/// The graphics devices as they were found at the start, and who tells of them from then on.
pub struct Devices {
    /// Who is asked; `None`: nobody, and every card is missing.
    pub drivers: Option<Drivers>,
    /// What was found.
    pub graphics: Graphics,
    /// Model servers here that somebody else runs: what they hold goes by their names.
    pub servers: LocalServers,
    /// Called when drivers tell of a device that was not known.
    pub survey: Survey,
    /// Who else can have it called.
    pub surveys: Surveys,
}

impl Default for Devices {
    fn default() -> Self {
        Self {
            drivers: None,
            graphics: Graphics::default(),
            servers: LocalServers::default(),
            survey: Box::new(|_| None),
            surveys: Surveys::default(),
        }
    }
}

impl fmt::Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { drivers, graphics, .. } = self;
        f.debug_struct("Devices").field("drivers", drivers).field("graphics", graphics).finish_non_exhaustive()
    }
}

/// Who looks at cards.
pub(crate) struct Lookout {
    drivers: Option<Drivers>,
    survey: Survey,
    surveys: Surveys,
    cards: Mutex<Cards>,
    servers: LocalServers,
    nudge: Notify,
}

impl fmt::Debug for Lookout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookout").field("drivers", &self.drivers).field("cards", &self.cards).finish_non_exhaustive()
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        self.surveys.close();
    }
}

impl Lookout {
    /// Over the cards of the pool.
    pub(crate) fn new(Devices { drivers, graphics, servers, survey, surveys }: Devices, host: &Host) -> Self {
        let cards = Mutex::new(Cards::new(host, graphics));
        Self { drivers, survey, surveys, cards, servers, nudge: Notify::new() }
    }

    /// The model servers of others here.
    pub(crate) fn servers(&self) -> LocalServers {
        self.servers.clone()
    }

    /// Looks again, beginning after this.
    pub(crate) fn look(&self) {
        self.nudge.notify_one();
    }

    /// What drivers say of these cards now. One that nobody tells of is left out.
    pub(crate) async fn readings(&self, ids: impl Iterator<Item = &DeviceId>) -> BTreeMap<DeviceId, DeviceReading> {
        let Some(drivers) = &self.drivers else { return BTreeMap::new() };
        let devices = drivers.look().await.devices();
        let cards = self.cards.lock();
        ids.filter_map(|id| Some((id.clone(), cards.reading_of(id, &devices)?.clone()))).collect()
    }

    /// The devices as `program` names them.
    pub(crate) fn gpus_for(&self, program: &Path) -> Vec<Gpu> {
        self.cards.lock().gpus_for(program)
    }

    /// Whether engines are to compute on the processor alone, whatever else they see: nothing there is counted.
    pub(crate) fn is_without_cards(&self) -> bool {
        self.cards.lock().is_without()
    }

    /// Looks and tells until the loop is gone, or this is dropped.
    pub(crate) async fn run(self: Arc<Self>, meter: Arc<Meter>, inbox: mpsc::WeakUnboundedSender<Post>) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut survey: Option<Surveying> = None;
        // Whoever asks while one is under way gets another: it may have begun before what they ask for.
        let mut asked = Vec::new();
        while inbox.strong_count() > 0 {
            let came = tokio::select! {
                _ = ticks.tick() => Came::Tick,
                () = self.nudge.notified() => Came::Nudge,
                () = self.surveys.0.nudge.notified() => Came::Asked,
                (found, waiting) = end_of(&mut survey) => Came::Found(found, waiting),
            };
            let is_tick = matches!(came, Came::Tick);
            match came {
                Came::Found(found, waiting) => {
                    let is_news = found.is_some();
                    if let Some(found) = found {
                        self.take_up(found, &inbox);
                    }
                    for done in waiting {
                        // Whoever asked may wait no more.
                        let _ = done.send(());
                    }
                    if !is_news && asked.is_empty() {
                        continue;
                    }
                }
                Came::Asked => asked.append(&mut self.surveys.take()),
                Came::Tick | Came::Nudge => {}
            }
            let sighted = self.look_and_tell(&meter, &inbox).await;
            let is_due = !asked.is_empty() || (is_tick && self.cards.lock().lacks(&sighted));
            if survey.is_none() && is_due {
                let this = Arc::clone(&self);
                survey = Some((spawn_blocking(move || (this.survey)(sighted)), std::mem::take(&mut asked)));
            }
        }
    }

    async fn look_and_tell(&self, meter: &Arc<Meter>, inbox: &mpsc::WeakUnboundedSender<Post>) -> Sighted {
        // Without cards nobody's processes matter.
        let has_cards = !self.cards.lock().is_empty();
        let (before, _) = if has_cards { whose(meter, None).await } else { (BTreeMap::new(), Names::new()) };
        let sighted = match &self.drivers {
            Some(drivers) => drivers.look().await,
            None => Sighted { begun_at: now(), nvidia: None, amd: None },
        };
        if has_cards {
            let (after, names) = whose(meter, Some(self.servers.clone())).await;
            let ours = united(before, after);
            let cards = self.cards.lock().sights(&sighted, (&ours, &names));
            post(inbox, Input::Cards { begun_at: sighted.begun_at, cards });
        }
        sighted
    }

    /// The machine is not what it was taken for.
    fn take_up(&self, Found { host, graphics }: Found, inbox: &mpsc::WeakUnboundedSender<Post>) {
        let mut cards = self.cards.lock();
        *cards = cards.of(&host, graphics);
        drop(cards);
        post(inbox, Input::Host(host));
    }
}

/// What the looking waits for.
#[derive(Debug)]
enum Came {
    Tick,
    /// Somebody wants a look.
    Nudge,
    /// Somebody wants a survey.
    Asked,
    /// The survey ended, which so many waited for.
    Found(Option<Found>, Vec<oneshot::Sender<()>>),
}

/// Waits for the end of the survey that is under way, for ever if none is.
async fn end_of(survey: &mut Option<Surveying>) -> (Option<Found>, Vec<oneshot::Sender<()>>) {
    let Some((running, waiting)) = survey else { return pending().await };
    let found = running.await.ok().flatten();
    let waiting = std::mem::take(waiting);
    *survey = None;
    (found, waiting)
}

/// Whose processes are whose, and how all are called. On a thread that may block: that takes milliseconds.
async fn whose(meter: &Arc<Meter>, servers: Option<LocalServers>) -> (BTreeMap<Spawn, Ours>, Names) {
    let meter = Arc::clone(meter);
    let look = move || {
        let table = processes();
        let ours = meter.ours(&table, now());
        let called = |name: &str, pid| Called { name: name.to_owned(), counted_as: pid };
        let mut names = table.iter().map(|process| (process.pid, called(&process.name, process.pid))).collect();
        if let Some(servers) = servers {
            servers.all().rename(now(), &table, &mut names);
        }
        (ours, names)
    };
    spawn_blocking(look).await.unwrap_or_default()
}

/// The processes of both looks; what is held is what was held before.
fn united(mut before: BTreeMap<Spawn, Ours>, after: BTreeMap<Spawn, Ours>) -> BTreeMap<Spawn, Ours> {
    for (spawn, tree) in after {
        let ours = before.entry(spawn).or_default();
        ours.pids.extend(tree.pids);
        ours.pids.sort_unstable();
        ours.pids.dedup();
    }
    before
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cards::tests::{A, B, device, host};
    use motorpool_devices::{Driver, NvidiaReading};
    use motorpool_vocab::Bytes;
    use std::{sync::mpsc::channel, time::Duration};
    use tokio::time::timeout;

    /// Drivers that tell of both cards.
    fn both() -> Drivers {
        let nvidia = || NvidiaReading {
            driver: Driver::Loaded { version: None },
            devices: vec![device(A, 24, None), device(B, 24, None)],
            unnamed: vec![],
        };
        Drivers::of(nvidia, Vec::new).expect("threads")
    }

    async fn next(inbox: &mut mpsc::UnboundedReceiver<Post>) -> Input {
        match timeout(Duration::from_mins(1), inbox.recv()).await {
            Ok(Some(Post::Input(input))) => input,
            other => panic!("an input, not {other:?}"),
        }
    }

    fn n_cards(input: &Input) -> usize {
        if let Input::Cards { cards, .. } = input { cards.len() } else { panic!("a look, not {input:?}") }
    }

    #[tokio::test]
    async fn looks_go_on_with_what_is_known_until_a_survey_ends_and_one_with_what_it_found_follows_at_once() {
        let (release, held) = channel::<()>();
        let held = Mutex::new(held);
        let survey: Survey = Box::new(move |sighted| {
            held.lock().recv().ok()?;
            Some(Found { host: host(&[A, B]), graphics: Graphics::new(sighted.devices(), BTreeMap::new()) })
        });
        let graphics = Graphics::new(vec![device(A, 24, None)], BTreeMap::new());
        let devices = Devices { drivers: Some(both()), graphics, survey, ..Devices::default() };
        let lookout = Arc::new(Lookout::new(devices, &host(&[A])));
        let (sender, mut inbox) = mpsc::unbounded_channel();
        let running = tokio::spawn(Arc::clone(&lookout).run(Arc::default(), sender.downgrade()));
        for _ in 0..3 {
            assert_eq!(n_cards(&next(&mut inbox).await), 1, "the survey hangs");
            lookout.look();
        }
        release.send(()).expect("it waits");
        let mut input = next(&mut inbox).await;
        while let Input::Cards { cards, .. } = &input {
            assert_eq!(cards.len(), 1);
            input = next(&mut inbox).await;
        }
        assert!(matches!(&input, Input::Host(host) if host.cards.len() == 2), "{input:?}");
        assert_eq!(n_cards(&next(&mut inbox).await), 2);
        drop(sender);
        running.abort();
    }

    #[tokio::test]
    async fn whoever_asks_for_a_survey_hears_its_end_after_the_loop_and_one_that_had_begun_before_is_not_enough() {
        let (release, held) = channel::<usize>();
        let held = Mutex::new(held);
        let survey: Survey = Box::new(move |_| {
            let n = held.lock().recv().ok()?;
            Some(Found { host: host(&[A, B][..n]), graphics: Graphics::default() })
        });
        let surveys = Surveys::default();
        let graphics = Graphics::new(vec![device(A, 24, None), device(B, 24, None)], BTreeMap::new());
        let devices =
            Devices { drivers: Some(both()), graphics, survey, surveys: surveys.clone(), ..Devices::default() };
        let lookout = Arc::new(Lookout::new(devices, &host(&[A, B])));
        let (sender, mut inbox) = mpsc::unbounded_channel();
        let running = tokio::spawn(Arc::clone(&lookout).run(Arc::default(), sender.downgrade()));
        let hosts = async |inbox: &mut mpsc::UnboundedReceiver<Post>| loop {
            if let Input::Host(host) = next(inbox).await {
                return host.cards.len();
            }
        };
        let ask = || {
            let surveys = surveys.clone();
            tokio::spawn(async move { surveys.again().await })
        };
        // Drivers tell of those that are known: no survey begins by itself. The one that was asked for has begun once it
        // has its own hold on whoever looks.
        let first = ask();
        while !surveys.0.asked.lock().as_ref().is_some_and(Vec::is_empty) || Arc::strong_count(&lookout) < 3 {
            tokio::task::yield_now().await;
        }
        let second = ask();
        release.send(1).expect("it waits");
        assert_eq!(hosts(&mut inbox).await, 1);
        timeout(Duration::from_secs(10), first).await.expect("it is told").expect("no panic");
        assert!(!second.is_finished(), "what it asks for may have come later");
        release.send(2).expect("it waits");
        assert_eq!(hosts(&mut inbox).await, 2);
        timeout(Duration::from_secs(10), second).await.expect("it is told").expect("no panic");
        running.abort();
        let _ = running.await;
        drop(lookout);
        timeout(Duration::from_secs(10), surveys.again()).await.expect("nobody looks any more");
    }

    #[test]
    fn a_process_of_either_look_is_ours_and_what_came_meanwhile_was_not_held_before() {
        let on_cuda = |gib: u64| [("CUDA0".to_owned(), Bytes::gib(gib))].into();
        let tree = |pids: &[u32], held: Option<u64>| Ours { pids: pids.to_vec(), held: held.map(on_cuda) };
        let before = [(Spawn(1), tree(&[7, 8], None))].into();
        let after = [(Spawn(1), tree(&[8, 9], Some(5))), (Spawn(2), tree(&[10], Some(1)))].into();
        let ours = united(before, after);
        assert_eq!(ours[&Spawn(1)].pids, [7, 8, 9]);
        assert_eq!((&ours[&Spawn(1)].held, &ours[&Spawn(2)].held), (&None, &None));
        assert_eq!(ours[&Spawn(2)].pids, [10]);
    }
}
