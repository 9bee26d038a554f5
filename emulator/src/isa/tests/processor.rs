//! The effects of a processor's vendor, generation and features.

use super::*;
use crate::processor::{Feature, Processor, Vendor};
use crate::single::Single;

const INVALID: Exit = Exit::Exception(Exception::InvalidOpcode);

fn processor(text: &str) -> Processor {
    text.parse().expect("a processor")
}

/// Like [`super::machine`], on this processor.
fn machine_of(text: &str, code: &[u8]) -> Machine {
    let mut machine = machine(code);
    machine.core.set_processor(processor(text));
    machine
}

/// Executes one instruction with rax = 0x100, rcx = DATA and rflags = 0x2.
fn step(text: &str, code: &[u8]) -> (Exit, Machine) {
    let mut machine = machine_of(text, code);
    machine.core.state.set_gpr(reg::RAX, 0x100);
    machine.core.state.set_gpr(reg::RCX, DATA);
    (machine.run(1, &mut ()), machine)
}

#[test]
fn instructions_of_features_that_are_off_are_none() {
    // movbe (%rcx),%eax; clwb (%rcx); clflushopt (%rcx)
    let off: [(&str, &[u8]); 3] = [
        ("movbe", &[0x0f, 0x38, 0xf0, 0x01]),
        ("clwb", &[0x66, 0x0f, 0xae, 0x31]),
        ("clflushopt", &[0x66, 0x0f, 0xae, 0x39]),
    ];

    for (name, code) in off {
        assert_eq!(step("v2", code).0, INVALID, "{name}");
        assert_eq!(step(&format!("v2,+{name}"), code).0, Exit::Limit, "{name}");
    }

    let on: [(&str, &[u8]); 12] = [
        ("popcnt", &[0xf3, 0x0f, 0xb8, 0xc0]),
        ("lahf", &[0x9f]),
        ("lahf", &[0x9e]),
        ("sse3", &[0xf2, 0x0f, 0x12, 0xc0]),            // movddup
        ("ssse3", &[0x66, 0x0f, 0x38, 0x1c, 0xc0]),     // pabsb
        ("ssse3", &[0x0f, 0x38, 0x1c, 0xc0]),           // pabsb with mm registers
        ("sse4.1", &[0x66, 0x0f, 0x38, 0x17, 0xc0]),    // ptest
        ("sse4.2", &[0x66, 0x0f, 0x3a, 0x63, 0xc0, 0]), // pcmpistri
        ("cx16", &[0x48, 0x0f, 0xc7, 0x09]),            // cmpxchg16b (%rcx)
        ("fsgsbase", &[0xf3, 0x48, 0x0f, 0xae, 0xc0]),  // rdfsbase
        ("rdtscp", &[0x0f, 0x01, 0xf9]),
        ("xsaveopt", &[0x0f, 0xae, 0x31]),
    ];

    for (name, code) in on {
        assert_eq!(step("v2", code).0, Exit::Limit, "{name}");
        assert_eq!(step(&format!("v2,-{name}"), code).0, INVALID, "{name}");
    }

    // xgetbv of XCR0
    let mut machine = machine_of("v2,-xsave", &[0x0f, 0x01, 0xd0]);
    assert_eq!(machine.run(1, &mut ()), INVALID);
}

/// Without LZCNT and BMI1, their prefix is ignored: BSR and BSF.
#[test]
fn counts_of_zeros_are_scans_where_they_are_not_there() {
    for (code, feature, count, scan) in [
        ([0xf3, 0x0f, 0xbd, 0xd8], "lzcnt", 23, 8), // of %eax, to %ebx
        ([0xf3, 0x0f, 0xbc, 0xd8], "bmi1", 8, 8),
    ] {
        let (_, machine) = step(&format!("v2,+{feature}"), &code);
        assert_eq!(machine.core.state.gpr(reg::RBX), count);
        let (exit, machine) = step("v2", &code);
        assert_eq!((exit, machine.core.state.rip), (Exit::Limit, CODE + 4));
        assert_eq!(machine.core.state.gpr(reg::RBX), scan);
        // With a source of 0, a count gives the operand size; a scan does not change the
        // destination, and sets ZF.
        for (text, value, zf) in [
            (format!("v2,+{feature}"), 32, 0),
            ("v2".to_owned(), 77, 0x40),
        ] {
            let mut machine = machine_of(&text, &code);
            machine.core.state.set_gpr(reg::RBX, 77);
            machine.run(1, &mut ());
            assert_eq!(machine.core.state.gpr(reg::RBX), value, "{text}");
            assert_eq!(machine.core.state.rflags() & 0x40, zf, "{text}");
        }
    }
}

