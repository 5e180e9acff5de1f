//! [`Charges`]: sums of claims in which files count once, kept up to date line by line.
//!
//! Devices and files are numbered once ([`Numbers`]), so that adding and removing a line touches a few integers and
//! a judgement over many lines costs little. Sums are 128 bits wide: what is added can always be taken away again.
use motorpool_vocab::{Bytes, Claim, DeviceId, FileId};
use std::collections::BTreeMap;

/// Small numbers for devices and files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers {
    devices: Vec<DeviceId>,
    files: BTreeMap<FileId, usize>,
    n_files: usize,
    free: Vec<usize>,
}

/// A claim in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weighed {
    /// In the order of the claim's own map.
    pub(crate) devices: Few,
    /// Each file once.
    files: Few,
    pub(crate) ram_private: u64,
    pub(crate) accelerated: u64,
    on_devices: u128,
}

/// Bytes by number. Most claims have one device and one file: those lie in place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Few {
    first: Option<(usize, u64)>,
    #[expect(clippy::box_collection, reason = "hardly any claim has some, and thousands of claims are gone through")]
    more: Option<Box<Vec<(usize, u64)>>>,
}

/// A sum of claims.
#[derive(Clone, Debug, Default)]
pub(crate) struct Charges {
    devices: Vec<u128>,
    on_devices: u128,
    ram_private: u128,
    files: u128,
    pub(crate) accelerated: u128,
    sizes: Vec<Sizes>,
    /// Smaller sizes of a file, where lines disagree, and how many say so.
    smaller: BTreeMap<(usize, u64), u32>,
}

/// What the living lines say about one file; the largest is charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sizes {
    largest: u64,
    n_largest: u32,
}

impl Numbers {
    pub(crate) fn find_device(&self, id: &DeviceId) -> Option<usize> {
        self.devices.iter().position(|known| known == id)
    }

    pub(crate) fn find_file(&self, id: &FileId) -> Option<usize> {
        self.files.get(id).copied()
    }

    pub(crate) fn device(&mut self, id: &DeviceId) -> usize {
        self.find_device(id).unwrap_or_else(|| {
            self.devices.push(id.clone());
            self.devices.len() - 1
        })
    }

    pub(crate) fn file(&mut self, id: &FileId) -> usize {
        if let Some(n) = self.find_file(id) {
            return n;
        }
        let n = self.free.pop().unwrap_or(self.n_files);
        self.n_files = self.n_files.max(n + 1);
        self.files.insert(*id, n);
        n
    }

    /// Nobody maps this file any more: its number is for the next one.
    pub(crate) fn forget_file(&mut self, id: &FileId) {
        self.free.extend(self.files.remove(id));
    }

    pub(crate) fn devices(&self) -> &[DeviceId] {
        &self.devices
    }

    pub(crate) fn n_files(&self) -> usize {
        self.n_files
    }
}

impl Weighed {
    /// `claim` by the numbers of its devices, in order, and those that `file` gives.
    pub(crate) fn of(claim: &Claim, devices: &[usize], mut file: impl FnMut(&FileId) -> usize) -> Self {
        let mut files = Few::default();
        for (id, bytes) in &claim.ram_files {
            let n = file(id);
            // Sizes of one file follow each other, the largest last.
            match files.last_mut().filter(|(last, _)| *last == n) {
                Some((_, most)) => *most = bytes.get(),
                None => files.push((n, bytes.get())),
            }
        }
        let mut on = Few::default();
        for (n, bytes) in devices.iter().zip(claim.device.values()) {
            on.push((*n, bytes.get()));
        }
        Self {
            on_devices: on.iter().map(|(_, bytes)| u128::from(*bytes)).sum(),
            devices: on,
            files,
            ram_private: claim.ram_private.get(),
            accelerated: claim.accelerated.get(),
        }
    }

    /// Whether it asks for anything at all.
    pub(crate) fn is_nothing(&self) -> bool {
        !self.uses_ram() && self.on_devices == 0
    }

