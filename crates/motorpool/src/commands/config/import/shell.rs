//! Words of a command line, as a shell would divide it: quotes, backslashes, comments. Nothing is expanded.

/// The words of `text`, each with its line, counted from `first`.
pub(super) fn words(text: &str, first: usize) -> Vec<(usize, String)> {
    let (mut words, mut line) = (Vec::new(), first);
    let mut open: Option<(usize, String)> = None;
    let mut quote: Option<char> = None;
    let mut letters = text.chars().peekable();
    while let Some(c) = letters.next() {
        let begun = line;
        if c == '\n' {
            line += 1;
        }
        let push = |open: &mut Option<(usize, String)>, c: char| {
            open.get_or_insert_with(|| (begun, String::new())).1.push(c);
        };
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some('"') | None, '\\') => match letters.next() {
                // A backslash at the end of a line joins it with the next.
                Some('\n') => line += 1,
                Some(next) => push(&mut open, next),
                None => push(&mut open, '\\'),
            },
            (None, '\'' | '"') => {
                quote = Some(c);
                open.get_or_insert_with(|| (begun, String::new()));
            }
            (None, '#') if open.is_none() => while letters.next_if(|c| *c != '\n').is_some() {},
            (None, c) if c.is_whitespace() => words.extend(open.take()),
            (_, c) => push(&mut open, c),
        }
    }
    words.extend(open);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_divided_as_a_shell_divides_it() {
        let text = "llama-server # the program\n  --port 1 \\\n  -m '/a b.gguf' --x=\"c \\\" d\" # end\n''";
        let found = words(text, 7);
        let want =
            [(7, "llama-server"), (8, "--port"), (8, "1"), (9, "-m"), (9, "/a b.gguf"), (9, "--x=c \" d"), (10, "")];
        assert_eq!(found, want.map(|(line, word)| (line, word.to_owned())));
    }
}
