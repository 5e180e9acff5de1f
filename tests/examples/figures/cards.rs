//! Figures of graphics cards, which are the fake driver's: how much of one can be used, what a reading costs, how soon
//! memory that is given back is given out again.
use crate::{row, spread};
use motorpool_devices::{
    Amdgpu, Nvidia, descendants, observe_memory_pressure, observe_private, observe_ram, processes,
};
use motorpool_testkit::{Behaviour, GraphicsClaim, eventually};
use motorpool_tests::e2e::{
    Daemon, House,
    cards::{CARDS, Cards},
};
use motorpool_vocab::{GIB, MIB};
use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

const CARD: u64 = 24 * GIB;
/// Too small for anything.
const NO_CARD: u64 = 64 * MIB;
const N_READINGS: usize = 201;
const N_EXITS: usize = 15;
const IDLE_FOR: Duration = Duration::from_secs(30);

fn claiming(mib: u64) -> Behaviour {
    let claim = GraphicsClaim { bytes: mib * MIB, ..GraphicsClaim::default() };
    Behaviour { graphics: vec![claim], ..Behaviour::default() }
}

/// Models that nothing evicts are loaded, each half as large as the one before, and again while they fit.
pub(crate) async fn share() {
    let mut house = House::new();
    let sizes: Vec<u64> = (3..14).rev().flat_map(|power| [1 << power; 2]).collect();
    for (n, mib) in sizes.iter().enumerate() {
        let entry = format!("declared = \"{mib}MiB\"\npinned = true\nslots = 1\n");
        house.fake_with(&format!("m{n}"), &claiming(*mib), &entry);
    }
    let _cards = Cards::put_in(&mut house, [CARD, NO_CARD], "");
    let daemon = house.start().await;
    let mut denied = 0;
    for n in 0..sizes.len() {
        let outcome = daemon.cli(&["load", &format!("m{n}")]).await;
        denied += u32::from(outcome.code != Some(0));
    }
    let card = daemon.status().await.card(CARDS[0]).clone();
    let per_mille = card.committed_bytes * 1000 / CARD;
    let share = format!(
        "{}.{} % ({} of {} MiB; {denied} denied)",
        per_mille / 10,
        per_mille % 10,
        card.committed_bytes / MIB,
        CARD / MIB
    );
    row("share of a 24 GiB card usable before a denial", &share);
    daemon.stop().await;
}

/// The sources one by one, and what they cost a daemon with two engines that does nothing else.
pub(crate) async fn reading() {
    let mut house = House::new();
    for id in ["a", "b"] {
        house.fake_with(id, &claiming(1024), "declared = \"1GiB\"\n");
    }
    let cards = Cards::put_in(&mut house, [CARD, CARD], "");
    let daemon = house.start().await;
    for id in ["a", "b"] {
        assert_eq!(daemon.cli(&["load", id]).await.code, Some(0), "{}", daemon.log());
    }
    let mut nvidia = Nvidia::new(Some(cards.library()));
    let mut amd = Amdgpu::new(Path::new("/"));
    let root = Path::new("/");
    row("reading two cards of the fake driver", &timed(|| assert_eq!(nvidia.observe().devices.len(), 2)));
    row("looking for AMD's devices, none there", &timed(|| drop(std::hint::black_box(amd.observe()))));
    row(
        "reading system memory and its pressure",
        &timed(|| {
            let _ = std::hint::black_box((observe_ram(root), observe_memory_pressure(root)));
        }),
    );
    row(
        "reading all processes and the trees of two engines",
        &timed(|| {
            std::hint::black_box(processes());
            std::hint::black_box(observe_private(root, &descendants(daemon.pid())));
        }),
    );
    daemon.until_quiet().await;
    let before = processor_time(daemon.pid());
    tokio::time::sleep(IDLE_FOR).await;
    let spent = processor_time(daemon.pid()).saturating_sub(before);
    let each = spent / u32::try_from(IDLE_FOR.as_secs() / 5).expect("small");
    row(
        "processor time of an idle daemon in 5 s: all readings, 5 ticks",
        &format!("{:.1} ms", each.as_secs_f64() * 1000.0),
    );
    daemon.stop().await;
}

fn timed(mut read: impl FnMut()) -> String {
    let once = |_| {
        let began = Instant::now();
        read();
        began.elapsed()
    };
    let times: Vec<Duration> = (0..N_READINGS).map(once).collect();
    spread(&times)
}

/// Of all its threads.
fn processor_time(pid: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    let nanos = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}

/// Two engines of which a card holds one take turns. The driver shows memory as free when its process is gone.
pub(crate) async fn exit() {
    let mut house = House::new();
    for id in ["a", "b"] {
        house.fake_with(id, &claiming(20 << 10), "declared = \"20GiB\"\n");
    }
    let _cards = Cards::put_in(&mut house, [CARD, NO_CARD], "lag-ms 0\n");
    let daemon = house.start().await;
    let mut times = vec![];
    for n in 0..=N_EXITS {
        let (next, last) = if n % 2 == 0 { ("a", "b") } else { ("b", "a") };
        assert_eq!(daemon.cli(&["load", next]).await.code, Some(0), "{}", daemon.log());
        if n > 0 {
            times.push(from_exit_to_admission(&daemon, (last, next)).await);
        }
    }
    row("exit of an engine to admission in its place, lag 0", &spread(&times));
    daemon.stop().await;
}

/// By the times of the two lines.
async fn from_exit_to_admission(daemon: &Daemon<'_>, (last, next): (&str, &str)) -> Duration {
    let log = eventually("both lines", async || {
        let log = daemon.log();
        (time_of(&log, "] exit {", last).is_some() && time_of(&log, " reserved ", next).is_some()).then_some(log)
    })
    .await;
    let at = |what: &str, model: &str| time_of(&log, what, model).expect("just seen");
    at(" reserved ", next).saturating_sub(at("] exit {", last))
}

/// The time of day of the last line about `model` that holds `what`.
fn time_of(log: &str, what: &str, model: &str) -> Option<Duration> {
    let is_it = |line: &&str| line.contains(what) && line.contains(&format!(":{model}:"));
    let line = log.lines().rev().find(is_it)?;
    let (_, time) = line.split_once('T')?;
    let (time, _) = time.split_once('Z')?;
    let mut parts = time.split([':', '.']);
    let mut number = || parts.next()?.parse::<u64>().ok();
    let seconds = number()? * 3600 + number()? * 60 + number()?;
    Some(Duration::from_secs(seconds) + Duration::from_micros(number()?))
}
