//! [`Sheet`]: what launches would take, by part and place, and whether they fit; as `plan` and `explain` print it and
//! as a daemon answers it.
use crate::out;
use motorpool_vocab::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Launches one after the other on one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sheet {
    pub(crate) host: HostSheet,
    /// In the order in which they were asked for; each sees those before it.
    pub(crate) launches: Vec<Launch>,
    /// What would become of requests on other people's servers, as the daemon answers it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) external: Vec<serde_json::Value>,
}

/// The host, and what is reserved on it when all launches that fit are there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HostSheet {
    pub(crate) shape: String,
    /// `None`: not enforced.
    pub(crate) budget_bytes: Option<u64>,
    pub(crate) committed_bytes: u64,
    pub(crate) system_memory: Pool,
    /// By device id.
    pub(crate) devices: BTreeMap<String, Pool>,
}

/// One memory of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pool {
    #[serde(rename = "totalBytes")]
    pub(crate) total: u64,
    /// What of it may be reserved.
    #[serde(rename = "shareBytes")]
    pub(crate) share: u64,
    #[serde(rename = "committedBytes")]
    pub(crate) committed: u64,
}

/// One launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Launch {
    pub(crate) key: String,
    /// Where the figures come from: `declared`, `estimated` from the header, `file-size`, `learned` from earlier loads.
    pub(crate) source: String,
    /// Tokens per slot.
    pub(crate) context: u32,
    /// The context that was wanted, when it is less.
    pub(crate) clamped_from: Option<u32>,
    /// The context that would be enough, when there is room for more.
    pub(crate) grown_from: Option<u32>,
    pub(crate) slots: u32,
    pub(crate) kv_type: String,
    pub(crate) parts: Vec<Part>,
    pub(crate) total: Amounts,
    /// What of it a launch before it maps already; not charged again.
    pub(crate) shared_bytes: u64,
    /// Why what it holds of sessions would not outlive it; `None`: it would.
    pub(crate) sessions_not_kept: Option<String>,
    /// The launch that a running daemon judged, beside what it holds.
    pub(crate) judged: Option<Judged>,
    pub(crate) verdict: Verdict,
}

/// A launch as a daemon would make it now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Judged {
    /// Tokens per slot.
    pub(crate) context: u32,
    pub(crate) slots: u32,
    pub(crate) total_bytes: u64,
    /// Where that figure comes from: as `source` above, or `measured` of an engine that runs.
    pub(crate) source: String,
}

/// A part of a launch, by place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) part: String,
    #[serde(flatten)]
    pub(crate) amounts: Amounts,
}

/// Bytes by place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Amounts {
    pub(crate) system_memory: u64,
    /// By device id.
    #[serde(default)]
    pub(crate) devices: BTreeMap<String, u64>,
}

/// What would come of a launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "camelCase", tag = "outcome")]
pub(crate) enum Verdict {
    /// It is there already.
    Resident,
    /// There is room.
    Fits,
    /// There is room once these are gone, which are idle.
    Evicts { keys: Vec<String> },
    /// There is room once these are gone, some of which work.
    Drains { keys: Vec<String> },
    /// There is room as soon as what leaves has left.
    Waits,
    /// There is none.
    Never {
        /// The arithmetic, in the words of the log.
        reason: String,
        /// The same for people.
        message: String,
    },
    /// It could not be started, whatever room there is.
    Fails { message: String },
}

impl Amounts {
    pub(super) fn is_zero(&self) -> bool {
        self.system_memory == 0 && self.devices.values().all(|bytes| *bytes == 0)
    }
}

/// The first launch that there will not be, and why.
pub(super) fn first_refusal(launches: &[Launch]) -> Option<(&str, &Verdict)> {
    let refused = |launch: &&Launch| matches!(launch.verdict, Verdict::Never { .. } | Verdict::Fails { .. });
    launches.iter().find(refused).map(|launch| (launch.key.as_str(), &launch.verdict))
}

/// A table for each launch.
pub(super) fn launches_for_people(launches: &[Launch]) -> String {
    launches.iter().map(|launch| launch.for_people() + "\n").collect()
}

impl Sheet {
    /// A table for each launch and one for the host.
    pub(crate) fn for_people(&self) -> String {
        launches_for_people(&self.launches) + &self.host.for_people()
    }
}

impl Launch {
    fn for_people(&self) -> String {
        let Self { key, context, slots, kv_type, source, .. } = self;
        let places: Vec<&str> = self.total.devices.keys().map(String::as_str).collect();
        let head: Vec<&str> = ["PART", "SYSTEM MEMORY"].into_iter().chain(places.iter().copied()).collect();
        let row = |name: &str, amounts: &Amounts| {
            let on = |place: &&str| amounts.devices.get(*place).copied().unwrap_or(0);
            let bytes = [amounts.system_memory].into_iter().chain(places.iter().map(on));
            [name.to_owned()].into_iter().chain(bytes.map(cell)).collect::<Vec<_>>()
        };
        let parts = self.parts.iter().filter(|part| !part.amounts.is_zero());
        let rows = parts.map(|part| row(&part.part, &part.amounts)).chain([row("total", &self.total)]).collect();
        let plural = if *slots == 1 { "slot" } else { "slots" };
        if *slots == 0 {
            // It was not planned so far.
            return format!("{key}: {}\n", self.verdict.for_people());
        }
        let title = format!("{key}: {context} tokens, {slots} {plural}, {kv_type} cache; {source}\n");
        let verdict = self.in_the_pool() + &self.verdict.for_people() + "\n";
        title + &self.clamped() + &self.grown() + &out::table(&head, rows) + &self.shared() + &self.forgets() + &verdict
    }

