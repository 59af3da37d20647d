//! What a scope lists: exact names, or beginnings.

/// An exact text, or with `*` at its end all that begin like it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: Box<str>,
    is_beginning: bool,
}

impl Pattern {
    /// Reads one; `None`: a `*` stands elsewhere than at the end.
    pub fn parse(text: &str) -> Option<Self> {
        let beginning = text.strip_suffix('*');
        let plain = beginning.unwrap_or(text);
        (!plain.contains('*')).then(|| Self { text: plain.into(), is_beginning: beginning.is_some() })
    }

    /// Whether this name is meant.
    pub fn covers(&self, name: &str) -> bool {
        if self.is_beginning { name.starts_with(&*self.text) } else { name == &*self.text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_names_and_beginnings() {
        let exact = Pattern::parse("llama-8b").expect("no star");
        assert!(exact.covers("llama-8b") && !exact.covers("llama-8b-instruct") && !exact.covers("llama"));
        let beginning = Pattern::parse("llama*").expect("a star at the end");
        assert!(beginning.covers("llama-8b") && beginning.covers("llama") && !beginning.covers("my-llama"));
        assert!(Pattern::parse("*").expect("all").covers(""));
        assert_eq!(Pattern::parse("*-8b"), None);
        assert_eq!(Pattern::parse("a**"), None);
    }
}
