//! [`Trace`]: what a world is and what happens in it, as text.
//!
//! ```text
//! budget 1200                       MiB, for all engines
//! model a 600 replicas=1..3 home    MiB; also priority=N, pinned
//! acquire r1 a session=s lane=background drain=5 queue=60 parent priority=2 replica=1 actor=x
//! load r2 a           enter r3 a [untold]      leave r3 [untold]     tell r3       cancel r1
//! check a:0 ok|bad    progress a:0             ready a:0 4           gone a:0 oldest|newest
//! fail a:0 killed     sick a:0 still|deaf      fails a:0             reset r9 [a]
//! written a:0         reload r13 a launch|live|gone|back
//! unload-idle r4 a:0  evict r5 a:0 [force]     release r6            reconcile r7 a 2
//! withdraw r8 r1      move r9 r1 up|down       pass 1500             old-news 7
//! retire r10          shutdown r11             obey
//! ```
//!
//! Requests are `r` and a number that only grows from step to step; engines are `model:replica`; waits are seconds, `pass`
//! milliseconds; a child becomes ready with so many slots. `fail` ends one with a class of failure, `sick` makes one that
//! serves show no progress (`still`) or answer no question either (`deaf`), `fails` has three requests in a row fail there, and
//! `written` says that what a slot of it held, which the pool wants written, is so.
//! A reload makes a launch of a model another one, changes a live key of it, takes it out of the catalog, or puts it there as
//! it was at first. `obey` does all that the pool wants done. `#` begins a comment.
use crate::{Direction, Force, RequestId};
use motorpool_catalog::MOST_REPLICAS;
use motorpool_vocab::{FailureClass, Lane, ModelId};
use std::{fmt, str::FromStr};

/// Most MiB that a trace may speak of.
const MIB_MOST: u64 = 1 << 30;

/// Largest number of a request.
const REQUEST_MOST: u64 = 1 << 40;

/// A whole trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Where it happens.
    pub setting: Setting,
    /// What happens, in order.
    pub steps: Vec<Step>,
}

/// A machine without devices and its models.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// The budget in MiB.
    pub budget: u64,
    /// The models, by order of declaration.
    pub models: Vec<SettingModel>,
}

/// One model of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingModel {
    /// Its id.
    pub id: String,
    /// What it takes, in MiB.
    pub mib: u64,
    /// Its priority.
    pub priority: i32,
    /// Whether it is `pinned`, and whether it is at `home`.
    pub stays: [bool; 2],
    /// The least and the most engines of it.
    pub replicas: (u32, u32),
}

/// On what terms a lease is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// How urgent it is.
    pub lane: Lane,
    /// Its session.
    pub session: Option<String>,
    /// Who acts.
    pub actor: Option<String>,
    /// Seconds for others to finish.
    pub drain: Option<u64>,
    /// Seconds in all.
    pub queue: Option<u64>,
    /// Its importance.
    pub priority: Option<i32>,
    /// Exactly this replica.
    pub replica: Option<u32>,
    /// Whether another request waits for it.
    pub parent: Parent,
}

/// Whether another request waits for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parent {
    /// It stands alone.
    #[default]
    None,
    /// It is part of another one.
    Some,
}

/// Whether the pool hears at once what a gate counts already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Telling {
    /// It does.
    Now,
    /// With a later `tell`.
    Later,
}

/// Which of several children of one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The first that was started.
    Oldest,
    /// The last one.
    Newest,
}

/// What a child that serves does not do any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sickness {
    /// Nothing moves; it says that all is well.
    Still,
    /// It answers nothing.
    Deaf,
}

/// What a reload finds changed of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// A key that makes a new launch.
    Launch,
    /// A live key.
    Live,
    /// It may have one engine.
    Narrow,
    /// It is not there any more.
    Gone,
    /// It is as it was at first.
    Back,
    /// Of no model: whether engines that do not drain in time are cut.
    Cut,
}

