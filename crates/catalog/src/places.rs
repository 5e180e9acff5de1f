//! [`places`]: which keys a text writes, and where.
use crate::{Source, expand};
use toml::de::{DeTable, DeValue};

/// A key that a text gives a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its path: names joined by dots, tables of a list with their number (`external[0].id`).
    pub path: String,
    /// Its line, from 1.
    pub line: usize,
    /// The variables of the environment that its value is made of.
    pub variables: Vec<String>,
}

/// Every key of `source` that has a value of its own. Nothing of a text that is no TOML.
pub fn places(source: Source<'_>) -> Vec<Written> {
    let text = source.visible().text;
    let mut found = Vec::new();
    if let Ok(table) = DeTable::parse(text) {
        in_table(table.get_ref(), ("", text), &mut found);
    }
    found.sort_by_key(|written| written.line);
    found
}

fn in_table(table: &DeTable<'_>, (above, text): (&str, &str), found: &mut Vec<Written>) {
    for (key, value) in table {
        let path = if above.is_empty() { key.get_ref().to_string() } else { format!("{above}.{}", key.get_ref()) };
        match value.get_ref() {
            DeValue::Table(table) => in_table(table, (&path, text), found),
            DeValue::Array(items) if items.iter().any(|item| item.get_ref().is_table()) => {
                for (n, table) in items.iter().enumerate().filter_map(|(n, item)| Some((n, item.get_ref().as_table()?)))
                {
                    in_table(table, (&format!("{path}[{n}]"), text), found);
                }
            }
            value => {
                let line = text[..key.span().start].matches('\n').count() + 1;
                found.push(Written { path, line, variables: variables(value) });
            }
        }
    }
}

fn variables(value: &DeValue<'_>) -> Vec<String> {
    match value {
        DeValue::String(text) => expand::variables(text),
        DeValue::Array(items) => items.iter().flat_map(|item| variables(item.get_ref())).collect(),
        _ => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_line_and_the_variables_it_is_made_of() {
        let text = "\u{feff}[pool]\nmax_wait = \"${WAIT:-1m}\"\n[server]\nlisten = [\"a\",\n \"unix:${HOME}/${X}\"]\n[[external]]\nid = \"$${no}\"\n[external.load]\nnum_experts = 2\n";
        let found: Vec<_> =
            places(Source { file: "f", text }).into_iter().map(|w| (w.path, w.line, w.variables.join(","))).collect();
        let row = |path: &str, line, variables: &str| (path.to_owned(), line, variables.to_owned());
        assert_eq!(
            found,
            [
                row("pool.max_wait", 2, "WAIT"),
                row("server.listen", 4, "HOME,X"),
                row("external[0].id", 7, ""),
                row("external[0].load.num_experts", 9, ""),
            ]
        );
    }
}
