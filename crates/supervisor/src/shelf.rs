//! [`Shelf`]: which contexts of sessions are on disk, and which go when they take more than they may. No I/O.
//!
//! * The least recently used go first; one that alone is too large goes at once.
//! * Bytes of all files are never more than the budget after [`Shelf::put`], once what it names is deleted.
use motorpool_vocab::Bytes;
use std::{collections::BTreeMap, sync::Arc};

/// A folder, and a file in it.
pub(crate) type Place = (Arc<str>, Arc<str>);

/// The book of all files.
#[derive(Debug)]
pub(crate) struct Shelf {
    budget: Bytes,
    total: Bytes,
    files: BTreeMap<Place, (Bytes, u64)>,
    /// By when they were used, as a number that only grows.
    by_use: BTreeMap<u64, Place>,
    next_use: u64,
}

impl Shelf {
    pub(crate) fn new(budget: Bytes) -> Self {
        Self { budget, total: Bytes::ZERO, files: BTreeMap::new(), by_use: BTreeMap::new(), next_use: 0 }
    }

    /// This file is there now, with so many bytes. What must be deleted for it, perhaps itself.
    pub(crate) fn put(&mut self, place: Place, bytes: Bytes) -> Vec<Place> {
        self.forget(&place);
        self.total = self.total.saturating_add(bytes);
        self.files.insert(place.clone(), (bytes, self.next_use));
        self.by_use.insert(self.next_use, place);
        self.next_use += 1;
        let mut going = Vec::new();
        while self.total > self.budget
            && let Some((_, oldest)) = self.by_use.first_key_value()
        {
            let oldest = oldest.clone();
            self.forget(&oldest);
            going.push(oldest);
        }
        going
    }

    /// Whether there is such a file; it is the last to go from now on.
    pub(crate) fn find(&mut self, place: &Place) -> bool {
        let Some((_, used)) = self.files.get_mut(place) else { return false };
        self.by_use.remove(used);
        *used = self.next_use;
        self.by_use.insert(self.next_use, place.clone());
        self.next_use += 1;
        true
    }

    /// The file is gone, or of no use.
    pub(crate) fn forget(&mut self, place: &Place) {
        if let Some((bytes, used)) = self.files.remove(place) {
            self.total = self.total.saturating_sub(bytes);
            self.by_use.remove(&used);
        }
    }

    /// The folder is gone.
    pub(crate) fn forget_folder(&mut self, folder: &str) {
        let of_it: Vec<Place> = self.files.keys().filter(|(of, _)| **of == *folder).cloned().collect();
        for place in &of_it {
            self.forget(place);
        }
    }

    #[cfg(test)]
    pub(crate) fn total(&self) -> Bytes {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place(name: &str) -> Place {
        ("m@1".into(), name.into())
    }

    fn put(shelf: &mut Shelf, name: &str, mib: u64) -> Vec<String> {
        shelf.put(place(name), Bytes::mib(mib)).into_iter().map(|(_, name)| name.to_string()).collect()
    }

    #[test]
    fn the_least_recently_used_go_and_no_more_than_must() {
        let mut shelf = Shelf::new(Bytes::mib(10));
        for name in ["a", "b", "c"] {
            assert!(put(&mut shelf, name, 3).is_empty());
        }
        assert!(shelf.find(&place("a")));
        assert_eq!(put(&mut shelf, "d", 3), ["b"]);
        assert_eq!(put(&mut shelf, "e", 6), ["c", "a"]);
        assert!(!shelf.find(&place("a")));
        assert_eq!(put(&mut shelf, "f", 11), ["d", "e", "f"], "too large alone");
        assert_eq!(shelf.total(), Bytes::ZERO);
    }

    #[test]
    fn a_file_that_is_written_again_counts_once() {
        let mut shelf = Shelf::new(Bytes::mib(10));
        put(&mut shelf, "a", 9);
        assert!(put(&mut shelf, "a", 10).is_empty());
        assert_eq!(shelf.total(), Bytes::mib(10));
        shelf.forget(&place("a"));
        shelf.forget(&place("a"));
        assert_eq!(shelf.total(), Bytes::ZERO);
    }

    proptest! {
        #[test]
        fn no_more_is_kept_than_may_be_and_what_is_kept_was_not_told_to_go(
            steps in proptest::collection::vec((0..6_u8, 0..12_u64, 0..4_u8), 0..60)
        ) {
            let mut shelf = Shelf::new(Bytes::mib(20));
            let mut there = BTreeMap::new();
            for (name, mib, what) in steps {
                let place: Place = (format!("m@{}", name % 2).into(), name.to_string().into());
                match what {
                    0 => prop_assert_eq!(shelf.find(&place), there.contains_key(&place)),
                    1 => {
                        shelf.forget_folder(&place.0);
                        there.retain(|(folder, _): &Place, _| *folder != place.0);
                    }
                    _ => {
                        there.insert(place.clone(), Bytes::mib(mib));
                        for gone in shelf.put(place, Bytes::mib(mib)) {
                            prop_assert!(there.remove(&gone).is_some());
                        }
                    }
                }
                let total = Bytes::sum(there.values().copied());
                prop_assert!(total <= Bytes::mib(20) && total == shelf.total());
            }
        }
    }
}
