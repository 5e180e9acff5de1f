//! The answer of `KERN_PROCARGS2`: what a process was started with.
//!
//! ```text
//! argc (i32) │ path of the program │ 0 │ zeros │ argument │ 0 │ … argc times │ NAME=value │ 0 │ … │ strings of the loader
//! ```
//!
//! Where the environment begins is known by counting arguments alone, so that an argument that looks like an entry is none.
//! Zeros behind the path are padding; a first argument that is empty is taken for some, and costs the first entry.

/// The environment, each entry with a zero after it (the last perhaps without); behind it strings of the loader. `None` when
/// there is nothing behind the arguments: it is empty or, much more often, hidden.
pub(super) fn environment(answer: &[u8]) -> Option<&[u8]> {
    let (argc, rest) = answer.split_first_chunk::<4>()?;
    let argc = usize::try_from(i32::from_ne_bytes(*argc)).ok()?;
    let mut rest = after_string(rest)?;
    while let Some((0, more)) = rest.split_first() {
        rest = more;
    }
    for _ in 0..argc {
        rest = after_string(rest)?;
    }
    rest.iter().any(|byte| *byte != 0).then_some(rest)
}

/// What is behind the zero that ends a string. `None` when it has no end.
fn after_string(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    bytes.get(end + 1..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    fn answer(argc: i32, strings: &[u8]) -> Vec<u8> {
        [&argc.to_ne_bytes(), strings].concat()
    }

    fn entries(answer: &[u8]) -> Option<Vec<&[u8]>> {
        Some(environment(answer)?.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()).collect())
    }

    const TWO: &[u8] = b"/opt/engine\0\0\0\0\0engine\0-m\0A=1\0NONCE=ab\0\0\0\0ptr_munge=\0main_stack=\0";

    #[test]
    fn the_environment_begins_behind_the_last_argument() {
        let loader: [&[u8]; 2] = [b"ptr_munge=", b"main_stack="];
        let with = |own: &[&'static [u8]]| Some([own, &loader].concat());
        assert_eq!(entries(&answer(2, TWO)), with(&[b"A=1", b"NONCE=ab"]));
        assert_eq!(entries(&answer(3, TWO)), with(&[b"NONCE=ab"]), "an argument that looks like an entry is none");
        assert_eq!(entries(&answer(0, b"/e\0\0\0A=1\0")), Some(vec![&b"A=1"[..]]), "no arguments at all");
        assert_eq!(entries(&answer(2, b"/e\0e\0\0A=1\0")), Some(vec![&b"A=1"[..]]), "an empty argument is one");
    }

    #[test]
    fn an_environment_that_is_hidden_is_not_an_empty_one() {
        for strings in [&b"/bin/sleep\0\0\0\0\0\0sleep\x00600\0"[..], b"/bin/sleep\0sleep\x00600\0\0\0\0"] {
            assert_eq!(environment(&answer(2, strings)), None);
        }
    }

    #[test]
    fn what_is_cut_short_or_lies_is_no_environment() {
        let whole = answer(2, TWO);
        let begins = whole.len() - environment(&whole).expect("there is one").len();
        for cut in 0..=begins {
            assert_eq!(environment(&whole[..cut]), None, "{cut}");
        }
        assert_eq!(entries(&whole[..=begins]), Some(vec![&b"A"[..]]), "an entry without its end");
        for argc in [-1, i32::MIN, i32::MAX, 99] {
            assert_eq!(environment(&answer(argc, TWO)), None, "{argc}");
        }
        assert_eq!(environment(&answer(1, b"no end")), None);
    }

    proptest! {
        #[test]
        fn no_answer_panics(bytes in vec(prop_oneof![Just(0u8), any::<u8>()], 0..64)) {
            let _ = environment(&bytes);
        }

        #[test]
        fn any_arguments_and_entries_are_told_apart(
            args in vec("[^\u{0}]{1,6}", 1..5), own in vec("[A-Z]{1,3}=[^\u{0}]{0,6}", 1..5), padding in 0usize..8,
        ) {
            let text = |strings: &[String]| strings.iter().flat_map(|one| [one.as_bytes(), b"\0"].concat()).collect::<Vec<_>>();
            let strings = [&b"/p\0"[..], &vec![0; padding], &text(&args), &text(&own)].concat();
            let found = answer(i32::try_from(args.len()).expect("few"), &strings);
            let expected: Vec<&[u8]> = own.iter().map(String::as_bytes).collect();
            prop_assert_eq!(entries(&found), Some(expected));
        }
    }
}
