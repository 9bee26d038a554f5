//! `replay --confirm`: resumes a recorded stack in the emulated machine. A frame of a chain is
//! confirmed if execution returns to it.
//!
//! This is the only truth that an import can have. It reaches as far as the machine can execute
//! with what was recorded. It stops at the end of the thread, a return from a signal handler, an
//! instruction that is not modelled, or memory that is not in the recording. Frames outside the
//! last return are unjudged.
//!
//! System calls are answered by the emulated kernel, as for a process without files: no file name
//! exists, only empty standard streams are open, there are no other threads, and calls that would
//! block are interrupted (`EINTR`). Each answer is an assumption. It may change the path of the
//! program, but not the caller that a function returns to. Assumptions are counted, and frames
//! confirmed after one are counted separately. Registers and memory come from [`Source`].

mod source;
mod tally;

pub use source::{NotResumable, Source, SourceError};
pub use tally::{Counts, Tally, call_name};

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use unwind_sim_emulator::linux::{
    Kernel, Outcome, ProcessObserver, ProcessOptions, SignalOrigin, SystemCall,
};
use unwind_sim_emulator::machine::{BlockId, Executed};
use unwind_sim_emulator::{Core, Exception, Observer, Processor};
use unwind_sim_record::shadow::Shadow;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::chain::Frame;
use unwind_sim_unwind::insn::{Insn, SYS_RT_SIGRETURN};

/// The number of rsp.
const RSP: usize = 4;
/// The number of instructions between checks for a lost shadow stack.
const SLICE: u64 = 1 << 12;
/// The maximum number of interrupted calls; after that the thread is assumed to block forever.
const INTERRUPTED_MAX: u64 = 100;
/// The maximum number of jumps that are remembered.
const JUMPS_MAX: usize = 1 << 12;

/// A return out of a frame that existed when the sample was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Return {
    /// The address of the return address.
    pub slot: u64,
    /// The address that execution returned to.
    pub to: u64,
    /// Frames may have been left in another way before, because there was a jump through a
    /// register, as in `longjmp`, a tail call, or a function that popped its return address.
    pub after_jump: bool,
    /// The number of system call results assumed before the return.
    pub assumed: u64,
}

/// What happened after a sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resumed {
    /// The returns, innermost first.
    pub returns: Vec<Return>,
    /// The first jumps through a register: rsp and rip after the jump, and the number of system
    /// call results assumed before it.
    pub jumps: HashMap<(u64, u64), u64>,
    /// The system calls whose results were assumed, by number, and how often.
    pub assumed: BTreeMap<u64, u64>,
    /// The number of system calls that would have blocked and were interrupted.
    pub interrupted: u64,
    /// The number of executed instructions.
    pub instructions: u64,
    /// The address of the next instruction.
    pub rip: u64,
    /// Why it stopped.
    pub end: End,
}

/// Why a resumed thread stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The limit of instructions was reached.
    Limit,
    /// It made this system call, which cannot be answered.
    Kernel(u64),
    /// This signal killed it.
    Killed(u8),
    /// It used too much memory.
    Memory,
    /// It changed stacks, so the frame of a return is no longer known.
    Stacks,
    /// The processor raised an exception, usually for memory that is not recorded.
    Exception(Exception),
    /// It reached an instruction that is not modelled.
    Unsupported,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::Limit => f.write_str("the limit of instructions was reached"),
            End::Kernel(number) => write!(f, "system call {number} cannot be answered"),
            End::Killed(signal) => write!(f, "signal {signal} killed it"),
            End::Memory => f.write_str("it used too much memory"),
            End::Stacks => f.write_str("it changed stacks"),
            End::Exception(Exception::Memory(fault)) => {
                write!(f, "{fault}, or it is not recorded")
            }
            End::Exception(exception) => write!(f, "the processor raised {exception:?}"),
            End::Unsupported => f.write_str("an instruction that is not modelled"),
        }
    }
}

/// Resumes `state` on `processor` for at most `instructions_max` instructions. `root` is an empty
/// folder.
pub fn resume(core: Core, processor: Processor, instructions_max: u64, root: &Path) -> Resumed {
    let mut watch = Watch {
        shadow: Shadow::middle(&core),
        returns: Vec::new(),
        jumps: HashMap::new(),
        jumped: false,
        is_lost: false,
        is_over: false,
        assumed: BTreeMap::new(),
        number: 0,
    };

    let mut process = Kernel::resume(
        core,
        ProcessOptions {
            root: root.to_owned(),
            processor,
            ..ProcessOptions::default()
        },
    );

    let mut interrupted = 0;
    let end = loop {
        // In slices: a lost or finished watch is seen between two of them.
        let left = instructions_max.saturating_sub(process.executed());
        let outcome = process.run(left.min(SLICE), &mut watch);

        break match outcome {
            // First, whatever the outcome: after the shadow stack is lost, no return proves
            // anything.
            _ if watch.is_lost => End::Stacks,
            _ if watch.is_over => End::Kernel(SYS_RT_SIGRETURN),
            Outcome::Limit if left <= SLICE => End::Limit,
            Outcome::Limit => continue,
            // There is no other thread that could wake it. The bound is for a thread that tries
            // again forever.
            Outcome::Blocked { .. } if interrupted < INTERRUPTED_MAX && process.interrupt() => {
                interrupted += 1;
                continue;
            }
            Outcome::Killed {
                why: SignalOrigin::Exception(exception),
                ..
            } => End::Exception(exception),
            Outcome::Killed { signal, .. } => End::Killed(signal),
            Outcome::OutOfPages { .. } | Outcome::OutOfTasks { .. } => End::Memory,
            Outcome::Unsupported { .. } => End::Unsupported,
            _ => End::Kernel(watch.number),
        };
    };

    if let End::Kernel(number) = end
        && let Some(count) = watch.assumed.get_mut(&number)
    {
        // Nothing followed the last call.
        *count -= 1;
        if *count == 0 {
            watch.assumed.remove(&number);
        }
    }

    Resumed {
        returns: watch.returns,
        jumps: watch.jumps,
        assumed: watch.assumed,
        interrupted,
        instructions: process.executed(),
        rip: process.machine.core.state.rip,
        end,
    }
}

