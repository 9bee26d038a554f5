//! Far transfers in user mode, compared with what Linux 6.18 on an AMD EPYC, family 26, model 2,
//! allows; and what shows the kernel's state.

use super::*;
use crate::flags;

const GENERAL: Exit = Exit::Exception(Exception::GeneralProtection);
const STACK: u64 = DATA + 0x1000;

/// Executes one instruction with rcx = DATA and rsp = STACK; the words are at rsp, `pointer` at rcx.
fn transfer(text: &str, code: &[u8], pointer: &[u8], words: &[u64]) -> (Exit, Machine) {
    let mut machine = machine(code);
    let core = &mut machine.core;
    core.set_processor(text.parse().expect("a processor"));
    core.state.set_gpr(reg::RCX, DATA);
    core.state.set_gpr(reg::RSP, STACK);
    core.memory.poke(DATA, pointer).expect("mapped");
    for (number, word) in words.iter().enumerate() {
        let at = STACK + 8 * number as u64;
        core.memory.poke(at, &word.to_le_bytes()).expect("mapped");
    }
    (machine.run(1, &mut ()), machine)
}

/// lcall *(%rcx) and ljmp *(%rcx) replace the privilege level of the selector.
#[test]
fn calls_and_jumps_reach_the_64_bit_code_only() {
    for selector in 0..0x90_u16 {
        let pointer = [&0x1234_5678_u32.to_le_bytes()[..], &selector.to_le_bytes()].concat();
        let expected = match selector {
            // __USER32_CS: the machine does not execute 32-bit code.
            0x20..0x24 => Exit::Unsupported,
            // __USER_CS, with any requested privilege level.
            0x30..0x34 => Exit::Limit,
            _ => GENERAL,
        };

        for (modrm, pushed) in [(0x19, 8), (0x29, 0)] {
            let (exit, machine) = transfer("v2", &[0xff, modrm], &pointer, &[]);
            assert_eq!(exit, expected, "{selector:#x}");

            let rsp = machine.core.state.gpr(reg::RSP);
            if exit != Exit::Limit {
                assert_eq!((machine.core.state.rip, rsp), (CODE, STACK));
                continue;
            }

            assert_eq!((machine.core.state.rip, rsp), (0x1234_5678, STACK - pushed));
            if pushed != 0 {
                let next = (CODE as u32 + 2).to_le_bytes();
                assert_eq!(
                    bytes::<8>(&machine, rsp),
                    [next, 0x33_u32.to_le_bytes()].concat()[..]
                );
            }
        }
    }
}

/// With REX.W the pointer has 64 bits; AMD's processors ignore it.
#[test]
fn long_pointers() {
    let pointer = [&0x7fff_1234_5678_u64.to_le_bytes()[..], &[0x33, 0]].concat();
    let code = [0x48, 0xff, 0x19];
    let (exit, machine) = transfer("v2,intel", &code, &pointer, &[]);
    assert_eq!(
        (exit, machine.core.state.rip),
        (Exit::Limit, 0x7fff_1234_5678)
    );
    assert_eq!(machine.core.state.gpr(reg::RSP), STACK - 16);
    assert_eq!(transfer("v2,amd", &code, &pointer, &[]).0, GENERAL);
    let pointer = [&(1_u64 << 47).to_le_bytes()[..], &[0x33, 0]].concat();
    let (exit, machine) = transfer("v2,intel", &code, &pointer, &[]);
    assert_eq!((exit, machine.core.state.gpr(reg::RSP)), (GENERAL, STACK));
    // AMD's push 64 bits nevertheless.
    let pointer = [&0x1234_5678_u32.to_le_bytes()[..], &[0x33, 0]].concat();
    let (exit, machine) = transfer("v2,amd", &code, &pointer, &[]);
    let state = &machine.core.state;
    assert_eq!((exit, state.rip), (Exit::Limit, 0x1234_5678));
    assert_eq!(state.gpr(reg::RSP), STACK - 16);
    let pushed = [(CODE + 3).to_le_bytes(), 0x33_u64.to_le_bytes()].concat();
    assert_eq!(bytes::<16>(&machine, STACK - 16), pushed[..]);
}

