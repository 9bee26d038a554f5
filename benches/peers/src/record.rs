//! Records in our machine what the kernel does to a program, so that a machine without a kernel can
//! run the same program. Not here: replaying it.
//!
//! The program runs twice. First, an observer finds the instructions that call the kernel, or whose
//! result depends on the processor (`cpuid`, `rdtsc`, `xgetbv`). Then the program stops before each
//! of these, and the effects of that one instruction are recorded.

use crate::flat::Counter;
use crate::timing::cpu_time;
use std::ops::Range;
use std::time::Duration;
use unwind_sim_emulator::address_space::{Change, PAGE_SIZE};
use unwind_sim_emulator::linux::{Kernel, Outcome, ProcessObserver, ProcessOptions};
use unwind_sim_emulator::state::reg;
use unwind_sim_emulator::{AddressSpace, Core, Executed, Observer, Permissions};

/// A program of this machine.
pub struct Program<'a> {
    /// The name used here.
    pub name: &'a str,
    /// The path and the arguments.
    pub args: &'a [&'a str],
}

/// The environment. Lazy binding would use `xsavec`, which Unicorn does not have.
const ENV: [&str; 3] = ["LD_BIND_NOW=1", "LC_ALL=C", "HOME=/nonexistent"];

/// Instructions whose results are replayed: their bytes, and a `syscall` of the same length to
/// replace them with, padded by a REX prefix, which has no effect.
const ANSWERED: [(&[u8], &[u8]); 4] = [
    (&[0x0f, 0x05], &[0x0f, 0x05]),             // syscall
    (&[0x0f, 0xa2], &[0x0f, 0x05]),             // cpuid
    (&[0x0f, 0x31], &[0x0f, 0x05]),             // rdtsc
    (&[0x0f, 0x01, 0xd0], &[0x48, 0x0f, 0x05]), // xgetbv
];

/// Bytes and their addresses.
pub type Contents = Vec<(u64, Vec<u8>)>;

/// A change of mappings by an answer.
pub enum MappingChange {
    /// Unmaps a range.
    Unmap(Range<u64>),
    /// Maps zeros, replacing what was there.
    Map(Range<u64>, Permissions),
}

/// The effects of one instruction.
pub struct InstructionEffects {
    /// Instructions executed, including this one.
    pub instructions: u64,
    /// The general registers before.
    pub before: [u64; 16],
    /// The general registers after.
    pub after: [u64; 16],
    /// The fs base after.
    pub fs_base: u64,
    /// Changes of mappings, in order.
    pub deeds: Vec<MappingChange>,
    /// Memory to write after those changes.
    pub contents: Contents,
}

/// A whole run.
pub struct Recording {
    /// The first instruction.
    pub entry: u64,
    /// The mappings at the start, and their contents that are not zero.
    pub start: InstructionEffects,
    /// The answers in order; the last one is `exit_group`.
    pub answers: Vec<InstructionEffects>,
    /// Places where a `syscall` replaces another instruction.
    pub patches: Contents,
    /// The memory at the end.
    pub end: Contents,
    /// What the program wrote to standard output.
    pub stdout: Vec<u8>,
}

impl Recording {
    /// Number of instructions executed.
    pub fn instructions(&self) -> u64 {
        self.answers.last().map_or(0, |last| last.instructions)
    }
}

fn start(program: &Program<'_>) -> Kernel {
    let options = ProcessOptions {
        args: program
            .args
            .iter()
            .map(|arg| arg.as_bytes().to_vec())
            .collect(),
        env: ENV
            .iter()
            .map(|variable| variable.as_bytes().to_vec())
            .collect(),
        // Unicorn has no AVX.
        processor: "v2".parse().expect("a processor"),
        ..ProcessOptions::default()
    };
    let started = Kernel::start(program.args[0].as_bytes(), options);
    started.unwrap_or_else(|error| panic!("{}: {error}", program.name))
}

/// CPU time of the program in our machine, including our kernel.
pub fn ours(program: &Program<'_>, recording: &Recording, hooked: bool) -> Duration {
    let mut process = start(program);
    let mut counter = Counter(0);
    let begin = cpu_time();
    let outcome = if hooked {
        process.run(u64::MAX, &mut counter)
    } else {
        process.run(u64::MAX, &mut ())
    };
    let time = cpu_time() - begin;
    assert_eq!(outcome, Outcome::Exited(0));
    assert_eq!(process.executed(), recording.instructions());
    assert_eq!(process.stdout(), recording.stdout);
    time
}

