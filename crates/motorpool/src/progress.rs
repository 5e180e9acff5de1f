//! How far a long piece of work has come: a bar on a terminal, a plain line each tenth elsewhere.
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use motorpool_vocab::Bytes;
use std::io::IsTerminal;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    /// Bytes that are only read: quick, and not worth more than one line.
    BytesRead,
    Percent,
}

/// The progress of one piece of work. Dropped without [`Progress::done`] it just ends.
#[derive(Debug)]
pub(crate) struct Progress {
    label: String,
    unit: Unit,
    total: Option<u64>,
    shown: Shown,
}

#[derive(Debug)]
enum Shown {
    Bar(ProgressBar),
    /// The last tenth that was said.
    Lines(Option<u64>),
}

impl Progress {
    /// Begins at nothing. `total` is not known before the first answer of a server.
    pub(crate) fn begin(label: &str, unit: Unit) -> Self {
        let total = (unit == Unit::Percent).then_some(100);
        let shown = if std::io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
            bar.set_style(style(unit, total));
            bar.set_message(label.to_owned());
            bar.enable_steady_tick(std::time::Duration::from_millis(250));
            Shown::Bar(bar)
        } else {
            crate::out::say(format_args!("{label} ..."));
            Shown::Lines(None)
        };
        Self { label: label.to_owned(), unit, total, shown }
    }

    /// The whole is known now.
    pub(crate) fn set_total(&mut self, total: u64) {
        self.total = Some(total);
        if let Shown::Bar(bar) = &self.shown {
            bar.set_style(style(self.unit, self.total));
            bar.set_length(total);
        }
    }

    /// `n` of the whole are done.
    pub(crate) fn set(&mut self, n: u64) {
        match &mut self.shown {
            Shown::Bar(bar) => bar.set_position(n),
            Shown::Lines(_) if self.unit == Unit::BytesRead => {}
            Shown::Lines(told) => {
                let tenth = self.total.and_then(|total| n.saturating_mul(10).checked_div(total)).map(|t| t.min(10));
                if let Some(tenth) = tenth.filter(|&tenth| tenth > 0 && told.is_none_or(|before| tenth > before)) {
                    *told = Some(tenth);
                    crate::out::say(line(&self.label, self.unit, (n, self.total)));
                }
            }
        }
    }

    /// It is all done; leaves one line behind.
    pub(crate) fn done(self, remark: &str) {
        if let Shown::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
        if self.unit != Unit::BytesRead {
            crate::out::say(format_args!("{}: {remark}", self.label));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Shown::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

fn line(label: &str, unit: Unit, (n, total): (u64, Option<u64>)) -> String {
    match (unit, total) {
        (Unit::Percent, _) => format!("{label}: {n} %"),
        (Unit::Bytes | Unit::BytesRead, Some(total)) => format!("{label}: {} of {}", Bytes::new(n), Bytes::new(total)),
        (Unit::Bytes | Unit::BytesRead, None) => format!("{label}: {}", Bytes::new(n)),
    }
}

fn style(unit: Unit, total: Option<u64>) -> ProgressStyle {
    let template = match (unit, total) {
        (Unit::Percent, _) => "{msg} {wide_bar} {pos:>3} % {eta:>4}",
        (Unit::Bytes | Unit::BytesRead, Some(_)) => {
            "{msg} {wide_bar} {binary_bytes} of {binary_total_bytes} {binary_bytes_per_sec} {eta:>4}"
        }
        (Unit::Bytes | Unit::BytesRead, None) => "{msg} {spinner} {binary_bytes} {binary_bytes_per_sec}",
    };
    ProgressStyle::with_template(template).expect("a test parses every template")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_name_what_is_counted() {
        assert_eq!(line("building", Unit::Percent, (33, Some(100))), "building: 33 %");
        assert_eq!(line("x", Unit::Bytes, (1 << 20, Some(1 << 21))), "x: 1.0 MiB of 2.0 MiB");
        assert_eq!(line("x", Unit::Bytes, (512, None)), "x: 512 B");
    }

    #[test]
    fn every_style_is_a_valid_template() {
        for (unit, total) in [(Unit::Percent, Some(100)), (Unit::Bytes, Some(9)), (Unit::Bytes, None)] {
            let _ = style(unit, total);
        }
    }
}
