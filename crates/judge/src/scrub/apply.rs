//! Makes the scrubbed copy of one sample.

use super::address::is_address;
use super::kept::Kept;
use super::watched::Part;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use unwind_sim_recordings::model::{KernelSample, RecordedChain, Region, Sample};
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::start::SampleRegs;
use unwind_sim_unwind::truth::{TrueFrame, Truth};

/// How much is kept. The first level that changes no result is taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Level {
    /// Of the registers that a call may change, only addresses of code and stacks.
    Least,
    /// All registers that can be addresses: a row may depend on any of them.
    Registers,
    /// What is read, as it is.
    AsItIs,
}

impl Level {
    pub(super) const ALL: [Level; 3] = [Level::Least, Level::Registers, Level::AsItIs];
}

/// A scrubbed sample, with what was kept of it.
pub(super) struct Applied {
    pub(super) sample: Sample<'static>,
    pub(super) kept: Kept,
}

/// The sample of `view`, of which only `read` and addresses are kept.
pub(super) fn apply(view: &View<'_>, read: &[Part], level: Level) -> Applied {
    let sample = view.sample;
    let words = Words::of(view, level);
    let mut kept = Kept {
        samples: 1,
        as_they_are: u64::from(level == Level::AsItIs),
        ..Kept::default()
    };

    let regions = sample.regions.iter().map(|region| Region {
        role: region.role,
        bounds: region.bounds.clone(),
        next_sp: region.next_sp,
        address: region.address,
        bytes: words.memory(region, read, &mut kept).into(),
    });
    let regions = regions.collect();

    // Registers, branches and recorded chains may hold data, too: all words go through the same
    // rule.
    let mut of_regs = |regs: &Regs| words.regs(regs, &mut kept);
    let regs = SampleRegs {
        sampled: of_regs(&sample.regs.sampled),
        fetch: sample.regs.fetch.as_ref().map(&mut of_regs),
        own: sample.regs.own.as_ref().map(&mut of_regs),
    };

    let kernel = sample.kernel.as_ref().map(|kernel| {
        let mut kernel: KernelSample = (**kernel).clone();
        if let Some(user) = &mut kernel.user {
            user.regs = user.regs.as_ref().map(&mut of_regs);
            // A uretprobe has replaced these return addresses on the stack; the walk reads them
            // here instead.
            for original in user.uretprobes.iter_mut().flat_map(|u| &mut u.originals) {
                *original = words.number(*original);
            }
        }
        Box::new(kernel)
    });

    let recorded = sample.recorded.iter().map(|chain| RecordedChain {
        source: chain.source.clone(),
        ips: chain.ips.iter().map(|&ip| words.number(ip)).collect(),
        request: chain.request,
    });

    // Of a branch record only the addresses are words; its flags are bits.
    let mut branches = sample.branches.clone();
    for entry in branches.iter_mut().flat_map(|stack| &mut stack.entries) {
        (entry.from, entry.to) = (words.number(entry.from), words.number(entry.to));
    }

    Applied {
        sample: Sample {
            pid: sample.pid,
            tid: sample.tid,
            time: sample.time,
            regs,
            regions,
            truth: words.truth(&sample.truth),
            recorded: recorded.collect(),
            branches,
            kernel,
            // What walks read there is in the regions.
            process_memory: None,
        },
        kept,
    }
}

/// What becomes of the words of one sample.
struct Words<'a> {
    space: &'a AddressSpace,
    stacks: Vec<Range<u64>>,
    level: Level,
    /// The numbers that stand for words that cannot be addresses.
    numbers: RefCell<HashMap<u64, u64>>,
}

/// Why a word of memory is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    Code,
    Stack,
}

