//! Stacks as a tree that grows from the root: each distinct stack is stored once, whatever the
//! number of samples.
//!
//! What a frame is, is defined in [`super::symbols`].

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

/// The parent of the outermost frames.
pub const ROOT: u32 = u32::MAX;

/// The number of entries in the cache in front of the map.
const RECENT: usize = 1 << 12;

/// One frame under its callers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    /// The caller's node, or [`ROOT`].
    pub parent: u32,
    /// The frame, as a number that the user of the tree defines.
    pub frame: u32,
}

/// A tree of frames.
#[derive(Debug)]
pub struct Tree {
    nodes: Vec<Node>,
    /// The numbers of the nodes, found by the node's content.
    ids: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// Recently found nodes, by a cheap hash.
    recent: Vec<u32>,
}

/// A tree with only the root.
impl Default for Tree {
    fn default() -> Tree {
        Tree {
            nodes: Vec::new(),
            ids: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            recent: vec![ROOT; RECENT],
        }
    }
}

impl Tree {
    /// All nodes; a parent comes before its children.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node of `frame` under `parent`, created if needed.
    #[inline]
    pub fn child(&mut self, parent: u32, frame: u32) -> u32 {
        let node = Node { parent, frame };
        let word = u64::from(parent) << 32 | u64::from(frame);
        let place = (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize & (RECENT - 1);
        let id = self.recent[place];
        match self.nodes.get(id as usize) {
            Some(known) if *known == node => id,
            _ => {
                let id = self.find(node);
                self.recent[place] = id;
                id
            }
        }
    }

    #[inline(never)]
    fn find(&mut self, node: Node) -> u32 {
        let Tree {
            nodes, ids, hasher, ..
        } = self;
        let hash =
            |node: &Node| hasher.hash_one(u64::from(node.parent) << 32 | u64::from(node.frame));
        let found = ids.entry(
            hash(&node),
            |&id| nodes[id as usize] == node,
            |&id| hash(&nodes[id as usize]),
        );
        let id = nodes.len() as u32;
        let id = *found.or_insert(id).get();
        if id as usize == nodes.len() {
            nodes.push(node);
        }
        id
    }

    /// Adds all nodes of `other`, with their frames translated by `frame`. Returns the new numbers
    /// of the nodes.
    pub fn merge(&mut self, other: &Tree, frame: impl Fn(u32) -> u32) -> Vec<u32> {
        let mut new: Vec<u32> = Vec::with_capacity(other.nodes.len());
        for node in &other.nodes {
            let parent = new.get(node.parent as usize).copied().unwrap_or(ROOT);
            new.push(self.child(parent, frame(node.frame)));
        }
        new
    }

    /// The numbers of the nodes in depth-first order, with siblings sorted by the rank of their
    /// frames. The order is the same for equal trees, whatever the order in which they grew.
    pub fn ordered(&self, rank: impl Fn(u32) -> u32) -> Vec<u32> {
        // Children as a linked list of siblings, sorted when their parent is visited.
        let mut first = vec![ROOT; self.nodes.len() + 1];
        let mut next = vec![ROOT; self.nodes.len()];

        // Roots have no parent, and are children of one node more than there are.
        for (id, node) in self.nodes.iter().enumerate() {
            let parent = (node.parent as usize).min(self.nodes.len());
            next[id] = std::mem::replace(&mut first[parent], id as u32);
        }

        // `open` is the stack of a depth-first walk without recursion: stacks may be deep.
        let mut out = Vec::with_capacity(self.nodes.len());
        let mut open = Vec::new();
        let mut visit = self.nodes.len();

        loop {
            let begin = open.len();
            let mut child = first[visit];
            while child != ROOT {
                open.push(child);
                child = next[child as usize];
            }

            // The last one is visited first, so siblings are put there in reverse.
            open[begin..]
                .sort_unstable_by_key(|&id| std::cmp::Reverse(rank(self.nodes[id as usize].frame)));

            let Some(id) = open.pop() else { return out };
            out.push(id);
            visit = id as usize;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_kept_once() {
        let mut tree = Tree::default();
        let a = tree.child(ROOT, 7);
        let b = tree.child(a, 8);
        assert_eq!(tree.child(ROOT, 7), a);
        assert_eq!(tree.child(a, 8), b);
        assert_ne!(tree.child(b, 8), b);
        assert_eq!(tree.nodes().len(), 3);
    }

    #[test]
    fn merged_trees_are_ordered_alike() {
        let paths = [
            vec![1, 2, 3],
            vec![1, 2],
            vec![4, 2, 3],
            vec![1, 5],
            vec![4],
        ];

        // Paths with common beginnings, and frames that are in several places.
        let grow = |paths: &mut dyn Iterator<Item = &Vec<u32>>| {
            let mut tree = Tree::default();
            for path in paths {
                path.iter()
                    .fold(ROOT, |parent, &frame| tree.child(parent, frame));
            }
            tree
        };

        let frames = |tree: &Tree| -> Vec<u32> {
            let order = tree.ordered(|frame| frame);
            order
                .iter()
                .map(|&id| tree.nodes()[id as usize].frame)
                .collect()
        };

        let whole = grow(&mut paths.iter());
        assert_eq!(frames(&whole), [1, 2, 3, 5, 4, 2, 3]);

        // The merged tree has grown in another order and has other numbers, but the same stacks.
        let mut merged = grow(&mut paths[3..].iter().rev());
        let new = merged.merge(&grow(&mut paths[..3].iter()), |frame| frame);
        assert_eq!(new.len(), 6);
        assert_eq!(frames(&merged), frames(&whole));
    }
}
