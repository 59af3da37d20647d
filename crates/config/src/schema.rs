//! The definition as JSON Schema, for editors and for checks without ridge.

use serde_json::{Map, Value as Json, json};

use crate::field::{Shape, Spec};
use crate::settings::Config;

impl Config {
    /// The JSON Schema (draft 2020-12) of the configuration file.
    ///
    /// It knows types, names, forms and ranges of whole numbers; what needs two keys to judge (unique names, `port`
    /// only with `records: a`) and ranges of durations and sizes are left to `ridge config check`.
    pub fn schema() -> Json {
        let mut schema = section(&Self::described_keys());
        let head = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "ridge serve configuration",
        });
        if let (Json::Object(schema), Json::Object(head)) = (&mut schema, head) {
            schema.extend(head);
        }
        schema
    }
}

fn section(fields: &[(Spec, Shape)]) -> Json {
    let mut properties = Map::new();
    for (spec, shape) in fields {
        properties.insert(spec.key.to_owned(), property(spec, shape));
    }
    let required: Vec<_> =
        fields.iter().filter(|(spec, _)| spec.required).map(|(spec, _)| spec.key).collect();
    let mut out = json!({
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    });
    if !required.is_empty() {
        out["required"] = json!(required);
    }
    out
}

fn property(spec: &Spec, shape: &Shape) -> Json {
    let mut out = form(shape);
    // A section whose lines are all commented out is empty.
    if matches!(shape, Shape::Section(_)) {
        out["type"] = json!(["object", "null"]);
    }
    if spec.single
        && let Shape::List(item) = shape
    {
        out = json!({"anyOf": [out, form(item)]});
    }
    let mut description = spec.text();
    if !spec.unset.is_empty() {
        description.push_str(&format!(" Not written: {}.", spec.unset));
    }
    out["description"] = json!(description);
    if !spec.default.is_empty() {
        out["default"] = default(spec, shape);
    }
    if !spec.example.is_empty() && matches!(shape, Shape::Scalar { .. }) {
        out["examples"] = json!([literal(spec.example, shape)]);
    }
    let number = matches!(out["type"].as_str(), Some("integer" | "number"));
    for (name, limit) in [("minimum", spec.min), ("maximum", spec.max)] {
        if number && !limit.is_empty() {
            out[name] = literal(limit, shape);
        } else if !limit.is_empty() {
            let text = out["description"].as_str().unwrap_or("").to_owned();
            let word = if name == "minimum" { "Least" } else { "Most" };
            out["description"] = json!(format!("{text} {word}: {limit}."));
        }
    }
    out
}

fn form(shape: &Shape) -> Json {
    match shape {
        Shape::Scalar { schema, .. } => schema.clone(),
        Shape::List(item) => json!({"type": "array", "items": form(item)}),
        Shape::Map(item) => json!({"type": "object", "additionalProperties": form(item)}),
        Shape::Section(fields) => section(fields),
    }
}

fn default(spec: &Spec, shape: &Shape) -> Json {
    match shape {
        Shape::List(item) => spec.default.split_whitespace().map(|text| literal(text, item)).collect(),
        _ => literal(spec.default, shape),
    }
}

/// A text of the definition as JSON: a number or a boolean where the type is one.
fn literal(text: &str, shape: &Shape) -> Json {
    let bare = match shape {
        Shape::Scalar { schema, .. } => {
            matches!(schema["type"].as_str(), Some("integer" | "number" | "boolean"))
        }
        _ => false,
    };
    bare.then(|| serde_json::from_str(text).ok()).flatten().unwrap_or_else(|| json!(text))
}
