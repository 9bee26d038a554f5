//! Numbers of things in text.

use std::fmt::Display;

/// `1 sample`, `2 samples`; `1 entry`, `2 entries`; `1 address`, `2 addresses`. The last word of
/// `noun` is that of a single one.
pub fn counted(count: impl Display, noun: &str) -> String {
    let count = count.to_string();
    let is_vowel = |c: char| matches!(c, 'a' | 'e' | 'i' | 'o' | 'u');
    let stem = noun.strip_suffix('y').filter(|s| !s.ends_with(is_vowel));
    let (stem, ending) = match stem {
        _ if count == "1" => (noun, ""),
        Some(stem) => (stem, "ies"),
        None if noun.ends_with(['s', 'x']) || noun.ends_with("ch") => (noun, "es"),
        None => (noun, "s"),
    };
    format!("{count} {stem}{ending}")
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_is_one_and_all_else_are_many() {
        for (count, noun, text) in [
            (0, "sample", "0 samples"),
            (1, "sample", "1 sample"),
            (2, "more file", "2 more files"),
            (1, "entry", "1 entry"),
            (3, "entry", "3 entries"),
            (2, "array", "2 arrays"),
            (1, "address", "1 address"),
            (2, "address", "2 addresses"),
            (2, "branch", "2 branches"),
        ] {
            assert_eq!(counted(count, noun), text);
        }
    }
}
