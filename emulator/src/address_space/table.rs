//! Page tables: a frame for each page in use. Tables share the parts in which they are equal, so
//! that a copy costs nothing until one of them changes. Not here: what is in a frame (`frames`).
//!
//! A table is a tree like the processor's. A snapshot only *holds* a tree; the frames in it are
//! counted for the trees that are *live*: those of spaces and objects. So each node counts the live
//! links to it, and a frame the live entries for it.

use super::frames::Frames;
use hashbrown::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Links of a branch, as a power of two.
const BRANCH_BITS: u32 = 7;
/// Entries of a leaf, as a power of two.
const LEAF_BITS: u32 = 8;
/// Each link of the root stands for this number of pages, as a power of two.
const ROOT_SHIFT: u32 = LEAF_BITS + 3 * BRANCH_BITS;
/// The number of pages in a table; page numbers are below it.
pub(super) const PAGES: u64 = 1 << (ROOT_SHIFT + BRANCH_BITS);
/// The entry of a page that is not in use.
const NONE: u32 = u32::MAX;

type Link = Option<Arc<Node>>;

#[derive(Debug)]
struct Node {
    /// The number of live links to the node.
    live: AtomicU32,
    links: Links,
}

#[derive(Clone, Debug)]
enum Links {
    Branch([Link; 1 << BRANCH_BITS]),
    Leaf([u32; 1 << LEAF_BITS]),
}

/// Where a node is in a table.
#[derive(Clone, Copy)]
struct NodePosition {
    /// The first page.
    first: u64,
    /// The pages of one link or entry, as a power of two; 0 for a leaf.
    shift: u32,
}

const ROOT: NodePosition = NodePosition {
    first: 0,
    shift: ROOT_SHIFT,
};

impl NodePosition {
    fn child(self, index: usize) -> NodePosition {
        NodePosition {
            first: self.first + ((index as u64) << self.shift),
            shift: self.shift.saturating_sub(match self.shift {
                LEAF_BITS => LEAF_BITS,
                _ => BRANCH_BITS,
            }),
        }
    }

    const fn len(self) -> usize {
        match self.shift {
            0 => 1 << LEAF_BITS,
            _ => 1 << BRANCH_BITS,
        }
    }

    fn index(self, page: u64) -> usize {
        (page >> self.shift) as usize % self.len()
    }

    /// The links or entries that a range of pages overlaps.
    fn indices(self, range: &Range<u64>) -> Range<usize> {
        let first = range.start.saturating_sub(self.first) >> self.shift;
        let end = range.end.saturating_sub(self.first);
        let end = end.div_ceil(1 << self.shift).min(self.len() as u64);
        first.min(end) as usize..end as usize
    }

    fn is_inside(self, range: &Range<u64>) -> bool {
        let end = self.first + ((self.len() as u64) << self.shift);
        range.start <= self.first && end <= range.end
    }

    fn empty(self) -> Arc<Node> {
        Node::new(match self.shift {
            0 => Links::Leaf([NONE; _]),
            _ => Links::Branch([const { None }; _]),
        })
    }
}

impl Node {
    fn new(links: Links) -> Arc<Node> {
        Arc::new(Node {
            live: AtomicU32::new(1),
            links,
        })
    }

    /// Adds a live link to the node.
    fn acquire(&self, frames: &mut Frames) {
        if self.live.fetch_add(1, Relaxed) == 0 {
            self.links.acquire(frames);
        }
    }

    /// Removes a live link to the node.
    fn release(&self, frames: &mut Frames) {
        if self.live.fetch_sub(1, Relaxed) == 1 {
            match &self.links {
                Links::Branch(links) => {
                    for node in links.iter().flatten() {
                        node.release(frames);
                    }
                }
                Links::Leaf(entries) => {
                    for &frame in entries.iter().filter(|&&frame| frame != NONE) {
                        frames.release(frame);
                    }
                }
            }
        }
    }

