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

/// Below so many columns only what matters most is shown.
const WIDE: u16 = 118;
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
    let wide = area.width >= WIDE;
    let head: &[&str] = if wide {
        &["ENGINE", "PHASE", "LEASES", "QUEUE", "RESERVED", "PLANNED", "MEASURED", "UNLOAD IN"]
    } else {
        &["ENGINE", "PHASE", "LEASES", "RESERVED", "UNLOAD IN"]
    };
    let widths: Vec<Constraint> = if wide {
        [20, 8, 5, 10, 19, 10, 9].map(Constraint::Length).to_vec()
    } else {
        [13, 7, 9, 9].map(Constraint::Length).to_vec()
    };
    let widths = [Constraint::Fill(1)].into_iter().chain(widths);
    let rows = view.engines().iter().map(|engine| row(engine, wide));
    let table = Table::new(rows, widths)
        .header(Row::new(head.iter().copied()).style(Style::new().add_modifier(Modifier::BOLD)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .highlight_symbol("> ");
    let mut state = TableState::default().with_selected(view.row());
    frame.render_stateful_widget(table, area, &mut state);
}

fn row(engine: &Engine, wide: bool) -> Row<'static> {
    let size = |bytes: u64| Bytes::new(bytes).to_string();
    let leases = match engine.slots {
        Some(slots) => format!("{} of {slots}", engine.leases.len()),
        None => engine.leases.len().to_string(),
    };
    let unload = engine.unload_in_ms.map_or_else(String::new, ps::in_short);
    let (phase, reserved) = (ps::phase(engine), size(engine.reserved_bytes));
    let style = match engine.phase.as_str() {
        "ready" => Style::new().fg(Color::Green),
        "idle" => Style::new().add_modifier(Modifier::DIM),
        _ => Style::new().fg(Color::Yellow),
    };
    let cells = if wide {
        let from = engine.memory.as_ref().map_or_else(String::new, |memory| format!(" {}", memory.from));
        let planned = if engine.planned_bytes == 0 { String::new() } else { size(engine.planned_bytes) + &from };
        let measured = engine.measured_bytes.map_or_else(String::new, size);
        vec![engine.key.clone(), phase, leases, engine.queue.to_string(), reserved, planned, measured, unload]
    } else {
        vec![engine.key.clone(), phase, leases, reserved, unload]
    };
    Row::new(cells).style(style)
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
