use super::*;
use crate::{ConfigError, Source, examples, parse_config, parse_manifest, parse_model, shipped};
use proptest::prelude::*;
use std::{collections::BTreeSet, sync::LazyLock};

fn config(text: &str) -> Config {
    parse_config(Source { file: "motorpool.toml", text }, &|_| None).expect(text)
}

fn model(text: &str) -> Result<Model, ConfigError> {
    parse_model(Source { file: "catalog/a.toml", text }, &|_| None)
}

fn catalog(models: &[&str]) -> Catalog {
    let models = models.iter().map(|text| model(text).expect(text));
    Catalog::new(shipped().0, models.collect()).expect("a catalog")
}

const PLAIN: &str = "id = \"a\"\nsource = { file = \"/a.gguf\" }\n";

/// The one key that differs.
fn only(changes: &Changes) -> (String, Effect) {
    let all: Vec<_> = changes.iter().map(|(key, effect)| (key.to_owned(), effect)).collect();
    assert_eq!(all.len(), 1, "{all:?}");
    all.into_iter().next().expect("one")
}

/// Every key of a model but `id`, with a line that says something else than its default, and when that counts.
const MODEL: [(&str, &str, Effect); 31] = [
    ("aliases", "aliases = [\"b\"]", Effect::Live),
    ("priority", "priority = 2", Effect::Live),
    ("pinned", "pinned = true", Effect::Live),
    ("home", "home = true", Effect::Live),
    ("idle_ttl", "idle_ttl = \"1m\"", Effect::Live),
    ("replicas", "replicas = { max = 2 }", Effect::Live),
    ("tags", "tags = [\"small\"]", Effect::Live),
    ("parameters", "parameters = { strip = [\"x\"] }", Effect::Live),
    ("license", "license = { name = \"n\", text = \"t\" }", Effect::Live),
    ("capabilities", "capabilities = [\"chat\", \"speech\"]", Effect::Live),
    ("capabilities", "capabilities = [\"embeddings\"]", Effect::Launch),
    ("engine", "engine = \"custom\"", Effect::Launch),
    ("source", "source = { file = \"/b.gguf\" }", Effect::Launch),
    ("context", "context = 4096", Effect::Launch),
    ("context_min", "context_min = 1024", Effect::Launch),
    ("context_target", "context_target = 8192", Effect::Launch),
    ("profile", "profile = \"agent\"", Effect::Launch),
    ("slots", "slots = 2", Effect::Launch),
    ("kv_type", "kv_type = \"q8_0\"", Effect::Launch),
    ("gpu_layers", "gpu_layers = 1", Effect::Launch),
    ("n_cpu_moe", "n_cpu_moe = 1", Effect::Launch),
    ("devices", "devices = [\"GPU-0\"]", Effect::Launch),
    ("cpu_tensors", "cpu_tensors = [\"ffn\"]", Effect::Launch),
    ("projector", "projector = { file = \"/p.gguf\" }", Effect::Launch),
    ("draft", "draft = { file = \"/d.gguf\" }", Effect::Launch),
    ("adapters", "adapters = [{ file = \"/l.gguf\" }]", Effect::Launch),
    ("declared", "declared = \"1GiB\"", Effect::Launch),
    ("prompt_cache", "prompt_cache = \"1MiB\"", Effect::Launch),
    ("checkpoints", "checkpoints = 1", Effect::Launch),
    ("session_state", "session_state = \"off\"", Effect::Launch),
    ("extra_args", "extra_args = [\"--verbose\"]", Effect::Launch),
];

#[test]
fn every_key_of_a_model_counts_when_it_is_said_to() {
    let plain = model(PLAIN).expect("right");
    for (key, line, effect) in MODEL {
        let text = if key == "source" { format!("id = \"a\"\n{line}\n") } else { format!("{PLAIN}{line}\n") };
        let other = model(&text).expect(line);
        assert_eq!(only(&Changes::of_models(&plain, &other)), (key.to_owned(), effect), "{line}");
        assert_eq!(only(&Changes::of_models(&other, &plain)), (key.to_owned(), effect), "{line}, the other way");
    }
    let known: BTreeSet<&str> =
        examples::MODEL.iter().map(|(path, _)| path.split('.').next().unwrap_or(path)).collect();
    let tried: BTreeSet<&str> = MODEL.iter().map(|(key, ..)| *key).chain(["id"]).collect();
    assert_eq!(tried, known);
}

