//! [`Servers`]: model servers that somebody else runs, from the sections of a configuration to guests there and back out
//! again.
//!
//! Nothing waits for a server at the start: it is looked at as soon as there is time, and a dead one is only a row without
//! models. On the way out all that is ours is given back, on all servers at once.
//!
//! A program that embeds the pool says the same as `[[external]]` and `[[protect]]` do, and gives what comes of it to the
//! gateway ([`Servers::outside`]) or asks for models itself ([`Servers::guests`]):
//!
//! ```no_run
//! use motorpool::{catalog, servers};
//!
//! # async fn example(handle: &motorpool::supervisor::PoolHandle) -> Result<(), Box<dyn std::error::Error>> {
//! let desk = catalog::External {
//!     default_model: Some("qwen3:8b".into()),
//!     ..catalog::External::new("desk", catalog::ExternalKind::Ollama, "http://127.0.0.1:11434".parse()?)
//! };
//! let protect = [catalog::Protect { model: "qwen3:8b".into(), role: catalog::ProtectRole::Chat, target: None }];
//! let place = servers::Place { run: "/run/user/1000".into(), journal: Some("/var/lib/mine/external.jsonl".into()) };
//! let servers = servers::Servers::open((&[desk], &protect), place, servers::teller(handle.clone()))?;
//! let guests = servers.guests();
//! let stay = guests.get("desk").ok_or("configured")?.prepare("qwen3:8b").await?;
//! println!("it answers as {}", stay.wire_model());
//! drop(stay);
//! servers.leave().await;
//! # Ok(())
//! # }
//! ```
use http::{HeaderMap, HeaderName, HeaderValue};
use motorpool_catalog::{External, ExternalKind, ExternalLifecycle, ExternalLoad, KeptFor, Protect, ProtectRole};
use motorpool_external::{
    Guest, Guests, KeepAlive, Key, LEAVE_WITHIN, Limits, News, OpenError, Setting, Sink, Target, Told,
};
use motorpool_gateway::{Outside, Watch};
use motorpool_residency::{Claim, Field, Kind, Level, Lifecycle, Notice, ProtectedSet, Role};
use motorpool_supervisor::{LocalServer, PoolHandle};
use motorpool_vocab::{EventKind, ExternalNotice, Fact};
use serde_json::{Map, Value};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::task::JoinSet;

/// Longest wait for the first look at servers that are new.
const LOOK_WITHIN: Duration = Duration::from_secs(2);

