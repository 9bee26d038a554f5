//! Saving and restoring images of the x87 and SSE state: fnstenv, fnsave, fxsave, xsave.

use super::{DATA, END, bytes, machine};
use crate::machine::{Exit, Machine};
use crate::processor::{Level, Processor, Vendor};
use crate::state::reg;
use crate::stop::Exception;

/// A machine whose x87 and SSE state differs everywhere from that after a reset.
fn busy(code: &[u8], address: u64) -> Machine {
    let mut machine = machine(code);
    machine.core.state.set_gpr(reg::RDI, address);
    machine.core.state.set_gpr(reg::RAX, u64::MAX);
    machine.core.state.set_gpr(reg::RDX, u64::MAX);
    let image: [u8; 512] = std::array::from_fn(|i| i as u8 ^ 0x5a);
    let mut image = image;
    // Control 0xf71, status 0x2001: TOP 4; three registers are empty.
    image[..5].copy_from_slice(&[0x71, 0x0f, 0x00, 0x20, 0xe3]);
    image[6..24]
        .copy_from_slice(b"\x34\x02\x11\x22\x33\x44\x55\x66\0\0\x99\x88\x77\x66\x55\x44\0\0");
    image[24..28].copy_from_slice(&0x7f80_u32.to_le_bytes());
    // ST(0) zero, ST(1) one.
    image[32..42].fill(0);
    image[48..58].copy_from_slice(b"\0\0\0\0\0\0\0\x80\xff\x3f");
    machine.core.set_fx_image(&image).expect("a good MXCSR");
    machine
}

fn step(machine: &mut Machine) {
    assert_eq!(machine.run(1, &mut ()), Exit::Limit);
}

/// The 32-bit environment, field by field; all exceptions are masked afterwards.
#[test]
fn an_environment() {
    let mut machine = busy(&[0xd9, 0x37], DATA);
    step(&mut machine);
    let words: Vec<u32> = bytes::<28>(&machine, DATA)
        .chunks(4)
        .map(|word| word.try_into().map_or(0, u32::from_le_bytes))
        .collect();
    // Registers 2, 3 and 4 are empty (4 is ST(0)); 5 is one; the others are not numbers.
    let tags = 0b10_10_00_11_11_11_10_10;
    let high = 0xffff_0000;
    let expected = [
        high | 0x0f71,
        high | 0x2000,
        high | tags,
        0x4433_2211,
        0x0234_0000,
        0x6677_8899,
        high,
    ];
    assert_eq!(words, expected, "{words:x?}");
    assert_eq!(machine.core.fx_image()[0], 0x7f);
}

/// What was saved is restored, in both formats; `fnsave` leaves the unit as `fninit` does.
#[test]
fn saved_and_restored() {
    for (save, restore, size) in [
        (&[0xdd, 0x37][..], &[0xdd, 0x27][..], 108),
        (&[0x66, 0xdd, 0x37], &[0x66, 0xdd, 0x27], 94),
    ] {
        let code = [save, restore].concat();
        let mut machine = busy(&code, DATA + 1);
        let before = machine.core.fx_image();
        let memory: [u8; 112] = bytes(&machine, DATA + 1);
        step(&mut machine);
        assert_eq!(machine.core.fx_image()[..5], [0x7f, 3, 0, 0, 0]);
        assert_eq!(bytes::<112>(&machine, DATA + 1)[size..], memory[size..]);
        step(&mut machine);
        let after = machine.core.fx_image();
        assert_eq!(after[..6], before[..6]);
        assert_eq!(after[32..], before[32..]);
    }
}

/// Without AVX, an area has x87 and SSE only.
fn busy_without_avx(code: &[u8], address: u64) -> Machine {
    let mut machine = busy(code, address);
    machine
        .core
        .set_processor(Processor::of_level(Level::V2, Vendor::Intel));
    machine
}

/// `fxsave` writes 416 bytes of an aligned area; `fxrstor` restores them.
#[test]
fn fxsave_and_fxrstor() {
    // fxsave64 (%rdi); fninit; fxrstor64 (%rdi)
    let code = [0x48, 0x0f, 0xae, 0x07, 0xdb, 0xe3, 0x48, 0x0f, 0xae, 0x0f];
    let mut machine = busy(&code, DATA + 16);

    let image = machine.core.fx_image();
    // The end of the area belongs to software.
    let behind: [u8; 96] = bytes(&machine, DATA + 16 + 416);

    step(&mut machine);
    assert_eq!(bytes::<416>(&machine, DATA + 16), image[..416]);
    assert_eq!(bytes::<96>(&machine, DATA + 16 + 416), behind);

    machine.core.state.vectors.set_lower([1; 16]);
    machine.core.state.mxcsr = 0;
    step(&mut machine);
    step(&mut machine);
    assert_eq!(machine.core.fx_image(), image);

    let bad = Exit::Exception(Exception::GeneralProtection);
    for code in [[0x0f, 0xae, 0x07], [0x0f, 0xae, 0x0f]] {
        let mut machine = busy(&code, DATA + 8);
        assert_eq!(machine.run(1, &mut ()), bad, "it is not aligned");
    }

    // A reserved bit of MXCSR.
    let mut machine = busy(&[0x0f, 0xae, 0x0f], DATA);
    let area = [0xff; 512];
    machine.core.memory.poke(DATA, &area).expect("mapped");

    let before = machine.core.fx_image();
    assert_eq!(machine.run(1, &mut ()), bad);
    assert_eq!(machine.core.fx_image(), before);
}

