//! What a model takes when its header cannot be read.
use motorpool_vocab::Bytes;

/// `round((size + projector) × 1.1) + 256 MiB`, and 384 MiB more with a projector; saturating.
///
/// The formula is the specification's (capacity §6): weights and a tenth for the cache of a short context, then what
/// every process takes.
pub fn estimate_unreadable(size: Bytes, projector: Option<Bytes>) -> Bytes {
    let files = u128::from(size.get()) + u128::from(projector.unwrap_or(Bytes::ZERO).get());
    let with_tenth = (files * 11 + 5) / 10;
    let overhead = if projector.is_some() { Bytes::mib(256 + 384) } else { Bytes::mib(256) };
    u64::try_from(with_tenth).map_or(Bytes::MAX, Bytes::new).saturating_add(overhead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_is_added_rounded_and_the_overhead_after_it() {
        let overhead = Bytes::mib(256).get();
        for (size, expected) in [(0, 0), (4, 4), (5, 6), (10, 11), (14, 15), (15, 17), (1_000_000, 1_100_000)] {
            assert_eq!(estimate_unreadable(Bytes::new(size), None), Bytes::new(expected + overhead), "{size}");
        }
    }

    #[test]
    fn a_projector_adds_its_file_and_its_own_overhead() {
        let with = estimate_unreadable(Bytes::new(1000), Some(Bytes::new(500)));
        assert_eq!(with, Bytes::new(1650).saturating_add(Bytes::mib(640)));
    }

    #[test]
    fn the_largest_sizes_do_not_wrap() {
        assert_eq!(estimate_unreadable(Bytes::MAX, Some(Bytes::MAX)), Bytes::MAX);
    }
}
