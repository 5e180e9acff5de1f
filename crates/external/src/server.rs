//! [`Server`]: the three kinds behind one face, for whoever carries a plan out.
use crate::{
    autoload::Autoload,
    call::{Body, CallError, Caller},
    error::ServerError,
    lmstudio::{LmStudio, Shelf, Tier},
    ollama::Ollama,
    router::Router,
    target::Target,
};
use http::{Request, Response};
use hyper::body::Incoming;
use motorpool_residency::{Capacity, Kind, Lifecycle, Listing, Resident, Seen, Variant};
use motorpool_vocab::TargetKey;

/// One server, by its kind.
#[derive(Clone, Debug)]
enum Adapter {
    Router(Router),
    Ollama(Ollama),
    LmStudio(LmStudio),
}

/// One server.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    adapter: Adapter,
    caller: Caller,
    root: String,
    key: TargetKey,
    /// What a router that we manage is told with each request: not to load for it.
    mark: Option<&'static str>,
}

/// What a look shows.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) listing: Listing,
    /// LM Studio's catalogue and its tier.
    pub(crate) catalogue: Option<(Tier, Vec<Variant>)>,
}

/// What a load is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load<'a> {
    pub(crate) model: &'a str,
    /// LM Studio: tokens instead of the configured ones.
    pub(crate) context: Option<u32>,
}

/// Whose load it was, as far as the server tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The one that was asked for.
    Ours,
    /// Somebody else's, or nobody knows.
    Theirs,
}

/// What came of a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loaded {
    /// The instance, where the server names it.
    pub(crate) instance: Option<String>,
    /// Whose it was.
    pub(crate) whose: Whose,
}

/// A load that was asked for has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Begun<'a> {
    /// By us; so the server shows it.
    Ours(&'a Seen),
    /// By somebody else, before us.
    Theirs,
}