    fn clamped(&self) -> String {
        let Self { context, slots, .. } = self;
        self.clamped_from.map_or_else(String::new, |wanted| {
            format!("context clamped {wanted} → {context} tokens/turn ({slots} slots): there is no room for more\n")
        })
    }

    fn grown(&self) -> String {
        let Self { context, slots, .. } = self;
        self.grown_from.map_or_else(String::new, |enough| {
            format!("context grown {enough} → {context} tokens/turn ({slots} slots): there is room for more\n")
        })
    }

    /// Said when the running pool would start it otherwise than it was laid out.
    fn in_the_pool(&self) -> String {
        let Some(Judged { context, slots, total_bytes, source }) = &self.judged else { return String::new() };
        if (context, slots, source) == (&self.context, &self.slots, &self.source) {
            return "in the running pool: ".to_owned();
        }
        format!("in the running pool ({context} tokens, {slots} slots, {}, {source}): ", Bytes::new(*total_bytes))
    }

    fn forgets(&self) -> String {
        let line = |why: &String| format!("contexts of sessions do not outlive it: {why}\n");
        self.sessions_not_kept.as_ref().map_or_else(String::new, line)
    }

    fn shared(&self) -> String {
        match self.shared_bytes {
            0 => String::new(),
            n => format!("{} of it are mapped already and charged once\n", Bytes::new(n)),
        }
    }
}

impl Verdict {
    pub(super) fn for_people(&self) -> String {
        match self {
            Self::Resident => "runs already".to_owned(),
            Self::Fits => "fits".to_owned(),
            Self::Evicts { keys } => format!("fits once what is idle is unloaded: {}", keys.join(", ")),
            Self::Drains { keys } => format!("fits once what runs has finished and is unloaded: {}", keys.join(", ")),
            Self::Waits => "fits as soon as what is being unloaded is gone".to_owned(),
            Self::Never { message, .. } => format!("does not fit: {message}"),
            Self::Fails { message } => format!("cannot be started: {message}"),
        }
    }
}

impl HostSheet {
    fn for_people(&self) -> String {
        let row = |name: &str, pool: &Pool| {
            let Pool { committed, share, total } = *pool;
            vec![name.to_owned(), cell(committed), cell(share), cell(total)]
        };
        let devices = self.devices.iter().map(|(id, pool)| row(id, pool));
        let rows = [row("system memory", &self.system_memory)].into_iter().chain(devices).collect();
        let bound = self.budget_bytes.map_or_else(|| "no budget".to_owned(), |n| format!("of {}", Bytes::new(n)));
        let summary = format!("{}: {} reserved {bound}\n", self.shape, Bytes::new(self.committed_bytes));
        out::table(&["PLACE", "RESERVED", "OURS AT MOST", "ALL"], rows) + &summary
    }
}

