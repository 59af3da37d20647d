//! Values that may be left out, lists, and mappings of names to values.

use std::collections::BTreeMap;

use super::section::repeated;
use super::{Field, Reader, Shape, Spec, Value, missing};
use crate::diagnostics::Fault;
use crate::node::{Kind, Node};

/// No list is longer: what comes from a file or a flag has a bound.
const MAX_LIST: usize = 20_000;
/// Labels of one upstream.
const MAX_MAP: usize = 64;

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
