//! Tables that share nodes, compared with maps; the counts of live links and owners.

use super::*;
use crate::test_random::Random;
use std::collections::BTreeMap;

/// Checks that the counts of all nodes and frames are those that follow from the live tables.
pub(in crate::address_space) fn audit<'a>(
    tables: impl Iterator<Item = &'a Table>,
    frames: &Frames,
) {
    fn count(
        link: &Arc<Node>,
        nodes: &mut HashMap<*const Node, u32>,
        owners: &mut HashMap<u32, u32>,
    ) {
        let live = nodes.entry(Arc::as_ptr(link)).or_default();
        *live += 1;

        // What a shared node holds counts once, however many have it.
        if *live > 1 {
            return;
        }
        match &link.links {
            Links::Branch(links) => {
                for link in links.iter().flatten() {
                    count(link, nodes, owners);
                }
            }
            Links::Leaf(entries) => {
                for &frame in entries.iter().filter(|&&frame| frame != NONE) {
                    *owners.entry(frame).or_default() += 1;
                }
            }
        }
    }

    fn check(link: &Arc<Node>, nodes: &HashMap<*const Node, u32>) {
        assert_eq!(link.live.load(Relaxed), nodes[&Arc::as_ptr(link)]);
        if let Links::Branch(links) = &link.links {
            links.iter().flatten().for_each(|link| check(link, nodes));
        }
    }

    let (mut nodes, mut owners) = (HashMap::new(), HashMap::new());
    let roots: Vec<&Arc<Node>> = tables.filter_map(|table| table.0.as_ref()).collect();

    // All counts first: a node is complete only when every table was seen.
    for root in &roots {
        count(root, &mut nodes, &mut owners);
    }

    for root in roots {
        check(root, &nodes);
    }

    frames.audit(&owners);
}

fn content(table: &Table) -> BTreeMap<u64, u32> {
    let mut content = BTreeMap::new();
    table.each(&(0..PAGES), |page, frame| {
        assert_eq!(content.insert(page, frame), None);
        assert_eq!(table.get(page), Some(frame));
    });
    content
}

#[test]
fn tables_agree_with_maps() {
    let mut random = Random::new(1);

    // Pages on both sides of the ends of leaves and branches, and the last one.
    let mut page = move || match random.below_u64(4) {
        0 => (1 << 15) - 4 + random.below_u64(8),
        1 => (1 << 29) - 4 + random.below_u64(8),
        2 => random.below_u64(600),
        _ => PAGES - 1 - random.below_u64(3),
    };

    let mut frames = Frames::new(1 << 20);
    let mut tables = vec![(Table::default(), BTreeMap::new())];
    let mut held: Vec<(SavedTree, BTreeMap<u64, u32>)> = Vec::new();

    for step in 0..6000_usize {
        let count = tables.len();
        let at = page() as usize % count;

        let (table, model) = &mut tables[at];
        match page() % 16 {
            0 if step % 8 == 0 => {
                let fork = (table.fork(), model.clone());
                tables.push(fork);
            }
            1 if count > 4 => tables.swap_remove(at).0.release(&mut frames),
            // Snapshots hold tables in this way.
            2 => held.push((table.hold(), model.clone())),
            3 if !held.is_empty() => {
                // The frames of that time must not be used for others yet, unlike those of memory.
                let (then, model) = held.swap_remove(page() as usize % held.len());
                if model.values().all(|&frame| frames.is_used(frame)) {
                    let mut pages = Vec::new();
                    table.differences(&then, |page| pages.push(page));
                    let now = &tables[at].1;
                    let all: std::collections::BTreeSet<u64> =
                        model.keys().chain(now.keys()).copied().collect();
                    let differ = all.into_iter().filter(|p| model.get(p) != now.get(p));
                    assert!(pages.into_iter().eq(differ));
                    tables.push((Table::acquire(&then, &mut frames), model));
                }
            }
            4 => {
                let start = page();
                let range = match page() % 8 {
                    0 => 0..start,
                    1 => start..PAGES,
                    _ => start..start + 1 + page() % 600,
                };
                table.clear(&range, &mut frames);
                model.retain(|page, _| !range.contains(page));
            }
            _ => {
                let frame = frames.allocate().expect("room");
                let page = page();
                table.set(page, frame, &mut frames);
                model.insert(page, frame);
            }
        }

        // Not after each step, because comparing takes longer than changing.
        if step % 16 == 0 {
            audit(tables.iter().map(|(table, _)| table), &frames);
            for (table, model) in &tables {
                assert_eq!(content(table), *model);
            }
        }
    }

    // A copy has frames of its own: the original's release does not touch them.
    let mut copies = NodeCopies::default();
    let copied: Vec<Table> = tables.iter().map(|(t, _)| t.copy(&mut copies)).collect();
    let mut copied_frames = frames.clone();

    for (table, _) in tables {
        table.release(&mut frames);
    }
    assert_eq!(frames.in_use(), 0);

    audit(copied.iter(), &copied_frames);
    for table in copied {
        table.release(&mut copied_frames);
    }
    assert_eq!(copied_frames.in_use(), 0);
}

#[test]
fn a_shared_part_is_copied_only_where_it_changes() {
    let mut frames = Frames::new(1 << 20);
    let mut table = Table::default();
    for page in 0..1000 {
        let frame = frames.allocate().expect("room");
        table.set(page, frame, &mut frames);
    }

    let mut fork = table.fork();
    assert_eq!(table.find(300).map(|(_, is_alone)| is_alone), Some(false));

    let frame = frames.allocate().expect("room");
    fork.set(300, frame, &mut frames);

    // The leaf of page 300 has been copied, others have not.
    let owners = |table: &Table, page| {
        let (frame, is_alone) = table.find(page).expect("in use");
        (is_alone, frames.is_alone(frame))
    };

    assert_eq!(owners(&table, 300), (true, true));
    assert_eq!(owners(&fork, 300), (true, true));
    assert_eq!(owners(&table, 301), (true, false));
    assert_eq!(owners(&table, 700), (false, true));
    assert_eq!(frames.in_use(), 1001);

    fork.release(&mut frames);
    assert_eq!(table.find(700).map(|(_, is_alone)| is_alone), Some(true));
    assert_eq!(frames.in_use(), 1000);
}