/// Whether `loope` and `loopne` jump if ZF is clear and if it is set, by prefixes: seen on an AMD
/// EPYC, family 25, model 1. Intel's processors ignore the prefixes.
#[test]
fn the_last_repeat_prefix_decides_a_loop_on_amd() {
    // Whether the loop goes on, with ZF clear and set.
    const SET: [bool; 2] = [false, true];
    const CLEAR: [bool; 2] = [true, false];

    let cases: [(&[u8], [bool; 2], [bool; 2]); 9] = [
        (&[0xe1], SET, SET),
        (&[0xe0], CLEAR, CLEAR),
        (&[0xf2, 0xe1], SET, CLEAR),
        (&[0xf3, 0xe1], SET, SET),
        (&[0xf3, 0xe0], CLEAR, SET),
        (&[0xf2, 0xf3, 0xe1], SET, SET),
        (&[0xf3, 0xf2, 0xe1], SET, CLEAR),
        (&[0xf2, 0xf3, 0xe0], CLEAR, SET),
        (&[0x67, 0xf2, 0x48, 0xe1], SET, CLEAR),
    ];

    for (code, intel, amd) in cases {
        // The displacement comes last.
        let code = [code, &[0x10]].concat();
        let behind = CODE + code.len() as u64;
        for (text, jumps) in [("v2,intel", intel), ("v2,amd", amd)] {
            // Bit 6 of rflags is ZF; bit 1 is always set.
            for (rflags, jumps) in [(0x2, jumps[0]), (0x42, jumps[1])] {
                let mut machine = machine_of(text, &code);

                // A counter that is not the reason to end the loop.
                machine.core.state.set_gpr(reg::RCX, 5);
                machine.core.state.set_rflags(rflags);

                assert_eq!(machine.run(1, &mut ()), Exit::Limit);
                let to = if jumps { behind + 0x10 } else { behind };
                assert_eq!(machine.core.state.rip, to, "{text} {code:x?} {rflags:x}");
            }
        }
    }
}

/// F3 90 with REX.B: seen on the same processor.
#[test]
fn a_pause_of_r8_exchanges_on_amd() {
    const PAUSED: u64 = 0x9_0000_0001;
    let cases: [(&[u8], u64); 6] = [
        (&[0xf3, 0x41, 0x90], 7),
        (&[0xf2, 0xf3, 0x41, 0x90], 7),
        (&[0xf3, 0x49, 0x90], 0x7_0000_0007),
        (&[0x66, 0xf3, 0x41, 0x90], 0x9_0000_0007),
        (&[0xf3, 0x40, 0x90], PAUSED),
        (&[0xf3, 0x41, 0xf2, 0x90], PAUSED),
    ];
    for (code, amd) in cases {
        for (text, rax) in [("v2,intel", PAUSED), ("v2,amd", amd)] {
            let mut machine = machine_of(text, code);
            machine.core.state.set_gpr(reg::RAX, PAUSED);
            machine.core.state.set_gpr(reg::RAX + 8, 0x7_0000_0007);
            assert_eq!(machine.run(1, &mut ()), Exit::Limit);
            assert_eq!(machine.core.state.gpr(reg::RAX), rax, "{text} {code:x?}");
        }
    }
}

/// 0F 18 to 0F 1F, with any operands, and 0F 0D: hints, which do nothing and access no memory.
#[test]
fn hints_do_nothing() {
    let prefixes: [&[u8]; 5] = [&[], &[0x66], &[0xf2], &[0xf3], &[0x48]];
    let mut machine = machine(&[]);
    let before = everything(&machine);
    let mut single = Single::default();

    for opcode in [0x0d].into_iter().chain(0x18..=0x1f) {
        for modrm in 0..=255_u8 {
            for prefix in prefixes {
                let mut code = [0; 15];
                let start = [prefix, &[0x0f, opcode, modrm]].concat();

                // Zeros behind it serve as a SIB byte, a displacement or an immediate.
                code[..start.len()].copy_from_slice(&start);

                machine.core.state.rip = CODE;
                single.decode(&code, CODE, &machine.core.processor());
                assert_eq!(machine.execute(&single), Exit::Limit, "{start:02x?}");

                // It went past the instruction, however long that is.
                assert!(machine.core.state.rip > CODE + 2, "{start:02x?}");
            }
        }
    }

    // After all of them: nothing has changed but rip.
    assert_eq!(everything(&machine), before);

    // On AMD's processors a prefetch of a register is not an instruction.
    for (modrm, exit) in [
        (0xc0, INVALID),
        (0xff, INVALID),
        (0x00, Exit::Limit),
        (0x38, Exit::Limit),
    ] {
        assert_eq!(step("v2,amd", &[0x0f, 0x0d, modrm]).0, exit, "{modrm:x}");
        assert_eq!(step("v2,intel", &[0x0f, 0x0d, modrm]).0, Exit::Limit);
    }
}

