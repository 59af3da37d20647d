//! Rules on the names in a certificate (subject alternative names).

/// Which kind of name. Kinds are kept apart: an authority that may issue one kind must not be able to pass for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NameKind {
    /// A host name.
    Dns,
    /// A URI, such as a SPIFFE id.
    Uri,
    /// A mail address.
    Email,
}

impl NameKind {
    /// How names of this kind begin where they are written.
    pub fn as_str(self) -> &'static str {
        match self {
            NameKind::Dns => "dns",
            NameKind::Uri => "uri",
            NameKind::Email => "email",
        }
    }
}

/// A name that is accepted: an exact one, or for host names all below a suffix.
///
/// ```
/// use tls::{NameKind, NameRule};
///
/// let rule = NameRule::new(NameKind::Dns, "*.batch.example");
/// assert!(rule.accepts("dns:a.batch.example") && rule.accepts("dns:A.B.Batch.Example"));
/// assert!(!rule.accepts("dns:batch.example") && !rule.accepts("uri:a.batch.example"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NameRule {
    kind: NameKind,
    text: String,
}

impl NameRule {
    /// The rule for this text: the whole name, or `*.` and a suffix for all host names below it.
    pub fn new(kind: NameKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// Whether a name of an [`Identity`](crate::Identity), `dns:…`, `uri:…` or `email:…`, is accepted. Host names
    /// know no case; the others are compared byte by byte.
    pub fn accepts(&self, name: &str) -> bool {
        let of_kind = name.strip_prefix(self.kind.as_str()).and_then(|rest| rest.strip_prefix(':'));
        let Some(name) = of_kind else { return false };
        if self.kind != NameKind::Dns {
            return name == self.text;
        }
        match self.text.strip_prefix('*') {
            // A name that is itself a wildcard speaks for nobody in particular.
            Some(suffix) => {
                let start = name.len().checked_sub(suffix.len()).filter(|&start| start > 0);
                let end = start.and_then(|start| name.get(start..));
                end.is_some_and(|end| end.eq_ignore_ascii_case(suffix)) && !name.contains('*')
            }
            None => name.eq_ignore_ascii_case(&self.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suffix_begins_at_a_dot_and_kinds_are_kept_apart() {
        let rule = |text: &str| NameRule::new(NameKind::Dns, text);
        assert!(rule("a.example").accepts("dns:A.example"));
        for name in ["dns:evil-a.example", "dns:b.a.example", "uri:a.example", "a.example", "dns:"] {
            assert!(!rule("a.example").accepts(name), "{name}");
        }
        for name in ["dns:.example", "dns:example", "dns:notexample", "dns:*.example", "dns:", "dns:ä"] {
            assert!(!rule("*.example").accepts(name), "{name}");
        }
        let uri = NameRule::new(NameKind::Uri, "spiffe://prod/batch");
        assert!(uri.accepts("uri:spiffe://prod/batch"));
        assert!(!uri.accepts("uri:spiffe://prod/batch/x") && !uri.accepts("uri:spiffe://PROD/batch"));
    }
}
