//! The sorted list finds what perf's tree finds.

use super::super::helper::tests::PLAIN;
use super::*;
use crate::random::Random;

fn entry(start: u64, end: u64, name: &str) -> NewSymbol<'_> {
    NewSymbol {
        start,
        end,
        binding: GLOBAL,
        kind: 2,
        name: Name::Made(name.as_bytes()),
    }
}

#[test]
fn ends_are_filled_in_and_of_duplicates_the_better_name_stays() {
    let mut tree = Tree::new(PLAIN);
    tree.insert(entry(0x10, 0x10, "label"));
    tree.insert(entry(0x40, 0x50, "__poll"));
    tree.insert(NewSymbol {
        binding: WEAK,
        ..entry(0x40, 0x50, "poll_weak")
    });
    tree.insert(entry(0x40, 0x50, "poll"));
    tree.insert(entry(0x60, 0x60, "last"));
    tree.fix();
    let mut name = |at| {
        tree.find(at)
            .map(|at| String::from_utf8_lossy(tree.name(at)).into_owned())
    };
    assert_eq!(name(0x3f).as_deref(), Some("label"));
    assert_eq!(name(0x40).as_deref(), Some("poll"));
    assert_eq!(name(0x50), None);
    assert_eq!(name(0x1fff).as_deref(), Some("last"));
    assert_eq!(name(0x2000), None);
}

/// Inserts symbols that often overlap, in two tables, and then stubs, between which it looks
/// addresses up. Every answer must be that of the tree.
#[test]
fn what_is_certain_is_what_the_tree_finds() {
    let mut random = Random::new(1);

    let (mut certain, mut open) = (0, 0);
    for round in 0..300 {
        let mut tree = Tree::new(PLAIN);

        // Small sizes leave gaps, large ones overlap.
        let size_max = [2, 6, 40][round % 3];
        for _ in 0..2 {
            for _ in 0..random.below_u64(40) {
                let start = random.below_u64(300);

                // Everything that decides between two symbols at one start.
                let kind = random.pick(&[NOTYPE, 1, 2]);
                let binding = random.pick(&[0, GLOBAL, WEAK]);
                let name = random.pick(&["a", "_b", "__c"]);
                tree.insert(NewSymbol {
                    kind,
                    binding,
                    ..entry(start, start + random.below_u64(size_max), name)
                });
            }
            tree.fix();
        }

        // Stubs that are added when the list is sorted already.
        let base = random.below_u64(300);
        for number in 0..random.below_u64(8) {
            let start = base + 4 * number;
            let new = tree.insert(entry(start, start + random.below_u64(5), "stub"));
            if random.below_u64(3) == 0 {
                tree.set_end(new, start + random.below_u64(9));
            }
            let shape = tree.build();
            for address in 0..340 {
                let by_tree = shape.find(&tree.symbols, address);
                match tree.find_certain(address) {
                    // A certain answer must be that of the tree.
                    Some(found) => {
                        assert_eq!(found, by_tree, "round {round}, address {address}");
                        certain += 1;
                    }
                    None => open += 1,
                }
            }
        }

        // Afterwards, every answer must be.
        tree.settle();
        let shape = tree.build();
        for address in 0..340 {
            let by_tree = shape.find(&tree.symbols, address);
            if let Some(found) = tree.find_certain(address) {
                assert_eq!(found, by_tree, "round {round}, address {address}");
            }
            assert_eq!(tree.find(address), by_tree);
        }
    }

    assert!(certain > 10_000 && open > 1_000, "{certain} {open}");
}

/// Symbols that are inserted after perf's tree was built get into it.
#[test]
fn the_tree_that_was_built_grows() {
    let mut tree = Tree::new(PLAIN);
    tree.insert(entry(0, 100, "outer"));
    tree.insert(entry(10, 20, "inner"));
    tree.fix();
    assert_eq!(tree.find_certain(15), None);
    assert!(tree.find(15).is_some() && tree.shape.is_some());
    let late = tree.insert(entry(200, 210, "late"));
    assert_eq!(tree.find(205), Some(late));
}

/// `end` of a symbol that is the last one, at the end of the address space.
#[test]
fn the_last_symbol_ends_in_the_address_space() {
    let mut tree = Tree::new(PLAIN);
    tree.insert(entry(u64::MAX - 1, u64::MAX - 1, "last"));
    tree.fix();
    let at = tree.find(u64::MAX - 1).expect("it is there");
    assert_eq!(tree.range(at).end, u64::MAX);
}
