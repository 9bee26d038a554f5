//! Tables from code alone, in files without symbols.

use crate::made::{CODE, DYN, LOAD, Made, PROGBITS, RELA, section};
use unwind_sim_tables::convert::Target;
use unwind_sim_tables::generate::write::write_in_file;
use unwind_sim_tables::generate::{Boundaries, Generated, Options, generate};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{Base, Value};

const TEXT: u64 = 0x2000;

/// Where the initialization code is, and its length.
const INIT: u64 = 0x2f00;
const INIT_LEN: u64 = 6;

/// A library whose initialization code calls the first function of this.
fn library(code: &[u8]) -> Made {
    let mut init = vec![0xe8];
    init.extend((TEXT.wrapping_sub(INIT + 5) as u32).to_le_bytes());
    init.push(0xc3);
    Made {
        kind: DYN,
        sections: vec![
            section(".text", (PROGBITS, CODE), TEXT, code.to_vec()),
            section(".init", (PROGBITS, CODE), INIT, init),
        ],
        programs: vec![(LOAD, 4, 0, 0x1000), (LOAD, 5, TEXT, 0x1000)],
        has_section_headers: true,
    }
}

fn generated(made: &Made) -> Generated {
    let options = Options::new(Boundaries::All, Target::EhFrame);
    generate(&made.open(), options).expect("no hints")
}

/// What Go's `asmcgocall` does: rsp is aligned, and the old one is kept on the stack.
#[test]
fn a_cfa_in_a_slot_is_written_and_read_back() {
    let mut code = vec![
        0x48, 0x89, 0xe2, // mov %rsp, %rdx
        0x48, 0x83, 0xec, 0x40, // sub $0x40, %rsp
        0x48, 0x83, 0xe4, 0xf0, // and $-16, %rsp
        0x48, 0x89, 0x54, 0x24, 0x28, // mov %rdx, 0x28(%rsp)
        0xe8, 11, 0, 0, 0, // call the function behind
    ];

    let behind_the_call = TEXT + code.len() as u64;
    code.extend([
        0x48, 0x8b, 0x74, 0x24, 0x28, // mov 0x28(%rsp), %rsi
        0x48, 0x89, 0xf4, // mov %rsi, %rsp
        0x31, 0xc0, // xor %eax, %eax
        0xc3, // ret
        0xc3, // ret
    ]);

    let made = library(&code);
    let table = generated(&made);
    let rule = table.rule_at(behind_the_call).expect("a row");
    let slot = Value::Load {
        base: Base::Reg(Reg::Rsp),
        offset: 0x28,
        addend: 8,
    };
    assert_eq!(rule.cfa, slot);

    let bytes = made.bytes();
    let written = write_in_file(&made.open(), &bytes, &table, Target::EhFrame);
    let written = written.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(written.equal, code.len() as u64 + INIT_LEN);
}

/// Code at these offsets of [`TEXT`], and traps between.
fn at(parts: &[(usize, &[u8])]) -> Vec<u8> {
    let mut out = vec![0xcc; 0x100];
    for (offset, code) in parts {
        out[*offset..offset + code.len()].copy_from_slice(code);
    }
    out
}

/// The CFA of the row at this offset.
fn cfa(table: &Generated, offset: u64) -> Option<Value> {
    table.rule_at(TEXT + offset).map(|rule| rule.cfa)
}

const RET: (usize, &[u8]) = (0, &[0xc3]);
const RSP_8: Option<Value> = Some(Value::reg(Reg::Rsp, 8));

#[test]
fn functions_that_nothing_calls_are_found_behind_padding() {
    // `push %rbx; pop %rbx; ret`, and a leaf.
    let code = at(&[
        RET,
        (0x10, &[0x53, 0x5b, 0xc3]),
        (0x40, &[0x31, 0xc0, 0xc3]),
    ]);
    let table = generated(&library(&code));
    assert_eq!(cfa(&table, 0x10), RSP_8);
    assert_eq!(cfa(&table, 0x11), Some(Value::reg(Reg::Rsp, 16)));
    assert_eq!(cfa(&table, 0x42), RSP_8);
    assert!(table.outside.is_empty(), "{:?}", table.outside);
}

#[test]
fn a_part_of_a_function_with_a_frame_is_not_one() {
    for part in [
        // `add $24, %rsp; ret`
        &[0x48, 0x83, 0xc4, 0x18, 0xc3][..],
        // `pop %rbx; ret`
        &[0x5b, 0xc3],
        // `leave; ret`
        &[0xc9, 0xc3],
        // `xor %eax, %eax; jmp` into the middle of the function at 0x10.
        &[0x31, 0xc0, 0xe9, 0xda, 0xff, 0xff, 0xff],
        // A call that nothing shows to return.
        &[0xe8, 0xcb, 0xff, 0xff, 0xff, 0x0f, 0x0b],
    ] {
        let code = at(&[RET, (0x10, &[0x53, 0x5b, 0xc3]), (0x30, part)]);
        let table = generated(&library(&code));
        assert_eq!(cfa(&table, 0x30), None, "{part:x?}");
        let [outside] = &table.outside[..] else {
            panic!("{:?}", table.outside);
        };
        assert_eq!(outside.first, TEXT + 0x30);
        assert_eq!(outside.section_bytes, 0x100);
    }
}

