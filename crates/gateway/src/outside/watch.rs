//! [`Watch`]: one server as it was seen last, so that whoever lists waits for nobody; and how many requests are there.
use motorpool_external::{
    Autoload, Guest, Refusal, ServerError, Stay, View,
    residency::{Capacity, Phase, Resident, Seen},
};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::Instant,
};

/// From one look at a server to the next, when nothing happens.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// A name that nobody had so short a time ago is not asked for again: whoever guesses names keeps no server busy.
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
    n_looks: u64,
    /// When the last look began.
    looked_at: Option<Instant>,
}

/// One server, watched.
#[derive(Debug)]
pub struct Watch {
    guest: Guest,
    seen: watch::Sender<Sighting>,
    wanted: Notify,
    n_visits: watch::Sender<usize>,
}

/// A request's use of a model there, until it is dropped.
#[derive(Debug)]
pub(crate) struct Visit {
    // Ended before it is counted out.
    pub(crate) stay: Stay,
    _count: Count,
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
        Self { guest, seen: watch::Sender::default(), wanted: Notify::new(), n_visits: watch::Sender::default() }
    }

    /// What we have there.
    pub fn guest(&self) -> &Guest {
        &self.guest
    }

    /// What was seen of it last.
    pub(crate) fn seen(&self) -> Sighting {
        self.seen.borrow().clone()
    }

    /// Looks again and again, and at once when something happened there. Never ends.
    pub async fn keep_looking(&self) {
        loop {
            let began = Instant::now();
            let look = self.look().await;
            self.seen.send_modify(|sighting| {
                sighting.n_looks += 1;
                sighting.looked_at = Some(began);
                match look {
                    Ok(sight) => (sighting.sight, sighting.trouble) = (Some(Arc::new(sight)), None),
                    Err(why) => sighting.trouble = Some(why.to_string().into()),
                }
            });
            let _ = tokio::time::timeout(LOOK_EVERY, self.wanted.notified()).await;
        }
    }

    async fn look(&self) -> Result<Sight, ServerError> {
        let (view, models) = tokio::join!(self.guest.look(), self.guest.models());
        let view = view?;
        Ok(Sight::new(models?, view))
    }

    /// Waits for a look at each of them that begins from now on, or began a moment ago, at most `within` in all.
    pub(crate) async fn look_at_all(watches: impl Iterator<Item = Arc<Self>>, within: Duration) {
        let stale = watches.filter(|watch| watch.seen.borrow().looked_at.is_none_or(|at| at.elapsed() >= LOOK_HOLDS));
        let mut looks: JoinSet<()> = stale.map(|watch| async move { watch.look_again(within).await }).collect();
        while looks.join_next().await.is_some() {}
    }

    /// Waits for a look that begins from now on, at most `within`; the first one is under way from the start.
    pub(crate) async fn look_again(&self, within: Duration) {
        let mut seen = self.seen.subscribe();
        let before = seen.borrow().n_looks;
        if before > 0 {
            self.wanted.notify_one();
        }
        let _ = tokio::time::timeout(within, seen.wait_for(|sighting| sighting.n_looks > before)).await;
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
        Ok(Visit { stay: stay?, _count: count })
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
        watch.seen.send_modify(|sighting| sighting.looked_at = Some(Instant::now()));
        look().await;
        assert_eq!(n_looks(), 2);
        looking.abort();
    }
}
