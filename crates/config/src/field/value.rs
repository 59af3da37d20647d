//! Values that are written as one scalar.

use serde_json::{Value as Json, json};

use super::{Field, Reader, Shape, Spec};
use crate::diagnostics::Fault;
use crate::node::{Kind, Node};

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

/// The schema of a text that must match a pattern.
pub(crate) fn pattern(pattern: &str) -> Json {
    json!({"type": "string", "pattern": pattern})
}
