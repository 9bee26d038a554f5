//! The functions that are recorded, and where their results are.

use super::KERNEL_PART;
use super::calls::{Helper, Walk};
use crate::kernel::callchain::CALLCHAIN;
use crate::kernel::state::StateLayout;
use crate::kernel::stopped::{NotMapped, StoppedCore};
use crate::kernel::{KernelMachine as _, TRAMPOLINES};
use crate::locate;
use std::collections::HashMap;
use std::ops::Range;
use unwind_sim_recordings::kernel::{Btf, KernelImage, MissingPlace};

/// Maximum number of addresses of a stack that are read.
const WORDS_MAX: u64 = 512;

/// A function that is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hook {
    Callchain,
    KernelPart,
    Start,
    Next,
    Stack,
    StackId,
    Deferred,
    Walk(Walk),
    /// With its name, and the argument that is where it stores.
    Save(&'static str, usize),
    SaveUser,
    Trace,
    Print,
    Registers,
}

impl Hook {
    /// Whether it concerns walks that are no callchains of perf.
    const fn is_of_walks(self) -> bool {
        matches!(
            self,
            Hook::Walk(_)
                | Hook::Save(..)
                | Hook::SaveUser
                | Hook::Trace
                | Hook::Print
                | Hook::Registers
        )
    }
}

/// The names of the functions, and whether a kernel without one cannot be recorded.
pub(super) const FUNCTIONS: [(&str, Hook, bool); 24] = [
    (KERNEL_PART, Hook::KernelPart, true),
    ("__unwind_start", Hook::Start, true),
    ("unwind_next_frame", Hook::Next, true),
    (CALLCHAIN, Hook::Callchain, false),
    // The helpers by kind of program; all call the first one, or are made of it by the compiler.
    ("bpf_get_stack", Hook::Stack, false),
    ("bpf_get_stack_tp", Hook::Stack, false),
    ("bpf_get_stack_raw_tp", Hook::Stack, false),
    ("bpf_get_stackid", Hook::StackId, false),
    ("bpf_get_stackid_tp", Hook::StackId, false),
    ("bpf_get_stackid_raw_tp", Hook::StackId, false),
    ("bpf_get_stack_sleepable", Hook::Stack, false),
    // Since 6.19.
    ("perf_unwind_deferred_callback", Hook::Deferred, false),
    // The walks of `kernel/stacktrace.c`, and what they are made of.
    ("arch_stack_walk", Hook::Walk(Walk::Plain), false),
    (
        "arch_stack_walk_reliable",
        Hook::Walk(Walk::Reliable),
        false,
    ),
    ("stack_trace_save", Hook::Save("stack_trace_save", 0), false),
    (
        "stack_trace_save_tsk",
        Hook::Save("stack_trace_save_tsk", 1),
        false,
    ),
    (
        "stack_trace_save_regs",
        Hook::Save("stack_trace_save_regs", 1),
        false,
    ),
    (
        "stack_trace_save_tsk_reliable",
        Hook::Save("stack_trace_save_tsk_reliable", 1),
        false,
    ),
    ("stack_trace_save_user", Hook::SaveUser, false),
    // What is printed. The second is a part of the first in some kernels, and alone in others.
    (TRACES[0], Hook::Trace, false),
    (TRACES[1], Hook::Trace, false),
    ("_printk", Hook::Print, false),
    ("show_iret_regs", Hook::Registers, false),
    ("__show_regs", Hook::Registers, false),
];

/// The functions that print a walk.
const TRACES: [&str; 2] = ["show_trace_log_lvl", "__show_trace_log_lvl"];

/// Where the functions are.
pub(super) struct Hooks {
    at: HashMap<u64, Hook>,
    /// A bit for each value of some bits of an address: most addresses are told apart by it.
    bits: [u64; BITS / 64],
    /// Offset of `entry` in `struct perf_callchain_entry_ctx`.
    pub(super) entry: u64,
    pub(super) state: StateLayout,
    /// The code to which a probed function returns instead of its caller.
    pub(super) trampolines: Vec<Range<u64>>,
    /// The code of the functions that print a walk.
    pub(super) traces: Vec<Range<u64>>,
    /// `struct unwind_stacktrace`, if the kernel has it.
    pub(super) trace: Option<TraceLayout>,
    buckets: Option<BucketLayout>,
}

const BITS: usize = 4096;

/// Offsets in `struct unwind_stacktrace`.
#[derive(Clone, Copy)]
pub(super) struct TraceLayout {
    count: u64,
    entries: u64,
}

