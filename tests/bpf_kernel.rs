//! Compares the eBPF interpreter with the running kernel's BPF: every arithmetic, comparison and
//! atomic instruction on random numbers, with all changed registers folded into the result; and
//! which accesses to a perf event's context the verifier allows.

use crate::common::random::Random;
use crate::common::skip::skip;
use unwind_sim_host::bpf::{BpfError, KernelProgram, ProgramType};
use unwind_sim_perf_model::bpf::{
    Context, Handlers, Insn, Limits, Object, PerfEventData, PlainEnv,
};

/// Loads a program into the kernel; `None` if bpf() is not allowed.
fn kernel(test: &str, kind: ProgramType, insns: &[Insn]) -> Option<Result<KernelProgram, String>> {
    let bytes: Vec<_> = insns.iter().map(|insn| insn.encode()).collect();
    match KernelProgram::load(kind, &bytes) {
        Ok(program) => Some(Ok(program)),
        Err(BpfError::Refused { log }) => Some(Err(log)),
        Err(BpfError::Denied(_)) => {
            skip(test, "bpf() is not allowed here");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn ours(insns: &[Insn]) -> u32 {
    let object = Object::from_insns("raw", insns, &[]);
    let mut handlers = Handlers::load(&object, Limits::default()).unwrap();
    let outcome = handlers.run(0, &mut PlainEnv::default(), Context::Bytes(&[]));
    outcome.unwrap_or_else(|fault| panic!("{fault}")).value()
}

/// Small numbers, limits of types, and anything.
fn number(random: &mut Random) -> i64 {
    match random.below(4) {
        0 => random.below(9) as i64 - 4,
        1 => random.pick(&[i64::MIN, i64::MAX, 1 << 31, -(1 << 31), 0xffff_ffff]),
        _ => random.bits() as i64,
    }
}

/// All instructions that change r1, r0 or the word at r10-8 by r2 or a number, or jump over one
/// instruction.
fn instructions(random: &mut Random) -> Vec<Insn> {
    let mut all = Vec::new();
    // `BPF_ALU`, on 32 bits, and `BPF_ALU64`.
    for class in [4_u8, 7] {
        let width = if class == 7 { 63 } else { 31 };
        for op in (0..=0xc).map(|op: u8| op << 4) {
            let imm = number(random) as i32;
            // 0x30 and 0x90 are division and remainder: offset 1 makes them signed, and the
            // verifier refuses the constant 0.
            match op {
                // 0x80 is the negation, which has one operand.
                0x80 => all.push(Insn::new(class | op, 1, 0, 0, 0)),
                0x30 | 0x90 => {
                    for off in [0, 1] {
                        all.push(Insn::new(class | op | 8, 1, 2, off, 0));
                        all.push(Insn::new(
                            class | op,
                            1,
                            0,
                            off,
                            if imm == 0 { -1 } else { imm },
                        ));
                    }
                }
                0x60 | 0x70 | 0xc0 => {
                    // The just-in-time compiler takes a register's count modulo the width.
                    all.push(Insn::new(class | op | 8, 1, 2, 0, 0));
                    all.push(Insn::new(class | op, 1, 0, 0, imm & width));
                }
                _ => {
                    all.push(Insn::new(class | op | 8, 1, 2, 0, 0));
                    all.push(Insn::new(class | op, 1, 0, 0, imm));
                }
            }
        }

        // With an offset, a move extends the sign of so many bits (version 4 of the instruction
        // set).
        for off in [8, 16, 32]
            .into_iter()
            .filter(|off| class == 7 || *off < 32)
        {
            all.push(Insn::new(0xb8 | class, 1, 2, off, 0));
        }
    }

    // Byte swaps: to little endian, to big endian, and in any case.
    for code in [0xd4, 0xdc, 0xd7] {
        for width in [16, 32, 64] {
            all.push(Insn::new(code, 1, 0, 0, width));
        }
    }

    // `BPF_JMP`, on 64 bits, and `BPF_JMP32`.
    for class in [5, 6] {
        for op in [1, 2, 3, 4, 5, 6, 7, 0xa, 0xb, 0xc, 0xd_u8] {
            all.push(Insn::new(op << 4 | 8 | class, 1, 2, 1, 0));
            all.push(Insn::new(op << 4 | class, 1, 0, 1, number(random) as i32));
        }
    }

    // The verifier requires every instruction to be reachable.
    all.push(Insn::new(0x05, 0, 0, 0, 0));
    all.push(Insn::new(0x06, 0, 0, 0, 0));

    // Atomic operations on 32 and on 64 bits.
    for code in [0xc3, 0xdb] {
        for imm in [0, 1, 0x40, 0x41, 0x50, 0x51, 0xa0, 0xa1, 0xe1, 0xf1] {
            all.push(Insn::new(code, 10, 2, -8, imm));
        }
    }

    for size in [0, 0x08, 0x10, 0x18] {
        all.push(Insn::new(0x61 | size, 1, 10, -8, 0));
        all.push(Insn::new(0x62 | size, 10, 0, -8, number(random) as i32));
        all.push(Insn::new(0x63 | size, 10, 2, -8, 0));
        all.push(Insn::new(0xc3 | size, 1, 10, -8, 0x100));
        all.push(Insn::new(0xc3 | size, 10, 2, -8, 0x110));
        // 0x81 loads and extends the sign; 64 bits have nothing to extend.
        if size != 0x18 {
            all.push(Insn::new(0x81 | size, 1, 10, -8, 0));
        }
    }

    all
}

/// A program around one instruction. Its result is the lower or upper half of everything that the
/// instruction may change.
fn program(tested: Insn, random: &mut Random, upper: bool) -> Vec<Insn> {
    let numbers = [number(random), number(random), number(random)];
    // Sometimes the value to compare and exchange is equal, or two operands are.
    let memory = [numbers[0], numbers[1], number(random)][random.below(3)];
    let mut insns = Vec::new();
    for (register, number) in (0..).zip(numbers) {
        insns.extend(Insn::ld_imm64(register, number));
    }
    insns.extend(Insn::ld_imm64(3, memory));
    insns.push(Insn::new(0x7b, 10, 3, -8, 0));
    insns.extend([tested, Insn::new(0x07, 1, 0, 0, 77)]);
    insns.push(Insn::new(0x79, 3, 10, -8, 0));
    for register in 1..=3 {
        insns.push(Insn::new(0x27, 0, 0, 0, 31));
        insns.push(Insn::new(0xaf, 0, register, 0, 0));
    }
    if upper {
        insns.push(Insn::new(0x77, 0, 0, 0, 32));
    }
    insns.push(Insn::EXIT);
    insns
}

#[test]
fn instructions_do_what_they_do_in_the_kernel() {
    const TEST: &str = "instructions_do_what_they_do_in_the_kernel";
    let mut compared = 0;
    let mut refused = std::collections::BTreeMap::new();

    for seed in 1..=12_u64 {
        let mut random = Random::new(seed);
        for tested in instructions(&mut random) {
            let state = random.bits();
            for upper in [false, true] {
                // Both programs get the same numbers; one returns the lower half of the result, one
                // the upper.
                let insns = program(tested, &mut Random::new(state), upper);
                let Some(loaded) = kernel(TEST, ProgramType::SocketFilter, &insns) else {
                    return;
                };
                match loaded {
                    Ok(loaded) => {
                        let theirs = loaded.run().unwrap();
                        assert_eq!(ours(&insns), theirs, "seed {seed}: {tested:02x?}");
                        compared += 1;
                    }
                    // What the verifier says last is the reason.
                    Err(log) => {
                        let last = log
                            .lines()
                            .rev()
                            .find(|line| !line.starts_with("processed"));
                        refused.insert((tested.code, tested.imm), last.unwrap_or("").to_owned());
                    }
                }
            }
        }
    }

    println!("{compared} programs compared; refused: {refused:02x?}");
    // Kernels before 6.15 have no load-acquire and store-release.
    let is_new = |(_, imm): &(u8, i32)| matches!(imm, 0x100 | 0x110);
    assert!(refused.keys().all(is_new), "{refused:02x?}");
    assert!(compared > 2000);
}

#[test]
fn r003_8_the_context_is_read_as_the_verifier_allows() {
    const TEST: &str = "r003_8_the_context_is_read_as_the_verifier_allows";
    let mut data = PerfEventData::new();
    for offset in (0..184).step_by(8) {
        data.set_word(offset, 1);
    }
    for code in [0x71, 0x69, 0x61, 0x79] {
        for offset in -8..192_i16 {
            let insns = [Insn::new(code, 0, 1, offset, 0), Insn::EXIT];
            let Some(theirs) = kernel(TEST, ProgramType::PerfEvent, &insns) else {
                return;
            };
            let object = Object::from_insns("perf_event", &insns, &[]);
            let mut handlers = Handlers::load(&object, Limits::default()).unwrap();
            let ours = handlers.run(0, &mut PlainEnv::default(), Context::PerfEvent(&data));
            assert_eq!(
                ours.is_ok(),
                theirs.is_ok(),
                "{code:#x} {offset}: {theirs:?}"
            );
        }
    }
}
