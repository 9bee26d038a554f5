//! Changes the machine without the processor: every kind of difference is found, at the instruction
//! that shows it.

use super::difference::Difference;
use super::step::Lockstep;
use unwind_sim_emulator::linux::{Kernel, Outcome, ProcessOptions};
use unwind_sim_emulator::{Core, Permissions};

#[path = "../../tests/common/skip.rs"]
mod skip;

const CODE: u64 = 0x40_0000;
const DATA: u64 = 0x50_0000;

/// Both sides at the start of a static program of these instructions, with rbx pointing to its
/// data. `None` if this computer does not allow ptrace.
fn start(code: &[u8]) -> Option<Lockstep> {
    if let Err(error) = unwind_sim_emulator_native::stepper::Stepper::new() {
        skip::skip("lockstep", format_args!("ptrace is denied: {error}"));
        return None;
    }

    // The smallest ELF file: its header, one PT_LOAD that is readable and executable, the code.
    let mut elf = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let halves = |elf: &mut Vec<u8>, all: &[u16]| {
        all.iter()
            .for_each(|h| elf.extend_from_slice(&h.to_le_bytes()));
    };
    let words = |elf: &mut Vec<u8>, all: &[u64]| {
        all.iter()
            .for_each(|w| elf.extend_from_slice(&w.to_le_bytes()));
    };

    // ET_EXEC, EM_X86_64 and the version; the entry and the program header's place.
    halves(&mut elf, &[2, 62, 1, 0]);
    words(&mut elf, &[CODE + 0x78, 64, 0]);
    // The flags, and the sizes and numbers of headers.
    halves(&mut elf, &[0, 0, 64, 56, 1, 0, 0, 0]);
    // PT_LOAD, readable and executable.
    halves(&mut elf, &[1, 0, 5, 0]);
    let size = 0x78 + code.len() as u64;
    words(&mut elf, &[0, CODE, CODE, size, size, 0x1000]);
    elf.extend_from_slice(code);

    let root = tempfile::tempdir().expect("a directory");
    std::fs::write(root.path().join("program"), elf).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(root.path().join("program"), mode).expect("changed");

    let options = ProcessOptions {
        args: vec![b"program".to_vec()],
        root: root.path().to_path_buf(),
        processor: unwind_sim_emulator::processor::host::host().processor,
        ..ProcessOptions::default()
    };

    let mut process = Kernel::start(b"/program", options).expect("it starts");
    let core = &mut process.machine.core;
    let mapped = core
        .memory
        .map(DATA..DATA + 0x2000, Permissions::READ_WRITE);
    mapped.expect("it is free");
    core.state.set_gpr(3, DATA);

    Some(Lockstep::new(process).expect("it follows"))
}

/// Steps `before` instructions, changes the machine, and returns the difference at the next step.
fn after(code: &[u8], before: u32, change: impl FnOnce(&mut Core)) -> Option<Difference> {
    let mut lockstep = start(code)?;
    for _ in 0..before {
        let (outcome, difference) = lockstep.step().expect("a step");
        assert_eq!(outcome, Outcome::Limit);
        assert!(difference.is_none(), "{}", difference.expect("one"));
    }
    change(lockstep.machine());
    let (_, difference) = lockstep.step().expect("a step");
    Some(*difference.expect("a difference"))
}

#[test]
fn a_register_is_seen() {
    // nop; nop
    let Some(difference) = after(&[0x90, 0x90], 1, |core| core.state.set_gpr(13, 5)) else {
        return;
    };
    assert_eq!((difference.number, difference.rip), (1, CODE + 0x79));
    let text = difference.to_string();
    let shown = text.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words == ["r13", "0x5", "0x0"]
    });
    assert!(shown, "{text}");
}

#[test]
fn flags_are_seen_but_those_that_are_open() {
    // test %eax,%eax leaves AF open; nop
    if let Some(mut lockstep) = start(&[0x85, 0xc0, 0x90]) {
        lockstep.step().expect("a step");
        let rflags = lockstep.machine().state.rflags();
        assert!(lockstep.step().expect("a step").1.is_none());
        assert_eq!(rflags & 0x40, 0x40);
        lockstep.machine().state.set_rflags(rflags ^ 1);
        let (_, difference) = lockstep.step().expect("a step");
        // The third instruction faults; flags differ then, too.
        assert!(difference.expect("one").to_string().contains("\nrflags "));
    }
}

