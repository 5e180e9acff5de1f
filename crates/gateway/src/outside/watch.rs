//! [`Watch`]: one server as it was seen last, so that whoever lists waits for nobody; and how many requests are there.
use motorpool_external::{
    Autoload, Guest, Refusal, ServerError, Stay, View,
    residency::{Capacity, Phase, Resident, SETTLED, Seen},
};
use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Context,
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::{Instant, Sleep},
};

/// From one look at a server to the next, when nothing happens.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// What was looked at so short a time ago is not looked at again, unless somebody waits for what holds now: neither who
/// guesses names nor many requests keep a server busy.
const LOOK_HOLDS: Duration = Duration::from_secs(1);

/// What a server had when it was looked at.
#[derive(Clone, Debug)]
pub(crate) struct Sight {
    /// All that it offers, loaded or not, in its own order.
    pub(crate) rows: Vec<Seen>,
    /// What is in its memory, and whose that is.
    pub(crate) residents: Vec<Resident>,
    /// How much it takes.
    pub(crate) capacity: Capacity,
    /// A router: whether it heeds `autoload=0`.
    pub(crate) autoload: Option<Autoload>,
}

/// The last look.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sighting {
    /// What it had when it last answered; `None`: it never did.
    pub(crate) sight: Option<Arc<Sight>>,
    /// Why the last look failed; `None`: it did not.
    pub(crate) trouble: Option<Arc<str>>,
    /// Looks that ended.
    n_looks: u64,
}

/// The newest look, ended or not.
#[derive(Clone, Copy, Debug)]
struct Newest {
    /// Looks that began, with it.
    n: u64,
    began: Option<Instant>,
}

/// One server, watched.
#[derive(Debug)]
pub struct Watch {
    guest: Guest,
    seen: watch::Sender<Sighting>,
    newest: Mutex<Newest>,
    /// Something happened there: it is looked at soon.
    wanted: Notify,
    /// Somebody waits for a look: it begins at once.
    awaited: Notify,
    n_visits: watch::Sender<usize>,
}

/// A request's use of a model there, until it is dropped.
#[derive(Debug)]
pub(crate) struct Visit {
    // Ended before it is counted out.
    pub(crate) stay: Stay,
    /// When its pace is judged next though nothing comes.
    pulse: Pin<Box<Sleep>>,
    _count: Count,
}

impl Visit {
    fn new(stay: Stay, count: Count) -> Self {
        Self { stay, pulse: Box::pin(tokio::time::sleep(SETTLED)), _count: count }
    }

    /// Nothing comes, and `n_tokens` came: a reply that falls silent is slow too.
    pub(crate) fn poll_silence(&mut self, cx: &mut Context<'_>, n_tokens: u64) {
        while self.pulse.as_mut().poll(cx).is_ready() {
            self.stay.on_tokens(n_tokens);
            self.pulse.as_mut().reset(Instant::now() + SETTLED);
        }
    }
}

#[derive(Debug)]
struct Count(Arc<Watch>);

impl Drop for Count {
    fn drop(&mut self) {
        self.0.n_visits.send_modify(|n| *n -= 1);
        // Who uses what is another now.
        self.0.wanted.notify_one();
    }
}

impl Sight {
    /// The row that `name` means: by id before by alias.
    pub(crate) fn find(&self, name: &str) -> Option<&Seen> {
        let by_id = self.rows.iter().find(|seen| seen.id == name);
        by_id.or_else(|| self.rows.iter().find(|seen| seen.is_called(name)))
    }

    /// By what a server offers and what it holds. A resident goes by the name that is offered, its own is another name.
    fn new(models: Vec<String>, View { residents, capacity, autoload }: View) -> Self {
        let named = |id: String| match residents.iter().find(|one| one.seen.is_called(&id)) {
            None => Seen::new(id, Phase::Absent),
            Some(one) => {
                let mut seen = one.seen.clone();
                seen.aliases.push(std::mem::replace(&mut seen.id, id.clone()));
                seen.aliases.retain(|alias| *alias != id);
                seen
            }
        };
        let mut rows: Vec<Seen> = models.into_iter().map(named).collect();
        for one in &residents {
            if !rows.iter().any(|row| row.is_called(&one.seen.id)) {
                rows.push(one.seen.clone());
            }
        }
        Self { rows, residents, capacity, autoload }
    }
}

