//! The headers of one part of a form, and the parameters in them.

/// What a part's headers say about it.
#[derive(Debug, Default)]
pub(crate) struct Disposition {
    pub name: String,
    pub is_file: bool,
    /// In base64 or quoted-printable, which some servers undo and others pass on.
    pub is_encoded: bool,
}

impl Disposition {
    /// Reads a header block without its closing empty line.
    pub(crate) fn read(headers: &[u8]) -> Result<Self, &'static str> {
        let mut part = Disposition::default();
        let mut name = None;
        let mut has_disposition = false;
        let headers = std::str::from_utf8(headers).map_err(|_| "the headers of a part are not UTF-8")?;
        for line in headers.split("\r\n") {
            if line.contains(['\r', '\n', '\0']) {
                return Err("a header of a part has a stray line end or NUL");
            }
            let (field, value) = line.split_once(':').ok_or("a header of a part has no colon")?;
            if field.is_empty() || field.contains([' ', '\t']) {
                return Err("a header of a part has white space in its name or is folded");
            }
            if field.eq_ignore_ascii_case("content-transfer-encoding") {
                let plain = ["7bit", "8bit", "binary"].iter().any(|e| value.trim().eq_ignore_ascii_case(e));
                part.is_encoded |= !plain;
            }
            if !field.eq_ignore_ascii_case("content-disposition") {
                continue;
            }
            if std::mem::replace(&mut has_disposition, true) {
                return Err("a part has two content-disposition headers");
            }
            let (kind, list) = value.split_once(';').unwrap_or((value, ""));
            if !kind.trim().eq_ignore_ascii_case("form-data") {
                return Err("a part's content-disposition is not form-data");
            }
            for parameter in parameters(list) {
                let (key, value) = parameter.ok_or("a part's content-disposition has a broken parameter")?;
                let key = key.to_ascii_lowercase();
                if key == "name" {
                    if name.replace(value).is_some() {
                        return Err("a part has two names");
                    }
                } else if key.starts_with("name*") {
                    return Err("a part's name is in the extended form, which RFC 7578 forbids");
                } else if key == "filename" || key.starts_with("filename*") {
                    part.is_file = true;
                }
            }
        }
        part.name = name.ok_or("a part has no name")?;
        Ok(part)
    }
}

/// The parameters of `; name=value; name="quoted \" value"`; `None` for one that is neither.
pub(crate) fn parameters(list: &str) -> impl Iterator<Item = Option<(&str, String)>> {
    let mut rest = list;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches([' ', '\t', ';']);
        if rest.is_empty() {
            return None;
        }
        let Some((name, value)) = rest.split_once('=') else {
            rest = "";
            return Some(None);
        };
        if name.contains(['"', ';']) {
            rest = "";
            return Some(None);
        }
        let (value, after) = match value.strip_prefix('"') {
            None => {
                let (value, after) = value.split_once(';').unwrap_or((value, ""));
                (value.trim().to_owned(), after)
            }
            Some(quoted) => match unquote(quoted) {
                Some((value, after)) if after.trim_start().starts_with(';') || after.trim().is_empty() => {
                    (value, after)
                }
                _ => {
                    rest = "";
                    return Some(None);
                }
            },
        };
        rest = after;
        Some(Some((name.trim_end(), value)))
    })
}

/// The text up to the closing quote, and what follows it.
fn unquote(quoted: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(letters.next()?.1),
            plain => value.push(plain),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_quoted_and_not() {
        let list = "; a=1;b = x;c=\"2;\\\"3\" ; d=";
        let found: Vec<_> = parameters(list).map(Option::unwrap).collect();
        let expected = [("a", "1"), ("b", "x"), ("c", "2;\"3"), ("d", "")];
        assert_eq!(found, expected.map(|(name, value)| (name, value.to_owned())));
        assert!(parameters("a=\"x\"y").any(|p| p.is_none()));
        assert!(parameters("a").any(|p| p.is_none()));
    }
}
