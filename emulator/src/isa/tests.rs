//! Single instructions compared with a processor's recorded results and with the SDM.

use crate::address_space::{Access, AddressSpace, Fault, FaultKind, Permissions};
use crate::core::Core;
use crate::machine::{Exit, Machine};
use crate::state::reg;
use crate::stop::Exception;

mod far;
mod float;
mod memory;
mod processor;
mod save;
mod string;
mod system;
mod table;

/// The address of the instruction.
const CODE: u64 = 0x40_0000;
/// Two writable pages.
const DATA: u64 = 0x50_0000;
/// A read-only page after them. Nothing is mapped after it.
const READ_ONLY: u64 = DATA + 0x2000;
/// The end of mapped memory.
const END: u64 = READ_ONLY + 0x1000;

/// A machine about to execute `code`; all bytes in its data differ from their neighbours.
fn machine(code: &[u8]) -> Machine {
    let mut memory = AddressSpace::default();
    let all = [
        (CODE..CODE + 0x1000, Permissions::READ_EXECUTE),
        (DATA..READ_ONLY, Permissions::READ_WRITE),
        (READ_ONLY..END, Permissions::READ),
    ];
    for (range, permissions) in all {
        memory.map(range, permissions).expect("whole pages");
    }
    memory.poke(CODE, code).expect("it is mapped");
    let bytes: Vec<u8> = (DATA..END).map(|at| (at * 7 + at / 256) as u8).collect();
    memory.poke(DATA, &bytes).expect("it is mapped");
    let mut core = Core::new(memory);
    core.state.rip = CODE;
    Machine::new(core)
}

/// Executes one instruction with these registers.
fn run(code: &[u8], registers: &[(usize, u64)]) -> (Exit, Machine) {
    let mut machine = machine(code);
    for &(number, value) in registers {
        machine.core.state.set_gpr(number, value);
    }
    (machine.run(1, &mut ()), machine)
}

/// All registers, flags and data.
fn everything(machine: &Machine) -> (Vec<u64>, u64, Vec<u8>) {
    let mut data = vec![0; (END - DATA) as usize];
    machine.core.memory.peek(DATA, &mut data).expect("mapped");
    let registers = (0..16)
        .map(|number| machine.core.state.gpr(number))
        .collect();
    (registers, machine.core.state.rflags(), data)
}

/// `N` bytes of the machine's memory.
fn bytes<const N: usize>(machine: &Machine, at: u64) -> [u8; N] {
    let mut bytes = [0; N];
    machine.core.memory.peek(at, &mut bytes).expect("mapped");
    bytes
}

fn fault(address: u64, access: Access, kind: FaultKind) -> Exit {
    Exit::Exception(Exception::Memory(Fault {
        address,
        access,
        kind,
    }))
}

/// rax, rcx, rdx, rbx and the flags in a line.
fn numbers(text: &str) -> Vec<u64> {
    let number = |word| u64::from_str_radix(word, 16).expect("hexadecimal");
    text.split_whitespace().map(number).collect()
}

#[test]
fn integer_instructions_as_a_processor_executed_them() {
    let mut lines = 0;
    let recorded = [
        include_str!("tests/integer.txt"),
        include_str!("tests/bmi.txt"),
    ];

    for line in recorded.into_iter().flat_map(str::lines) {
        if line.starts_with('#') {
            continue;
        }

        lines += 1;
        let fields: Vec<&str> = line.split(" | ").collect();
        let [code, before, after, _] = fields[..] else {
            panic!("four fields: {line}");
        };

        let code: Vec<u8> = (0..code.len() / 2)
            .map(|i| u8::from_str_radix(&code[2 * i..2 * i + 2], 16).expect("hexadecimal"))
            .collect();

        let before = numbers(before);
        let mut machine = machine(&code);
        for (number, &value) in before[..4].iter().enumerate() {
            machine.core.state.set_gpr(number, value);
        }
        machine.core.state.set_rflags(before[4]);
        // The features of the processor on which they were recorded.
        let processor = "v3,+adx".parse().expect("a processor");
        machine.core.set_processor(processor);

        let exit = machine.run(1, &mut ());
        let core = &machine.core;
        let mut found: Vec<u64> = (0..4).map(|number| core.state.gpr(number)).collect();
        // IF and bit 1 are not recorded.
        found.push(core.state.rflags() & !0x202);

        if after == "#DE" {
            assert_eq!(exit, Exit::Exception(Exception::Divide), "{line}");
            assert_eq!(found, before, "{line}");
        } else {
            assert_eq!(exit, Exit::Limit, "{line}");
            assert_eq!(found, numbers(after), "{line}\n{found:x?}");
        }
    }

    assert!(lines > 380);
}

