//! Folded stacks for flame graph tools: a line `name;outermost;..;innermost count` for each
//! distinct stack.

use crate::profile::gathered::{NodePlace, Profile};
use crate::profile::tree::ROOT;
use std::io::{self, Write};

/// Writes the lines, sorted by the names of their frames.
pub(super) fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let (table, nodes) = (&profile.table, profile.tree.nodes());
    let frames = table.frames().iter();

    // Names are cleaned once: a semicolon or a newline in one would be taken for the end of a
    // frame.
    let frames: Vec<Vec<u8>> = frames.map(|frame| plain(table.name(frame.name))).collect();
    let threads: Vec<Vec<u8>> = profile.shown().iter().map(|name| plain(name)).collect();

    // The end of each node's name in the line.
    let mut ends = vec![0; nodes.len()];
    let mut line: Vec<u8> = Vec::new();

    // A line is changed only from where it differs from its parent's, not made anew.
    for node in profile.ordered_nodes() {
        let at = node as usize;
        let parent = nodes[at].parent;
        // A parent comes before its children, so the line still starts with the parent's frames.
        let begin = match parent {
            ROOT => 0,
            parent => ends[parent as usize],
        };

        line.truncate(begin);
        if parent != ROOT {
            line.push(b';');
        }

        line.extend_from_slice(match NodePlace::of(nodes[at].frame) {
            NodePlace::Thread(thread) => &threads[thread as usize],
            NodePlace::Frame(frame) => &frames[frame as usize],
        });
        ends[at] = line.len();

        // Inner nodes have a line only if a stack ends there.
        let samples = profile.counted(node).samples;
        if samples != 0 {
            out.write_all(&line)?;
            writeln!(out, " {samples}")?;
        }
    }
    Ok(())
}

/// The name with the characters replaced that separate frames and lines.
fn plain(name: &str) -> Vec<u8> {
    let byte = |byte: u8| match byte {
        b';' => b':',
        byte if byte.is_ascii_control() => b'?',
        byte => byte,
    };
    name.bytes().map(byte).collect()
}
