//! [`Account`]: what is known of the memory of one child that serves, and the line that follows from it
//! (capacity.md §5).
//!
//! | part | line |
//! | --- | --- |
//! | private memory, buffers reported | the larger of reported buffers + what comes beside them, and what was measured |
//! | private memory, not reported | the larger of what was planned and what was measured |
//! | a file, buffers reported | what is mapped of it, never what is resident |
//! | a file, not reported | what is mapped of it, and what was to be mapped, until that is seen as private memory |
//! | the whole, where its parts are not known (declared, or no header) | never less than planned, whatever is reported; what is mapped of it is shared |
//! | a device whose driver shows it there | the larger of that, and the buffers that were reported there |
//! | a device whose driver does not | the larger of what was planned, and the buffers that were reported there |
//!
//! Beside reported buffers comes what was promised and grows later (prompt cache, checkpoints) and what no report holds
//! (the process itself): it stays charged. Buffers are counted whole, touched or not.
//!
//! What cannot be had leaves its part as it was planned. Of each part the most that was ever seen counts, from the
//! moment the child was ready: what it took for a moment to load is not what it takes. A report that comes late counts
//! from then on.
//!
//! * **M1** no part of a line is below what was last measured of it.
//! * **M2** a line is less than what was planned only where the engine reported its buffers, or a driver shows it; on a
//!   device only where a driver does, for no report holds what the driver itself takes there.
//! * **M3** once each part was seen, a line only rises, but for a report that comes late.
//! * **M4** a correction ends no lease.
use crate::{CardSight, Measured, Pool, Reported};
use motorpool_vocab::{Bytes, Claim, DeviceId, EventKind, FileId, Now, PartsView, Spawn};
use std::collections::{BTreeMap, BTreeSet};

/// What is known of one child's memory.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    planned: Claim,
    /// Private memory beside reported buffers; `None`: the parts of what was planned are not known.
    beside: Option<Bytes>,
    /// Private memory among the buffers that the engine reported.
    buffers: Option<Bytes>,
    /// The most that was seen of each part.
    private: Option<Bytes>,
    files: Option<BTreeMap<FileId, Bytes>>,
    device: BTreeMap<DeviceId, Bytes>,
    /// The buffers that the engine reported on each device.
    on_devices: BTreeMap<DeviceId, Bytes>,
    /// Its devices as the engine numbers them.
    order: Vec<DeviceId>,
    /// When it became ready.
    since: Now,
}

impl Account {
    /// Of a child that just became ready, with the claim that it was granted.
    pub(crate) fn new(now: Now, planned: Claim, beside: Option<Bytes>) -> Self {
        let (device, on_devices) = (BTreeMap::new(), BTreeMap::new());
        let (buffers, private, files) = (None, None, None);
        Self { planned, beside, buffers, private, files, device, on_devices, order: vec![], since: now }
    }

    /// The same of a child that numbers its devices in this order.
    #[must_use]
    pub(crate) fn on(self, order: Vec<DeviceId>) -> Self {
        Self { order, ..self }
    }

    /// What was planned, files whole.
    pub(crate) fn planned(&self) -> Bytes {
        self.planned.total()
    }

    /// What of it was planned for devices of their own memory.
    pub(crate) fn planned_on_devices(&self) -> Bytes {
        Bytes::sum(self.planned.device.values().copied())
    }

    /// The most that was seen of it, all parts together; `None` when nothing was.
    pub(crate) fn measured(&self) -> Option<Bytes> {
        if self.private.is_none() && self.files.is_none() && self.device.is_empty() {
            return None;
        }
        let files = self.files.iter().flat_map(|files| files.values().copied());
        Some(Bytes::sum(self.private.into_iter().chain(files).chain(self.device.values().copied())))
    }

    /// The most that was seen of each part.
    pub(crate) fn parts(&self) -> PartsView {
        let files = self.files.as_ref().map(|files| Bytes::sum(files.values().copied()));
        PartsView { devices: self.device.clone(), private: self.private, files }
    }

