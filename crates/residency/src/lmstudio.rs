//! What LM Studio calls a model, how it says that it is full, and how much context is fair beside others.

/// Tokens of context that a load beside other models has at most, unless the configuration says otherwise.
pub const CONTEXT_CEILING: u32 = 131_072;

/// One model of the catalogue, with the instances of it that are loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// What a load is asked for by.
    pub key: String,
    /// Loaded instances, in listing order.
    pub instances: Vec<String>,
}

/// What goes into the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// This instance is loaded.
    Instance(String),
    /// Nothing of it is: the key, which loads it.
    Key(String),
    /// No such model. These are resident.
    Unknown(Vec<String>),
}

/// What `asked` means: an instance by its id; a key by its configured instance, else the first that no other host has
/// (`elsewhere`), else the first. A bare key would load a second copy beside a loaded one.
pub fn resolve(asked: &str, catalogue: &[Variant], configured: Option<&str>, elsewhere: &[String]) -> Resolution {
    let all = || catalogue.iter().flat_map(|variant| &variant.instances);
    if all().any(|instance| instance == asked) {
        return Resolution::Instance(asked.to_owned());
    }
    let Some(variant) = catalogue.iter().find(|variant| variant.key == asked) else {
        return Resolution::Unknown(all().cloned().collect());
    };
    let ours = variant.instances.iter().find(|instance| Some(instance.as_str()) == configured);
    let own = || variant.instances.iter().find(|instance| !elsewhere.contains(instance));
    match ours.or_else(own).or(variant.instances.first()) {
        Some(instance) => Resolution::Instance(instance.clone()),
        None => Resolution::Key(variant.key.clone()),
    }
}

/// Whether an answer says that there is no room. Anything else is an error like others.
pub fn is_capacity_rejection(status: u16, text: &str) -> bool {
    let text = text.to_lowercase();
    let short = ["insufficient", "not enough"].iter().any(|word| text.contains(word));
    let of = ["resource", "memory", "vram"].iter().any(|word| text.contains(word));
    let is_error = status >= 400;
    status == 507 || (is_error && ((short && of) || text.contains("out of memory") || text.contains("guardrail")))
}

/// Tokens to load with: `asked`, clamped to `ceiling` only beside `n_others` other models, never raised.
pub fn clamp_context(asked: u32, ceiling: u32, n_others: usize) -> u32 {
    if n_others == 0 { asked } else { asked.min(ceiling) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn catalogue() -> Vec<Variant> {
        let variant = |key: &str, instances: &[&str]| Variant {
            key: key.into(),
            instances: instances.iter().map(|&instance| instance.to_owned()).collect(),
        };
        vec![variant("a", &["a", "a:2"]), variant("b", &[]), variant("c", &["c:7", "c:8"])]
    }

    #[test]
    fn a_loaded_model_is_asked_for_by_its_instance_and_never_loaded_twice() {
        let instance = |id: &str| Resolution::Instance(id.into());
        assert_eq!(resolve("a:2", &catalogue(), None, &[]), instance("a:2"));
        assert_eq!(resolve("c", &catalogue(), Some("c:8"), &[]), instance("c:8"));
        assert_eq!(resolve("c", &catalogue(), Some("c:9"), &["c:7".into()]), instance("c:8"));
        assert_eq!(resolve("c", &catalogue(), None, &["c:7".into(), "c:8".into()]), instance("c:7"));
        assert_eq!(resolve("b", &catalogue(), None, &[]), Resolution::Key("b".into()));
    }

    #[test]
    fn an_unknown_model_is_refused_with_what_is_resident() {
        let resident = ["a", "a:2", "c:7", "c:8"].map(str::to_owned).to_vec();
        assert_eq!(resolve("A", &catalogue(), None, &[]), Resolution::Unknown(resident));
    }

    #[test]
    fn only_what_says_that_there_is_no_room_is_a_capacity_rejection() {
        for text in [
            "Insufficient system resources",
            "not enough VRAM",
            "CUDA error: out of memory",
            "blocked by the model loading guardrail",
            "insufficient memory to load",
        ] {
            assert!(is_capacity_rejection(400, text), "{text}");
            assert!(!is_capacity_rejection(200, text), "an answer may say so: {text}");
        }
        assert!(is_capacity_rejection(507, ""));
        for text in ["insufficient quota", "no such model", "not enough arguments", ""] {
            assert!(!is_capacity_rejection(500, text), "{text}");
        }
    }

    proptest! {
        #[test]
        fn context_is_never_raised_and_alone_never_clamped(asked: u32, ceiling: u32, n_others in 0usize..3) {
            let given = clamp_context(asked, ceiling, n_others);
            prop_assert!(given <= asked);
            prop_assert!(n_others == 0 || given <= ceiling);
            prop_assert!(n_others > 0 || given == asked);
        }
    }
}
