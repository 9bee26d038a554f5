//! Stacks as text in the format of `perf script`: a heading, a line for each frame, an empty line.

use std::io::{self, Write};
use unwind_sim_judge::stacks::{Consumer, Taken};
use unwind_sim_recordings::names::demangle;
use unwind_sim_unwind::image::AddressSpace;

/// Writes the walks of one unwinder as they come.
pub(in crate::profile) struct Text<'o> {
    out: &'o mut dyn Write,
    /// The text in place of the event name.
    event: String,
    failed: Option<io::Error>,
}

impl<'o> Text<'o> {
    pub(in crate::profile) fn new(event: String, out: &'o mut dyn Write) -> Text<'o> {
        Text {
            out,
            event,
            failed: None,
        }
    }

    /// The first error in writing.
    pub(in crate::profile) fn finish(self) -> io::Result<()> {
        self.failed.map_or(Ok(()), Err)
    }

    fn write(&mut self, taken: &Taken<'_>) -> io::Result<()> {
        let (name, tid, time) = (&taken.task.name, taken.task.tid, taken.time);
        let (seconds, micros) = (time / 1_000_000_000, time % 1_000_000_000 / 1000);
        let event = &self.event;
        writeln!(
            self.out,
            "{name} {tid:>7} {seconds:>5}.{micros:06}: {event}: "
        )?;
        for (at, &pc) in taken.pcs.iter().enumerate() {
            let text = line(&taken.task.space, pc, taken.lookup(at));
            writeln!(self.out, "\t{text}")?;
        }
        writeln!(self.out)
    }
}

/// `address symbol+offset (path)`; the symbol is that of `lookup`.
fn line(space: &AddressSpace, pc: u64, lookup: u64) -> String {
    let mapping = space.find(lookup);
    let path = mapping.map_or("[unknown]", |mapping| {
        mapping
            .image
            .as_ref()
            .map_or(mapping.name.as_str(), |image| image.name())
    });
    let symbol = mapping.and_then(|mapping| {
        let symbol = mapping.image.as_ref()?.symbol(mapping.svma(lookup))?;
        Some((mapping.svma(pc).wrapping_sub(symbol.address), symbol))
    });
    match symbol {
        None => format!("{pc:16x} [unknown] ({path})"),
        Some((offset, symbol)) => {
            let name = demangle(&symbol.name);
            format!("{pc:16x} {name}+{offset:#x} ({path})")
        }
    }
}

impl Consumer for Text<'_> {
    fn stack(&mut self, taken: &Taken<'_>) {
        if self.failed.is_none() {
            self.failed = self.write(taken).err();
        }
    }
}
