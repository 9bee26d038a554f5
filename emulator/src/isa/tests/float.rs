//! Single x87 and MMX instructions: registers, stack faults, exceptions.

use super::{DATA, bytes, machine, run};
use crate::machine::Exit;
use crate::state::reg;
use crate::stop::Exception;

/// Parses the ten bytes of a register in an FXSAVE image.
fn number(text: &str) -> [u8; 10] {
    let (high, low) = text.split_once('.').expect("a dot");
    let word = |text| u64::from_str_radix(text, 16).expect("hexadecimal");
    let mut bytes = [0; 10];
    bytes[..8].copy_from_slice(&word(low).to_le_bytes());
    bytes[8..].copy_from_slice(&word(high).to_le_bytes()[..2]);
    bytes
}

fn unhex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
    (0..text.len()).step_by(2).map(byte).collect()
}

fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    image[at..at + bytes.len()].copy_from_slice(bytes);
}

/// The offset of register `number` in an image whose TOP is `top`.
fn place(number: usize, top: usize) -> usize {
    32 + 16 * ((number + 8 - top) & 7)
}

#[test]
fn as_a_processor_executed_them() {
    let mut lines = 0;
    for line in include_str!("float.txt").lines() {
        if line.starts_with('#') {
            continue;
        }
        lines += 1;

        let fields: Vec<&str> = line.split(" | ").collect();
        let [code, before, after, _] = fields[..] else {
            panic!("four fields: {line}");
        };

        let before: Vec<&str> = before.split_whitespace().collect();
        let word = |text| u16::from_str_radix(text, 16).expect("hexadecimal");
        let (control, status, tags) = (word(before[0]), word(before[1]), word(before[2]));

        // TOP, bits 11 to 13 of the status word: the register that is st(0).
        let top = usize::from(status >> 11 & 7);
        let mut image = machine(&[]).core.fx_image();
        put(&mut image, 0, &control.to_le_bytes());
        put(&mut image, 2, &status.to_le_bytes());
        put(&mut image, 4, &tags.to_le_bytes());
        // The registers that the line does not name.
        for register in 0..8_u16 {
            let at = place(register.into(), top);
            put(
                &mut image,
                at,
                &(1 << 63 | u64::from(register)).to_le_bytes(),
            );
            put(&mut image, at + 8, &(0x4000 + register).to_le_bytes());
        }
        for position in 0..3 {
            put(
                &mut image,
                32 + 16 * position,
                &number(before[3 + position]),
            );
        }

        let mut memory = unhex(before[6]);
        let mut flags = u64::from(word(before[7]));
        let mut machine = machine(&unhex(code));
        machine.core.state.set_gpr(reg::RDI, DATA);
        machine.core.state.set_rflags(flags);
        machine.core.memory.poke(DATA, &memory).expect("mapped");
        machine.core.set_fx_image(&image).expect("a good MXCSR");
        assert_eq!(machine.run(1, &mut ()), Exit::Limit, "{line}");

        let mut after = after.split_whitespace();
        let status = word(after.next().expect("a status word"));

        // The image has the registers by position relative to TOP, so that a push or a pop moves
        // all of them.
        let new_top = usize::from(status >> 11 & 7);
        let mut expected = image;
        for register in 0..8 {
            let from = place(register, top);
            put(
                &mut expected,
                place(register, new_top),
                &image[from..from + 10],
            );
        }
        put(&mut expected, 2, &status.to_le_bytes());
        let tags = word(after.next().expect("a tag word"));
        put(&mut expected, 4, &tags.to_le_bytes());
        for change in after {
            match change.split_once('=').expect("a change") {
                // Changes of memory, of the flags, and of registers.
                ("m", bytes) => memory = unhex(bytes),
                ("f", bits) => flags = word(bits).into(),
                (register, value) => {
                    let register = usize::from(word(register));
                    put(&mut expected, place(register, new_top), &number(value));
                }
            }
        }

        let mut found = machine.core.fx_image();
        // The pointers to the instruction are not compared.
        put(&mut found, 6, &[0; 18]);
        assert_eq!(found, expected, "{line}");

        // Without IF and the bit that is always set.
        assert_eq!(machine.core.state.rflags() & !0x202, flags, "{line}");
        assert_eq!(bytes::<10>(&machine, DATA).to_vec(), memory, "{line}");
    }
    assert!(lines > 450);
}

/// An unmasked exception is raised by the next instruction that waits, which is not executed; not
/// by the instruction that causes it, and not by instructions that do not wait.
#[test]
fn a_pending_exception_waits() {
    // fld1; fldz; fdivrp; fnstsw %ax; fnstcw (%rdi); then an instruction that waits.
    let start = [0xd9, 0xe8, 0xd9, 0xee, 0xde, 0xf9, 0xdf, 0xe0, 0xd9, 0x3f];
    for waiting in [
        &[0x9b][..],         // fwait
        &[0xd9, 0xe8],       // fld1
        &[0xdd, 0x1f],       // fstp (%rdi)
        &[0xd9, 0x2f],       // fldcw (%rdi)
        &[0x0f, 0x77],       // emms
        &[0x0f, 0x6f, 0x07], // movq (%rdi), %mm0
    ] {
        let mut code = start.to_vec();
        code.extend_from_slice(waiting);
        let mut machine = machine(&code);
        machine.core.state.set_gpr(reg::RDI, DATA);

        let mut image = machine.core.fx_image();
        // ZE is unmasked.
        put(&mut image, 0, &0x37b_u16.to_le_bytes());
        machine.core.set_fx_image(&image).expect("a good MXCSR");
        let begin = machine.core.state.rip;
        assert_eq!(machine.run(100, &mut ()), Exit::Exception(Exception::X87));

        let core = &machine.core;
        assert_eq!(machine.executed(), 5, "{waiting:x?}");
        assert_eq!(core.state.rip, begin + 10);
        // ES, B and ZE; two registers, since nothing was popped.
        assert_eq!(core.state.gpr(reg::RAX), 6 << 11 | 0x8084);

        let image = core.fx_image();
        assert_eq!(image[4], 0xc0);
        // FOP and FIP are those of the division.
        assert_eq!(image[6..8], 0x6f9_u16.to_le_bytes());
        assert_eq!(image[8..16], (begin + 4).to_le_bytes());
        assert_eq!(image[16..24], [0; 8]);
    }
}

