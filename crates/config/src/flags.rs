//! The flags of `ridge serve`, made from the definition: one for every key.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::diagnostics::{Fault, Problem, Source};
use crate::field::{Shape, Spec};
use crate::keys::{Key, top_level};
use crate::node::{Kind, Node, Span};
use crate::yaml;

/// The flags of `ridge serve` that stand for keys of the file, and `--config`. Flatten it into a command with
/// `#[command(flatten)]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServeFlags {
    /// The configuration file.
    pub config: Option<PathBuf>,
    /// Key and texts, in the order of the definition.
    given: Vec<(String, Vec<String>)>,
}

impl ServeFlags {
    /// Sets the flag of a key, as if it stood on the command line. `key` is dotted: `limits.body`.
    ///
    /// Returns false when no key has that name.
    pub fn set(&mut self, key: &str, values: &[&str]) -> bool {
        let known = top_level().iter().any(|known| known.path == key);
        if known {
            self.given.retain(|(given, _)| given != key);
            let values = values.iter().map(|&value| value.to_owned()).collect();
            self.given.push((key.to_owned(), values));
        }
        known
    }

    /// Whether no key is set by a flag.
    pub fn is_empty(&self) -> bool {
        self.given.is_empty()
    }

    pub(crate) fn given(&self) -> impl Iterator<Item = Given<'_>> {
        self.given.iter().filter_map(|(path, values)| {
            let key = top_level().iter().find(|key| key.path == *path)?;
            Some(Given { key, values })
        })
    }
}

impl clap::Args for ServeFlags {
    fn augment_args(cmd: Command) -> Command {
        let mut cmd = cmd.arg(
            Arg::new("config")
                .short('c')
                .long("config")
                .value_name("FILE")
                .value_parser(clap::value_parser!(PathBuf))
                .help("Configuration file (YAML). Flags win over it"),
        );
        for key in top_level() {
            cmd = cmd.arg(arg(key));
        }
        cmd
    }

    fn augment_args_for_update(cmd: Command) -> Command {
        Self::augment_args(cmd)
    }
}

fn arg(key: &'static Key) -> Arg {
    let list = matches!(key.shape, Shape::List(_));
    let help = match (key.spec.default, key.spec.unset) {
        ("", "") => key.spec.text(),
        ("", unset) => format!("{} [not set: {unset}]", key.spec.text()),
        (default, _) => format!("{} [default: {default}]", key.spec.text()),
    };
    Arg::new(key.path.as_str())
        .long(key.flag.as_str())
        .value_name(key.value_name())
        .action(if list { ArgAction::Append } else { ArgAction::Set })
        .allow_hyphen_values(true)
        .help(help)
}

impl clap::FromArgMatches for ServeFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self { config: matches.get_one::<PathBuf>("config").cloned(), given: Vec::new() };
        for key in top_level() {
            if let Some(values) = matches.get_many::<String>(&key.path) {
                flags.given.push((key.path.clone(), values.cloned().collect()));
            }
        }
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// One flag with its texts.
pub(crate) struct Given<'f> {
    key: &'static Key,
    values: &'f [String],
}

impl Given<'_> {
    /// The node that the file would have at this key.
    pub(crate) fn node(
        &self,
        sources: &mut Vec<Source>,
        problems: &mut Vec<Problem>,
    ) -> (Vec<&'static str>, Node) {
        let path = self.key.path.split('.').collect();
        let mut nodes =
            self.values.iter().filter_map(|value| self.one(value, sources, problems)).collect::<Vec<_>>();
        let node = match self.key.shape {
            Shape::List(_) => Node {
                span: nodes.first().map_or(Span::default(), |node| node.span),
                kind: Kind::List(nodes),
            },
            _ => match nodes.pop() {
                Some(node) => node,
                None => Node::empty_map(Span::default()),
            },
        };
        (path, node)
    }

    /// `None` after a problem that leaves nothing to read.
    fn one(&self, value: &str, sources: &mut Vec<Source>, problems: &mut Vec<Problem>) -> Option<Node> {
        let prefix = format!("--{} ", self.key.flag);
        let source = sources.len();
        let start = prefix.len();
        let text = format!("{prefix}{value}");
        let name = "command line".to_owned();
        sources.push(Source { name, text });
        let place = |range: std::ops::Range<usize>| Span {
            source,
            start: start + range.start,
            end: start + range.end,
        };
        let whole = place(0..value.len());
        let fields = match &self.key.shape {
            Shape::List(item) => match item.as_ref() {
                Shape::Section(fields) => Some(fields),
                _ => None,
            },
            _ => None,
        };
        let Some(fields) = fields else {
            return Some(Node::scalar(value, whole));
        };
        if !value.trim_start().starts_with('{') {
            return Some(compound(value, fields, place, problems));
        }
        match yaml::parse(source, value) {
            Ok(node) => {
                let mut node = node.unwrap_or_else(|| Node::empty_map(whole));
                shift(&mut node, start);
                Some(node)
            }
            Err(problem) => {
                problems.push(problem.shifted(start));
                None
            }
        }
    }
}