/// Why servers cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ServersError {
    /// The file with a server's key cannot be read.
    #[error("the key of `{id}` cannot be read from {}", path.display())]
    KeyFile {
        /// The server.
        id: String,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The variable with a server's key is not there.
    #[error("the key of `{id}` is to be in the variable {name}, which is not set")]
    KeyVariable {
        /// The server.
        id: String,
        /// The variable.
        name: String,
    },
    /// This server's key holds what no header can.
    #[error("the key of `{0}` holds what no header can")]
    BadKey(String),
    /// This server has a header that cannot be sent.
    #[error("`{0}` has a header that cannot be sent")]
    BadHeader(String),
    /// Two servers have this name.
    #[error("two servers are called `{0}`")]
    Twice(String),
    /// What is written down of an earlier run cannot be read, or a server must not be spoken to.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// Where guests keep what they know beside the servers.
#[derive(Clone, Debug)]
pub struct Place {
    /// The run directory of the user, not of this program: whoever of us changes a server locks it below `motorpool/` here.
    pub run: PathBuf,
    /// Where what is ours is written down, so that the next start gives it back; `None`: a crash leaves it where it is.
    pub journal: Option<PathBuf>,
}

/// Model servers that somebody else runs.
#[derive(Debug)]
pub struct Servers(Mutex<Now>);

/// What counts now.
#[derive(Debug)]
struct Now {
    guests: Arc<Guests>,
    all: Vec<Watched>,
    /// What counted before, as long as requests are there, or what is ours is being given back.
    past: Vec<Past>,
}

/// A server that is looked at again and again, as long as this is there.
#[derive(Debug)]
struct Watched {
    outside: Outside,
    _looks: JoinSet<()>,
}

#[derive(Debug)]
struct Past {
    watch: Arc<Watch>,
    /// Waits for the last request there; gives back what is ours there then, if the server is configured no more.
    end: JoinSet<()>,
}

/// Servers as `[[external]]` and `[[protect]]` have them now, which nobody goes by yet ([`Servers::take_over`]).
#[derive(Debug)]
pub struct Renewed {
    guests: Arc<Guests>,
    outside: Vec<Outside>,
}

impl Servers {
    /// A guest on each server of `[[external]]`, where `[[protect]]` holds; what happens there goes to `sink`
    /// ([`teller`]). From now on each is looked at again and again: this must be called within a runtime.
    pub fn open((servers, protect): (&[External], &[Protect]), place: Place, sink: Sink) -> Result<Self, ServersError> {
        let guests = guests((servers, protect), place, sink)?;
        let all = servers.iter().zip(guests.iter()).map(|one| Watched::new(outside(one))).collect();
        Ok(Self(Mutex::new(Now { guests: Arc::new(guests), all, past: Vec::new() })))
    }

    /// What the gateway serves of them: `outside` of its settings.
    pub fn outside(&self) -> Vec<Outside> {
        self.now().all.iter().map(|one| one.outside.clone()).collect()
    }

    /// The guests, for who asks for models without the gateway.
    pub fn guests(&self) -> Arc<Guests> {
        Arc::clone(&self.now().guests)
    }

    /// The same servers as they are configured now, keys in files and variables with them. Nothing changes yet. Reads files.
    pub fn renewed(&self, (servers, protect): (&[External], &[Protect])) -> Result<Renewed, ServersError> {
        let targets = targets(servers, protect)?;
        let now = self.now();
        let guests = now.guests.renewed(targets)?;
        let renewed = |(server, guest): (&External, &Guest)| match now.all.iter().find(|one| one.is_on(guest)) {
            Some(one) => Outside { config: Arc::new(server.clone()), watch: Arc::clone(&one.outside.watch) },
            None => outside((server, guest)),
        };
        let outside = servers.iter().zip(guests.iter()).map(renewed).collect();
        Ok(Renewed { guests: Arc::new(guests), outside })
    }

    /// From now on these are the servers; comes back when each that is new was looked at, after 2 s at most. Requests may go
    /// on to those of before until [`Self::let_go`].
    pub async fn take_over(&self, Renewed { guests, outside }: Renewed) {
        let fresh: Vec<_> = {
            let mut now = self.now();
            let mut before = std::mem::take(&mut now.all);
            let mut fresh = Vec::new();
            for one in outside {
                let known = before.iter().position(|known| Arc::ptr_eq(&known.outside.watch, &one.watch));
                if let Some(at) = known {
                    now.all.push(Watched { outside: one, ..before.swap_remove(at) });
                } else {
                    fresh.push(Arc::clone(&one.watch));
                    now.all.push(Watched::new(one));
                }
            }
            now.past.extend(before.into_iter().map(|one| Past { watch: one.outside.watch, end: JoinSet::new() }));
            guests.are_all();
            now.guests = guests;
            fresh
        };
        Watch::look_at_all(fresh.into_iter(), LOOK_WITHIN).await;
    }

    /// New requests go by what counts now alone: what is ours on servers that are configured no more is given back as soon
    /// as the last request there has ended.
    pub fn let_go(&self) {
        let mut now = self.now();
        let Now { guests, past, .. } = &mut *now;
        let is_left = |watch: &Watch| !guests.has(watch.guest().key());
        // A request of before that came late may have left something again, or the server did not answer.
        let holds = |watch: &Watch| is_left(watch) && !watch.guest().owned().is_empty();
        past.retain_mut(|one| one.end.is_empty() || one.end.try_join_next().is_none() || holds(&one.watch));
        for Past { watch, end } in past {
            // One that is configured again is not left.
            *end = JoinSet::new();
            let (watch, is_left) = (Arc::clone(watch), is_left(watch));
            end.spawn(async move {
                watch.quiet().await;
                if is_left {
                    watch.guest().leave(LEAVE_WITHIN).await;
                }
            });
        }
    }

    /// Waits until no request of the gateway is on any of them.
    pub async fn quiet(&self) {
        let watches: Vec<_> = {
            let now = self.now();
            let past = now.past.iter().map(|one| &one.watch);
            now.all.iter().map(|one| &one.outside.watch).chain(past).map(Arc::clone).collect()
        };
        for watch in watches {
            watch.quiet().await;
        }
    }

    /// Gives back all that is ours, in 2 s at most; whatever goes wrong is nobody's business any more.
    pub async fn leave(&self) {
        let (guests, past) = {
            let mut now = self.now();
            (Arc::clone(&now.guests), std::mem::take(&mut now.past))
        };
        let mut leaving = JoinSet::new();
        for Past { watch, .. } in past.into_iter().filter(|one| !guests.has(one.watch.guest().key())) {
            leaving.spawn(async move { watch.guest().leave(LEAVE_WITHIN).await });
        }
        guests.leave_all(LEAVE_WITHIN).await;
        while leaving.join_next().await.is_some() {}
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        // What a panic left are still lists of servers.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    fn new(outside: Outside) -> Self {
        let (watch, mut looks) = (Arc::clone(&outside.watch), JoinSet::new());
        looks.spawn(async move { watch.keep_looking().await });
        Self { outside, _looks: looks }
    }

    fn is_on(&self, guest: &Guest) -> bool {
        self.outside.watch.guest().is(guest)
    }
}

/// A guest on each of `servers`, for who looks only now and then; see [`Servers::open`].
pub fn guests(
    (servers, protect): (&[External], &[Protect]),
    Place { run, journal }: Place,
    sink: Sink,
) -> Result<Guests, ServersError> {
    let targets = targets(servers, protect)?;
    let lock_within = targets.iter().map(|target| target.limits.load).max().unwrap_or_default();
    let setting = Setting { run, journal, lock_within, now: motorpool_devices::now, sink };
    Ok(Guests::open(targets, setting)?)
}

fn targets(servers: &[External], protect: &[Protect]) -> Result<Vec<Target>, ServersError> {
    let is_second = |(n, server): (usize, &External)| servers[..n].iter().any(|other| other.id == server.id);
    if let Some((_, twice)) = servers.iter().enumerate().find(|one| is_second(*one)) {
        return Err(ServersError::Twice(twice.id.clone()));
    }
    servers.iter().map(|server| target(server, protect)).collect()
}

/// What keeps each of `servers` from being used, nothing being opened.
pub fn check((servers, protect): (&[External], &[Protect])) -> Vec<ServersError> {
    servers.iter().filter_map(|server| target(server, protect).err()).collect()
}

/// Those on this machine, whose memory goes by their names: for `servers` of the supervisor's devices.
pub fn local(servers: &[External]) -> Vec<LocalServer> {
    let here = servers.iter().filter(|server| server.url.is_loopback());
    here.map(|server| LocalServer { name: server.id.clone(), port: server.url.port() }).collect()
}

/// Tells the pool of `handle` what happens on servers, so that it is among its events.
pub fn teller(handle: PoolHandle) -> Sink {
    Arc::new(move |news| handle.tell(event(news)))
}

fn outside((server, guest): (&External, &Guest)) -> Outside {
    Outside { config: Arc::new(server.clone()), watch: Arc::new(Watch::new(guest.clone())) }
}

fn kind(server: &External) -> Kind {
    match server.kind {
        ExternalKind::LlamaCppRouter => Kind::Router,
        ExternalKind::LmStudio => Kind::LmStudio,
        ExternalKind::Ollama => Kind::Ollama,
    }
}

fn limits(server: &External) -> Limits {
    let usual = Limits::of(kind(server));
    let times = &server.timeouts;
    Limits {
        look: times.look.unwrap_or(usual.look),
        load: times.load.unwrap_or(usual.load),
        unload: times.unload.unwrap_or(usual.unload),
    }
}

fn target(server: &External, protect: &[Protect]) -> Result<Target, ServersError> {
    let plain = Target::new(&server.id, kind(server), server.url.clone());
    Ok(Target {
        headers: headers(server)?,
        key: key(server)?,
        lifecycle: match server.lifecycle {
            ExternalLifecycle::Managed => Lifecycle::Managed,
            ExternalLifecycle::UserManaged => Lifecycle::UserManaged,
        },
        protected: ProtectedSet::Known(claims(server, protect)),
        default_model: server.default_model.clone(),
        asked: server.context,
        context: server.load.context_ceiling.unwrap_or(plain.context),
        keep_alive: match server.keep_alive {
            None => plain.keep_alive,
            Some(KeptFor::Time(time)) => KeepAlive::For(time),
            Some(KeptFor::Ever) => KeepAlive::Forever,
        },
        load: load(server),
        limits: limits(server),
        ..plain
    })
}

/// What protects there, in the order of the configuration, the default model last: the first claim wins.
fn claims(server: &External, protect: &[Protect]) -> Vec<Claim> {
    let here = protect.iter().filter(|one| one.target.as_ref().is_none_or(|id| *id == server.id));
    let named = here.map(|one| Claim {
        model: one.model.clone(),
        role: match one.role {
            ProtectRole::Chat => Role::Chat,
            ProtectRole::Memory => Role::Memory,
            ProtectRole::Worker => Role::Worker,
        },
    });
    let default = server.default_model.iter().map(|model| Claim { model: model.clone(), role: Role::TargetDefault });
    named.chain(default).collect()
}

/// By LM Studio's own names: only what is configured.
fn load(server: &External) -> Map<String, Value> {
    let load = &server.load;
    let context = load.context_length.or(server.context.filter(|_| server.load != ExternalLoad::default()));
    let all = [
        ("context_length", context.map(Value::from)),
        ("eval_batch_size", load.eval_batch_size.map(Value::from)),
        ("flash_attention", load.flash_attention.map(Value::from)),
        ("num_experts", load.num_experts.map(Value::from)),
        ("offload_kv_cache_to_gpu", load.offload_kv_cache_to_gpu.map(Value::from)),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

fn headers(server: &External) -> Result<HeaderMap, ServersError> {
    let bad = || ServersError::BadHeader(server.id.clone());
    let header = |(name, text): (&motorpool_catalog::HeaderName, &motorpool_catalog::HeaderText)| {
        let name = HeaderName::from_bytes(name.as_str().as_bytes()).ok()?;
        let mut value = HeaderValue::from_str(text.as_str()).ok()?;
        value.set_sensitive(true);
        Some((name, value))
    };
    server.headers.iter().map(|pair| header(pair).ok_or_else(bad)).collect()
}

fn key(server: &External) -> Result<Option<Key>, ServersError> {
    let id = || server.id.clone();
    let text = match (&server.key_file, &server.key_env) {
        (Some(path), _) => {
            first_line(path).map_err(|source| ServersError::KeyFile { id: id(), path: path.clone(), source })?
        }
        (None, Some(name)) => {
            std::env::var(name).map_err(|_| ServersError::KeyVariable { id: id(), name: name.clone() })?
        }
        (None, None) => return Ok(None),
    };
    Key::new(text.trim()).map(Some).ok_or_else(|| ServersError::BadKey(id()))
}

fn first_line(path: &Path) -> std::io::Result<String> {
    Ok(fs::read_to_string(path)?.lines().next().unwrap_or_default().to_owned())
}

/// News of a server as an event of the pool.
fn event(News { target, server, what }: News) -> EventKind {
    let server = server.as_str();
    match what {
        Told::Mutation(mutation) => {
            let change = mutation.kind.as_str();
            EventKind::ExternalChanged { target, server, change, model: mutation.model }
        }
        Told::Notice(notice) => {
            let detail = notice.detail.fields().into_iter().map(|(name, field)| (name, fact(field))).collect();
            let Notice { kind, model, message, .. } = *notice;
            let level = match kind.level() {
                Level::Info => "info",
                Level::Warning => "warning",
                Level::Error => "error",
            };
            let kind = kind.as_str();
            EventKind::External(Box::new(ExternalNotice { target, server, kind, level, model, message, detail }))
        }
    }
}

fn fact(field: Field) -> Fact {
    match field {
        Field::Number(n) => Fact::Number(n),
        Field::Text(text) => Fact::Text(text),
        Field::List(names) => Fact::List(names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_catalog::{Config, Source, parse_config};

    fn config(text: &str) -> Config {
        parse_config(Source { file: "f", text }, &|_| None).expect(text)
    }

    const DESK: &str = "[[external]]\nid = \"desk\"\nkind = \"lmstudio\"\nurl = \"http://h:1\"\n";

    #[test]
    fn protection_is_that_of_the_server_and_its_default_model_comes_last() {
        let config = config(&format!(
            "{DESK}default_model = \"d\"\n[[protect]]\nmodel = \"a\"\nrole = \"memory\"\ntarget = \"desk\"\n[[protect]]\nmodel = \"b\"\n"
        ));
        let claims = claims(&config.external[0], &config.protect);
        let claims: Vec<_> = claims.iter().map(|claim| (claim.model.as_str(), claim.role)).collect();
        assert_eq!(claims, [("a", Role::Memory), ("b", Role::Chat), ("d", Role::TargetDefault)]);
        let mut other = config.external[0].clone();
        (other.id, other.default_model) = ("home".into(), None);
        assert_eq!(super::claims(&other, &config.protect).len(), 1, "only what is protected everywhere");
    }

    #[test]
    fn a_load_has_only_what_is_configured() {
        let text = |lines: &str| Value::from(load(&config(&format!("{DESK}{lines}")).external[0])).to_string();
        assert_eq!(text(""), "{}");
        assert_eq!(text("context = 99\n"), "{}", "the server decides by itself");
        assert_eq!(text("[external.load]\nflash_attention = true"), r#"{"flash_attention":true}"#);
        assert_eq!(text("[external.load]\ncontext_length = 7\ncontext_ceiling = 5"), r#"{"context_length":7}"#);
    }

    #[test]
    fn a_key_comes_from_the_first_line_of_its_file_and_a_missing_one_is_said() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("key");
        let server = || config(&format!("{DESK}key_file = \"{}\"", path.display())).external.remove(0);
        let missing = key(&server()).expect_err("nothing there").to_string();
        assert!(missing.contains("`desk`"), "{missing}");
        fs::write(&path, "  sk-1 \nmore\n").expect("written");
        assert!(key(&server()).expect("a key").is_some());
        let unset = config(&format!("{DESK}key_env = \"MOTORPOOL_TEST_NO_SUCH_KEY\"")).external.remove(0);
        assert!(matches!(key(&unset), Err(ServersError::KeyVariable { .. })));
    }

    #[tokio::test]
    async fn what_is_configured_as_before_keeps_its_watch_and_what_is_not_gets_another() {
        let folder = tempfile::tempdir().expect("a directory");
        let place = Place { run: folder.path().to_owned(), journal: None };
        let attic = DESK.replace("desk", "attic");
        let before = config(&format!("{DESK}{attic}"));
        let now =
            config(&format!("{DESK}prefer = \"external\"\n{attic}[[protect]]\nmodel = \"a\"\ntarget = \"attic\"\n"));
        let servers = Servers::open((&before.external, &before.protect), place, Arc::new(|_| ())).expect("open");
        let was = servers.outside();
        let renewed = servers.renewed((&now.external, &now.protect)).expect("right");
        let kept: Vec<_> = was.iter().zip(&renewed.outside).map(|(a, b)| Arc::ptr_eq(&a.watch, &b.watch)).collect();
        assert_eq!(kept, [true, false], "only what is protected on the second is another");
        assert_eq!(renewed.outside[0].config.prefer, motorpool_catalog::Prefer::External);
        assert!(Arc::ptr_eq(&servers.outside()[1].watch, &was[1].watch), "nobody goes by it yet");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_new_is_looked_at_before_it_is_taken_over_and_one_that_is_known_is_not_waited_for() {
        let folder = tempfile::tempdir().expect("a directory");
        // It takes connections and says nothing.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("an address");
        let here = DESK.replace("h:1", &silent.local_addr().expect("its own").to_string());
        let now = config(&here);
        let place = Place { run: folder.path().to_owned(), journal: None };
        let servers = Servers::open((&[], &[]), place, Arc::new(|_| ())).expect("open");
        for waits in [LOOK_WITHIN, Duration::ZERO] {
            let renewed = servers.renewed((&now.external, &now.protect)).expect("right");
            let began = tokio::time::Instant::now();
            servers.take_over(renewed).await;
            let took = began.elapsed();
            assert!(took >= waits && took < waits + Duration::from_millis(100), "{took:?}");
        }
    }

    #[test]
    fn a_notice_is_told_with_its_detail() {
        let mut notice = Notice {
            kind: motorpool_residency::NoticeKind::WillNotFit,
            model: "m".into(),
            message: "why".into(),
            detail: motorpool_residency::Detail::default(),
        };
        notice.detail.resident_count = Some(2);
        let news = News { target: "desk".into(), server: Kind::Ollama, what: Told::Notice(Box::new(notice)) };
        let EventKind::External(told) = event(news) else { panic!("a notice") };
        assert_eq!(
            (told.target.as_str(), told.server, told.kind, told.level),
            ("desk", "ollama", "will-not-fit", "error")
        );
        assert_eq!(told.detail, [("residentCount", Fact::Number(2))]);
    }
}
