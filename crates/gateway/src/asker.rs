//! Who asks, and how urgently, by a request's own headers: [`Asker`].
use crate::{
    errors::Failure,
    family::Session,
    keys::Rights,
    running::Entry,
    scan::{Findings, Key},
};
use http::HeaderMap;
use motorpool_catalog::{Model, duration_from_text};
use motorpool_pool::{Ask, KeepAlive, Want};
use motorpool_vocab::{Holder, Lane, ModelId, Now};
use serde_json::Value;
use std::time::Duration;

/// A name longer than this, in bytes, is refused: it is kept.
const NAME_BYTES: usize = 256;

/// Who asks, and how urgently.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asker {
    pub(crate) holder: Holder,
    priority: Option<i32>,
    keep_alive: Option<KeepAlive>,
    rights: Option<Rights>,
}

impl Asker {
    /// By `X-Motorpool-Session`, `-Lane`, `-Job`, `-Actor`, `-Parent` and `-Priority`.
    pub(crate) fn of(headers: &HeaderMap, request: &str) -> Result<Self, Failure> {
        let lane = match text(headers, "x-motorpool-lane")? {
            None => Lane::default(),
            Some(name) => Lane::from_name(&name)
                .ok_or_else(|| wrong("`X-Motorpool-Lane` is `interactive`, `background` or `ambient`".into(), None))?,
        };
        let priority =
            match text(headers, "x-motorpool-priority")? {
                None => None,
                Some(number) => Some(number.parse().ok().filter(|n| (-1000..=1000).contains(n)).ok_or_else(|| {
                    wrong("`X-Motorpool-Priority` is a whole number from -1000 to 1000".into(), None)
                })?),
            };
        let holder = Holder {
            request: request.to_owned(),
            lane,
            session: text(headers, "x-motorpool-session")?,
            job: text(headers, "x-motorpool-job")?,
            actor: text(headers, "x-motorpool-actor")?,
            parent: text(headers, "x-motorpool-parent")?,
            owner: None,
            entry: None,
            since: Now::ZERO,
        };
        Ok(Self { holder, priority, keep_alive: None, rights: None })
    }

    /// What its body adds: `keep_alive`; and without a session in its headers, the API's own user or conversation is one.
    pub(crate) fn with_body(mut self, found: &Findings, session: Session) -> Result<Self, Failure> {
        // What two keys call alike are two sessions.
        let own = |named| match &self.holder.owner {
            Some(owner) => format!("{owner}/{named}"),
            None => named,
        };
        self.holder.session = self.holder.session.or_else(|| named_by(found, session).map(own));
        self.keep_alive = found.raw(Key::KeepAlive).map(keep_alive).transpose()?.flatten();
        Ok(self)
    }

    /// What its key lets it do, if it came with one.
    pub(crate) fn with_rights(self, rights: Option<&Rights>) -> Self {
        let owner = rights.map(Rights::name);
        Self { rights: rights.cloned(), holder: Holder { owner, ..self.holder }, ..self }
    }

    /// Its place among the requests that run.
    pub(crate) fn entered(self, entry: Option<&Entry>) -> Self {
        Self { holder: Holder { entry: entry.map(|Entry(number)| *number), ..self.holder }, ..self }
    }

    /// Refuses a model that is not one of its key's, as if it were none: whoever asked for it by `name`, or by none at all.
    pub(crate) fn check_model(&self, model: &Model, name: Option<&str>) -> Result<(), Failure> {
        if self.may_use(model) { Ok(()) } else { Err(not_there(name)) }
    }

    /// Whether the model is one of its key's.
    pub(crate) fn may_use(&self, model: &Model) -> bool {
        self.rights.as_ref().is_none_or(|rights| rights.may_use(model))
    }

    /// Whether a model that goes by these names is.
    pub(crate) fn may_use_any(&self, names: &[String]) -> bool {
        self.rights.as_ref().is_none_or(|rights| rights.may_use_any(names))
    }

    /// Whether its engine is to go as soon as nobody needs it.
    pub(crate) fn goes_at_once(&self) -> bool {
        self.keep_alive == Some(KeepAlive::For(Duration::ZERO))
    }

    /// Refuses a model of somebody else's server that goes by none of its key's names.
    pub(crate) fn check_names(&self, names: &[String], name: Option<&str>) -> Result<(), Failure> {
        if self.may_use_any(names) { Ok(()) } else { Err(not_there(name)) }
    }

    /// Without a lane in `headers`, of those who wait for nobody: a count is not worth that others go for it.
    #[must_use]
    pub(crate) fn in_no_hurry(mut self, headers: &HeaderMap) -> Self {
        if !headers.contains_key("x-motorpool-lane") {
            self.holder.lane = Lane::Background;
        }
        self
    }

