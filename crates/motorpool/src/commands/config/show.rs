//! `motorpool config show`: what is in force, and where each value comes from. What is secret by its type stays hidden.
use crate::{
    dirs::Dirs,
    exit::{Exit, Failure},
    out::Out,
    settings::{self, Settings},
};
use clap::Args;
use motorpool_catalog::{Source, Written, places, size_text};
use serde::Serialize;
use serde_json::Value;
use std::{collections::BTreeMap, fs, path::Path};

/// Lines up to so long have their remarks in one column.
const WIDEST: usize = 60;

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Every key, also those that nobody set
    #[arg(long)]
    effective: bool,
}

#[derive(Debug, Serialize)]
struct Shown {
    /// The configuration; `null` when there is no file.
    file: Option<String>,
    values: Vec<Row>,
    /// What only the environment or the command line says.
    directories: BTreeMap<&'static str, Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    key: String,
    /// `null`: nothing is set.
    value: Value,
    from: Origin,
}

/// Where a value comes from.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
enum Origin {
    File { file: String, line: usize, variables: Vec<String> },
    Environment { variable: &'static str },
    CommandLine { option: &'static str },
    Default,
}

pub(super) fn perform(dirs: &Dirs, out: Out, (explicit, show): (Option<&Path>, &Show)) -> Result<(), Failure> {
    let settings = Settings::load(dirs, explicit)?;
    let mut values = rows(&settings)?;
    by_environment(&mut values)?;
    values.retain(|row| show.effective || row.from != Origin::Default);
    let file = settings.file.as_ref().map(|path| path.display().to_string());
    let shown = Shown { file, values, directories: directories(dirs) };
    out.data(&shown, || for_people(&shown))
}

/// Every key of the configuration, with its value and its place.
fn rows(settings: &Settings) -> Result<Vec<Row>, Failure> {
    let config =
        serde_json::to_value(&settings.config).map_err(|error| Failure::new(Exit::Failed, error, "report this"))?;
    let mut found = Vec::new();
    flatten(&config, "", &mut found);
    let (file, written) = match &settings.file {
        Some(path) => (path.display().to_string(), written_in(path)),
        None => (String::new(), vec![]),
    };
    let origin = |key: &str| match written
        .iter()
        .find(|place| place.path == key || key.starts_with(&format!("{}.", place.path)))
    {
        Some(Written { line, variables, .. }) => {
            Origin::File { file: file.clone(), line: *line, variables: variables.clone() }
        }
        None => Origin::Default,
    };
    Ok(found.into_iter().map(|(key, value)| Row { from: origin(&key), key, value }).collect())
}

fn written_in(path: &Path) -> Vec<Written> {
    let text = fs::read_to_string(path).unwrap_or_default();
    places(Source { file: "", text: &text })
}

/// Paths as [`places`] has them.
fn flatten(value: &Value, above: &str, found: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(members) => {
            // As a file has them: what belongs to a table comes before the tables in it.
            let is_table = |value: &Value| match value {
                Value::Array(items) => items.iter().any(Value::is_object),
                value => value.is_object(),
            };
            let (tables, plain): (Vec<_>, Vec<_>) = members.iter().partition(|(_, value)| is_table(value));
            for (name, value) in plain.into_iter().chain(tables) {
                let path = if above.is_empty() { name.clone() } else { format!("{above}.{name}") };
                flatten(value, &path, found);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (n, item) in items.iter().enumerate() {
                flatten(item, &format!("{above}[{n}]"), found);
            }
        }
        value => found.push((above.to_owned(), value.clone())),
    }
}

/// What variables of the environment say where the file leaves it open.
fn by_environment(rows: &mut [Row]) -> Result<(), Failure> {
    let mut set = |key: &str, value: Value, variable: &'static str| {
        // A budget that the file names goes before the environment's.
        let is_open = |row: &&mut Row| row.key == key && (variable != settings::BUDGET || row.value == "auto");
        if let Some(row) = rows.iter_mut().find(is_open) {
            (row.value, row.from) = (value, Origin::Environment { variable });
        }
    };
    if let Some(budget) = settings::budget_of_environment()? {
        set("capacity.budget", size_text(budget).into(), settings::BUDGET);
    }
    if settings::load_slots(2)? == motorpool_pool::LoadSlots::OneForAll
        && std::env::var_os(settings::SERIALIZE).is_some()
    {
        set("load.parallel", 1.into(), settings::SERIALIZE);
    }
    Ok(())
}

fn directories(dirs: &Dirs) -> BTreeMap<&'static str, Row> {
    let var = |name: &'static str| std::env::var_os(name).filter(|value| !value.is_empty()).map(|_| name);
    let of = |name: &'static str| var(name).map_or(Origin::Default, |variable| Origin::Environment { variable });
    let is_told = std::env::args_os().any(|arg| arg.to_string_lossy().starts_with("--state-dir"));
    let state = match (is_told, var("MOTORPOOL_STATE_DIR")) {
        (true, _) => Origin::CommandLine { option: "--state-dir" },
        (false, Some(variable)) => Origin::Environment { variable },
        (false, None) => of("XDG_STATE_HOME"),
    };
    let row = |key: &'static str, path: &Path, from| {
        (key, Row { key: key.to_owned(), value: path.display().to_string().into(), from })
    };
    BTreeMap::from([
        row("config", &dirs.config, of("XDG_CONFIG_HOME")),
        row("data", &dirs.data, of("XDG_DATA_HOME")),
        row("run", &dirs.run, of("XDG_RUNTIME_DIR")),
        row("state", &dirs.state, state),
    ])
}

/// Like the file, each line with where it comes from.
fn for_people(shown: &Shown) -> String {
    let head = match &shown.file {
        Some(file) => format!("# {file}"),
        None => "# there is no motorpool.toml: the defaults serve".to_owned(),
    };
    let mut lines = vec![head];
    for Row { key, value, from } in shown.directories.values() {
        lines.push(format!("# {key} directory: {} ({from})", value.as_str().unwrap_or_default()));
    }
    let widths = shown.values.iter().filter_map(line).map(|line| line.chars().count());
    let width = widths.filter(|n| *n <= WIDEST).max().unwrap_or(0);
    let mut table = "";
    for row in &shown.values {
        let Some(line) = line(row) else { continue };
        let of = row.key.rsplit_once('.').map_or("", |(table, _)| table);
        if of != table {
            table = of;
            lines.extend([String::new(), header(table)]);
        }
        lines.push(format!("{line:<width$}  # {}", row.from));
    }
    lines.join("\n") + "\n"
}

/// `[external.load]`, or `[[external]]` for one of a list.
fn header(table: &str) -> String {
    let plain: String = table.split('[').map(|part| part.split_once(']').map_or(part, |(_, rest)| rest)).collect();
    if table.ends_with(']') { format!("[[{plain}]]") } else { format!("[{plain}]") }
}

/// `key = value` as TOML has it; a key that nothing was set for is a remark.
fn line(row: &Row) -> Option<String> {
    let name = row.key.rsplit_once('.').map_or(row.key.as_str(), |(_, name)| name);
    if row.value.is_null() {
        return Some(format!("# {name} is not set"));
    }
    let value = toml::Value::try_from(&row.value).ok()?;
    Some(format!("{name} = {value}"))
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File { file, line, variables } if variables.is_empty() => write!(f, "{file}:{line}"),
            Self::File { file, line, variables } => write!(f, "{file}:{line}, ${}", variables.join(", $")),
            Self::Environment { variable } => write!(f, "${variable}"),
            Self::CommandLine { option } => f.write_str(option),
            Self::Default => f.write_str("default"),
        }
    }
}
