//! Case files.

use unwind_sim_judge::case::Case;

/// A case: what is read and written must be read as the same case.
pub fn case(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let read = |text: &str| Case::parse("corpus/cases/frame/a-name.s", text);
    match read(text) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(case) => {
            assert!(text.starts_with(case.author_text()));
            let Some(expected) = &case.expected else {
                return;
            };
            let written = case.with_expectations(expected);
            let again = read(&written);
            assert_eq!(
                again.as_ref().ok().and_then(|c| c.expected.as_ref()),
                Some(expected)
            );
            assert_eq!(again.map(|c| c.with_expectations(expected)), Ok(written));
        }
    }
}
