//! How a setting is declared, and how a node becomes its value.
//!
//! [`settings!`] takes one declaration and makes of it the struct, the reader, the flags, the JSON Schema and the
//! text of `explain`: none of them can know a key that another does not.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use crate::diagnostics::{Fault, Problem, quoted};
use crate::nearest::nearest;
use crate::node::{Kind, Node, Span};

/// No list is longer: what comes from a file or a flag has a bound.
const MAX_LIST: usize = 20_000;
/// Labels of one upstream.
const MAX_MAP: usize = 64;

/// What is declared about a key besides its type. Texts are in the form in which a user writes them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spec {
    pub key: &'static str,
    pub doc: &'static [&'static str],
    /// The value when the key is not written; empty: there is none.
    pub default: &'static str,
    /// What it means that a key without a default is not written.
    pub unset: &'static str,
    pub min: &'static str,
    pub max: &'static str,
    pub example: &'static str,
    /// The key must be written.
    pub required: bool,
    /// A change takes effect only after a restart.
    pub restart: bool,
    /// A list that may be written as its only item.
    pub single: bool,
    /// The flag's name where it is not the key's: the singular of a list.
    pub flag: &'static str,
}

impl Spec {
    pub(crate) const EMPTY: Self = Self {
        key: "",
        doc: &[],
        default: "",
        unset: "",
        min: "",
        max: "",
        example: "",
        required: false,
        restart: false,
        single: false,
        flag: "",
    };

    /// The documentation as one paragraph of plain text.
    pub(crate) fn text(&self) -> String {
        self.doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
    }
}

/// The form of a setting's value.
#[derive(Debug, Clone)]
pub(crate) enum Shape {
    Scalar { kind: String, schema: Json },
    List(Box<Shape>),
    Map(Box<Shape>),
    Section(Vec<(Spec, Shape)>),
}

impl Shape {
    /// The name of the type, as a person reads it.
    pub(crate) fn kind(&self) -> String {
        match self {
            Self::Scalar { kind, .. } => kind.clone(),
            Self::List(item) => match item.as_ref() {
                Self::Section(_) => "list".to_owned(),
                other => format!("list of {}", other.kind()),
            },
            Self::Map(item) => format!("map to {}", item.kind()),
            Self::Section(_) => "section".to_owned(),
        }
    }
}

/// What reading gathers besides the values.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    pub problems: Vec<Problem>,
    /// Places whose text is not to be shown.
    pub secrets: Vec<Span>,
    path: String,
}

impl Reader {
    /// Runs `inner` one key further down.
    fn within<T>(&mut self, step: &str, inner: impl FnOnce(&mut Self) -> T) -> T {
        let len = self.path.len();
        if len > 0 && !step.starts_with('[') {
            self.path.push('.');
        }
        self.path.push_str(step);
        let out = inner(self);
        self.path.truncate(len);
        out
    }

    /// A value that breaks a rule.
    pub(crate) fn bad_value(&mut self, found: &str, fault: Fault, span: Span) {
        let title = format!("`{}` cannot be {}", self.path, quoted(found));
        self.report(title, fault, span);
    }

    /// A problem in words of its own; `{key}` in the title is the key's name.
    pub(crate) fn report(&mut self, title: String, fault: Fault, span: Span) {
        let title = title.replace("{key}", &format!("`{}`", self.path));
        self.problems.push(Problem::at_key(&self.path, title, fault, span));
    }

    /// A problem of a key below the current one.
    pub(crate) fn report_below(&mut self, key: &str, title: String, fault: Fault, span: Span) {
        self.within(key, |reader| reader.report(title, fault, span));
    }

    fn wrong_type(&mut self, node: &Node, wanted: &str, remedy: String) {
        let found = match &node.kind {
            _ if node.is_null() => "has no value",
            Kind::Scalar { plain: false, .. } => "is a text in quotes",
            Kind::Scalar { .. } => "is a single value",
            Kind::List(_) => "is a list",
            Kind::Map(_) => "is a mapping",
        };
        let title = format!("`{}` {found}", self.path);
        self.report(title, Fault::new(format!("needs {wanted}"), remedy), node.span);
    }
}

/// Something that can stand at a key.
pub(crate) trait Field: Sized + PartialEq {
    /// `None` after a problem was reported.
    fn read(node: &Node, spec: &Spec, reader: &mut Reader) -> Option<Self>;

    /// The value when the key is not written; `around` is the mapping that lacks it.
    fn absent(spec: &Spec, around: &Node, reader: &mut Reader) -> Option<Self> {
        if spec.default.is_empty() {
            return missing(spec, around, reader);
        }
        Self::read(&Node::scalar(spec.default, around.span), spec, reader)
    }

