//! Instructions compared with recorded results of a CPU, and what a record cannot show: faults,
//! alignment, and what is refused.

use crate::address_space::{AddressSpace, Permissions};
use crate::core::Core;
use crate::isa::sse::registers::to_bytes;
use crate::isa::sse::tests::{CODE, DATA, bytes};
use crate::machine::{Exit, Machine};
use crate::processor::{Processor, Vendor};
use crate::state::reg;
use crate::stop::Exception;

const DATA_END: u64 = DATA + 0x1000;
/// Where memory operands are in records.
const OPERAND: u64 = DATA + 0x100;

/// A machine of this processor, about to execute `code`, with [`OPERAND`] in rdi.
fn machine_of(processor: &str, code: &[u8]) -> Machine {
    let mut memory = AddressSpace::new(64);
    let code_range = CODE..CODE + 0x1000;
    memory.map(code_range, Permissions::READ_EXECUTE).unwrap();
    memory.map(DATA..DATA_END, Permissions::READ_WRITE).unwrap();
    memory.poke(CODE, code).unwrap();
    let processor: Processor = processor.parse().unwrap();
    let mut core = Core::with_processor(memory, processor);
    core.state.rip = CODE;
    core.state.set_gpr(reg::RDI, OPERAND);
    Machine::new(core)
}

fn machine(code: &[u8]) -> Machine {
    machine_of("v3", code)
}

fn number(hex: &str) -> [u128; 2] {
    let (high, low) = hex.split_at(hex.len().saturating_sub(32));
    let half = |text: &str| u128::from_str_radix(text, 16).unwrap_or(0);
    [half(low), half(high)]
}

/// Sets what is named `name`.
fn set(machine: &mut Machine, name: &str, hex: &str) {
    let core = &mut machine.core;
    let value = number(hex);
    let small = value[0] as u64;
    match name {
        "rax" => core.state.set_gpr(reg::RAX, small),
        "rcx" => core.state.set_gpr(reg::RCX, small),
        "rdx" => core.state.set_gpr(reg::RDX, small),
        "mxcsr" => core.state.mxcsr = small as u32,
        "flags" => core.state.set_rflags(small),
        "mem" => core.memory.poke(OPERAND, &to_bytes(value)).unwrap(),
        "top" => core.memory.poke(OPERAND + 32, &to_bytes(value)).unwrap(),
        _ => {
            let number = name.strip_prefix("ymm").unwrap();
            let number = number.parse().unwrap();
            core.state.vectors.set_ymm(number, value);
        }
    }
}

/// All that instructions change.
fn visible(machine: &Machine) -> String {
    let state = &machine.core.state;
    let gpr: [u64; 16] = std::array::from_fn(|number| state.gpr(number));
    let ymm: [[u128; 2]; 16] = std::array::from_fn(|number| state.vectors.ymm(number));
    let mut data = [0; 64];
    machine.core.memory.peek(OPERAND, &mut data).unwrap();
    let flags = state.rflags();
    format!("{gpr:x?} {ymm:x?} {flags:x} {:x} {data:x?}", state.mxcsr)
}

#[test]
fn recorded_results() {
    let lines = include_str!("tests/vectors.txt").lines();
    let mut count = 0;
    let mut wrong = Vec::new();

    for line in lines.filter(|line| !line.starts_with('#')) {
        let (before, after) = line.split_once('>').unwrap();
        // The first word is the instruction's name.
        let mut before = before.split_whitespace().skip(1);
        let mut machine = machine(&bytes(before.next().unwrap()));
        let mut exit = Exit::Limit;

        let mut assign = |machine: &mut Machine, words: &mut dyn Iterator<Item = &str>| {
            for word in words {
                match word.split_once('=') {
                    Some((name, value)) => set(machine, name, value),
                    None => exit = Exit::Exception(Exception::Simd),
                }
            }
        };
        assign(&mut machine, &mut before);

        // The same machine with the recorded changes.
        let mut expected = Machine::new(machine.core.clone());
        assign(&mut expected, &mut after.split_whitespace());

        let found = machine.run(1, &mut ());
        if found != exit || visible(&machine) != visible(&expected) {
            wrong.push(format!("{line}\n  {found:?} {}", visible(&machine)));
        }
        count += 1;
    }

    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 1000);
}

