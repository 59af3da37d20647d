//! YAML text to nodes, within bounds: size, depth, and nodes after aliases are followed.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError};

use crate::diagnostics::{Fault, Problem};
use crate::node::{Kind, Node, Span};

/// Larger than any real list of upstreams, small enough to read at once.
const MAX_BYTES: usize = 8 << 20;
/// The definition is six levels deep; the rest is room for a message that names the key.
const MAX_DEPTH: usize = 24;
/// Counted after aliases are followed: a few lines of nested aliases otherwise make billions.
const MAX_NODES: usize = 500_000;

/// Reads one document. `None` stands for a file with nothing in it.
pub(crate) fn parse(source: usize, text: &str) -> Result<Option<Node>, Box<Problem>> {
    if text.len() > MAX_BYTES {
        let fault = Fault::new(
            format!("the file has {} bytes, the most is {MAX_BYTES}", text.len()),
            "move upstreams into files of their own, named in `upstream_files`",
        );
        return Err(Box::new(Problem::general(fault, Span { source, start: 0, end: 0 })));
    }
    // A byte order mark is no part of the document, but it counts in offsets.
    let (skip, body) = match text.strip_prefix('\u{feff}') {
        Some(body) => ('\u{feff}'.len_utf8(), body),
        None => (0, text),
    };
    let mut loader = Loader {
        source,
        text: body,
        skip,
        at_char: 0,
        at_byte: 0,
        last_span: Span { source, start: skip, end: skip },
        anchors: HashMap::new(),
        nodes: 0,
    };
    loader.document(&mut Parser::new_from_str(body))
}

struct Loader<'t> {
    source: usize,
    text: &'t str,
    skip: usize,
    /// The parser counts characters, carets need bytes; events come in order, so one cursor converts.
    at_char: usize,
    at_byte: usize,
    last_span: Span,
    anchors: HashMap<usize, (Node, usize)>,
    nodes: usize,
}

/// A node that is still being filled.
struct Open {
    node: Node,
    anchor: usize,
    /// The key that waits for its value, in a map.
    key: Option<Node>,
    nodes_before: usize,
}