/// lretq, and lretq $0xfff0: the immediate is not signed.
#[test]
fn returns_need_the_privilege_level_of_the_user() {
    for (selector, expected) in [
        (0x33, Exit::Limit),
        (0x30, GENERAL),
        (0x32, GENERAL),
        (0x2b, GENERAL),
        (0x10, GENERAL),
        (0x23, Exit::Unsupported),
        (0x1_0033, Exit::Limit),
    ] {
        let words = [0x7fff_0000, selector];
        let (exit, machine) = transfer("v2", &[0x48, 0xcb], &[], &words);
        assert_eq!(exit, expected, "{selector:#x}");
        if exit == Exit::Limit {
            let state = &machine.core.state;
            assert_eq!((state.rip, state.gpr(reg::RSP)), (0x7fff_0000, STACK + 16));
        }
    }
    let (_, machine) = transfer("v2", &[0x48, 0xca, 0xf0, 0xff], &[], &[CODE, 0x33]);
    assert_eq!(machine.core.state.gpr(reg::RSP), STACK + 16 + 0xfff0);
}

#[test]
fn interrupt_returns() {
    let frame = |cs, flags, ss| [0x7fff_0000, cs, flags, 0x6fff_0000, ss];
    let (exit, machine) = transfer("v2", &[0x48, 0xcf], &[], &frame(0x33, 0xffff_ffff, 0x2b));
    let state = &machine.core.state;
    assert_eq!((exit, state.rip), (Exit::Limit, 0x7fff_0000));
    assert_eq!(state.gpr(reg::RSP), 0x6fff_0000);
    // IF, IOPL and the like are not the user's.
    assert_eq!(state.rflags(), flags::USER | flags::FIXED | flags::IF);
    for (cs, ss, expected) in [
        (0x30, 0x2b, GENERAL),
        (0x33, 0x28, GENERAL),
        (0x33, 0, GENERAL),
        (0x23, 0x2b, Exit::Unsupported),
    ] {
        let (exit, machine) = transfer("v2", &[0x48, 0xcf], &[], &frame(cs, 2, ss));
        assert_eq!((exit, machine.core.state.gpr(reg::RSP)), (expected, STACK));
    }
    // A nested task.
    let mut machine = super::machine(&[0x48, 0xcf]);
    machine.core.state.set_gpr(reg::RSP, STACK);
    machine.core.state.set_rflags(flags::NT);
    assert_eq!(machine.run(1, &mut ()), GENERAL);
}

/// Under UMIP, the values are those of Linux, which keeps the upper half of a 32-bit register.
#[test]
fn the_kernels_state() {
    let show = |text: &str, code: &[u8]| {
        let (exit, machine) = transfer(text, code, &[0xcc; 12], &[]);
        assert_eq!(exit, Exit::Limit, "{text} {code:x?}");
        machine
    };

    // A limit of 16 bits and a base of 64: Linux's emulation shows these constants
    // (arch/x86/kernel/umip.c).
    let sgdt: [u8; 12] = bytes(&show("v2,amd", &[0x0f, 0x01, 0x01]), DATA);
    assert_eq!(sgdt, *b"\0\0\0\0\xfe\xff\xff\xff\xff\xff\xcc\xcc");
    let sidt: [u8; 12] = bytes(&show("v2,amd", &[0x0f, 0x01, 0x09]), DATA);
    assert_eq!(sidt, *b"\0\0\0\0\xff\xff\xff\xff\xff\xff\xcc\xcc");
    let smsw: [u8; 3] = bytes(&show("v2,amd", &[0x0f, 0x01, 0x21]), DATA);
    assert_eq!(smsw, [0x33, 0, 0xcc]);

    for (code, value, width) in [
        (&[0x0f, 0x01, 0xe0][..], 0x8005_0033_u64, 32), // smsw %eax
        (&[0x48, 0x0f, 0x01, 0xe0], 0x8005_0033, 64),
        (&[0x66, 0x0f, 0x01, 0xe0], 0x33, 16),
        (&[0x0f, 0x00, 0xc0], 0, 32),    // sldt %eax
        (&[0x0f, 0x00, 0xc8], 0x40, 32), // str %eax
    ] {
        for (text, has_umip) in [("v2,amd", true), ("v2,amd:zen", false), ("v2", false)] {
            let mut machine = machine(code);
            machine
                .core
                .set_processor(text.parse().expect("a processor"));
            machine.core.state.set_gpr(reg::RAX, u64::MAX);
            assert_eq!(machine.run(1, &mut ()), Exit::Limit);

            // Linux's emulation keeps the upper half of a 32-bit register; the processor clears it.
            let kept = match width {
                64 => 0,
                32 if !has_umip => 0,
                width => u64::MAX << width,
            };
            assert_eq!(
                machine.core.state.gpr(reg::RAX),
                kept | value,
                "{text} {code:x?}"
            );
        }
    }
}

