//! [`draw`]: one frame from the view. Every figure is one that the daemon told.
use super::view::{Act, View};
use crate::{
    commands::ps,
    status::{Engine, Memory, Status, Waiter},
};
use motorpool_vocab::Bytes;
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Paragraph, Row, Table, TableState},
};

/// What of an engine is shown, in how many columns, and from which width of the terminal on. The first one takes the rest.
const COLUMNS: [(&str, u16, u16); 9] = [
    ("ENGINE", 0, 0),
    ("PHASE", 18, 0),
    ("LEASES", 8, 0),
    ("QUEUE", 5, WIDE),
    ("RESERVED", 10, 0),
    ("PLANNED", 19, WIDE),
    ("MEASURED", 10, WIDE),
    ("TOK/S", 6, 80),
    ("UNLOAD IN", 9, 80),
];
/// From so many columns on everything is shown.
const WIDE: u16 = 124;
/// Most rows of waiters, and of events.
const WAITERS: usize = 5;
const NEWS: u16 = 8;
const KEYS: &str = "↑↓ choose  l load  u unload  d drain  q quit";

pub(super) fn draw(view: &View, frame: &mut Frame<'_>) {
    let n_memory = view.status.as_ref().map_or(0, |status| status.pool.memory.len());
    let waiters = view.status.as_ref().map_or(&[][..], |status| &status.waiters);
    let rows = |n: usize| Constraint::Length(u16::try_from(n).unwrap_or(u16::MAX));
    let heights = [
        rows(1),
        rows(n_memory),
        Constraint::Min(3),
        rows(waiters.len().min(WAITERS)),
        Constraint::Length(NEWS.min(frame.area().height / 3)),
        rows(1),
    ];
    let [head, memory, engines, waits, news, foot] = Layout::vertical(heights).areas(frame.area());
    frame.render_widget(Paragraph::new(headline(view)), head);
    if let Some(status) = &view.status {
        let bars: Vec<Line<'_>> = status.pool.memory.iter().map(|one| bar(one, memory.width)).collect();
        frame.render_widget(Paragraph::new(bars), memory);
    }
    draw_engines(view, frame, engines);
    let lines: Vec<Line<'_>> = waiters.iter().take(WAITERS).map(waiter).collect();
    frame.render_widget(Paragraph::new(lines), waits);
    draw_news(view, frame, news);
    frame.render_widget(Paragraph::new(footline(view)), foot);
}

const fn strong(colour: Color) -> Style {
    Style::new().fg(colour).add_modifier(Modifier::BOLD)
}

fn headline(view: &View) -> Line<'static> {
    if let Some(why) = &view.gone {
        return Line::styled(format!("motorpool: {why}"), strong(Color::Red));
    }
    let Some(Status { pool, closing, listen, .. }) = &view.status else { return Line::from("motorpool: looking") };
    let bound = pool.budget_bytes.map_or_else(|| "no budget".to_owned(), |n| format!("of {}", Bytes::new(n)));
    let doors = if *closing { "stopping".to_owned() } else { format!("serving on {}", listen.join(", ")) };
    Line::from(vec![
        Span::styled("motorpool", strong(Color::Reset)),
        Span::from(format!("  {} reserved {bound}; {doors}", Bytes::new(pool.committed_bytes))),
    ])
}

/// What engines hold, what others hold, what is free, by columns; then the figures.
fn bar(memory: &Memory, width: u16) -> Line<'static> {
    let name = memory.device.clone().unwrap_or_else(|| "RAM".to_owned());
    let foreign = memory.foreign_bytes.unwrap_or_default();
    let figures = match memory.foreign_bytes {
        Some(0) => String::new(),
        Some(n) => format!(", others {}", Bytes::new(n)),
        None => ", others unknown".to_owned(),
    };
    let figures = format!(" {} of {}{figures}", Bytes::new(memory.committed_bytes), Bytes::new(memory.total_bytes));
    let room = usize::from(width).saturating_sub(14 + figures.chars().count()).clamp(4, 60);
    let columns = |bytes: u64| {
        let part = u128::from(bytes) * room as u128 / u128::from(memory.total_bytes.max(1));
        usize::try_from(part).unwrap_or(room).min(room)
    };
    let ours = columns(memory.committed_bytes);
    let theirs = columns(foreign).min(room - ours);
    Line::from(vec![
        Span::from(format!("{name:<12.12} ")),
        Span::styled("█".repeat(ours), Style::new().fg(Color::Green)),
        Span::styled("▒".repeat(theirs), Style::new().fg(Color::Yellow)),
        Span::from("·".repeat(room - ours - theirs)),
        Span::from(figures),
    ])
}

