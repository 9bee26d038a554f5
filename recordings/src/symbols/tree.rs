//! The symbols of an object, kept as perf does: in a red-black tree, by start.
//!
//! If symbols overlap, the one that perf finds depends on the shape of its tree. The tree is
//! therefore balanced exactly as in the kernel's `lib/rbtree.c`, which perf uses. Ends and
//! duplicates are handled as in `symbols__fixup_end` and `symbols__fixup_duplicate` of
//! `tools/perf/util/symbol.c` (Linux 7.2).

use crate::names;
use std::ops::Range;

/// `STB_WEAK`.
const WEAK: u8 = 2;
/// `STB_GLOBAL`.
const GLOBAL: u8 = 1;
/// `STT_NOTYPE`.
const NOTYPE: u8 = 0;
/// The end of the last symbol is rounded up to this, bytes.
const PAGE: u64 = 4096;
/// Maximum length of a name, bytes; the rest is cut off.
const NAME_MAX: usize = 1 << 16;
/// Typical length of a name, bytes.
const NAME_USUAL: usize = 32;
/// Default limit on all names together, bytes.
const NAMES_MAX: usize = 1 << 30;

/// The index that means no node.
const NIL: u32 = u32::MAX;

/// A symbol to be inserted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'n> {
    pub(super) start: u64,
    pub(super) end: u64,
    /// `st_info`'s binding.
    pub(super) binding: u8,
    /// `st_info`'s type.
    pub(super) kind: u8,
    pub(super) name: Name<'n>,
}

/// A name, and how to display it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Name<'n> {
    /// Displayed as it is.
    Plain(&'n [u8]),
    /// From a symbol table: may be mangled.
    Raw(&'n [u8]),
    /// Name of the function that a stub calls, from a symbol table.
    Stub(&'n [u8]),
}

/// How a stored name must be processed. Deferred, since few symbols of a file are ever displayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Shown,
    Raw,
    Stub,
}

/// The parts of a symbol that are not needed for lookup.
#[derive(Clone, Debug)]
struct Label {
    binding: u8,
    kind: u8,
    form: Form,
    /// The location of its name in [`Tree::names`].
    name: Range<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    start: u64,
    end: u64,
    left: u32,
    right: u32,
    parent: u32,
    red: bool,
}

/// The symbols of an object.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    /// Indexed like `nodes`.
    labels: Vec<Label>,
    names: Vec<u8>,
    /// Maximum bytes of the names as stored in files; displayed names may take twice as much.
    room: usize,
    root: u32,
}

impl Tree {
    pub(super) fn new() -> Tree {
        Tree::with_room(NAMES_MAX)
    }

    /// Limits the bytes of names. All symbols of a file may share one long name, so the file's size
    /// does not bound them. Symbols beyond the limit have no names.
    pub(super) fn with_room(room: usize) -> Tree {
        Tree {
            nodes: Vec::new(),
            labels: Vec::new(),
            names: Vec::new(),
            room,
            root: NIL,
        }
    }

    /// Reserves memory for this many more symbols.
    pub(super) fn reserve(&mut self, symbols: usize) {
        self.nodes.reserve(symbols);
        self.labels.reserve(symbols);
        self.names.reserve(symbols.saturating_mul(NAME_USUAL));
    }

