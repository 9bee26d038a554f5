//! The LBR unwinder reads the processor's ring of branch records. A sample without them has
//! nothing to read, and the answer says so.

use crate::address::CodeAddress;
use crate::chain::{End, How, Sink, Step};
use crate::reason::Reason;
use crate::regs::Reg;
use crate::start::Start;

/// Reports the sampled pc, and that there are no branch records.
pub fn walk<S: Sink>(start: &Start, sink: &mut S) -> End {
    if let Some(rip) = start.regs.get(Reg::Rip) {
        let (pc, sp) = (CodeAddress::Instruction(rip), start.regs.rsp());
        sink.frame(Step {
            pc,
            sp,
            slot: None,
            how: How::Start,
        });
    }
    Reason::NoBranchRecords.into()
}
