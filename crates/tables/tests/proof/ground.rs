//! What is ground: only what holds on every way, and behind a call only where there is one.

use crate::proof::build::{Scratch, compile, open};
use unwind_sim_tables::file::File;
use unwind_sim_tables::ground::{NoProof, Prover};
use unwind_sim_tables::proof::program::Program;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::Value;

const CODE: &str = "\
	.text
	.macro function name
	.globl \\name
	.type \\name, @function
\\name:
	.endm
	function without_rows
	ret
	.size without_rows, 1
	function calls
	.cfi_startproc
	push %rbx
	.cfi_def_cfa_offset 16
	.cfi_offset %rbx, -16
	xor %ebx, %ebx
	call callee@PLT
	function behind
	nop
	function beyond
	pop %rbx
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	function differs
	.cfi_startproc
	test %edi, %edi
	je 1f
	push %rax
1:
	function meeting
	nop
	ret
	.cfi_endproc
";

fn address(file: &File, name: &str) -> u64 {
    let mut symbols = file.image().symbols().iter();
    symbols.find(|s| s.name == name).expect("a symbol").address
}

#[test]
fn only_what_holds_on_every_way_is_ground() {
    let scratch = Scratch::new("ground");
    let source = scratch.path("ground.s");
    std::fs::write(&source, CODE).expect("writable");
    let program = scratch.path("ground.so");
    let source = source.display().to_string();
    compile("cc", &["-shared", "-nostdlib", &source], &program).expect("it links");
    let (_, file) = open(&program);
    let mut prover = Prover::new(&file, 1);
    let at = |name: &str| address(&file, name);

    let all = Program::with_unlisted(&file);
    for name in ["without_rows", "calls", "differs"] {
        let number = all.starting_at(at(name));
        assert!(
            number.is_some() && number == all.function_at(at(name)),
            "{name}"
        );
    }

    let called = prover.rule(CodeAddress::Return(at("behind")));
    let rule = called.expect("a call is before it").rule;
    assert_eq!(
        (rule.cfa, rule.saved(Reg::Rbx)),
        (Value::reg(Reg::Rsp, 16), Value::at_cfa(-16))
    );

    let stale = prover.rule(CodeAddress::Return(at("beyond")));
    assert_eq!(
        stale.expect_err("no call is before it"),
        NoProof::NotBehindCall
    );
    prover
        .rule(CodeAddress::Instruction(at("beyond")))
        .expect("proven");

    prover
        .rule(CodeAddress::Instruction(at("differs")))
        .expect("one way");
    let met = prover.rule(CodeAddress::Instruction(at("meeting")));
    assert!(matches!(met, Err(NoProof::Unproven(_))), "{met:?}");
}