/// Is told how a load begins.
pub(crate) type OnBegun<'a> = &'a (dyn Fn(Begun<'_>) + Send + Sync);

impl Look {
    /// Whether the server can be told to load and unload; of LM Studio's, only the newest tier.
    pub(crate) fn unloads(&self) -> bool {
        self.catalogue.as_ref().is_none_or(|(tier, _)| *tier == Tier::V1)
    }

    /// Whether a model that is not resident by the listing is not resident.
    pub(crate) fn tells_residents(&self) -> bool {
        self.catalogue.as_ref().is_none_or(|(tier, _)| tier.tells_residents())
    }
}

impl Server {
    /// The server of `target`; nothing is connected yet.
    pub(crate) fn new(target: &Target) -> Result<Self, CallError> {
        let caller = Caller::new(&target.url, target.headers.clone(), target.key.as_ref())?;
        let adapter = match target.kind {
            Kind::Router => Adapter::Router(Router::new(target, caller.clone())),
            Kind::Ollama => Adapter::Ollama(Ollama::new(target, caller.clone())),
            Kind::LmStudio => Adapter::LmStudio(LmStudio::new(target, caller.clone())),
        };
        let is_managed_router = target.kind == Kind::Router && target.lifecycle == Lifecycle::Managed;
        let mark = is_managed_router.then_some("autoload=0");
        Ok(Self { adapter, caller, root: target.url.root(), key: target.url.key(), mark })
    }

    /// Which server it is.
    pub(crate) fn key(&self) -> &TargetKey {
        &self.key
    }

    /// What it has.
    pub(crate) async fn look(&self) -> Result<Look, ServerError> {
        Ok(match &self.adapter {
            Adapter::Router(router) => Look { listing: router.list().await?, catalogue: None },
            Adapter::Ollama(ollama) => Look { listing: ollama.list().await?, catalogue: None },
            Adapter::LmStudio(studio) => {
                let Shelf { tier, variants, listing } = studio.shelf().await?;
                Look { listing, catalogue: Some((tier, variants)) }
            }
        })
    }

    /// What it offers, loaded or not, by what a request names it.
    pub(crate) async fn models(&self) -> Result<Vec<String>, ServerError> {
        match &self.adapter {
            Adapter::Router(router) => Ok(router.list().await?.rows.into_iter().map(|seen| seen.id).collect()),
            Adapter::Ollama(ollama) => ollama.models().await,
            Adapter::LmStudio(studio) => {
                Ok(studio.shelf().await?.variants.into_iter().map(|variant| variant.key).collect())
            }
        }
    }

    /// Whether it offers `model`, loaded or not.
    pub(crate) async fn offers(&self, model: &str) -> Result<bool, ServerError> {
        let models = self.models().await?;
        let is_it = |name: &String| match &self.adapter {
            // To Ollama a name without a tag is the one with `:latest`.
            Adapter::Ollama(_) => {
                name.strip_suffix(":latest").unwrap_or(name) == model.strip_suffix(":latest").unwrap_or(model)
            }
            Adapter::Router(_) | Adapter::LmStudio(_) => name == model,
        };
        Ok(models.iter().any(is_it))
    }

    /// How much it takes; only routers tell.
    pub(crate) async fn capacity(&self) -> Capacity {
        match &self.adapter {
            Adapter::Router(router) => router.capacity().await,
            Adapter::Ollama(_) | Adapter::LmStudio(_) => Capacity::Unknown,
        }
    }

    /// Whether a router heeds `autoload=0`, as far as that is known; nothing for others.
    pub(crate) fn autoload(&self) -> Option<Autoload> {
        match &self.adapter {
            Adapter::Router(router) => Some(router.autoload()),
            Adapter::Ollama(_) | Adapter::LmStudio(_) => None,
        }
    }

    /// Whether we ask for loads there, or leave them to the request itself.
    pub(crate) fn loads_explicitly(&self, look: &Look) -> bool {
        match &self.adapter {
            Adapter::Router(_) | Adapter::Ollama(_) => true,
            Adapter::LmStudio(studio) => studio.loads_explicitly() && look.unloads(),
        }
    }

    /// Tokens of context that our loads are configured to ask for.
    pub(crate) fn context(&self) -> Option<u32> {
        match &self.adapter {
            Adapter::Router(_) | Adapter::Ollama(_) => None,
            Adapter::LmStudio(studio) => studio.context(),
        }
    }

    /// Loads and waits until it is done; one that is there is done. A router shows the load as soon as it has begun.
    pub(crate) async fn load(&self, load: Load<'_>, on_begun: OnBegun<'_>) -> Result<Loaded, ServerError> {
        let unnamed = |whose| Loaded { instance: None, whose };
        match &self.adapter {
            Adapter::Router(router) => router.load(load.model, on_begun).await.map(unnamed),
            Adapter::Ollama(ollama) => ollama.load((load.model, None)).await.map(|()| unnamed(Whose::Ours)),
            Adapter::LmStudio(studio) => {
                let instance = studio.load(load.model, load.context).await?;
                // It names the instance that it made; without a name nothing is ours there.
                let whose = if instance.is_some() { Whose::Ours } else { Whose::Theirs };
                Ok(Loaded { instance, whose })
            }
        }
    }

    /// How `gone` is loaded again: as it was. On LM Studio an instance is loaded by its key.
    pub(crate) fn again<'a>(&self, gone: &'a Resident) -> Load<'a> {
        match &self.adapter {
            Adapter::LmStudio(_) => {
                let key = gone.seen.aliases.first().unwrap_or(&gone.seen.id);
                Load { model: key, context: gone.seen.context }
            }
            Adapter::Router(_) | Adapter::Ollama(_) => Load { model: &gone.seen.id, context: None },
        }
    }

    /// Unloads and waits until it left; one that is not there is done.
    pub(crate) async fn unload(&self, model: &str) -> Result<(), ServerError> {
        match &self.adapter {
            Adapter::Router(router) => router.unload(model).await,
            Adapter::Ollama(ollama) => ollama.unload(model).await,
            Adapter::LmStudio(studio) => studio.unload(model).await,
        }
    }

    /// Waits until `model` answers, whoever loads it.
    pub(crate) async fn until_ready(&self, model: &str) -> Result<(), ServerError> {
        match &self.adapter {
            Adapter::Router(router) => router.until_ready(model).await,
            // They list only what is loaded.
            Adapter::Ollama(_) | Adapter::LmStudio(_) => Ok(()),
        }
    }

    /// Says to Ollama how long `model`, which is loaded with so much context, stays from now on.
    pub(crate) async fn keep(&self, (model, context): (&str, Option<u32>)) {
        if let Adapter::Ollama(ollama) = &self.adapter {
            // It is there, and its server's own time holds when ours is not heard.
            drop(ollama.load((model, context)).await);
        }
    }

    /// Tokens of context that `seen` is loaded with; only Ollama tells, and would load it anew for others.
    pub(crate) fn loaded_with(&self, seen: Option<&Seen>) -> Option<u32> {
        if matches!(self.adapter, Adapter::Ollama(_)) { seen?.max_context } else { None }
    }

    /// Whether uses have to be followed by [`Self::keep`].
    pub(crate) fn is_kept_by_use(&self) -> bool {
        matches!(self.adapter, Adapter::Ollama(_))
    }

    /// Sends what `request` makes to a path of the server, perhaps with a query. A managed router is told not to load for
    /// it.
    pub(crate) async fn send(
        &self,
        path_and_query: &str,
        request: impl Fn() -> Request<Body>,
    ) -> Result<Response<Incoming>, CallError> {
        let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        let kept = query.split('&').filter(|part| !part.is_empty() && part.split('=').next() != Some("autoload"));
        let query: Vec<&str> = kept.chain(self.mark).collect();
        let mark = if query.is_empty() { "" } else { "?" };
        let url = format!("{}{path}{mark}{}", self.root, query.join("&"));
        self.caller.send(&url, request).await
    }
}