    /// Takes what was seen now.
    pub(crate) fn take(&mut self, measured: &Measured) {
        if let Some(reported) = &measured.reported {
            self.buffers = Some(private_buffers(reported, &self.planned));
            self.on_devices = device_buffers(reported, &self.order);
        }
        self.private = self.private.max(measured.private);
        if let Some(files) = &measured.files {
            raise(self.files.get_or_insert_default(), files);
        }
    }

    /// Takes what the driver of a card shows of it there now. Not shown is not nothing: the driver may be late.
    pub(crate) fn take_shown(&mut self, card: &DeviceId, shown: Bytes) {
        if !shown.is_zero() {
            let most = self.device.entry(card.clone()).or_default();
            *most = shown.max(*most);
        }
    }

    /// What is to be reserved for it.
    pub(crate) fn line(&self) -> Claim {
        let (ram_private, ram_files) = self.memory();
        let mut device = self.planned.device.clone();
        device.extend(self.device.iter().map(|(id, bytes)| (id.clone(), *bytes)));
        raise(&mut device, &self.on_devices);
        let line = Claim { device, ram_private, ram_files, accelerated: self.planned.accelerated };
        // Where devices share system memory, all of a child that uses them counts as theirs.
        let shares = self.planned.device.is_empty() && !self.planned.accelerated.is_zero();
        if shares { Claim { accelerated: line.total(), ..line } } else { line }
    }

    /// Private memory, and files.
    fn memory(&self) -> (Bytes, BTreeSet<(FileId, Bytes)>) {
        let measured = self.private.unwrap_or_default();
        let Some(mapped) = &self.files else {
            return (self.floor(Bytes::ZERO).max(measured), self.planned.ram_files.clone());
        };
        if self.is_reported() {
            return (self.floor(Bytes::ZERO).max(measured), charged(mapped.clone()));
        }
        let mut files = mapped.clone();
        let missing =
            |(id, bytes): &(FileId, Bytes)| (*id, bytes.saturating_sub(mapped.get(id).copied().unwrap_or_default()));
        let missing: Vec<_> = self.planned.ram_files.iter().map(missing).collect();
        let floor = self.floor(Bytes::sum(mapped.values().chain(missing.iter().map(|(_, b)| b)).copied()));
        let private = floor.max(measured);
        // What was to be mapped and is not stays charged until it is seen as private memory.
        let mut found = private.saturating_sub(floor);
        for (id, bytes) in missing {
            let entry = files.entry(id).or_default();
            *entry = entry.saturating_add(bytes.saturating_sub(found));
            found = found.saturating_sub(bytes);
        }
        (private, charged(files))
    }

    /// The least that its private memory is charged when files are charged so much of system memory.
    fn floor(&self, files: Bytes) -> Bytes {
        match (self.buffers, self.beside) {
            (Some(buffers), Some(beside)) if self.private.is_some() => buffers.saturating_add(beside),
            (Some(buffers), Some(beside)) => buffers.saturating_add(beside).max(self.planned.ram_private),
            (None, Some(_)) => self.planned.ram_private,
            // Of a whole nobody knows what was meant as private: what more is mapped of it is less private.
            (_, None) => {
                let planned = Bytes::sum(self.planned.ram_files.iter().map(|(_, bytes)| *bytes));
                self.planned.ram_private.saturating_sub(files.saturating_sub(planned))
            }
        }
    }

    /// Whether its private memory was seen.
    pub(crate) fn sees_private(&self) -> bool {
        self.private.is_some()
    }

    /// Whether this device shows it.
    pub(crate) fn sees_on(&self, device: &DeviceId) -> bool {
        self.device.contains_key(device)
    }

    /// Whether what was reported says where all of it is.
    pub(crate) fn is_reported(&self) -> bool {
        self.buffers.is_some() && self.beside.is_some()
    }
}

