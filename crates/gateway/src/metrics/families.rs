//! [`Families`]: what is measured at one instant, and its two forms as text.
use motorpool_vocab::{Bytes, Histogram};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text, text},
    metrics::{MetricType, exemplar::Exemplar},
    registry::{Registry, Unit},
};
use std::{fmt, time::Duration};

/// How it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Prometheus' own, version 0.0.4.
    Text,
    /// `OpenMetrics` 1.0.0.
    OpenMetrics,
}

impl Form {
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// What a name says, and what stands behind it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Family {
    /// Without unit and `_total`.
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) unit: Measure,
    pub(crate) kind: MetricType,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    Number,
    Bytes,
    Seconds,
    /// From 0 to 1.
    Ratio,
}

/// What was measured.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Count(u64),
    Level(f64),
    Times(Histogram),
}

/// Names with their values.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Families(Vec<(Family, Vec<(Labels, Value)>)>);

impl Families {
    /// A family with all of its series; with none it is only announced.
    pub(crate) fn add(&mut self, family: Family, series: impl IntoIterator<Item = (Labels, Value)>) {
        self.0.push((family, series.into_iter().collect()));
    }

    /// A family of one series without labels.
    pub(crate) fn one(&mut self, family: Family, value: Value) {
        self.add(family, [(Labels::new(), value)]);
    }

    /// Name, kind and labels of each, for whoever compares them.
    #[cfg(test)]
    pub(crate) fn outline(&self) -> Vec<(String, String, Vec<&'static str>)> {
        let names = |(family, series): &(Family, Vec<(Labels, Value)>)| {
            let unit = family.unit.unit().map_or(String::new(), |unit| format!("_{}", unit.as_str()));
            let total = if matches!(family.kind, MetricType::Counter) { "_total" } else { "" };
            let labels = series.first().map(|(labels, _)| labels.iter().map(|(name, _)| *name).collect());
            (format!("{}{unit}{total}", family.name), family.kind.as_str().to_owned(), labels.unwrap_or_default())
        };
        self.0.iter().map(names).collect()
    }

    /// The document, `engines` before its end.
    pub(crate) fn text(self, form: Form, engines: &str) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut out = String::new();
        let written = match form {
            Form::Text => prometheus_text::encode(&mut out, &registry),
            Form::OpenMetrics => text::encode_registry(&mut out, &registry),
        };
        written.expect("a String takes everything");
        out.push_str(engines);
        if form == Form::OpenMetrics {
            text::encode_eof(&mut out).expect("a String takes everything");
        }
        out
    }
}

impl Measure {
    fn unit(self) -> Option<Unit> {
        match self {
            Self::Number => None,
            Self::Bytes => Some(Unit::Bytes),
            Self::Seconds => Some(Unit::Seconds),
            Self::Ratio => Some(Unit::Other("ratio".to_owned())),
        }
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for (family, series) in &self.0 {
            let unit = family.unit.unit();
            let mut metric = encoder.encode_descriptor(family.name, family.help, unit.as_ref(), family.kind)?;
            for (labels, value) in series {
                if labels.is_empty() {
                    value.encode(&mut metric)?;
                } else {
                    value.encode(&mut metric.encode_family(labels)?)?;
                }
            }
        }
        Ok(())
    }
}

impl Value {
    fn encode(&self, metric: &mut MetricEncoder) -> fmt::Result {
        match self {
            Self::Count(n) => metric.encode_counter(n, None::<&Exemplar<NoLabelSet, u64>>),
            Self::Level(level) => metric.encode_gauge(level),
            Self::Times(times) => {
                let buckets: Vec<_> = times
                    .buckets()
                    .map(|(bound, n)| (bound.map_or(f64::INFINITY, |bound| bound.as_secs_f64()), n))
                    .collect();
                let (sum, count) = (times.sum().as_secs_f64(), times.count());
                metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
            }
        }
    }

    /// A size. Above 2^53 bytes the last digits are lost, as in Prometheus itself.
    #[expect(clippy::cast_precision_loss, reason = "Prometheus knows no other numbers")]
    pub(crate) fn bytes(bytes: Bytes) -> Self {
        Self::Level(bytes.get() as f64)
    }

    /// A number of things.
    pub(crate) fn number(n: usize) -> Self {
        Self::Level(u32::try_from(n).map_or(f64::from(u32::MAX), f64::from))
    }

    /// A time.
    pub(crate) fn seconds(time: Duration) -> Self {
        Self::Level(time.as_secs_f64())
    }
}

/// A gauge.
pub(crate) const fn gauge(name: &'static str, unit: Measure, help: &'static str) -> Family {
    Family { name, help, unit, kind: MetricType::Gauge }
}

/// A counter; `_total` is put behind its name.
pub(crate) const fn counter(name: &'static str, help: &'static str) -> Family {
    Family { name, help, unit: Measure::Number, kind: MetricType::Counter }
}

/// A histogram of times.
pub(crate) const fn histogram(name: &'static str, help: &'static str) -> Family {
    Family { name, help, unit: Measure::Seconds, kind: MetricType::Histogram }
}
