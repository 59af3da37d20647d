//! Durations: a whole number and a unit.

use std::time::Duration;

use serde_json::Value as Json;

use crate::diagnostics::Fault;
use crate::field::{Value, pattern};

const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

impl Value for Duration {
    const KIND: &'static str = "a duration";

    fn parse(text: &str) -> Result<Self, Fault> {
        let rule = "a duration is a whole number and a unit: ms, s, m or h";
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, ms)| ms);
        match (number.parse::<u64>(), factor) {
            (Ok(number), Some(factor)) => number
                .checked_mul(*factor)
                .map(Duration::from_millis)
                .ok_or_else(|| Fault::new("too long to count in milliseconds", "write less")),
            (Ok(number), None) if unit.is_empty() => {
                Err(Fault::new(rule, format!("write {number}s for seconds, {number}ms for milliseconds")))
            }
            (Ok(number), None) if unit.starts_with(' ') => {
                Err(Fault::new(rule, format!("write it without the space: {number}{}", unit.trim())))
            }
            (Ok(_), None) if unit.starts_with('.') => {
                Err(Fault::new(rule, "write a fraction in the smaller unit: 1500ms for 1.5s"))
            }
            _ => Err(Fault::new(rule, "write for example 250ms, 5s, 2m or 1h")),
        }
    }

    fn schema() -> Json {
        pattern("^[0-9]+(ms|s|m|h)$")
    }

    fn measure(&self) -> Option<f64> {
        Some(self.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_what_they_say() {
        let millis = |text| Duration::parse(text).map(|duration| duration.as_millis()).ok();
        assert_eq!(millis("250ms"), Some(250));
        assert_eq!(millis("5s"), Some(5_000));
        assert_eq!(millis("2m"), Some(120_000));
        assert_eq!(millis("1h"), Some(3_600_000));
        for wrong in ["", "s", "5", "5S", "-5s", "5 s", "1.5s", "5s5", "5d", "٥s"] {
            assert_eq!(millis(wrong), None, "{wrong}");
        }
    }
}
