//! Functions that nothing calls by name: what lies in code that no function has.
//!
//! Such code is read from its start to its end. What may be the start of a function lies behind something
//! that ends a way, no jump leads there, and none nearby leads across: at an aligned address, or with
//! instructions that functions begin with, or where an address leads that the code computes or the data
//! contains. It counts as a function only if following it from there shows that it is one: it returns, with
//! rsp and all registers that a callee keeps as they were, on all of its ways, or jumps to the start of a known
//! function, and it goes on into no other code. A part of a function with a frame does not. In doubt there is no row.

use super::FollowedUnit;
use super::breach::Breach;
use super::function::{Function, Gap};
use super::functions::{NOT_EXECUTED, Unit};
use crate::file::File;
use crate::proof::body::is_padding;
use hashbrown::{HashMap, HashSet};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use std::collections::BTreeSet;
use std::ops::Range;

/// The distance of jumps that tell what belongs to one function, bytes; what lies farther away may be
/// a cold part, or another function.
const ACROSS_MAX: u64 = 8 << 10;
/// The alignment that compilers give to functions, bytes.
const ALIGN: u64 = 16;

/// Ranges of addresses (svma) that functions have, in order.
pub(super) struct OccupiedRanges(Vec<Range<u64>>);

impl OccupiedRanges {
    /// What of `units` is known to be theirs: of one whose end is not known, what was found.
    pub(super) fn new(units: &[Unit], followed: &HashMap<u64, FollowedUnit>) -> OccupiedRanges {
        let mut all = Vec::new();
        for unit in units {
            if !unit.is_open {
                all.push(unit.range.clone());
            }
            let kept = followed.get(&unit.range.start);
            for function in kept.iter().flat_map(|kept| &kept.functions) {
                let mut function = function.clone();
                if unit.is_open {
                    function.close();
                }
                all.push(function.range.clone());
            }
        }
        all.sort_by_key(|range| (range.start, range.end));
        OccupiedRanges(all)
    }

    /// The same ranges, in order, and joined where they overlap.
    fn joined(mut all: Vec<Range<u64>>) -> OccupiedRanges {
        all.sort_by_key(|range| (range.start, range.end));
        let mut out: Vec<Range<u64>> = Vec::new();
        for range in all {
            match out.last_mut() {
                Some(last) if range.start < last.end => last.end = last.end.max(range.end),
                _ => out.push(range),
            }
        }
        OccupiedRanges(out)
    }

    /// The addresses of `code` that are left.
    fn left(&self, code: &Range<u64>) -> Vec<Range<u64>> {
        let mut out = Vec::new();
        let mut at = code.start;
        for range in &self.0 {
            if range.start >= code.end {
                break;
            }
            if at < range.start {
                out.push(at..range.start);
            }
            at = at.max(range.end);
        }
        if at < code.end {
            out.push(at..code.end);
        }
        out
    }

    fn has(&self, address: u64) -> bool {
        let after = self.0.partition_point(|range| range.start <= address);
        // Functions hardly overlap.
        let near = self.0[..after].iter().rev().take(4);
        near.into_iter().any(|range| range.contains(&address))
    }
}

/// The addresses (svma) behind calls at which code ends: only padding follows up to an aligned address to
/// which no jump leads, or nothing up to instructions that functions begin with. Within a function,
/// compilers align nothing but where jumps lead, so that the callee does not return.
pub(super) fn ends(file: &File) -> HashSet<u64> {
    // Conditional jumps stay inside of a function; others may be tail calls.
    let (mut jumped, mut branched) = (HashSet::new(), HashSet::new());
    for code in file.code() {
        for insn in instructions(file, &code.range) {
            let Some(to) = jump(&insn) else { continue };
            jumped.insert(to);
            if insn.flow_control() == FlowControl::ConditionalBranch {
                branched.insert(to);
            }
        }
    }

    // Only now are all jumps known: one from further behind may lead back.
    let mut out = HashSet::new();
    for code in file.code() {
        let mut behind_a_call = None;
        for insn in instructions(file, &code.range) {
            // What lies between the call and the next instruction is padding, or nothing.
            let (at, before) = (insn.ip(), behind_a_call);
            if is_padding(&insn) {
                continue;
            }

            if let Some(end) = before {
                // A jump to what begins as a function does may be a tail call.
                let is_next = if begins_function(&insn) {
                    !branched.contains(&at)
                } else {
                    end < at && !jumped.contains(&at)
                } && at % ALIGN == 0;
                out.extend(is_next.then_some(end));
            }

            // Only calls are of interest: behind other instructions it is clear whether code goes
            // on.
            behind_a_call = is_call(&insn).then_some(insn.next_ip());
        }
    }

    out
}

