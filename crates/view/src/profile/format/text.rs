//! Stacks as text in the format of `perf script`: a heading, a line for each frame, an empty line.

use crate::profile::symbols::KERNEL;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use unwind_sim_judge::stacks::{Consumer, Taken};
use unwind_sim_perf_data::KernelCode;
use unwind_sim_perf_script::symbols::{KernelSymbols, Symbols};
use unwind_sim_recordings::names::{demangle, kernel_generated};
use unwind_sim_unwind::image::AddressSpace;

/// Writes the walks of one unwinder as they come.
pub(in crate::profile) struct Text<'o> {
    out: &'o mut dyn Write,
    /// The names of the events.
    events: Vec<String>,
    /// Symbols of the kernel.
    files: &'o Mutex<KernelSymbols>,
    failed: Option<io::Error>,
}

impl<'o> Text<'o> {
    /// Writes to `out`. `events` are the names of the events, and the kernel's symbols come from
    /// `files`.
    pub(in crate::profile) fn new(
        events: Vec<String>,
        files: &'o Mutex<KernelSymbols>,
        out: &'o mut dyn Write,
    ) -> Text<'o> {
        Text {
            out,
            events,
            files,
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
        write!(self.out, "{name} {tid:>7} {seconds:>5}.{micros:06}: ")?;
        let number = taken.counted.map_or(0, |counted| counted.event as usize);
        if let Some(counted) = taken.counted.filter(|counted| counted.period != 0) {
            write!(self.out, "{:>10} ", counted.period)?;
        }
        let event = self.events.get(number).map_or("", String::as_str);
        writeln!(self.out, "{event}: ")?;
        for (at, &pc) in taken.kernel.iter().enumerate() {
            let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
            let kernel = &taken.task.kernel;
            let text = kernel_line(kernel, pc, taken.kernel_lookup(at), &mut *files);
            writeln!(self.out, "\t{text}")?;
        }
        for (at, &pc) in taken.pcs.iter().enumerate() {
            let text = line(&taken.task.space, pc, taken.lookup(at));
            writeln!(self.out, "\t{text}")?;
        }
        writeln!(self.out)
    }
}

/// The same as [`line`] for an address of the kernel.
fn kernel_line(kernel: &KernelCode, pc: u64, lookup: u64, symbols: &mut dyn Symbols) -> String {
    let Some(map) = kernel.find(lookup, || symbols.kernel_range()) else {
        return format!("{pc:16x} [unknown] ({KERNEL})");
    };
    let path = String::from_utf8_lossy(&map.shown()).into_owned();
    let (object, at) = map.place(lookup);
    match symbols.symbol(&object, at) {
        None => format!("{pc:16x} [unknown] ({path})"),
        Some(symbol) => {
            let name = String::from_utf8_lossy(symbol.name);
            let offset = at.wrapping_sub(symbol.range.start) + pc.wrapping_sub(lookup);
            format!("{pc:16x} {name}+{offset:#x} ({path})")
        }
    }
}

/// `address symbol+offset (path)`; the symbol is that of `lookup`.
fn line(space: &AddressSpace, pc: u64, lookup: u64) -> String {
    let mapping = space.find(lookup);
    if let Some((name, start)) = mapping.and_then(kernel_generated) {
        let offset = pc.wrapping_sub(start);
        return format!("{pc:16x} {name}+{offset:#x} ({name})");
    }
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
