//! A document as a tree in which every node knows where it was written.
//!
//! A file and a command line both become this tree, so that one reader serves both.

/// Bytes `start..end` of source number `source`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Span {
    pub source: usize,
    pub start: usize,
    pub end: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub span: Span,
    pub kind: Kind,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// `plain` is false for quoted and block text, which is never a number, a boolean or nothing.
    Scalar {
        text: String,
        plain: bool,
    },
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
}

impl Node {
    pub(crate) fn scalar(text: impl Into<String>, span: Span) -> Self {
        let kind = Kind::Scalar { text: text.into(), plain: true };
        Self { span, kind }
    }

    pub(crate) fn empty_map(span: Span) -> Self {
        Self { span, kind: Kind::Map(Vec::new()) }
    }

    /// The text of a scalar.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Nothing written, or one of YAML's spellings of nothing.
    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.kind, Kind::Scalar { text, plain: true }
            if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        match &self.kind {
            Kind::Map(entries) => entries.iter().find(|(k, _)| k.text() == Some(key)).map(|(_, v)| v),
            _ => None,
        }
    }

    /// Puts `value` at `path`, replacing what was there; maps on the way are made as needed.
    pub(crate) fn put(&mut self, path: &[&str], value: Node) {
        let Some((first, rest)) = path.split_first() else {
            *self = value;
            return;
        };
        if !matches!(self.kind, Kind::Map(_)) {
            self.kind = Kind::Map(Vec::new());
        }
        let Kind::Map(entries) = &mut self.kind else {
            return;
        };
        let place = entries.iter().position(|(k, _)| k.text() == Some(first)).unwrap_or_else(|| {
            entries.push((Node::scalar(*first, value.span), Node::empty_map(value.span)));
            entries.len() - 1
        });
        entries[place].1.put(rest, value);
    }
}
