//! The red-black tree in which perf keeps symbols, balanced exactly as in the kernel's
//! `lib/rbtree.c`: which of several overlapping symbols perf finds depends on its shape.

use super::{Sym, holds};

/// The index that means no node.
const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    start: u64,
    left: u32,
    right: u32,
    parent: u32,
    red: bool,
}

/// The tree. Nodes have the indices of their symbols.
#[derive(Debug)]
pub(super) struct Shape {
    nodes: Vec<Node>,
    root: u32,
}

impl Shape {
    pub(super) fn with_capacity(symbols: usize) -> Self {
        Shape {
            nodes: Vec::with_capacity(symbols),
            root: NIL,
        }
    }

    /// Number of symbols inserted so far, including removed ones.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The index of the symbol that perf finds at `address`.
    pub(super) fn find(&self, symbols: &[Sym], address: u64) -> Option<u32> {
        let mut at = self.root;
        while at != NIL {
            let symbol = &symbols[at as usize];
            let node = &self.nodes[at as usize];
            if address < symbol.start {
                at = node.left;
            } else if holds(symbol, address) {
                return Some(at);
            } else {
                at = node.right;
            }
        }
        None
    }

    /// Inserts the next symbol after those with the same start.
    pub(super) fn insert(&mut self, start: u64) {
        let new = self.nodes.len() as u32;

        // Equal starts go to the right, which keeps the order in which they came.
        let (mut parent, mut at) = (NIL, self.root);
        let mut is_left = false;

        while at != NIL {
            parent = at;
            let node = &self.nodes[at as usize];
            is_left = start < node.start;
            at = if is_left { node.left } else { node.right };
        }

        self.nodes.push(Node {
            start,
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

        // A new node is red, so only the rule about a red node's parent can be violated.
        self.inserted(new);
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

            // Case 1 of `__rb_insert`: both become black, and the problem moves up two levels.
            if self.is_red(uncle) {
                self.nodes[parent as usize].red = false;
                self.nodes[uncle as usize].red = false;
                self.nodes[grand as usize].red = true;
                at = grand;
                continue;
            }

            // Case 2: an inner grandchild first becomes an outer one.
            let mut top = parent;
            if self.child(parent, !left) == at {
                self.rotate(parent, left);
                top = at;
            }

            // Case 3: the middle one of the three is their new root.
            self.nodes[top as usize].red = false;
            self.nodes[grand as usize].red = true;
            self.rotate(grand, !left);
            break;
        }

        let root = self.root;
        self.nodes[root as usize].red = false;
    }

    /// Removes a symbol from the tree.
    pub(super) fn erase(&mut self, at: u32) {
        let Node { left, right, .. } = self.nodes[at as usize];

        let removed_red;

        // The nodes that the balance is repaired from, if a black one is gone.
        let (child, parent);
        if left == NIL || right == NIL {
            child = if left == NIL { right } else { left };
            parent = self.nodes[at as usize].parent;
            removed_red = self.nodes[at as usize].red;
            self.replace(at, child);
        } else {
            // The successor in order takes the place and the color; what is missing is the
            // successor's color at its old place.
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

        // A red node can go without any rule being violated.
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

            // Case 1 of `____rb_erase_color`: after the rotation, the sibling is black.
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

            // Case 2: one black node less on the other side too, so the problem moves up.
            if !self.is_red(near) && !self.is_red(far) {
                self.nodes[sibling as usize].red = true;
                at = parent;
                parent = self.nodes[at as usize].parent;
                continue;
            }

            // Case 3: the red nephew moves to the outer side, which is case 4.
            if !self.is_red(far) {
                self.nodes[near as usize].red = false;
                self.nodes[sibling as usize].red = true;
                self.rotate(sibling, !left);
                sibling = near;
            }

            // Case 4: the rotation adds the missing black node.
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Checks that no red node has a red child and that all paths have the same number of black
    /// nodes.
    fn black_height(tree: &Shape, at: u32) -> usize {
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

    /// The indices of the symbols in the tree, in order.
    fn in_order(tree: &Shape, at: u32, order: &mut Vec<u32>) {
        if at != NIL {
            in_order(tree, tree.nodes[at as usize].left, order);
            order.push(at);
            in_order(tree, tree.nodes[at as usize].right, order);
        }
    }

    #[test]
    fn the_tree_stays_balanced() {
        let mut tree = Shape::with_capacity(0);
        let mut random = Random::new(7);
        let mut alive = Vec::new();
        for step in 0..2000 {
            if step % 3 == 2 {
                let at = alive.swap_remove(random.below(alive.len()));
                tree.erase(at);
            } else {
                alive.push(tree.len() as u32);
                tree.insert(random.below_u64(500));
            }
            black_height(&tree, tree.root);
            let mut order = Vec::new();
            in_order(&tree, tree.root, &mut order);
            assert_eq!(order.len(), alive.len());
            assert!(order.is_sorted_by_key(|&at| tree.nodes[at as usize].start));
        }
    }
}