/// Records a run.
pub fn record(program: &Program<'_>) -> Recording {
    let mut finder = Finder::default();
    let outcome = start(program).run(u64::MAX, &mut finder);
    assert_eq!(outcome, Outcome::Exited(0), "{}", program.name);

    // The first run found the instructions to answer; the second one stops before each of them.
    let mut process = start(program);
    let memory = &process.machine.core.memory;
    let all = memory.areas().map(|(range, _)| range);

    // The state before the first instruction has the form of an answer, so that a replay applies it
    // like one.
    let mut begin = answer(&process, 0);
    all.for_each(|range| mapped(memory, &range, &mut begin));
    let entry = process.machine.core.state.rip;

    let mut answers = Vec::new();
    let mut end = Vec::new();
    for &instructions in &finder.found {
        let outcome = process.run(instructions - 1 - process.executed(), &mut ());
        assert_eq!(outcome, Outcome::Limit, "{}", program.name);
        // After the last one, the program has ended and its memory is gone.
        if Some(&instructions) == finder.found.last() {
            let memory = &process.machine.core.memory;
            let all = memory.areas().map(|(range, _)| range);
            end = all.flat_map(|range| pages(memory, range)).collect();
        }

        let mut answer = answer(&process, instructions);
        // What this one step changes is what a replay has to put in.
        process.machine.core.memory.note_changes(true);
        process.step(&mut ());

        let mut changes = Vec::new();
        let memory = &mut process.machine.core.memory;
        memory.take_changes(&mut changes);
        memory.note_changes(false);
        for change in changes {
            match change {
                Change::Mapped(range) => mapped(memory, &range, &mut answer),
                Change::Stored(range) => {
                    let mut bytes = vec![0; (range.end - range.start) as usize];
                    if memory.peek(range.start, &mut bytes).is_ok() {
                        answer.contents.push((range.start, bytes));
                    }
                }
            }
        }

        // Read only now: these are the registers that the kernel leaves.
        answer.after = registers(&process.machine.core);
        answer.fs_base = process.machine.core.state.gpr(reg::FS);
        answers.push(answer);
    }

    assert_eq!(
        process.run(0, &mut ()),
        Outcome::Exited(0),
        "{}",
        program.name
    );

    Recording {
        entry,
        start: begin,
        answers,
        patches: finder.patches,
        end,
        stdout: process.stdout().to_vec(),
    }
}

fn registers(core: &Core) -> [u64; 16] {
    std::array::from_fn(|number| core.state.gpr(number))
}

fn answer(process: &Kernel, instructions: u64) -> InstructionEffects {
    let registers = registers(&process.machine.core);
    InstructionEffects {
        instructions,
        before: registers,
        after: registers,
        fs_base: process.machine.core.state.gpr(reg::FS),
        deeds: Vec::new(),
        contents: Vec::new(),
    }
}

/// Records the current mappings of a range, which may have changed or disappeared.
fn mapped(memory: &AddressSpace, range: &Range<u64>, answer: &mut InstructionEffects) {
    answer.deeds.push(MappingChange::Unmap(range.clone()));
    for (area, kind) in memory.areas() {
        let part = area.start.max(range.start)..area.end.min(range.end);
        if part.start < part.end {
            let used = |(_, bytes): &(u64, Vec<u8>)| bytes.iter().any(|&byte| byte != 0);
            answer
                .contents
                .extend(pages(memory, part.clone()).filter(used));
            answer
                .deeds
                .push(MappingChange::Map(part, kind.permissions()));
        }
    }
}

/// The pages of a mapped range.
fn pages(memory: &AddressSpace, range: Range<u64>) -> impl Iterator<Item = (u64, Vec<u8>)> {
    range.step_by(PAGE_SIZE as usize).map(|address| {
        let mut bytes = vec![0; PAGE_SIZE as usize];
        memory.peek(address, &mut bytes).expect("it is mapped");
        (address, bytes)
    })
}

/// Finds the instructions whose results must be replayed.
#[derive(Default)]
struct Finder {
    executed: u64,
    /// The number of instructions executed, at each of them.
    found: Vec<u64>,
    patches: Contents,
}

impl Observer for Finder {
    fn before(&mut self, core: &Core, insn: &Executed) {
        self.executed += 1;
        let mut bytes = [0; 3];
        let Some(bytes) = bytes.get_mut(..insn.len.into()) else {
            return;
        };
        if insn.len < 2 || core.memory.fetch(insn.rip, bytes).is_err() {
            return;
        }
        if let Some((what, patch)) = ANSWERED.iter().find(|(what, _)| *what == bytes) {
            self.found.push(self.executed);
            if what != patch && self.patches.iter().all(|&(at, _)| at != insn.rip) {
                self.patches.push((insn.rip, patch.to_vec()));
            }
        }
    }

    fn after(&mut self, _: &Core, _: &Executed, _: u64) {}
}

impl ProcessObserver for Finder {}