/// What of the shipped manifest is put in the place of what, and when that counts.
const ENGINE: [(&str, [&str; 2], Effect); 9] = [
    ("paths", ["\"GET /health\",", "\"GET /health\", \"GET /healthier\","], Effect::Live),
    ("transport", ["transport = \"unix\"", "transport = \"unix\" # the same"], Effect::Live),
    ("args", ["\"--model\", \"{model.path}\"", "\"-m\", \"{model.path}\""], Effect::Launch),
    ("env_allow", ["env_allow = [\"PATH\"]", "env_allow = [\"HOME\"]"], Effect::Launch),
    ("ready", ["status = 200", "status = 204"], Effect::Launch),
    ("stop", ["signal = \"SIGTERM\"", "signal = \"SIGINT\""], Effect::Launch),
    ("program.names", ["names = [\"mini\"]", "names = [\"maxi\"]"], Effect::Launch),
    ("program.version_pattern", ["(.+)$", "(.*)$"], Effect::Launch),
    ("log_class", ["couldn't bind", "cannot bind"], Effect::Launch),
];

const MINI: &str = r#"name = "mini"
transport = "unix"
args = ["--socket", "{endpoint.socket}", "--model", "{model.path}"]
env_allow = ["PATH"]
paths = ["GET /health", "POST /v1/completions"]
[program]
names = ["mini"]
version_args = ["--version"]
version_pattern = '(?m)^version: (.+)$'
[ready]
path = "/health"
status = 200
[stop]
signal = "SIGTERM"
[[log_class]]
class = "bind-failed"
pattern = "couldn't bind"
"#;

fn manifest(text: &str) -> Manifest {
    parse_manifest(Source { file: "engines/x.toml", text }, &|_| None).expect(text)
}

#[test]
fn what_an_engine_is_started_with_makes_a_new_launch_and_what_it_may_be_asked_is_live() {
    for (key, [from, to], effect) in ENGINE {
        assert!(MINI.contains(from), "{from}");
        let changes = Changes::of_manifests(&manifest(MINI), &manifest(&MINI.replacen(from, to, 1)));
        if key == "transport" {
            assert!(changes.is_empty(), "a comment");
        } else {
            assert_eq!(only(&changes), (key.to_owned(), effect));
        }
    }
    let added = [
        ("refused_args", "refused_args = [\"--x\"]\n", Effect::Live),
        ("headers", "headers = [\"x-team\"]\n", Effect::Live),
        ("on_disconnect", "on_disconnect = \"drain\"\n", Effect::Live),
        ("served_as", "served_as = \"default_model\"\n", Effect::Live),
    ];
    for (key, line, effect) in added {
        let other = manifest(&format!("{line}{MINI}"));
        assert_eq!(only(&Changes::of_manifests(&manifest(MINI), &other)), (key.to_owned(), effect));
    }
}

