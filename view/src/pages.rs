//! The page of each reason code, a section of `docs/reason-codes.md`.

use unwind_sim_unwind::reason::Code;

const CODES: &str = include_str!("../../docs/reason-codes.md");

/// The page of `code`, with its heading.
pub fn page(code: Code) -> &'static str {
    let Some(start) = CODES.find(&format!("## {code} ")) else {
        return "";
    };
    let rest = &CODES[start + 3..];
    let end = rest.find("\n## ").map_or(rest.len(), |at| at + 1);
    &rest[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_page_under_its_own_words() {
        for &code in Code::ALL {
            let head = format!("{code} {}\n\n", code.description());
            assert!(
                page(code).starts_with(&head),
                "docs/reason-codes.md: `## {head}` is missing"
            );
        }
        let sections = CODES.matches("\n## US").count();
        assert_eq!(
            sections,
            Code::ALL.len(),
            "a section of a code that does not exist"
        );
    }
}
