//! Multipart forms.

use api::scan_multipart;

pub(crate) const TOKENS: &[&[u8]] = &[
    b"\r\n",
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b"--",
    b"--b",
    b"\r\n--b\r\n",
    b"\r\n--b--",
    b"\r\n--b--\r\n",
    b"boundary=b",
    b"; boundary=\"b\"",
    b"\"",
    b"\\\"",
    b";",
    b"=",
    b"Content-Disposition: form-data; name=\"model\"\r\n\r\n",
    b"name=\"stream\"",
    b"filename=\"x\"",
    b"name*=UTF-8''model",
    b"Content-Transfer-Encoding: base64\r\n",
    b"\0",
    b"\xff",
];

/// The first line is the content type, the rest the body. Every place that is handed out is inside the body, and
/// holds a whole field.
pub fn multipart(input: &[u8]) {
    let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let Ok(content_type) = std::str::from_utf8(&input[..end]) else { return };
    let body = input.get(end + 1..).unwrap_or_default();
    match scan_multipart(content_type, body) {
        Ok(fields) => {
            for field in [&fields.model, &fields.user].into_iter().flatten() {
                let inside = field.inside.clone();
                assert!(body[..inside.start].ends_with(b"\r\n\r\n"), "a field starts after its headers");
                assert!(body[inside.end..].starts_with(b"\r\n--"), "a field ends at a boundary");
                assert!(!field.has_escapes);
                assert_eq!(field.text(body).as_bytes(), &body[inside]);
            }
            assert!(fields.prompt.len() <= 1);
        }
        Err(error) => {
            assert!(error.offset <= body.len() && error.line >= 1 && error.column >= 1);
            assert!(error.message.len() < 512, "an error repeats too much of the body: {error}");
        }
    }
}
