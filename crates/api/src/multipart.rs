//! The form fields of `multipart/form-data` (RFC 7578) that routing reads; files are stepped over.

use memchr::memmem;

use crate::body_error::{BodyCode, BodyError};
use crate::disposition::{Disposition, parameters};
use crate::request::{RequestFields, StringField};

/// More parts than any call has: an image edit takes sixteen images.
const MAX_PARTS: usize = 1024;

/// The longest header block of one part, in bytes.
const MAX_PART_HEADER_BYTES: usize = 8 * 1024;

/// RFC 2046, 5.1.1.
const MAX_BOUNDARY_BYTES: usize = 70;

/// Whether a `content-type` value says `multipart/form-data`.
pub(crate) fn is_multipart(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("multipart/form-data")
}

/// Finds `model`, `stream`, `prompt`, `n` and `user` among the fields of a form, without copying anything.
///
/// Strict where two readers could disagree about a field: every part needs one name, lines end in CRLF, nothing
/// precedes the first boundary, the last one has to be there, and no field that is read comes twice, as a file or in
/// a transfer encoding.
///
/// # Errors
/// A [`BodyError`] that names the fault and its place.
pub fn scan_multipart(content_type: &str, body: &[u8]) -> Result<RequestFields, BodyError> {
    if body.is_empty() {
        let message =
            "the body is empty: this call needs a multipart form; send one with content-length or chunked";
        return Err(BodyError::whole(BodyCode::EmptyBody, message));
    }
    let boundary = boundary(content_type)?;
    let delimiter = format!("\r\n--{boundary}");
    let finder = memmem::Finder::new(&delimiter);
    let opening = &delimiter.as_bytes()[2..];
    if !body.starts_with(opening) {
        return Err(broken(body, 0, "the form does not start with the boundary that content-type names"));
    }
    let mut form = Form { body, fields: RequestFields::default(), seen: 0 };
    let mut at = opening.len();
    for _ in 0..MAX_PARTS {
        match body.get(at..at + 2) {
            Some(b"--") => return Ok(form.fields),
            Some(b"\r\n") => at += 2,
            None => {
                return Err(broken(body, at, "the form ends right after a boundary, without its closing --"));
            }
            _ => return Err(broken(body, at, "a boundary in the form is followed by neither CRLF nor --")),
        }
        let (disposition, value) = part_head(body, at)?;
        let Some(len) = finder.find(&body[value..]) else {
            return Err(broken(body, body.len(), "the form ends without its closing boundary"));
        };
        form.part(&disposition, at, value..value + len)?;
        at = value + len + delimiter.len();
    }
    let what = format!("the form has more than {MAX_PARTS} parts, the most that is read; send fewer");
    Err(BodyError::at(body, at, BodyCode::TooManyParts, what))
}

fn broken(body: &[u8], at: usize, what: &str) -> BodyError {
    BodyError::at(
        body,
        at,
        BodyCode::InvalidMultipart,
        format_args!("{what}; send multipart/form-data as RFC 7578 has it"),
    )
}

fn boundary(content_type: &str) -> Result<String, BodyError> {
    let refuse = |message| Err(BodyError::whole(BodyCode::InvalidMultipart, message));
    if !is_multipart(content_type) {
        return refuse("content-type is not multipart/form-data; this form cannot be read as anything else");
    }
    let list = content_type.split_once(';').map_or("", |(_, list)| list);
    let mut found = None;
    for parameter in parameters(list) {
        let Some((name, value)) = parameter else {
            return refuse("content-type has a parameter that is not name=value; send boundary=... alone");
        };
        if name.eq_ignore_ascii_case("boundary") && found.replace(value).is_some() {
            return refuse("content-type names two boundaries; send one");
        }
    }
    let Some(boundary) = found else { return refuse("content-type names no boundary; send boundary=...") };
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&b);
    if boundary.is_empty() || boundary.len() > MAX_BOUNDARY_BYTES || !boundary.bytes().all(allowed) {
        return refuse(
            "the boundary in content-type must be 1 to 70 letters, digits or '()+_,-./:=? (RFC 2046)",
        );
    }
    Ok(boundary)
}