/// Numbers depend on the seed and on the time, and fill the register that is written.
#[test]
fn random_numbers_can_be_repeated() {
    let numbers = |seed: u64, code: &[u8], count: u64| {
        let mut machine = machine(code);
        machine.core.seed = seed;
        machine
            .core
            .set_processor("v2,+rdrand,+rdseed".parse().expect("a processor"));
        machine.core.state.set_rflags(flags::ARITHMETIC);
        assert_eq!(machine.run(count, &mut ()), Exit::Limit);
        assert_eq!(machine.core.state.rflags() & flags::ARITHMETIC, flags::CF);
        [reg::RAX, reg::RCX].map(|number| machine.core.state.gpr(number))
    };
    // rdrand %rax; rdrand %rcx
    let two = [0x48, 0x0f, 0xc7, 0xf0, 0x48, 0x0f, 0xc7, 0xf1];
    let [first, second] = numbers(7, &two, 2);
    assert_eq!(numbers(7, &two, 2), [first, second]);
    assert!(first != second && first >> 32 != 0);
    assert_ne!(numbers(8, &two, 2)[0], first);
    // rdseed %rax; rdrand %eax; rdrand %ax
    assert_ne!(numbers(7, &[0x48, 0x0f, 0xc7, 0xf8], 1)[0], first);
    assert_eq!(numbers(7, &[0x0f, 0xc7, 0xf0], 1)[0], first & 0xffff_ffff);
    assert_eq!(numbers(7, &[0x66, 0x0f, 0xc7, 0xf0], 1)[0], first & 0xffff);
}

/// clzero with 64 and 32 bits of address; with F3 not on each processor.
#[test]
fn a_cache_line_is_cleared() {
    let refused = Exit::Exception(Exception::InvalidOpcode);

    // With a `rep` prefix, Zen 5 refuses it.
    let repeated = &[0xf3, 0x0f, 0x01, 0xfc];
    for (processor, code, base, expected) in [
        ("v2,amd,+clzero", &[0x0f, 0x01, 0xfc][..], 0, Exit::Limit),
        (
            "v2,amd,+clzero",
            &[0x67, 0x0f, 0x01, 0xfc],
            7 << 32,
            Exit::Limit,
        ),
        ("v2,amd:zen4,+clzero", repeated, 0, Exit::Limit),
        ("v2,amd:zen5,+clzero", repeated, 0, refused),
    ] {
        let mut machine = machine(code);
        machine
            .core
            .set_processor(processor.parse().expect("a processor"));
        // Any address in the line will do.
        machine.core.state.set_gpr(reg::RAX, base | (DATA + 64 + 5));

        let before: [u8; 192] = bytes(&machine, DATA);
        assert_eq!(machine.run(1, &mut ()), expected, "{code:x?}");

        let mut after = before;
        if expected == Exit::Limit {
            after[64..128].fill(0);
        }
        assert_eq!(bytes::<192>(&machine, DATA), after);
    }
}