    fn shape() -> Shape;

    /// Adds the keys that differ and take effect only after a restart.
    fn changed(&self, other: &Self, spec: &Spec, path: &str, out: &mut Vec<String>) {
        if spec.restart && self != other {
            out.push(path.to_owned());
        }
    }
}

fn missing<T>(spec: &Spec, around: &Node, reader: &mut Reader) -> Option<T> {
    let fault = Fault::new(
        format!("`{}` must be written here", spec.key),
        format!("add `{}: {}`", spec.key, spec.example),
    );
    reader.report("{key} is missing".to_owned(), fault, around.span);
    None
}

/// A value that is written as one scalar.
pub(crate) trait Value: Sized + PartialEq {
    /// What a person calls the type, with its article: "a duration".
    const KIND: &'static str;
    /// Numbers and booleans are refused in quotes: there they are text.
    const TEXT: bool = true;

    fn parse(text: &str) -> Result<Self, Fault>;
    fn schema() -> Json;

    /// The size of a value that has one, for `min` and `max`.
    fn measure(&self) -> Option<f64> {
        None
    }

    /// Whether a refused text may hold a secret and is not to be shown.
    fn is_secret(_text: &str) -> bool {
        false
    }

    /// The name of the type, without its article.
    fn kind() -> String {
        let kind = Self::KIND;
        kind.strip_prefix("a ").or_else(|| kind.strip_prefix("an ")).unwrap_or(kind).to_owned()
    }
}

impl<T: Value> Field for T {
    fn read(node: &Node, spec: &Spec, reader: &mut Reader) -> Option<Self> {
        let Kind::Scalar { text, plain } = &node.kind else {
            let remedy = format!("write one value, such as `{}: {}`", spec.key, spec.example);
            reader.wrong_type(node, T::KIND, remedy);
            return None;
        };
        if node.is_null() {
            let remedy = "write a value, or remove the line for the default".to_owned();
            reader.wrong_type(node, T::KIND, remedy);
            return None;
        }
        if !T::TEXT && !plain {
            reader.wrong_type(node, T::KIND, "remove the quotes".to_owned());
            return None;
        }
        let value = match T::parse(text) {
            Ok(value) => value,
            Err(fault) => {
                if T::is_secret(text) {
                    reader.secrets.push(node.span);
                    reader.report("{key} cannot be what is written here".to_owned(), fault, node.span);
                } else {
                    reader.bad_value(text, fault, node.span);
                }
                return None;
            }
        };
        let bound = |limit: &str| T::parse(limit).ok().and_then(|limit| limit.measure());
        let (min, max, size) = (bound(spec.min), bound(spec.max), value.measure());
        let low = size.zip(min).is_some_and(|(size, min)| size < min);
        let high = size.zip(max).is_some_and(|(size, max)| size > max);
        if low || high {
            let rule = match (min, max) {
                (Some(_), Some(_)) => format!("must be from {} to {}", spec.min, spec.max),
                (Some(_), None) => format!("must be {} or more", spec.min),
                _ => format!("must be {} or less", spec.max),
            };
            let remedy = format!("for example {}", spec.example);
            reader.bad_value(text, Fault::new(rule, remedy), node.span);
            return None;
        }
        Some(value)
    }

    fn shape() -> Shape {
        Shape::Scalar { kind: T::kind(), schema: T::schema() }
    }
}

/// Not written means `None`.
impl<T: Field> Field for Option<T> {
    fn read(node: &Node, spec: &Spec, reader: &mut Reader) -> Option<Self> {
        T::read(node, spec, reader).map(Some)
    }

    fn absent(_: &Spec, _: &Node, _: &mut Reader) -> Option<Self> {
        Some(None)
    }

    fn shape() -> Shape {
        T::shape()
    }
}

/// Not written means empty, unless a default is declared.
impl<T: Field> Field for Vec<T> {
    fn read(node: &Node, spec: &Spec, reader: &mut Reader) -> Option<Self> {
        let single = std::slice::from_ref(node);
        let items = match &node.kind {
            Kind::List(items) => items.as_slice(),
            Kind::Scalar { .. } if spec.single && !node.is_null() => single,
            _ => {
                let remedy = if node.is_null() {
                    "write `[]` for an empty list, or remove the line".to_owned()
                } else {
                    format!("put `- ` before each item: `- {}`", spec.example)
                };
                reader.wrong_type(node, "a list", remedy);
                return None;
            }
        };
        if items.len() > MAX_LIST {
            let fault = Fault::new(format!("at most {MAX_LIST} items"), "write fewer");
            reader.report(format!("{{key}} has {} items", items.len()), fault, node.span);
            return None;
        }
        let values: Vec<_> = items
            .iter()
            .enumerate()
            .map(|(at, item)| reader.within(&format!("[{at}]"), |reader| T::read(item, spec, reader)))
            .collect();
        // Only now: every item's problems have been reported.
        values.into_iter().collect()
    }