impl TraceLayout {
    /// The addresses.
    pub(super) fn read(
        &self,
        machine: &mut StoppedCore<'_>,
        at: u64,
    ) -> Result<Vec<u64>, NotMapped> {
        let count = machine.word(at.wrapping_add(self.count))? & 0xffff_ffff;
        let entries = machine.word(at.wrapping_add(self.entries))?;
        words(machine, entries, count)
    }
}

/// Offsets in `struct bpf_stack_map` and `struct stack_map_bucket`.
#[derive(Clone, Copy)]
struct BucketLayout {
    buckets: u64,
    count: u64,
    data: u64,
}

impl BucketLayout {
    fn new(btf: &Btf) -> Option<BucketLayout> {
        Some(BucketLayout {
            buckets: btf.offset("bpf_stack_map", "buckets")?,
            count: btf.offset("stack_map_bucket", "nr")?,
            data: btf.offset("stack_map_bucket", "data")?,
        })
    }
}

impl Hooks {
    /// Those of an image that is moved up by `bias`, or only those of perf's callchains.
    pub(super) fn new(
        image: &KernelImage,
        bias: u64,
        is_only_perf: bool,
    ) -> Result<Hooks, MissingPlace> {
        let range = image.range.start.wrapping_add(bias)..image.range.end.wrapping_add(bias);
        let mut at = HashMap::new();
        let mut bits = [0; BITS / 64];
        let wanted = FUNCTIONS.into_iter();
        let wanted = wanted.filter(|(_, hook, _)| !is_only_perf || !hook.is_of_walks());
        for (name, hook, is_needed) in wanted {
            let found = locate(Some(&image.image), bias, &range, name);
            if found.is_empty() && is_needed {
                return Err(MissingPlace::Symbol(name));
            }
            for address in found {
                let bit = bit(address);
                bits[bit / 64] |= 1 << (bit % 64);
                at.insert(address, hook);
            }
        }

        let btf = image.btf.as_ref().ok_or(MissingPlace::Types)?;
        let member = |structure: &'static str, path: &'static str| {
            let offset = btf.offset(structure, path);
            offset.ok_or(MissingPlace::Member { structure, path })
        };
        let code_of = |name: &str| {
            let start = image.symbols.address(name)?;
            let later = image.symbols.iter().map(|symbol| symbol.address);
            let end = later.filter(|&address| address > start).min()?;
            Some(start.wrapping_add(bias)..end.wrapping_add(bias))
        };
        let in_trace = |path| btf.offset("unwind_stacktrace", path);
        Ok(Hooks {
            at,
            bits,
            entry: member("perf_callchain_entry_ctx", "entry")?,
            state: StateLayout::new(btf).ok_or(MissingPlace::Member {
                structure: "unwind_state",
                path: "sp",
            })?,
            trace: in_trace("nr")
                .zip(in_trace("entries"))
                .map(|(count, entries)| TraceLayout { count, entries }),
            trampolines: TRAMPOLINES.into_iter().filter_map(code_of).collect(),
            traces: TRACES.into_iter().filter_map(code_of).collect(),
            buckets: BucketLayout::new(btf),
        })
    }

    /// The function that begins at this address.
    #[inline]
    pub(super) fn at(&self, address: u64) -> Option<Hook> {
        let bit = bit(address);
        let may_be = self.bits[bit / 64] & 1 << (bit % 64) != 0;
        may_be.then(|| self.at.get(&address).copied()).flatten()
    }

    /// The stack that a helper gave, whose `result` is the length in bytes or the number of the stack.
    pub(super) fn filled(
        &self,
        machine: &mut StoppedCore<'_>,
        helper: Helper,
        result: u64,
    ) -> Result<Vec<u64>, NotMapped> {
        match (helper, self.buckets) {
            (Helper::Stack { buffer }, _) => words(machine, buffer, result / 8),
            (Helper::StackId { map }, Some(layout)) => {
                let bucket = map.wrapping_add(layout.buckets);
                let bucket = machine.word(bucket.wrapping_add(8 * result))?;
                let count = machine.word(bucket.wrapping_add(layout.count))? & 0xffff_ffff;
                words(machine, bucket.wrapping_add(layout.data), count)
            }
            (Helper::StackId { .. }, None) => Ok(Vec::new()),
        }
    }
}

/// Functions begin at multiples of 16 bytes, perhaps behind some bytes of padding.
#[inline]
fn bit(address: u64) -> usize {
    (address >> 4) as usize % BITS
}

/// This number of words, but not too many.
pub(super) fn words(
    machine: &mut StoppedCore<'_>,
    at: u64,
    count: u64,
) -> Result<Vec<u64>, NotMapped> {
    let bytes = machine.read(at, 8 * count.min(WORDS_MAX) as usize)?;
    let words = bytes.as_chunks::<8>().0.iter();
    Ok(words.map(|word| u64::from_le_bytes(*word)).collect())
}
