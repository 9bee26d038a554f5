//! The interpreter, instruction by instruction: random programs against rbpf for what it knows
//! (no atomics, no sign extension, no signed division), and edge cases with the results that RFC
//! 9669 states for all. The running kernel is asked by `tests/bpf_kernel.rs` of the whole.

use crate::random::Random;
use unwind_sim_perf_model::bpf::{
    Context, Fault, FaultKind, Handlers, Insn, Limits, LoadErrorKind, Object, PlainEnv,
};

/// Small numbers, limits of types, and anything.
fn number(random: &mut Random) -> i64 {
    match random.below(4) {
        0 => random.below(9) as i64 - 4,
        1 => random.pick(&[i64::MIN, i64::MAX, 1 << 31, -(1 << 31), 0xffff_ffff]),
        _ => random.bits() as i64,
    }
}

fn run(insns: &[Insn]) -> Result<u64, Fault> {
    let object = Object::from_insns("raw", insns, &[]);
    let mut handlers = Handlers::load(&object, Limits::default()).unwrap();
    let outcome = handlers.run(0, &mut PlainEnv::default(), Context::Bytes(&[]));
    outcome.map(|outcome| outcome.r0)
}

/// A program of arithmetic, forward jumps, loads and stores that rbpf knows.
fn random_program(random: &mut Random) -> Vec<Insn> {
    let mut insns = Vec::new();

    // All registers and the stack are written first: what is read is never undefined.
    for register in 0..10 {
        insns.extend(Insn::ld_imm64(register, number(random)));
    }
    for slot in 1..=4 {
        insns.push(Insn::new(0x7b, 10, slot, -8 * i16::from(slot), 0));
    }
    let length = 20;

    // Jumps go forward only, so that every program ends.
    for at in 0..length {
        let (dst, src) = (random.below(10) as u8, random.below(10) as u8);
        let is_x = random.below(2) as u8 * 8;
        let imm = number(random) as i32;
        let operand = |imm: i32| if is_x == 8 { (src, 0) } else { (0, imm) };
        let class = [4, 7][random.below(2)];
        insns.push(match random.below(5) {
            0 | 1 => {
                let op = random.below(13) as u8 * 0x10;
                // rbpf's 64-bit negation overflows in builds that check for it.
                // Its 32-bit remainder by zero leaves the upper half, which RFC 9669 wants zeroed.
                let class = match op {
                    0x80 => 4,
                    0x90 => 7,
                    _ => class,
                };
                let (src, imm) = match op {
                    0x80 => (0, 0),
                    0x30 | 0x90 => operand(if imm == 0 { 1 } else { imm }),
                    0x60 | 0x70 | 0xc0 => operand(imm & if class == 7 { 63 } else { 31 }),
                    _ => operand(imm),
                };
                let is_x = if op == 0x80 { 0 } else { is_x };
                Insn::new(class | is_x | op, dst, src, 0, imm)
            }
            2 => {
                let width = [16, 32, 64][random.below(3)];
                Insn::new(0xd4 | is_x, dst, 0, 0, width)
            }
            3 => {
                let (src, imm) = operand(imm);
                let op = [1, 2, 3, 4, 5, 6, 7, 0xa, 0xb, 0xc, 0xd][random.below(11)];
                let class = [5, 6][random.below(2)];
                // rbpf extends the immediates of 64-bit unsigned comparisons with zeros, where
                // RFC 9669 has their sign.
                let imm = if class == 5 { imm & i32::MAX } else { imm };
                let off = random.below(length - at) as i16;
                Insn::new(op << 4 | is_x | class, dst, src, off, imm)
            }
            _ => {
                let size = random.below(4) as u8;
                let bytes = [4, 2, 1, 8][usize::from(size)];
                let off = -(bytes * (1 + random.below(32 / bytes as usize) as i16));
                match random.below(3) {
                    0 => Insn::new(0x61 | size << 3, dst, 10, off, 0),
                    1 => Insn::new(0x62 | size << 3, 10, 0, off, imm),
                    _ => Insn::new(0x63 | size << 3, 10, src, off, 0),
                }
            }
        });
    }
    // Everything that was computed.
    for register in 1..10 {
        insns.push(Insn::new(0x27, 0, 0, 0, 31));
        insns.push(Insn::new(0xaf, 0, register, 0, 0));
    }
    for slot in 1..=4 {
        insns.push(Insn::new(0x79, 1, 10, -8 * slot, 0));
        insns.push(Insn::new(0x27, 0, 0, 0, 31));
        insns.push(Insn::new(0xaf, 0, 1, 0, 0));
    }
    insns.push(Insn::EXIT);
    insns
}

