//! Stacks as they are taken: their frames named, put into a tree.

use super::stacks::{ROOT, Tree};
use super::symbols::{Detail, Frames};
use super::task::Taken;
use std::sync::Arc;

/// Frames and the tree of stacks made of them.
#[derive(Debug)]
pub(super) struct Grown {
    pub(super) frames: Frames,
    pub(super) tree: Tree,
    /// Does every stack begin with the name of its thread?
    named: bool,
    last: Last,
}

/// The last stack: the next one most often has the same outer frames.
#[derive(Debug, Default)]
struct Last {
    /// Stamp and number of mappings of its space: what is cached of a space holds until either
    /// changes.
    stamp: (u64, u32, usize),
    space: u32,
    name: Option<Arc<str>>,
    /// The node under which stacks begin.
    root: u32,
    /// pcs and their nodes, outermost first.
    path: Vec<(u64, u32)>,
}

impl Grown {
    pub(super) fn new(detail: Detail, named: bool) -> Grown {
        let last = Last {
            root: ROOT,
            ..Last::default()
        };
        Grown {
            frames: Frames::new(detail),
            tree: Tree::new(),
            named,
            last,
        }
    }

    /// The node of a stack's innermost frame; the thread's own, or [`ROOT`], if it has none.
    pub(super) fn node(&mut self, taken: &Taken<'_>) -> u32 {
        self.enter(taken);
        let last = &mut self.last;
        // The innermost frame is an instruction, which the others are not, and is never compared;
        // nor is a stack with interrupted frames further out.
        let plain = taken.exact.len() <= 1;
        let outer = taken.pcs.get(1..).unwrap_or(&[]);
        let known = last.path.len().saturating_sub(1);
        let pairs = outer.iter().rev().zip(&last.path[..known]);
        let common = if plain {
            pairs.take_while(|(pc, (known, _))| *pc == known).count()
        } else {
            0
        };
        last.path.truncate(common);
        let mut node = last.path.last().map_or(last.root, |&(_, node)| node);
        let space = &*taken.task.space;
        for at in (0..taken.pcs.len() - common).rev() {
            let frame = self.frames.frame(space, last.space, taken.lookup(at));
            node = self.tree.child(node, frame);
            last.path.push((taken.pcs[at], node));
        }
        if !plain {
            last.path.clear();
        }
        node
    }

    /// Forgets the last stack if it was another's.
    fn enter(&mut self, taken: &Taken<'_>) {
        let last = &mut self.last;
        let space = &*taken.task.space;
        let (id, generation) = space.stamp();
        let stamp = (id, generation, space.mappings().len());
        let name = &taken.task.name;
        let same_name = last.name.as_ref().is_some_and(|n| Arc::ptr_eq(n, name));
        if last.stamp == stamp && same_name {
            return;
        }
        last.path.clear();
        last.stamp = stamp;
        last.space = self.frames.space(stamp);
        last.name = Some(name.clone());
        if self.named {
            let label = self.frames.label(name);
            last.root = self.tree.child(ROOT, label);
        }
    }

    /// Adds what `other` has; returns the new number of each of its nodes.
    pub(super) fn merge(&mut self, other: &Grown) -> Vec<u32> {
        let frames = self.frames.merge(&other.frames);
        self.tree.merge(&other.tree, |frame| frames[frame as usize])
    }
}
