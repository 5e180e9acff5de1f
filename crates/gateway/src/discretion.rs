//! What a failure may tell, and to whom.
//!
//! * A key that may not look into the pool is told the class of a failure, its code and what to do: no line of a log, no
//!   path, nobody who holds memory, no other engine. Without keys whoever gets in is the operator.
//! * To a key for some models others do not exist: neither a refusal nor what is offered instead names one, and one that is
//!   there and not its own is as unknown as one that is not.
//!
//! Everything passes here once: what is answered with a status in `service`, what becomes an event in `loading`.
use crate::{
    context::Context,
    errors::{Failure, Retry},
    keys::Rights,
    outside::Chosen,
};

/// How much whoever asks may be told of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sight {
    /// All of it.
    #[default]
    Pool,
    /// Only what concerns his own request.
    Own,
}

impl Sight {
    /// Of who came with these rights; without any, nobody needs them.
    pub(crate) fn of(rights: Option<&Rights>) -> Self {
        if rights.is_none_or(Rights::sees) { Self::Pool } else { Self::Own }
    }
}

impl Failure {
    /// The same without what is not to be seen.
    #[must_use]
    pub(crate) fn seen_with(self, sight: Sight) -> Self {
        if sight == Sight::Pool {
            return self;
        }
        let later = |retry| match retry {
            Retry::Never => "it will not while the models and limits of this server are as they are",
            Retry::Now | Retry::After(_) => "try again later",
        };
        match self {
            Self::CapacityDenied { retry, .. } => {
                let message = format!("there is no room for the model in this server's memory: {}", later(retry));
                Self::CapacityDenied { message, retry }
            }
            Self::ContextDenied { retry, .. } => {
                let message = format!(
                    "there is no room in this server's memory for the context that the model is to have: {}",
                    later(retry)
                );
                Self::ContextDenied { message, retry }
            }
            Self::GpuPaused(_) => Self::GpuPaused("no model is started on a graphics device for a while".into()),
            Self::EngineBusy(_) => {
                Self::EngineBusy("what would have to go for the model is busy: try again shortly".into())
            }
            Self::StartFailed { class, .. } => {
                let advice = if class.is_permanent() { "its operator has to look at it" } else { "try again later" };
                let message = format!("the engine of the model did not start ({class}): {advice}");
                Self::StartFailed { class, message }
            }
            Self::BreakerOpen { seconds, .. } => {
                let message =
                    format!("the engine of the model failed to start too often; the next try is in {seconds} s");
                Self::BreakerOpen { message, seconds }
            }
            Self::Evicted(_) => Self::Evicted("the engine of the model was stopped".into()),
            Self::Drained(_) => Self::Drained("the operator has taken the model out of service for now".into()),
            Self::EngineStuck(_) => Self::EngineStuck("of the model".into()),
            Self::WillNotFit(_) => Self::WillNotFit("there is no room for the model on the server that has it".into()),
            Self::ResidencyBusy(_) => {
                Self::ResidencyBusy("the server that has the model is being changed: try again shortly".into())
            }
            Self::ExternalFailed(_) => {
                Self::ExternalFailed("the server that has the model did not load it, or did not answer".into())
            }
            Self::PullFailed(_) => Self::PullFailed("the files of the model did not come".into()),
            other => other,
        }
    }

    /// The same, telling of no model that is not one of these rights'.
    #[must_use]
    pub(crate) fn within(self, rights: Option<&Rights>, context: &Context) -> Self {
        let Some(rights) = rights.filter(|rights| rights.is_for_some()) else { return self };
        let unknown = |name: String| {
            let nearest = context.catalog.nearest(&name, |model| rights.may_use(model));
            Self::UnknownModel { name, nearest }
        };
        match self {
            Self::UnknownModel { name, .. } => unknown(name),
            Self::NoModel(_) => {
                let own = context.catalog.models().filter(|model| rights.may_use(model));
                Self::NoModel(own.map(|model| model.id.to_string()).collect())
            }
            Self::ModelConflict(one, other) => {
                let hidden = [&one, &other].into_iter().find(|name| !is_its(rights, context, name)).cloned();
                hidden.map_or(Self::ModelConflict(one, other), unknown)
            }
            other => other,
        }
    }
}

/// Whether `name` means a model that these rights may use.
fn is_its(rights: &Rights, context: &Context, name: &str) -> bool {
    match context.mean(name) {
        Ok(Chosen::Own(model)) => rights.may_use(&model),
        Ok(Chosen::Foreign(foreign)) => rights.may_use_any(&foreign.names(context)),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errors::tests::one_of_each;

    #[test]
    fn who_may_not_look_into_the_pool_is_told_the_same_code_and_advice_and_none_of_its_words() {
        for (failure, ..) in one_of_each() {
            assert_eq!(failure.clone().seen_with(Sight::Pool), failure);
            let seen = failure.clone().seen_with(Sight::Own);
            assert_eq!(seen.verdict(), failure.verdict());
            let is_of_the_pool = matches!(
                failure,
                Failure::CapacityDenied { .. }
                    | Failure::ContextDenied { .. }
                    | Failure::GpuPaused(_)
                    | Failure::EngineBusy(_)
                    | Failure::StartFailed { .. }
                    | Failure::BreakerOpen { .. }
                    | Failure::Evicted(_)
                    | Failure::Drained(_)
                    | Failure::EngineStuck(_)
                    | Failure::WillNotFit(_)
                    | Failure::ResidencyBusy(_)
                    | Failure::ExternalFailed(_)
                    | Failure::PullFailed(_)
            );
            assert_eq!(seen != failure, is_of_the_pool, "{failure}");
        }
    }
}