/// The addresses (svma) in code that no function has at which one may start.
pub(super) fn find(file: &File, taken: &OccupiedRanges, ends: &HashSet<u64>) -> BTreeSet<u64> {
    let mut out = BTreeSet::new();

    // An address that data contains or code computes may be the start of a function.
    let pointed: HashSet<u64> = file.pointers().iter().map(|pointer| pointer.1).collect();
    let mut named = pointed;
    let mut left = Vec::new();

    for code in file.code() {
        let name = code.name.as_str();
        if NOT_EXECUTED.contains(&name) || name.starts_with(".plt") || name == ".iplt" {
            continue;
        }

        // Only code that no function has is looked at below.
        left.extend(taken.left(&code.range));
        named.extend(instructions(file, &code.range).filter_map(|insn| computed(&insn)));
    }

    // Jumps inside of that code say where no function starts.
    let mut jumped: HashSet<u64> = HashSet::new();
    let mut across: Vec<Range<u64>> = Vec::new();
    for range in &left {
        for insn in instructions(file, range) {
            let Some(to) = jump(&insn) else { continue };
            jumped.insert(to);
            // What a short jump leads across belongs to one function.
            let (low, high) = (to.min(insn.ip()), to.max(insn.ip()));
            if high - low <= ACROSS_MAX {
                across.push(low + 1..high + 1);
            }
        }
    }

    let across = OccupiedRanges::joined(across);
    for range in left {
        let mut is_behind_an_end = true;
        for insn in instructions(file, &range) {
            let at = insn.ip();
            if is_padding(&insn) || is_zeros(file, &insn) {
                // No way goes on behind `int3`. Other padding is passed by.
                is_behind_an_end |= insn.mnemonic() == Mnemonic::Int3;
                continue;
            }

            // Several signs together: an end before it, alignment, instructions that functions
            // begin with, a name.
            let is_named = named.contains(&at);
            let begins = begins_function(&insn);
            let is_aligned = at % ALIGN == 0;
            let may_be = is_behind_an_end && (is_aligned || begins) || is_named;
            if may_be && !jumped.contains(&at) && (begins && is_named || !across.has(at)) {
                out.insert(at);
            }

            // The next instruction may start a function if no way goes on from here.
            is_behind_an_end = ends_way(&insn) || ends.contains(&insn.next_ip());
        }
    }

    out
}

/// Whether what following code from `start` gave shows that it is a function. `units` are those that are
/// known.
pub(super) fn is_function(file: &File, units: &[Unit], start: u64, functions: &[Function]) -> bool {
    let [function] = functions else {
        return false;
    };

    // A jump to the start of a known function is a tail call, not a mistake.
    let is_start = |at: u64| units.binary_search_by_key(&at, |u| u.range.start).is_ok();
    let mut is_left = false;
    let mut last_call = 0;

    // Everything that was reached must be what a function does: it returns or jumps away.
    for (range, _) in &function.rows {
        for insn in instructions(file, range) {
            if is_call(&insn) {
                last_call = insn.next_ip();
            }
            is_left |= insn.flow_control() == FlowControl::Return;
            if let Some(to) = jump(&insn).filter(|to| !function.range.contains(to)) {
                if !is_start(to) {
                    return false;
                }
                is_left = true;
            }
        }
    }

    // It may end in a call that never returns.
    let ends_in_a_call = |at: u64| {
        let padding = last_call..at.max(last_call);
        last_call > 0 && instructions(file, &padding).all(|insn| is_padding(&insn))
    };

    let is_fine = |(at, breach): &(u64, Breach)| match breach {
        Breach::FallsThrough { .. } => ends_in_a_call(*at),
        // Rules of the kernel, which others need not follow.
        Breach::NoFrame | Breach::ScratchBp => true,
        _ => false,
    };

    // All of this must hold; what is doubtful is not made a function.
    function.range.start == start
        && is_left
        && function.silent.is_empty()
        && function.breaches.iter().all(is_fine)
        && function.gaps.iter().all(|gap| gap.0 == Gap::IndirectJump)
}

fn instructions<'f>(file: &'f File, range: &Range<u64>) -> impl Iterator<Item = Instruction> + 'f {
    let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    let bytes = file.bytes(range.start);
    let bytes = &bytes[..bytes.len().min(length)];
    Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE).into_iter()
}

/// Whether an instruction is bytes of zero, with which some linkers fill.
fn is_zeros(file: &File, insn: &Instruction) -> bool {
    let bytes = file.bytes(insn.ip());
    bytes.iter().take(insn.len()).all(|&byte| byte == 0)
}

/// Where a direct jump leads.
fn jump(insn: &Instruction) -> Option<u64> {
    let is_jump = matches!(
        insn.flow_control(),
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
    );
    (is_jump && insn.op0_kind() == OpKind::NearBranch64).then(|| insn.near_branch64())
}

/// The address that `lea` or `mov` puts into a register.
fn computed(insn: &Instruction) -> Option<u64> {
    match insn.mnemonic() {
        Mnemonic::Lea if insn.is_ip_rel_memory_operand() => Some(insn.memory_displacement64()),
        Mnemonic::Mov => match insn.op1_kind() {
            OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64 => {
                Some(insn.immediate(1))
            }
            _ => None,
        },
        _ => None,
    }
}

fn is_call(insn: &Instruction) -> bool {
    matches!(
        insn.flow_control(),
        FlowControl::Call | FlowControl::IndirectCall
    )
}

fn ends_way(insn: &Instruction) -> bool {
    matches!(
        insn.flow_control(),
        FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
    ) || matches!(
        insn.mnemonic(),
        Mnemonic::Ud2 | Mnemonic::Int3 | Mnemonic::Hlt
    )
}

/// Whether functions begin with this: `endbr64`, a push of a register that a callee keeps, or a lowered rsp.
fn begins_function(insn: &Instruction) -> bool {
    match insn.mnemonic() {
        Mnemonic::Endbr64 => true,
        Mnemonic::Push => matches!(
            insn.op0_register(),
            Register::RBP
                | Register::RBX
                | Register::R12
                | Register::R13
                | Register::R14
                | Register::R15
        ),
        Mnemonic::Sub => {
            insn.op0_register() == Register::RSP && insn.op1_kind() != OpKind::Register
        }
        _ => false,
    }
}
