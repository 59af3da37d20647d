//! What a key means, for `ridge config explain` and for the reference in the documentation.

use crate::field::Shape;
use crate::keys::{Key, all};
use crate::nearest::nearest;
use crate::settings::Attributes;

impl Key {
    fn is_item(&self) -> bool {
        self.path.contains("[]")
    }

    /// What happens when the key is not written.
    fn default_text(&self) -> String {
        match (self.spec.default, self.spec.unset) {
            (_, _) if self.spec.required => "must be written".to_owned(),
            ("", "") if matches!(self.shape, Shape::Section(_)) => String::new(),
            ("", "") => "none".to_owned(),
            ("", unset) => unset.to_owned(),
            (default, _) => default.to_owned(),
        }
    }

    fn range_text(&self) -> Option<String> {
        match (self.spec.min, self.spec.max) {
            ("", "") => None,
            (min, "") => Some(format!("{min} or more")),
            ("", max) => Some(format!("{max} or less")),
            (min, max) => Some(format!("{min} to {max}")),
        }
    }

    /// The key with its example value, as a file has it.
    fn example_text(&self) -> String {
        let (key, example) = (self.spec.key, self.spec.example);
        match &self.shape {
            Shape::List(item) if matches!(item.as_ref(), Shape::Section(_)) => {
                format!("{key}: [{{{}}}]", quote_address(example))
            }
            Shape::List(_) => format!("{key}: [{}]", quote_address(example)),
            Shape::Map(_) | Shape::Section(_) if !example.starts_with('{') => {
                format!("{key}: {{{example}}}")
            }
            _ => format!("{key}: {example}"),
        }
    }

    /// How the key is given on the command line; `None` for a section.
    fn flag_text(&self) -> Option<String> {
        let example = self.spec.example;
        if let Some((list, rest)) = self.path.split_once("[].") {
            let list = all().iter().find(|key| key.path == list)?;
            let first = list.spec.example.split_once(": ").map_or("", |(_, value)| value);
            let first_key = list.spec.example.split(':').next().unwrap_or("");
            let word = if self.spec.flag.is_empty() { rest } else { self.spec.flag };
            let attribute = match &self.shape {
                _ if rest == first_key => String::new(),
                Shape::Map(_) => format!(",{word}.{}", example.replacen(": ", "=", 1)),
                Shape::Section(_) => return None,
                _ => format!(",{word}={example}"),
            };
            return Some(format!("--{} {first}{attribute}", list.flag));
        }
        match &self.shape {
            Shape::Section(_) => None,
            Shape::List(item) if matches!(item.as_ref(), Shape::Section(_)) => {
                let first = example.split_once(": ").map_or(example, |(_, value)| value);
                Some(format!("--{} {first} (repeatable)", self.flag))
            }
            Shape::List(_) => Some(format!("--{} {example} (repeatable)", self.flag)),
            _ => Some(format!("--{} {example}", self.flag)),
        }
    }

    fn change_text(&self) -> &'static str {
        if self.restart { "after a restart" } else { "while running" }
    }
}

/// A colon inside flow brackets would start a mapping.
fn quote_address(example: &str) -> String {
    let address = example.parse::<std::net::SocketAddr>().is_ok();
    if address { format!("\"{example}\"") } else { example.to_owned() }
}

/// The text of `ridge config explain KEY`. `key` is dotted; `upstreams.weight`, `upstreams[0].weight` and the flag
/// `--limits-body` are understood too. `None` when there is no such key.
pub fn explain(key: &str) -> Option<String> {
    let key = find(key)?;
    let mut out = format!("{}\n\n", key.path);
    for line in wrap(&key.spec.text(), 76) {
        out.push_str(&format!("  {line}\n"));
    }
    out.push('\n');
    let mut row = |name: &str, value: &str| {
        if !value.is_empty() {
            out.push_str(&format!("  {name:<12}{value}\n"));
        }
    };
    row("type", &key.shape.kind());
    row("default", &key.default_text());
    row("range", &key.range_text().unwrap_or_default());
    row("example", &key.example_text());
    row("flag", &key.flag_text().unwrap_or_default());
    row("changes", key.change_text());
    let below: Vec<_> = all()
        .iter()
        .filter(|other| {
            let rest = other.path.strip_prefix(&key.path).unwrap_or("");
            let rest = rest.strip_prefix("[]").unwrap_or(rest);
            rest.strip_prefix('.').is_some_and(|rest| !rest.contains('.'))
        })
        .map(|other| other.spec.key)
        .collect();
    if !below.is_empty() {
        out.push_str(&format!("\n  keys below it: {}\n", below.join(", ")));
    }
    Some(out)
}