impl Loader<'_> {
    fn byte(&mut self, char_index: usize) -> usize {
        if char_index >= self.at_char {
            let rest = &self.text[self.at_byte..];
            let ahead = rest.char_indices().nth(char_index - self.at_char);
            self.at_byte += ahead.map_or(rest.len(), |(byte, _)| byte);
        } else {
            // A mapping is only known for one at its first colon, and begins before that.
            let back = self.at_char - char_index;
            let before = &self.text[..self.at_byte];
            let place = before.char_indices().rev().nth(back - 1);
            self.at_byte = place.map_or(0, |(byte, _)| byte);
        }
        self.at_char = char_index;
        self.skip + self.at_byte
    }

    fn span(&mut self, span: saphyr_parser::Span) -> Span {
        let start = self.byte(span.start.index());
        let end = self.byte(span.end.index()).max(start);
        // Block collections end where the next thing starts: cut the white space and comments off.
        Span { source: self.source, start, end }
    }

    fn refuse<T>(&self, span: Span, rule: impl Into<String>, remedy: &str) -> Result<T, Box<Problem>> {
        Err(Box::new(Problem::general(Fault::new(rule.into(), remedy), span)))
    }

    fn syntax(&mut self, error: &ScanError) -> Box<Problem> {
        let start = self.byte(error.marker().index());
        if error.info().contains("recursion limit") {
            // The scanner reads brackets ahead and gives up by itself.
            let span = Span { source: self.source, start, end: start };
            return Box::new(Problem::general(too_deep(), span));
        }
        let line_start = self.text[..start - self.skip].rfind('\n').map_or(0, |at| at + 1);
        let line = self.text[line_start..].lines().next().unwrap_or("");
        let remedy = if line.trim_start_matches(' ').starts_with('\t') || line.contains('\t') {
            "indent with spaces: YAML allows no tabs there"
        } else if line.contains("[::") || line.contains("[f") || line.contains("[2") {
            "write an IPv6 address in quotes, as in \"[::1]:8080\""
        } else {
            "check quotes, brackets and indentation here and on the line above"
        };
        let span = Span { source: self.source, start, end: start };
        let rule = format!("not valid YAML: {}", error.info());
        Box::new(Problem::syntax(Fault::new(rule, remedy), span))
    }

    fn document(
        &mut self,
        parser: &mut Parser<'_, impl saphyr_parser::Input>,
    ) -> Result<Option<Node>, Box<Problem>> {
        let mut open: Vec<Open> = Vec::new();
        let mut root: Option<Node> = None;
        let mut documents = 0;
        while let Some(event) = parser.next_event() {
            let (event, span) = event.map_err(|error| self.syntax(&error))?;
            let span = self.span(span);
            self.last_span = span;
            let (node, anchor, tagged) = match event {
                Event::DocumentStart(_) => {
                    documents += 1;
                    if documents > 1 {
                        return self.refuse(
                            span,
                            "a second document starts here, a file holds one",
                            "remove the `---` or split the file",
                        );
                    }
                    continue;
                }
                Event::Scalar(text, style, anchor, tag) => {
                    let kind = Kind::Scalar { text: text.into_owned(), plain: style == ScalarStyle::Plain };
                    (Node { span, kind }, anchor, tag.is_some())
                }
                Event::SequenceStart(anchor, tag) => {
                    let node = Node { span, kind: Kind::List(Vec::new()) };
                    (node, anchor, tag.is_some())
                }
                Event::MappingStart(anchor, tag) => (Node::empty_map(span), anchor, tag.is_some()),
                Event::Alias(anchor) => {
                    let Some((node, count)) = self.anchors.get(&anchor) else {
                        return self.refuse(
                            span,
                            "the alias refers to a value that contains it",
                            "write the value out",
                        );
                    };
                    // Counted before it is copied.
                    let total = self.nodes + count;
                    check_count(total, span)?;
                    let node = node.clone();
                    self.nodes = total;
                    if depth(&node) + open.len() > MAX_DEPTH {
                        return Err(Box::new(Problem::general(too_deep(), span)));
                    }
                    if let Some(done) = attach(&mut open, node) {
                        root = Some(done);
                    }
                    continue;
                }
                Event::SequenceEnd | Event::MappingEnd => {
                    if let Some(mut done) = open.pop() {
                        done.node.span.end = span.end.max(done.node.span.start);
                        self.trim(&mut done.node.span);
                        self.keep(done.anchor, &done.node, done.nodes_before);
                        if let Some(node) = attach(&mut open, done.node) {
                            root = Some(node);
                        }
                    }
                    continue;
                }
                Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {
                    continue;
                }
            };
            if tagged {
                return self.refuse(
                    span,
                    "a YAML tag (`!…`) has no meaning here",
                    "remove the tag; the key says which type its value has",
                );
            }
            self.nodes += 1;
            check_count(self.nodes, span)?;
            if matches!(node.kind, Kind::Scalar { .. }) {
                self.keep(anchor, &node, self.nodes - 1);
                if let Some(done) = attach(&mut open, node) {
                    root = Some(done);
                }
            } else {
                if open.len() >= MAX_DEPTH {
                    return Err(Box::new(Problem::general(too_deep(), span)));
                }
                open.push(Open { node, anchor, key: None, nodes_before: self.nodes - 1 });
            }
        }
        Ok(root.filter(|node| !node.is_null()))
    }

    fn keep(&mut self, anchor: usize, node: &Node, nodes_before: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), self.nodes - nodes_before));
        }
    }

    /// Takes white space and comments off the end of a block collection.
    fn trim(&self, span: &mut Span) {
        let text = &self.text[span.start - self.skip..span.end - self.skip];
        span.end = span.start + text.trim_end().len();
    }
}

fn check_count(nodes: usize, span: Span) -> Result<(), Box<Problem>> {
    if nodes <= MAX_NODES {
        return Ok(());
    }
    let fault = Fault::new(
        format!("more than {MAX_NODES} values, aliases followed"),
        "write fewer aliases, or move upstreams into files of their own",
    );
    Err(Box::new(Problem::general(fault, span)))
}

fn too_deep() -> Fault {
    Fault::new(
        format!("nested deeper than {MAX_DEPTH} levels"),
        "no key needs that: check the indentation and the brackets",
    )
}

fn depth(node: &Node) -> usize {
    match &node.kind {
        Kind::Scalar { .. } => 0,
        Kind::List(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Kind::Map(entries) => {
            1 + entries.iter().map(|(key, value)| depth(key).max(depth(value))).max().unwrap_or(0)
        }
    }
}

/// Gives a finished node to the collection it belongs to, or back when it is the document itself.
fn attach(open: &mut [Open], node: Node) -> Option<Node> {
    let Some(parent) = open.last_mut() else {
        return Some(node);
    };
    match &mut parent.node.kind {
        Kind::List(items) => items.push(node),
        Kind::Map(entries) => match parent.key.take() {
            None => parent.key = Some(node),
            Some(key) => entries.push((key, node)),
        },
        Kind::Scalar { .. } => {}
    }
    None
}