    /// Its wish for a lease on `model`.
    pub(crate) fn ask(&self, model: ModelId) -> Ask {
        let most_waiting = self.rights.as_ref().and_then(Rights::most_waiting);
        let plain = Ask::lease(model, self.holder.clone());
        Ask { priority: self.priority, keep_alive: self.keep_alive, most_waiting, ..plain }
    }

    /// Its wish that `model` be there before its body is. `None`: it is not so urgent that others had to go for a request
    /// that may never be whole.
    pub(crate) fn ask_early(&self, model: ModelId) -> Option<Ask> {
        (self.holder.lane == Lane::Interactive).then(|| Ask { want: Want::Resident, ..self.ask(model) })
    }
}

/// How long the engine is kept after the request, as Ollama's clients say it: seconds, or a text such as `5m`; below zero
/// is for ever. `null` says nothing.
fn keep_alive(raw: &[u8]) -> Result<Option<KeepAlive>, Failure> {
    let wrong = || {
        let message = "`keep_alive` is a number of seconds or a text such as \"5m\"; below zero it is for ever".into();
        Failure::InvalidRequest { message, param: Some("keep_alive") }
    };
    Ok(match serde_json::from_slice(raw).map_err(|_| wrong())? {
        Value::Null => None,
        Value::Number(seconds) => {
            let seconds = seconds.as_f64().filter(|n| n.is_finite()).ok_or_else(wrong)?;
            let within = Duration::try_from_secs_f64(seconds).ok();
            Some(if seconds < 0.0 { KeepAlive::Always } else { KeepAlive::For(within.ok_or_else(wrong)?) })
        }
        Value::String(text) if text.starts_with('-') => {
            duration_from_text(&text[1..]).map_err(|_| wrong())?;
            Some(KeepAlive::Always)
        }
        Value::String(text) => Some(KeepAlive::For(duration_from_text(&text).map_err(|_| wrong())?)),
        _ => return Err(wrong()),
    })
}

/// The API's own name of a user or conversation; one that is no name, or too long to keep, is nobody's.
fn named_by(found: &Findings, session: Session) -> Option<String> {
    let value = |key| serde_json::from_slice::<Value>(found.raw(key)?).ok();
    let text = |value: &Value| value.as_str().filter(|t| !t.is_empty() && t.len() <= NAME_BYTES).map(str::to_owned);
    match session {
        Session::Member(key) => text(&value(key)?),
        Session::UserOfMetadata => text(&value(Key::Metadata)?["user_id"]),
        Session::Conversation => value(Key::Conversation)
            .and_then(|conversation| text(&conversation).or_else(|| text(&conversation["id"])))
            .or_else(|| text(&value(Key::User)?)),
    }
}

/// What there is instead is added where it is known whose models these are.
pub(crate) fn not_there(name: Option<&str>) -> Failure {
    match name {
        Some(name) => Failure::UnknownModel { name: name.to_owned(), nearest: Vec::new() },
        None => Failure::NoModel(Vec::new()),
    }
}

fn text(headers: &HeaderMap, name: &'static str) -> Result<Option<String>, Failure> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    match value.to_str() {
        Ok("") => Ok(None),
        Ok(text) if text.len() <= NAME_BYTES => Ok(Some(text.to_owned())),
        _ => Err(wrong(format!("`{name}` is no text of at most {NAME_BYTES} bytes"), None)),
    }
}