impl Watch {
    /// Of the server where `guest` stays; nothing is looked at yet.
    pub fn new(guest: Guest) -> Self {
        let newest = Mutex::new(Newest { n: 0, began: None });
        let (wanted, awaited) = (Notify::new(), Notify::new());
        Self { guest, seen: watch::Sender::default(), newest, wanted, awaited, n_visits: watch::Sender::default() }
    }

    /// What we have there.
    pub fn guest(&self) -> &Guest {
        &self.guest
    }

    /// What was seen of it last.
    pub(crate) fn seen(&self) -> Sighting {
        self.seen.borrow().clone()
    }

    /// Looks again and again: soon when something happened there, at once when somebody waits for it. Never ends.
    pub async fn keep_looking(&self) {
        loop {
            let began = Instant::now();
            let newest = {
                let mut newest = self.newest();
                *newest = Newest { n: newest.n + 1, began: Some(began) };
                *newest
            };
            let look = self.look().await;
            self.seen.send_modify(|sighting| {
                sighting.n_looks = newest.n;
                match look {
                    Ok(sight) => (sighting.sight, sighting.trouble) = (Some(Arc::new(sight)), None),
                    Err(why) => sighting.trouble = Some(why.to_string().into()),
                }
            });
            let when_due = async {
                let _ = tokio::time::timeout(LOOK_EVERY, self.wanted.notified()).await;
                tokio::time::sleep_until(began + LOOK_HOLDS).await;
            };
            tokio::select! {
                () = self.awaited.notified() => {}
                () = when_due => {}
            }
        }
    }

    fn newest(&self) -> MutexGuard<'_, Newest> {
        // What a panic left is still a number and a time.
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn look(&self) -> Result<Sight, ServerError> {
        let (view, models) = tokio::join!(self.guest.look(), self.guest.models());
        let view = view?;
        Ok(Sight::new(models?, view))
    }

    /// Waits for a look at each of them that begins from now on, or began a moment ago, at most `within` in all.
    pub async fn look_at_all(watches: impl Iterator<Item = Arc<Self>>, within: Duration) {
        Self::look_at_each(watches, LOOK_HOLDS, within).await;
    }

    /// The same; one that began before does not do.
    pub(crate) async fn look_again_at_all(watches: impl Iterator<Item = Arc<Self>>, within: Duration) {
        Self::look_at_each(watches, Duration::ZERO, within).await;
    }

    async fn look_at_each(watches: impl Iterator<Item = Arc<Self>>, age: Duration, within: Duration) {
        let look = |watch: Arc<Self>| async move { watch.look_since(age, within).await };
        let mut looks: JoinSet<()> = watches.map(look).collect();
        while looks.join_next().await.is_some() {}
    }

    /// Waits for a look that begins from now on, at most `within`.
    pub(crate) async fn look_again(&self, within: Duration) {
        self.look_since(Duration::ZERO, within).await;
    }

    /// Waits, at most `within`, for a look that is not older than `age` at its beginning.
    async fn look_since(&self, age: Duration, within: Duration) {
        let newest = *self.newest();
        let is_new = newest.began.is_some_and(|began| began.elapsed() < age);
        let wanted = if is_new { newest.n } else { newest.n + 1 };
        let mut seen = self.seen.subscribe();
        if !is_new {
            self.awaited.notify_one();
        }
        let _ = tokio::time::timeout(within, seen.wait_for(|sighting| sighting.n_looks >= wanted)).await;
    }

    /// Makes `model` resident by the rules, for a request that wants `context` tokens, and holds it until the answer is
    /// dropped. Our own requests that are in the way are waited for, at most `within`.
    pub(crate) async fn visit(
        self: &Arc<Self>,
        (model, context): (&str, Option<u32>),
        within: Duration,
    ) -> Result<Visit, Refusal> {
        self.n_visits.send_modify(|n| *n += 1);
        let count = Count(Arc::clone(self));
        let stay = self.guest.prepare_asking((model, context), within).await;
        self.wanted.notify_one();
        Ok(Visit::new(stay?, count))
    }