    fn absent(spec: &Spec, around: &Node, reader: &mut Reader) -> Option<Self> {
        if spec.required {
            return missing(spec, around, reader);
        }
        let items = spec.default.split_whitespace().map(|text| Node::scalar(text, around.span));
        let kind = Kind::List(items.collect());
        Self::read(&Node { span: around.span, kind }, spec, reader)
    }

    fn shape() -> Shape {
        Shape::List(Box::new(T::shape()))
    }
}

impl<K: Value + Ord, V: Value> Field for BTreeMap<K, V> {
    fn read(node: &Node, spec: &Spec, reader: &mut Reader) -> Option<Self> {
        let Kind::Map(entries) = &node.kind else {
            let remedy = format!("write `{}: {{{}}}`", spec.key, spec.example);
            reader.wrong_type(node, "a mapping of names to values", remedy);
            return None;
        };
        if entries.len() > MAX_MAP {
            let fault = Fault::new(format!("at most {MAX_MAP} entries"), "write fewer");
            reader.report(format!("{{key}} has {} entries", entries.len()), fault, node.span);
            return None;
        }
        let mut out = Self::new();
        let mut whole = true;
        for (key, value) in entries {
            let name = K::read(key, &Spec { example: "zone", ..Spec::EMPTY }, reader);
            let step = format!("[{}]", key.text().unwrap_or("?"));
            let value = reader.within(&step, |reader| {
                V::read(value, &Spec { key: "zone", example: "a", ..Spec::EMPTY }, reader)
            });
            match name.zip(value) {
                None => whole = false,
                Some((name, value)) => {
                    if out.insert(name, value).is_some() {
                        repeated(key, reader);
                        whole = false;
                    }
                }
            }
        }
        whole.then_some(out)
    }

    fn absent(_: &Spec, _: &Node, _: &mut Reader) -> Option<Self> {
        Some(Self::new())
    }

    fn shape() -> Shape {
        Shape::Map(Box::new(V::shape()))
    }
}

fn repeated(key: &Node, reader: &mut Reader) {
    let name = key.text().unwrap_or("?").to_owned();
    let fault = Fault::new("this key was written before", "keep one of the two: neither wins over the other");
    reader.within(&name, |reader| {
        reader.report("{key} is written twice".to_owned(), fault, key.span);
    });
}

/// The mapping that a [`settings!`] struct is read from.
pub(crate) struct Section<'n> {
    node: &'n Node,
    whole: bool,
}

impl<'n> Section<'n> {
    /// Refuses what is no mapping, unknown keys and repeated ones.
    pub(crate) fn open(node: &'n Node, spec: &Spec, keys: &[&Spec], reader: &mut Reader) -> Option<Self> {
        // A section whose lines are all commented out is an empty one.
        let entries: &[(Node, Node)] = match &node.kind {
            Kind::Map(entries) => entries,
            _ if node.is_null() => &[],
            _ => {
                let example = keys
                    .first()
                    .map_or("key: value".to_owned(), |first| format!("{}: {}", first.key, first.example));
                let remedy = format!("write keys below it, such as `{example}`");
                reader.wrong_type(node, "keys with values", remedy);
                return None;
            }
        };
        let mut whole = true;
        for (at, (key, _)) in entries.iter().enumerate() {
            let Some(name) = key.text() else {
                let fault = Fault::new("a key is a plain word", "write `key: value`");
                reader.report("a key of {key} is a list or a mapping".to_owned(), fault, key.span);
                whole = false;
                continue;
            };
            if !keys.iter().any(|spec| spec.key == name) {
                unknown(name, key.span, spec, keys, reader);
                whole = false;
            } else if entries[..at].iter().any(|(before, _)| before.text() == Some(name)) {
                repeated(key, reader);
                whole = false;
            }
        }
        Some(Self { node, whole })
    }

    /// The value of one key; its problems are in `reader`.
    pub(crate) fn take<T: Field>(&mut self, spec: &Spec, reader: &mut Reader) -> Option<T> {
        let value = reader.within(spec.key, |reader| match self.node.get(spec.key) {
            Some(node) => T::read(node, spec, reader),
            None => T::absent(spec, self.node, reader),
        });
        self.whole &= value.is_some();
        value
    }

