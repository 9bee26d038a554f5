//! Runs programs without a kernel (`benches/programs/bare.c`) in each emulator: fib, sort, sha.

use crate::timing::cpu_time;
use libmwemu::maps::mem64::Permission;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use unicorn_engine::{Arch, Mode, Prot, RegisterX86, Unicorn};
use unwind_sim_emulator::address_space::Content;
use unwind_sim_emulator::state::reg;
use unwind_sim_emulator::{AddressSpace, Core, Executed, Exit, LoadOptions, Machine, load};

/// The programs' names, by number.
pub const PROGRAMS: [&str; 3] = ["fib", "sort", "sha"];

const PAGE: u64 = 4096;
const STACK: u64 = 0x7000_0000;
const STACK_SIZE: u64 = 1 << 20;
const OPTIONS: &str =
    "-O2 -static -nostdlib -fno-stack-protector -fno-tree-vectorize -fcf-protection=none";

/// The outcome of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunResult {
    /// The result.
    pub rax: u64,
    /// Instructions executed, including the `hlt` at the end.
    pub instructions: u64,
}

/// A program's answer and its CPU time, without loading.
pub type TimedResult = (RunResult, Duration);

/// Compiles the programs, without a kernel or, with `-DPROCESS`, for Linux; returns the path.
pub fn build(process: bool) -> PathBuf {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../programs/bare.c");
    let name = format!("unwind-sim-bare-{}-{process}", std::process::id());
    let out = std::env::temp_dir().join(name);
    let mut compiler = Command::new("cc");
    compiler.args(OPTIONS.split(' ')).arg(source);
    compiler.arg("-o").arg(&out);
    if process {
        compiler.arg("-DPROCESS");
    }
    assert!(compiler.status().expect("cc runs").success(), "cc failed");
    out
}

/// Runs our machine, with an observer that counts or with none.
pub fn ours(program: &[u8], which: u64, hooked: bool) -> TimedResult {
    let program = Content::from(program.to_vec());
    let mut space = AddressSpace::default();
    let options = LoadOptions::default();
    let loaded = load(&mut space, &program, None, &[], &[], &options).expect("it loads");

    // No kernel: the program starts with its number in rdi, and ends with `hlt`.
    let mut machine = Machine::new(Core::new(space));
    machine.core.state.rip = loaded.entry;
    machine.core.state.set_gpr(reg::RSP, loaded.rsp);
    machine.core.state.set_gpr(reg::RDI, which);

    let mut counter = Counter(0);

    // Loading is not measured, on any side.
    let begin = cpu_time();
    let exit = if hooked {
        machine.run(u64::MAX, &mut counter)
    } else {
        machine.run(u64::MAX, &mut ())
    };
    let time = cpu_time() - begin;

    assert_eq!(exit, Exit::Halt);

    // The hook must have seen every instruction, or the comparison would be unfair.
    assert!(!hooked || counter.0 == machine.executed());

    let answer = RunResult {
        rax: machine.core.state.gpr(reg::RAX),
        instructions: machine.executed(),
    };
    (answer, time)
}

/// Does the same for each instruction as Unicorn's hook.
pub struct Counter(pub u64);

impl unwind_sim_emulator::Observer for Counter {
    #[inline(always)]
    fn before(&mut self, _: &Core, _: &Executed) {
        self.0 += 1;
    }

    #[inline(always)]
    fn after(&mut self, _: &Core, _: &Executed, _: u64) {}
}

impl unwind_sim_emulator::linux::ProcessObserver for Counter {}

