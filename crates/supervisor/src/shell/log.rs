//! What the log says of each event.
use motorpool_vocab::{EventKind, ExternalNotice};

pub(super) fn event(kind: &EventKind) {
    match kind {
        EventKind::Reserved { key, spawn, bytes } => tracing::info!(%key, %spawn, %bytes, "reserved"),
        EventKind::Ready { key, spawn, within } => tracing::info!(%key, %spawn, ?within, "ready"),
        EventKind::Corrected { key, spawn, from, to } if from != to => {
            tracing::info!(%key, %spawn, %from, %to, "reserved as measured");
        }
        EventKind::Corrected { key, spawn, to, .. } => tracing::debug!(%key, %spawn, %to, "reserved as measured"),
        EventKind::Overflow { by } => tracing::warn!(%by, "more is reserved than may be; nothing new is granted there"),
        EventKind::OverflowCured => tracing::info!("no more is reserved than may be"),
        EventKind::ReadingMissing { device: None } => tracing::warn!("system memory cannot be read"),
        EventKind::ReadingMissing { device: Some(device) } => tracing::warn!(%device, "a device cannot be read"),
        EventKind::DeviceLost { device } => {
            tracing::error!(%device, "a device is lost; nothing new goes there: reset it, or reboot");
        }
        EventKind::DeviceBack { device } => tracing::info!(%device, "a device is back"),
        EventKind::CpuFallback { key, spawn, planned } => {
            tracing::error!(%key, %spawn, %planned, "planned for graphics devices, and computes on the processor");
        }
        EventKind::Pressure { device, free } => tracing::warn!(?device, ?free, "memory runs low"),
        EventKind::PressureOver { device } => tracing::info!(?device, "memory does not run low any more"),
        EventKind::Stopping { key, spawn, reason } => tracing::info!(%key, %spawn, %reason, "stopping"),
        EventKind::DrainBegan { key, holders } => tracing::info!(%key, n_holders = holders.len(), "drain began"),
        EventKind::DrainGivenUp { key } => tracing::info!(%key, "drain given up"),
        EventKind::Deferred { key, why } => {
            // Harnesses tell this line from that of a denial by its word.
            tracing::warn!("[provider-pool] capacity broker deferred {key}: {why}");
        }
        EventKind::GpuPaused { key, why } => tracing::error!("gpu panic guard denied {key}: {why}"),
        EventKind::StartFailed { key, class } => tracing::warn!(%key, %class, "start failed"),
        EventKind::BreakerOpened { key, class, within } => {
            tracing::error!(%key, %class, "failed to start too often; not started again for {} s", within.as_secs());
        }
        EventKind::Quarantined { key, program } => {
            tracing::error!(%key, program = %program.display(), "of no use on this processor; the next build is used");
        }
        EventKind::Suspected { key, spawn, why } => tracing::warn!(%key, %spawn, "suspect: {why}"),
        EventKind::Recovered { key, spawn } => tracing::info!(%key, %spawn, "not suspect any more: it serves"),
        EventKind::Reset { model: Some(model) } => tracing::info!(%model, "failures are forgotten"),
        EventKind::Reset { model: None } => tracing::info!("all failures are forgotten"),
        EventKind::Stuck { key, spawn } => {
            tracing::error!(%key, %spawn, "cannot be killed; it stays charged until it is gone or the machine restarts");
        }
        EventKind::ContextClamped { key, wanted, context_per_slot, slots } => tracing::info!(
            "context clamped {wanted} → {context_per_slot} tokens/turn ({slots} slots): {key} would never fit with more"
        ),
        EventKind::ContextGrown { key, from, context_per_slot, slots } => tracing::info!(
            "context grown {from} → {context_per_slot} tokens/turn ({slots} slots): there is room for more of {key}"
        ),
        EventKind::External(notice) => notice_line(notice),
        EventKind::ExternalChanged { target, change, model, .. } => {
            tracing::info!(%target, %model, "external server: {change}");
        }
        EventKind::Reloaded { draining } => tracing::info!(n_draining = draining.len(), "reloaded"),
        EventKind::Closing => tracing::info!("no new work is taken"),
        // Lines of their own say these.
        EventKind::Exited { .. }
        | EventKind::Released { .. }
        | EventKind::CapacityDenied { .. }
        | EventKind::ContextDenied { .. } => {}
    }
}

fn notice_line(ExternalNotice { target, kind, level, model, message, .. }: &ExternalNotice) {
    match *level {
        "error" => tracing::error!(%target, %model, "external server: {kind}: {message}"),
        "warning" => tracing::warn!(%target, %model, "external server: {kind}: {message}"),
        _ => tracing::info!(%target, %model, "external server: {kind}: {message}"),
    }
}
