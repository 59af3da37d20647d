//! What reading gathers: where it is, and what is wrong there.

use crate::diagnostics::{Fault, Problem, quoted};
use crate::node::{Kind, Node, Span};

/// What reading gathers besides the values.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    pub problems: Vec<Problem>,
    /// Places whose text is not to be shown.
    pub secrets: Vec<Span>,
    pub(super) path: String,
}

impl Reader {
    /// Runs `inner` one key further down.
    pub(super) fn within<T>(&mut self, step: &str, inner: impl FnOnce(&mut Self) -> T) -> T {
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

    pub(super) fn wrong_type(&mut self, node: &Node, wanted: &str, remedy: String) {
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
