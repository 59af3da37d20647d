//! Sizes in bytes: a whole number and a unit.

use std::fmt;

use serde_json::Value as Json;

use crate::diagnostics::Fault;
use crate::field::{Value, pattern};

const UNITS: [(&str, u64); 7] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
];

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// The number of bytes, as large as this machine can address.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) = UNITS[..4]
            .iter()
            .rev()
            .find(|(_, factor)| self.0 >= *factor && self.0.is_multiple_of(*factor))
            .unwrap_or(&UNITS[0]);
        write!(f, "{}{unit}", self.0 / factor)
    }
}

impl Value for ByteSize {
    const KIND: &'static str = "a size";

    fn parse(text: &str) -> Result<Self, Fault> {
        let rule = "a size is a whole number and a unit: B, KiB, MiB, GiB, KB, MB or GB";
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| factor);
        match (number.parse::<u64>(), factor) {
            (Ok(number), Some(factor)) => number
                .checked_mul(*factor)
                .map(Self)
                .ok_or_else(|| Fault::new("too large to count in 64 bits", "write less")),
            (Ok(number), None) => Err(Fault::new(rule, unit_remedy(number, unit))),
            _ => Err(Fault::new(rule, "write for example 64KiB or 64MiB")),
        }
    }

    fn schema() -> Json {
        pattern("^[0-9]+(B|KiB|MiB|GiB|KB|MB|GB)$")
    }

    fn measure(&self) -> Option<f64> {
        Some(self.0 as f64)
    }
}

fn unit_remedy(number: u64, unit: &str) -> String {
    let meant = unit.trim().to_ascii_lowercase();
    let known = UNITS.iter().find(|(name, _)| {
        let name = name.to_ascii_lowercase();
        // `Mi` as Kubernetes writes it, `M` as nginx does, and another case.
        !meant.is_empty() && (name == meant || name.strip_suffix('b') == Some(meant.as_str()))
    });
    match known {
        Some((name, _)) => format!("write {number}{name}"),
        None if meant.is_empty() => format!("write {number}B for bytes, {number}MiB for mebibytes"),
        None => "write for example 64KiB or 64MiB".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_shown_in_its_largest_whole_unit() {
        assert_eq!(ByteSize(64 << 20).to_string(), "64MiB");
        assert_eq!(ByteSize(1025).to_string(), "1025B");
        assert_eq!(ByteSize(0).to_string(), "0B");
    }

    #[test]
    fn units_with_an_i_are_powers_of_two() {
        let bytes = |text| ByteSize::parse(text).map(|size| size.0).ok();
        let sizes = ["7B", "1KiB", "2MiB", "3GiB", "1KB", "2MB", "3GB"].map(bytes);
        let wanted = [7, 1 << 10, 2 << 20, 3 << 30, 1_000, 2_000_000, 3_000_000_000];
        assert_eq!(sizes, wanted.map(Some));
        assert_eq!(bytes("64kib"), None);
    }

    #[test]
    fn the_remedy_names_the_unit_that_was_meant() {
        let remedy = |text| ByteSize::parse(text).map_err(|fault| fault.remedy);
        assert_eq!(remedy("64Mi"), Err("write 64MiB".to_owned()));
        assert_eq!(remedy("64m"), Err("write 64MB".to_owned()));
        assert_eq!(remedy("64 mib"), Err("write 64MiB".to_owned()));
        assert_eq!(remedy("64"), Err("write 64B for bytes, 64MiB for mebibytes".to_owned()));
    }
}
