//! The members of a JSON object as they are written, in their order.
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::RawValue;
use std::{borrow::Cow, fmt};

/// Names and values.
#[derive(Debug, Default)]
pub(super) struct Members<'a>(pub(super) Vec<(Cow<'a, str>, Cow<'a, RawValue>)>);

impl<'a> Members<'a> {
    pub(super) fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// Sets a member, where it stands or at the end.
    pub(super) fn set(&mut self, name: &'static str, value: &impl Serialize) {
        let value = Cow::Owned(serde_json::value::to_raw_value(value).expect("texts and documents always serialise"));
        self.put(name.into(), value);
    }

    /// Takes all of these over.
    pub(super) fn extend(&mut self, others: Members<'a>) {
        others.0.into_iter().for_each(|(name, value)| self.put(name, value));
    }

    fn put(&mut self, name: Cow<'a, str>, value: Cow<'a, RawValue>) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some(member) => member.1 = value,
            None => self.0.push((name, value)),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_map(Reader)
    }
}

impl Serialize for Members<'_> {
    fn serialize<S: Serializer>(&self, writer: S) -> Result<S::Ok, S::Error> {
        writer.collect_map(self.0.iter().map(|(name, value)| (name, &**value)))
    }
}

struct Reader;

impl<'de> de::Visitor<'de> for Reader {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let mut members = Members::default();
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            let value: &'de RawValue = map.next_value()?;
            members.put(name, Cow::Borrowed(value));
        }
        Ok(members)
    }
}
