//! [`shrink`]: the shortest trace that still fails, as far as leaving out steps finds it.

/// Leaves out steps, many at first and then single ones, as long as what is left still `fails`.
pub fn shrink<T: Clone>(steps: &[T], mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut rest = steps.to_vec();
    let mut size = rest.len().div_ceil(2);
    while size > 0 {
        let mut from = 0;
        let mut shorter = false;
        while from < rest.len() {
            let to = rest.len().min(from + size);
            let without = [&rest[..from], &rest[to..]].concat();
            if fails(&without) {
                rest = without;
                shorter = true;
            } else {
                from = to;
            }
        }
        if !shorter || size > 1 {
            size /= 2;
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_matter_is_left_out() {
        let steps: Vec<u32> = (0..200).collect();
        let fails = |steps: &[u32]| [17, 18, 150].iter().all(|n| steps.contains(n));
        assert_eq!(shrink(&steps, fails), [17, 18, 150]);
        assert_eq!(shrink(&steps, |_| true), [] as [u32; 0]);
    }
}