/// What a machine does with one instruction.
fn run(code: &[u8], prepare: impl FnOnce(&mut Core)) -> (Exit, Machine) {
    let mut machine = machine(code);
    prepare(&mut machine.core);
    (machine.run(1, &mut ()), machine)
}

#[test]
fn only_processors_with_the_feature_execute_it() {
    let codes: [(&[u8], &str); 5] = [
        (&[0xc5, 0xf8, 0x77], "v3,-avx"),              // vzeroupper
        (&[0xc5, 0xfd, 0xfe, 0xc0], "v3,-avx2"),       // vpaddd ymm0, ymm0, ymm0
        (&[0xc4, 0xe2, 0x71, 0x98, 0xc2], "v3,-fma"),  // vfmadd132ps
        (&[0xc4, 0xe2, 0x79, 0x13, 0xc1], "v3,-f16c"), // vcvtph2ps
        (&[0xc5, 0xf4, 0x58, 0xc2], "v2"),             // vaddps ymm0, ymm1, ymm2
    ];
    let invalid = Exit::Exception(Exception::InvalidOpcode);
    for (code, without) in codes {
        assert_eq!(machine(code).run(1, &mut ()), Exit::Limit, "{code:x?}");
        let mut machine = machine_of(without, code);
        assert_eq!(machine.run(1, &mut ()), invalid, "{code:x?}");
    }
}

#[test]
fn only_some_operands_are_aligned() {
    let protection = Exit::Exception(Exception::GeneralProtection);

    let aligned: [&[u8]; 7] = [
        &[0xc5, 0xfc, 0x28, 0x07],       // vmovaps ymm0, [rdi]
        &[0xc5, 0xfd, 0x7f, 0x07],       // vmovdqa [rdi], ymm0
        &[0xc4, 0xe2, 0x7d, 0x2a, 0x07], // vmovntdqa ymm0, [rdi]
        &[0xc5, 0xfd, 0xe7, 0x07],       // vmovntdq [rdi], ymm0
        &[0xc5, 0xfc, 0x2b, 0x07],       // vmovntps [rdi], ymm0
        &[0xc5, 0xfd, 0x2b, 0x07],       // vmovntpd [rdi], ymm0
        &[0xc5, 0xfd, 0x28, 0x07],       // vmovapd ymm0, [rdi]
    ];

    for code in aligned {
        let at = |address| run(code, |core| core.state.set_gpr(reg::RDI, address)).0;
        // 16 bytes are enough for xmm, not for ymm.
        assert_eq!(at(OPERAND + 16), protection, "{code:x?}");
        assert_eq!(at(OPERAND + 32), Exit::Limit, "{code:x?}");
    }

    // vmovaps xmm0, [rdi]
    let half = |address| {
        run(&[0xc5, 0xf8, 0x28, 0x07], |core| {
            core.state.set_gpr(reg::RDI, address)
        })
        .0
    };
    assert_eq!(half(OPERAND + 8), protection);
    assert_eq!(half(OPERAND + 16), Exit::Limit);

    // vmovups, vpaddd, vaddps, vpsllw with an xmmword, vmovaps' neighbours.
    for code in [
        &[0xc5, 0xfc, 0x10, 0x07][..],
        &[0xc5, 0xfd, 0xfe, 0x07],
        &[0xc5, 0xf8, 0x58, 0x07],
        &[0xc5, 0xfd, 0xf1, 0x07],
    ] {
        let (exit, _) = run(code, |core| core.state.set_gpr(reg::RDI, OPERAND + 1));
        assert_eq!(exit, Exit::Limit, "{code:x?}");
    }
}

fn fault_of(exit: Exit) -> u64 {
    match exit {
        Exit::Exception(Exception::Memory(fault)) => fault.address,
        exit => panic!("{exit:?}"),
    }
}

const ALL: [u128; 2] = [u128::MAX; 2];