fn cell(bytes: u64) -> String {
    if bytes == 0 { "-".to_owned() } else { Bytes::new(bytes).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn amounts(system_memory: u64, devices: &[(&str, u64)]) -> Amounts {
        let devices = devices.iter().map(|(id, bytes)| ((*id).to_owned(), *bytes)).collect();
        Amounts { system_memory, devices }
    }

    fn launch(verdict: Verdict) -> Launch {
        let part = |name: &str, amounts| Part { part: name.to_owned(), amounts };
        Launch {
            key: "llama-server:a:0".into(),
            source: "estimated".into(),
            context: 8192,
            slots: 2,
            kv_type: "q8_0".into(),
            clamped_from: None,
            grown_from: None,
            parts: vec![
                part("weights", amounts(1 << 30, &[("GPU-1", 5 << 30)])),
                part("cache", amounts(0, &[("GPU-1", 1 << 30)])),
                part("process", amounts(48 << 20, &[])),
                part("draft model", amounts(0, &[])),
            ],
            total: amounts((1 << 30) + (48 << 20), &[("GPU-1", 6 << 30)]),
            shared_bytes: 0,
            sessions_not_kept: None,
            judged: None,
            verdict,
        }
    }

    fn sheet(launches: Vec<Launch>) -> Sheet {
        let pool = |committed, share, total| Pool { total, share, committed };
        let devices = [("GPU-1".to_owned(), pool(6 << 30, 22 << 30, 24 << 30))].into();
        let host = HostSheet {
            shape: "discrete-gpu".into(),
            budget_bytes: Some(60 << 30),
            committed_bytes: 7 << 30,
            system_memory: pool(1 << 30, 38 << 30, 64 << 30),
            devices,
        };
        Sheet { host, launches, external: vec![] }
    }

    fn never() -> Verdict {
        let reason = "budget exhausted: would commit 9 against 8 (device GPU-1)".into();
        Verdict::Never { reason, message: "a needs 9 and GPU-1 has 8.".into() }
    }

    #[test]
    fn people_see_a_column_for_each_place_and_no_row_of_nothing() {
        let text = sheet(vec![launch(Verdict::Fits)]).for_people();
        let lines: Vec<_> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let expected = [
            "llama-server:a:0: 8192 tokens, 2 slots, q8_0 cache; estimated",
            "PART SYSTEM MEMORY GPU-1",
            "weights 1.0 GiB 5.0 GiB",
            "cache - 1.0 GiB",
            "process 48.0 MiB -",
            "total 1.0 GiB 6.0 GiB",
            "fits",
            "",
            "PLACE RESERVED OURS AT MOST ALL",
            "system memory 1.0 GiB 38.0 GiB 64.0 GiB",
            "GPU-1 6.0 GiB 22.0 GiB 24.0 GiB",
            "discrete-gpu: 7.0 GiB reserved of 60.0 GiB",
        ];
        assert_eq!(lines, expected, "{text}");
    }

    #[test]
    fn what_could_not_even_be_planned_is_one_line() {
        let message = "no such file".into();
        let bare = Launch { slots: 0, verdict: Verdict::Fails { message }, ..launch(Verdict::Fits) };
        assert_eq!(launches_for_people(&[bare]), "llama-server:a:0: cannot be started: no such file\n\n");
    }

    #[test]
    fn what_was_given_up_and_what_is_shared_are_said() {
        let cut = Launch { clamped_from: Some(65_536), shared_bytes: 1 << 30, slots: 1, ..launch(Verdict::Fits) };
        let text = sheet(vec![cut]).for_people();
        assert!(text.contains("8192 tokens, 1 slot, "), "{text}");
        assert!(text.contains("context clamped 65536 → 8192 tokens/turn (1 slots): "), "{text}");
        assert!(text.contains("1.0 GiB of it are mapped already and charged once\n"), "{text}");
        let grown = sheet(vec![Launch { grown_from: Some(4096), ..launch(Verdict::Fits) }]).for_people();
        assert!(grown.contains("context grown 4096 → 8192 tokens/turn (2 slots): "), "{grown}");
        let forgets = Launch { sessions_not_kept: Some("it is off".into()), ..launch(Verdict::Fits) };
        let forgets = sheet(vec![forgets]).for_people();
        assert!(forgets.contains("contexts of sessions do not outlive it: it is off\n"), "{forgets}");
        assert!(!grown.contains("outlive"), "{grown}");
    }

    #[test]
    fn what_the_running_pool_would_start_is_said_where_it_is_another() {
        let judged = |context| Some(Judged { context, slots: 2, total_bytes: 3 << 30, source: "estimated".into() });
        let text = |context| sheet(vec![Launch { judged: judged(context), ..launch(Verdict::Fits) }]).for_people();
        assert!(text(8192).contains("\nin the running pool: fits\n"), "{}", text(8192));
        let other = "\nin the running pool (4096 tokens, 2 slots, 3.0 GiB, estimated): fits\n";
        assert!(text(4096).contains(other), "{}", text(4096));
    }

    #[test]
    fn each_outcome_names_whom_it_costs() {
        let keys = || vec!["llama-server:b:0".to_owned(), "llama-server:c:0".to_owned()];
        for (verdict, words) in [
            (Verdict::Resident, "runs already"),
            (Verdict::Fits, "fits"),
            (Verdict::Evicts { keys: keys() }, "what is idle is unloaded: llama-server:b:0, llama-server:c:0"),
            (Verdict::Drains { keys: keys() }, "has finished and is unloaded: llama-server:b:0, llama-server:c:0"),
            (Verdict::Waits, "fits as soon as what is being unloaded is gone"),
            (never(), "does not fit: a needs 9 and GPU-1 has 8."),
            (Verdict::Fails { message: "no such file".into() }, "cannot be started: no such file"),
        ] {
            let sheet = sheet(vec![launch(verdict.clone())]);
            assert!(sheet.for_people().contains(&format!("{words}\n")), "{}", sheet.for_people());
            assert_eq!(
                first_refusal(&sheet.launches).is_some(),
                words.starts_with("does not") || words.starts_with("cannot")
            );
        }
    }

    #[test]
    fn programs_read_back_what_was_written() {
        let whole = sheet(vec![launch(Verdict::Evicts { keys: vec!["llama-server:b:0".into()] }), launch(never())]);
        let document = serde_json::to_value(&whole).expect("it has a wire form");
        assert_eq!(document["launches"][0]["verdict"], json!({"outcome": "evicts", "keys": ["llama-server:b:0"]}));
        let weights = json!({"part": "weights", "systemMemory": 1 << 30, "devices": {"GPU-1": 5_u64 << 30}});
        assert_eq!(document["launches"][0]["parts"][0], weights);
        assert_eq!(document["host"]["systemMemory"]["shareBytes"], json!(38_u64 << 30));
        assert_eq!(serde_json::from_value::<Sheet>(document).expect("its own form"), whole);
    }
}
