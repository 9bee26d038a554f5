//! Folded stacks: `name;outermost;..;innermost count`, a line for each distinct stack, as flame
//! graph tools read them.

use super::grown::Grown;
use super::stacks::ROOT;
use super::symbols::Detail;
use super::task::{Consumer, Taken};
use std::io::{self, Write};

/// Counts stacks by the names of their functions.
#[derive(Debug)]
pub(super) struct Folded {
    grown: Grown,
    /// Stacks that end in each node.
    counts: Vec<u64>,
}

impl Folded {
    pub(super) fn new() -> Folded {
        Folded {
            grown: Grown::new(Detail::Name, true),
            counts: Vec::new(),
        }
    }

    fn add(&mut self, node: u32, count: u64) {
        let at = node as usize;
        if at >= self.counts.len() {
            self.counts
                .resize(self.grown.tree.nodes().len().max(at + 1), 0);
        }
        self.counts[at] += count;
    }

    /// Adds what another counted.
    pub(super) fn merge(&mut self, other: &Folded) {
        let nodes = self.grown.merge(&other.grown);
        for (node, &count) in nodes.into_iter().zip(&other.counts) {
            self.add(node, count);
        }
    }

    /// Writes the lines, sorted by the names of their frames.
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let Grown { frames, tree, .. } = &self.grown;
        let ranks = frames.ranks();
        let nodes = tree.nodes();
        let names: Vec<Vec<u8>> = frames
            .all()
            .iter()
            .map(|frame| plain(frames.name(frame.name)))
            .collect();
        // Where the name of each node ends in a line.
        let mut ends = vec![0; nodes.len()];
        let mut line: Vec<u8> = Vec::new();
        for node in tree.ordered(|frame| ranks[frame as usize]) {
            let at = node as usize;
            let parent = nodes[at].parent;
            line.truncate(if parent == ROOT {
                0
            } else {
                ends[parent as usize]
            });
            if parent != ROOT {
                line.push(b';');
            }
            line.extend_from_slice(&names[nodes[at].frame as usize]);
            ends[at] = line.len();
            match self.counts.get(at) {
                None | Some(0) => {}
                Some(count) => {
                    out.write_all(&line)?;
                    writeln!(out, " {count}")?;
                }
            }
        }
        Ok(())
    }
}

/// A name as a line can hold it: `;` separates frames, a line ends at its end.
fn plain(name: &str) -> Vec<u8> {
    let byte = |byte: u8| match byte {
        b';' => b':',
        byte if byte.is_ascii_control() => b'?',
        byte => byte,
    };
    name.bytes().map(byte).collect()
}

impl Consumer for Folded {
    fn stack(&mut self, taken: &Taken<'_>) {
        let node = self.grown.node(taken);
        self.add(node, 1);
    }
}
