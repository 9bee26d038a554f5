//! The LBR unwinder: in call-stack mode, the processor's ring of branch records is the chain.
//!
//! A call pushes its source and target, and a return pops them (Intel SDM volume 3B, "LBR
//! Call-Stack"). So the ring, newest first, lists the calls that have not returned. The unwinder
//! reads no memory and no register except rip. It cannot see frames beyond the ring's depth or
//! functions entered without a call (signal handlers). Functions that end without a return
//! (`longjmp`, exceptions) leave stale records.
//!
//! The ring is recorded elsewhere, and so is stitching the rings of two samples together.

use crate::address::CodeAddress;
use crate::chain::{End, How, Sink, Step};
use crate::image::AddressSpace;
use crate::insn::{INSN_BYTES_MAX, Insn, classify};
use crate::reason::Reason;
use crate::regs::Reg;
use crate::start::Start;
use crate::walk::Limits;
use alloc::vec::Vec;

/// A branch record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Branch {
    /// The address of the call.
    pub from: u64,
    /// The address that it called.
    pub to: u64,
}

/// The contents of a ring in call-stack mode when a sample was taken.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BranchStack {
    /// The capacity of the ring in records; 0 if unknown.
    pub depth: u32,
    /// The position of the newest record in the ring, counted as in perf's `hw_idx`.
    pub hw_index: Option<u64>,
    /// The records, newest first.
    pub entries: Vec<Branch>,
}

/// The branch records of one sample.
#[derive(Clone, Copy, Default)]
pub struct Branches<'a> {
    /// The contents of each ring. Recordings from a real machine have one; others may have one per
    /// depth.
    pub stacks: &'a [BranchStack],
    /// For each ring, the addresses of the calls that earlier samples still held, nearest first;
    /// empty if the samples were not stitched.
    pub stitched: &'a [Vec<u64>],
}

/// Which ring to read, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LbrOptions {
    /// Use the ring of this depth; `None` for the first one.
    pub depth: Option<u32>,
    /// Continue past its end with the calls that earlier samples held.
    pub stitch: bool,
}

/// Reports the sampled pc if the start knows it, then the calls of the ring, newest first.
///
/// A record holds the address of the call, not the return address. The return address follows from
/// the call's length if `space` has its code; otherwise the call itself is reported, as an
/// instruction.
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
    // Stitched calls are older than any in the ring.
    let older = older.into_iter().flatten().map(|&from| (from, true));

    let limit = limits.frames_max;
    for (n, (from, stitched)) in (1u32..).zip(own.chain(older)) {
        // The sampled pc counts as the first frame.
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
    if depth != 0 && stack.entries.len() as u64 >= u64::from(depth) {
        Reason::LbrDepth { depth }.into()
    } else {
        // Either this was the thread's first call, or older records were overwritten before newer
        // ones were popped. The ring does not tell.
        Reason::NotAtRoot.into()
    }
}

/// The address after the call at `from`, or `from` itself if its code is unknown or not a call.
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