#[test]
fn registers_of_8_bits_have_their_own_numbers() {
    // mov $0x5a, %r12b; %bpl; %ch
    for (code, number, value) in [
        (&[0x41, 0xb4, 0x5a][..], 12, 0x1111_1111_1111_115a),
        (&[0x40, 0xb5, 0x5a], reg::RBP, 0x1111_1111_1111_115a),
        (&[0xb5, 0x5a], reg::RCX, 0x1111_1111_1111_5a11),
    ] {
        let (exit, machine) = run(code, &[(number, 0x1111_1111_1111_1111)]);
        assert_eq!(exit, Exit::Limit);
        assert_eq!(machine.core.state.gpr(number), value, "{code:x?}");
        assert_eq!(machine.core.state.gpr(reg::ZERO), 0);
    }
}

/// The largest quotients, and the smallest ones that are too large.
#[test]
fn quotients_that_do_not_fit() {
    let divide = Exit::Exception(Exception::Divide);
    let ones = u64::MAX;
    let top = 1 << 63;
    // (instruction, rdx, rax, rbx, quotient if any); rbx is the divisor.
    for (code, rdx, rax, rbx, quotient) in [
        (&[0x48, 0xf7, 0xf3][..], 4, ones, 5, Some(ones)), // div %rbx
        (&[0x48, 0xf7, 0xf3], 5, 0, 5, None),
        (&[0x48, 0xf7, 0xf3], 0, 0, 0, None),
        (&[0xf7, 0xf3], 5, 0, 5, None),              // div %ebx
        (&[0xf6, 0xf3], 0, 0x04ff, 5, Some(0x04ff)), // div %bl: remainder and quotient
        (&[0xf6, 0xf3], 0, 0x0500, 5, None),
        (&[0x48, 0xf7, 0xfb], ones, top, ones, None), // idiv %rbx
        (&[0x48, 0xf7, 0xfb], ones, top, 1, Some(top)),
        (&[0x48, 0xf7, 0xfb], top, 0, ones, None),
        (&[0x48, 0xf7, 0xfb], ones << 1, 0, 4, Some(top)),
        (&[0x48, 0xf7, 0xfb], 2, 0, 4, None),
        (&[0xf7, 0xfb], ones, 1 << 31, ones, None), // idiv %ebx
        (&[0xf6, 0xfb], 0, 0xff80, 0xff, None),     // idiv %bl
        (&[0xf6, 0xfb], 0, 0xff80, 1, Some(0x80)),
        (&[0xf6, 0xfb], 0, 5, 0, None),
    ] {
        let registers = [(reg::RDX, rdx), (reg::RAX, rax), (reg::RBX, rbx)];

        let (exit, machine) = run(code, &registers);
        // #DE leaves rax as it was.
        let expected = quotient.map_or((divide, rax), |quotient| (Exit::Limit, quotient));
        let found = (exit, machine.core.state.gpr(reg::RAX));
        assert_eq!(found, expected, "{code:x?} {rdx:x}:{rax:x} / {rbx:x}");
    }
}
