//! The admin page: one file, compiled in.

/// The page.
pub(crate) const PAGE: &str = include_str!("page.html");

/// Only the page's own style and script run, named by their hashes, so that nothing a client wrote could run even
/// if the page forgot to treat it as text. A test says the new hashes when the page changes.
pub(crate) const CONTENT_SECURITY_POLICY: &str = concat!(
    "default-src 'none'; connect-src 'self'; img-src data:; ",
    "style-src 'sha256-Jj4GeAniBWfEEhLShIAJMyET4mkdDk1hBAGB2/Mzm7o='; ",
    "script-src 'sha256-5UWYOWO6K8zUXHGlrtdVFNuOBCZQo5+9kRaI9znD1SY='; ",
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
);

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use sha2::{Digest, Sha256};

    fn element(tag: &str) -> &'static str {
        let open = format!("<{tag}>");
        let start = PAGE.find(&open).expect("the page has one") + open.len();
        let end = PAGE[start..].find(&format!("</{tag}>")).expect("and it ends") + start;
        assert!(!PAGE[end..].contains(&open), "one {tag} only");
        &PAGE[start..end]
    }

    #[test]
    fn the_policy_names_the_style_and_the_script() {
        for tag in ["style", "script"] {
            let hash = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(element(tag)));
            let source = format!("{tag}-src 'sha256-{hash}'");
            assert!(CONTENT_SECURITY_POLICY.contains(&source), "put into the policy: {source}");
        }
    }

    #[test]
    fn the_page_takes_nothing_from_elsewhere_and_treats_values_as_text() {
        for word in ["http://", "https://", "src=", "@import", "url("] {
            // The namespace of SVG is a name, not an address to fetch.
            let page = PAGE.replace("http://www.w3.org/2000/svg", "");
            assert!(!page.contains(word), "{word}");
        }
        for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "srcdoc"] {
            assert!(!PAGE.contains(word), "{word}");
        }
        assert!(PAGE.contains("<noscript>"));
    }
}
