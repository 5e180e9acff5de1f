//! [`lay_out`]: launches one after the other on a ledger of their own, as a [`Sheet`]. Nothing outside is touched.
use super::{
    parts::by_part,
    sheet::{Amounts, HostSheet, Launch, Part, Pool, Sheet, Verdict},
};
use motorpool_broker::{
    Bounds, Denial, Draft, Ledger, Parts, Place, Placement, PoolFigures, Proof, RefusedContext, Source, Subject,
    Verdict as Granted, draft, pick_placement, refused_context,
};
use motorpool_vocab::{Bytes, Claim, EngineKey, Spawn};

/// What is there already, in order.
struct Floor {
    ledger: Ledger,
    keys: Vec<(Spawn, EngineKey)>,
}

/// Plans each of `wanted` beside those before it, none of which would go for it. One that does not fit takes nothing.
pub(super) fn lay_out<'a>(bounds: Bounds, wanted: impl IntoIterator<Item = (EngineKey, &'a Subject)>) -> Sheet {
    let mut floor = Floor { ledger: Ledger::new(bounds), keys: Vec::new() };
    let launches = (1..).zip(wanted).map(|(n, (key, subject))| floor.add(Spawn(n), key, subject)).collect();
    Sheet { host: host_sheet(&floor.ledger), launches, external: Vec::new() }
}

impl Floor {
    fn add(&mut self, spawn: Spawn, key: EngineKey, subject: &Subject) -> Launch {
        let there: Vec<Spawn> = self.keys.iter().map(|(spawn, _)| *spawn).collect();
        let drafted = draft(&self.ledger, &there, subject);
        let before = self.ledger.committed();
        let placed = pick_placement(&self.ledger, &drafted.load).and_then(|placement| {
            match self.ledger.reserve(spawn, placement.claim.clone()) {
                Granted::Admit => Ok(placement),
                Granted::Refuse(excess) => Err(Proof { claim: placement.claim, excess }),
            }
        });
        match placed {
            Ok(placement) => {
                let charged = self.ledger.committed().saturating_sub(before);
                let shared = placement.claim.total().saturating_sub(charged);
                self.keys.push((spawn, key.clone()));
                let parts = parts_of(&drafted, Some(&placement), &placement.claim);
                let launch = launch(&key, (&drafted, drafted.source_of(Some(&placement))), (parts, &placement.claim));
                Launch { shared_bytes: shared.get(), ..launch }
            }
            Err(proof) => {
                let parts = parts_of(&drafted, None, &proof.claim);
                let launch = launch(&key, (&drafted, drafted.source_of(None)), (parts, &proof.claim));
                let context = refused_context(&self.ledger, (subject, &drafted));
                Launch { verdict: self.never(key, (proof, context)), ..launch }
            }
        }
    }

    fn never(&self, key: EngineKey, (proof, context): (Proof, Option<RefusedContext>)) -> Verdict {
        let held = |(spawn, key): &(Spawn, EngineKey)| Some((key.clone(), self.ledger.line(*spawn)?.total()));
        let denial = Denial::new(key, proof, self.ledger.bounds())
            .with_holders(self.keys.iter().filter_map(held).collect())
            .of_context(context);
        let message = match denial.holders.as_slice() {
            [] => denial.prose(),
            holders => beside(&denial, holders),
        };
        Verdict::Never { reason: denial.to_string(), message }
    }
}

/// Those that a plan puts first are not somebody's to unload.
fn beside(denial: &Denial, holders: &[(EngineKey, Bytes)]) -> String {
    let held: Vec<_> = holders.iter().map(|(key, bytes)| format!("{key} ({bytes})")).collect();
    let shorter = denial.context.map_or_else(String::new, |context| format!("; {} tokens would fit", context.fits));
    format!(
        "{} needs {} beside {}; that would be {} against {} ({}){shorter}",
        denial.key.model(),
        denial.requested.total(),
        held.join(", "),
        denial.would_commit(),
        denial.bound(),
        denial.which()
    )
}

fn launch(key: &EngineKey, (drafted, source): (&Draft, Source), (parts, claim): (Vec<Part>, &Claim)) -> Launch {
    Launch {
        key: key.to_string(),
        source: source.as_str().to_owned(),
        context: drafted.plan.context_per_slot,
        clamped_from: drafted.clamped_from,
        grown_from: drafted.grown_from,
        slots: drafted.plan.slots,
        kv_type: drafted.plan.kv.to_string(),
        parts,
        total: amounts(claim),
        shared_bytes: 0,
        sessions_not_kept: None,
        judged: None,
        verdict: Verdict::Fits,
    }
}

/// By part where that is known; what is known only as a whole, or goes nowhere, is one part. Of what was learned nobody
/// knows what it is for, only which of it are pages of files.
fn parts_of(drafted: &Draft, placement: Option<&Placement>, claim: &Claim) -> Vec<Part> {
    let source = drafted.source_of(placement);
    match (&drafted.load.parts, placement) {
        (Parts::Known { footprint, mapping, .. }, Some(placement)) if placement.estimate.is_none() => {
            by_part(footprint, &placement.split, *mapping)
        }
        (_, Some(placement)) if placement.estimate.is_some() => {
            let files = Claim { ram_private: Bytes::ZERO, device: [].into(), ..claim.clone() };
            let own = Claim { ram_files: [].into(), ..claim.clone() };
            let part = |part: &str, claim: &Claim| Part { part: part.to_owned(), amounts: amounts(claim) };
            vec![part("mapped files", &files), part(whole(source), &own)]
        }
        _ => vec![Part { part: whole(source).to_owned(), amounts: amounts(claim) }],
    }
}

const fn whole(source: Source) -> &'static str {
    match source {
        Source::Declared => "declared",
        Source::Estimated => "estimated",
        Source::FileSize => "by its files' size",
        Source::Learned => "learned",
        Source::Measured => "measured",
    }
}

fn amounts(claim: &Claim) -> Amounts {
    let files = claim.ram_files.iter().map(|(_, bytes)| *bytes);
    let devices = claim.device.iter().map(|(id, bytes)| (id.to_string(), bytes.get()));
    Amounts { system_memory: Bytes::sum(files.chain([claim.ram_private])).get(), devices: devices.collect() }
}

fn host_sheet(ledger: &Ledger) -> HostSheet {
    let bounds = ledger.bounds();
    let pool = |figures: &PoolFigures| Pool {
        total: figures.total.get(),
        share: figures.share_now.get(),
        committed: figures.committed.get(),
    };
    let pools = ledger.pools();
    let devices = pools.iter().filter_map(|figures| match &figures.place {
        Place::Card(id) => Some((id.to_string(), pool(figures))),
        Place::SystemMemory => None,
    });
    let system = pools.iter().find(|figures| figures.place == Place::SystemMemory);
    HostSheet {
        shape: bounds.shape.as_str().to_owned(),
        budget_bytes: bounds.budget.bound().map(Bytes::get),
        committed_bytes: ledger.committed().get(),
        devices: devices.collect(),
        system_memory: system.map_or(Pool { total: 0, share: 0, committed: 0 }, pool),
    }
}

#[cfg(test)]
mod tests;
