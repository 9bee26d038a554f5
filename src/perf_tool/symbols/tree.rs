//! Symbols of an object as perf keeps them: in a red-black tree by start.
//!
//! Where symbols overlap, which of them perf finds depends on the shape of its tree; so the tree
//! is kept as the kernel's `lib/rbtree.c`, which perf uses, would have it. What happens to ends
//! and duplicates is `symbols__fixup_end` and `symbols__fixup_duplicate` of
//! `tools/perf/util/symbol.c` (Linux 7.2).

use std::ops::Range;

/// `STB_WEAK`.
const WEAK: u8 = 2;
/// `STB_GLOBAL`.
const GLOBAL: u8 = 1;
/// `STT_NOTYPE`.
const NOTYPE: u8 = 0;
/// A page, to which the last symbol is rounded up.
const PAGE: u64 = 4096;

/// The index of no node.
const NIL: u32 = u32::MAX;

/// A symbol.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) start: u64,
    pub(super) end: u64,
    /// `st_info`'s binding.
    pub(super) binding: u8,
    /// `st_info`'s type.
    pub(super) kind: u8,
    pub(super) name: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    left: u32,
    right: u32,
    parent: u32,
    red: bool,
}

/// The symbols of an object.
#[derive(Debug)]
pub(super) struct Tree {
    entries: Vec<Entry>,
    nodes: Vec<Node>,
    root: u32,
}

impl Tree {
    pub(super) fn new() -> Tree {
        Tree {
            entries: Vec::new(),
            nodes: Vec::new(),
            root: NIL,
        }
    }

    /// Whether there is no symbol.
    pub(super) fn is_empty(&self) -> bool {
        self.root == NIL
    }

    /// The symbol that perf finds at `address`.
    pub(super) fn find(&self, address: u64) -> Option<&Entry> {
        self.find_index(address)
            .map(|at| &self.entries[at as usize])
    }

    /// The same, to change it.
    pub(super) fn find_mut(&mut self, address: u64) -> Option<&mut Entry> {
        self.find_index(address)
            .map(|at| &mut self.entries[at as usize])
    }

    fn find_index(&self, address: u64) -> Option<u32> {
        let mut at = self.root;
        while at != NIL {
            let Range { start, end } = self.range(at);
            if address < start {
                at = self.nodes[at as usize].left;
            } else if address > end || (address == end && address != start) {
                at = self.nodes[at as usize].right;
            } else {
                return Some(at);
            }
        }
        None
    }

    fn range(&self, at: u32) -> Range<u64> {
        let entry = &self.entries[at as usize];
        entry.start..entry.end
    }

    /// Puts a symbol behind those of the same start, and returns its number.
    pub(super) fn insert(&mut self, entry: Entry) -> usize {
        let new = self.nodes.len() as u32;
        let (mut parent, mut at) = (NIL, self.root);
        let mut is_left = false;
        while at != NIL {
            parent = at;
            is_left = entry.start < self.entries[at as usize].start;
            let node = &self.nodes[at as usize];
            at = if is_left { node.left } else { node.right };
        }
        self.entries.push(entry);
        self.nodes.push(Node {
            left: NIL,
            right: NIL,
            parent,
            red: true,
        });
        if parent == NIL {
            self.root = new;
        } else if is_left {
            self.nodes[parent as usize].left = new;
        } else {
            self.nodes[parent as usize].right = new;
        }
        self.inserted(new);
        new as usize
    }

    /// The symbol of that number, to change all but its start.
    pub(super) fn entry_mut(&mut self, number: usize) -> Option<&mut Entry> {
        self.entries.get_mut(number)
    }

    fn is_red(&self, at: u32) -> bool {
        at != NIL && self.nodes[at as usize].red
    }

    fn child(&self, at: u32, left: bool) -> u32 {
        let node = &self.nodes[at as usize];
        if left { node.left } else { node.right }
    }

    fn set_child(&mut self, at: u32, left: bool, child: u32) {
        let node = &mut self.nodes[at as usize];
        if left {
            node.left = child;
        } else {
            node.right = child;
        }
        if child != NIL {
            self.nodes[child as usize].parent = at;
        }
    }

    /// Puts `new` where `old` hangs.
    fn replace(&mut self, old: u32, new: u32) {
        let parent = self.nodes[old as usize].parent;
        if parent == NIL {
            self.root = new;
        } else {
            let left = self.nodes[parent as usize].left == old;
            self.set_child(parent, left, new);
        }
        if new != NIL {
            self.nodes[new as usize].parent = parent;
        }
    }

