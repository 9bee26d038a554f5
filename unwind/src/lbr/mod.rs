//! The LBR unwinder: the processor's ring of branch records, in call-stack mode, is the chain.
//!
//! A call pushed where it was and where it went, a return popped that again (Intel SDM volume 3B,
//! "LBR Call-Stack"); so the ring, newest first, is the calls that have not returned. It reads no
//! memory and no register but rip. What it cannot see: frames beyond the ring's depth, functions
//! that were entered otherwise than by a call (signal handlers), and those that ended otherwise
//! than by a return (`longjmp`, exceptions), whose records stay.
//!
//! Not here: the ring itself, and putting the rings of two samples together.

use crate::address::CodeAddress;
use crate::chain::{End, How, Sink, Step};
use crate::image::AddressSpace;
use crate::insn::{INSN_BYTES_MAX, Insn, classify};
use crate::reason::Reason;
use crate::regs::Reg;
use crate::start::Start;
use crate::walk::Limits;
use alloc::vec::Vec;

/// One record of a branch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Branch {
    /// The address of the call.
    pub from: u64,
    /// Where it went.
    pub to: u64,
}

/// What a ring in call-stack mode held when a sample was taken.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BranchStack {
    /// How many records the ring has room for; 0 if that is not known.
    pub depth: u32,
    /// The place of the newest in the ring, as perf's `hw_idx` counts them.
    pub hw_index: Option<u64>,
    /// Newest first.
    pub entries: Vec<Branch>,
}

/// The branch records of one sample.
#[derive(Clone, Copy, Default)]
pub struct Branches<'a> {
    /// What each ring held; recordings of this machine have one, others may have one for each
    /// depth.
    pub stacks: &'a [BranchStack],
    /// For each of them, where the calls were that samples before still held, nearest first; empty
    /// if nobody put them together.
    pub stitched: &'a [Vec<u64>],
}

/// Which ring is read, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LbrOptions {
    /// The ring of this depth; `None` for the first one.
    pub depth: Option<u32>,
    /// Go on behind its end with what samples before held.
    pub stitch: bool,
}

/// Reports the sampled pc, where the start knows it, and the calls of the ring, newest first.
///
/// A record holds the call and not the return address: that is found by the call's length where
/// `space` has its code; else the call itself is reported, as an instruction.
pub fn walk<S: Sink>(
    start: &Start,
    space: &AddressSpace,
    branches: Branches<'_>,
    options: LbrOptions,
    limits: &Limits,
    sink: &mut S,
) -> End {
    if let Some(rip) = start.regs.get(Reg::Rip) {
        sink.frame(Step {
            pc: CodeAddress::Instruction(rip),
            sp: start.regs.rsp(),
            slot: None,
            how: How::Start,
        });
    }
    let wanted = |s: &BranchStack| options.depth.is_none_or(|depth| depth == s.depth);
    let Some(at) = branches.stacks.iter().position(wanted) else {
        return Reason::NoBranchRecords.into();
    };
    let stack = &branches.stacks[at];
    let older = branches.stitched.get(at).filter(|_| options.stitch);
    let own = stack.entries.iter().map(|b| (b.from, false));
    let older = older.into_iter().flatten().map(|&from| (from, true));
    let limit = limits.frames_max;
    for (n, (from, stitched)) in (1u32..).zip(own.chain(older)) {
        if n >= limit {
            return Reason::FrameLimit { limit }.into();
        }
        sink.frame(Step {
            pc: return_address(space, from),
            sp: 0,
            slot: None,
            how: How::Branch { from, stitched },
        });
    }
    let depth = stack.depth;
    match depth != 0 && stack.entries.len() as u64 >= u64::from(depth) {
        true => Reason::LbrDepth { depth }.into(),
        // Whether this was the first call of the thread, or older records were overwritten before
        // newer ones were popped, the ring does not say.
        false => Reason::NotAtRoot.into(),
    }
}

/// The address behind the call at `from`, if its code is known and is one.
fn return_address(space: &AddressSpace, from: u64) -> CodeAddress {
    let mapping = space.find(from);
    let code = mapping.and_then(|m| Some((m.image.as_ref()?, m.svma(from))));
    let code = code.map_or(&[][..], |(image, at)| image.text_bytes(at, INSN_BYTES_MAX));
    match classify(code) {
        Insn::Call { len, .. } if usize::from(len) <= code.len() => {
            CodeAddress::Return(from.wrapping_add(u64::from(len)))
        }
        _ => CodeAddress::Instruction(from),
    }
}

#[cfg(test)]
mod tests;
