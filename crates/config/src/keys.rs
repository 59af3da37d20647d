//! All keys of the definition, as a list.

use std::sync::OnceLock;

use crate::field::{Shape, Spec};
use crate::settings::Config;

/// A key, with what is known about it.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    /// Dotted; `upstreams[].url` is a key of a list's items.
    pub path: String,
    /// The flag's name without its dashes.
    pub flag: String,
    pub spec: Spec,
    pub shape: Shape,
    /// Whether the key itself, or a key above it, needs a restart.
    pub restart: bool,
}

impl Key {
    /// The placeholder of the flag's value.
    pub(crate) fn value_name(&self) -> String {
        let word = match &self.shape {
            Shape::List(item) => match item.as_ref() {
                Shape::Section(fields) => fields[0].0.key.to_owned(),
                other => other.kind(),
            },
            other => other.kind(),
        };
        match word.as_str() {
            "duration" | "size" | "path" | "url" => word.to_uppercase(),
            word if word.contains("address") => "IP:PORT".to_owned(),
            word if word.contains("number") => "N".to_owned(),
            "boolean" => "true|false".to_owned(),
            "host" => "NAME".to_owned(),
            _ => "VALUE".to_owned(),
        }
    }
}

/// The keys that have a flag: scalars and lists, those of sections included, those of list items not.
pub(crate) fn top_level() -> &'static [Key] {
    static KEYS: OnceLock<Vec<Key>> = OnceLock::new();
    KEYS.get_or_init(|| {
        all()
            .iter()
            .filter(|key| !key.path.contains('[') && !matches!(key.shape, Shape::Section(_)))
            .cloned()
            .collect()
    })
}

/// Every key, sections and the keys of list items included.
pub(crate) fn all() -> &'static [Key] {
    static KEYS: OnceLock<Vec<Key>> = OnceLock::new();
    KEYS.get_or_init(|| {
        let mut keys = Vec::new();
        walk(&Config::described_keys(), "", false, &mut keys);
        keys
    })
}

fn walk(fields: &[(Spec, Shape)], above: &str, restart: bool, out: &mut Vec<Key>) {
    for (spec, shape) in fields {
        let path = if above.is_empty() { spec.key.to_owned() } else { format!("{above}.{}", spec.key) };
        let restart = restart || spec.restart;
        let flag = if above.is_empty() && !spec.flag.is_empty() {
            spec.flag.to_owned()
        } else {
            path.replace(['.', '_'], "-")
        };
        out.push(Key { path: path.clone(), flag, spec: *spec, shape: shape.clone(), restart });
        match shape {
            Shape::Section(fields) => walk(fields, &path, restart, out),
            Shape::List(item) => {
                if let Shape::Section(fields) = item.as_ref() {
                    walk(fields, &format!("{path}[]"), restart, out);
                }
            }
            Shape::Scalar { .. } | Shape::Map(_) => {}
        }
    }
}
