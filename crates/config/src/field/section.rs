//! Mappings with known keys.

use super::{Field, Reader, Spec};
use crate::diagnostics::{Fault, quoted};
use crate::nearest::nearest;
use crate::node::{Kind, Node, Span};

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

/// The same key a second time.
pub(super) fn repeated(key: &Node, reader: &mut Reader) {
    let name = key.text().unwrap_or("?").to_owned();
    let fault = Fault::new("this key was written before", "keep one of the two: neither wins over the other");
    reader.within(&name, |reader| {
        reader.report("{key} is written twice".to_owned(), fault, key.span);
    });
}