    /// Number of symbols, and bytes of their names.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.nodes.len(), self.names.len())
    }

    /// Whether the tree has no symbols.
    pub(super) fn is_empty(&self) -> bool {
        self.root == NIL
    }

    /// The index of the symbol that perf finds at `address`.
    pub(super) fn find(&self, address: u64) -> Option<u32> {
        let mut at = self.root;
        while at != NIL {
            let Node {
                start,
                end,
                left,
                right,
                ..
            } = self.nodes[at as usize];
            if address < start {
                at = left;
            } else if address > end || (address == end && address != start) {
                at = right;
            } else {
                return Some(at);
            }
        }
        None
    }

    /// The addresses of the symbol with this index.
    pub(super) fn range(&self, at: u32) -> Range<u64> {
        let node = &self.nodes[at as usize];
        node.start..node.end
    }

    /// Sets the end of the symbol with this index.
    pub(super) fn set_end(&mut self, at: u32, end: u64) {
        self.nodes[at as usize].end = end;
    }

    /// The name of the symbol with this index, as displayed by perf.
    pub(super) fn name(&mut self, at: u32) -> &[u8] {
        let label = &mut self.labels[at as usize];
        if label.form != Form::Shown {
            let mut shown = shown(&self.names[label.name.clone()]);
            if label.form == Form::Stub {
                shown.extend_from_slice(b"@plt");
            }
            let start = self.names.len();
            if start + shown.len() <= self.room.saturating_mul(2) {
                self.names.extend_from_slice(&shown);
                label.name = start..self.names.len();
            }
            label.form = Form::Shown;
        }
        &self.names[label.name.clone()]
    }

    /// Inserts a symbol after those with the same start and returns its index.
    pub(super) fn insert(&mut self, entry: Entry<'_>) -> u32 {
        let new = self.nodes.len() as u32;
        let (mut parent, mut at) = (NIL, self.root);
        let mut is_left = false;
        while at != NIL {
            parent = at;
            let node = &self.nodes[at as usize];
            is_left = entry.start < node.start;
            at = if is_left { node.left } else { node.right };
        }
        let (form, name) = match entry.name {
            Name::Plain(name) => (Form::Shown, name),
            // Only names with an underscore are ever mangled.
            Name::Raw(name) if !name.starts_with(b"_") => (Form::Shown, name),
            Name::Raw(name) => (Form::Raw, name),
            Name::Stub(name) => (Form::Stub, name),
        };
        let name_start = self.names.len();
        let name = &name[..name.len().min(NAME_MAX)];
        let name = match name_start + name.len() <= self.room {
            true => name,
            false => b"",
        };
        self.names.extend_from_slice(name);
        self.labels.push(Label {
            binding: entry.binding,
            kind: entry.kind,
            form,
            name: name_start..self.names.len(),
        });
        self.nodes.push(Node {
            start: entry.start,
            end: entry.end,
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
        new
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

    /// Makes `new` the child of `old`'s parent, in place of `old`.
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

    /// Rotates `at` down to the left (or right); its child on the other side moves up.
    fn rotate(&mut self, at: u32, left: bool) {
        let up = self.child(at, !left);
        let middle = self.child(up, left);
        self.replace(at, up);
        self.set_child(at, !left, middle);
        self.set_child(up, left, at);
    }

    /// Rebalances after an insertion.
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

    /// Removes a symbol from the tree.
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

    /// Rebalances after a removal: the paths through `at`, a child of `parent`, have one black node
    /// too few.
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

    /// The indices of the symbols in the tree, in order.
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

    /// Sets the ends of symbols without a size and removes duplicates.
    pub(super) fn fix(&mut self) {
        let order = self.in_order();
        for pair in order.windows(2) {
            let next = self.nodes[pair[1] as usize].start;
            let node = &mut self.nodes[pair[0] as usize];
            if node.end == node.start {
                node.end = next;
            }
        }
        if let Some(&last) = order.last() {
            let node = &mut self.nodes[last as usize];
            if node.end == node.start {
                node.end = node.start.next_multiple_of(PAGE).saturating_add(PAGE);
            }
        }
        let mut order = order.into_iter();
        let Some(mut kept) = order.next() else {
            return;
        };
        for next in order {
            if self.nodes[kept as usize].start != self.nodes[next as usize].start {
                kept = next;
            } else if self.is_better(kept, next) {
                self.erase(next);
            } else {
                self.erase(kept);
                kept = next;
            }
        }
    }

    /// Whether `a` is kept if `a` and its successor `b` start at the same address
    /// (`choose_best_symbol`).
    fn is_better(&mut self, a: u32, b: u32) -> bool {
        let size = |at: u32| {
            let range = self.range(at);
            range.end.wrapping_sub(range.start)
        };
        match (size(a), size(b)) {
            (1.., 0) => return true,
            (0, 1..) => return false,
            _ => {}
        }
        let (one, other) = (&self.labels[a as usize], &self.labels[b as usize]);
        if one.kind != other.kind {
            if one.kind == NOTYPE {
                return false;
            }
            if other.kind == NOTYPE {
                return true;
            }
        }
        if (one.binding == WEAK) != (other.binding == WEAK) {
            return other.binding == WEAK;
        }
        if (one.binding == GLOBAL) != (other.binding == GLOBAL) {
            return one.binding == GLOBAL;
        }
        // Usually the same symbol in two tables: then nothing needs demangling.
        let name = |label: &Label| &self.names[label.name.clone()];
        if one.form != other.form || name(one) != name(other) {
            let underscores = |name: &[u8]| name.iter().take_while(|&&c| c == b'_').count();
            let rank = |name: &[u8]| (std::cmp::Reverse(underscores(name)), name.len());
            let (a, b) = (rank(self.name(a)), rank(self.name(b)));
            if a != b {
                return a > b;
            }
        } else if memchr::memmem::find(name(one), b"SyS").is_none() {
            return true;
        }
        let name = self.name(a);
        !name.starts_with(b"SyS") && !name.starts_with(b"compat_SyS")
    }
}

/// A name from a symbol table, as displayed by perf.
fn shown(raw: &[u8]) -> Vec<u8> {
    let raw = &raw[..raw.len().min(NAME_MAX)];
    match std::str::from_utf8(raw) {
        Ok(text) => names::demangle_or_keep(text).into_bytes(),
        Err(_) => raw.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(start: u64, end: u64, name: &str) -> Entry<'_> {
        Entry {
            start,
            end,
            binding: GLOBAL,
            kind: 2,
            name: Name::Raw(name.as_bytes()),
        }
    }

    /// Checks that no red node has a red child and that all paths have the same number of black
    /// nodes.
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
                alive.push(tree.insert(entry(start, start, "x")));
            }
            black_height(&tree, tree.root);
            let order = tree.in_order();
            assert_eq!(order.len(), alive.len());
            assert!(order.is_sorted_by_key(|&at| tree.nodes[at as usize].start));
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
}
