//! What systemd is told, and the sockets that it passes, with a socket of the test's own in its place.
use crate::support::{assert_serves, gate, pausing, stream_until};
use motorpool_testkit::{Behaviour, Client};
use motorpool_tests::e2e::{
    House,
    processes::{self, one},
    talk::{CHAT, Said, ask, chat},
};
use motorpool_vocab::Endpoint;
use nix::sys::signal::Signal;
use std::{
    fs,
    io::Read as _,
    net::TcpListener,
    os::{
        fd::OwnedFd,
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    },
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

/// A bound on a daemon that says nothing, not a measurement.
const PATIENCE: Duration = Duration::from_mins(1);

/// The other end of `NOTIFY_SOCKET`.
pub(crate) struct Manager(UnixDatagram);

impl Manager {
    pub(crate) fn at_path(house: &mut House) -> Self {
        let path = house.path("notify.sock");
        house.set_env("NOTIFY_SOCKET", path.to_str().expect("UTF-8"));
        Self::hearing(UnixDatagram::bind(path).expect("a free path"))
    }

    fn abstract_socket(house: &mut House) -> Self {
        let name = format!("motorpool-test-{}", house.folder().file_name().expect("named").display());
        house.set_env("NOTIFY_SOCKET", &format!("@{name}"));
        let address = SocketAddr::from_abstract_name(name).expect("a name");
        Self::hearing(UnixDatagram::bind_addr(&address).expect("free"))
    }

    fn hearing(socket: UnixDatagram) -> Self {
        socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a socket");
        Self(socket)
    }

    /// What is told next; `None` when nothing is for a second.
    async fn next(&self) -> Option<String> {
        let socket = self.0.try_clone().expect("a descriptor");
        tokio::task::spawn_blocking(move || {
            let mut text = [0; 4096];
            let n = socket.recv(&mut text).ok()?;
            Some(String::from_utf8_lossy(&text[..n]).into_owned())
        })
        .await
        .expect("no panic")
    }

    /// What was told and not heard yet, once nobody tells any more.
    pub(crate) async fn rest(&self) -> Vec<String> {
        let mut heard = Vec::new();
        while let Some(text) = self.next().await {
            heard.push(text);
        }
        heard
    }

    /// Everything until one message holds `word`.
    pub(crate) async fn until(&self, word: &str) -> Vec<String> {
        let (mut heard, until) = (Vec::new(), Instant::now() + PATIENCE);
        while Instant::now() < until {
            heard.extend(self.next().await);
            if heard.last().is_some_and(|text| text.contains(word)) {
                return heard;
            }
        }
        panic!("never told: {word}; told: {heard:?}")
    }
}

#[tokio::test]
async fn it_is_told_when_we_serve_how_we_are_and_that_we_stop_and_engines_know_nothing_of_it() {
    for abstract_socket in [false, true] {
        let mut house = House::new();
        let manager = if abstract_socket { Manager::abstract_socket(&mut house) } else { Manager::at_path(&mut house) };
        for (name, value) in [("WATCHDOG_USEC", "2000000"), ("LISTEN_FDS", "1"), ("LISTEN_PID", "1")] {
            house.set_env(name, value);
        }
        let model = house.fake("a", &Behaviour::default());
        let daemon = house.start().await;
        let first = manager.until("READY=1").await;
        assert_eq!(first.len(), 1, "{first:?}");
        assert!(first[0].contains("STATUS=serving on http://127.0.0.1:"), "{first:?}");
        assert_eq!(daemon.http().get("/ready").await.expect("an answer").status, 200);
        assert_serves(&daemon, "a").await;
        manager.until("1 engines").await;
        for pid in [model.starts()[0].pid, one(model.starts()[0].pid).expect("it runs").parent] {
            let environment = fs::read_to_string(format!("/proc/{pid}/environ")).expect("it runs");
            let ours = |entry: &&str| ["NOTIFY_", "WATCHDOG_", "LISTEN_"].iter().any(|name| entry.starts_with(name));
            assert_eq!(environment.split('\0').find(ours), None);
        }
        daemon.stop().await;
        manager.until("STOPPING=1").await;
    }
}

#[tokio::test]
async fn a_grace_that_is_longer_than_systemd_waits_is_asked_for_as_long_as_it_lasts() {
    let mut house = House::new();
    let manager = Manager::at_path(&mut house);
    house.set("shutdown.grace", "10m");
    let go_on = gate(&house, "go-on");
    house.fake("a", &pausing(20, 10, &go_on));
    let mut daemon = house.start().await;
    let (stream, _) = stream_until(&daemon, ("a", "hello"), 9).await;
    daemon.signal(Signal::SIGTERM);
    let told = manager.until("STOPPING=1").await.pop().expect("told");
    assert!(told.lines().any(|line| line == "EXTEND_TIMEOUT_USEC=30000000"), "{told}");
    // It would run out before the grace does: it is asked for again, and again.
    for _ in 0..2 {
        let told = manager.until("EXTEND_TIMEOUT_USEC=30000000").await;
        assert!(told.iter().all(|told| !told.contains("STOPPING=1")), "{told:?}");
    }
    go_on.open().expect("opened");
    assert!(Said::read(&stream.whole().await.expect("its end").text()).is_done);
    assert_eq!(daemon.ended().await.code(), Some(0), "{}", daemon.log());
    processes::assert_none(&house);
}

#[tokio::test]
async fn a_watchdog_is_fed_while_the_one_loop_turns_and_starves_when_it_hangs() {
    let mut house = House::new();
    let manager = Manager::at_path(&mut house);
    house.set_env("WATCHDOG_USEC", "200000");
    house.set("log.level", "error");
    house.fake_with("too-large", &Behaviour::default(), "declared = \"4GiB\"\n");
    house.write_config();
    // The line of a denial is written by the loop: a reader of the log that reads nothing holds it up.
    let (mut log, full) = std::io::pipe().expect("a pipe");
    fill(&full);
    let mut command = house.command(&["serve"]);
    command.stdout(Stdio::piped()).stderr(Stdio::from(OwnedFd::from(full)));
    let (mut child, address) = serving(command).await;
    manager.until("WATCHDOG=1").await;
    manager.until("WATCHDOG=1").await;
    let asked = tokio::spawn(async move { address.post(CHAT, &chat("too-large", "hello")).await });
    // A second without a word is ten times what is usual.
    let until = Instant::now() + PATIENCE;
    while manager.next().await.is_some() {
        assert!(Instant::now() < until, "it is fed for ever");
    }
    let mut drained = [0; 1 << 12];
    assert!(log.read(&mut drained).expect("a pipe") > 0);
    manager.until("WATCHDOG=1").await;
    assert_eq!(asked.await.expect("no panic").expect("an answer").status, 503);
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    end(&mut child).await;
    processes::assert_none(&house);
}

/// Until nothing more goes into it.
fn fill(pipe: &std::io::PipeWriter) {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let flags = OFlag::from_bits_retain(fcntl(pipe, FcntlArg::F_GETFL).expect("a pipe"));
    fcntl(pipe, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).expect("a pipe");
    while nix::unistd::write(pipe, &[b'\n'; 4096]).is_ok() {}
    while nix::unistd::write(pipe, b"\n").is_ok() {}
    fcntl(pipe, FcntlArg::F_SETFL(flags)).expect("a pipe");
}

/// A daemon that is no [`motorpool_tests::e2e::Daemon`], and its address, once it listens.
async fn serving(mut command: Command) -> (Child, Client) {
    let mut child = command.spawn().expect("it runs");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("it says where").expect("text");
    let line = line.expect("a line");
    let address = line.strip_prefix("listening on ").expect("an address");
    let endpoint = match address.strip_prefix("unix:") {
        Some(path) => Endpoint::Unix(path.into()),
        None => Endpoint::Tcp(address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port")),
    };
    (child, Client::new(endpoint))
}

async fn end(child: &mut Child) {
    motorpool_tests::e2e::daemon::send(child.id().expect("it runs"), Signal::SIGTERM);
    let status = tokio::time::timeout(PATIENCE, child.wait()).await.expect("it ends").expect("ours");
    assert_eq!(status.code(), Some(0));
}

/// `motorpool serve` in this house with `socket` passed to it as systemd does.
fn activated(house: &House, socket: OwnedFd) -> Command {
    let script = "exec 3<&0 0</dev/null; export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=door; exec \"$@\"";
    let mut command = house.command_through(script, &["serve"]);
    command.stdin(Stdio::from(socket)).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[tokio::test]
async fn a_passed_socket_is_served_on_in_the_place_of_the_configured_address() {
    let mut house = House::new();
    let model = house.fake("a", &Behaviour::default());
    house.write_config();
    let door = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = door.local_addr().expect("bound");
    let (mut child, client) = serving(activated(&house, door.into())).await;
    let answer = client.post(CHAT, &ask("a", "hello")).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let by_hand = Client::new(Endpoint::Tcp(address.port())).post(CHAT, &chat("a", "hello")).await.expect("the same");
    assert!(Said::read(&by_hand.text()).is_done);
    let pid = child.id().expect("it runs");
    let listens = |folder: &Path| fs::read_dir(folder).expect("it runs").count();
    assert!(listens(Path::new(&format!("/proc/{pid}/fd"))) > 3);
    // Nothing of it is inherited: neither by the engine nor by its keeper.
    for pid in [model.starts()[0].pid, one(model.starts()[0].pid).expect("it runs").parent] {
        assert!(!motorpool_devices::listens(address.port(), &[pid]), "{pid}");
    }
    assert!(motorpool_devices::listens(address.port(), &[pid]));
    end(&mut child).await;
    processes::assert_none(&house);
}

#[tokio::test]
async fn a_passed_socket_that_is_open_to_everybody_is_refused_with_the_setting_that_helps() {
    let house = House::new();
    house.write_config();
    let everywhere = TcpListener::bind("0.0.0.0:0").expect("a free port");
    let output = activated(&house, everywhere.into()).output().await.expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("can be reached from other machines") && said.contains("motorpool key new"), "{said}");
    processes::assert_none(&house);
}
