//! [`View`]: what the screen shows and what keys mean, without a terminal, a clock or a daemon.
use crate::status::{Engine, Status};
use motorpool_vocab::EngineKey;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::collections::{BTreeMap, VecDeque};

/// So many events are kept.
const KEPT: usize = 200;

/// What happened.
#[derive(Debug)]
pub(super) enum Event {
    /// The daemon told how things are.
    Looked(Box<Status>),
    /// It does not answer, and why.
    Gone(String),
    /// A stream of events begins, with those that are kept.
    NewsBegin,
    News {
        line: String,
        is_bad: bool,
    },
    /// What came of something that was asked of it.
    Told(String),
    Key(Key),
    /// The terminal has another size: the frame is drawn anew.
    Resized,
}

/// A key that means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Up,
    Down,
    Load,
    Unload,
    Drain,
    Yes,
    Quit,
    Other,
}

/// What is to be done.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Nothing,
    Quit,
    Load(EngineKey),
    Unload(EngineKey),
    Drain(EngineKey),
}

/// What is known, and where the operator is.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) status: Option<Status>,
    /// Why the daemon does not answer, if it does not.
    pub(super) gone: Option<String>,
    /// The last one last; whether it is bad news.
    pub(super) news: VecDeque<(String, bool)>,
    /// What came of the last thing that was asked.
    pub(super) told: Option<String>,
    /// What waits for a yes.
    pub(super) asked: Option<Act>,
    /// What engines generate, by their keys.
    paces: BTreeMap<String, Pace>,
    /// The engine that keys are about. It is followed while rows come and go.
    pub(super) chosen: Option<String>,
}

/// What passed an engine until a look.
#[derive(Debug)]
struct Pace {
    spawn: u64,
    frames: u64,
    at_ms: u64,
    /// In a second since the look before, once there was one.
    rate: Option<f64>,
}

impl Pace {
    /// Nothing is known of what another child did, or at the same moment.
    fn after(before: Option<&Self>, at_ms: u64, (spawn, frames): (u64, u64)) -> Self {
        let rate = before.filter(|before| before.spawn == spawn).and_then(|before| {
            let (more, ms) = (frames.checked_sub(before.frames)?, at_ms.checked_sub(before.at_ms)?);
            let ms = u32::try_from(ms).ok().filter(|ms| *ms > 0)?;
            Some(f64::from(u32::try_from(more).ok()?) * 1000.0 / f64::from(ms))
        });
        Self { spawn, frames, at_ms, rate }
    }
}

impl Key {
    pub(super) fn of(event: KeyEvent) -> Self {
        let with_control = event.modifiers.contains(KeyModifiers::CONTROL);
        match event.code {
            KeyCode::Char('c' | 'd') if with_control => Self::Quit,
            KeyCode::Char('q') | KeyCode::Esc => Self::Quit,
            KeyCode::Up | KeyCode::Char('k') => Self::Up,
            KeyCode::Down | KeyCode::Char('j') => Self::Down,
            KeyCode::Char('l') => Self::Load,
            KeyCode::Char('u') => Self::Unload,
            KeyCode::Char('d') => Self::Drain,
            KeyCode::Char('y') | KeyCode::Enter => Self::Yes,
            _ => Self::Other,
        }
    }
}

impl View {
    pub(super) fn on_event(&mut self, event: Event) -> Act {
        match event {
            Event::Looked(status) => {
                self.gone = None;
                self.pace(&status);
                self.status = Some(*status);
                self.keep_choice();
            }
            Event::Gone(why) => {
                self.gone = Some(why);
                // What was asked was about something that may be gone.
                self.asked = None;
            }
            Event::NewsBegin => self.news.clear(),
            Event::News { line, is_bad } => {
                self.news.push_back((line, is_bad));
                if self.news.len() > KEPT {
                    self.news.pop_front();
                }
            }
            Event::Told(text) => self.told = Some(text),
            Event::Key(key) => return self.on_key(key),
            Event::Resized => {}
        }
        Act::Nothing
    }

    fn on_key(&mut self, key: Key) -> Act {
        self.told = None;
        match (self.asked.take(), key) {
            (Some(act), Key::Yes) => return act,
            // Anything else is a no.
            (Some(_), _) => return Act::Nothing,
            (None, Key::Quit) => return Act::Quit,
            (None, Key::Up) => self.step(|at| at.saturating_sub(1)),
            (None, Key::Down) => self.step(|at| at + 1),
            (None, Key::Load) => return self.chosen_key().map_or(Act::Nothing, Act::Load),
            (None, Key::Unload) => self.asked = self.chosen_key().map(Act::Unload),
            (None, Key::Drain) => self.asked = self.chosen_key().map(Act::Drain),
            (None, Key::Yes | Key::Other) => {}
        }
        Act::Nothing
    }

    fn pace(&mut self, status: &Status) {
        let of = |engine: &Engine| {
            let pace = Pace::after(self.paces.get(&engine.key), status.at_ms, (engine.spawn?, engine.frames?));
            Some((engine.key.clone(), pace))
        };
        self.paces = status.engines.iter().filter_map(of).collect();
    }

    /// Pieces of replies that an engine gave in a second between the last two looks: of one that streams, about a token each.
    pub(super) fn rate(&self, engine: &Engine) -> Option<f64> {
        self.paces.get(&engine.key)?.rate
    }

    pub(super) fn engines(&self) -> &[Engine] {
        self.status.as_ref().map_or(&[], |status| &status.engines)
    }

    /// The row that keys are about.
    pub(super) fn row(&self) -> Option<usize> {
        self.engines().iter().position(|engine| Some(&engine.key) == self.chosen.as_ref())
    }

    fn step(&mut self, to: impl Fn(usize) -> usize) {
        let last = self.engines().len().saturating_sub(1);
        let at = self.row().map_or(0, to).min(last);
        self.chosen = self.engines().get(at).map(|engine| engine.key.clone());
    }

    /// A row that went leaves the choice to the first one.
    fn keep_choice(&mut self) {
        if self.row().is_none() {
            self.chosen = self.engines().first().map(|engine| engine.key.clone());
        }
    }

    fn chosen_key(&self) -> Option<EngineKey> {
        self.chosen.as_ref().filter(|_| self.gone.is_none())?.parse().ok()
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