/// FDP is the offset in the segment.
#[test]
fn where_an_operand_was() {
    // fldl %fs:8(%rdi), a signaling NaN
    let mut machine = machine(&[0x64, 0xdd, 0x47, 0x08]);
    machine.core.state.set_gpr(reg::RDI, DATA - 0x1000);
    machine.core.state.set_gpr(reg::FS, 0x1000);
    let signaling = 0x7ff0_0000_0000_0001_u64;
    let memory = &mut machine.core.memory;
    memory
        .poke(DATA + 8, &signaling.to_le_bytes())
        .expect("mapped");
    let mut image = machine.core.fx_image();
    put(&mut image, 0, &0x37e_u16.to_le_bytes());
    machine.core.set_fx_image(&image).expect("a good MXCSR");
    assert_eq!(machine.run(1, &mut ()), Exit::Limit);
    let image = machine.core.fx_image();
    assert_eq!(image[6..8], 0x547_u16.to_le_bytes());
    assert_eq!(image[16..24], (DATA - 0x1000 + 8).to_le_bytes());
    assert_eq!(image[2..5], [0x81, 0x80, 0]);
}

/// MMX instructions set TOP to 0 and mark all registers as used, even those that only read; emms
/// marks all as empty.
#[test]
fn mm_registers_are_x87_registers() {
    for (code, tags, written) in [
        (&[0x0f, 0x6f, 0xca][..], 0xff, true),    // movq %mm2, %mm1
        (&[0x0f, 0x7f, 0x17], 0xff, false),       // movq %mm2, (%rdi)
        (&[0x0f, 0x7e, 0xd0], 0xff, false),       // movd %mm2, %eax
        (&[0xf3, 0x0f, 0xd6, 0xc2], 0xff, false), // movq2dq %mm2, %xmm0
        (&[0x0f, 0x77], 0, false),
    ] {
        let mut machine = machine(code);
        machine.core.state.set_gpr(reg::RDI, DATA);

        let mut image = machine.core.fx_image();
        // TOP is 3; register 5 is ST(2).
        put(&mut image, 2, &(3_u16 << 11).to_le_bytes());
        image[4] = 0x20;
        for register in 0..8 {
            image[place(register, 3)] = register as u8;
        }
        machine.core.set_fx_image(&image).expect("a good MXCSR");

        assert_eq!(machine.run(1, &mut ()), Exit::Limit);
        let after = machine.core.fx_image();
        // Every MMX instruction sets TOP to 0 and all tags to valid, `emms` to empty (SDM volume 1,
        // chapter 9).
        assert_eq!(after[2..5], [0, 0, tags], "{code:x?}");

        // A written mm register has all ones where the exponent would be.
        for register in 0..8 {
            let at = place(register, 0);
            let (low, high) = match (register, written) {
                (1, true) => (2, [0xff; 2]),
                _ => (register as u8, [0; 2]),
            };
            assert_eq!((after[at], &after[at + 8..at + 10]), (low, &high[..]));
        }
    }
}

/// Moves between mm and general registers, and of selected bytes.
#[test]
fn mm_registers_and_others() {
    let value = 0x8182_8384_0506_0708_u64;

    // movq %rax, %mm1; then with rcx and mm1
    for (code, expected) in [
        (&[0x48, 0x0f, 0x7e, 0xc9][..], value),     // movq %mm1, %rcx
        (&[0x0f, 0x7e, 0xc9], value & 0xffff_ffff), // movd %mm1, %ecx
        (&[0x0f, 0xd7, 0xc9], 0xf0),                // pmovmskb %mm1, %ecx
        (&[0x0f, 0xc5, 0xc9, 0xfe], 0x8384),        // pextrw $0xfe, %mm1, %ecx
    ] {
        let mut all = vec![0x48, 0x0f, 0x6e, 0xc8];
        all.extend_from_slice(code);

        let registers = [(reg::RAX, value), (reg::RCX, u64::MAX)];
        let (_, mut machine) = run(&all, &registers);
        assert_eq!(machine.run(1, &mut ()), Exit::Limit);
        assert_eq!(machine.core.state.gpr(reg::RCX), expected, "{code:x?}");
    }

    // maskmovq %mm1, %mm0, to rdi
    let mut machine = machine(&[0x48, 0x0f, 0x6e, 0xc8, 0x0f, 0xf7, 0xc1]);
    machine.core.state.set_gpr(reg::RAX, value);
    machine.core.state.set_gpr(reg::RDI, DATA + 3);
    let before: [u8; 12] = bytes(&machine, DATA);
    assert_eq!(machine.run(2, &mut ()), Exit::Limit);

    let mut expected = before;
    expected[3 + 4..3 + 8].fill(0);
    assert_eq!(bytes::<12>(&machine, DATA), expected);
}
