//! A naked function without directives: main < outer < bare < boom.
use std::arch::naked_asm;

pub extern "C" fn boom() {
    std::process::abort();
}

#[cfg(not(rows))]
// SAFETY: the assembly keeps the callee-saved registers and the alignment of the stack.
#[unsafe(naked)]
pub extern "C" fn bare() {
    naked_asm!(
        "push rbp", "push rbx", "sub rsp, 40", "call {f}", "add rsp, 40", "pop rbx", "pop rbp", "ret",
        f = sym boom
    )
}

#[cfg(rows)]
// SAFETY: the assembly keeps the callee-saved registers and the alignment of the stack.
#[unsafe(naked)]
pub extern "C" fn bare() {
    naked_asm!(
        ".cfi_startproc",
        "push rbp", ".cfi_adjust_cfa_offset 8", ".cfi_rel_offset rbp, 0",
        "push rbx", ".cfi_adjust_cfa_offset 8", ".cfi_rel_offset rbx, 0",
        "sub rsp, 40", ".cfi_adjust_cfa_offset 40",
        "call {f}", "add rsp, 40", "pop rbx", "pop rbp", "ret",
        ".cfi_endproc",
        f = sym boom
    )
}

#[inline(never)]
fn outer() {
    bare();
    std::hint::black_box(1);
}

fn main() {
    outer();
    std::hint::black_box(2);
}
