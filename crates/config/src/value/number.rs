//! Whole numbers, fractions and booleans.

use serde_json::{Value as Json, json};

use crate::diagnostics::Fault;
use crate::field::Value;

fn whole(text: &str, max: u64) -> Result<u64, Fault> {
    let rule = format!("a whole number from 0 to {max}");
    let digits = text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty();
    if !digits {
        return Err(Fault::new(rule, "write digits only, such as 8"));
    }
    if text.len() > 1 && text.starts_with('0') {
        // YAML 1.1 reads 010 as eight.
        let remedy = match text.trim_start_matches('0') {
            "" => "write 0".to_owned(),
            rest => format!("write {rest}"),
        };
        return Err(Fault::new("a number has no leading zero", remedy));
    }
    match text.parse() {
        Ok(number) if number <= max => Ok(number),
        _ => Err(Fault::new(rule, format!("write {max} at most"))),
    }
}

macro_rules! whole_number {
    ($($ty:ty),*) => {$(
        impl Value for $ty {
            const KIND: &'static str = "a whole number";
            const TEXT: bool = false;

            fn parse(text: &str) -> Result<Self, Fault> {
                let number = whole(text, u64::from(<$ty>::MAX))?;
                <$ty>::try_from(number).map_err(|_| Fault::new("too large", "write less"))
            }

            fn schema() -> Json {
                json!({"type": "integer", "minimum": 0, "maximum": <$ty>::MAX})
            }

            fn measure(&self) -> Option<f64> {
                Some(*self as f64)
            }
        }
    )*};
}
whole_number!(u16, u32, u64);

impl Value for f64 {
    const KIND: &'static str = "a number";
    const TEXT: bool = false;

    fn parse(text: &str) -> Result<Self, Fault> {
        let rule = "a decimal number";
        let spelling =
            text.strip_prefix('-').unwrap_or(text).bytes().all(|b| b.is_ascii_digit() || b == b'.');
        text.parse::<f64>()
            .ok()
            .filter(|number| spelling && number.is_finite())
            .ok_or_else(|| Fault::new(rule, "write digits with a point, such as 1.5"))
    }

    fn schema() -> Json {
        json!({"type": "number"})
    }

    fn measure(&self) -> Option<f64> {
        Some(*self)
    }
}

impl Value for bool {
    const KIND: &'static str = "a boolean";
    const TEXT: bool = false;

    fn parse(text: &str) -> Result<Self, Fault> {
        match text {
            "true" | "True" | "TRUE" => Ok(true),
            "false" | "False" | "FALSE" => Ok(false),
            _ => {
                let remedy = match text.to_ascii_lowercase().as_str() {
                    "yes" | "on" | "y" | "1" => "write true",
                    "no" | "off" | "n" | "0" => "write false",
                    _ => "write true or false",
                };
                Err(Fault::new("true or false", remedy))
            }
        }
    }

    fn schema() -> Json {
        json!({"type": "boolean"})
    }
}