impl<'a> Words<'a> {
    fn of(view: &View<'a>, level: Level) -> Words<'a> {
        let regions = view.sample.regions.iter();
        let stacks = regions.flat_map(|region| {
            // The first address behind a stack is where a frame may end.
            let end = region.address.saturating_add(region.bytes.len() as u64);
            let bounds = &region.bounds;
            [
                region.address..end.saturating_add(1),
                bounds.start..bounds.end.saturating_add(u64::from(!bounds.is_empty())),
            ]
        });
        Words {
            space: view.space,
            stacks: stacks.filter(|range| !range.is_empty()).collect(),
            level,
            numbers: RefCell::default(),
        }
    }

    fn address(&self, word: u64) -> Option<Why> {
        if self.space.is_text(word) || self.space.is_text(word.wrapping_sub(1)) {
            return Some(Why::Code);
        }
        let on_stack = self.stacks.iter().any(|stack| stack.contains(&word));
        on_stack.then_some(Why::Stack)
    }

    /// What stands for a word that is needed: itself if it can be an address.
    fn number(&self, word: u64) -> u64 {
        if is_address(word) || self.level == Level::AsItIs {
            return word;
        }
        let mut numbers = self.numbers.borrow_mut();
        let next = numbers.len() as u64 + 1;
        *numbers.entry(word).or_insert_with(|| stand_in(word, next))
    }

    fn regs(&self, regs: &Regs, kept: &mut Kept) -> Regs {
        let mut out = Regs::UNKNOWN;
        for reg in Reg::ALL {
            let Some(value) = regs.get(reg) else {
                continue;
            };
            let is_carried = Reg::CALLEE_SAVED.contains(&reg) || self.level > Level::Least;
            let new = match reg {
                Reg::Rflags | Reg::Cs => value,
                Reg::Rip | Reg::Rsp => self.number(value),
                _ if self.address(value).is_some() => value,
                _ if is_carried => self.number(value),
                _ => 0,
            };
            kept.registers += u64::from(new != value);
            out.set(reg, new);
        }
        out
    }

    fn truth(&self, truth: &Truth) -> Truth {
        let frame = |frame: &TrueFrame| TrueFrame {
            pc: self.number(frame.pc),
            cfa: self.number(frame.cfa),
            kind: frame.kind,
            saved: frame.saved.map(|saved| saved.map(|word| self.number(word))),
        };
        let frames = |frames: &[TrueFrame]| frames.iter().map(frame).collect();
        match truth {
            Truth::Unknown => Truth::Unknown,
            Truth::Known(known) => Truth::Known(frames(known)),
            Truth::Complete(all) => Truth::Complete(frames(all)),
        }
    }

    fn memory(&self, region: &Region<'_>, read: &[Part], kept: &mut Kept) -> Vec<u8> {
        let mut copy = Copy {
            start: region.address,
            from: &region.bytes,
            to: vec![0; region.bytes.len()],
            known: vec![false; region.bytes.len()],
        };

        // A scan reads every word, and uses those that are addresses: these are kept.
        for address in copy.words() {
            match copy.word(address).and_then(|word| self.address(word)) {
                None => {}
                Some(why) => {
                    copy.keep(address, 8);
                    match why {
                        Why::Code => kept.code += 1,
                        Why::Stack => kept.stack += 1,
                    }
                }
            }
        }

        // Of what walks read, a whole word that is not an address is replaced by a stand-in.
        let mut needed = Vec::new();
        for &(address, len) in read {
            for at in (0..len).step_by(8) {
                let (address, len) = (address.wrapping_add(at), (len - at).min(8));
                match copy.word(address).filter(|_| len == 8) {
                    Some(word) if self.number(word) != word => needed.push((address, word)),
                    _ => kept.read += u64::from(copy.keep(address, len)),
                }
            }
        }

        // After all that is kept: a stand-in must not take the place of bytes that another read
        // needs as they are.
        for (address, word) in needed {
            kept.replaced += u64::from(copy.put(address, self.number(word)));
        }

        // Counted last, when it is settled what became of each word.
        for address in copy.words() {
            let was = copy.word(address).is_some_and(|word| word != 0);
            kept.words += u64::from(was);
            kept.zeroed += u64::from(was && !copy.is_known(address));
        }

        copy.to
    }
}

/// A number that is no address either: with the sign, so that it compares with addresses as the word
/// did, and with its alignment.
pub(super) fn stand_in(word: u64, number: u64) -> u64 {
    const NO_ADDRESS: u64 = 0x2bad_0000_0000_0000;
    const SAME: u64 = 1 << 63 | 7;
    (word & SAME) | NO_ADDRESS | number << 4
}

/// A part of memory as it is copied.
struct Copy<'a> {
    start: u64,
    from: &'a [u8],
    to: Vec<u8>,
    /// Which bytes have been copied.
    known: Vec<bool>,
}

impl Copy<'_> {
    /// The addresses of the whole aligned words.
    fn words(&self) -> impl Iterator<Item = u64> + use<> {
        let first = self.start.wrapping_add(7) & !7;
        let skipped = first.wrapping_sub(self.start);
        let count = (self.from.len() as u64).saturating_sub(skipped) / 8;
        (0..count).map(move |i| first.wrapping_add(8 * i))
    }

    /// Where `len` bytes at `address` are.
    fn place(&self, address: u64, len: u64) -> Option<Range<usize>> {
        let start = usize::try_from(address.wrapping_sub(self.start)).ok()?;
        let end = start.checked_add(usize::try_from(len).ok()?)?;
        (end <= self.from.len()).then_some(start..end)
    }

    fn word(&self, address: u64) -> Option<u64> {
        let bytes = &self.from[self.place(address, 8)?];
        Some(u64::from_le_bytes(*bytes.first_chunk()?))
    }

    fn is_known(&self, address: u64) -> bool {
        let place = self.place(address, 8);
        place.is_some_and(|place| self.known[place].iter().all(|known| *known))
    }

    /// Copies bytes. Whether any of them was new and not zero.
    fn keep(&mut self, address: u64, len: u64) -> bool {
        let Some(place) = self.place(address, len) else {
            return false;
        };
        let mut is_new = false;
        for at in place {
            is_new |= !self.known[at] && self.from[at] != 0;
            self.to[at] = self.from[at];
            self.known[at] = true;
        }
        is_new
    }

    /// Puts a word where nothing was copied. Whether any byte was new.
    fn put(&mut self, address: u64, word: u64) -> bool {
        let Some(place) = self.place(address, 8) else {
            return false;
        };
        let mut is_new = false;
        for (at, byte) in place.zip(word.to_le_bytes()) {
            if !self.known[at] {
                self.to[at] = byte;
                self.known[at] = true;
                is_new = true;
            }
        }
        is_new
    }
}