    /// Everything in it, files counted whole.
    pub(crate) fn whole(&self) -> u128 {
        let files = self.files.iter().map(|(_, bytes)| u128::from(*bytes)).sum::<u128>();
        self.on_devices + u128::from(self.ram_private) + files
    }

    /// Everything in it but files.
    pub(crate) fn private(&self) -> u128 {
        self.on_devices + u128::from(self.ram_private)
    }

    /// What of it is on device `n`.
    pub(crate) fn on_device(&self, n: usize) -> u128 {
        self.devices.iter().filter(|(device, _)| *device == n).map(|(_, bytes)| u128::from(*bytes)).sum()
    }

    pub(crate) fn uses_ram(&self) -> bool {
        self.ram_private > 0 || self.files.iter().any(|(_, bytes)| *bytes > 0)
    }
}

impl Few {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(usize, u64)> {
        self.first.iter().chain(self.more.iter().flat_map(|more| more.iter()))
    }

    fn last_mut(&mut self) -> Option<&mut (usize, u64)> {
        self.more.as_mut().and_then(|more| more.last_mut()).or(self.first.as_mut())
    }

    fn push(&mut self, one: (usize, u64)) {
        if self.first.is_none() {
            self.first = Some(one);
        } else {
            self.more.get_or_insert_default().push(one);
        }
    }
}

impl Charges {
    pub(crate) fn add(&mut self, weighed: &Weighed) {
        self.ram_private += u128::from(weighed.ram_private);
        self.accelerated += u128::from(weighed.accelerated);
        self.on_devices += weighed.on_devices;
        for (n, bytes) in weighed.devices.iter() {
            *slot(&mut self.devices, *n) += u128::from(*bytes);
        }
        for (n, bytes) in weighed.files.iter() {
            self.map(*n, *bytes);
        }
    }

    /// Takes away what was added.
    pub(crate) fn remove(&mut self, weighed: &Weighed) {
        self.ram_private -= u128::from(weighed.ram_private);
        self.accelerated -= u128::from(weighed.accelerated);
        self.on_devices -= weighed.on_devices;
        for (n, bytes) in weighed.devices.iter() {
            *slot(&mut self.devices, *n) -= u128::from(*bytes);
        }
        for (n, bytes) in weighed.files.iter() {
            self.unmap(*n, *bytes);
        }
    }

    /// What of system memory would be taken with `weighed` there too.
    pub(crate) fn ram_with(&self, weighed: &Weighed) -> u128 {
        let more = |(n, bytes): &(usize, u64)| {
            u128::from(bytes.saturating_sub(self.sizes.get(*n).map_or(0, |sizes| sizes.largest)))
        };
        self.ram() + u128::from(weighed.ram_private) + weighed.files.iter().map(more).sum::<u128>()
    }

    /// What would be taken in all with `weighed` there too.
    pub(crate) fn total_with(&self, weighed: &Weighed) -> u128 {
        self.on_devices + weighed.on_devices + self.ram_with(weighed)
    }

    pub(crate) fn device(&self, n: usize) -> u128 {
        self.devices.get(n).copied().unwrap_or(0)
    }