#[test]
fn masked_moves_touch_selected_elements_only() {
    let load = [0xc4, 0xe2, 0x75, 0x2c, 0x07]; // vmaskmovps ymm0, ymm1, [rdi]
    let store = [0xc4, 0xe2, 0x75, 0x2e, 0x07]; // vmaskmovps [rdi], ymm1, ymm0

    // The last four elements are not mapped.
    let prepare = |mask: [u128; 2]| {
        move |core: &mut Core| {
            core.state.set_gpr(reg::RDI, DATA_END - 16);
            core.state.vectors.set_ymm(0, [5; 2]);
            core.state.vectors.set_ymm(1, mask);
            core.memory.poke(DATA_END - 16, &[7; 16]).unwrap();
        }
    };

    let low = [u128::MAX, 0];
    let (exit, machine) = run(&load, prepare(low));
    assert_eq!(exit, Exit::Limit);
    let expected = [u128::from_le_bytes([7; 16]), 0];
    assert_eq!(machine.core.state.vectors.ymm(0), expected);
    assert_eq!(run(&store, prepare(low)).0, Exit::Limit);

    for code in [load, store] {
        let (exit, machine) = run(&code, prepare(ALL));
        assert_eq!(fault_of(exit), DATA_END);
        // A load that faults leaves its register.
        assert_eq!(machine.core.state.vectors.ymm(0), [5; 2]);

        let mut stored = [0; 16];
        machine
            .core
            .memory
            .peek(DATA_END - 16, &mut stored)
            .unwrap();
        assert_eq!(stored, [7; 16], "nothing is stored before the fault");
    }
}

/// AMD's processors permute quadwords whatever VEX.W is.
#[test]
fn permutations_need_no_w() {
    for (processor, w, expected) in [
        ("v3,intel", 0x7d, Exit::Exception(Exception::InvalidOpcode)),
        ("v3,intel", 0xfd, Exit::Limit),
        ("v3,amd", 0x7d, Exit::Limit),
        // `vvvv` must not be used.
        ("v3,amd", 0x75, Exit::Exception(Exception::InvalidOpcode)),
    ] {
        for opcode in [0, 1] {
            // vpermq or vpermpd ymm0, ymm1, 0x1b: the reverse.
            let (exit, machine) = run(&[0xc4, 0xe3, w, opcode, 0xc1, 0x1b], |core| {
                core.set_processor(processor.parse().expect("a processor"));
                core.state.vectors.set_ymm(1, [2 << 64 | 1, 4 << 64 | 3]);
            });
            assert_eq!(exit, expected, "{processor} {w:#x}");
            if exit == Exit::Limit {
                let reverse = [3 << 64 | 4, 1 << 64 | 2];
                assert_eq!(machine.core.state.vectors.ymm(0), reverse);
                assert_eq!(machine.core.state.rip, CODE + 6);
            }
        }
    }
}

/// Elements have addresses of 32 bits each: after the last one comes 0, plus the segment's base.
#[test]
fn addresses_of_masked_elements_wrap_around() {
    let load = [0x67, 0xc4, 0xe2, 0x75, 0x2c, 0x07]; // vmaskmovps ymm0, ymm1, [edi]
    let store = [0x67, 0xc4, 0xe2, 0x75, 0x2e, 0x07];
    let with_segment = [0x64, 0x67, 0xc4, 0xe2, 0x75, 0x2c, 0x07];
    for (code, expected) in [(&load[..], 8), (&store, 8), (&with_segment, 0x7_0000_0008)] {
        let (exit, _) = run(code, |core| {
            core.state.set_gpr(reg::RDI, 0x5_ffff_fff8);
            core.state.set_gpr(reg::FS, 0x7_0000_0000);
            // The fifth element.
            core.state.vectors.set_ymm(1, [0, 1 << 31]);
        });
        assert_eq!(fault_of(exit), expected);
    }
}

/// A fault leaves what is done done, and its mask cleared; then it can go on. Intel's processors have
/// replaced the other masks by their signs then.
#[test]
fn gathers_are_restarted_after_a_fault() {
    gather_again(Vendor::Amd, 0x8000_0000);
    gather_again(Vendor::Intel, 0xffff_ffff);
}

