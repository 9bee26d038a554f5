//! The style and the script of a page, and the policy that lets a browser run nothing else.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

pub(super) const STYLE: &str = include_str!("page.css");
pub(super) const SCRIPT: &str = include_str!("page.js");

/// The Content-Security-Policy: our style and our script, by their hashes, and nothing else.
pub(super) fn policy() -> String {
    let hash = |text: &str| STANDARD.encode(Sha256::digest(text));
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; \
         form-action 'none'",
        hash(SCRIPT),
        hash(STYLE)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What would end the element that holds it.
    #[test]
    fn style_and_script_do_not_end_early() {
        for text in [STYLE, SCRIPT] {
            assert!(!text.contains("</") && !text.contains("<!--"));
            // The page's text is cleaned, which must not change them.
            let plain = |c: char| c == '\n' || (' '..='~').contains(&c);
            assert!(text.chars().all(plain));
        }
    }
}