    /// By device, and what is accelerated, if `lines`, which are in it, were not.
    pub(crate) fn devices_without<'a>(&self, lines: impl Iterator<Item = &'a Weighed>) -> (Vec<u128>, u128) {
        let (mut devices, mut accelerated) = (self.devices.clone(), self.accelerated);
        for line in lines {
            accelerated -= u128::from(line.accelerated);
            for (n, bytes) in line.devices.iter() {
                *slot(&mut devices, *n) -= u128::from(*bytes);
            }
        }
        (devices, accelerated)
    }

    pub(crate) fn ram(&self) -> u128 {
        self.ram_private + self.files
    }

    pub(crate) fn total(&self) -> u128 {
        self.on_devices + self.ram()
    }

    /// Whether no line maps file `n`.
    pub(crate) fn is_unmapped(&self, n: usize) -> bool {
        self.sizes.get(n).is_none_or(|sizes| sizes.n_largest == 0)
    }

    /// One more line says that file `n` takes `bytes`.
    fn map(&mut self, n: usize, bytes: u64) {
        let sizes = slot(&mut self.sizes, n);
        if bytes == sizes.largest && sizes.n_largest > 0 {
            sizes.n_largest += 1;
        } else if bytes < sizes.largest {
            *self.smaller.entry((n, bytes)).or_default() += 1;
        } else {
            self.files += u128::from(bytes - sizes.largest);
            let before = std::mem::replace(sizes, Sizes { largest: bytes, n_largest: 1 });
            if before.n_largest > 0 {
                self.smaller.insert((n, before.largest), before.n_largest);
            }
        }
    }

    /// One line less does.
    fn unmap(&mut self, n: usize, bytes: u64) {
        let sizes = slot(&mut self.sizes, n);
        if bytes < sizes.largest {
            if let Some(times) = self.smaller.get_mut(&(n, bytes)) {
                *times -= 1;
                if *times == 0 {
                    self.smaller.remove(&(n, bytes));
                }
            }
            return;
        }
        sizes.n_largest -= 1;
        if sizes.n_largest == 0 {
            let next = self.smaller.range((n, 0)..=(n, u64::MAX)).next_back().map(|((_, size), times)| (*size, *times));
            let (largest, n_largest) = next.unwrap_or_default();
            self.smaller.remove(&(n, largest));
            self.files -= u128::from(bytes - largest);
            *sizes = Sizes { largest, n_largest };
        }
    }
}

/// `bytes` as a quantity, stopping at the largest there is.
pub(crate) fn quantity(bytes: u128) -> Bytes {
    u64::try_from(bytes).map_or(Bytes::MAX, Bytes::new)
}

fn slot<T: Clone + Default>(all: &mut Vec<T>, n: usize) -> &mut T {
    if all.len() <= n {
        all.resize(n + 1, T::default());
    }
    &mut all[n]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The charged size is the largest of those that are there, in any order of coming and going.
        #[test]
        fn the_largest_of_the_living_sizes_is_charged(ops in prop::collection::vec((0u64..4, any::<bool>()), 1..60)) {
            let (mut charges, mut model) = (Charges::default(), Vec::new());
            for (bytes, comes) in ops {
                if comes {
                    charges.map(3, bytes);
                    model.push(bytes);
                } else if let Some(at) = model.iter().position(|there| *there == bytes) {
                    charges.unmap(3, bytes);
                    model.swap_remove(at);
                }
                prop_assert_eq!(charges.total(), u128::from(model.iter().copied().max().unwrap_or(0)));
                prop_assert_eq!(charges.is_unmapped(3), model.is_empty());
                prop_assert!(!model.is_empty() || charges.smaller.is_empty());
            }
        }
    }

    #[test]
    fn a_file_named_twice_by_one_claim_counts_with_its_largest_size() {
        let id = FileId { device: 1, inode: 1, size: 9, mtime_nanos: 0 };
        let ram_files = [(id, Bytes::new(5)), (id, Bytes::new(9))].into();
        let mut numbers = Numbers::default();
        let weighed = Weighed::of(&Claim { ram_files, ..Claim::default() }, &[], |id| numbers.file(id));
        let mut charges = Charges::default();
        charges.add(&weighed);
        assert_eq!(charges.total(), 9);
        charges.remove(&weighed);
        assert_eq!(charges.total(), 0);
    }

    #[test]
    fn the_largest_claims_add_up_and_come_back_whole() {
        let claim = Claim { accelerated: Bytes::MAX, ..Claim::private(Bytes::MAX) };
        let all = Weighed::of(&claim, &[], |_| 0);
        let mut charges = Charges::default();
        charges.add(&all);
        charges.add(&all);
        assert_eq!(quantity(charges.total()), Bytes::MAX);
        charges.remove(&all);
        charges.remove(&all);
        assert_eq!(charges.total(), 0);
    }
}
