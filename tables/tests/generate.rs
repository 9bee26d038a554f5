//! Tables from code alone, in files without symbols.

use crate::made::{CODE, DYN, LOAD, Made, PROGBITS, section};
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
