//! [`Exposition`]: an engine's metrics, read strictly, and many of them as one text.
//!
//! A page that has one wrong line is none: half of it could be something else than it says. What is written has the
//! engine's own names, and two labels more; labels of its own that are called so become `exported_…`, as Prometheus does it.
use super::{
    engines::{Page, Pages},
    families::Form,
};
use motorpool_vocab::EngineKey;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    sync::Arc,
};

/// Series of one engine; more are none.
const MOST_SERIES: usize = 2000;
/// Our own names, which no engine speaks for.
const OURS: &str = "motorpool_";

/// What is wrong with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("a name")]
    Name,
    #[error("labels")]
    Labels,
    #[error("a value")]
    Value,
    #[error("a kind")]
    Kind,
    #[error("a series that stands there twice")]
    Twice,
    #[error("too many series")]
    TooMany,
}

/// One engine's metrics, by name of the family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Exposition {
    families: BTreeMap<String, Family>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Family {
    kind: Kind,
    help: Option<String>,
    samples: Vec<Sample>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
    Summary,
    #[default]
    Untyped,
}

/// Names with their values, as they are written, escapes and all.
type Labels = Vec<(String, String)>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Sample {
    name: String,
    labels: Labels,
    value: String,
}

impl Exposition {
    /// Reads version 0.0.4 of Prometheus' text.
    pub(crate) fn read(text: &str) -> Result<Self, Malformed> {
        let mut page = Self::default();
        let mut seen = BTreeSet::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            match line.strip_prefix('#') {
                Some(comment) => page.comment(comment)?,
                None => page.sample(line, &mut seen)?,
            }
        }
        Ok(page)
    }

    fn sample(&mut self, line: &str, seen: &mut BTreeSet<(String, Labels)>) -> Result<(), Malformed> {
        let sample = Sample::read(line)?;
        let mut labels = sample.labels.clone();
        labels.sort();
        if !seen.insert((sample.name.clone(), labels)) {
            return Err(Malformed::Twice);
        }
        if seen.len() > MOST_SERIES {
            return Err(Malformed::TooMany);
        }
        let family = self.family_of(&sample.name);
        self.families.entry(family).or_default().samples.push(sample);
        Ok(())
    }

    fn comment(&mut self, comment: &str) -> Result<(), Malformed> {
        let mut words = comment.trim_start().splitn(3, ' ');
        let (word, name, rest) = (words.next(), words.next(), words.next().unwrap_or_default());
        match (word, name) {
            (Some("HELP"), Some(name)) => {
                self.families.entry(checked(name)?).or_default().help = Some(rest.to_owned());
            }
            (Some("TYPE"), Some(name)) => self.families.entry(checked(name)?).or_default().kind = Kind::read(rest)?,
            _ => {}
        }
        Ok(())
    }

    /// The family that a series belongs to.
    fn family_of(&self, name: &str) -> String {
        let parts = |kind: Kind| match kind {
            Kind::Histogram => &["_bucket", "_sum", "_count"][..],
            Kind::Summary => &["_sum", "_count"],
            Kind::Counter | Kind::Gauge | Kind::Untyped => &[],
        };
        let base = ["_bucket", "_sum", "_count"].into_iter().find_map(|end| {
            let base = name.strip_suffix(end)?;
            let family = self.families.get(base)?;
            parts(family.kind).contains(&end).then(|| base.to_owned())
        });
        base.unwrap_or_else(|| name.to_owned())
    }
}

impl Kind {
    fn read(word: &str) -> Result<Self, Malformed> {
        Ok(match word.trim() {
            "counter" => Self::Counter,
            "gauge" => Self::Gauge,
            "histogram" => Self::Histogram,
            "summary" => Self::Summary,
            "untyped" => Self::Untyped,
            _ => return Err(Malformed::Kind),
        })
    }

    /// As it is called in `OpenMetrics`, where a counter is one by its name.
    const fn name(self, form: Form) -> &'static str {
        match (self, form) {
            (Self::Counter, _) => "counter",
            (Self::Gauge, _) => "gauge",
            (Self::Histogram, _) => "histogram",
            (Self::Summary, _) => "summary",
            (Self::Untyped, Form::Text) => "untyped",
            (Self::Untyped, Form::OpenMetrics) => "unknown",
        }
    }
}

