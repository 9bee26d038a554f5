//! `replay --confirm`: a recorded stack is resumed in the emulated machine, and frames of a chain
//! are confirmed by what happens: execution returns to them.
//!
//! It is the only truth that an import can have, and it reaches as far as the machine can go on
//! with what was recorded. It cannot go on behind a system call, an instruction that is not
//! modelled, or memory that is not in the recording; what lies outside of the last return is
//! unjudged. Not here: where registers and memory come from (`source`).

mod report;
mod source;

pub use report::{Tally, judgement_text, resumed_text};
pub use source::{NotResumable, Source, SourceError};

use crate::record::shadow::Shadow;
use std::collections::HashSet;
use unwind_sim_emulator::machine::{BlockId, Executed};
use unwind_sim_emulator::{Call, Exception, Exit, Machine, Observer, State};
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::chain::Frame;
use unwind_sim_unwind::truth::Insn;

/// Number of rsp.
const RSP: usize = 4;
/// Most jumps that are remembered.
const JUMPS_MAX: usize = 1 << 12;

/// A return out of what was running when the sample was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Return {
    /// Where the return address lay.
    pub slot: u64,
    /// Where it went.
    pub to: u64,
    /// Frames may have been left otherwise before: there was a jump through a register, as in
    /// `longjmp`, in a tail call, or in a function that had popped its return address.
    pub after_jump: bool,
}

/// What happened after a sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resumed {
    /// The returns, innermost first.
    pub returns: Vec<Return>,
    /// rsp and rip behind jumps through a register; the first ones.
    pub jumps: HashSet<(u64, u64)>,
    /// Instructions that were executed.
    pub instructions: u64,
    /// The next instruction.
    pub rip: u64,
    /// Why it stopped.
    pub end: End,
}

/// Why a resumed thread stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// As many instructions as allowed were executed.
    Limit,
    /// It asked the kernel: this call.
    Kernel(u64),
    /// It changed stacks: where a return belongs is not known any more.
    Stacks,
    /// The processor raised something: memory that is not recorded, mostly.
    Exception(Exception),
    /// An instruction that is not modelled.
    Unsupported,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::Limit => f.write_str("as many instructions as allowed"),
            End::Kernel(number) => write!(f, "it asked the kernel, system call {number}"),
            End::Stacks => f.write_str("it changed stacks"),
            End::Exception(Exception::Memory(fault)) => {
                write!(f, "{fault}, or it is not recorded")
            }
            End::Exception(exception) => write!(f, "the processor raised {exception:?}"),
            End::Unsupported => f.write_str("an instruction that is not modelled"),
        }
    }
}

/// Goes on from `state` for at most so many instructions.
pub fn resume(state: State, instructions_max: u64) -> Resumed {
    let mut machine = Machine::new(state);
    let mut watch = Watch {
        shadow: Shadow::middle(&machine.state),
        returns: Vec::new(),
        jumps: HashSet::new(),
        jumped: false,
        is_lost: false,
    };
    /// Instructions between looks at whether it is still known where a return belongs.
    const SLICE: u64 = 1 << 12;
    let end = loop {
        let left = instructions_max - machine.executed().min(instructions_max);
        let exit = machine.run(left.min(SLICE), &mut watch);
        let limit = machine.executed() >= instructions_max;
        break match exit {
            _ if watch.is_lost => End::Stacks,
            Exit::Limit if limit => End::Limit,
            Exit::Limit => continue,
            Exit::Exception(exception) => End::Exception(exception),
            Exit::Kernel(Call::Syscall | Call::Int80) => End::Kernel(machine.state.gpr(0)),
            Exit::Halt => End::Exception(Exception::GeneralProtection),
            Exit::Unsupported => End::Unsupported,
        };
    };
    Resumed {
        returns: watch.returns,
        jumps: watch.jumps,
        instructions: machine.executed(),
        rip: machine.state.rip,
        end,
    }
}

/// Sees the returns out of what was running.
struct Watch {
    shadow: Shadow,
    returns: Vec<Return>,
    jumps: HashSet<(u64, u64)>,
    jumped: bool,
    is_lost: bool,
}

impl Observer for Watch {
    fn enter(&mut self, _: &State, block: Option<BlockId>, operations: usize) {
        self.shadow.enter(block, operations);
    }