/// Every key of the configuration, with a text in which it says something else than its default, and when that counts.
const CONFIG: [(&str, &str, Effect); 60] = [
    ("server.hosts", "[server]\nhosts = [\"h\"]", Effect::Live),
    ("server.origins", "[server]\norigins = [\"https://h\"]", Effect::Live),
    ("server.watch", "[server]\nwatch = true", Effect::Live),
    ("server.listen", "[server]\nlisten = []", Effect::Start),
    ("capacity.budget", "[capacity]\nbudget = \"2GiB\"", Effect::Live),
    ("capacity.reserve", "[capacity]\nreserve = \"2GiB\"", Effect::Live),
    ("capacity.shape", "[capacity]\nshape = \"unified\"", Effect::Live),
    ("capacity.allow_ram_spillover", "[capacity]\nallow_ram_spillover = \"off\"", Effect::Live),
    ("capacity.on_cpu_fallback", "[capacity]\non_cpu_fallback = \"warn\"", Effect::Start),
    ("capacity.reclaim_within", "[capacity]\nreclaim_within = \"1s\"", Effect::Start),
    ("device", "[[device]]\nid = \"GPU-0\"\ntotal = \"2GiB\"", Effect::Live),
    ("pool.policy", "[pool]\npolicy = \"lru\"", Effect::Live),
    ("pool.max_wait", "[pool]\nmax_wait = \"1s\"", Effect::Live),
    ("pool.min_residency", "[pool]\nmin_residency = \"1s\"", Effect::Live),
    ("pool.drain_wait", "[pool]\ndrain_wait = \"1s\"", Effect::Live),
    ("pool.queue_wait", "[pool]\nqueue_wait = \"1s\"", Effect::Live),
    ("pool.fan_out_after", "[pool]\nfan_out_after = \"1s\"", Effect::Live),
    ("pool.scale_down_after", "[pool]\nscale_down_after = \"1s\"", Effect::Live),
    ("pool.quiet", "[pool]\nquiet = \"1s\"", Effect::Live),
    ("evict.on_deadline", "[evict]\non_deadline = \"cut\"", Effect::Live),
    ("load.stall", "[load]\nstall = \"1s\"", Effect::Live),
    ("load.cap", "[load]\ncap = \"1s\"", Effect::Live),
    ("load.abandon", "[load]\nabandon = \"abort\"", Effect::Live),
    ("load.parallel", "[load]\nparallel = 2", Effect::Live),
    ("breaker.failures", "[breaker]\nfailures = 1", Effect::Live),
    ("breaker.within", "[breaker]\nwithin = \"1s\"", Effect::Live),
    ("breaker.pause", "[breaker]\npause = \"1s\"", Effect::Live),
    ("health.every", "[health]\nevery = \"1s\"", Effect::Live),
    ("health.misses", "[health]\nmisses = 1", Effect::Live),
    ("health.silent", "[health]\nsilent = \"1s\"", Effect::Live),
    ("health.failures", "[health]\nfailures = 1", Effect::Live),
    ("health.timeout", "[health]\ntimeout = \"1s\"", Effect::Start),
    ("health.inference", "[health]\ninference = \"1s\"", Effect::Start),
    ("session_state.disk", "[session_state]\ndisk = \"0\"", Effect::Start),
    ("stop.polite", "[stop]\npolite = \"1s\"", Effect::Live),
    ("stop.kill", "[stop]\nkill = \"1s\"", Effect::Live),
    ("shutdown.grace", "[shutdown]\ngrace = \"1s\"", Effect::Live),
    ("loading.commit_after", "[loading]\ncommit_after = \"1s\"", Effect::Live),
    ("limits.queue_model", "[limits]\nqueue_model = 1", Effect::Live),
    ("limits.queue", "[limits]\nqueue = 1", Effect::Live),
    ("limits.write_stall", "[limits]\nwrite_stall = \"1s\"", Effect::Live),
    ("limits.first_result", "[limits]\nfirst_result = \"1s\"", Effect::Live),
    ("limits.between_frames", "[limits]\nbetween_frames = \"1s\"", Effect::Live),
    ("limits.body", "[limits]\nbody = \"1MiB\"", Effect::Start),
    ("limits.body_memory", "[limits]\nbody_memory = \"1MiB\"", Effect::Start),
    ("limits.bodies_memory", "[limits]\nbodies_memory = \"1MiB\"", Effect::Start),
    ("limits.spool", "[limits]\nspool = \"1MiB\"", Effect::Start),
    ("limits.connections", "[limits]\nconnections = 1", Effect::Start),
    ("limits.header", "[limits]\nheader = \"16KiB\"", Effect::Start),
    ("limits.connect", "[limits]\nconnect = \"1s\"", Effect::Start),
    ("defaults.model", "[defaults]\nmodel = \"a\"", Effect::Live),
    ("keys.file", "[keys]\nfile = \"/etc/motorpool/keys.json\"", Effect::Start),
    ("usage.keep", "[usage]\nkeep = \"1h\"", Effect::Start),
    ("usage.disk", "[usage]\ndisk = \"1MiB\"", Effect::Start),
    ("log.level", "[log]\nlevel = \"warn\"", Effect::Live),
    ("log.format", "[log]\nformat = \"json\"", Effect::Start),
    ("engine.mini.program", "[engine.mini]\nprogram = \"/bin/mini\"", Effect::Launch),
    ("engine.mini.sandbox", "[engine.mini]\nsandbox = \"off\"", Effect::Launch),
    ("engine.mini.on_disconnect", "[engine.mini]\non_disconnect = \"drain\"", Effect::Live),
    ("external", "[[external]]\nid = \"d\"\nkind = \"ollama\"\nurl = \"http://127.0.0.1:1\"", Effect::Live),
];