/// The dotted names of all keys, in the order of the definition. `upstreams[].url` is a key of a list's items.
pub fn key_names() -> Vec<&'static str> {
    all().iter().map(|key| key.path.as_str()).collect()
}

/// The key that `word`, which is none, was probably meant to be.
pub fn nearest_key(word: &str) -> Option<&'static str> {
    let names = key_names();
    nearest(&plain(word), &names).or_else(|| {
        // `weigth` alone: compare with the last parts.
        let last: Vec<_> = all().iter().map(|key| key.spec.key).collect();
        let near = nearest(word, &last)?;
        names.into_iter().find(|name| name.rsplit('.').next() == Some(near))
    })
}

fn plain(word: &str) -> String {
    let mut out = String::new();
    let mut inside = false;
    for c in word.chars().take(200) {
        match c {
            '[' => inside = true,
            ']' => inside = false,
            _ if inside => {}
            c => out.push(c),
        }
    }
    out
}

fn find(word: &str) -> Option<&'static Key> {
    let flag = word.strip_prefix("--").unwrap_or(word);
    let word = plain(word);
    let same = |key: &&Key| plain(&key.path) == word;
    all().iter().find(same).or_else(|| all().iter().find(|key| !key.is_item() && key.flag == flag))
}

/// The reference table of the documentation: one section for each key that has keys below it.
pub fn markdown() -> String {
    let mut out = String::new();
    table("", "Top level", &mut out);
    for key in all() {
        if matches!(key.shape, Shape::Section(_)) && !key.path.starts_with(DNS_ITEM) {
            table(&format!("{}.", key.path), &format!("`{}`", key.path), &mut out);
        } else if let Shape::List(item) = &key.shape
            && matches!(item.as_ref(), Shape::Section(_))
        {
            table(&format!("{}[].", key.path), &format!("`{}[]`", key.path), &mut out);
        }
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn table(above: &str, title: &str, out: &mut String) {
    out.push_str(&format!("### {title}\n\n"));
    out.push_str("| key | type | default | what it does | flag | changes |\n|---|---|---|---|---|---|\n");
    for key in all() {
        let Some(rest) = key.path.strip_prefix(above) else {
            continue;
        };
        if rest.contains('.') || rest.is_empty() || repeats_attributes(above, rest) {
            continue;
        }
        let mut default = key.default_text();
        if !key.spec.default.is_empty() {
            default = format!("`{default}`");
        }
        let mut text = key.spec.text();
        if let Some(range) = key.range_text() {
            text.push_str(&format!(" Range: {range}."));
        }
        let flag = match key.flag_text() {
            // Of an item's key, what follows the item's first part.
            Some(flag) => match flag.split_once(',') {
                Some((_, attribute)) if key.is_item() => format!("`…,{attribute}`"),
                _ => format!("`{}`", flag.trim_end_matches(" (repeatable)")),
            },
            None => String::new(),
        };
        let cells =
            [format!("`{rest}`"), key.shape.kind(), default, text, flag, key.change_text().to_owned()];
        let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        out.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    if above == DNS_ITEM {
        let names: Vec<_> =
            Attributes::described_keys().iter().map(|(spec, _)| format!("`{}`", spec.key)).collect();
        out.push_str(&format!("\nAlso {}, as in `upstreams[]`.\n", names.join(", ")));
    }
    out.push('\n');
}

const DNS_ITEM: &str = "upstream_dns[].";

/// Attributes have the same keys wherever they stand; one table is enough.
fn repeats_attributes(above: &str, key: &str) -> bool {
    above == DNS_ITEM && Attributes::described_keys().iter().any(|(spec, _)| spec.key == key)
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.len() - 1;
        if !lines[line].is_empty() && lines[line].len() + 1 + word.len() > width {
            lines.push(word.to_owned());
        } else {
            if !lines[line].is_empty() {
                lines[line].push(' ');
            }
            lines[line].push_str(word);
        }
    }
    lines
}