/// The time is the number of instructions before, however they are executed.
#[test]
fn two_readings_of_the_time_differ() {
    // rdtsc; mov %eax,%ebx; rdtsc; sub %ebx,%eax; rdtscp
    let code = [
        0x0f, 0x31, 0x89, 0xc3, 0x0f, 0x31, 0x89, 0xc6, 0x29, 0xd8, 0x0f, 0x01, 0xf9,
    ];
    for slice in [1, 2, 6] {
        let mut machine = machine(&code);
        for _ in 0..6 / slice {
            assert_eq!(machine.run(slice, &mut ()), Exit::Limit);
        }
        let [first, second, third] =
            [reg::RBX, reg::RSI, reg::RAX].map(|r| machine.core.state.gpr(r));
        assert_eq!([first, second, third], [0, 2, 5], "{slice} at a time");
    }
    // Two adjacent ones; with an instruction of several operations between them.
    let mut machine = machine(&[0x0f, 0x31, 0x64, 0x67, 0x8b, 0x19, 0x0f, 0x31]);
    machine.core.state.set_gpr(reg::RCX, DATA);
    assert_eq!(machine.run(3, &mut ()), Exit::Limit);
    assert_eq!(machine.core.state.gpr(reg::RAX), 2);
}

/// APM volume 1, table 3-9: the 66 prefix makes near branches 16 bits wide. In the SDM, volume
/// 1, it is ignored.
#[test]
fn branches_of_16_bits_are_amds() {
    let rsp = DATA + 0x100;
    let run = |text: &str, code: &[u8]| {
        let mut machine = machine_of(text, code);
        machine.core.state.set_gpr(reg::RSP, rsp);
        machine.core.state.set_gpr(reg::RAX, CODE + 0x80);
        machine.core.state.set_gpr(reg::RCX, 2);

        // Where `ret` goes.
        let slot = (CODE + 0x90).to_le_bytes();
        machine.core.memory.poke(rsp, &slot).expect("mapped");
        assert_eq!(machine.run(1, &mut ()), Exit::Limit, "{text} {code:x?}");
        let stack: [u8; 8] = bytes(&machine, machine.core.state.gpr(reg::RSP));
        (
            machine.core.state.rip,
            machine.core.state.gpr(reg::RSP) as i64 - rsp as i64,
            u64::from_le_bytes(stack),
        )
    };

    let low = |address: u64| address & 0xffff;

    // Bytes; for AMD and Intel: the target, and the change of rsp.
    let cases: [(&[u8], u64, i64, u64, i64); 7] = [
        (&[0x66, 0xeb, 0x10], low(CODE + 0x13), 0, CODE + 0x13, 0), // jmp
        (
            &[0x66, 0xe9, 0x10, 0, 0, 0],
            low(CODE + 0x14),
            0,
            CODE + 0x16,
            0,
        ),
        (
            &[0x66, 0xe8, 0x10, 0, 0, 0],
            low(CODE + 0x14),
            -2,
            CODE + 0x16,
            -8,
        ), // call
        (&[0x66, 0xff, 0xe0], low(CODE + 0x80), 0, CODE + 0x80, 0), // jmp *%rax
        (&[0x66, 0xff, 0xd0], low(CODE + 0x80), -2, CODE + 0x80, -8), // call *%rax
        (&[0x66, 0xc3], low(CODE + 0x90), 2, CODE + 0x90, 8),       // ret
        (&[0x66, 0xe2, 0x10], low(CODE + 0x13), 0, CODE + 0x13, 0), // loop
    ];

    for (code, amd, amd_rsp, intel, intel_rsp) in cases {
        let (rip, moved, stack) = run("v2,amd", code);
        assert_eq!((rip, moved), (amd, amd_rsp), "{code:x?}");
        // A call that pushes 2 bytes.
        if amd_rsp == -2 {
            let len = if code.len() == 6 { 4 } else { 3 };
            assert_eq!(stack & 0xffff, low(CODE + len), "{code:x?}");
        }
        let (rip, moved, _) = run("v2,intel", code);
        assert_eq!((rip, moved), (intel, intel_rsp), "{code:x?}");
    }

    // A branch that is not taken (jb) continues after its own length, which is shorter on AMD's.
    assert_eq!(run("v2,amd", &[0x66, 0x0f, 0x82, 1, 0, 0, 0]).0, CODE + 5);
    assert_eq!(run("v2,intel", &[0x66, 0x0f, 0x82, 1, 0, 0, 0]).0, CODE + 7);
}