    /// Turns `at` down to its `left` side (or right); the child of the other side comes up.
    fn rotate(&mut self, at: u32, left: bool) {
        let up = self.child(at, !left);
        let middle = self.child(up, left);
        self.replace(at, up);
        self.set_child(at, !left, middle);
        self.set_child(up, left, at);
    }

    /// Restores the colours after an insertion.
    fn inserted(&mut self, mut at: u32) {
        loop {
            let parent = self.nodes[at as usize].parent;
            if !self.is_red(parent) {
                break;
            }
            let grand = self.nodes[parent as usize].parent;
            let left = self.nodes[grand as usize].left == parent;
            let uncle = self.child(grand, !left);
            if self.is_red(uncle) {
                self.nodes[parent as usize].red = false;
                self.nodes[uncle as usize].red = false;
                self.nodes[grand as usize].red = true;
                at = grand;
                continue;
            }
            let mut top = parent;
            if self.child(parent, !left) == at {
                self.rotate(parent, left);
                top = at;
            }
            self.nodes[top as usize].red = false;
            self.nodes[grand as usize].red = true;
            self.rotate(grand, !left);
            break;
        }
        let root = self.root;
        self.nodes[root as usize].red = false;
    }

    /// Takes a symbol out.
    fn erase(&mut self, at: u32) {
        let Node { left, right, .. } = self.nodes[at as usize];
        let removed_red;
        let (child, parent);
        if left == NIL || right == NIL {
            child = if left == NIL { right } else { left };
            parent = self.nodes[at as usize].parent;
            removed_red = self.nodes[at as usize].red;
            self.replace(at, child);
        } else {
            let mut next = right;
            while self.nodes[next as usize].left != NIL {
                next = self.nodes[next as usize].left;
            }
            removed_red = self.nodes[next as usize].red;
            child = self.nodes[next as usize].right;
            if next == right {
                parent = next;
            } else {
                parent = self.nodes[next as usize].parent;
                self.replace(next, child);
                self.set_child(next, false, right);
            }
            self.replace(at, next);
            self.set_child(next, true, left);
            self.nodes[next as usize].red = self.nodes[at as usize].red;
        }
        if !removed_red {
            self.erased(child, parent);
        }
    }

    /// Restores the colours after an erasure: the paths through `at`, below `parent`, have one
    /// black node too few.
    fn erased(&mut self, mut at: u32, mut parent: u32) {
        while parent != NIL && !self.is_red(at) {
            let left = self.child(parent, true) == at;
            let mut sibling = self.child(parent, !left);
            if self.is_red(sibling) {
                self.nodes[sibling as usize].red = false;
                self.nodes[parent as usize].red = true;
                self.rotate(parent, left);
                sibling = self.child(parent, !left);
            }
            if sibling == NIL {
                break;
            }
            let near = self.child(sibling, left);
            let far = self.child(sibling, !left);
            if !self.is_red(near) && !self.is_red(far) {
                self.nodes[sibling as usize].red = true;
                at = parent;
                parent = self.nodes[at as usize].parent;
                continue;
            }
            if !self.is_red(far) {
                self.nodes[near as usize].red = false;
                self.nodes[sibling as usize].red = true;
                self.rotate(sibling, !left);
                sibling = near;
            }
            self.nodes[sibling as usize].red = self.nodes[parent as usize].red;
            self.nodes[parent as usize].red = false;
            let far = self.child(sibling, !left);
            if far != NIL {
                self.nodes[far as usize].red = false;
            }
            self.rotate(parent, left);
            return;
        }
        if at != NIL {
            self.nodes[at as usize].red = false;
        }
    }

    /// The numbers of the symbols in the tree, in order.
    fn in_order(&self) -> Vec<u32> {
        let mut order = Vec::with_capacity(self.nodes.len());
        let (mut path, mut at) = (Vec::new(), self.root);
        loop {
            while at != NIL {
                path.push(at);
                at = self.nodes[at as usize].left;
            }
            let Some(top) = path.pop() else {
                return order;
            };
            order.push(top);
            at = self.nodes[top as usize].right;
        }
    }

