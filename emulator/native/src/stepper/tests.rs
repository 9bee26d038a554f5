//! Steps a few instructions.

use super::*;
use crate::skip;

const CODE: u64 = 0x40_0000;
const DATA: u64 = 0x7fff_f000_0000;
const RAX: usize = 0;
const RSP: usize = 4;

/// A process with this code and a page of data that rsp points past; `None` if this machine does
/// not allow it.
fn with(code: &[u8]) -> Option<Stepper> {
    let mut stepper = match Stepper::new() {
        Ok(stepper) => stepper,
        Err(error) => {
            skip::skip("stepper", format_args!("ptrace is denied: {error}"));
            return None;
        }
    };
    stepper.map(CODE..CODE + 4096, [true, true, true]).unwrap();
    stepper.write(CODE, code).unwrap();
    stepper
        .protect(CODE..CODE + 4096, [true, false, true])
        .unwrap();
    stepper.map(DATA..DATA + 4096, [true, true, false]).unwrap();
    let mut cpu = Cpu {
        rip: CODE,
        rflags: 0x202,
        ..Cpu::default()
    };
    cpu.gpr[RSP] = DATA + 4096;
    stepper.set_cpu(&cpu).unwrap();
    Some(stepper)
}

#[test]
fn instructions_are_stepped_and_system_calls_are_not_made() {
    // push $5; pop %rax; add $0x69,%eax; syscall (110: getppid); nop
    let code = [0x6a, 5, 0x58, 0x83, 0xc0, 0x69, 0x0f, 0x05, 0x90];
    let Some(mut stepper) = with(&code) else {
        return;
    };
    assert_eq!(stepper.step().unwrap(), Stop::Done);
    let mut word = [0; 8];
    stepper.read(DATA + 4088, &mut word).unwrap();
    assert_eq!(u64::from_le_bytes(word), 5);
    assert_eq!(stepper.step().unwrap(), Stop::Done);
    assert_eq!(stepper.step().unwrap(), Stop::Done);
    let cpu = stepper.cpu().unwrap();
    assert_eq!(
        (cpu.gpr[RAX], cpu.rip, cpu.gpr[RSP]),
        (110, CODE + 6, DATA + 4096)
    );
    assert_eq!(stepper.step().unwrap(), Stop::Syscall);
    let cpu = stepper.cpu().unwrap();
    assert_ne!(cpu.gpr[RAX], u64::from(std::process::id()));
    assert_eq!(cpu.rip, CODE + 8);
}

#[test]
fn a_fault_leaves_the_instruction_to_be_executed() {
    // mov %rsp,8(%rsp): past the page
    let Some(mut stepper) = with(&[0x48, 0x89, 0x64, 0x24, 8]) else {
        return;
    };

    let before = stepper.cpu().unwrap();
    // SEGV_MAPERR.
    let fault = Stop::Signal {
        signal: libc::SIGSEGV,
        code: 1,
        address: DATA + 4096 + 8,
    };

    assert_eq!(stepper.step().unwrap(), fault);
    assert_eq!(stepper.cpu().unwrap().rip, before.rip);
    stepper
        .map(DATA + 4096..DATA + 8192, [true, true, false])
        .unwrap();
    assert_eq!(stepper.cpu().unwrap().gpr, before.gpr);
    assert_eq!(stepper.step().unwrap(), Stop::Done);

    // Only what was mapped is there.
    stepper.clear().unwrap();
    let all = Maps::read(stepper.pid);
    let ours = all.iter().filter(|m| !m.name.starts_with("[v"));
    let ranges: Vec<Range<u64>> = ours.map(|m| m.range.clone()).collect();
    assert_eq!(ranges, [image::PAGE]);
}

#[test]
fn vector_registers_are_set_and_read() {
    // paddq %xmm1,%xmm0
    let Some(mut stepper) = with(&[0x66, 0x0f, 0xd4, 0xc1]) else {
        return;
    };
    let mut state = stepper.extended().unwrap();
    state.set_ymm(0, [40, 0]);
    state.set_ymm(1, [2, 0]);
    stepper.set_extended(&state).unwrap();
    assert_eq!(stepper.step().unwrap(), Stop::Done);
    state.set_ymm(0, [42, 0]);
    assert_eq!(stepper.extended().unwrap(), state);
    assert!(stepper.bare_speed(100).unwrap() > 0.0);
    assert_eq!(stepper.cpu().unwrap().rip, CODE + 4);
}

#[test]
fn upper_halves_are_set_and_read() {
    // vpaddq %ymm1,%ymm0,%ymm15; paddq %xmm1,%xmm0; vzeroall
    let code = [
        0xc5, 0x7d, 0xd4, 0xf9, 0x66, 0x0f, 0xd4, 0xc1, 0xc5, 0xfc, 0x77,
    ];

    if !extended::has_avx() || !std::arch::is_x86_feature_detected!("avx2") {
        skip::skip("stepper", "there is no AVX2");
        return;
    }

    let Some(mut stepper) = with(&code) else {
        return;
    };

    let mut state = Extended::default();
    state.set_ymm(0, [40, 1 << 64]);
    state.set_ymm(1, [2, 3]);
    state.set_mxcsr(0x9fc0);

    // MXCSR_MASK is not set.
    let mask = stepper.extended().unwrap().legacy[28..32].to_vec();
    state.legacy[28..32].copy_from_slice(&mask);
    stepper.set_extended(&state).unwrap();
    assert_eq!(
        stepper.extended().unwrap().legacy[..416],
        state.legacy[..416]
    );
    assert_eq!(stepper.extended().unwrap().upper, state.upper);

    assert_eq!(stepper.step().unwrap(), Stop::Done);
    assert_eq!(stepper.extended().unwrap().ymm(15), [42, 1 << 64 | 3]);

    // An SSE instruction keeps the upper half.
    assert_eq!(stepper.step().unwrap(), Stop::Done);
    assert_eq!(stepper.extended().unwrap().ymm(0), [42, 1 << 64]);
    assert_eq!(stepper.step().unwrap(), Stop::Done);
    let after = stepper.extended().unwrap();
    assert!((0..16).all(|number| after.ymm(number) == [0; 2]));
    assert_eq!(after.mxcsr(), 0x9fc0);
}
