//! JSON Schemas of the files, from the types that read them.
//!
//! A schema says less than the readers: what a text must look like in detail, and what shows only across keys, is theirs.
//! It never refuses what they take: wherever a text stands, `${VAR}` may stand too, so lists of words are open for that.
use crate::{
    Arg, Budget, Config, ContextWish, DescribedHost, Glob, HeaderName, HeaderRule, HeaderText, KeptFor, Listen,
    Manifest, Model, PathRule, Place, RefusedArg, Template,
    context::{LONGEST_CONTEXT, SHORTEST_CONTEXT},
    form::VARIABLE,
    refused::RefusedGroup,
    template::Group,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// A kind of file that has a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// `motorpool.toml`.
    Config,
    /// `catalog/*.toml`.
    Model,
    /// `engines/*.toml`.
    Engine,
    /// The machine of `plan --on`.
    Host,
}

impl FileKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Config, Self::Model, Self::Engine, Self::Host];

    /// Its word on the command line, and the name of its schema.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Model => "model",
            Self::Engine => "engine",
            Self::Host => "host",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Config => "motorpool.toml",
            Self::Model => "catalog/*.toml",
            Self::Engine => "engines/*.toml",
            Self::Host => "the machine of `motorpool plan --on`",
        }
    }
}

/// The schema of `kind` (draft 2020-12), with the unit, the default and the meaning of every key.
pub fn schema(kind: FileKind) -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let schema = match kind {
        FileKind::Config => generator.into_root_schema_for::<Config>(),
        FileKind::Model => generator.into_root_schema_for::<Model>(),
        FileKind::Engine => generator.into_root_schema_for::<Manifest>(),
        FileKind::Host => generator.into_root_schema_for::<DescribedHost>(),
    };
    let mut schema = schema.to_value();
    polish(&mut schema);
    if let Some(top) = schema.as_object_mut() {
        top.insert("title".into(), kind.title().into());
    }
    schema
}

/// In words of files, not of the program: nothing is `null` there, defaults are single values, and a text may be a variable.
fn polish(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(polish),
        Value::Object(object) => {
            for (word, part) in object.iter_mut() {
                match (word.as_str(), part) {
                    // By names of keys, which may be words of schemas too.
                    ("properties" | "$defs", Value::Object(parts)) => parts.values_mut().for_each(polish),
                    ("items" | "additionalProperties" | "oneOf" | "anyOf" | "allOf", part) => polish(part),
                    _ => {}
                }
            }
            drop_null(object);
            let is_plain = |default: &Value| !matches!(default, Value::Null | Value::Object(_));
            if !object.get("default").is_none_or(is_plain) {
                object.remove("default");
            }
            if object.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("uint")) {
                object.remove("format");
            }
            if let Some(Value::String(text)) = object.get_mut("description") {
                *text = text.replace('\n', " ").replace("[`", "`").replace("`]", "`");
            }
            open_for_variables(object);
        }
        _ => {}
    }
}

/// Files have no `null`: what may be left out is left out.
fn drop_null(object: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            *object.get_mut("type").expect("it was there") = only.clone();
        }
    }
    let Some(Value::Array(choices)) = object.get_mut("anyOf") else { return };
    choices.retain(|choice| *choice != json!({ "type": "null" }));
    if let [Value::Object(only)] = choices.as_slice() {
        let only = only.clone();
        object.remove("anyOf");
        for (key, value) in only {
            object.entry(key).or_insert(value);
        }
    }
}

/// A list of words is one of them or a text with a variable.
fn open_for_variables(object: &mut Map<String, Value>) {
    let is_word = |choice: &Value| choice["const"].is_string() || choice["enum"].is_array();
    let words = match (object.remove("oneOf"), object.remove("enum")) {
        (Some(Value::Array(choices)), _) if choices.iter().all(is_word) => json!({ "oneOf": choices }),
        (Some(other), _) => {
            object.insert("oneOf".into(), other);
            return;
        }
        (None, Some(words)) => json!({ "enum": words }),
        (None, None) => return,
    };
    object.insert("anyOf".into(), json!([words, { "type": "string", "pattern": VARIABLE }]));
}

fn text() -> Schema {
    json_schema!({ "type": "string" })
}

macro_rules! by_hand {
    ($($type:ty: $name:literal, $schema:expr;)+) => {$(
        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                ($schema)(generator)
            }
        }
    )+};
}

by_hand! {
    Budget: "Budget", |_: &mut _| text();
    Glob: "Glob", |_: &mut _| text();
    HeaderName: "HeaderName", |_: &mut _| text();
    HeaderRule: "HeaderRule", |_: &mut _| text();
    HeaderText: "HeaderText", |_: &mut _| text();
    KeptFor: "KeptFor", |_: &mut _| text();
    Listen: "Listen", |_: &mut _| text();
    PathRule: "PathRule", |_: &mut _| text();
    Place: "Place", |_: &mut _| text();
    Template: "Template", |_: &mut _| text();
    ContextWish: "ContextWish", |_: &mut _| json_schema!({ "anyOf": [
        { "type": "integer", "minimum": SHORTEST_CONTEXT, "maximum": LONGEST_CONTEXT },
        { "type": "string", "pattern": format!("^max$|{VARIABLE}") },
    ] });
    Arg: "Arg", |generator: &mut SchemaGenerator| json_schema!({ "anyOf": [text(), generator.subschema_for::<Group>()] });
    RefusedArg: "RefusedArg", |generator: &mut SchemaGenerator| json_schema!({ "anyOf": [text(), generator.subschema_for::<RefusedGroup>()] });
}
