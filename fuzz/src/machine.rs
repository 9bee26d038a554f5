//! Runs random bytes as code in the emulated machine.

use crate::input::Input;
use unwind_sim_emulator::{AddressSpace, Core, Exit, Machine, Permissions};

const CODE: u64 = 0x40_0000;
const CODE_SIZE: u64 = 0x2000;
const STACK: u64 = 0x7000_0000;
const STACK_SIZE: u64 = 0x2000;
/// Maximum number of instructions; a repeated instruction counts once.
const INSTRUCTIONS_MAX: u64 = 500;

/// Runs the code in blocks, and the same code instruction by instruction: both must end in the same
/// state.
pub fn machine(data: &[u8]) {
    let mut input = Input::new(data);
    let mut registers = [0; 16];
    for value in &mut registers {
        *value = match input.u8() {
            0 => 0,
            tag @ 1..=63 => STACK + STACK_SIZE / 2 + u64::from(tag) * 8,
            tag @ 64..=95 => CODE + u64::from(tag - 64) * 16,
            96..=127 => input.u64(),
            tag => i64::from(tag.cast_signed()).cast_unsigned(),
        };
    }
    let code = input.rest();
    let code = &code[..code.len().min(CODE_SIZE as usize)];
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
        machine.core.state.rip = CODE;
        for (number, value) in registers.into_iter().enumerate() {
            machine.core.state.set_gpr(number, value);
        }
        machine
    };
    let mut whole = make();
    let exit = whole.run(INSTRUCTIONS_MAX, &mut ());
    let mut single = make();
    let last = loop {
        if single.executed() == INSTRUCTIONS_MAX {
            break Exit::Limit;
        }
        match single.run(1, &mut ()) {
            Exit::Limit => {}
            exit => break exit,
        }
    };
    // The time depends on where blocks start.
    if code
        .windows(2)
        .any(|pair| matches!(pair, [0x0f, 0x31] | [0x01, 0xf9]))
    {
        return;
    }
    assert_eq!(exit, last);
    assert_eq!(whole.executed(), single.executed());
    assert_eq!(registers_of(&whole), registers_of(&single));
    assert_eq!(memory_of(&whole), memory_of(&single));
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
