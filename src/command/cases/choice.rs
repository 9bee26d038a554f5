//! Which cases a quiz asks: by level, in an order that a seed gives.

use std::hash::{BuildHasher as _, Hasher as _};
use std::path::{Path, PathBuf};

// Also of tests: a seed gives the same order on every machine.
#[path = "../../../tests/common/random.rs"]
mod random;

pub(super) use random::Random;

/// How hard a case is: its group says it.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Level {
    /// Calls, frame pointers and recursion.
    Easy,
    /// Tables, and copies of the stack.
    Medium,
    /// Signals, jumps between stacks, and fake starts.
    Hard,
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Level::Easy => "easy",
            Level::Medium => "medium",
            Level::Hard => "hard",
        })
    }
}

/// Which level a group has, in words.
pub(super) const GROUPS_ARE_LEVELS: &str = "cases are easy in the folder frame, medium in copy, dwarf, orc \
     and tables, and hard in signal, start, transfer and any other";

/// The groups that are not asked: in some the words are overwritten that a reader needs, or lie in a
/// kernel's stacks; others need libraries, or repeat a case with wrong tables.
const NOT_ASKED: [&str; 4] = ["corrupt", "defect", "dynamic", "kernel"];

/// The level of the case at `path`, if it is asked.
fn level(path: &Path) -> Option<Level> {
    let group = path.parent().and_then(Path::file_name);
    let group = group.unwrap_or_default().to_string_lossy();
    match &*group {
        "frame" => Some(Level::Easy),
        "copy" | "dwarf" | "orc" | "tables" => Some(Level::Medium),
        group if NOT_ASKED.contains(&group) => None,
        _ => Some(Level::Hard),
    }
}

/// Those cases that are asked, of one level or of all.
pub(super) fn of_level(mut paths: Vec<PathBuf>, wanted: Option<Level>) -> Vec<PathBuf> {
    paths.retain(|path| match level(path) {
        Some(level) => wanted.is_none_or(|wanted| wanted == level),
        None => false,
    });
    paths
}

/// A seed that is easy to type.
pub(super) fn seed() -> u64 {
    let random = std::collections::hash_map::RandomState::new();
    random.build_hasher().finish() % 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_a_level() {
        let paths = [
            "frame/a.s",
            "orc/b.s",
            "signal/c.s",
            "kernel/d.s",
            "mine/e.s",
        ];
        let all: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        let of = |level| of_level(all.clone(), level);
        assert_eq!(of(Some(Level::Easy)), [PathBuf::from("frame/a.s")]);
        assert_eq!(of(Some(Level::Medium)), [PathBuf::from("orc/b.s")]);
        assert_eq!(of(Some(Level::Hard)).len(), 2);
        assert_eq!(of(None).len(), 4);
        for group in NOT_ASKED {
            assert_eq!(level(&Path::new(group).join("a.s")), None);
        }
    }

    #[test]
    fn a_seed_gives_an_order_of_all() {
        let shuffled = |seed| {
            let mut items: Vec<u32> = (0..50).collect();
            Random::new(seed).shuffle(&mut items);
            items
        };
        assert_eq!(shuffled(7), shuffled(7));
        assert_ne!(shuffled(7), shuffled(8));
        let mut sorted = shuffled(7);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..50).collect::<Vec<_>>());
        assert_ne!(sorted, shuffled(7));
    }
}