const XSAVE: [u8; 3] = [0x0f, 0xae, 0x27];
const XSAVEC: [u8; 3] = [0x0f, 0xc7, 0x27];
const XRSTOR: [u8; 3] = [0x0f, 0xae, 0x2f];

/// The components that are asked for, and a header that says which are there.
#[test]
fn xsave_of_components() {
    // What is asked for, XSTATE_BV, and XCOMP_BV, whose bit 63 says that the area is compacted. The
    // bits of 0xf0 are of no component here.
    for (code, asked, header, form) in [
        (XSAVE, 3, 3, 0),
        (XSAVE, 1, 1, 0),
        (XSAVE, 2, 2, 0),
        (XSAVE, 0xf0, 0, 0),
        (XSAVEC, 7, 3, 1 << 63 | 3),
        (XSAVEC, 2, 2, 1 << 63 | 2),
    ] {
        let mut machine = busy_without_avx(&code, DATA + 64);
        let zero = [0; 576];
        machine.core.memory.poke(DATA + 64, &zero).expect("mapped");
        machine.core.state.set_gpr(reg::RAX, asked);
        step(&mut machine);

        let area: [u8; 576] = bytes(&machine, DATA + 64);
        let word = |at: usize| area[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        // XSTATE_BV and XCOMP_BV; then FCW, MXCSR, the st and the xmm registers.
        assert_eq!((word(512), word(520)), (header, form), "{code:x?} {asked}");
        assert_eq!(area[0] != 0, header & 1 != 0);
        assert_eq!(area[24] != 0, header & 2 != 0);
        assert_eq!(area[48..160] != zero[48..160], header & 1 != 0);
        assert_eq!(area[160..416] != zero[160..416], header & 2 != 0);
        // Everything is restored; missing components are reset.
        let image = machine.core.fx_image();
        machine
            .core
            .memory
            .poke(machine.core.state.rip, &XRSTOR)
            .expect("mapped");
        step(&mut machine);

        let after = machine.core.fx_image();
        let initial = Machine::empty().core.fx_image();
        let is_asked = |bit: u64| asked & bit != 0;

        for (component, bit) in [(0..5, 1), (32..160, 1), (160..416, 2)] {
            let expected = match is_asked(bit) {
                true if header & bit == 0 => &initial,
                _ => &image,
            };
            assert_eq!(after[component.clone()], expected[component], "{asked}");
        }
    }
}

/// xsavec and xsaveopt omit components in their reset state, xsave does not; the header says so.
/// Components that are not requested keep their bits in the header, except in compacted form.
#[test]
fn components_that_are_not_in_use() {
    const XSAVEOPT: [u8; 3] = [0x0f, 0xae, 0x37];
    for (code, asked, header, x87, xmm) in [
        (XSAVE, 3, 1, true, true),
        (XSAVEOPT, 3, 1, true, false),
        (XSAVEC, 3, 1, true, false),
        (XSAVE, 1, 3, true, false),
        (XSAVEOPT, 2, 1, false, false),
        (XSAVEC, 2, 0, false, false),
    ] {
        let mut machine = busy(&code, DATA);
        machine.core.state.vectors.set_lower([0; 16]);
        machine.core.state.mxcsr = 0x1f80;
        let memory = &mut machine.core.memory;
        memory.poke(DATA, &[0xcc; 512]).expect("mapped");
        memory.poke(DATA + 512, &[0; 64]).expect("mapped");
        memory.poke(DATA + 512, &[3]).expect("mapped");
        machine.core.state.set_gpr(reg::RAX, asked);
        step(&mut machine);
        let area: [u8; 576] = bytes(&machine, DATA);
        let found = (area[512], area[32] != 0xcc, area[160] != 0xcc);
        assert_eq!(found, (header, x87, xmm), "{code:x?} {asked}");
    }
}

/// Headers that xrstor refuses.
#[test]
fn bad_headers() {
    // XSTATE_BV is at 512, XCOMP_BV at 520, reserved bytes behind them; MXCSR is at 24.
    let cases: [(usize, &[u8], bool); 8] = [
        (512, &[3], true),
        (512, &[7], false),
        (520, &[3], false),
        (520, &[3, 0, 0, 0, 0, 0, 0, 0x80], true),
        (520, &[7, 0, 0, 0, 0, 0, 0, 0x80], false),
        (528, &[1], false),
        (536, &[1], true),
        (24, &[0, 0, 1], false),
    ];

    for (at, header, is_good) in cases {
        let mut machine = busy_without_avx(&XRSTOR, DATA);
        machine.core.memory.poke(DATA, &[0; 576]).expect("mapped");
        let place = DATA + at as u64;
        machine.core.memory.poke(place, header).expect("mapped");

        // A refused header must leave all registers as they are.
        let before = machine.core.fx_image();
        let exit = machine.run(1, &mut ());

        if is_good {
            assert_eq!(exit, Exit::Limit, "{at} {header:x?}");
        } else {
            let bad = Exit::Exception(Exception::GeneralProtection);
            assert_eq!(exit, bad, "{at} {header:x?}");
            assert_eq!(machine.core.fx_image(), before);
        }
    }
}

/// With AVX an area has the upper halves of ymm registers at 576, in both forms; they are restored
/// or reset, and MXCSR belongs to them too unless the area is compacted.
#[test]
fn upper_halves_of_ymm() {
    let upper = |machine: &Machine| -> [u128; 16] {
        std::array::from_fn(|number| machine.core.state.vectors.ymm(number)[1])
    };

    let values: [u128; 16] = std::array::from_fn(|number| u128::MAX / (number as u128 + 2));
    // In the compacted form MXCSR comes only with SSE, bit 1.
    for (code, asked, has_mxcsr) in [(XSAVE, 4, true), (XSAVEC, 4, false), (XSAVEC, 7, true)] {
        let mut machine = busy(&code, DATA);
        let processor = "v3".parse().expect("a level");
        machine.core.set_processor(processor);
        machine.core.memory.poke(DATA, &[0; 832]).expect("mapped");
        for (number, value) in values.into_iter().enumerate() {
            machine.core.state.vectors.set_ymm(number, [1, value]);
        }
        machine.core.state.set_gpr(reg::RAX, asked);
        step(&mut machine);

        let area: [u8; 832] = bytes(&machine, DATA);
        assert_eq!(u64::from(area[512]), asked);
        assert_eq!(area[24] != 0, has_mxcsr, "{code:x?} {asked}");
        for (number, value) in values.into_iter().enumerate() {
            // The offset of the component, as `cpuid` says.
            let at = 576 + 16 * number;
            assert_eq!(area[at..at + 16], value.to_le_bytes());
        }

        let rip = machine.core.state.rip;
        machine.core.memory.poke(rip, &XRSTOR).expect("mapped");
        machine.core.state.vectors = Default::default();
        let mut reset = machine.clone();
        step(&mut machine);
        assert_eq!(upper(&machine), values);
        // The header without the component resets it.
        let present = [asked as u8 & !4];
        reset
            .core
            .memory
            .poke(DATA + 512, &present)
            .expect("mapped");

        reset.core.state.vectors.set_ymm(3, [7, 7]);
        step(&mut reset);
        assert_eq!(upper(&reset), [0; 16]);
    }
}

/// What precedes the header is accessed only if it is asked for, except on AMD's processors.
#[test]
fn an_area_is_accessed_as_far_as_it_is_used() {
    // The header is where memory begins, and x87 and SSE are below it.
    let area = DATA - 512;
    let compacted = 1_u64 << 63 | 7;
    // What is asked for, XSTATE_BV, XCOMP_BV, and whether Intel's processors access all.
    for (code, asked, present, form, is_whole) in [
        (XRSTOR, 4, 4, compacted, false),
        (XRSTOR, 0, 3, 0, false),
        (XRSTOR, 1, 0, 0, true),
        (XRSTOR, 2, 2, compacted, true),
        (XRSTOR, 4, 0, 0, true),
        (XSAVE, 0, 0, 0, false),
        (XSAVE, 4, 0, 0, true),
        (XSAVEC, 4, 0, 0, false),
        (XSAVEC, 1, 0, 0, true),
    ] {
        for vendor in [Vendor::Intel, Vendor::Amd] {
            let mut machine = busy(&code, area);
            machine
                .core
                .set_processor(Processor::of_level(Level::V3, vendor));
            let memory = &mut machine.core.memory;
            memory.poke(DATA, &[0; 320]).expect("mapped");
            memory
                .poke(DATA, &u64::to_le_bytes(present))
                .expect("mapped");
            memory.poke(DATA + 8, &form.to_le_bytes()).expect("mapped");
            machine.core.state.set_gpr(reg::RAX, asked);
            machine.core.state.set_gpr(reg::RDX, 0);

            let faults = machine.run(1, &mut ()) != Exit::Limit;
            let expected = is_whole || vendor == Vendor::Amd;
            assert_eq!(
                faults, expected,
                "{vendor:?} {code:x?} {asked} {present} {form:x}"
            );
        }
    }
}

/// Where nothing is mapped, the fault of `xrstor` is at the word of the header that says what is needed, as
/// measured on an Intel Xeon, family 6, model 207.
#[test]
fn a_restore_faults_at_its_header() {
    for (vendor, at) in [(Vendor::Intel, 520), (Vendor::Amd, 0)] {
        let mut machine = busy(&XRSTOR, END);
        let processor = Processor::of_level(Level::V3, vendor);
        machine.core.set_processor(processor);
        match machine.run(1, &mut ()) {
            Exit::Exception(Exception::Memory(fault)) => assert_eq!(fault.address, END + at),
            other => panic!("{other:?}"),
        }
    }
}
