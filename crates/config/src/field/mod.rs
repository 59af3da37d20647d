//! How a setting is declared, and how a node becomes its value.
//!
//! [`settings!`] takes one declaration and makes of it the struct, the reader, the flags, the JSON Schema and the
//! text of `explain`: none of them can know a key that another does not.

mod collection;
mod declare;
mod reader;
mod section;
mod spec;
mod value;

pub(crate) use declare::settings;
pub(crate) use reader::Reader;
pub(crate) use section::Section;
pub(crate) use spec::{Shape, Spec};
pub(crate) use value::{Value, pattern};

use crate::diagnostics::Fault;
use crate::node::Node;

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