#[test]
fn a_label_that_a_branch_leads_across_is_not_a_function() {
    // `push %rbx; test %edi, %edi; je 0x30; pop %rbx; ret`, a label, and `pop %rbx; ret`.
    let code = at(&[
        RET,
        (0x10, &[0x53, 0x85, 0xff, 0x74, 0x1b, 0x5b, 0xc3]),
        (0x20, &[0x31, 0xc0, 0xc3]),
        (0x30, &[0x5b, 0xc3]),
    ]);
    let table = generated(&library(&code));
    assert_eq!(cfa(&table, 0x11), Some(Value::reg(Reg::Rsp, 16)));
    assert_eq!(cfa(&table, 0x20), None);
    assert_eq!(cfa(&table, 0x30), Some(Value::reg(Reg::Rsp, 16)));
}

#[test]
fn code_whose_address_is_taken_is_a_function_wherever_it_is() {
    // `lea 0x33(%rip), %rdi; ret`
    let named = [0x48, 0x8d, 0x3d, 0x2e, 0, 0, 0, 0xc3];
    let leaf: (usize, &[u8]) = (0x35, &[0x31, 0xc0, 0xc3]);
    assert_eq!(
        cfa(&generated(&library(&at(&[(0, &named), leaf]))), 0x35),
        RSP_8
    );
    assert_eq!(cfa(&generated(&library(&at(&[RET, leaf]))), 0x35), None);
    // A table of pointers: R_X86_64_RELATIVE.
    let mut made = library(&at(&[RET, leaf]));
    let mut relocation = Vec::new();
    for word in [0x1800, 8, TEXT + 0x35] {
        relocation.extend(word.to_le_bytes());
    }
    made.sections
        .push(section(".rela.dyn", (RELA, 2), 0x1900, relocation));
    assert_eq!(cfa(&generated(&made), 0x35), RSP_8);
}

#[test]
fn a_function_ends_at_a_call_before_padding_and_something_that_nothing_jumps_to() {
    // `sub $8, %rsp; call 0x40`, no-operations, and a leaf.
    let mut code = at(&[(0x40, &[0xc3]), (0x10, &[0x31, 0xc0, 0xc3])]);
    code[..0x10].fill(0x90);
    code[..9].copy_from_slice(&[0x48, 0x83, 0xec, 8, 0xe8, 0x37, 0, 0, 0]);
    let table = generated(&library(&code));
    assert_eq!(cfa(&table, 4), Some(Value::reg(Reg::Rsp, 16)));
    assert_eq!(cfa(&table, 0x10), RSP_8);
    // Where a jump leads there, it is a part of the function: `je 0x10` before the call.
    code[..11].copy_from_slice(&[0x48, 0x83, 0xec, 8, 0x74, 0x0a, 0xe8, 0x35, 0, 0, 0]);
    code[0x10..0x15].copy_from_slice(&[0x48, 0x83, 0xc4, 8, 0xc3]);
    let table = generated(&library(&code));
    assert_eq!(cfa(&table, 0x10), Some(Value::reg(Reg::Rsp, 16)));
}

#[test]
fn the_functions_of_go_are_those_of_its_own_table() {
    // Two functions that do not return: `jmp` to itself.
    let code = at(&[RET, (0x13, &[0xeb, 0xfe]), (0x27, &[0xeb, 0xfe])]);

    let words = |words: &[u64]| -> Vec<u8> { words.iter().flat_map(|w| w.to_le_bytes()).collect() };
    let pairs = |base: u64| [base + 0x13, 0, base + 0x27, 0, base + 0x30];
    let distances: Vec<u8> = pairs(0)
        .iter()
        .flat_map(|w| (*w as u32).to_le_bytes())
        .collect();

    let head = |magic: u32, rest: Vec<u8>| {
        let mut out = magic.to_le_bytes().to_vec();
        out.extend([0, 0, 1, 8]);
        out.extend(rest);
        out
    };

    // Since Go 1.18 the header has a place for the address of the first function, which may hold 0.
    let told = [words(&[2, 0, TEXT, 0, 0, 0, 0, 72]), distances.clone()].concat();
    let untold = [words(&[2, 0, 0, 0, 0, 0, 0, 72]), distances].concat();
    let addresses = [words(&[2, 0, 0, 0, 0, 0, 64]), words(&pairs(TEXT))].concat();
    let first = [words(&[2]), words(&pairs(TEXT))].concat();

    for (magic, rest) in [
        (0xffff_fff1, told.clone()),
        (0xffff_fff1, untold),
        (0xffff_fff0, told),
        (0xffff_fffa, addresses),
        (0xffff_fffb, first),
    ] {
        let mut made = library(&code);
        let table = section(".gopclntab", (PROGBITS, 2), 0x800, head(magic, rest));
        made.sections.push(table);
        let table = generated(&made);
        assert_eq!(
            (cfa(&table, 0x13), cfa(&table, 0x27)),
            (RSP_8, RSP_8),
            "{magic:#x}"
        );
    }

    let table = generated(&library(&code));
    assert_eq!((cfa(&table, 0x13), cfa(&table, 0x27)), (None, None));
}
