//! [`Journal`]: what is ours on other people's servers, written down so that the next start gives it back after a crash.
//!
//! One JSON object a line, the whole file written anew beside the old one and put in its place, so that a kill at any
//! moment leaves one or the other. A line that cannot be read is passed over: what it named stays where it is.
use motorpool_residency::{By, Owned};
use motorpool_vocab::ServerUrl;
use serde_json::{Value, json};
use std::{
    fs, io,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// A file, and what it holds.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    path: Option<PathBuf>,
    written: String,
    trouble: Option<String>,
}

impl Journal {
    /// The file at `path`, with what an earlier run left in it.
    pub(crate) fn open(path: Option<PathBuf>) -> io::Result<(Self, Vec<Owned>)> {
        let written = match path.as_deref().map(fs::read) {
            None => String::new(),
            // What is not UTF-8 spoils its own line only.
            Some(Ok(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Some(Err(error)) => return Err(error),
        };
        let left = written.lines().filter_map(|line| read(&serde_json::from_str(line).ok()?)).collect();
        Ok((Self { path, written, trouble: None }, left))
    }

    /// Writes `all` down, when that changes anything. A disk that takes nothing costs no request anything: the
    /// first failure in a row is answered, to be told.
    #[must_use]
    pub(crate) fn write<'a>(&mut self, all: impl Iterator<Item = &'a Owned>) -> Option<&str> {
        let path = self.path.as_ref()?;
        let mut text = String::new();
        for owned in all {
            text.push_str(&line(owned).to_string());
            text.push('\n');
        }
        if text == self.written {
            return None;
        }
        let Err(error) = replace(path, &text) else {
            (self.written, self.trouble) = (text, None);
            return None;
        };
        let is_news = self.trouble.is_none();
        self.trouble = Some(format!("{}: {error}", path.display()));
        self.trouble().filter(|_| is_news)
    }

    /// Why the last writing failed.
    pub(crate) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(text.as_bytes())?;
    // Not on disk before it is in its place, a power cut would leave an empty one.
    file.sync_data()?;
    fs::rename(&beside, path)
}

fn line(owned: &Owned) -> Value {
    let by = match owned.by {
        By::Us => "us",
        By::Worker => "worker",
    };
    json!({
        "target": owned.key.as_str(), "model": owned.model, "instance": owned.instance, "since": owned.since, "by": by,
    })
}

fn read(line: &Value) -> Option<Owned> {
    Some(Owned {
        key: line.get("target")?.as_str()?.parse::<ServerUrl>().ok()?.key(),
        model: line.get("model")?.as_str()?.to_owned(),
        instance: line.get("instance")?.as_str().map(str::to_owned),
        since: line.get("since")?.as_u64()?,
        by: match line.get("by")?.as_str()? {
            "us" => By::Us,
            "worker" => By::Worker,
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(model: &str, instance: Option<&str>) -> Owned {
        let key = "http://h:1".parse::<ServerUrl>().expect("an address").key();
        Owned { key, model: model.into(), instance: instance.map(str::to_owned), since: 7, by: By::Worker }
    }

    #[test]
    fn what_is_written_is_read_again_and_half_a_line_costs_only_itself() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("residency.jsonl");
        let (mut journal, left) = Journal::open(Some(path.clone())).expect("nothing there");
        assert!(left.is_empty());
        let all = [owned("a \"quoted\"\nname", Some("i")), owned("b", None)];
        assert_eq!(journal.write(all.iter()), None);
        assert_eq!(Journal::open(Some(path.clone())).expect("readable").1, all);
        let text = fs::read_to_string(&path).expect("readable");
        fs::write(&path, format!("{{\"target\":\n[]\n{text}{{\"tar")).expect("written");
        assert_eq!(Journal::open(Some(path.clone())).expect("readable").1, all);
        let mut bytes = b"{\"target\": \"\xff\"}\n".to_vec();
        bytes.extend(text.as_bytes());
        fs::write(&path, bytes).expect("written");
        assert_eq!(Journal::open(Some(path.clone())).expect("not UTF-8, and readable").1, all);
        assert_eq!(journal.write([].iter()), None);
        assert_eq!(fs::read_to_string(&path).expect("readable"), "");
    }

    #[test]
    fn a_disk_that_takes_nothing_is_told_once_and_tried_again() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("later/residency.jsonl");
        let (mut journal, _) = Journal::open(Some(path.clone())).expect("nothing there");
        let all = [owned("a", None)];
        assert!(journal.write(all.iter()).is_some_and(|why| why.contains("residency.jsonl")));
        assert!(journal.write(all.iter()).is_none() && journal.trouble().is_some(), "it was told");
        fs::create_dir(folder.path().join("later")).expect("a folder");
        assert_eq!(journal.write(all.iter()), None);
        assert_eq!((journal.trouble(), Journal::open(Some(path)).expect("readable").1), (None, all.to_vec()));
    }
}