    fn before(&mut self, state: &State, insn: &Executed) {
        self.shadow.before(state, insn);
    }

    fn after(&mut self, state: &State, _: &Executed, next: u64) {
        let (outside, before) = (self.shadow.is_outside(), self.shadow.stats());
        let slot = self.shadow.rsp_before();
        let insn = self.shadow.after(state, next);
        if self.is_lost || !outside {
            return;
        }
        let stats = self.shadow.stats();
        // `push; ret` is a jump.
        let jumps = stats.trampolines > before.trampolines;
        self.is_lost = stats.switches > before.switches || stats.unknown > before.unknown;
        match insn {
            Insn::Ret if !jumps && !self.is_lost => {
                self.returns.push(Return {
                    slot,
                    to: next,
                    after_jump: self.jumped,
                });
                self.jumped = false;
            }
            Insn::JumpIndirect | Insn::Far => {
                self.jumped = true;
                if self.jumps.len() < JUMPS_MAX {
                    self.jumps.insert((state.gpr(RSP), next));
                }
            }
            _ => {}
        }
    }
}

/// What is known of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judgement {
    /// Execution returned to it, from where it says.
    Confirmed,
    /// Execution returned to here instead, past it or from where it says.
    Contradicted(Return),
    /// Nothing.
    Unjudged,
}

/// Judges the frames of a chain, innermost first. The one that it begins with is not returned to.
pub fn judge(frames: &[Frame], resumed: &Resumed) -> Vec<Judgement> {
    frames.iter().map(|f| judge_frame(f, resumed)).collect()
}

fn judge_frame(frame: &Frame, resumed: &Resumed) -> Judgement {
    let CodeAddress::Return(pc) = frame.pc else {
        return Judgement::Unjudged;
    };
    let Some(slot) = frame.sp.checked_sub(8) else {
        return Judgement::Unjudged;
    };
    // With its return address in a register, a function returns by a jump.
    if resumed.jumps.contains(&(frame.sp, pc)) {
        return Judgement::Confirmed;
    }
    let Some(reached) = resumed.returns.iter().find(|r| r.slot >= slot) else {
        return Judgement::Unjudged;
    };
    match (reached.slot == slot, reached.to == pc) {
        (true, true) => Judgement::Confirmed,
        // Whatever lies between was left, but by a jump.
        (false, _) if reached.after_jump => Judgement::Unjudged,
        _ => Judgement::Contradicted(*reached),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unwind_sim_unwind::chain::Found;

    fn frame(pc: CodeAddress, sp: u64) -> Frame {
        Frame {
            pc,
            sp,
            slot: None,
            found: Found::External,
        }
    }

    fn reached(slot: u64, to: u64, after_jump: bool) -> Return {
        Return {
            slot,
            to,
            after_jump,
        }
    }

    #[test]
    fn only_what_was_seen_is_judged() {
        let resumed = Resumed {
            returns: vec![reached(0x100, 10, false), reached(0x200, 20, true)],
            jumps: [(0x190, 15)].into(),
            instructions: 9,
            rip: 0,
            end: End::Limit,
        };
        let judged = |pc, sp| judge_frame(&frame(CodeAddress::Return(pc), sp), &resumed);
        assert_eq!(judged(10, 0x108), Judgement::Confirmed);
        assert_eq!(judged(20, 0x208), Judgement::Confirmed);
        let first = Judgement::Contradicted(resumed.returns[0]);
        assert_eq!(judged(11, 0x108), first, "it went elsewhere");
        assert_eq!(judged(10, 0x100), first, "it came from elsewhere");
        assert_eq!(judged(10, 0x180), Judgement::Unjudged, "left by a jump");
        let second = Judgement::Contradicted(resumed.returns[1]);
        assert_eq!(judged(21, 0x208), second);
        assert_eq!(judged(30, 0x308), Judgement::Unjudged, "not reached");
        assert_eq!(judged(15, 0x190), Judgement::Confirmed, "by a jump");
        assert_eq!(judged(10, 0), Judgement::Unjudged, "no stack pointer");
        let top = frame(CodeAddress::Instruction(10), 0x108);
        assert_eq!(judge_frame(&top, &resumed), Judgement::Unjudged);
    }
}