    /// Calls `f` with pages and their frames, ascending, as long as it returns true.
    fn visit(
        &self,
        at: NodePosition,
        range: &Range<u64>,
        f: &mut impl FnMut(u64, u32) -> bool,
    ) -> bool {
        at.indices(range).all(|index| match &self.links {
            Links::Branch(links) => links[index]
                .as_ref()
                .is_none_or(|node| node.visit(at.child(index), range, f)),
            Links::Leaf(entries) => {
                entries[index] == NONE || f(at.first + index as u64, entries[index])
            }
        })
    }

    /// A copy that shares nothing with the original, except what `copies` says.
    fn copy(self: &Arc<Node>, copies: &mut HashMap<*const Node, Arc<Node>>) -> Arc<Node> {
        if let Some(copy) = copies.get(&Arc::as_ptr(self)) {
            return copy.clone();
        }
        let links = match &self.links {
            Links::Branch(links) => Links::Branch(
                links
                    .each_ref()
                    .map(|link| Some(link.as_ref()?.copy(copies))),
            ),
            Links::Leaf(entries) => Links::Leaf(*entries),
        };
        let copy = Arc::new(Node {
            live: AtomicU32::new(self.live.load(Relaxed)),
            links,
        });
        copies.insert(Arc::as_ptr(self), copy.clone());
        copy
    }
}

/// Only for [`Arc::make_mut`] in [`own`].
impl Clone for Node {
    fn clone(&self) -> Self {
        Node {
            live: AtomicU32::new(1),
            links: self.links.clone(),
        }
    }
}

impl Links {
    /// Adds a live link to each child.
    fn acquire(&self, frames: &mut Frames) {
        match self {
            Links::Branch(links) => {
                for node in links.iter().flatten() {
                    node.acquire(frames);
                }
            }
            Links::Leaf(entries) => {
                for &frame in entries.iter().filter(|&&frame| frame != NONE) {
                    frames.retain(frame);
                }
            }
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Links::Branch(links) => links.iter().all(Option::is_none),
            Links::Leaf(entries) => entries.iter().all(|&frame| frame == NONE),
        }
    }
}

/// The content of a node behind a live link, to be changed for this link only.
fn own<'a>(link: &'a mut Arc<Node>, frames: &mut Frames) -> &'a mut Links {
    // The node is copied if anybody else has it. If it stays live, there are two live links to each
    // child; otherwise those of the copy replace those of the node.
    if Arc::strong_count(link) > 1 && link.live.fetch_sub(1, Relaxed) > 1 {
        link.links.acquire(frames);
    }
    let node = Arc::make_mut(link);
    *node.live.get_mut() = 1;
    &mut node.links
}

/// The entry of a page, to be changed.
fn entry<'a>(link: &'a mut Link, at: NodePosition, page: u64, frames: &mut Frames) -> &'a mut u32 {
    let node = link.get_or_insert_with(|| at.empty());
    let index = at.index(page);
    match own(node, frames) {
        Links::Branch(links) => entry(&mut links[index], at.child(index), page, frames),
        Links::Leaf(entries) => &mut entries[index],
    }
}

/// Empties the entries of a range.
fn clear(link: &mut Link, at: NodePosition, range: &Range<u64>, frames: &mut Frames) {
    let Some(node) = link else { return };
    // A whole part goes at once; if others have it, too, only a count changes.
    if at.is_inside(range) {
        node.release(frames);
        *link = None;
        return;
    }

    // Nothing is mapped there: do not copy a shared part for it.
    if node.visit(at, range, &mut |_, _| false) {
        return;
    }

    let links = own(node, frames);
    match links {
        Links::Branch(links) => {
            for index in at.indices(range) {
                clear(&mut links[index], at.child(index), range, frames);
            }
        }
        Links::Leaf(entries) => {
            for entry in &mut entries[at.indices(range)] {
                if *entry != NONE {
                    frames.release(std::mem::replace(entry, NONE));
                }
            }
        }
    }

    if links.is_empty() {
        *link = None;
    }
}

