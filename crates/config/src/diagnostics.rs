//! What is wrong with a configuration, and the text that shows it.

use std::fmt;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

use crate::node::Span;

/// More problems than a person will read; the count of the rest is said.
const MAX_SHOWN: usize = 50;
/// A value is quoted up to this many characters.
const MAX_QUOTED: usize = 60;

/// A rule that a value breaks, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub rule: String,
    pub remedy: String,
}

impl Fault {
    pub(crate) fn new(rule: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { rule: rule.into(), remedy: remedy.into() }
    }
}

/// One thing wrong, at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    title: String,
    rule: String,
    remedy: String,
    key: String,
    span: Span,
    syntax: bool,
}

impl Problem {
    pub(crate) fn at_key(key: &str, title: String, fault: Fault, span: Span) -> Self {
        Self { title, rule: fault.rule, remedy: fault.remedy, key: key.to_owned(), span, syntax: false }
    }

    pub(crate) fn general(fault: Fault, span: Span) -> Self {
        Self::at_key("", "the configuration cannot be read".to_owned(), fault, span)
    }

    pub(crate) fn syntax(fault: Fault, span: Span) -> Self {
        Self { syntax: true, ..Self::general(fault, span) }
    }

    /// What was found where, in one line.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The rule that it breaks.
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// What to write instead.
    pub fn remedy(&self) -> &str {
        &self.remedy
    }

    /// The dotted key, such as `upstreams[1].weight`; empty when the text is not valid YAML.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The same problem further on in its source.
    pub(crate) fn shifted(mut self, by: usize) -> Self {
        self.span.start += by;
        self.span.end += by;
        self
    }
}

/// A text that was read: a file, or one flag.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub name: String,
    pub text: String,
}

/// Everything that is wrong with a configuration, found in one go. `Display` shows each problem with file, line,
/// column, a caret, the rule and the remedy.
#[derive(Debug, Clone)]
pub struct Diagnostics {
    problems: Vec<Problem>,
    sources: Vec<Source>,
}

impl Diagnostics {
    /// `secrets` are the places whose text must not be shown.
    pub(crate) fn new(mut problems: Vec<Problem>, mut sources: Vec<Source>, secrets: &[Span]) -> Self {
        problems.sort_by_key(|problem| problem.span);
        problems.dedup();
        if problems.iter().any(|problem| problem.syntax) {
            // Without a tree nobody knows which text is a secret: go by the look of the line.
            for source in &mut sources {
                source.text = hide_keys_by_look(&source.text);
            }
        }
        for secret in secrets {
            if let Some(source) = sources.get_mut(secret.source) {
                hide(&mut source.text, secret.start..secret.end);
            }
        }
        Self { problems, sources }
    }

    /// One problem without a place, such as a file that cannot be opened.
    pub fn from_message(name: &str, rule: &str, remedy: &str) -> Self {
        let mut problem = Problem::general(Fault::new(rule, remedy), Span::default());
        problem.title = format!("{name} cannot be read");
        Self { problems: vec![problem], sources: Vec::new() }
    }

    /// The problems, in the order of their places.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// File (or flag), line and column of a problem, both counted from 1, the column in characters.
    pub fn place(&self, problem: &Problem) -> Option<(&str, usize, usize)> {
        let source = self.sources.get(problem.span.source)?;
        let before = source.text.get(..problem.span.start)?;
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = before.matches('\n').count() + 1;
        let column = before[line_start..].chars().count() + 1;
        Some((&source.name, line, column))
    }

    /// The text for a terminal; with `color`, in colours.
    pub fn render(&self, color: bool) -> String {
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        let mut out = String::new();
        for problem in self.problems.iter().take(MAX_SHOWN) {
            out.push_str(&self.render_one(problem, &renderer));
            out.push_str("\n\n");
        }
        let rest = self.problems.len().saturating_sub(MAX_SHOWN);
        if rest > 0 {
            out.push_str(&format!("… and {rest} more\n\n"));
        }
        out.truncate(out.trim_end().len());
        out
    }

    fn render_one(&self, problem: &Problem, renderer: &Renderer) -> String {
        let title = Level::ERROR.primary_title(problem.title.as_str());
        let help = Level::HELP.message(problem.remedy.as_str());
        let Some(source) = self.sources.get(problem.span.source) else {
            let note = Level::NOTE.message(problem.rule.as_str());
            return renderer.render(&[title.element(note).element(help)]);
        };
        let range = one_line(&source.text, problem.span);
        let snippet = Snippet::source(source.text.as_str())
            .path(source.name.as_str())
            .annotation(AnnotationKind::Primary.span(range).label(problem.rule.as_str()));
        renderer.render(&[title.element(snippet).element(help)])
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Diagnostics {}

/// The first line of a span: a caret below a whole block says nothing.
fn one_line(text: &str, span: Span) -> std::ops::Range<usize> {
    let start = span.start.min(text.len());
    let end = span.end.min(text.len()).max(start);
    let len = text[start..end].find('\n').unwrap_or(end - start);
    start..start + len
}

/// A value as it is quoted in a message: shortened, and without control characters.
pub(crate) fn quoted(text: &str) -> String {
    let mut out: String = text
        .chars()
        .take(MAX_QUOTED)
        .flat_map(|c| {
            let plain = (!c.is_control()).then_some(c);
            let escaped = c.is_control().then(|| c.escape_default());
            plain.into_iter().chain(escaped.into_iter().flatten())
        })
        .collect();
    if text.chars().nth(MAX_QUOTED).is_some() {
        out.push('…');
    }
    format!("`{out}`")
}

/// Covers a place with stars of the same length in bytes, so that other places keep their offsets.
fn hide(text: &mut String, range: std::ops::Range<usize>) {
    let Some(old) = text.get(range.clone()) else {
        return;
    };
    let stars: String = old.bytes().map(|b| if b == b'\n' { '\n' } else { '*' }).collect();
    text.replace_range(range, &stars);
}

fn hide_keys_by_look(text: &str) -> String {
    let mut out = text.to_owned();
    let mut from = 0;
    while let Some(found) = out[from..].find("api_key") {
        let after = from + found + "api_key".len();
        let line_end = out[after..].find('\n').map_or(out.len(), |at| after + at);
        let value = out[after..line_end].trim_start_matches([' ', ':', '=', '\t', '"', '\'']);
        let names_a_place = value.is_empty()
            || value.starts_with('#')
            || value.starts_with('{')
            || value.starts_with(".env=")
            || value.starts_with(".file=");
        if !names_a_place {
            let start = line_end - value.len();
            hide(&mut out, start..line_end);
        }
        from = line_end;
    }
    out
}