/// An engine: a model's name and a replica.
pub type Place = (String, u32);

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A lease is wanted.
    Acquire(RequestId, String, Box<Wish>),
    /// A model is wanted resident.
    Load(RequestId, String),
    /// Somebody enters a gate by themselves, any replica's.
    Enter(RequestId, String, Telling),
    /// A lease ends.
    Leave(RequestId, Telling),
    /// The pool hears what it was not told.
    Tell(RequestId),
    /// The asker is gone.
    Cancel(RequestId),
    /// Program and file were looked at.
    Check(Place, Result<(), ()>),
    /// A loading child shows life.
    Progress(Place),
    /// A loading child serves, with so many slots.
    Ready(Place, u32),
    /// A child ends.
    Gone(Place, Which),
    /// A child that loads or serves ends, and its log tells why.
    Fail(Place, FailureClass),
    /// A child that serves is of less use than it was.
    Sick(Place, Sickness),
    /// Requests fail, one after the other.
    Fails(Place),
    /// A slot of its engine was written, or could not be.
    Written(Place),
    /// Failures are forgotten, of one model or of all.
    Reset(RequestId, Option<String>),
    /// Unload if idle.
    UnloadIdle(RequestId, Place),
    /// Unload.
    Evict(RequestId, Place, Force),
    /// Unload everything idle.
    ReleaseIdle(RequestId),
    /// So many engines of a model are wanted.
    Reconcile(RequestId, String, u32),
    /// The catalog says something else of a model.
    Reload(RequestId, String, Edit),
    /// An operator drains an engine.
    Drain(RequestId, Place),
    /// A ticket is taken out.
    Withdraw(RequestId, RequestId),
    /// A ticket is moved.
    Move(RequestId, RequestId, Direction),
    /// Time passes, in milliseconds.
    Pass(u64),
    /// News of a child that is gone, by number.
    OldNews(u64),
    /// Nothing new, everything finishes.
    Retire(RequestId),
    /// Everything ends.
    Shutdown(RequestId),
    /// All that the pool wants done is done.
    Obey,
}

/// Why a text is no trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct TraceError {
    /// Which line, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

impl FromStr for Trace {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Self, TraceError> {
        let mut trace = Self::default();
        for (n, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().collect();
            let read = |what: Result<(), String>| what.map_err(|what| TraceError { line: n + 1, what });
            match words.as_slice() {
                [] => {}
                ["budget", mib] => read(number(mib, MIB_MOST).map(|mib| trace.setting.budget = mib))?,
                ["model", id, mib, more @ ..] => {
                    read(model(id, mib, more).and_then(|model| trace.setting.add(model)))?;
                }
                words => read(step(words).and_then(|step| trace.add(step)))?,
            }
        }
        Ok(trace)
    }
}

impl Setting {
    fn add(&mut self, model: SettingModel) -> Result<(), String> {
        ModelId::new(&model.id).map_err(|error| format!("`{}`: {error}", model.id))?;
        if self.models.iter().any(|other| other.id == model.id) {
            return Err(format!("there is a model `{}` already", model.id));
        }
        self.models.push(model);
        Ok(())
    }
}

impl Trace {
    /// A request's number is never used again: what is known of it would be another's.
    fn add(&mut self, step: Step) -> Result<(), String> {
        let last = self.steps.iter().rev().find_map(Step::makes);
        match (step.makes(), last) {
            (Some(new), Some(last)) if new <= last => Err(format!("r{} comes after r{}", new.0, last.0)),
            _ => {
                self.steps.push(step);
                Ok(())
            }
        }
    }
}

impl Step {
    /// The request that is made in it.
    fn makes(&self) -> Option<RequestId> {
        match self {
            Self::Acquire(id, ..)
            | Self::Load(id, _)
            | Self::Enter(id, ..)
            | Self::UnloadIdle(id, _)
            | Self::Evict(id, ..)
            | Self::ReleaseIdle(id)
            | Self::Reconcile(id, ..)
            | Self::Reload(id, ..)
            | Self::Drain(id, _)
            | Self::Reset(id, _)
            | Self::Withdraw(id, _)
            | Self::Move(id, ..)
            | Self::Retire(id)
            | Self::Shutdown(id) => Some(*id),
            Self::Leave(..)
            | Self::Tell(_)
            | Self::Cancel(_)
            | Self::Check(..)
            | Self::Progress(_)
            | Self::Ready(..)
            | Self::Gone(..)
            | Self::Fail(..)
            | Self::Sick(..)
            | Self::Fails(_)
            | Self::Written(_)
            | Self::Pass(_)
            | Self::OldNews(_)
            | Self::Obey => None,
        }
    }
}

