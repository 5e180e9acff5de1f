//! [`cut_layers`]: contiguous layers over several devices.
use motorpool_vocab::Bytes;

/// How many of `units` each of `rooms` gets, contiguous and in order, and whether they fit: in proportion to the rooms
/// as nearly as fits, in proportion alone where nothing does.
pub(crate) fn cut_layers(units: &[Bytes], rooms: &[Bytes]) -> (Vec<u32>, bool) {
    let earliest = earliest_begins(units, rooms);
    let fits = earliest.first() == Some(&Some(0));
    let mut begin = 0;
    let mut counts = Vec::with_capacity(rooms.len());
    for (n, room) in rooms.iter().enumerate() {
        let wanted = proportional_end(units, rooms, n);
        let end = if fits {
            // What the ones behind it can take at most sets the least that this one takes.
            let least = earliest.get(n + 1).copied().flatten().unwrap_or(units.len());
            let most = begin + n_that_fit(units[begin..].iter(), *room);
            wanted.clamp(least.min(most), most).max(begin)
        } else {
            wanted.max(begin)
        };
        counts.push(u32::try_from(end - begin).unwrap_or(u32::MAX));
        begin = end;
    }
    (counts, fits)
}

/// The most of 0..=`n` for which `fits` holds, which holds for all below it too; `None` when it does not even for 0.
pub(crate) fn most_that_fit(n: u32, fits: impl Fn(u32) -> bool) -> Option<u32> {
    let (mut low, mut high) = (0, n);
    if !fits(0) {
        return None;
    }
    while low < high {
        let middle = high - (high - low) / 2;
        if fits(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    Some(low)
}

/// Where the units of the n-th room may begin at the earliest if the rooms from there on are to take the rest;
/// `Some(0)` for the first: everything fits. The last entry is for no room at all.
fn earliest_begins(units: &[Bytes], rooms: &[Bytes]) -> Vec<Option<usize>> {
    let mut begins = vec![Some(units.len())];
    let mut end = units.len();
    for room in rooms.iter().rev() {
        end -= n_that_fit(units[..end].iter().rev(), *room);
        begins.push(Some(end));
    }
    begins.reverse();
    begins
}

fn n_that_fit<'a>(units: impl Iterator<Item = &'a Bytes>, room: Bytes) -> usize {
    let mut taken = Bytes::ZERO;
    units
        .take_while(|unit| match taken.checked_add(**unit).filter(|sum| *sum <= room) {
            Some(sum) => {
                taken = sum;
                true
            }
            None => false,
        })
        .count()
}

/// Where the n-th room ends when each takes its part of the bytes; units go where more than half of them lies.
fn proportional_end(units: &[Bytes], rooms: &[Bytes], n: usize) -> usize {
    if n + 1 == rooms.len() {
        return units.len();
    }
    let sum = |all: &[Bytes]| all.iter().map(|bytes| u128::from(bytes.get())).sum::<u128>();
    let (all, whole) = (sum(units), sum(rooms).max(1));
    // Thousandths of thousandths: exact enough, and no product of two sizes.
    let target = all / 1_000_000 * (sum(&rooms[..=n]) * 1_000_000 / whole);
    let mut before = 0;
    let goes_before = |unit: &&Bytes| {
        let middle = before + u128::from(unit.get()) / 2;
        before += u128::from(unit.get());
        middle < target
    };
    units.iter().take_while(goes_before).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mib(all: &[u64]) -> Vec<Bytes> {
        all.iter().map(|n| Bytes::mib(*n)).collect()
    }

    #[test]
    fn equal_layers_go_in_proportion() {
        assert_eq!(cut_layers(&mib(&[100; 12]), &mib(&[2000, 1000])), (vec![8, 4], true));
        assert_eq!(cut_layers(&mib(&[100; 12]), &mib(&[1000, 1000, 1000])), (vec![4, 4, 4], true));
    }

    #[test]
    fn proportion_yields_where_only_another_cut_fits() {
        assert_eq!(cut_layers(&mib(&[100, 100, 100, 500]), &mib(&[310, 500])), (vec![3, 1], true));
        assert_eq!(cut_layers(&mib(&[500, 100, 100, 100]), &mib(&[510, 300])), (vec![1, 3], true));
    }

    #[test]
    fn what_does_not_fit_is_cut_all_the_same_and_said_not_to() {
        assert_eq!(cut_layers(&mib(&[100; 4]), &mib(&[150, 150])), (vec![2, 2], false));
        assert!(!cut_layers(&mib(&[100; 4]), &mib(&[0, 0])).1);
        assert_eq!(cut_layers(&[], &mib(&[0, 0])), (vec![0, 0], true));
    }

    #[test]
    fn the_most_that_fits_is_found_by_halves() {
        for most in 0..=9 {
            assert_eq!(most_that_fit(9, |n| n <= most), Some(most));
        }
        assert_eq!(most_that_fit(9, |_| false), None);
    }

    /// Whether any contiguous cut fits.
    fn brute_force(units: &[Bytes], rooms: &[Bytes]) -> bool {
        let Some((room, others)) = rooms.split_first() else { return units.is_empty() };
        (0..=units.len()).any(|n| Bytes::sum(units[..n].iter().copied()) <= *room && brute_force(&units[n..], others))
    }

    proptest! {
        #[test]
        fn a_cut_fits_whenever_one_does(
            units in prop::collection::vec((0u64..100).prop_map(Bytes::new), 0..9),
            rooms in prop::collection::vec((0u64..300).prop_map(Bytes::new), 1..5),
        ) {
            let (counts, fits) = cut_layers(&units, &rooms);
            prop_assert_eq!(fits, brute_force(&units, &rooms));
            let mut rest = units.as_slice();
            for (n, room) in counts.iter().zip(&rooms) {
                let (own, others) = rest.split_at(usize::try_from(*n).expect("small"));
                prop_assert!(!fits || Bytes::sum(own.iter().copied()) <= *room);
                rest = others;
            }
            prop_assert!(rest.is_empty(), "every layer has a place");
        }
    }
}
