//! `replay --confirm`: a recorded stack is resumed in the emulated machine, and frames of a chain
//! are confirmed by what happens: execution returns to them.
//!
//! It is the only truth that an import can have, and it reaches as far as the machine can go on
//! with what was recorded. It cannot go on behind the end of the thread, a return from a signal
//! handler, an instruction that is not modelled, or memory that is not in the recording; what lies
//! outside of the last return is unjudged.
//!
//! System calls are answered by the emulated kernel, as to a process without files: no name is
//! there, no descriptor is open but empty standard streams, there are no other threads, and what
//! would wait for somebody is interrupted (`EINTR`). Each answer is an assumption. It may change
//! which way the program takes, but not whom a function returns to; assumptions are counted, and
//! what was confirmed behind one is told apart. Not here: where registers and memory come from
//! (`source`).

mod source;
mod tally;

pub use source::{NotResumable, Source, SourceError};
pub use tally::{Counts, Tally, call_name};

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use unwind_sim_emulator::linux::{Options, Outcome, Process, ProcessObserver, SystemCall, Why};
use unwind_sim_emulator::machine::{BlockId, Executed};
use unwind_sim_emulator::{Exception, Observer, Processor, State};
use unwind_sim_record::shadow::Shadow;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::chain::Frame;
use unwind_sim_unwind::insn::{Insn, SYS_RT_SIGRETURN};

/// Number of rsp.
const RSP: usize = 4;
/// Instructions between looks at whether it is still known where a return belongs.
const SLICE: u64 = 1 << 12;
/// Calls that are interrupted before the thread is taken to wait for ever.
const INTERRUPTED_MAX: u64 = 100;
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
    /// Results of system calls that were assumed before.
    pub assumed: u64,
}

/// What happened after a sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resumed {
    /// The returns, innermost first.
    pub returns: Vec<Return>,
    /// rsp and rip behind jumps through a register, and the results of system calls that were
    /// assumed before; the first ones.
    pub jumps: HashMap<(u64, u64), u64>,
    /// The system calls whose results were assumed, by number, and how often.
    pub assumed: BTreeMap<u64, u64>,
    /// Those that would have waited, and were interrupted.
    pub interrupted: u64,
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
    /// It asked the kernel for what cannot be answered: this call.
    Kernel(u64),
    /// This signal killed it.
    Killed(u8),
    /// It used too much memory.
    Memory,
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

/// Goes on from `state` on `processor` for at most so many instructions. `root` is an empty folder.
pub fn resume(state: State, processor: Processor, instructions_max: u64, root: &Path) -> Resumed {
    let mut watch = Watch {
        shadow: Shadow::middle(&state),
        returns: Vec::new(),
        jumps: HashMap::new(),
        jumped: false,
        is_lost: false,
        is_over: false,
        assumed: BTreeMap::new(),
        number: 0,
    };
    let mut process = Process::resume(
        state,
        Options {
            root: root.to_owned(),
            processor,
            ..Options::default()
        },
    );
    let mut interrupted = 0;
    let end = loop {
        let left = instructions_max.saturating_sub(process.executed());
        let outcome = process.run(left.min(SLICE), &mut watch);
        break match outcome {
            _ if watch.is_lost => End::Stacks,
            _ if watch.is_over => End::Kernel(SYS_RT_SIGRETURN),
            Outcome::Limit if left <= SLICE => End::Limit,
            Outcome::Limit => continue,
            Outcome::Blocked { .. } if interrupted < INTERRUPTED_MAX && process.interrupt() => {
                interrupted += 1;
                continue;
            }
            Outcome::Killed {
                why: Why::Exception(exception),
                ..
            } => End::Exception(exception),
            Outcome::Killed { signal, .. } => End::Killed(signal),
            Outcome::OutOfPages { .. } => End::Memory,
            Outcome::Unsupported { .. } => End::Unsupported,
            _ => End::Kernel(watch.number),
        };
    };
    if let End::Kernel(number) = end
        && let Some(count) = watch.assumed.get_mut(&number)
    {
        // Nothing came behind the last one.
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
        rip: process.machine.state.rip,
        end,
    }
}

/// Sees the returns out of what was running.
struct Watch {
    shadow: Shadow,
    returns: Vec<Return>,
    jumps: HashMap<(u64, u64), u64>,
    jumped: bool,
    is_lost: bool,
    is_over: bool,
    /// The system calls that were answered, by number, and the last one.
    assumed: BTreeMap<u64, u64>,
    number: u64,
}

impl Watch {
    fn assumed(&self) -> u64 {
        self.assumed.values().sum()
    }
}

impl ProcessObserver for Watch {
    fn system_call(&mut self, call: &SystemCall, state: &State) {
        self.number = call.number;
        *self.assumed.entry(call.number).or_default() += 1;
        // A handler's return is no return that is looked for: nothing behind it is.
        self.is_over |= call.number == SYS_RT_SIGRETURN;
        self.shadow.system_call(call, state);
    }
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
            Insn::JumpIndirect | Insn::Far => {
                self.jumped = true;
                if self.jumps.len() < JUMPS_MAX {
                    let assumed = self.assumed();
                    self.jumps.entry((state.gpr(RSP), next)).or_insert(assumed);
                }
            }
            _ => {}
        }
    }
}

/// What is known of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judgement {
    /// Execution returned to it, from where it says, after so many results of system calls were
    /// assumed.
    Confirmed(u64),
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
    if let Some(&assumed) = resumed.jumps.get(&(frame.sp, pc)) {
        return Judgement::Confirmed(assumed);
    }
    let Some(reached) = resumed.returns.iter().find(|r| r.slot >= slot) else {
        return Judgement::Unjudged;
    };
    match (reached.slot == slot, reached.to == pc) {
        (true, true) => Judgement::Confirmed(reached.assumed),
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
        let judged = |pc, sp| judge_frame(&frame(CodeAddress::Return(pc), sp), &resumed);
        assert_eq!(judged(10, 0x108), Judgement::Confirmed(2));
        assert_eq!(judged(20, 0x208), Judgement::Confirmed(2));
        let first = Judgement::Contradicted(resumed.returns[0]);
        assert_eq!(judged(11, 0x108), first, "it went elsewhere");
        assert_eq!(judged(10, 0x100), first, "it came from elsewhere");
        assert_eq!(judged(10, 0x180), Judgement::Unjudged, "left by a jump");
        let second = Judgement::Contradicted(resumed.returns[1]);
        assert_eq!(judged(21, 0x208), second);
        assert_eq!(judged(30, 0x308), Judgement::Unjudged, "not reached");
        assert_eq!(judged(15, 0x190), Judgement::Confirmed(1), "by a jump");
        assert_eq!(judged(10, 0), Judgement::Unjudged, "no stack pointer");
        let top = frame(CodeAddress::Instruction(10), 0x108);
        assert_eq!(judge_frame(&top, &resumed), Judgement::Unjudged);
    }
}