fn draw_engines(view: &View, frame: &mut Frame<'_>, area: Rect) {
    if view.engines().is_empty() {
        return frame.render_widget(Paragraph::new("no engine has been started"), area);
    }
    let shown: Vec<bool> = COLUMNS.iter().map(|(.., from)| area.width >= *from).collect();
    let columns = COLUMNS.iter().zip(&shown).filter(|(_, shown)| **shown).map(|(column, _)| column);
    let widths = columns.clone().map(|(_, width, _)| match width {
        0 => Constraint::Fill(1),
        width => Constraint::Length(*width),
    });
    let head = columns.clone().map(|(name, ..)| *name);
    let rows = view.engines().iter().map(|engine| row(engine, view.rate(engine), &shown));
    let table = Table::new(rows, widths)
        .header(Row::new(head).style(Style::new().add_modifier(Modifier::BOLD)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .highlight_symbol("> ");
    let mut state = TableState::default().with_selected(view.row());
    frame.render_stateful_widget(table, area, &mut state);
}

fn row(engine: &Engine, rate: Option<f64>, shown: &[bool]) -> Row<'static> {
    let style = match engine.phase.as_str() {
        "ready" => Style::new().fg(Color::Green),
        "idle" => Style::new().add_modifier(Modifier::DIM),
        _ => Style::new().fg(Color::Yellow),
    };
    let cells = [
        engine.key.clone(),
        ps::phase(engine),
        ps::leases(engine),
        engine.queue.to_string(),
        Bytes::new(engine.reserved_bytes).to_string(),
        ps::planned(engine),
        ps::measured(engine),
        rate.map_or_else(String::new, ps::pace),
        engine.unload_in_ms.map_or_else(String::new, ps::in_short),
    ];
    Row::new(cells.into_iter().zip(shown).filter(|(_, shown)| **shown).map(|(cell, _)| cell)).style(style)
}

fn waiter(waiter: &Waiter) -> Line<'static> {
    let (needs, seconds) = (Bytes::new(waiter.needs_bytes), waiter.waited_ms / 1000);
    let what = match waiter.waits_for.as_slice() {
        [] => "waits for room".to_owned(),
        keys => format!("waits for {}", keys.join(", ")),
    };
    Line::styled(format!("{} needs {needs}, {what}, {seconds} s", waiter.key), Style::new().fg(Color::Yellow))
}

fn draw_news(view: &View, frame: &mut Frame<'_>, area: Rect) {
    let skip = view.news.len().saturating_sub(usize::from(area.height));
    let line = |(text, is_bad): &(String, bool)| {
        let style = if *is_bad { Style::new().fg(Color::Red) } else { Style::new().add_modifier(Modifier::DIM) };
        Line::styled(text.clone(), style)
    };
    let lines: Vec<Line<'_>> = view.news.iter().skip(skip).map(line).collect();
    frame.render_widget(Paragraph::new(lines), area);
}

fn footline(view: &View) -> Line<'static> {
    let question = |what: &str, key: &dyn std::fmt::Display| {
        Line::styled(format!("{what} {key}? y: yes, any other key: no"), strong(Color::Yellow))
    };
    match (&view.asked, &view.told) {
        (Some(Act::Unload(key)), _) => question("unload", key),
        (Some(Act::Drain(key)), _) => question("drain", key),
        (Some(Act::Load(_) | Act::Nothing | Act::Quit) | None, Some(told)) => Line::from(told.clone()),
        (Some(Act::Load(_) | Act::Nothing | Act::Quit) | None, None) => Line::from(KEYS),
    }
}
