//! The Prometheus text format, read no further than needed: one line in, name, labels and value out.
//!
//! Source: the Prometheus text exposition format 0.0.4 and OpenMetrics 1.0 (timestamps, exemplars).

/// Longest value we read; a number has at most 24 digits and signs, so more is not a number.
const VALUE_MAX_BYTES: usize = 64;

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r')
}

fn trim_start(mut bytes: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = bytes {
        if !is_blank(*first) {
            break;
        }
        bytes = rest;
    }
    bytes
}

/// Whether `after_name` (the bytes right after a family's name) shows that the name ended there.
pub(crate) fn name_ends(after_name: &[u8]) -> bool {
    after_name.first().is_some_and(|&byte| byte == b'{' || is_blank(byte))
}

/// What follows a metric's name: its labels, still raw, and its value.
pub(crate) struct Sample<'a> {
    labels: &'a [u8],
    value: &'a [u8],
}

impl<'a> Sample<'a> {
    /// Reads `{labels} value [timestamp] [# exemplar]`; `None` when the line is malformed or cut.
    pub(crate) fn read(after_name: &'a [u8]) -> Option<Self> {
        let rest = trim_start(after_name);
        let (labels, rest) = match rest.strip_prefix(b"{") {
            Some(inside) => {
                let end = closing_brace(inside)?;
                (&inside[..end], &inside[end + 1..])
            }
            None => (&[][..], rest),
        };
        let value = trim_start(rest);
        let end = value.iter().take(VALUE_MAX_BYTES + 1).position(|&b| is_blank(b)).unwrap_or(value.len());
        if end == 0 || end > VALUE_MAX_BYTES {
            return None;
        }
        Some(Sample { labels, value: &value[..end] })
    }

    /// The value when it is a finite number that is not negative.
    pub(crate) fn value(&self) -> Option<f64> {
        quantity(self.value)
    }

    /// The raw (still escaped) value of the label `name`.
    pub(crate) fn label(&self, name: &[u8]) -> Option<&'a [u8]> {
        let mut rest = self.labels;
        loop {
            while let [first, after @ ..] = rest {
                if !is_blank(*first) && *first != b',' {
                    break;
                }
                rest = after;
            }
            let equals = memchr::memchr(b'=', rest)?;
            let found = rest[..equals].trim_ascii();
            let inside = trim_start(&rest[equals + 1..]).strip_prefix(b"\"")?;
            let end = closing_quote(inside)?;
            if found == name {
                return Some(&inside[..end]);
            }
            rest = &inside[end + 1..];
        }
    }
}

/// A finite number that is not negative; everything else a page can hold (`NaN`, `-1`, `+Inf`, `None`) is no quantity.
pub(crate) fn quantity(text: &[u8]) -> Option<f64> {
    if text.len() > VALUE_MAX_BYTES {
        return None;
    }
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some(value)
}

/// Position of the quote that ends a label value, given what follows its opening quote.
fn closing_quote(inside: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let found = at + memchr::memchr2(b'"', b'\\', &inside[at..])?;
        if inside[found] == b'"' {
            return Some(found);
        }
        at = found + 2; // the backslash and what it escapes
        if at > inside.len() {
            return None;
        }
    }
}

/// Position of the brace that ends a label set, given what follows its opening brace. Braces inside quotes are text.
fn closing_brace(inside: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let found = at + memchr::memchr2(b'"', b'}', &inside[at..])?;
        if inside[found] == b'}' {
            return Some(found);
        }
        at = found + 1;
        at += closing_quote(&inside[at..])? + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(Option<f64>, Option<&[u8]>)> {
        Sample::read(text.as_bytes()).map(|sample| (sample.value(), sample.label(b"a")))
    }

    #[test]
    fn quotes_and_braces_inside_a_label_are_text() {
        assert_eq!(read(r#"{a="x\"}{,a=",b="}"} 4"#), Some((Some(4.0), Some(&br#"x\"}{,a="#[..]))));
        assert_eq!(read(r#"{b="\\",a="y"} 4"#), Some((Some(4.0), Some(&b"y"[..]))));
    }

    #[test]
    fn timestamps_and_exemplars_are_not_the_value() {
        assert_eq!(read(" 5 1795953786000"), Some((Some(5.0), None)));
        assert_eq!(read(r#"{a="b"} 6 # {trace="7"} 8 9"#), Some((Some(6.0), Some(&b"b"[..]))));
        assert_eq!(read(" 5\r"), Some((Some(5.0), None)));
    }

    #[test]
    fn cut_lines_are_no_sample() {
        for cut in ["", " ", "{", "{a", "{a=\"", "{a=\"b\\", "{a=\"b\"", "{a=\"b\"}", "{a=\"b\"} "] {
            assert!(read(cut).is_none(), "{cut:?}");
        }
    }

    #[test]
    fn only_finite_numbers_from_zero_up_are_quantities() {
        for text in ["NaN", "nan", "+Inf", "-1", "-Inf", "inf", "None", "", "1e999", "0x10", "1,5"] {
            assert_eq!(quantity(text.as_bytes()), None, "{text:?}");
        }
        for (text, value) in [("0", 0.0), ("1.5e1", 15.0), ("+2", 2.0), ("-0", 0.0)] {
            assert_eq!(quantity(text.as_bytes()), Some(value), "{text:?}");
        }
        assert_eq!(quantity(&[b'1'; 4096]), None);
    }
}