#[test]
fn random_programs_end_as_in_rbpf() {
    for seed in 1..=2000_u64 {
        let mut random = Random::new(seed);
        let insns = random_program(&mut random);
        let bytes: Vec<u8> = insns.iter().flat_map(|insn| insn.encode()).collect();
        let theirs = rbpf::EbpfVmNoData::new(Some(&bytes))
            .unwrap()
            .execute_program();
        let theirs = theirs.unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
        let ours = run(&insns).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        assert_eq!(ours, theirs, "seed {seed}: {insns:02x?}");
    }
}

/// `r0 = dst op src`, by register; of both classes.
fn binary(code: u8, off: i16, dst: i64, src: i64) -> u64 {
    let mut insns = Insn::ld_imm64(0, dst).to_vec();
    insns.extend(Insn::ld_imm64(1, src));
    insns.extend([Insn::new(code, 0, 1, off, 0), Insn::EXIT]);
    run(&insns).unwrap()
}

#[test]
fn arithmetic_at_its_edges() {
    const MIN: i64 = i64::MIN;
    let min32 = i64::from(i32::MIN);
    for (code, off, dst, src, expected) in [
        // Division by zero, unsigned and signed, and what is left.
        (0x3f, 0, 7, 0, 0),
        (0x9f, 0, 7, 0, 7),
        (0x3f, 1, 7, 0, 0),
        (0x9f, 1, -7, 0, -7_i64 as u64),
        (0x9c, 0, -1, 0, 0xffff_ffff),
        // Signed division rounds to zero, and its remainder has the dividend's sign.
        (0x3f, 1, -13, 3, -4_i64 as u64),
        (0x9f, 1, -13, 3, -1_i64 as u64),
        (0x9f, 1, 13, -3, 1),
        (0x3f, 1, MIN, -1, MIN as u64),
        (0x9f, 1, MIN, -1, 0),
        (0x3c, 1, min32, -1, 0x8000_0000),
        (0x9c, 1, min32, -1, 0),
        (0x3c, 1, -13, 3, 0xffff_fffc),
        (0x3c, 0, -13, 3, 0x5555_5551),
        // Shifts by a register count modulo the width; halves are extended with zeros.
        (0x6f, 0, 1, 65, 2),
        (0x6c, 0, 1, 33, 2),
        (0xcf, 0, MIN, 63, u64::MAX),
        (0xcc, 0, min32, 31, 0xffff_ffff),
        (0x7c, 0, -1, 4, 0x0fff_ffff),
        // Moves with a sign.
        (0xbf, 8, 0, 0x1280, 0xffff_ffff_ffff_ff80),
        (0xbf, 16, 0, 0x1_8000, 0xffff_ffff_ffff_8000),
        (0xbf, 32, 0, 0x1_8000_0000, 0xffff_ffff_8000_0000),
        (0xbc, 8, 0, 0x80, 0xffff_ff80),
        (0xbc, 16, 0, 0x8000, 0xffff_8000),
        (0xbc, 0, 0, -1, 0xffff_ffff),
    ] {
        assert_eq!(
            binary(code, off, dst, src),
            expected,
            "{code:#x} {off} {dst} {src}"
        );
    }
}

#[test]
fn bytes_are_swapped_or_cut() {
    let value = 0x0102_0304_0506_0708;
    for (code, width, expected) in [
        (0xd4, 16, 0x0708),
        (0xd4, 32, 0x0506_0708),
        (0xd4, 64, value as u64),
        (0xdc, 16, 0x0807),
        (0xdc, 32, 0x0807_0605),
        (0xdc, 64, 0x0807_0605_0403_0201),
        (0xd7, 16, 0x0807),
        (0xd7, 32, 0x0807_0605),
        (0xd7, 64, 0x0807_0605_0403_0201),
    ] {
        let mut insns = Insn::ld_imm64(0, value).to_vec();
        insns.extend([Insn::new(code, 0, 0, 0, width), Insn::EXIT]);
        assert_eq!(run(&insns), Ok(expected), "{code:#x} {width}");
    }
}