fn number(text: &str, most: u64) -> Result<u64, String> {
    let n: u64 = text.parse().map_err(|_| format!("`{text}` is no number"))?;
    if n <= most { Ok(n) } else { Err(format!("{n} is more than {most}")) }
}

fn small<T: TryFrom<u64>>(text: &str, most: u64) -> Result<T, String> {
    T::try_from(number(text, most)?).map_err(|_| format!("`{text}` is too large"))
}

fn model(id: &str, mib: &str, more: &[&str]) -> Result<SettingModel, String> {
    let mib = number(mib, MIB_MOST)?;
    let mut model = SettingModel { id: id.into(), mib, priority: 0, stays: [false; 2], replicas: (1, 1) };
    for word in more {
        match word.split_once('=') {
            None if *word == "pinned" => model.stays[0] = true,
            None if *word == "home" => model.stays[1] = true,
            Some(("priority", n)) => model.priority = priority(n)?,
            Some(("replicas", range)) => {
                let (min, max) = range.split_once("..").ok_or("replicas are `1..3`")?;
                let most = MOST_REPLICAS.into();
                model.replicas = (small(min, most)?, small(max, most)?);
                if model.replicas.0 < 1 || model.replicas.0 > model.replicas.1 {
                    return Err(format!("`{range}` is no range of replicas"));
                }
            }
            _ => return Err(format!("a model has no `{word}`")),
        }
    }
    Ok(model)
}

fn priority(text: &str) -> Result<i32, String> {
    text.parse().ok().filter(|n| (-1000..=1000).contains(n)).ok_or(format!("`{text}` is no priority"))
}

fn request(text: &str) -> Result<RequestId, String> {
    let number = text.strip_prefix('r').and_then(|n| n.parse().ok()).filter(|n| *n <= REQUEST_MOST);
    number.map(RequestId).ok_or(format!("`{text}` is no request such as `r1`"))
}

fn place(text: &str) -> Result<Place, String> {
    let (model, replica) = text.split_once(':').ok_or(format!("`{text}` is no engine such as `a:0`"))?;
    Ok((model.into(), small(replica, u64::from(MOST_REPLICAS) - 1)?))
}

fn step(words: &[&str]) -> Result<Step, String> {
    Ok(match words {
        ["acquire", id, model, more @ ..] => Step::Acquire(request(id)?, (*model).into(), Box::new(wish(more)?)),
        ["load", id, model] => Step::Load(request(id)?, (*model).into()),
        ["enter", id, model] => Step::Enter(request(id)?, (*model).into(), Telling::Now),
        ["enter", id, model, "untold"] => Step::Enter(request(id)?, (*model).into(), Telling::Later),
        ["leave", id] => Step::Leave(request(id)?, Telling::Now),
        ["leave", id, "untold"] => Step::Leave(request(id)?, Telling::Later),
        ["tell", id] => Step::Tell(request(id)?),
        ["cancel", id] => Step::Cancel(request(id)?),
        ["check", at, "ok"] => Step::Check(place(at)?, Ok(())),
        ["check", at, "bad"] => Step::Check(place(at)?, Err(())),
        ["progress", at] => Step::Progress(place(at)?),
        ["ready", at, width] => Step::Ready(place(at)?, small(width, 1 << 20)?),
        ["gone", at, "oldest"] => Step::Gone(place(at)?, Which::Oldest),
        ["gone", at, "newest"] => Step::Gone(place(at)?, Which::Newest),
        ["fail", at, class] => Step::Fail(place(at)?, FailureClass::from_name(class).ok_or("no such failure class")?),
        ["sick", at, "still"] => Step::Sick(place(at)?, Sickness::Still),
        ["sick", at, "deaf"] => Step::Sick(place(at)?, Sickness::Deaf),
        ["fails", at] => Step::Fails(place(at)?),
        ["written", at] => Step::Written(place(at)?),
        ["reset", id] => Step::Reset(request(id)?, None),
        ["reset", id, model] => Step::Reset(request(id)?, Some((*model).into())),
        ["unload-idle", id, at] => Step::UnloadIdle(request(id)?, place(at)?),
        ["evict", id, at] => Step::Evict(request(id)?, place(at)?, Force::No),
        ["evict", id, at, "force"] => Step::Evict(request(id)?, place(at)?, Force::Yes),
        ["release", id] => Step::ReleaseIdle(request(id)?),
        ["reconcile", id, model, n] => Step::Reconcile(request(id)?, (*model).into(), small(n, 1 << 20)?),
        ["reload", id, model, what] => Step::Reload(request(id)?, (*model).into(), edit(what)?),
        ["drain", id, at] => Step::Drain(request(id)?, place(at)?),
        ["withdraw", id, ticket] => Step::Withdraw(request(id)?, request(ticket)?),
        ["move", id, ticket, "up"] => Step::Move(request(id)?, request(ticket)?, Direction::Up),
        ["move", id, ticket, "down"] => Step::Move(request(id)?, request(ticket)?, Direction::Down),
        ["pass", ms] => Step::Pass(number(ms, 1 << 40)?),
        ["old-news", spawn] => Step::OldNews(number(spawn, u64::MAX)?),
        ["retire", id] => Step::Retire(request(id)?),
        ["shutdown", id] => Step::Shutdown(request(id)?),
        ["obey"] => Step::Obey,
        other => return Err(format!("`{}` is nothing that happens", other.join(" "))),
    })
}

