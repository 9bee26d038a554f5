//! Functions of libraries that throw no exception, by name.
//!
//! A compiler that knows so lets their calls lie in the range of a landing pad, and does not say how many
//! arguments lie on the stack there. Source: glibc's `stdio.h` and `bits/stdio2-decl.h`, which declare them
//! with `__THROW`. Only those are listed that have arguments on the stack.

/// Names in C, without a version.
const NAMES: &[&str] = &[
    "__isoc23_sscanf",
    "__isoc99_sscanf",
    "__snprintf_chk",
    "__sprintf_chk",
    "snprintf",
    "sprintf",
    "sscanf",
];

/// Whether a function of this name throws no exception.
pub fn is_known(name: &str) -> bool {
    let name = name.split('@').next().unwrap_or(name);
    NAMES.binary_search(&name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_with_and_without_a_version() {
        assert!(NAMES.is_sorted());
        assert!(is_known("snprintf") && is_known("__isoc99_sscanf@GLIBC_2.7"));
        assert!(!is_known("printf") && !is_known("qsort"));
    }
}