fn charged(files: BTreeMap<FileId, Bytes>) -> BTreeSet<(FileId, Bytes)> {
    files.into_iter().filter(|(_, bytes)| !bytes.is_zero()).collect()
}

/// Each entry becomes the larger of both.
fn raise<K: Clone + Ord>(most: &mut BTreeMap<K, Bytes>, seen: &BTreeMap<K, Bytes>) {
    for (id, bytes) in seen {
        let entry = most.entry(id.clone()).or_default();
        *entry = (*entry).max(*bytes);
    }
}

/// The buffers in private system memory: neither mapped from a file, nor on one of its devices, nor on another machine.
fn private_buffers(reported: &Reported, claim: &Claim) -> Bytes {
    let on_device = |place: &str| !claim.device.is_empty() && is_device(place);
    let is_private = |place: &str| !place.ends_with("_Mapped") && !place.contains('[') && !on_device(place);
    Bytes::sum(reported.iter().filter(|(_, place, _)| is_private(place)).map(|(_, _, bytes)| bytes))
}

/// The buffers on each of its devices, which the engine numbers in this order.
fn device_buffers(reported: &Reported, order: &[DeviceId]) -> BTreeMap<DeviceId, Bytes> {
    let mut on = BTreeMap::<DeviceId, Bytes>::new();
    for (_, place, bytes) in reported.iter().filter(|(_, place, _)| is_device(place)) {
        let number = place.trim_start_matches(|c: char| c.is_ascii_alphabetic()).parse::<usize>();
        if let Some(id) = number.ok().and_then(|n| order.get(n)) {
            let sum = on.entry(id.clone()).or_default();
            *sum = sum.saturating_add(bytes);
        }
    }
    on
}

/// Engines call their devices by a kind and a number (`CUDA0`), and what is beside them otherwise (`CUDA_Host`, `CPU`).
pub(crate) fn is_device(place: &str) -> bool {
    let number = place.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    number.len() < place.len() && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
}

impl Pool {
    /// Corrects the line of a child that served. One that loads is charged what was planned.
    pub(crate) fn on_measured(&mut self, now: Now, spawn: Spawn, measured: &Measured) {
        let Some(account) = self.accounts.get_mut(&spawn) else { return };
        account.take(measured);
        self.correct(now, spawn);
        self.prove_by_report(now, spawn, measured);
    }

    /// Corrects the device parts of lines by what drivers show of our children.
    pub(crate) fn correct_by_cards(&mut self, now: Now, begun_at: Now, cards: &BTreeMap<DeviceId, CardSight>) {
        let seen = cards.iter().filter_map(|(id, sight)| Some((id, sight.figures()?.by_spawn.as_ref()?)));
        let shown = seen.flat_map(|(id, by_spawn)| by_spawn.iter().map(move |(spawn, bytes)| (*spawn, id, *bytes)));
        let mut changed = BTreeSet::new();
        for (spawn, id, bytes) in shown {
            if let Some(account) = self.accounts.get_mut(&spawn).filter(|account| account.since <= begun_at) {
                account.take_shown(id, bytes);
                changed.insert(spawn);
            }
        }
        for spawn in changed {
            self.correct(now, spawn);
        }
    }

    /// The line of `spawn` is as its account says from now on.
    fn correct(&mut self, now: Now, spawn: Spawn) {
        self.learn_if_risen(spawn);
        let Some(line) = self.accounts.get(&spawn).map(Account::line) else { return };
        let to = line.total();
        let Some(from) = self.ledger.line(spawn).filter(|before| **before != line).map(Claim::total) else { return };
        let before = self.ledger.overflow();
        let after = self.ledger.correct(spawn, line);
        self.owed.corrected(&before, &after);
        let living = self.entry_of(spawn).map(|entry| self.entries[entry].key.clone());
        if let Some(key) = living.or_else(|| self.teardowns.get(&spawn).map(|t| t.key.clone())) {
            self.publish(now, EventKind::Corrected { key, spawn, from, to });
        }
    }
}

#[cfg(test)]
mod tests;
