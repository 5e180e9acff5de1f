//! `motorpool run MODEL [PROMPT]`: one question, or a conversation on the terminal.
use crate::{
    args::Run,
    chat::{Chat, Heard},
    client::Client,
    exit::{Exit, Failure},
    out::{self, Form, Out},
};
use std::io::{self, BufRead, IsTerminal, Read, Write};

pub(super) async fn perform(client: &Client, out: Out, Run { model, prompt }: Run) -> Result<(), Failure> {
    let mut chat = Chat::new(client, &model);
    let prompt = match prompt {
        Some(prompt) => Some(prompt),
        None if io::stdin().is_terminal() => None,
        None => Some(rest_of_stdin()?),
    };
    match (prompt, out.form) {
        (Some(prompt), Form::Json) => {
            let reply = chat.ask_whole(&prompt).await?;
            out.data(&reply, String::new)
        }
        (Some(prompt), Form::People) => answer(&mut chat, &prompt).await,
        (None, Form::People) => converse(&mut chat).await,
        (None, Form::Json) => Err(Failure::new(
            Exit::Usage,
            "a conversation is for people, and --json for programs",
            "give one question: `motorpool run MODEL \"...\" --json`",
        )),
    }
}

fn rest_of_stdin() -> Result<String, Failure> {
    let mut text = String::new();
    io::stdin().lock().read_to_string(&mut text).map_err(|error| unreadable(&error))?;
    match text.trim() {
        "" => Err(Failure::new(Exit::Usage, "there is no question", "give one: `motorpool run MODEL \"...\"`")),
        text => Ok(text.to_owned()),
    }
}

fn unreadable(error: &io::Error) -> Failure {
    Failure::new(Exit::Failed, format_args!("cannot read the question: {error}"), "give it as an argument")
}

/// Question after question until the end of input, or `/bye`.
async fn converse(chat: &mut Chat<'_>) -> Result<(), Failure> {
    out::say("a conversation; end it with Ctrl-D or /bye");
    loop {
        let _ = write!(io::stderr().lock(), "> ").and_then(|()| io::stderr().flush());
        let mut line = String::new();
        if io::stdin().lock().read_line(&mut line).map_err(|error| unreadable(&error))? == 0 || line.trim() == "/bye" {
            return Ok(());
        }
        if line.trim().is_empty() {
            continue;
        }
        if let Err(failure) = answer(chat, line.trim()).await {
            out::say_failure(&failure);
        }
    }
}

/// Prints an answer as it comes.
pub(super) async fn answer(chat: &mut Chat<'_>, question: &str) -> Result<(), Failure> {
    let mut begun = false;
    let asked = chat.ask(question, |heard| {
        match heard {
            // Many models begin with a space or an empty line.
            Heard::Text(text) if begun || !text.trim().is_empty() => {
                out::write(if begun { text } else { text.trim_start() })?;
                begun = true;
            }
            Heard::Remark(remark) if !remark.is_empty() => out::say(remark),
            Heard::Text(_) | Heard::Remark(_) => {}
        }
        Ok(())
    });
    asked.await?;
    out::write("\n")
}
