//! Graphics cards made of numbers: what children claim there is taken while they live, and given back when they are
//! gone, at once or later.
use motorpool_pool::{CardFigures, CardSight, Facts, Host, HostShape, Tenant};
use motorpool_vocab::{Bytes, Claim, DeviceId, FileId, Now, Spawn};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Which figures a driver tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tells {
    ByProcess,
    TotalsOnly,
}

/// How a card answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Well,
    Missing,
    Lost,
}

/// Whether a look is answered at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    AtOnce,
    Never,
}

/// The cards, and who holds what there.
#[derive(Debug)]
pub(crate) struct Machine {
    totals: BTreeMap<DeviceId, Bytes>,
    pub(crate) held: BTreeMap<Spawn, BTreeMap<DeviceId, Bytes>>,
    /// What children that are gone have not given back until then.
    ghosts: Vec<(Spawn, BTreeMap<DeviceId, Bytes>, Now)>,
    /// From the end of a child until its memory is back.
    pub(crate) lag: Duration,
    /// What others use.
    pub(crate) foreign: BTreeMap<DeviceId, Bytes>,
    pub(crate) health: BTreeMap<DeviceId, Health>,
    pub(crate) tells: Tells,
    pub(crate) answers: Answers,
    /// How much of its claim a child takes once it is started, in thousandths.
    pub(crate) takes: u64,
    /// What a child that became ready reports of its buffers, when it reports.
    pub(crate) reports: Option<&'static str>,
}

/// A buffer that is on a device.
pub(crate) const ON_DEVICE: &str = "load_tensors: CUDA0 model buffer size = 1.00 MiB";
/// One that is not.
pub(crate) const ON_PROCESSOR: &str = "load_tensors: CPU model buffer size = 7000.00 MiB";

pub(crate) fn card(n: usize) -> DeviceId {
    DeviceId(format!("GPU-{n}").into())
}

impl Machine {
    pub(crate) fn of(host: &Host) -> Self {
        let discrete = host.shape == HostShape::DiscreteGpu;
        let cards = host.cards.iter().filter(|_| discrete);
        let totals: BTreeMap<_, _> = cards.map(|card| (card.id.clone(), card.total)).collect();
        Self {
            held: BTreeMap::new(),
            ghosts: vec![],
            lag: Duration::ZERO,
            foreign: BTreeMap::new(),
            health: BTreeMap::new(),
            tells: Tells::ByProcess,
            answers: Answers::AtOnce,
            takes: 1000,
            // Children that none of their cards can show are believed by what they report.
            reports: (!totals.is_empty()).then_some(ON_DEVICE),
            totals,
        }
    }

    pub(crate) fn started(&mut self, spawn: Spawn, claim: &Claim) {
        let taken = claim.device.iter().map(|(id, bytes)| (id.clone(), bytes.per_mille(self.takes)));
        self.held.insert(spawn, taken.collect());
    }

    pub(crate) fn gone(&mut self, now: Now, spawn: Spawn) {
        if let Some(held) = self.held.remove(&spawn) {
            self.ghosts.push((spawn, held, now.after(self.lag)));
        }
    }

    /// What a look at `now` shows.
    pub(crate) fn look(&self, now: Now) -> BTreeMap<DeviceId, CardSight> {
        self.totals.iter().map(|(id, total)| (id.clone(), self.sight(now, id, *total))).collect()
    }

    fn sight(&self, now: Now, id: &DeviceId, total: Bytes) -> CardSight {
        match self.health.get(id) {
            Some(Health::Missing) => return CardSight::Missing,
            Some(Health::Lost) => return CardSight::Lost,
            Some(Health::Well) | None => {}
        }
        let foreign = self.foreign.get(id).copied().unwrap_or_default();
        let by_spawn = self.by_spawn(now, id);
        let used = Bytes::sum(by_spawn.values().copied()).saturating_add(foreign);
        let tenant = Tenant { pid: 4711, name: Some("blender".into()), bytes: foreign };
        let tells = self.tells == Tells::ByProcess;
        CardSight::Seen(CardFigures {
            total,
            free: total.saturating_sub(used),
            by_spawn: tells.then_some(by_spawn),
            tenants: if tells && !foreign.is_zero() { vec![tenant] } else { vec![] },
        })
    }

    /// What is really there of each of our children.
    fn by_spawn(&self, now: Now, id: &DeviceId) -> BTreeMap<Spawn, Bytes> {
        let ghosts = self.ghosts.iter().filter(|(_, _, until)| *until > now).map(|(spawn, held, _)| (spawn, held));
        let on = |(spawn, held): (&Spawn, &BTreeMap<DeviceId, Bytes>)| {
            held.get(id).filter(|bytes| !bytes.is_zero()).map(|bytes| (*spawn, *bytes))
        };
        self.held.iter().chain(ghosts).filter_map(on).collect()
    }

    /// Whether one of `cards` that is well and tells whose memory is whose shows some of a child.
    pub(crate) fn is_shown_on(&self, cards: &BTreeSet<DeviceId>, (now, spawn): (Now, Spawn)) -> bool {
        let figures = |sight: &CardSight| sight.figures().and_then(|figures| figures.by_spawn.clone());
        let shows = |(id, sight): (&DeviceId, &CardSight)| {
            cards.contains(id) && figures(sight).is_some_and(|shown| shown.contains_key(&spawn))
        };
        self.look(now).iter().any(shows)
    }
}

/// What a look at files and program finds.
pub(crate) fn facts() -> Facts {
    Facts {
        files: vec![(FileId { device: 1, inode: 1, size: 1, mtime_nanos: 0 }, Bytes::mib(100))],
        context_length: Some(8192),
        architecture: Some("llama".into()),
        ..Facts::bare("/bin/engine", "/models/x.gguf")
    }
}
