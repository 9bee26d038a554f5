//! Names that are like one that does not exist: "did you mean".

use strsim::osa_distance;

/// Of so many characters of a name, one may be wrong.
const CHARACTERS_PER_ERROR: usize = 3;

/// The maximum number of names that contain a given one.
const CONTAINING_MAX: usize = 8;

/// The name in `known` that is most like `name`, if one is like it: with one character in three
/// missing, added, changed or swapped with the next, whether capital or not. Of two that are equally
/// like it, the first.
pub fn similar<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut nearest = Nearest::new(name);
    let mut found = None;
    for other in known {
        if nearest.is_nearer(other) {
            found = Some(other);
        }
    }
    found
}

/// A piece of an error message, ` (did you mean `dwarf`?)`; empty if no name is like `name`.
pub fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    question(similar(name, known))
}

/// The same piece, for a name that was found before.
pub fn question(found: Option<&str>) -> String {
    found.map_or_else(String::new, |found| format!(" (did you mean `{found}`?)"))
}

/// The names, at most a few, that contain `name`; or else the one that is most like it.
pub fn containing<T: AsRef<str>>(name: &str, known: impl IntoIterator<Item = T>) -> Vec<String> {
    let mut nearest = Nearest::new(name);
    let mut like = None;
    let mut found = Vec::new();
    for other in known {
        let other = other.as_ref();
        if other.contains(name) {
            found.push(other.to_owned());
        } else if nearest.is_nearer(other) {
            like = Some(other.to_owned());
        }
    }
    found.sort_unstable();
    found.dedup();
    found.truncate(CONTAINING_MAX);
    if found.is_empty() {
        found.extend(like);
    }
    found
}

/// A piece of an error message with the names that [`containing`] gives.
pub fn question_among(found: &[String]) -> String {
    match found {
        [] => String::new(),
        [one] => question(Some(one)),
        many => format!("; similar: {}", many.join(", ")),
    }
}

/// The search for the name that is most like a given one, among names that come one by one.
#[derive(Clone, Debug)]
pub struct Nearest {
    name: String,
    len: usize,
    /// A name has to be nearer than this many differences.
    bound: usize,
}

impl Nearest {
    /// A search for a name like `name`.
    pub fn new(name: &str) -> Nearest {
        let name = name.to_lowercase();
        let len = name.chars().count();
        let errors_max = len / CHARACTERS_PER_ERROR;
        Nearest {
            name,
            len,
            bound: errors_max + 1,
        }
    }

    /// Whether `other` is like the name, and more so than any before it.
    pub fn is_nearer(&mut self, other: &str) -> bool {
        // The distance is no less than the difference in length, which is cheap.
        let len = other.chars().count();
        if len.abs_diff(self.len) >= self.bound {
            return false;
        }
        let distance = osa_distance(&self.name, &other.to_lowercase());
        let is_nearer = distance < self.bound;
        if is_nearer {
            self.bound = distance;
        }
        is_nearer
    }
}

#[cfg(test)]
mod tests {
    use super::{containing, hint, question_among, similar};

    const NAMES: [&str; 5] = ["dwarf", "sframe", "orc", "fp", "guess"];

    #[test]
    fn a_slip_is_understood() {
        for (wrong, meant) in [
            ("dwrf", "dwarf"),
            ("dwarff", "dwarf"),
            ("dawrf", "dwarf"),
            ("DWARF", "dwarf"),
            ("sfrme", "sframe"),
            ("ocr", "orc"),
            ("orx", "orc"),
        ] {
            assert_eq!(similar(wrong, NAMES), Some(meant), "{wrong}");
        }
        assert_eq!(hint("dwrf", NAMES), " (did you mean `dwarf`?)");
    }

    #[test]
    fn names_that_contain_the_word_come_first() {
        let names = ["main", "domain", "main", "mian", "exit"];
        assert_eq!(containing("mai", names), ["domain", "main"]);
        assert_eq!(containing("exot", names), ["exit"]);
        assert_eq!(containing("other", names), [""; 0]);
        let many = question_among(&containing("mai", names));
        assert_eq!(many, "; similar: domain, main");
        let one = question_among(&containing("exot", names));
        assert_eq!(one, " (did you mean `exit`?)");
        assert_eq!(question_among(&[]), "");
    }

    #[test]
    fn another_word_is_not() {
        for wrong in ["", "x", "magic", "gdb", "fpga", "sf", "libunwind"] {
            assert_eq!(similar(wrong, NAMES), None, "{wrong}");
        }
        assert_eq!(hint("magic", NAMES), "");
    }

    #[test]
    fn the_nearest_is_named_and_of_two_the_first() {
        assert_eq!(similar("US104", ["US203", "US103", "US105"]), Some("US103"));
        assert_eq!(
            similar("main_loop", ["main_loops", "main_loop_"]),
            Some("main_loops")
        );
        assert_eq!(
            similar("mainloop", ["domainlop", "main_loop"]),
            Some("main_loop")
        );
    }
}