#[test]
fn every_key_of_the_configuration_counts_when_it_is_said_to() {
    let plain = config("");
    for (key, text, effect) in CONFIG {
        assert_eq!(only(&Changes::of_configs(&plain, &config(text))), (key.to_owned(), effect), "{text}");
        assert_eq!(only(&Changes::of_configs(&config(text), &plain)), (key.to_owned(), effect), "{text}, back");
    }
    // Lists of tables are one key each, and so is a pair of which neither goes without the other.
    let key_of = |path: &str| match path.split('.').next() {
        Some(list @ ("device" | "external" | "protect")) => list.to_owned(),
        _ if path.starts_with("server.tls.") => "server.tls".to_owned(),
        _ => path.replace('*', "mini"),
    };
    let leaves = examples::CONFIG.iter().filter(|(path, line)| path.contains('.') && !line.starts_with('['));
    let known: BTreeSet<String> = leaves.map(|(path, _)| key_of(path)).collect();
    let apart = ["protect", "server.tls"];
    let tried: BTreeSet<String> = CONFIG.iter().map(|(key, ..)| *key).chain(apart).map(str::to_owned).collect();
    assert_eq!(tried, known);
    let protect = config("[[protect]]\nmodel = \"m\"\nrole = \"chat\"");
    assert_eq!(only(&Changes::of_configs(&plain, &protect)), ("protect".to_owned(), Effect::Live));
    // None without an address that is served with it, and no such address without it.
    let tls = |certificate: &str, key: &str| {
        let listen = "[server]\nlisten = [\"https://127.0.0.1:1\"]\n[server.tls]";
        config(&format!("{listen}\ncertificate = \"{certificate}\"\nkey = \"{key}\""))
    };
    for other in [tls("/other", "/key"), tls("/chain", "/other")] {
        let changes = Changes::of_configs(&tls("/chain", "/key"), &other);
        assert_eq!(only(&changes), ("server.tls".to_owned(), Effect::Start));
    }
}

/// What of the configuration a cell of the table names, as `(path, whether all below it, what of that it is not)`.
fn named_in(cell: &str) -> Vec<(String, bool, Vec<String>)> {
    let list = |text: &str| -> Vec<String> { text.split('/').map(str::to_owned).collect() };
    let mut all = vec![];
    for word in cell.replace('`', "").split([',', ';']).map(str::trim) {
        if let Some(table) = word.strip_prefix("[[").and_then(|word| word.strip_suffix("]]")) {
            all.push((table.to_owned(), false, vec![]));
        } else if let Some((table, but)) = word.strip_prefix('[').and_then(|word| word.split_once(']')) {
            let but = but.trim().strip_prefix("but ").map(list).unwrap_or_default();
            all.push((table.replace("NAME", "mini"), true, but));
        } else if let Some((table, keys)) = word.rsplit_once('.').filter(|_| !word.contains(' ')) {
            let one = |key: String| (format!("{}.{key}", table.replace("NAME", "mini")), false, vec![]);
            all.extend(list(keys).into_iter().map(one));
        }
    }
    all
}

/// `docs/operating.md` tells operators, row by row, when what they change counts.
#[test]
fn the_table_for_operators_says_of_every_key_when_it_counts() {
    let text = include_str!("../../../../docs/operating.md");
    let (_, table) = text.split_once("| what changed | when it counts |\n| --- | --- |\n").expect("the table");
    let mut said: Vec<(String, bool, Vec<String>, Effect)> = vec![];
    for row in table.lines().take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [what, when] = cells[..] else { panic!("two cells: {row}") };
        let effect = match when {
            _ if when.starts_with("with the next start") => Effect::Launch,
            _ if when.starts_with("at the next start") => Effect::Start,
            _ => Effect::Live,
        };
        said.extend(named_in(what).into_iter().map(|(path, below, but)| (path, below, but, effect)));
    }
    let mut unused: BTreeSet<String> = said.iter().map(|(path, ..)| path.clone()).collect();
    for (key, _, effect) in CONFIG {
        let is_it = |(path, below, but, _): &&(String, bool, Vec<String>, Effect)| match key.strip_prefix(path.as_str())
        {
            Some("") => true,
            Some(rest) => *below && rest.strip_prefix('.').is_some_and(|rest| !but.iter().any(|but| but == rest)),
            None => false,
        };
        let rows: Vec<_> = said.iter().filter(is_it).collect();
        let [(path, .., told)] = rows[..] else { panic!("{key} in one row: {rows:?}") };
        assert_eq!(*told, effect, "{key}");
        unused.remove(path);
    }
    // Of these the test above has texts of its own.
    assert_eq!(unused, ["protect", "server.tls"].map(str::to_owned).into());
}