/// APM volume 1: MXCSR.MM, which Intel's processors do not have.
#[test]
fn misaligned_operands_are_allowed_by_mm() {
    let general = Exit::Exception(Exception::GeneralProtection);
    let load = |text: &str| {
        // ldmxcsr (%rcx)
        let mut machine = machine_of(text, &[0x0f, 0xae, 0x11]);
        machine.core.state.set_gpr(reg::RCX, DATA);
        let value = 0x2_1f80_u32.to_le_bytes();
        machine.core.memory.poke(DATA, &value).expect("mapped");
        machine.run(1, &mut ())
    };
    assert_eq!(load("v2,intel"), general);
    assert_eq!(load("v2,amd"), Exit::Limit);
    // andps 1(%rcx),%xmm0; movaps 1(%rcx),%xmm0
    for (mxcsr, code, exit) in [
        (0x1f80, [0x0f, 0x54, 0x41, 1], general),
        (0x2_1f80, [0x0f, 0x54, 0x41, 1], Exit::Limit),
        (0x2_1f80, [0x0f, 0x28, 0x41, 1], general),
    ] {
        let mut machine = machine_of("v2,amd", &code);
        machine.core.state.set_gpr(reg::RCX, DATA);
        machine.core.state.mxcsr = mxcsr;
        assert_eq!(machine.run(1, &mut ()), exit, "{mxcsr:x} {code:x?}");
    }
}

/// The last x87 instruction in an fxsave64 area that was filled with 0xee, without and with a
/// pending exception; and MXCSR_MASK.
#[test]
fn x87_pointers_and_the_mask_are_saved_as_each_processor_does() {
    let kept = u64::from_le_bytes([0xee; 8]);
    for (text, without, mask) in [
        ("v2,intel", CODE + 3, 0xffff),
        ("v2,amd", 0, 0x2_ffff),
        ("v2,amd:zen", kept, 0x2_ffff),
    ] {
        // fldcw (%rcx); then fld1, or fldz, fldz, fdivp: 0 / 0; then fxsave64 0x10(%rcx)
        let fine: &[u8] = &[0xd9, 0x29, 0x90, 0xd9, 0xe8, 0x48, 0x0f, 0xae, 0x41, 0x10];
        let raises: &[u8] = &[
            0xd9, 0x29, 0xd9, 0xee, 0xd9, 0xee, 0xde, 0xf9, 0x48, 0x0f, 0xae, 0x41, 0x10,
        ];

        for (code, steps, pointer) in [(fine, 4, without), (raises, 5, CODE + 6)] {
            let mut machine = machine_of(text, code);
            machine.core.state.set_gpr(reg::RCX, DATA);
            let memory = &mut machine.core.memory;
            memory.poke(DATA, &0x37e_u16.to_le_bytes()).expect("mapped");
            memory.poke(DATA + 16, &[0xee; 512]).expect("mapped");

            assert_eq!(machine.run(steps, &mut ()), Exit::Limit);
            let saved: [u8; 8] = bytes(&machine, DATA + 16 + 8);
            assert_eq!(u64::from_le_bytes(saved), pointer, "{text} {steps}");
            let saved: [u8; 4] = bytes(&machine, DATA + 16 + 28);
            assert_eq!(u32::from_le_bytes(saved), mask, "{text}");
            // The state is the same after restoring it.
            let image = machine.core.fx_image();
            machine.core.set_fx_image(&image).expect("a good MXCSR");
            assert_eq!(machine.core.fx_image(), image);
        }
    }
}