    /// False when a key was refused, though each field may have its value.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }
}

fn unknown(name: &str, span: Span, spec: &Spec, keys: &[&Spec], reader: &mut Reader) {
    let known: Vec<&str> = keys.iter().map(|spec| spec.key).collect();
    let place = if spec.key.is_empty() { String::new() } else { format!(" in `{}`", reader.path) };
    let rule = match nearest(name, &known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "no such key".to_owned(),
    };
    let remedy = match nearest(name, &known) {
        Some(near) => format!("write `{near}`, or remove the line"),
        None if name == "<<" => "merge keys are not read: write the keys out".to_owned(),
        None => format!("known here: {}", known.join(", ")),
    };
    let title = format!("unknown key {}{place}", quoted(name));
    reader.report_below(name, title, Fault::new(rule, remedy), span);
}

/// Declares a section: a struct, and everything that is known about its keys.
///
/// `..` adds another section's keys to this one's; `check` names a function for rules that concern several keys.
macro_rules! settings {
    ($(
        $(#[doc = $section_doc:literal])*
        pub struct $name:ident {
            $(
                $(#[doc = $doc:literal])*
                $field:ident : $ty:ty { $($what:ident : $value:expr),* $(,)? },
            )*
            $(.. $(#[doc = $flat_doc:literal])* $flat:ident : $flat_ty:ty,)?
        }
        $(check $check:path;)?
    )*) => {$(
        $(#[doc = $section_doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $( $(#[doc = $doc])* pub $field: $ty, )*
            $( $(#[doc = $flat_doc])* pub $flat: $flat_ty, )?
        }

        impl $name {
            $(
                #[allow(non_upper_case_globals)]
                const $field: $crate::field::Spec = $crate::field::Spec {
                    key: stringify!($field),
                    doc: &[$($doc),*],
                    $($what: $value,)*
                    ..$crate::field::Spec::EMPTY
                };
            )*

            pub(crate) fn keys() -> Vec<($crate::field::Spec, $crate::field::Shape)> {
                #[allow(unused_mut)]
                let mut keys = vec![$( (Self::$field, <$ty as $crate::field::Field>::shape()), )*];
                $( keys.extend(<$flat_ty>::keys()); )?
                keys
            }

            /// The keys alone: reading thousands of items must not build their shapes each time.
            pub(crate) fn specs() -> Vec<&'static $crate::field::Spec> {
                #[allow(unused_mut)]
                let mut specs = vec![$( &Self::$field ),*];
                $( specs.extend(<$flat_ty>::specs()); )?
                specs
            }

            pub(crate) fn fill(
                section: &mut $crate::field::Section<'_>,
                reader: &mut $crate::field::Reader,
            ) -> Option<Self> {
                $( let $field = section.take::<$ty>(&Self::$field, reader); )*
                $( let $flat = <$flat_ty>::fill(section, reader); )?
                Some(Self { $($field: $field?,)* $($flat: $flat?,)? })
            }
        }

        impl $crate::field::Field for $name {
            fn read(
                node: &$crate::node::Node,
                spec: &$crate::field::Spec,
                reader: &mut $crate::field::Reader,
            ) -> Option<Self> {
                let mut section = $crate::field::Section::open(node, spec, &Self::specs(), reader)?;
                let value = Self::fill(&mut section, reader)?;
                $( $check(&value, node, reader); )?
                section.is_whole().then_some(value)
            }

            fn absent(
                spec: &$crate::field::Spec,
                around: &$crate::node::Node,
                reader: &mut $crate::field::Reader,
            ) -> Option<Self> {
                Self::read(&$crate::node::Node::empty_map(around.span), spec, reader)
            }

            fn shape() -> $crate::field::Shape {
                $crate::field::Shape::Section(Self::keys())
            }

            fn changed(
                &self,
                other: &Self,
                _: &$crate::field::Spec,
                path: &str,
                out: &mut Vec<String>,
            ) {
                let dot = if path.is_empty() { "" } else { "." };
                $( $crate::field::Field::changed(
                    &self.$field,
                    &other.$field,
                    &Self::$field,
                    &format!("{path}{dot}{}", stringify!($field)),
                    out,
                ); )*
                $( $crate::field::Field::changed(
                    &self.$flat,
                    &other.$flat,
                    &$crate::field::Spec::EMPTY,
                    path,
                    out,
                ); )?
            }
        }
    )*};
}
pub(crate) use settings;

/// The schema of a text that must match a pattern.
pub(crate) fn pattern(pattern: &str) -> Json {
    json!({"type": "string", "pattern": pattern})
}