/// Calls `f` with the pages that have different frames.
fn differences(a: &Link, b: &Link, at: NodePosition, f: &mut impl FnMut(u64)) {
    let mut all = |node: &Node| {
        node.visit(at, &(0..PAGES), &mut |page, _| {
            f(page);
            true
        })
    };

    match (a, b) {
        (None, None) => {}
        (Some(node), None) | (None, Some(node)) => drop(all(node)),
        // A shared part is equal, which keeps this fast after `fork` and `snapshot`.
        (Some(a), Some(b)) if Arc::ptr_eq(a, b) => {}
        (Some(a), Some(b)) => match (&a.links, &b.links) {
            (Links::Branch(a), Links::Branch(b)) => {
                for (index, (a, b)) in a.iter().zip(b).enumerate() {
                    differences(a, b, at.child(index), f);
                }
            }
            (Links::Leaf(a), Links::Leaf(b)) => {
                for (page, (a, b)) in (at.first..).zip(a.iter().zip(b)) {
                    if a != b {
                        f(page);
                    }
                }
            }
            // Nodes at the same place are of the same kind.
            _ => {}
        },
    }
}

/// The tree of a table, as it was. Its frames may be used for other things by now.
#[derive(Clone, Debug)]
pub(super) struct SavedTree(Link);

/// The copies of the nodes of tables that are copied together.
#[derive(Default)]
pub(super) struct NodeCopies(HashMap<*const Node, Arc<Node>>);

/// The table of a space or an object. It has to be released before it is dropped.
#[derive(Default, Debug)]
pub(super) struct Table(Link);

impl Table {
    /// The frame of a page.
    pub(super) fn get(&self, page: u64) -> Option<u32> {
        self.find(page).map(|(frame, _)| frame)
    }

    /// The frame of a page, and whether no other table shares the entry.
    pub(super) fn find(&self, page: u64) -> Option<(u32, bool)> {
        let mut node = self.0.as_ref().filter(|_| page < PAGES)?;
        let mut at = ROOT;
        let mut alone = true;
        loop {
            alone &= node.live.load(Relaxed) == 1;
            let index = at.index(page);
            match &node.links {
                Links::Branch(links) => node = links[index].as_ref()?,
                Links::Leaf(entries) => {
                    let frame = entries[index];
                    return (frame != NONE).then_some((frame, alone));
                }
            }
            at = at.child(index);
        }
    }

    /// Gives a page another frame; the table takes over the caller's count of it.
    pub(super) fn set(&mut self, page: u64, frame: u32, frames: &mut Frames) {
        debug_assert!(page < PAGES, "{page:#x}");
        let entry = entry(&mut self.0, ROOT, page, frames);
        let old = std::mem::replace(entry, frame);
        if old != NONE {
            frames.release(old);
        }
    }

    /// Removes the pages of a range.
    pub(super) fn clear(&mut self, range: &Range<u64>, frames: &mut Frames) {
        clear(&mut self.0, ROOT, range, frames);
    }

    /// Calls `f` with the pages of a range that are in use and their frames, ascending.
    pub(super) fn each(&self, range: &Range<u64>, mut f: impl FnMut(u64, u32)) {
        if let Some(node) = &self.0 {
            node.visit(ROOT, range, &mut |page, frame| {
                f(page, frame);
                true
            });
        }
    }

    /// A live copy.
    pub(super) fn fork(&self) -> Table {
        if let Some(node) = &self.0 {
            node.live.fetch_add(1, Relaxed);
        }
        Table(self.0.clone())
    }

    pub(super) fn release(self, frames: &mut Frames) {
        if let Some(node) = self.0 {
            node.release(frames);
        }
    }

    /// The tree, for a snapshot.
    pub(super) fn hold(&self) -> SavedTree {
        SavedTree(self.0.clone())
    }

    /// A live table with this tree.
    pub(super) fn acquire(held: &SavedTree, frames: &mut Frames) -> Table {
        if let Some(node) = &held.0 {
            node.acquire(frames);
        }
        Table(held.0.clone())
    }

    /// A copy for copied frames.
    pub(super) fn copy(&self, copies: &mut NodeCopies) -> Table {
        Table(self.0.as_ref().map(|node| node.copy(&mut copies.0)))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Calls `f` with the pages whose frames were others.
    pub(super) fn differences(&self, held: &SavedTree, mut f: impl FnMut(u64)) {
        differences(&self.0, &held.0, ROOT, &mut f);
    }
}

#[cfg(test)]
pub(super) mod tests;