/// Observes the returns out of the sampled frames.
struct Watch {
    shadow: Shadow,
    returns: Vec<Return>,
    jumps: HashMap<(u64, u64), u64>,
    jumped: bool,
    is_lost: bool,
    is_over: bool,
    /// How often each system call was answered.
    assumed: BTreeMap<u64, u64>,
    number: u64,
}

impl Watch {
    fn assumed(&self) -> u64 {
        self.assumed.values().sum()
    }
}

impl ProcessObserver for Watch {
    fn system_call(&mut self, call: &SystemCall, core: &Core) {
        self.number = call.number;
        *self.assumed.entry(call.number).or_default() += 1;
        // Returns from a handler are not observed, nor is anything after them.
        self.is_over |= call.number == SYS_RT_SIGRETURN;
        self.shadow.system_call(call, core);
    }
}

impl Observer for Watch {
    fn enter(&mut self, _: &Core, block: Option<BlockId>, operations: usize, _: u64) -> usize {
        self.shadow.enter(block, operations);
        0
    }

    fn before(&mut self, core: &Core, insn: &Executed) {
        self.shadow.before(core, insn);
    }

    fn after(&mut self, core: &Core, _: &Executed, next: u64) {
        let (outside, before) = (self.shadow.is_outside(), self.shadow.stats());

        // The state of before the step says whether the frame existed when the sample was taken.
        let slot = self.shadow.rsp_before();
        let insn = self.shadow.after(core, next);

        if self.is_lost || self.is_over || !outside {
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
                    assumed: self.assumed(),
                });
                self.jumped = false;
            }
            // An address that was put there returns by a jump, too.
            Insn::JumpIndirect | Insn::Far | Insn::Ret if !self.is_lost || insn != Insn::Ret => {
                self.jumped = true;
                if self.jumps.len() < JUMPS_MAX {
                    let assumed = self.assumed();
                    self.jumps
                        .entry((core.state.gpr(RSP), next))
                        .or_insert(assumed);
                }
            }
            _ => {}
        }
    }
}

/// What is known about a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judgement {
    /// Execution returned to the frame from the slot that the chain gives, after this many results
    /// of system calls were assumed.
    Confirmed(u64),
    /// Execution made this return instead: past the frame, or from its slot to another address.
    Contradicted(Return),
    /// Nothing is known.
    Unjudged,
}

/// Judges the frames of a chain, innermost first. The first frame is not returned to.
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
    // A function with its return address in a register returns by a jump.
    if let Some(&assumed) = resumed.jumps.get(&(frame.sp, pc)) {
        return Judgement::Confirmed(assumed);
    }
    let Some(reached) = resumed.returns.iter().find(|r| r.slot >= slot) else {
        return Judgement::Unjudged;
    };
    match (reached.slot == slot, reached.to == pc) {
        (true, true) => Judgement::Confirmed(reached.assumed),
        // The frames in between were left by a jump.
        (false, _) if reached.after_jump => Judgement::Unjudged,
        _ => Judgement::Contradicted(*reached),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unwind_sim_unwind::chain::FoundBy;

    fn frame(pc: CodeAddress, sp: u64) -> Frame {
        Frame {
            pc,
            sp,
            slot: None,
            found: FoundBy::External,
        }
    }

    fn reached(slot: u64, to: u64, after_jump: bool) -> Return {
        Return {
            slot,
            to,
            after_jump,
            assumed: 2,
        }
    }

    #[test]
    fn only_what_was_seen_is_judged() {
        let resumed = Resumed {
            returns: vec![reached(0x100, 10, false), reached(0x200, 20, true)],
            jumps: [((0x190, 15), 1)].into(),
            assumed: [(1, 2)].into(),
            interrupted: 0,
            instructions: 9,
            rip: 0,
            end: End::Limit,
        };

        // A frame's sp is that of after the return to it, so the slot is the word below.
        let judged = |pc, sp| judge_frame(&frame(CodeAddress::Return(pc), sp), &resumed);
        assert_eq!(judged(10, 0x108), Judgement::Confirmed(2));
        assert_eq!(judged(20, 0x208), Judgement::Confirmed(2));

        // The first return from this slot or one above it decides: the stack is not as deep any
        // more.
        let first = Judgement::Contradicted(resumed.returns[0]);
        assert_eq!(judged(11, 0x108), first, "it went elsewhere");
        assert_eq!(judged(10, 0x100), first, "it came from elsewhere");
        // The return from 0x200 came after a jump, as in `longjmp`, which may have left this frame.
        assert_eq!(judged(10, 0x180), Judgement::Unjudged, "left by a jump");

        // From its own slot, a return to elsewhere contradicts the frame even after a jump.
        let second = Judgement::Contradicted(resumed.returns[1]);
        assert_eq!(judged(21, 0x208), second);
        assert_eq!(judged(30, 0x308), Judgement::Unjudged, "not reached");
        assert_eq!(judged(15, 0x190), Judgement::Confirmed(1), "by a jump");
        assert_eq!(judged(10, 0), Judgement::Unjudged, "no stack pointer");

        // Execution starts in the innermost frame; nothing returns to it.
        let top = frame(CodeAddress::Instruction(10), 0x108);
        assert_eq!(judge_frame(&top, &resumed), Judgement::Unjudged);
    }
}
