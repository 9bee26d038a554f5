//! Why tests were skipped, by class: the file `tests/skips.txt`, and what tests reported.

use std::collections::BTreeMap;

/// A test, or a part of one, that could not run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Skip {
    pub(crate) name: String,
    pub(crate) reason: String,
}

/// The class of a reason that is not in the file.
const UNLISTED: &str = "not in tests/skips.txt";

/// A class of reasons.
#[derive(Debug)]
struct Class {
    name: String,
    /// Whether it must not occur where all tools are installed.
    needs_only_tools: bool,
    /// A reason that contains this text is of the class.
    text: String,
}

/// The classes of `tests/skips.txt`; the first that fits is taken.
#[derive(Debug)]
pub(crate) struct Classes(Vec<Class>);

impl Classes {
    /// Reads lines `CLASS = TEXT` and, for what may not be missing where `.ci/run` installed it,
    /// `CLASS ! TEXT`. Lines with `#` are comments.
    pub(crate) fn parse(text: &str) -> Result<Classes, String> {
        let mut classes = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, text, needs_only_tools) = match line.split_once(" ! ") {
                Some((name, text)) => (name, text, true),
                None => match line.split_once(" = ") {
                    Some((name, text)) => (name, text, false),
                    None => return Err(format!("line {}: neither ` = ` nor ` ! `", index + 1)),
                },
            };
            classes.push(Class {
                name: name.trim().to_owned(),
                needs_only_tools,
                text: text.trim().to_owned(),
            });
        }
        Ok(Classes(classes))
    }

    fn class(&self, skip: &Skip) -> Option<&Class> {
        self.0
            .iter()
            .find(|class| skip.reason.contains(&class.text))
    }

    /// `slow: 32, no perf events here: 14`, the most frequent first.
    pub(crate) fn sum_up(&self, skips: &[Skip]) -> String {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for skip in skips {
            let class = self
                .class(skip)
                .map_or(UNLISTED, |class| class.name.as_str());
            *counts.entry(class).or_default() += 1;
        }
        let mut counts: Vec<(&str, u64)> = counts.into_iter().collect();
        counts.sort_by_key(|&(name, count)| (std::cmp::Reverse(count), name));
        let words: Vec<String> = counts
            .iter()
            .map(|(name, n)| format!("{name}: {n}"))
            .collect();
        words.join(", ")
    }

    /// The skips whose reason is in no class, or in one that must not occur here.
    pub(crate) fn unexpected<'a>(&self, skips: &'a [Skip], all_tools: bool) -> Vec<&'a Skip> {
        let is_unexpected = |skip: &&Skip| match self.class(skip) {
            None => true,
            Some(class) => class.needs_only_tools && all_tools,
        };
        skips.iter().filter(is_unexpected).collect()
    }
}

/// Reads lines `NAME: REASON`, each once.
pub(crate) fn read(text: &str) -> Vec<Skip> {
    let mut skips: Vec<Skip> = text
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, reason)| Skip {
            name: name.to_owned(),
            reason: reason.to_owned(),
        })
        .collect();
    skips.sort();
    skips.dedup();
    skips
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# why\n\nslow = slow;\na tool ! is not installed\n";

    #[test]
    fn skips_are_counted_by_class_and_once() {
        let classes = Classes::parse(TEXT).expect("classes");
        let skips = read(
            "a: gdb is not installed\na: gdb is not installed\nb: slow; set X\nc: slow; set Y\nd: it rains\n",
        );
        let sum = "slow: 2, a tool: 1, not in tests/skips.txt: 1";
        assert_eq!(classes.sum_up(&skips), sum);
    }

    #[test]
    fn a_reason_that_is_not_listed_is_unexpected_and_a_tool_where_all_are_there() {
        let classes = Classes::parse(TEXT).expect("classes");
        let skips = read("a: gdb is not installed\nb: slow; set X\nd: it rains\n");
        let names = |all| -> Vec<String> {
            let unexpected = classes.unexpected(&skips, all);
            unexpected.iter().map(|skip| skip.name.clone()).collect()
        };
        assert_eq!(names(false), ["d"]);
        assert_eq!(names(true), ["a", "d"]);
    }

    #[test]
    fn a_line_without_a_class_is_refused() {
        let error = Classes::parse("slow\n").expect_err("no class");
        assert_eq!(error, "line 1: neither ` = ` nor ` ! `");
    }
}
