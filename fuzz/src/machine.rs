//! Runs random bytes as code in the emulated machine.

use crate::input::Input;
use unwind_sim_emulator::state::State;
use unwind_sim_emulator::{AddressSpace, Core, Exit, Machine, Permissions};

const CODE: u64 = 0x40_0000;
const CODE_SIZE: u64 = 0x2000;
const STACK: u64 = 0x7000_0000;
const STACK_SIZE: u64 = 0x2000;
/// The last byte of an input with two threads.
const MARK: u8 = 0x2b;
/// Bytes of such an input that describe the second thread.
const SECOND_BYTES: usize = 40;
/// Maximum number of instructions; a repeated instruction counts once.
const INSTRUCTIONS_MAX: u64 = 500;
/// Maximum number of turns that the threads take.
const TURNS_MAX: usize = 64;

/// Registers for a thread, each of which may point into the code or the stack.
fn registers(input: &mut Input<'_>) -> [u64; 16] {
    [0; 16].map(|_| match input.u8() {
        0 => 0,
        tag @ 1..=63 => STACK + STACK_SIZE / 2 + u64::from(tag) * 8,
        tag @ 64..=95 => CODE + u64::from(tag - 64) * 16,
        96..=127 => input.u64(),
        tag => i64::from(tag.cast_signed()).cast_unsigned(),
    })
}

/// Two threads in one address space, and which one runs.
struct Threads {
    machine: Machine,
    /// The one that does not run.
    other: State,
    runs: usize,
    /// How those that cannot go on ended.
    ended: [Option<Exit>; 2],
}

impl Threads {
    /// Lets the other thread run.
    fn switch(&mut self) {
        std::mem::swap(&mut self.machine.core.state, &mut self.other);
        self.runs = 1 - self.runs;
    }

    /// Runs the threads in turns of so many instructions, each in pieces of at most `piece`.
    fn run(&mut self, turns: &[u8], piece: u64) {
        for &turn in turns {
            let mut left = u64::from(turn);
            while left > 0 && self.ended[self.runs].is_none() {
                let before = self.machine.executed();
                if before >= INSTRUCTIONS_MAX {
                    return;
                }
                let most = left.min(piece).min(INSTRUCTIONS_MAX - before);
                match self.machine.run(most, &mut ()) {
                    Exit::Limit => {}
                    exit => self.ended[self.runs] = Some(exit),
                }
                left = left.saturating_sub((self.machine.executed() - before).max(1));
            }
            self.switch();
        }
    }
}

/// Runs the code in blocks, and the same code instruction by instruction: both must end in the same
/// state. Two threads run it, and either may change it under the other one.
pub fn machine(data: &[u8]) {
    let mut input = Input::new(data);
    let first = registers(&mut input);
    let code = input.rest();
    // The second thread, where it begins, and the turns are at the end, so that inputs for one
    // thread still mean the same.
    let (code, turns, second, begin) = match code.split_last_chunk::<2>() {
        Some((rest, [count, MARK])) => {
            let count = (usize::from(*count) % TURNS_MAX).min(rest.len());
            let (rest, turns) = rest.split_at(rest.len() - count);
            let (rest, tail) = rest.split_at(rest.len().saturating_sub(SECOND_BYTES));
            let mut tail = Input::new(tail);
            let begin = CODE + u64::from(tail.u16()) % CODE_SIZE;
            (rest, turns.to_vec(), registers(&mut tail), begin)
        }
        _ => (code, Vec::new(), [0; 16], CODE),
    };

    let code = &code[..code.len().min(CODE_SIZE as usize)];
    let state = |registers: [u64; 16], rip| {
        let mut state = State::new();
        state.rip = rip;
        for (number, value) in registers.into_iter().enumerate() {
            state.set_gpr(number, value);
        }
        state
    };

    let make = || {
        let mut space = AddressSpace::new(64);
        let pages = [
            (CODE..CODE + CODE_SIZE, Permissions::ALL),
            (STACK..STACK + STACK_SIZE, Permissions::READ_WRITE),
        ];
        for (range, permissions) in pages {
            space.map(range, permissions).expect("user space");
        }
        space.poke(CODE, code).expect("mapped");
        let mut machine = Machine::new(Core::new(space));
        machine.core.state = state(first, CODE);
        Threads {
            machine,
            other: state(second, begin),
            runs: 0,
            ended: [None, None],
        }
    };

    // Without turns, the first thread runs alone.
    let alone = [u8::MAX; 3];
    let turns = if turns.is_empty() {
        alone.map(|turn| [turn, 0]).concat()
    } else {
        turns
    };

    // The same turns for both: one runs each turn in blocks, the other instruction by instruction.
    let (mut whole, mut single) = (make(), make());
    whole.run(&turns, u64::MAX);
    single.run(&turns, 1);

    // The time depends on where blocks start.
    // `0f 31` is rdtsc, and `0f 01 f9` is rdtscp.
    if code
        .windows(2)
        .any(|pair| matches!(pair, [0x0f, 0x31] | [0x01, 0xf9]))
    {
        return;
    }

    assert_eq!(whole.ended, single.ended);
    assert_eq!(whole.machine.executed(), single.machine.executed());
    assert_eq!(memory_of(&whole.machine), memory_of(&single.machine));

    // The registers of both threads: `switch` exchanges them.
    for _ in 0..2 {
        assert_eq!(registers_of(&whole.machine), registers_of(&single.machine));
        whole.switch();
        single.switch();
    }
}

fn registers_of(machine: &Machine) -> (Vec<u64>, u64, u64, [u8; 512]) {
    let core = &machine.core;
    let general = (0..16).map(|number| core.state.gpr(number)).collect();
    (
        general,
        core.state.rip,
        core.state.rflags(),
        core.fx_image(),
    )
}

fn memory_of(machine: &Machine) -> Vec<u8> {
    let mut bytes = vec![0; (CODE_SIZE + STACK_SIZE) as usize];
    let (code, stack) = bytes.split_at_mut(CODE_SIZE as usize);
    let memory = &machine.core.memory;
    memory.peek(CODE, code).expect("mapped");
    memory.peek(STACK, stack).expect("mapped");
    bytes
}