    /// Gives symbols without a size one, and takes duplicates out.
    pub(super) fn fix(&mut self) {
        let order = self.in_order();
        for pair in order.windows(2) {
            let next = self.entries[pair[1] as usize].start;
            let entry = &mut self.entries[pair[0] as usize];
            if entry.end == entry.start {
                entry.end = next;
            }
        }
        if let Some(&last) = order.last() {
            let entry = &mut self.entries[last as usize];
            if entry.end == entry.start {
                entry.end = entry.start.next_multiple_of(PAGE).saturating_add(PAGE);
            }
        }
        let mut order = order.into_iter();
        let Some(mut kept) = order.next() else {
            return;
        };
        for next in order {
            let (a, b) = (&self.entries[kept as usize], &self.entries[next as usize]);
            if a.start != b.start {
                kept = next;
            } else if is_better(a, b) {
                self.erase(next);
            } else {
                self.erase(kept);
                kept = next;
            }
        }
    }
}

/// Whether `a` is kept where `a` and, behind it, `b` begin at one address: `choose_best_symbol`.
fn is_better(a: &Entry, b: &Entry) -> bool {
    let size = |entry: &Entry| entry.end.wrapping_sub(entry.start);
    match (size(a), size(b)) {
        (1.., 0) => return true,
        (0, 1..) => return false,
        _ => {}
    }
    if a.kind != b.kind {
        if a.kind == NOTYPE {
            return false;
        }
        if b.kind == NOTYPE {
            return true;
        }
    }
    if (a.binding == WEAK) != (b.binding == WEAK) {
        return b.binding == WEAK;
    }
    if (a.binding == GLOBAL) != (b.binding == GLOBAL) {
        return a.binding == GLOBAL;
    }
    let underscores = |entry: &Entry| entry.name.iter().take_while(|&&c| c == b'_').count();
    if underscores(a) != underscores(b) {
        return underscores(a) < underscores(b);
    }
    if a.name.len() != b.name.len() {
        return a.name.len() > b.name.len();
    }
    !a.name.starts_with(b"SyS") && !a.name.starts_with(b"compat_SyS")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(start: u64, end: u64, name: &str) -> Entry {
        Entry {
            start,
            end,
            binding: GLOBAL,
            kind: 2,
            name: name.into(),
        }
    }

    /// Checks that no red node has a red child and all paths have as many black nodes.
    fn black_height(tree: &Tree, at: u32) -> usize {
        if at == NIL {
            return 1;
        }
        let Node {
            left, right, red, ..
        } = tree.nodes[at as usize];
        for child in [left, right] {
            assert!(!(red && tree.is_red(child)));
            assert!(child == NIL || tree.nodes[child as usize].parent == at);
        }
        let height = black_height(tree, left);
        assert_eq!(height, black_height(tree, right));
        height + usize::from(!red)
    }

    #[test]
    fn the_tree_stays_balanced() {
        let mut tree = Tree::new();
        let mut state: u64 = 7;
        let mut alive = Vec::new();
        for step in 0..2000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            let random = state >> 33;
            if step % 3 == 2 {
                let at = alive.swap_remove(random as usize % alive.len());
                tree.erase(at);
            } else {
                let start = random % 500;
                alive.push(tree.insert(entry(start, start, "x")) as u32);
            }
            black_height(&tree, tree.root);
            let order = tree.in_order();
            assert_eq!(order.len(), alive.len());
            assert!(order.is_sorted_by_key(|&at| tree.entries[at as usize].start));
        }
    }

    #[test]
    fn ends_are_filled_in_and_of_duplicates_the_better_name_stays() {
        let mut tree = Tree::new();
        tree.insert(entry(0x10, 0x10, "label"));
        tree.insert(entry(0x40, 0x50, "__poll"));
        tree.insert(Entry {
            binding: WEAK,
            ..entry(0x40, 0x50, "poll_weak")
        });
        tree.insert(entry(0x40, 0x50, "poll"));
        tree.insert(entry(0x60, 0x60, "last"));
        tree.fix();
        let name = |at| tree.find(at).map(|e| String::from_utf8_lossy(&e.name));
        assert_eq!(name(0x3f).as_deref(), Some("label"));
        assert_eq!(name(0x40).as_deref(), Some("poll"));
        assert_eq!(name(0x50), None);
        assert_eq!(name(0x1fff).as_deref(), Some("last"));
        assert_eq!(name(0x2000), None);
    }
}