impl Edit {
    const ALL: [Self; 6] = [Self::Launch, Self::Live, Self::Narrow, Self::Gone, Self::Back, Self::Cut];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::Live => "live",
            Self::Narrow => "narrow",
            Self::Gone => "gone",
            Self::Back => "back",
            Self::Cut => "cut",
        }
    }
}

fn edit(text: &str) -> Result<Edit, String> {
    let known = Edit::ALL.into_iter().find(|edit| edit.as_str() == text);
    known.ok_or(format!("`{text}` is nothing that changes of a model"))
}

fn wish(words: &[&str]) -> Result<Wish, String> {
    let mut wish = Wish::default();
    for word in words {
        match word.split_once('=') {
            None if *word == "parent" => wish.parent = Parent::Some,
            Some(("lane", name)) => wish.lane = Lane::from_name(name).ok_or(format!("`{name}` is no lane"))?,
            Some(("session", name)) => wish.session = Some(name.into()),
            Some(("actor", name)) => wish.actor = Some(name.into()),
            Some(("drain", n)) => wish.drain = Some(number(n, 1 << 30)?),
            Some(("queue", n)) => wish.queue = Some(number(n, 1 << 30)?),
            Some(("priority", n)) => wish.priority = Some(priority(n)?),
            Some(("replica", n)) => wish.replica = Some(small(n, 1 << 20)?),
            _ => return Err(format!("a request has no `{word}`")),
        }
    }
    Ok(wish)
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "budget {}", self.setting.budget)?;
        for model in &self.setting.models {
            let SettingModel { id, mib, priority, stays: [pinned, home], replicas: (min, max) } = model;
            write!(f, "model {id} {mib} priority={priority} replicas={min}..{max}")?;
            f.write_str(if *pinned { " pinned" } else { "" })?;
            f.write_str(if *home { " home\n" } else { "\n" })?;
        }
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |(model, replica): &Place| format!("{model}:{replica}");
        let untold = |telling: &Telling| if *telling == Telling::Later { " untold" } else { "" };
        match self {
            Self::Acquire(id, model, wish) => write!(f, "acquire r{} {model}{wish}", id.0),
            Self::Load(id, model) => write!(f, "load r{} {model}", id.0),
            Self::Enter(id, model, telling) => write!(f, "enter r{} {model}{}", id.0, untold(telling)),
            Self::Leave(id, telling) => write!(f, "leave r{}{}", id.0, untold(telling)),
            Self::Tell(id) => write!(f, "tell r{}", id.0),
            Self::Cancel(id) => write!(f, "cancel r{}", id.0),
            Self::Check(of, found) => write!(f, "check {} {}", at(of), if found.is_ok() { "ok" } else { "bad" }),
            Self::Progress(of) => write!(f, "progress {}", at(of)),
            Self::Ready(of, width) => write!(f, "ready {} {width}", at(of)),
            Self::Gone(of, Which::Oldest) => write!(f, "gone {} oldest", at(of)),
            Self::Gone(of, Which::Newest) => write!(f, "gone {} newest", at(of)),
            Self::Fail(of, class) => write!(f, "fail {} {class}", at(of)),
            Self::Sick(of, Sickness::Still) => write!(f, "sick {} still", at(of)),
            Self::Sick(of, Sickness::Deaf) => write!(f, "sick {} deaf", at(of)),
            Self::Fails(of) => write!(f, "fails {}", at(of)),
            Self::Written(of) => write!(f, "written {}", at(of)),
            Self::Reset(id, None) => write!(f, "reset r{}", id.0),
            Self::Reset(id, Some(model)) => write!(f, "reset r{} {model}", id.0),
            Self::UnloadIdle(id, of) => write!(f, "unload-idle r{} {}", id.0, at(of)),
            Self::Evict(id, of, Force::No) => write!(f, "evict r{} {}", id.0, at(of)),
            Self::Evict(id, of, Force::Yes) => write!(f, "evict r{} {} force", id.0, at(of)),
            Self::ReleaseIdle(id) => write!(f, "release r{}", id.0),
            Self::Reconcile(id, model, n) => write!(f, "reconcile r{} {model} {n}", id.0),
            Self::Reload(id, model, edit) => write!(f, "reload r{} {model} {}", id.0, edit.as_str()),
            Self::Drain(id, of) => write!(f, "drain r{} {}", id.0, at(of)),
            Self::Withdraw(id, ticket) => write!(f, "withdraw r{} r{}", id.0, ticket.0),
            Self::Move(id, ticket, Direction::Up) => write!(f, "move r{} r{} up", id.0, ticket.0),
            Self::Move(id, ticket, Direction::Down) => write!(f, "move r{} r{} down", id.0, ticket.0),
            Self::Pass(ms) => write!(f, "pass {ms}"),
            Self::OldNews(spawn) => write!(f, "old-news {spawn}"),
            Self::Retire(id) => write!(f, "retire r{}", id.0),
            Self::Shutdown(id) => write!(f, "shutdown r{}", id.0),
            Self::Obey => f.write_str("obey"),
        }
    }
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lane, session, actor, drain, queue, priority, replica, parent } = self;
        if *lane != Lane::Interactive {
            write!(f, " lane={}", lane.as_str())?;
        }
        let texts = [("session", session.clone()), ("actor", actor.clone())];
        let numbers = [
            ("drain", drain.map(|n| n.to_string())),
            ("queue", queue.map(|n| n.to_string())),
            ("priority", priority.map(|n| n.to_string())),
            ("replica", replica.map(|n| n.to_string())),
        ];
        for (name, value) in texts.into_iter().chain(numbers) {
            if let Some(value) = value {
                write!(f, " {name}={value}")?;
            }
        }
        f.write_str(if *parent == Parent::Some { " parent" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::Dice;

    #[test]
    fn a_trace_is_written_as_it_is_read() {
        let mut dice = Dice::new(7);
        for _ in 0..50 {
            let trace = dice.trace(60);
            assert_eq!(trace.to_string().parse::<Trace>().as_ref(), Ok(&trace));
        }
    }

    #[test]
    fn what_is_no_trace_is_named_with_its_line() {
        for (text, what) in [
            ("budget 1\nfly r1", "line 2: `fly r1` is nothing that happens"),
            ("acquire a a", "line 1: `a` is no request such as `r1`"),
            ("ready a 1", "line 1: `a` is no engine such as `a:0`"),
            ("acquire r1 a lane=fast", "line 1: `fast` is no lane"),
            ("model a 600 replicas=3..2", "line 1: `3..2` is no range of replicas"),
            ("model a 99999999999", "line 1: 99999999999 is more than 1073741824"),
            ("model a 600\nmodel a 500", "line 2: there is a model `a` already"),
            ("acquire r2 a\ncancel r2\nload r2 a", "line 3: r2 comes after r2"),
            ("enter r2 a\nretire r1", "line 2: r1 comes after r2"),
            ("load r99999999999999 a", "line 1: `r99999999999999` is no request such as `r1`"),
        ] {
            assert_eq!(text.parse::<Trace>().map_err(|e| e.to_string()), Err(what.to_owned()));
        }
        assert_eq!("# nothing\n\n".parse(), Ok(Trace::default()));
    }
}