#[test]
fn stored_memory_is_seen_at_the_store() {
    // mov %rax,8(%rbx) with another rax: memory differs, and rax
    let Some(difference) = after(&[0x48, 0x89, 0x43, 0x08], 0, |core| {
        core.state.set_gpr(0, 7)
    }) else {
        return;
    };
    let [memory] = &difference.memory[..] else {
        panic!("{difference}");
    };
    assert_eq!((memory.address, memory.machine[0]), (DATA + 8, 7));
    // add %al,(%rbx) with another value in memory
    let poke = |core: &mut Core| core.memory.poke(DATA, &[9]).expect("mapped");
    let difference = after(&[0x00, 0x03], 0, poke).expect("ptrace");
    assert_eq!(difference.memory.len(), 1);
    assert_eq!(difference.machine.cpu.gpr, difference.processor.cpu.gpr);
}

#[test]
fn vector_registers_are_seen_where_they_are_used() {
    // nop (at the first instruction everything is compared), nop, pxor %xmm1,%xmm1
    let code = [0x90, 0x90, 0x66, 0x0f, 0xef, 0xc9];
    let Some(mut lockstep) = start(&code) else {
        return;
    };
    assert!(lockstep.step().expect("a step").1.is_none());
    lockstep.machine().state.vectors.set_xmm(5, 3);
    assert!(lockstep.step().expect("a step").1.is_none());
    let difference = lockstep.step().expect("a step").1.expect("a difference");
    assert!(difference.to_string().contains("\nxmm5 "), "{difference}");
}

#[test]
fn upper_halves_are_seen() {
    if !std::arch::is_x86_feature_detected!("avx2") {
        skip::skip("upper_halves_are_seen", "there is no AVX2");
        return;
    }

    // vpcmpeqd %ymm1,%ymm1,%ymm1; pxor %xmm1,%xmm1; vpaddq %ymm1,%ymm1,%ymm2
    let code = [
        0xc5, 0xf5, 0x76, 0xc9, 0x66, 0x0f, 0xef, 0xc9, 0xc5, 0xf5, 0xd4, 0xd1,
    ];

    let Some(mut lockstep) = start(&code) else {
        return;
    };

    for _ in 0..2 {
        assert!(lockstep.step().expect("a step").1.is_none());
    }

    let ones = lockstep.machine().state.vectors.ymm(1);
    assert_eq!(ones, [0, u128::MAX]);

    lockstep.machine().state.vectors.set_ymm(1, [0, 5]);
    let difference = lockstep.step().expect("a step").1.expect("a difference");

    let text = difference.to_string();
    assert!(
        text.contains("\nymm1 ") && text.contains("\nymm2 "),
        "{text}"
    );
}

#[test]
fn memory_that_nobody_stored_is_seen_when_all_is_compared() {
    let Some(mut lockstep) = start(&[0x90]) else {
        return;
    };
    assert!(lockstep.compare_all().expect("compared").is_none());
    let memory = &mut lockstep.machine().memory;
    memory.poke(DATA + 0x1abc, &[1]).expect("mapped");
    let difference = lockstep.compare_all().expect("compared").expect("one");
    assert!(difference.late);
    assert_eq!(difference.memory[0].address, DATA + 0x1ab8);
}

#[test]
fn faults_must_be_the_same() {
    // mov (%rbx),%eax, on a page that only the machine may not read
    let protect = |core: &mut Core| {
        let page = DATA..DATA + 0x1000;
        core.memory
            .protect(page, Permissions::NONE)
            .expect("mapped");
    };
    let Some(difference) = after(&[0x8b, 0x03], 0, protect) else {
        return;
    };
    assert_eq!(difference.processor.ended, "done");
    assert!(difference.machine.ended.contains("Protected"));
}
