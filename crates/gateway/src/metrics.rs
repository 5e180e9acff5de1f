//! `/metrics`: what there is to measure, as Prometheus reads it.
//!
//! ```text
//! records, waits ─► Meters ┐
//! Snapshot, Tally ─────────┼─► families ─► text 0.0.4 or OpenMetrics ─┐
//! engines ─► Scraper ─► Pages, labelled with model and replica ───────┴─► one document
//! ```
//!
//! * Every family is there from the start, and so is every series whose labels are known then.
//! * A model that a reload took away has no series; if it comes back, its counters go on.
//! * Labels are names of the configuration and words of ours: no request makes a series by what it asks for.
//! * Nothing here waits for an engine longer than [`engines::WAIT`].
pub(crate) mod engines;
mod exposition;
mod families;
mod meters;
mod models;
mod pool;

use crate::{
    body::{ReplyBody, full},
    context::Context,
    history::UsageHistory,
};
use families::{Families, Form};
use http::{HeaderMap, HeaderValue, Response, header};
pub(crate) use meters::Meters;

/// The answer to a scrape.
pub(crate) async fn answer(context: &Context, headers: &HeaderMap) -> Response<ReplyBody> {
    let form = form_of(headers);
    context.scraper.refresh().await;
    let pages = context.scraper.pages(&context.catalog);
    let (snapshot, tally, counts) = (context.handle.snapshot(), context.handle.tally(), context.meters.counts());
    let unwritten = context.history.get().map_or(0, UsageHistory::n_lost);
    let mut families = Families::default();
    pool::write(&mut families, &snapshot, &tally);
    pool::write_requests(&mut families, &counts, unwritten);
    let ids: Vec<&str> = context.catalog.models().map(|model| model.id.as_str()).collect();
    pool::write_protocol(&mut families, &snapshot, &ids);
    models::write(&mut families, (&snapshot, &tally), (&counts, &ids));
    engines::write(&mut families, &pages);
    let text = families.text(form, &exposition::merged(&pages, form));
    let mut response = Response::new(full(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(form.content_type()));
    response
}

/// `OpenMetrics` for whoever prefers it, else the older text.
fn form_of(headers: &HeaderMap) -> Form {
    let (mut open, mut text) = (0, 0);
    for value in headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()) {
        for part in value.split(',') {
            let mut words = part.split(';').map(str::trim);
            let kind = words.next().unwrap_or_default().to_ascii_lowercase();
            let weight = words.find_map(|word| word.strip_prefix("q=")).map_or(1000, per_mille);
            match kind.as_str() {
                "application/openmetrics-text" => open = open.max(weight),
                "text/plain" | "text/*" => text = text.max(weight),
                _ => {}
            }
        }
    }
    if open > text { Form::OpenMetrics } else { Form::Text }
}

/// A weight from 0 to 1 with at most three digits behind its point; what is none weighs nothing.
fn per_mille(weight: &str) -> u32 {
    let (whole, part) = weight.split_once('.').unwrap_or((weight, ""));
    let digits = format!("{whole}{:0<3}", part.get(..3).unwrap_or(part));
    digits.parse().unwrap_or(0).min(1000)
}

#[cfg(test)]
mod tests;
