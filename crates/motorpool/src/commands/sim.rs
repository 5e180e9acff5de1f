//! `motorpool sim TRACE`: a written trace over the pool alone, in virtual time, and what happens at each of its steps.
use crate::{
    args::Sim,
    exit::{Exit, Failure},
    out::{self, Form, Out},
};
use motorpool_pool::sim::{Run, Trace, told};
use serde_json::json;
use std::{fs, io::Read as _};

pub(super) fn perform(out: Out, Sim { trace }: &Sim) -> Result<(), Failure> {
    let unread = |error| Failure::new(Exit::Usage, error, "name a file, or `-` for standard input");
    let text = if trace.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        fs::read_to_string(trace)
    };
    let text = text.map_err(|error| unread(format!("{}: {error}", trace.display())))?;
    let wrong = |error| Failure::new(Exit::Usage, error, "`motorpool sim --help` shows what a trace may say");
    let trace: Trace = text.parse().map_err(wrong)?;
    let mut run = Run::new(&trace.setting);
    let begun = run.world().now();
    for step in &trace.steps {
        let at = run.world().now().since(begun);
        let happened = run.step(step);
        let (lines, broken) = match &happened {
            Ok(actions) => (actions.iter().map(told).collect(), None),
            Err(broken) => (vec![], Some(broken.to_string())),
        };
        write(out, (at.as_millis(), &step.to_string()), (&lines, broken.as_deref()))?;
        if let Some(broken) = broken {
            return Err(Failure::new(Exit::Failed, broken, "this is a defect of the pool: report it with the trace"));
        }
    }
    Ok(())
}

fn write(out: Out, (ms, step): (u128, &str), (lines, broken): (&Vec<String>, Option<&str>)) -> Result<(), Failure> {
    match out.form {
        Form::Json => {
            let ms = u64::try_from(ms).unwrap_or(u64::MAX);
            out::write_as_it_is(
                &(json!({ "atMs": ms, "step": step, "actions": lines, "broken": broken }).to_string() + "\n"),
            )
        }
        Form::People => {
            let indented: String = lines.iter().flat_map(|line| ["              ", line, "\n"]).collect();
            out::write(&format!("{ms:>9} ms  {step}\n{indented}"))
        }
    }
}