fn rows(before: (&Config, &Catalog), after: (&Config, &Catalog), drains: &[&str]) -> Vec<(String, Outcome, String)> {
    let said = |(config, catalog)| Said { config, catalog };
    let report = Difference::between(said(before), said(after)).report(|model| drains.contains(&model));
    let changed = report.rows.into_iter().filter(|row| row.outcome != Outcome::Unchanged);
    changed.map(|row| (row.name, row.outcome, row.what)).collect()
}

#[test]
fn the_report_says_of_each_item_what_became_of_it() {
    let none = config("");
    let before = catalog(&[
        "id = \"live\"\nsource = { file = \"/a\" }",
        "id = \"next\"\nsource = { file = \"/b\" }",
        "id = \"runs\"\nsource = { file = \"/c\" }",
        "id = \"goes\"\nsource = { file = \"/d\" }",
        "id = \"same\"\nsource = { file = \"/e\" }",
    ]);
    let after = catalog(&[
        "id = \"live\"\nsource = { file = \"/a\" }\npriority = 1",
        "id = \"next\"\nsource = { file = \"/b\" }\nslots = 2",
        "id = \"runs\"\nsource = { file = \"/c\" }\nslots = 2\ntags = [\"t\"]",
        "id = \"came\"\nsource = { file = \"/f\" }",
        "id = \"same\"\nsource = { file = \"/e\" }",
    ]);
    let changed = config("[server]\nlisten = []\n[pool]\nmax_wait = \"1s\"");
    let told = rows((&none, &before), (&changed, &after), &["runs", "goes", "live", "same"]);
    let expected = [
        ("came", Outcome::Live, "added"),
        ("goes", Outcome::Draining, "removed"),
        ("live", Outcome::Live, "priority"),
        ("next", Outcome::OnNextLoad, "slots"),
        ("runs", Outcome::Draining, "tags, slots"),
        ("pool.max_wait", Outcome::Live, "pool.max_wait"),
        ("server.listen", Outcome::AtNextStart, "server.listen"),
    ];
    assert_eq!(told, expected.map(|(name, outcome, what)| (name.to_owned(), outcome, what.to_owned())));
}

#[test]
fn an_engine_whose_manifest_makes_a_new_launch_makes_one_of_each_of_its_models() {
    let none = config("");
    let here = config("[engine.llama-server]\nprogram = \"/opt/llama-server\"");
    let (before, after) = (catalog(&[PLAIN]).configured_by(&none), catalog(&[PLAIN]).configured_by(&here));
    let told = rows((&none, &before), (&here, &after), &["a"]);
    let expected = [
        ("a", Outcome::Draining, MANIFEST),
        ("llama-server", Outcome::OnNextLoad, "program.configured"),
        ("engine.llama-server.program", Outcome::OnNextLoad, "engine.llama-server.program"),
    ];
    assert_eq!(told, expected.map(|(name, outcome, what)| (name.to_owned(), outcome, what.to_owned())));
    let id = motorpool_vocab::ModelId::new("a").expect("an id");
    let of = |catalog: &Catalog| {
        (catalog.model(&id).expect("there").clone(), catalog.manifest("llama-server").expect("shipped").clone())
    };
    let ((model, old), (_, new)) = (of(&before), of(&after));
    assert!(relaunches((&model, &old), (&model, &new)) && !relaunches((&model, &old), (&model, &old)));
}

static CATALOG: LazyLock<Catalog> = LazyLock::new(|| catalog(&[PLAIN]));

proptest! {
    #[test]
    fn a_difference_of_equal_states_is_empty(
        keys in prop::collection::btree_set(0..MODEL.len(), 0..8),
        settings in prop::collection::btree_set(0..CONFIG.len() - 4, 0..3),
    ) {
        let lines = keys.iter().map(|n| MODEL[*n]).filter(|(key, ..)| !matches!(*key, "source" | "engine"));
        let text = lines.fold(PLAIN.to_owned(), |text, (_, line, _)| text + line + "\n");
        // Not all keys go together.
        if let Ok(model) = model(&text) {
            let again = parse_model(Source { file: "another", text: &text }, &|_| None).expect("the same");
            prop_assert!(Changes::of_models(&model, &again).is_empty());
        }
        let text: Vec<&str> = settings.iter().map(|n| CONFIG[*n].1).collect();
        if let Ok(config) = parse_config(Source { file: "f", text: &text.join("\n") }, &|_| None) {
            let said = Said { config: &config, catalog: &CATALOG };
            prop_assert!(Difference::between(said, said).is_empty());
            prop_assert!(Difference::between(said, said).report(|_| true).is_empty());
        }
    }
}
