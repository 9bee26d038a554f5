//! The stacks that a kernel printed to its console: beside the truth of that moment, beside our model of what
//! prints them, and found again in the text of the console.
//!
//! A confirmed entry is one that the unwinder found; one behind a question mark is a word of the stack that only
//! looks like a return address. So a confirmed entry is right if it is a true caller, and a questioned one if it is
//! none.

use super::{Print, Printed, print};
use std::collections::HashMap;
use unwind_sim_recordings::console::log::{LoggedLine, LoggedTrace, Place};
use unwind_sim_recordings::console::{self, CONSOLE, ConsoleLine};
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::image::{AddressSpace, ImageId};
use unwind_sim_unwind::kernel::trace::Line;
use unwind_sim_unwind::kernel::{KernelUnwinder, RegsPtr, UnwinderKind};
use unwind_sim_unwind::memory::Memory as _;
use unwind_sim_unwind::pt_regs::offset_of;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::start::{FakeVariant, Variant};
use unwind_sim_unwind::truth::Truth;

/// What is true of an entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EntryTruth {
    /// It is a caller.
    Caller,
    /// It is none.
    NoCaller,
    /// That is not known: it is beyond the known part of the chain.
    Unknown,
}

/// A printed stack, and what is true of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrintedTrace {
    /// The number of its sample.
    pub sample: u64,
    /// The task's name.
    pub task: Option<String>,
    /// The lines.
    pub lines: Vec<ConsoleLine>,
    /// For each line that is an entry, an address or saved registers of the kernel, what is true of it.
    pub entries: Vec<Option<EntryTruth>>,
    /// The places of the entries.
    pub places: Vec<Option<String>>,
    /// True callers that were not printed.
    pub missing: Vec<String>,
    /// The first line in which our model differs: its number, and the line; `None` behind the model's last.
    pub model: Option<(usize, Option<ConsoleLine>)>,
    /// Whether the true chain is complete, known to a depth, or unknown.
    pub known: Option<bool>,
}

impl PrintedTrace {
    /// The entries that are, or are not, confirmed, and of which this is true.
    pub fn count(&self, confirmed: bool, truth: EntryTruth) -> u64 {
        let entries = self.lines.iter().zip(&self.entries);
        let is = |&(line, entry): &(&ConsoleLine, &Option<EntryTruth>)| {
            is_confirmed(line) == Some(confirmed) && *entry == Some(truth)
        };
        entries.filter(is).count() as u64
    }

    /// The numbers of the entries that are not as they should be: confirmed without being callers, or callers that
    /// were not confirmed.
    pub fn wrong(&self) -> impl Iterator<Item = usize> + '_ {
        let wrong = |&number: &usize| {
            matches!(
                (is_confirmed(&self.lines[number]), self.entries[number]),
                (Some(true), Some(EntryTruth::NoCaller)) | (Some(false), Some(EntryTruth::Caller))
            )
        };
        (0..self.lines.len()).filter(wrong)
    }

    /// Whether all of it is right, as far as that is known.
    pub fn is_right(&self) -> bool {
        self.missing.is_empty() && self.wrong().next().is_none()
    }
}

/// Whether an entry is confirmed; `None` if the line is no entry.
pub fn is_confirmed(line: &ConsoleLine) -> Option<bool> {
    match *line {
        ConsoleLine::StackBegin(_) | ConsoleLine::StackEnd(_) => None,
        ConsoleLine::Registers { ip } => console::is_kernel(ip).then_some(true),
        ConsoleLine::Address { is_confirmed, .. } => Some(is_confirmed),
    }
}

fn address(line: &ConsoleLine) -> Option<u64> {
    match *line {
        ConsoleLine::StackBegin(_) | ConsoleLine::StackEnd(_) => None,
        ConsoleLine::Registers { ip } => console::is_kernel(ip).then_some(ip),
        ConsoleLine::Address { address, .. } => Some(address),
    }
}