impl Sample {
    fn read(line: &str) -> Result<Self, Malformed> {
        let end = line.find(|c: char| c == '{' || c.is_ascii_whitespace()).ok_or(Malformed::Value)?;
        let name = checked(&line[..end])?;
        let (labels, rest) = match line[end..].strip_prefix('{') {
            Some(inside) => labels(inside)?,
            None => (Vec::new(), &line[end..]),
        };
        let mut words = rest.split_ascii_whitespace();
        let value = words.next().filter(|value| is_number(value)).ok_or(Malformed::Value)?;
        // A time, which is not passed on: it would be another thing in each form.
        let is_time = |word: &str| word.parse::<i64>().is_ok();
        match (words.next(), words.next()) {
            (None, None) => {}
            (Some(time), None) if is_time(time) => {}
            _ => return Err(Malformed::Value),
        }
        Ok(Self { name, labels, value: value.to_owned() })
    }

    fn write(&self, out: &mut String, key: &EngineKey) {
        let Self { name, labels, value } = self;
        let _ = write!(out, "{name}{{model=\"{}\",replica=\"{}\"", escaped(key.model().as_str()), key.replica());
        for (label, value) in labels {
            let prefix = if matches!(label.as_str(), "model" | "replica") { "exported_" } else { "" };
            let _ = write!(out, ",{prefix}{label}=\"{value}\"");
        }
        let _ = writeln!(out, "}} {value}");
    }
}

/// What stands between the brackets, and what behind them.
fn labels(mut rest: &str) -> Result<(Labels, &str), Malformed> {
    let mut labels = Labels::new();
    loop {
        rest = rest.trim_start();
        if let Some(behind) = rest.strip_prefix('}') {
            return Ok((labels, behind));
        }
        let (name, value) = rest.split_once('=').ok_or(Malformed::Labels)?;
        let (name, inside) = (name.trim(), value.trim_start().strip_prefix('"').ok_or(Malformed::Labels)?);
        let begins = |c: char| c.is_ascii_alphabetic() || c == '_';
        let is_name = name.starts_with(begins) && name.chars().all(|c| begins(c) || c.is_ascii_digit());
        if !is_name || labels.iter().any(|(known, _)| known == name) {
            return Err(Malformed::Labels);
        }
        let end = end_of_text(inside).ok_or(Malformed::Labels)?;
        labels.push((name.to_owned(), inside[..end].to_owned()));
        rest = inside[end + 1..].trim_start();
        if let Some(more) = rest.strip_prefix(',') {
            rest = more;
        } else if !rest.starts_with('}') {
            return Err(Malformed::Labels);
        }
    }
}

/// Where the quote is that ends a text; its escapes are those that there are.
fn end_of_text(text: &str) -> Option<usize> {
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => return Some(at),
            b'\\' => {
                bytes.next().filter(|(_, escape)| matches!(escape, b'\\' | b'"' | b'n'))?;
            }
            _ => {}
        }
    }
    None
}

fn checked(name: &str) -> Result<String, Malformed> {
    let begins = |c: char| c.is_ascii_alphabetic() || matches!(c, '_' | ':');
    let is_name = name.starts_with(begins) && name.chars().all(|c| begins(c) || c.is_ascii_digit());
    if is_name && !name.starts_with(OURS) { Ok(name.to_owned()) } else { Err(Malformed::Name) }
}

fn is_number(word: &str) -> bool {
    matches!(word, "+Inf" | "-Inf" | "NaN") || word.parse::<f64>().is_ok_and(f64::is_finite)
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// All pages as one text, each family once. A family that another engine has of another kind is left out of the later page.
pub(super) fn merged(pages: &Pages, form: Form) -> String {
    let mut families: BTreeMap<&str, Vec<(&EngineKey, &Family)>> = BTreeMap::new();
    for (key, page) in pages {
        let Page::Read(page) = page else { continue };
        for (name, family) in page.families.iter().filter(|(_, family)| !family.samples.is_empty()) {
            let all = families.entry(name).or_default();
            if all.first().is_none_or(|(_, first)| first.kind == family.kind) {
                all.push((key, family));
            }
        }
    }
    let mut out = String::new();
    for (name, all) in families {
        let [(_, first), ..] = all[..] else { continue };
        let (name, kind) = head(name, first.kind, form);
        if let Some(help) = &first.help {
            let _ = writeln!(out, "# HELP {name} {help}");
        }
        let _ = writeln!(out, "# TYPE {name} {}", kind.name(form));
        for (key, family) in all {
            family.samples.iter().for_each(|sample| sample.write(&mut out, key));
        }
    }
    out
}

/// Name and kind as the form has them: in `OpenMetrics` the series of a counter ends with `_total` and its family does not.
fn head(name: &str, kind: Kind, form: Form) -> (&str, Kind) {
    match (kind, form) {
        (Kind::Counter, Form::OpenMetrics) => match name.strip_suffix("_total") {
            Some(base) => (base, kind),
            None => (name, Kind::Untyped),
        },
        _ => (name, kind),
    }
}

/// For tests of others.
impl From<Exposition> for Page {
    fn from(page: Exposition) -> Self {
        Self::Read(Arc::new(page))
    }
}