#[test]
fn atomics_change_memory_and_give_what_was_there() {
    let (old, operand) = (0x1_8000_0003_i64, 0x2_0000_0005_i64);

    for (imm, new64, new32) in [
        (0x00, 0x3_8000_0008_u64, 0x8000_0008_u64),
        (0x40, 0x3_8000_0007, 0x8000_0007),
        (0x50, 0x1, 0x1),
        (0xa0, 0x3_8000_0006, 0x8000_0006),
        (0xe0, 0x2_0000_0005, 5),
    ] {
        for (code, fetch) in [(0xdb, 0), (0xdb, 1), (0xc3, 0), (0xc3, 1)] {
            // An exchange is BPF_XCHG, 0xe0 | BPF_FETCH: there is none that does not fetch.
            if imm == 0xe0 && fetch == 0 {
                continue;
            }
            // What is fetched is in r1, memory in r0.
            for wanted in [0, 1] {
                let mut insns = Insn::ld_imm64(0, old).to_vec();
                insns.push(Insn::new(0x7b, 10, 0, -8, 0));
                insns.extend(Insn::ld_imm64(1, operand));
                insns.push(Insn::new(code, 10, 1, -8, imm | fetch));
                // Memory is read back after the operation.
                match wanted {
                    0 => insns.push(Insn::new(0x79, 0, 10, -8, 0)),
                    _ => insns.push(Insn::new(0xbf, 0, 1, 0, 0)),
                }

                insns.push(Insn::EXIT);
                let is_wide = code == 0xdb;
                let expected = match (wanted, fetch, is_wide) {
                    (0, _, true) => new64,
                    (0, _, false) => 0x1_0000_0000 | new32,
                    (_, 0, _) => operand as u64,
                    (_, _, true) => old as u64,
                    (_, _, false) => u64::from(old as u32),
                };
                assert_eq!(
                    run(&insns),
                    Ok(expected),
                    "{code:#x} {imm:#x} {fetch} {wanted}"
                );
            }
        }
    }
}

#[test]
fn compare_and_exchange_always_sets_r0() {
    for (code, r0, expected_r0, expected_memory) in [
        (0xdb, 0x1_0000_0003_i64, 0x1_0000_0003_u64, 9_u64),
        (0xdb, 3, 0x1_0000_0003, 0x1_0000_0003),
        (0xc3, 0x7_0000_0003, 3, 0x1_0000_0009),
        (0xc3, 4, 3, 0x1_0000_0003),
    ] {
        for wanted in [0, 1] {
            let mut insns = Insn::ld_imm64(1, 0x1_0000_0003).to_vec();
            insns.push(Insn::new(0x7b, 10, 1, -8, 0));
            insns.extend(Insn::ld_imm64(0, r0));
            insns.push(Insn::new(0xb7, 2, 0, 0, 9));
            insns.push(Insn::new(code, 10, 2, -8, 0xf1));
            if wanted == 1 {
                insns.push(Insn::new(0x79, 0, 10, -8, 0));
            }
            insns.push(Insn::EXIT);
            let expected = [expected_r0, expected_memory][wanted];
            assert_eq!(run(&insns), Ok(expected), "{code:#x} {r0:#x} {wanted}");
        }
    }
}

#[test]
fn calls_have_eight_stacks_and_keep_r6_to_r9() {
    // f(n) = n == 0 ? 0 : 1 + f(n - 1), which needs n + 1 calls and the program's own.
    let program = |n: i32| {
        [
            Insn::new(0xb7, 1, 0, 0, n),
            Insn::new(0x85, 0, 1, 0, 1),
            Insn::EXIT,
            Insn::new(0x55, 1, 0, 2, 0),
            Insn::new(0xb7, 0, 0, 0, 0),
            Insn::EXIT,
            Insn::new(0xbf, 6, 1, 0, 0),
            Insn::new(0x07, 1, 0, 0, -1),
            Insn::new(0x85, 0, 1, 0, -6),
            Insn::new(0x07, 0, 0, 0, 1),
            Insn::new(0x55, 6, 0, 0, 0),
            Insn::EXIT,
        ]
    };
    assert_eq!(run(&program(6)), Ok(6));
    let fault = run(&program(7)).unwrap_err();
    assert_eq!((fault.kind, fault.insn), (FaultKind::CallDepth, 8));
    assert_eq!(fault.function, "function_3");
}