/// The stack that was printed at this sample, if one was.
pub fn printed_trace(view: &View<'_>, cache: &mut Cache) -> Option<PrintedTrace> {
    let mut recorded = view.sample.recorded.iter();
    let lines = console::lines(&recorded.find(|chain| chain.source == CONSOLE)?.ips);
    let callers = callers(view);
    let is_complete = view.sample.truth.is_complete();
    let known = match &view.sample.truth {
        Truth::Unknown => None,
        Truth::Known(_) | Truth::Complete(_) => Some(is_complete),
    };

    let aligned = align(&lines, &callers);
    let last = aligned.iter().rposition(Option::is_some);
    let of_line = |(number, line): (usize, &ConsoleLine)| {
        address(line)?;
        Some(match aligned[number] {
            Some(_) => EntryTruth::Caller,
            None if is_complete || last.is_some_and(|last| number < last) => EntryTruth::NoCaller,
            None => EntryTruth::Unknown,
        })
    };
    let place = |line: &ConsoleLine| {
        let pc = address(line)?;
        let pc = match line {
            ConsoleLine::Registers { .. } => CodeAddress::Instruction(pc),
            _ => CodeAddress::Return(pc),
        };
        Some(Location::of(view.space, pc).to_string())
    };
    let is_missing = |number: &usize| !aligned.contains(&Some(*number));
    let missing = (0..callers.len()).filter(is_missing);
    let missing = missing.map(|number| {
        let pc = CodeAddress::Return(callers[number]);
        Location::of(view.space, pc).to_string()
    });
    Some(PrintedTrace {
        sample: view.number,
        task: view.task_name().map(str::to_owned),
        entries: lines.iter().enumerate().map(of_line).collect(),
        places: lines.iter().map(place).collect(),
        missing: missing.collect(),
        model: model_differs(view, &lines, cache),
        known,
        lines,
    })
}

/// The true callers that a trace of this sample has, innermost first. The first frame of one from registers is not
/// printed as an entry, and one from the unwinder itself has the frames above its mark.
fn callers(view: &View<'_>) -> Vec<u64> {
    let sample = view.sample;
    let frames = sample.truth.frames();
    let is_current = sample.kernel.as_ref().is_none_or(|k| k.task.is_current);
    let first = if sample.regs.is_fake() {
        let mark = sample.regs.sampled.rsp();
        // The rsp of a frame is the CFA of its callee.
        let above = frames.iter().position(|callee| callee.cfa > mark);
        above.map_or(frames.len(), |callee| callee + 1)
    } else {
        usize::from(is_current)
    };
    let callers = frames.iter().skip(first);
    callers.map(|frame| frame.pc).collect()
}

/// For each line, the caller that it is: as many as possible in order, and confirmed ones before others.
fn align(lines: &[ConsoleLine], callers: &[u64]) -> Vec<Option<usize>> {
    let columns = callers.len() + 1;
    // The best sum of what is behind each pair.
    let mut best = vec![0_u32; (lines.len() + 1) * columns];
    let weight = |line: usize, caller: usize| {
        let is_it = address(&lines[line]) == Some(callers[caller]);
        // More than one for each line, so that the number counts first.
        is_it.then(|| 2 * lines.len() as u32 + u32::from(is_confirmed(&lines[line]) == Some(true)))
    };
    for line in (0..lines.len()).rev() {
        for caller in (0..callers.len()).rev() {
            let at = line * columns + caller;
            let taken = weight(line, caller).map(|weight| weight + best[at + columns + 1]);
            best[at] = taken.unwrap_or(0).max(best[at + columns]).max(best[at + 1]);
        }
    }

    let mut aligned = vec![None; lines.len()];
    let (mut line, mut caller) = (0, 0);
    while line < lines.len() && caller < callers.len() {
        let at = line * columns + caller;
        let taken = weight(line, caller).map(|weight| weight + best[at + columns + 1]);
        if taken == Some(best[at]) {
            aligned[line] = Some(caller);
            (line, caller) = (line + 1, caller + 1);
        } else if best[at] == best[at + columns] {
            line += 1;
        } else {
            caller += 1;
        }
    }
    aligned
}

/// The first line in which our model of what prints a stack differs.
fn model_differs(
    view: &View<'_>,
    lines: &[ConsoleLine],
    cache: &mut Cache,
) -> Option<(usize, Option<ConsoleLine>)> {
    let kernel = view.sample.kernel.as_ref();
    let kind = kernel.and_then(|kernel| kernel.kind());
    let unwinder = KernelUnwinder::new(kind.unwrap_or(UnwinderKind::Orc), None, None);
    let variant = match view.sample.regs.is_fake() {
        true => Variant::Fake(FakeVariant::V5_2),
        false => Variant::Hardware,
    };
    let ours = match print(view, &unwinder, variant, Print::Trace, cache) {
        Ok(Printed::Trace(lines)) => lines,
        Ok(Printed::StackWalk(_) | Printed::Reliable(_)) | Err(_) => Vec::new(),
    };
    let ours: Vec<ConsoleLine> = ours
        .iter()
        .filter_map(|line| of_model(view, line))
        .collect();
    let differs = |&number: &usize| ours.get(number) != lines.get(number);
    let first = (0..lines.len().max(ours.len())).find(differs)?;
    Some((first, ours.get(first).copied()))
}