/// Runs Unicorn, with a hook on every instruction or with none. Without a hook it does not count.
pub fn unicorn(program: &[u8], which: u64, hooked: bool) -> TimedResult {
    let mut uc = Unicorn::new_with_data(Arch::X86, Mode::MODE_64, 0u64).expect("unicorn");
    let (entry, segments) = segments(program);
    for (address, bytes, pages) in segments {
        uc.mem_map(pages.start, pages.end - pages.start, Prot::ALL)
            .expect("mapped");
        uc.mem_write(address, bytes).expect("written");
    }

    uc.mem_map(STACK, STACK_SIZE, Prot::ALL).expect("a stack");

    // Some bytes above rsp stay free.
    uc.reg_write(RegisterX86::RSP, STACK + STACK_SIZE - 64)
        .expect("rsp");
    uc.reg_write(RegisterX86::RDI, which).expect("rdi");

    // A range that begins after its end means every address (`unicorn.h`).
    if hooked {
        uc.add_code_hook(1, 0, |uc, _, _| *uc.get_data_mut() += 1)
            .expect("a hook");
    }

    let begin = cpu_time();

    // Until `hlt`, which ends a run, with no limit of time or instructions.
    uc.emu_start(entry, 0, 0, 0).expect("it runs");
    let time = cpu_time() - begin;

    let answer = RunResult {
        rax: uc.reg_read(RegisterX86::RAX).expect("rax"),
        instructions: *uc.get_data(),
    };
    (answer, time)
}

/// Runs libmwemu in its fastest loop, without watches, threads or breakpoints.
pub fn mwemu(program: &[u8], which: u64) -> TimedResult {
    let mut emu = libmwemu::emu64();
    emu.cfg.verbose = 0;
    emu.cfg.emulate_winapi = false;

    // What would stop it early is set to never.
    emu.exp = u64::MAX;
    emu.init_cpu();

    let (entry, segments) = segments(program);
    let mut halt = None;
    for (address, bytes, pages) in segments {
        let (name, size) = (format!("at {address:x}"), pages.end - pages.start);
        let all = Permission::READ_WRITE_EXECUTE;
        emu.maps
            .create_map(&name, pages.start, size, all)
            .expect("mapped");
        emu.maps.write_bytes(address, bytes);
        // `_start` is: xor %ebp, %ebp; call work; hlt.
        if pages.contains(&entry) {
            let start = &bytes[(entry - address) as usize..];
            assert_eq!((start[2], start[7]), (0xe8, 0xf4), "another _start");
            halt = Some(entry + 7);
        }
    }

    let all = Permission::READ_WRITE;
    emu.maps
        .create_map("the stack", STACK, STACK_SIZE, all)
        .expect("mapped");

    let regs = emu.regs_mut();

    // As on the other sides: the number of the program is in rdi.
    (regs.rsp, regs.rdi) = (STACK + STACK_SIZE - 64, which);
    emu.set_pc(entry);

    let begin = cpu_time();
    emu.run(halt).expect("it runs");
    let time = cpu_time() - begin;

    let answer = RunResult {
        rax: emu.regs().rax,
        // It stops before the `hlt`.
        instructions: emu.pos + 1,
    };
    (answer, time)
}

/// A segment: the address of its bytes, the bytes, and their pages.
type Segment<'a> = (u64, &'a [u8], std::ops::Range<u64>);

/// The entry point and the segments of a static program.
fn segments(program: &[u8]) -> (u64, Vec<Segment<'_>>) {
    let u16_at = |at: usize| u16::from_le_bytes([program[at], program[at + 1]]) as usize;
    let u64_at = |at: usize| u64::from_le_bytes(program[at..at + 8].try_into().expect("8 bytes"));
    let (start, size, count) = (u64_at(32) as usize, u16_at(54), u16_at(56));
    let header = |i: usize| start + i * size;
    let loads = (0..count).map(header).filter(|&at| program[at] == 1);
    let segment = |at: usize| {
        let (offset, file) = (u64_at(at + 8) as usize, u64_at(at + 32) as usize);
        let (address, size) = (u64_at(at + 16), u64_at(at + 40));
        let pages = address / PAGE * PAGE..(address + size).div_ceil(PAGE) * PAGE;
        (address, &program[offset..offset + file], pages)
    };
    (u64_at(24), loads.map(segment).collect())
}