/// Gathers with a fault at element 3, whose mask is then `mask`.
fn gather_again(vendor: Vendor, mask: u128) {
    // vpgatherdd ymm0, [rdi+ymm2*4], ymm3
    let code = [0xc4, 0xe2, 0x65, 0x90, 0x04, 0x97];

    let indices = [0, 1, 2, 3, 4, 5, 6, 7_u32];
    let (exit, mut machine) = run(&code, |core| {
        core.set_processor(Processor::new(vendor));
        core.state.set_gpr(reg::RDI, DATA_END - 12);
        let elements: Vec<u8> = indices.iter().flat_map(|i| i.to_le_bytes()).collect();
        let vectors = &mut core.state.vectors;
        let low = u128::from_le_bytes(elements[..16].try_into().unwrap());
        let high = u128::from_le_bytes(elements[16..].try_into().unwrap());
        vectors.set_ymm(2, [low, high]);
        // The element 1 is not selected; only signs count.
        vectors.set_ymm(3, [0x8000_0000_8000_0000_7fff_ffff_8000_0000, u128::MAX]);
        vectors.set_ymm(0, [u128::from_le_bytes([9; 16]); 2]);
        core.memory.poke(DATA_END - 12, &[1; 12]).unwrap();
    });

    // The elements before the fault are loaded, and their masks are cleared.
    assert_eq!(fault_of(exit), DATA_END);
    assert_eq!(machine.core.state.rip, CODE);
    let vectors = &machine.core.state.vectors;
    let nines = 0x0909_0909_u128;
    let ones = 0x0101_0101_u128;
    let low = ones | nines << 32 | ones << 64 | nines << 96;
    assert_eq!(vectors.ymm(0), [low, u128::from_le_bytes([9; 16])]);
    assert_eq!(vectors.ymm(3), [mask << 96, u128::MAX]);

    // The page that was missing is mapped, and the same instruction goes on.
    let memory = &mut machine.core.memory;
    let next = DATA_END..DATA_END + 0x1000;
    memory.map(next, Permissions::READ_WRITE).unwrap();
    memory.poke(DATA_END, &[2; 32]).unwrap();
    assert_eq!(machine.run(1, &mut ()), Exit::Limit);

    let vectors = &machine.core.state.vectors;
    let low = low & !(u128::MAX << 96) | 0x0202_0202 << 96;
    assert_eq!(vectors.ymm(0), [low, u128::from_le_bytes([2; 16])]);
    assert_eq!(vectors.ymm(3), [0; 2]);
}

#[test]
fn gathers_need_three_registers() {
    // vpgatherdd ymm0, [rdi+ymm0*4], ymm3; [rdi+ymm3*4], ymm3; [rdi+ymm2*4], ymm0
    let invalid = Exit::Exception(Exception::InvalidOpcode);
    for code in [
        [0xc4, 0xe2, 0x65, 0x90, 0x04, 0x87],
        [0xc4, 0xe2, 0x65, 0x90, 0x04, 0x9f],
        [0xc4, 0xe2, 0x7d, 0x90, 0x04, 0x97],
    ] {
        assert_eq!(run(&code, |_| ()).0, invalid);
    }
}

/// Addresses of 32 bits, with and without a base, and of a segment.
#[test]
fn addresses_of_gathers() {
    // addr32 vpgatherqq ymm0, fs:[edi+ymm2*8], ymm3; the same without a base.
    let with_base = [0x64, 0x67, 0xc4, 0xe2, 0xe5, 0x91, 0x04, 0xd7];
    let without = [0x64, 0x67, 0xc4, 0xe2, 0xe5, 0x91, 0x04, 0xd5, 0, 0, 0, 0];
    for (code, base) in [(&with_base[..], 8), (&without, 0)] {
        let (exit, machine) = run(code, |core| {
            core.state.set_gpr(reg::RDI, 7 << 32 | 8);
            core.state.set_gpr(reg::FS, DATA);
            core.memory.poke(DATA + base + 16, &[4; 8]).unwrap();
            let vectors = &mut core.state.vectors;
            vectors.set_ymm(2, [2 | 1 << 60, 0]);
            vectors.set_ymm(3, [u64::MAX.into(), 0]);
        });
        assert_eq!(exit, Exit::Limit);
        let expected = [u64::from_le_bytes([4; 8]).into(), 0];
        assert_eq!(machine.core.state.vectors.ymm(0), expected);
    }
}

/// SSE keeps the upper halves, AVX clears them.
#[test]
fn upper_halves() {
    let sse = [0x0f, 0x58, 0xc1]; // addps xmm0, xmm1
    let avx = [0xc5, 0xf8, 0x58, 0xc1]; // vaddps xmm0, xmm0, xmm1
    for (code, upper) in [(&sse[..], 3), (&avx, 0)] {
        let (_, machine) = run(code, |core| core.state.vectors.set_ymm(0, [0, 3]));
        assert_eq!(machine.core.state.vectors.ymm(0)[1], upper);
    }
}
