//! Display of codes.

use super::*;
use alloc::string::ToString;

#[test]
fn a_code_is_shown_by_its_name() {
    let code = Reason::NotAtRoot.code();
    assert_eq!(code.to_string(), code.as_str());
    assert!(code.as_str().starts_with("US"));
}