#[test]
fn what_the_verifier_would_refuse_is_a_fault_where_it_happens() {
    // `BPF_LDX | BPF_MEM | BPF_DW` into r0.
    let read = |base: u8, off: i16| Insn::new(0x79, 0, base, off, 0);
    for (insns, at, kind) in [
        (
            vec![Insn::new(0xbf, 0, 3, 0, 0), Insn::EXIT],
            0,
            FaultKind::UninitialisedRegister(3),
        ),
        (vec![Insn::EXIT], 0, FaultKind::UninitialisedRegister(0)),
        (
            vec![read(10, -8), Insn::EXIT],
            0,
            FaultKind::UninitialisedStack {
                frame: 0,
                offset: -8,
            },
        ),
        (
            vec![Insn::new(0xb7, 1, 0, 0, 0), read(1, 16), Insn::EXIT],
            1,
            FaultKind::Null {
                address: 16,
                size: 8,
            },
        ),
        (
            vec![
                Insn::new(0xb7, 1, 0, 0, 0x7fff_0000),
                read(1, 0),
                Insn::EXIT,
            ],
            1,
            FaultKind::NotAPointer {
                address: 0x7fff_0000,
                size: 8,
            },
        ),
        (
            vec![Insn::new(0x7a, 10, 0, -12, 0), Insn::EXIT],
            0,
            FaultKind::MisalignedStack {
                offset: -12,
                size: 8,
            },
        ),
        // A register that a helper may have changed.
        (
            vec![
                Insn::new(0x85, 0, 0, 0, 8),
                Insn::new(0xbf, 0, 1, 0, 0),
                Insn::EXIT,
            ],
            1,
            FaultKind::UninitialisedRegister(1),
        ),
    ] {
        // The fault must name the instruction at which it happens.
        let fault = run(&insns).unwrap_err();
        assert_eq!((fault.insn, fault.kind), (at, kind));
    }

    // Outside of the stack: at its top, below its end, and above it.
    for off in [0, -520, 504] {
        let fault = run(&[Insn::new(0x7a, 10, 0, off, 0), Insn::EXIT]).unwrap_err();
        assert!(
            matches!(fault.kind, FaultKind::OutOfBounds { .. }),
            "{fault}"
        );
    }

    // An endless loop is ended by the budget.
    let fault = run(&[Insn::new(0x05, 0, 0, -1, 0), Insn::EXIT]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Budget(1_000_000));
}

#[test]
fn malformed_programs_are_not_loaded() {
    use LoadErrorKind as Kind;
    let mov = Insn::new(0xb7, 0, 0, 0, 0);

    // The first instruction, and what is wrong with it.
    for (first, expected) in [
        (Insn::new(0xe7, 0, 0, 0, 0), Kind::Opcode(0xe7)),
        (Insn::new(0x20, 0, 0, 0, 0), Kind::PacketAccess(0x20)),
        (Insn::new(0x40, 0, 1, 0, 0), Kind::PacketAccess(0x40)),
        (Insn::new(0xb7, 11, 0, 0, 0), Kind::Register(11)),
        (Insn::new(0xbf, 0, 12, 0, 0), Kind::Register(12)),
        (Insn::new(0xb7, 10, 0, 0, 0), Kind::FramePointer),
        (Insn::new(0x67, 0, 0, 0, 64), Kind::Shift(64)),
        (Insn::new(0x64, 0, 0, 0, 32), Kind::Shift(32)),
        (Insn::new(0x37, 0, 0, 0, 0), Kind::DivideByZero),
        (Insn::new(0x05, 0, 0, 2, 0), Kind::Target(3)),
        (Insn::new(0x05, 0, 0, -2, 0), Kind::Target(-1)),
        (Insn::new(0x06, 0, 0, 0, 7), Kind::Target(8)),
        (
            Insn::new(0x85, 0, 0, 0, 9),
            Kind::Helper(9, Some("skb_store_bytes")),
        ),
        (Insn::new(0x85, 0, 0, 0, 999), Kind::Helper(999, None)),
        (Insn::new(0x85, 0, 2, 0, 77), Kind::KernelFunction(77)),
        (Insn::new(0x8d, 0, 0, 0, 0), Kind::Indirect(0x8d)),
        (Insn::new(0x0d, 0, 0, 0, 0), Kind::Indirect(0x0d)),
        (Insn::new(0x07, 0, 1, 0, 0), Kind::Reserved),
        (Insn::new(0x07, 0, 0, 1, 0), Kind::Reserved),
        (Insn::new(0xd4, 0, 0, 0, 8), Kind::Reserved),
        (Insn::new(0xdf, 0, 0, 0, 16), Kind::Reserved),
        (Insn::new(0x99, 0, 1, 0, 0), Kind::Opcode(0x99)),
        (Insn::new(0xd3, 0, 1, 0, 0), Kind::Opcode(0xd3)),
        (Insn::new(0xdb, 0, 1, 0, 0xe0), Kind::Reserved),
        (Insn::new(0x18, 0, 0, 0, 0), Kind::LdImm64),
    ] {
        let object = Object::from_insns("raw", &[first, mov, Insn::EXIT], &[]);
        let error = Handlers::load(&object, Limits::default()).unwrap_err();
        assert_eq!(
            (error.insn, error.kind),
            (Some(0), expected),
            "{first:02x?}"
        );
    }

    // A program that does not end with an exit.
    let object = Object::from_insns("raw", &[mov], &[]);
    let error = Handlers::load(&object, Limits::default()).unwrap_err();
    assert_eq!(error.kind, Kind::NoEnd);
}