/// Seen on an AMD EPYC, family 25, model 17, between the iterations of `repne scas`.
#[test]
fn interrupted_comparisons_show_the_flags_of_their_vendor() {
    for (text, flags) in [("v2,intel", 0x297), ("v2,amd", 0x202)] {
        let mut machine = machine_of(text, &[0xf2, 0xae]);
        let core = &mut machine.core;
        core.state.single_iteration = true;
        core.state.set_gpr(reg::RAX, 9);
        core.state.set_gpr(reg::RCX, 200);
        core.state.set_gpr(reg::RDI, DATA);
        core.state.set_rflags(0x297);
        core.memory.poke(DATA, &[7; 8]).expect("mapped");
        assert_eq!(machine.run(1, &mut ()), Exit::Limit);
        assert_eq!(machine.core.state.rip, CODE);
        assert_eq!(machine.core.state.rflags(), flags, "{text}");
    }
}

#[test]
fn the_processor_says_what_it_is() {
    let cpuid = |text: &str, leaf: u32| {
        let mut machine = machine_of(text, &[0x0f, 0xa2]);
        machine.core.state.set_gpr(reg::RAX, leaf.into());

        // Subleaf 1, which only leaf 0xd looks at here.
        machine.core.state.set_gpr(reg::RCX, 1);
        assert_eq!(machine.run(1, &mut ()), Exit::Limit);
        [reg::RAX, reg::RBX, reg::RCX, reg::RDX].map(|number| machine.core.state.gpr(number) as u32)
    };

    for (text, name, signature) in [
        ("v2,intel", "GenuineIntel", 0x106a3),
        ("v2,intel:skylake", "GenuineIntel", 0x5_06e3),
        ("v2,amd:zen", "AuthenticAMD", 0x80_0f12),
        ("v2,amd:zen3", "AuthenticAMD", 0xa0_0f11),
        ("v2,amd", "AuthenticAMD", 0xa0_0f11),
        ("v2,amd:zen4", "AuthenticAMD", 0xa1_0f11),
    ] {
        let [_, ebx, ecx, edx] = cpuid(text, 0);

        // The name is in ebx, edx, ecx, in this order.
        let shown: Vec<u8> = [ebx, edx, ecx]
            .iter()
            .flat_map(|r| r.to_le_bytes())
            .collect();
        assert_eq!(shown, name.as_bytes(), "{text}");
        assert_eq!(cpuid(text, 1)[0], signature, "{text}");
        // MXCSR.MM exists if and only if cpuid announces it.
        let is_amd = processor(text).vendor() == Vendor::Amd;
        assert_eq!(cpuid(text, 0x8000_0001)[2] >> 7 & 1, u32::from(is_amd));

        // The caches of AMD's processors, which Intel's describe elsewhere.
        assert_eq!(cpuid(text, 0x8000_0005) != [0; 4], is_amd);
    }

    // The features that cpuid announces, by leaf, register and bit; subleaf 1 of leaf 0xd.
    let places = [
        (Feature::Sse3, 1, 2, 0),
        (Feature::Ssse3, 1, 2, 9),
        (Feature::Cx16, 1, 2, 13),
        (Feature::Sse41, 1, 2, 19),
        (Feature::Sse42, 1, 2, 20),
        (Feature::Movbe, 1, 2, 22),
        (Feature::Popcnt, 1, 2, 23),
        (Feature::Xsave, 1, 2, 26),
        (Feature::Xsaveopt, 0xd, 0, 0),
        (Feature::Xsavec, 0xd, 0, 1),
        (Feature::Lahf, 0x8000_0001, 2, 0),
        (Feature::Lzcnt, 0x8000_0001, 2, 5),
        (Feature::Rdtscp, 0x8000_0001, 3, 27),
        (Feature::Pclmulqdq, 1, 2, 1),
        (Feature::Fma, 1, 2, 12),
        (Feature::Aes, 1, 2, 25),
        (Feature::Avx, 1, 2, 28),
        (Feature::F16c, 1, 2, 29),
        (Feature::Rdrand, 1, 2, 30),
        (Feature::Sse4a, 0x8000_0001, 2, 6),
        (Feature::Clzero, 0x8000_0008, 1, 0),
    ];

    for (feature, leaf, register, bit) in places {
        // Each feature can be switched on and off, and cpuid follows.
        for (sign, has) in [('+', 1), ('-', 0)] {
            let text = format!("v2,{sign}{}", feature.as_str());
            assert_eq!(cpuid(&text, leaf)[register] >> bit & 1, has, "{text}");
        }
    }
}