fn wrong(message: String, param: Option<&'static str>) -> Failure {
    Failure::InvalidRequest { message, param }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{family::Family, scan::Scan};
    use http::HeaderValue;

    fn found(body: &str) -> Findings {
        let mut scan = Scan::new(&[]);
        scan.feed(body.as_bytes()).expect("an object");
        scan.finish().expect("whole")
    }

    fn of(headers: &[(&'static str, &str)], body: &str) -> Result<Asker, Failure> {
        let pairs = headers
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_str(value).expect("a value")));
        Asker::of(&pairs.collect(), "req_1")?.with_body(&found(body), Family::OpenAi.traits().session)
    }

    #[test]
    fn headers_say_who_asks_and_how_urgently() {
        let asker = of(
            &[
                ("x-motorpool-session", "s"),
                ("x-motorpool-lane", "background"),
                ("x-motorpool-job", "j"),
                ("x-motorpool-actor", "a"),
                ("x-motorpool-parent", "req_0"),
                ("x-motorpool-priority", "-7"),
            ],
            r#"{"user":"u"}"#,
        )
        .expect("right");
        let some = |text: &str| Some(text.to_owned());
        let holder = Holder {
            request: "req_1".into(),
            lane: Lane::Background,
            session: some("s"),
            job: some("j"),
            actor: some("a"),
            parent: some("req_0"),
            owner: None,
            entry: None,
            since: Now::ZERO,
        };
        assert_eq!(asker.holder, holder);
        assert_eq!(asker.ask(ModelId::new("m").expect("an id")).priority, Some(-7));
    }

    #[test]
    fn the_user_of_a_body_is_its_session_when_no_header_names_one() {
        let session = |body: &str| of(&[], body).expect("right").holder.session;
        assert_eq!(session(r#"{"user":"\u0061lice"}"#).as_deref(), Some("alice"));
        for body in ["{}", r#"{"user":""}"#, r#"{"user":null}"#, r#"{"user":7}"#] {
            assert_eq!(session(body), None, "{body}");
        }
        assert_eq!(session(&format!(r#"{{"user":"{}"}}"#, "u".repeat(257))), None);
    }

    #[test]
    fn each_family_names_its_conversation_in_its_own_member() {
        for (family, body, want) in [
            (Family::Anthropic, r#"{"metadata":{"user_id":"u"},"user":"v"}"#, Some("u")),
            (Family::Anthropic, r#"{"metadata":{"user_id":7},"user":"v"}"#, None),
            (Family::Responses, r#"{"conversation":"c","user":"v"}"#, Some("c")),
            (Family::Responses, r#"{"conversation":{"id":"c"}}"#, Some("c")),
            (Family::Responses, r#"{"conversation":null,"user":"v"}"#, Some("v")),
            (Family::OpenAi, r#"{"conversation":"c","metadata":{"user_id":"u"}}"#, None),
        ] {
            let asker = Asker::default().with_body(&found(body), family.traits().session).expect("right");
            assert_eq!(asker.holder.session.as_deref(), want, "{family:?} {body}");
        }
    }

    #[test]
    fn a_body_says_how_long_its_engine_is_kept() {
        let keep = |value: &str| {
            let asker = of(&[], &format!(r#"{{"keep_alive":{value}}}"#))?;
            Ok::<_, Failure>(asker.ask(ModelId::new("m").expect("an id")).keep_alive)
        };
        let seconds = |n| Some(KeepAlive::For(Duration::from_secs(n)));
        for (value, said) in [
            ("300", seconds(300)),
            ("0", seconds(0)),
            (r#""5m""#, seconds(300)),
            (r#""1h30m""#, seconds(5400)),
            ("-1", Some(KeepAlive::Always)),
            (r#""-1s""#, Some(KeepAlive::Always)),
            ("null", None),
        ] {
            assert_eq!(keep(value).expect("right"), said, "{value}");
        }
        for value in ["true", r#""soon""#, "[]", "1e300", r#""-""#, r#""""#] {
            assert!(matches!(keep(value), Err(Failure::InvalidRequest { .. })), "{value}");
        }
    }

    #[test]
    fn only_who_watches_has_a_model_loaded_before_the_body_is_whole() {
        let early = |lane: &str| {
            let asker = of(&[("x-motorpool-lane", lane), ("x-motorpool-session", "s")], "{}").expect("right");
            asker.ask_early(ModelId::new("m").expect("an id"))
        };
        let ask = early("interactive").expect("early");
        assert_eq!((ask.want, ask.holder.session.as_deref()), (Want::Resident, Some("s")));
        assert_eq!((early("background"), early("ambient")), (None, None));
    }

    #[test]
    fn who_only_counts_hurries_nobody_unless_it_says_so() {
        let lane = |lines: &[(&'static str, &str)]| {
            let pairs = lines.iter().map(|(n, v)| (http::HeaderName::from_static(n), v.parse().expect("a value")));
            let headers = pairs.collect();
            Asker::of(&headers, "req_1").expect("right").in_no_hurry(&headers).holder.lane
        };
        assert_eq!(lane(&[]), Lane::Background);
        assert_eq!(lane(&[("x-motorpool-lane", "interactive")]), Lane::Interactive);
    }

    #[test]
    fn what_nobody_can_mean_is_refused() {
        let long = "s".repeat(257);
        for (name, value) in [
            ("x-motorpool-lane", "fast"),
            ("x-motorpool-priority", "1001"),
            ("x-motorpool-priority", "high"),
            ("x-motorpool-session", &long),
        ] {
            assert!(matches!(of(&[(name, value)], "{}"), Err(Failure::InvalidRequest { .. })), "{name}: {value}");
        }
    }
}