/// The headers of the part at `at`, and where its value starts.
fn part_head(body: &[u8], at: usize) -> Result<(Disposition, usize), BodyError> {
    let window = &body[at..body.len().min(at + MAX_PART_HEADER_BYTES)];
    let Some(len) = memmem::find(window, b"\r\n\r\n") else {
        if window.len() == MAX_PART_HEADER_BYTES {
            let what = format!(
                "a part of the form has more than {MAX_PART_HEADER_BYTES} bytes of headers; send fewer"
            );
            return Err(BodyError::at(body, at, BodyCode::TooManyParts, what));
        }
        return Err(broken(body, at, "the form ends in the headers of a part"));
    };
    match Disposition::read(&window[..len]) {
        Ok(disposition) => Ok((disposition, at + len + 4)),
        Err(what) => Err(broken(body, at, what)),
    }
}

struct Form<'b> {
    body: &'b [u8],
    fields: RequestFields,
    seen: u8,
}

impl Form<'_> {
    fn part(
        &mut self,
        part: &Disposition,
        at: usize,
        value: std::ops::Range<usize>,
    ) -> Result<(), BodyError> {
        const READ: [&str; 5] = ["model", "stream", "prompt", "n", "user"];
        let Some(index) = READ.iter().position(|name| *name == part.name) else { return Ok(()) };
        let key = READ[index];
        if self.seen & 1 << index != 0 {
            let what =
                format!("the form has `{key}` twice, and readers differ in which one counts; send it once");
            return Err(BodyError::at(self.body, at, BodyCode::DuplicateKey, what).of(key));
        }
        self.seen |= 1 << index;
        if part.is_file || part.is_encoded {
            let kind = if part.is_file { "a file" } else { "in a transfer encoding" };
            let what = format!("the form's `{key}` is {kind}, it must be a plain field");
            return Err(BodyError::at(self.body, at, BodyCode::InvalidType, what).of(key));
        }
        let Ok(text) = std::str::from_utf8(&self.body[value.clone()]) else {
            let what = format!("the form's `{key}` is not UTF-8; send it as UTF-8");
            return Err(BodyError::at(self.body, value.start, BodyCode::InvalidUtf8, what).of(key));
        };
        match key {
            "stream" => self.fields.stream = self.flag(key, text, value.start)?,
            "n" => self.fields.n = text.parse().ok(),
            "prompt" => self.fields.prompt.push(value),
            _ => {
                let field = Some(StringField { inside: value, has_escapes: false });
                if key == "model" { self.fields.model = field } else { self.fields.user = field }
            }
        }
        Ok(())
    }

    /// A form has no booleans; these are the words that Python's servers read as one.
    fn flag(&self, key: &'static str, text: &str, at: usize) -> Result<Option<bool>, BodyError> {
        let is = |words: [&str; 6]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
        if text.is_empty() {
            Ok(None)
        } else if is(["true", "1", "t", "yes", "y", "on"]) {
            Ok(Some(true))
        } else if is(["false", "0", "f", "no", "n", "off"]) {
            Ok(Some(false))
        } else {
            let short: String = text.chars().take(16).collect();
            let what = format!("the form's `{key}` is {short:?}, it must be true or false");
            Err(BodyError::at(self.body, at, BodyCode::InvalidType, what).of(key))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE: &str = "multipart/form-data; boundary=XyZ";

    fn form(parts: &[(&str, &str)]) -> Vec<u8> {
        let mut body = String::new();
        for (head, value) in parts {
            body += &format!("--XyZ\r\nContent-Disposition: form-data; {head}\r\n\r\n{value}\r\n");
        }
        (body + "--XyZ--\r\n").into_bytes()
    }

    fn code(body: &[u8]) -> BodyCode {
        scan_multipart(TYPE, body).expect_err(&String::from_utf8_lossy(body)).code
    }

    #[test]
    fn finds_fields_beside_a_file() {
        let body = form(&[
            (
                "name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav",
                "RIFF\r\n\r\n--Xy\r\nname=\"model\"\r\n\r\nno\0",
            ),
            ("name=\"model\"", "whisper"),
            ("name=stream", "True"),
            ("name=\"prompt\"", ""),
        ]);
        let fields = scan_multipart(TYPE, &body).unwrap();
        assert_eq!(fields.model.unwrap().text(&body), "whisper");
        assert_eq!(fields.stream, Some(true));
        assert_eq!(fields.prompt.len(), 1);
        // The boundary may be quoted, the type in any case.
        assert!(scan_multipart("Multipart/Form-Data; charset=x; boundary=\"XyZ\"", &body).is_ok());
    }

    #[test]
    fn a_field_that_readers_could_take_differently_is_refused() {
        assert_eq!(code(&form(&[("name=\"model\"", "a"), ("name=\"model\"", "b")])), BodyCode::DuplicateKey);
        assert_eq!(code(&form(&[("name=\"mod\\el\"", "a"), ("name=model", "b")])), BodyCode::DuplicateKey);
        assert_eq!(code(&form(&[("name=\"model\"; filename=\"x\"", "a")])), BodyCode::InvalidType);
        assert_eq!(
            code(&form(&[("name=\"model\"\r\nContent-Transfer-Encoding: base64", "YQ==")])),
            BodyCode::InvalidType
        );
        assert_eq!(code(&form(&[("name=\"stream\"", "maybe")])), BodyCode::InvalidType);
        for head in [
            "name=a; name*=UTF-8''model",
            "name*0=mod; name*1=el",
            "name=a; name=model",
            "name=\"model",
            "filename=x",
            "name=\"a\"\r\n folded: x",
            "name=\"a\"\r\nContent-Disposition: form-data; name=\"model\"",
            "name=\"model\"\r\nContent-Disposition: form-data; filename=\"x\"",
            "name=\"a\"\nX: y",
        ] {
            assert_eq!(code(&form(&[(head, "a")])), BodyCode::InvalidMultipart, "{head}");
        }
    }

    #[test]
    fn a_form_that_is_not_whole_is_refused() {
        let whole = form(&[("name=\"model\"", "whisper")]);
        let closing = whole.len() - 2;
        for len in 1..closing {
            assert_eq!(code(&whole[..len]), BodyCode::InvalidMultipart, "{len} bytes");
        }
        assert!(scan_multipart(TYPE, &whole[..closing]).is_ok());
        assert_eq!(code(b""), BodyCode::EmptyBody);
        assert_eq!(code(b"preamble\r\n--XyZ--"), BodyCode::InvalidMultipart);
        assert_eq!(code(b"other--"), BodyCode::InvalidMultipart);
        assert_eq!(
            code(b"--XyZ\r\nContent-Disposition: form-data; name=a\r\n\r\nx\r\n--XyZwrong"),
            BodyCode::InvalidMultipart
        );
        assert_eq!(code(b"--XyZ\n--XyZ--"), BodyCode::InvalidMultipart);
    }

    #[test]
    fn hostile_boundaries_are_refused() {
        let long = format!("multipart/form-data; boundary={}", "a".repeat(71));
        for content_type in [
            "application/json",
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "multipart/form-data; boundary=\"\"",
            "multipart/form-data; boundary=a; boundary=b",
            "multipart/form-data; boundary=\"a\r\nb\"",
            "multipart/form-data; boundary=\"a",
            "multipart/form-data; boundary=ä",
            &long,
        ] {
            let error = scan_multipart(content_type, b"--a--").expect_err(content_type);
            assert_eq!(error.code, BodyCode::InvalidMultipart, "{content_type}");
        }
    }

    #[test]
    fn counts_are_bounded() {
        assert_eq!(code(&form(&vec![("name=a", ""); MAX_PARTS + 1])), BodyCode::TooManyParts);
        let head = format!("name=a\r\nX: {}", "x".repeat(MAX_PART_HEADER_BYTES));
        assert_eq!(code(&form(&[(&head, "")])), BodyCode::TooManyParts);
    }
}