fn of_model(view: &View<'_>, line: &Line) -> Option<ConsoleLine> {
    Some(match *line {
        Line::StackBegin(kind) => ConsoleLine::StackBegin(kind),
        Line::StackEnd(kind) => ConsoleLine::StackEnd(kind),
        Line::Regs(regs) => {
            let ip = match regs.at {
                RegsPtr::At(at) => {
                    let memory = view.sample.memory();
                    memory.read_u64(at.wrapping_add(offset_of(Reg::Rip))).ok()?
                }
                RegsPtr::Start | RegsPtr::None => return None,
            };
            ConsoleLine::Registers { ip }
        }
        Line::Address { address, reliable } => ConsoleLine::Address {
            address,
            is_confirmed: reliable,
        },
    })
}

/// The places of addresses as a kernel prints them.
#[derive(Debug, Default)]
pub struct Places {
    /// The addresses of a function of an image.
    functions: HashMap<(ImageId, String), Vec<u64>>,
    known: Vec<ImageId>,
}

impl Places {
    /// Whether a place is that of an address. Of code whose functions are not known, any place may be.
    fn is_at(&mut self, space: &AddressSpace, place: &Place, address: u64) -> bool {
        if let Some(logged) = place.address {
            return logged == address;
        }
        let Some(mapping) = space.find(address.wrapping_sub(1)) else {
            return true;
        };
        let Some(image) = &mapping.image else {
            let location = Location::of(space, CodeAddress::Return(address));
            return location.offset == place.offset || location.function.is_none();
        };
        let id = image.id();
        if !self.known.contains(&id) {
            self.known.push(id);
            for symbol in image.symbols() {
                let addresses = self.functions.entry((id, symbol.name.clone()));
                addresses.or_default().push(symbol.address);
            }
        }
        let address = mapping.svma(address);
        let known = self.functions.get(&(id, place.function.clone()));
        known.is_some_and(|known| {
            known
                .iter()
                .any(|at| at.wrapping_add(place.offset) == address)
        })
    }

    /// Whether the text says what was printed at this sample.
    pub fn is_same(
        &mut self,
        space: &AddressSpace,
        logged: &LoggedTrace,
        printed: &[ConsoleLine],
    ) -> bool {
        let mut is_at = |place: &Place, address: u64| self.is_at(space, place, address);
        let mut pairs = logged.lines.iter().zip(printed);
        logged.lines.len() == printed.len() && pairs.all(|(own, line)| own.says(line, &mut is_at))
    }
}

/// How many entries a text has that are confirmed, and that are behind a question mark.
pub fn logged_entries(trace: &LoggedTrace) -> (u64, u64) {
    let count = |wanted: bool| {
        let is = |line: &&LoggedLine| match line {
            LoggedLine::Address(_, is_confirmed) => *is_confirmed == wanted,
            LoggedLine::Registers(place) => wanted && place.is_some(),
            LoggedLine::StackBegin(_) | LoggedLine::StackEnd(_) => false,
        };
        trace.lines.iter().filter(is).count() as u64
    };
    (count(true), count(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: u64 = 0xffff_ffff_8100_0000;

    fn address(offset: u64, is_confirmed: bool) -> ConsoleLine {
        ConsoleLine::Address {
            address: CODE + offset,
            is_confirmed,
        }
    }

    #[test]
    fn confirmed_entries_are_the_callers_before_leftovers_are() {
        let lines = [
            address(1, false),
            address(1, true),
            address(2, false),
            ConsoleLine::Registers { ip: CODE + 3 },
            address(4, true),
        ];
        // The first is a leftover of the same call; 2 was not confirmed, and 5 was not printed.
        let callers = [1, 2, 3, 5].map(|offset| CODE + offset);
        let expected = [None, Some(0), Some(1), Some(2), None];
        assert_eq!(align(&lines, &callers), expected);

        // As many as possible.
        let lines = [address(2, true), address(1, false), address(2, false)];
        let callers = [1, 2].map(|offset| CODE + offset);
        assert_eq!(align(&lines, &callers), [None, Some(0), Some(1)]);
        assert_eq!(align(&lines, &[]), [None; 3]);
        assert_eq!(align(&[], &callers), []);
    }
}