fn shift(node: &mut Node, by: usize) {
    node.span.start += by;
    node.span.end += by;
    match &mut node.kind {
        Kind::Scalar { .. } => {}
        Kind::List(items) => items.iter_mut().for_each(|item| shift(item, by)),
        Kind::Map(entries) => entries.iter_mut().for_each(|(key, value)| {
            shift(key, by);
            shift(value, by);
        }),
    }
}

/// `URL,name=a,label.zone=x,model=m,model=n`: the first part may go without its key, a list's or a map's singular
/// name adds to it. Anything that has a comma in it needs the YAML form.
fn compound(
    value: &str,
    fields: &[(Spec, Shape)],
    place: impl Fn(std::ops::Range<usize>) -> Span,
    problems: &mut Vec<Problem>,
) -> Node {
    let mut node = Node::empty_map(place(0..value.len()));
    let mut at = 0;
    for (nth, part) in value.split(',').enumerate() {
        let start = at;
        at += part.len() + 1;
        let first_key = fields.first().map_or("", |(spec, _)| spec.key);
        let bare = nth == 0
            && !fields.iter().any(|(spec, _)| part.split_once('=').is_some_and(|(key, _)| key == spec.key));
        let (key, text, text_start) = match part.split_once('=') {
            _ if bare => (first_key, part, start),
            Some((key, text)) => (key, text, start + key.len() + 1),
            None => {
                let fault = Fault::new(
                    "after the first part come attributes as `key=value`",
                    "write for example name=a; a value with a comma needs the form {url: …, name: …}",
                );
                let title = format!("`{part}` is no attribute");
                let span = place(start..start + part.len());
                problems.push(Problem::at_key("", title, fault, span));
                continue;
            }
        };
        let key_span = place(start..start + key.len());
        let scalar = Node::scalar(text, place(text_start..text_start + text.len()));
        let (head, rest) = match key.split_once('.') {
            Some((head, rest)) => (head, Some(rest)),
            None => (key, None),
        };
        let field =
            fields.iter().find(|(spec, _)| spec.key == head || (!spec.flag.is_empty() && spec.flag == head));
        let Kind::Map(entries) = &mut node.kind else {
            continue;
        };
        match (field, rest) {
            // A list's items come one by one, a map's entries and a section's keys too.
            (Some((spec, Shape::List(_))), None) => {
                let list = entry(entries, spec.key, key_span, Kind::List(Vec::new()));
                if let Kind::List(items) = &mut list.kind {
                    items.push(scalar);
                }
            }
            (Some((spec, Shape::Map(_) | Shape::Section(_))), Some(rest)) => {
                let map = entry(entries, spec.key, key_span, Kind::Map(Vec::new()));
                if let Kind::Map(inner) = &mut map.kind {
                    let dot = head.len() + 1;
                    let rest_span = place(start + dot..start + key.len());
                    inner.push((Node::scalar(rest, rest_span), scalar));
                }
            }
            (Some((spec, _)), None) => {
                entries.push((Node::scalar(spec.key, key_span), scalar));
            }
            // Unknown, or dotted where nothing is below: the reader refuses it by name.
            _ => entries.push((Node::scalar(key, key_span), scalar)),
        }
    }
    node
}

fn entry<'e>(entries: &'e mut Vec<(Node, Node)>, key: &str, span: Span, kind: Kind) -> &'e mut Node {
    let place = entries.iter().position(|(known, _)| known.text() == Some(key)).unwrap_or_else(|| {
        entries.push((Node::scalar(key, span), Node { span, kind }));
        entries.len() - 1
    });
    &mut entries[place].1
}
