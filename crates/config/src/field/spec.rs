//! What is declared about a key.

use serde_json::Value as Json;

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
