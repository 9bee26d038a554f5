//! Deadlocks of a program in the emulated machine: who waits, where, and for what.
//!
//! Not here: finding out that nobody can go on, which the machine does.

use super::images::Images;
use crate::engine::Engine;
use std::path::{Path, PathBuf};
use unwind_sim_emulator::linux::{Kernel, MappedFile, Task};
pub use unwind_sim_emulator::linux::{OwnerKnown, WaitFile, WaitTarget, Waiting, WaitsFor};
use unwind_sim_record::machine::MachineMemory;
use unwind_sim_record::registers::live_registers;
use unwind_sim_recordings::names::Location;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::End;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::memory::Memory;
use unwind_sim_unwind::regs::Regs;
use unwind_sim_unwind::start::Start;
use unwind_sim_unwind::truth::Truth;
use unwind_sim_unwind::unwinder;
use unwind_sim_unwind::verdict::{Verdict, judge};

/// A thread that waits for what cannot happen.
#[derive(Clone, Debug)]
pub struct DeadlockedThread {
    /// Which, and for what.
    pub waiting: Waiting,
    /// Its true chain, if it is known.
    pub truth: Option<TrueChain>,
    /// Its chain by each unwinder.
    pub chains: Vec<WalkedChain>,
}

/// A frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// The address of the next instruction, or a return address.
    pub pc: u64,
    /// Function, offset and image.
    pub location: Location,
}

/// A true chain.
#[derive(Clone, Debug)]
pub struct TrueChain {
    /// Its frames, innermost first.
    pub frames: Vec<Placed>,
    /// Whether they include the root.
    pub is_complete: bool,
}

/// What an unwinder makes of the stack.
#[derive(Clone, Debug)]
pub struct WalkedChain {
    /// The name of the unwinder.
    pub unwinder: String,
    /// Its frames, innermost first.
    pub frames: Vec<Placed>,
    /// Why the walk ended.
    pub end: End,
    /// How it differs from the truth, if that is known.
    pub verdict: Option<Verdict>,
}

/// The stack of a thread.
pub struct Stack<'a> {
    /// The images of its process.
    pub space: &'a AddressSpace,
    /// The memory of its process.
    pub memory: &'a dyn Memory,
    /// Its registers.
    pub live: Regs,
    /// Its true chain, if it is known.
    pub truth: Option<&'a Truth>,
}

/// Describes a thread: its chain by each unwinder, beside the true one.
pub fn thread(waiting: &Waiting, engines: &[Engine], stack: &Stack<'_>) -> DeadlockedThread {
    let placed = |pc: CodeAddress| Placed {
        pc: pc.value(),
        location: Location::of(stack.space, pc),
    };

    // A truth without frames is none: there is nothing to compare with.
    let known = stack.truth.filter(|truth| !truth.frames().is_empty());
    let start = Start::from_regs(stack.live);
    let walk = unwinder::Stack::new(&start, stack.space, stack.memory);

    let chains = engines.iter().map(|engine| {
        let chain = engine.walk(&walk, &mut Cache::new());
        WalkedChain {
            unwinder: engine.name().to_owned(),
            frames: chain.frames.iter().map(|frame| placed(frame.pc)).collect(),
            verdict: known.map(|truth| judge(&chain, truth, 0).0),
            end: chain.end,
        }
    });

    DeadlockedThread {
        chains: chains.collect(),
        truth: known.map(|truth| TrueChain {
            frames: truth
                .frames()
                .iter()
                .map(|frame| placed(frame.address()))
                .collect(),
            is_complete: truth.is_complete(),
        }),
        waiting: waiting.clone(),
    }
}

/// The threads that wait at the end of a run that was not checked. `truth` gives their true
/// chains, as far as they are known. `root` is the folder that the program saw as `/`.
pub fn threads(
    process: &mut Kernel,
    root: &Path,
    engines: &[Engine],
    truth: &dyn Fn(Task) -> Option<Truth>,
) -> Vec<DeadlockedThread> {
    let root = (root != Path::new("/")).then(|| PathBuf::from(root));
    // One for all: processes mostly map the same files.
    let mut images = Images::new(root);
    let mut threads = Vec::new();

    // Each thread may be of another process, with mappings of its own.
    process.visit_waiting(&mut |waiting, process| {
        let mut space = AddressSpace::new();
        for code in process.mapped_code() {
            let file = MappedFile {
                path: &code.path,
                offset: code.offset,
            };
            space.map(images.mapping(code.range, code.permissions, file));
        }

        let truth = truth(waiting.task);
        let stack = Stack {
            space: &space,
            memory: &MachineMemory(&process.machine.core.memory),
            live: live_registers(&waiting.state, waiting.state.rip),
            truth: truth.as_ref(),
        };

        threads.push(thread(waiting, engines, &stack));
    });

    threads
}
