//! From texts to a [`Config`]: the file, the flags over it, one reader for both.

use crate::diagnostics::{Diagnostics, Fault, Problem, Source};
use crate::field::{Field, Reader, Spec};
use crate::flags::ServeFlags;
use crate::node::{Kind, Node, Span};
use crate::settings::{Config, Upstream, UpstreamList};
use crate::value::UpstreamUrl;
use crate::yaml;

impl Config {
    /// Reads a configuration file's text. `name` is what messages call it.
    ///
    /// ```
    /// let config = config::Config::from_yaml("ridge.yaml", b"attempts: 2").unwrap();
    /// assert_eq!(config.attempts, 2);
    ///
    /// let wrong = config::Config::from_yaml("ridge.yaml", b"atempts: 2").unwrap_err();
    /// assert!(wrong.to_string().contains("did you mean `attempts`?"));
    /// ```
    pub fn from_yaml(name: &str, text: &[u8]) -> Result<Self, Diagnostics> {
        Self::load(Some((name, text)), &ServeFlags::default())
    }

    /// Reads a file's name and text, if there is one, and puts flags over it: a flag wins over the file, and a list
    /// that is given by flags replaces the file's whole list. What the file says must be right all the same.
    pub fn load(file: Option<(&str, &[u8])>, flags: &ServeFlags) -> Result<Self, Diagnostics> {
        let mut reading = Reading::default();
        let written = match file {
            Some((name, text)) => reading.parse(name, text)?,
            None => Node::empty_map(Span::default()),
        };
        let mut merged = written.clone();
        for flag in flags.given() {
            let (path, value) = flag.node(&mut reading.sources, &mut reading.problems);
            merged.put(&path, value);
        }
        let config = reading.read::<Self>(&merged);
        if !flags.is_empty() && file.is_some() {
            reading.read::<Self>(&written);
        }
        reading.finish(config, &[&written, &merged])
    }
}

impl Default for Config {
    /// What an empty file means.
    fn default() -> Self {
        match Self::load(None, &ServeFlags::default()) {
            Ok(config) => config,
            // A test reads every default.
            Err(wrong) => unreachable!("a default breaks its own rule: {wrong}"),
        }
    }
}

impl UpstreamList {
    /// Reads the text of a file named in `upstream_files`.
    pub fn from_yaml(name: &str, text: &[u8]) -> Result<Self, Diagnostics> {
        let mut reading = Reading::default();
        let node = reading.parse(name, text)?;
        let list = reading.read(&node);
        reading.finish(list, &[&node])
    }
}

impl Upstream {
    /// An upstream of which nothing but the URL is known.
    pub fn at(url: UpstreamUrl) -> Self {
        let mut node = Node::empty_map(Span::default());
        node.put(&["url"], Node::scalar(url.to_string(), Span::default()));
        match Self::read(&node, &Spec::EMPTY, &mut Reader::default()) {
            Some(upstream) => upstream,
            None => unreachable!("{url} was read before"),
        }
    }
}

#[derive(Default)]
struct Reading {
    sources: Vec<Source>,
    problems: Vec<Problem>,
    secrets: Vec<Span>,
}

impl Reading {
    fn parse(&mut self, name: &str, text: &[u8]) -> Result<Node, Diagnostics> {
        let source = self.sources.len();
        let shown = String::from_utf8_lossy(text).into_owned();
        self.sources.push(Source { name: name.to_owned(), text: shown });
        let start = Span { source, start: 0, end: 0 };
        let parsed = match std::str::from_utf8(text) {
            Ok(text) => yaml::parse(source, text),
            Err(error) => {
                let at = error.valid_up_to();
                let span = Span { source, start: at, end: at };
                let rule = format!("byte {:#04x} is not UTF-8", text.get(at).unwrap_or(&0));
                let remedy = "save the file as UTF-8";
                Err(Box::new(Problem::syntax(Fault::new(rule, remedy), span)))
            }
        };
        match parsed {
            Ok(node) => Ok(node.unwrap_or_else(|| Node::empty_map(start))),
            Err(problem) => Err(Diagnostics::new(vec![*problem], std::mem::take(&mut self.sources), &[])),
        }
    }

    fn read<T: Field>(&mut self, node: &Node) -> Option<T> {
        let mut reader = Reader::default();
        let value = T::read(node, &Spec::EMPTY, &mut reader);
        self.problems.append(&mut reader.problems);
        self.secrets.append(&mut reader.secrets);
        value
    }

    fn finish<T>(mut self, value: Option<T>, nodes: &[&Node]) -> Result<T, Diagnostics> {
        match value {
            Some(value) if self.problems.is_empty() => Ok(value),
            _ => {
                for node in nodes {
                    find_secrets(node, &mut self.secrets);
                }
                Err(Diagnostics::new(self.problems, self.sources, &self.secrets))
            }
        }
    }
}

/// Places that look like a key or a password written out, wherever they stand: a message about their neighbour shows
/// their line too.
fn find_secrets(node: &Node, out: &mut Vec<Span>) {
    match &node.kind {
        Kind::Scalar { text, .. } => {
            let password = text.split_once("://").is_some_and(|(_, rest)| rest.contains('@'));
            if password {
                out.push(node.span);
            }
        }
        Kind::List(items) => items.iter().for_each(|item| find_secrets(item, out)),
        Kind::Map(entries) => {
            for (key, value) in entries {
                if !key.text().is_some_and(means_a_secret) {
                    find_secrets(value, out);
                    continue;
                }
                let Kind::Map(places) = &value.kind else {
                    out.push(value.span);
                    continue;
                };
                for (place, value) in places {
                    if !matches!(place.text(), Some("env" | "file")) {
                        out.push(value.span);
                    }
                }
            }
        }
    }
}

/// Misspelt names count: the value below them is as secret.
fn means_a_secret(key: &str) -> bool {
    let plain: String =
        key.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    ["apikey", "token", "secret", "password", "authorization"].iter().any(|word| plain.contains(word))
}