    /// Waits until no request is there.
    pub async fn quiet(&self) {
        // The sender is ours: it does not go.
        let _ = self.n_visits.subscribe().wait_for(|n| *n == 0).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_external::{
        Guests, Setting, Target,
        residency::{Kind, Owner, Protection, Used},
    };
    use std::net::TcpListener;

    fn resident(id: &str, alias: &str) -> Resident {
        let mut seen = Seen::new(id, Phase::Loaded);
        seen.aliases = vec![alias.to_owned()];
        Resident { seen, owner: Owner::Foreign, protection: Protection::None, used: Used::Idle(None) }
    }

    #[test]
    fn what_is_offered_and_what_is_loaded_is_one_row_by_whatever_name() {
        let models = ["a", "key", "c"].map(str::to_owned).to_vec();
        let residents = vec![resident("key:2", "key"), resident("x", "y"), resident("c", "d")];
        let sight = Sight::new(models, View { residents, capacity: Capacity::Unknown, autoload: None });
        let rows: Vec<_> = sight.rows.iter().map(|row| (row.id.as_str(), row.phase, row.aliases.clone())).collect();
        let list = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(
            rows,
            [
                ("a", Phase::Absent, list(&[])),
                ("key", Phase::Loaded, list(&["key:2"])),
                ("c", Phase::Loaded, list(&["d"])),
                ("x", Phase::Loaded, list(&["y"])),
            ]
        );
        assert_eq!(sight.find("key:2").map(|row| row.id.as_str()), Some("key"));
        assert_eq!(sight.find("z"), None);
    }

    /// A server that takes connections and says nothing.
    fn silent() -> (TcpListener, Arc<Watch>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
        let url = format!("http://{}", listener.local_addr().expect("its own"));
        let setting = Setting {
            run: "/nowhere".into(),
            journal: None,
            lock_within: Duration::ZERO,
            now: || motorpool_vocab::Now::ZERO,
            sink: Arc::new(|_| ()),
        };
        let target = Target::new("desk", Kind::Router, url.parse().expect("an address"));
        let guests = Guests::open(vec![target], setting).expect("open");
        let guest = guests.get("desk").expect("it is there").clone();
        (listener, Arc::new(Watch::new(guest)))
    }

    #[tokio::test(start_paused = true)]
    async fn silent_servers_are_waited_for_side_by_side() {
        let within = Duration::from_secs(1);
        let servers = [silent(), silent(), silent()];
        let began = Instant::now();
        Watch::look_at_all(servers.iter().map(|(_, watch)| Arc::clone(watch)), within).await;
        assert!(began.elapsed() < 2 * within, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_was_looked_at_a_moment_ago_is_not_asked_again() {
        let (_listener, watch) = silent();
        let looking = tokio::spawn({
            let watch = Arc::clone(&watch);
            async move { watch.keep_looking().await }
        });
        let look = || Watch::look_at_all([Arc::clone(&watch)].into_iter(), Duration::from_mins(1));
        let n_looks = || watch.seen().n_looks;
        look().await;
        assert_eq!(n_looks(), 1);
        // The look itself took longer than it holds.
        look().await;
        assert_eq!(n_looks(), 2);
        watch.newest().began = Some(Instant::now());
        look().await;
        assert_eq!(n_looks(), 2);
        looking.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_is_under_way_is_none_that_begins_from_now_on() {
        let (_listener, watch) = silent();
        let mut looking = std::pin::pin!(watch.keep_looking());
        assert!(is_pending(looking.as_mut()).await, "the first look has begun");
        let mut again = std::pin::pin!(watch.look_again(Duration::from_mins(1)));
        tokio::select! {
            () = &mut looking => {}
            () = &mut again => {}
        }
        assert_eq!(watch.seen().n_looks, 2);
    }

    /// Whether it waits, once it was polled.
    async fn is_pending(mut future: std::pin::Pin<&mut impl Future<Output = ()>>) -> bool {
        std::future::poll_fn(|context| std::task::Poll::Ready(future.as_mut().poll(context).is_pending())).await
    }

    #[tokio::test(start_paused = true)]
    async fn however_much_happens_there_a_server_is_looked_at_once_in_a_while() {
        let (listener, watch) = silent();
        // Nobody listens: each look ends at once.
        drop(listener);
        let looking = tokio::spawn({
            let watch = Arc::clone(&watch);
            async move { watch.keep_looking().await }
        });
        for _ in 0..100 {
            watch.wanted.notify_one();
            tokio::time::sleep(LOOK_HOLDS / 50).await;
        }
        let n = watch.seen().n_looks;
        assert!((1..=3).contains(&n), "{n} looks in two such whiles");
        looking.abort();
    }
}
