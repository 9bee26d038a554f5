//! The emulated machine against Unicorn, on the same programs, in the same process.
//!
//! `cargo run --release --manifest-path benches/peers/Cargo.toml`
//!
//! Each program runs in both; results and instruction counts have to be equal before anything is
//! timed. Times are of this thread's CPU, the best of several rounds, since other work disturbs
//! a machine in one direction only. Not here: peers with a licence like ours.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use unicorn_engine::{Arch, Mode, Prot, RegisterX86, Unicorn};
use unwind_sim_emulator::state::reg;
use unwind_sim_emulator::{AddressSpace, Exit, LoadOptions, Machine, State, load};
use unwind_sim_unwind::image::Bytes;

const PROGRAMS: [&str; 3] = ["fib", "sort", "sha"];
const ROUNDS: usize = 5;
/// Ours has to be so many times as fast as Unicorn with a hook for every instruction.
const GOAL: f64 = 2.0;
const STACK: u64 = 0x7000_0000;
const STACK_SIZE: u64 = 1 << 20;

/// What came of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Answer {
    rax: u64,
    instructions: u64,
}

fn build() -> Vec<u8> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../programs/bare.c");
    let out = std::env::temp_dir().join(format!("unwind-sim-bare-{}", std::process::id()));
    let options = "-O2 -static -nostdlib -fno-stack-protector -fno-tree-vectorize -fcf-protection=none";
    let status = Command::new("cc")
        .args(options.split(' '))
        .arg(source)
        .arg("-o")
        .arg(&out)
        .status();
    assert!(status.expect("cc runs").success(), "cc failed");
    let bytes = std::fs::read(&out).expect("cc wrote it");
    let _ = std::fs::remove_file(&out);
    bytes
}

fn ours(program: &[u8], which: u64, hooked: bool) -> Answer {
    let length = program.len();
    let bytes = Bytes::new(Arc::new(program.to_vec()), 0..length).expect("all of it");
    let mut space = AddressSpace::default();
    let options = LoadOptions::default();
    let loaded = load(&mut space, &bytes, None, &[], &[], &options).expect("it loads");
    let mut machine = Machine::new(State::new(space));
    machine.state.rip = loaded.entry;
    machine.state.set_gpr(reg::RSP, loaded.rsp);
    machine.state.set_gpr(reg::RDI, which);
    let mut counter = Counter(0);
    let exit = match hooked {
        true => machine.run(u64::MAX, &mut counter),
        false => machine.run(u64::MAX, &mut ()),
    };
    assert_eq!(exit, Exit::Halt);
    assert!(!hooked || counter.0 == machine.executed());
    Answer {
        rax: machine.state.gpr(reg::RAX),
        instructions: machine.executed(),
    }
}

/// What Unicorn's hook does, too.
struct Counter(u64);

impl unwind_sim_emulator::Observer for Counter {
    #[inline(always)]
    fn before(&mut self, _: &State, _: &unwind_sim_emulator::Executed) {
        self.0 += 1;
    }

    #[inline(always)]
    fn after(&mut self, _: &State, _: &unwind_sim_emulator::Executed, _: u64) {}
}

/// The segments of a static program: address, bytes, size in memory.
fn segments(program: &[u8]) -> (u64, Vec<(u64, &[u8], u64)>) {
    let u16_at = |at: usize| u16::from_le_bytes([program[at], program[at + 1]]) as usize;
    let u64_at = |at: usize| u64::from_le_bytes(program[at..at + 8].try_into().expect("8 bytes"));
    let (start, size, count) = (u64_at(32) as usize, u16_at(54), u16_at(56));
    let header = |i: usize| start + i * size;
    let loads = (0..count).map(header).filter(|&at| program[at] == 1);
    let segment = |at: usize| {
        let (offset, file) = (u64_at(at + 8) as usize, u64_at(at + 32) as usize);
        (u64_at(at + 16), &program[offset..offset + file], u64_at(at + 40))
    };
    (u64_at(24), loads.map(segment).collect())
}

fn unicorn(program: &[u8], which: u64, hooked: bool) -> Answer {
    const PAGE: u64 = 4096;
    let mut uc = Unicorn::new_with_data(Arch::X86, Mode::MODE_64, 0u64).expect("unicorn");
    let (entry, segments) = segments(program);
    for (address, bytes, size) in segments {
        let first = address / PAGE * PAGE;
        let end = (address + size).div_ceil(PAGE) * PAGE;
        uc.mem_map(first, end - first, Prot::ALL).expect("mapped");
        uc.mem_write(address, bytes).expect("written");
    }
    uc.mem_map(STACK, STACK_SIZE, Prot::ALL).expect("a stack");
    uc.reg_write(RegisterX86::RSP, STACK + STACK_SIZE - 64).expect("rsp");
    uc.reg_write(RegisterX86::RDI, which).expect("rdi");
    if hooked {
        uc.add_code_hook(1, 0, |uc, _, _| *uc.get_data_mut() += 1).expect("a hook");
    }
    uc.emu_start(entry, 0, 0, 0).expect("it runs");
    Answer {
        rax: uc.reg_read(RegisterX86::RAX).expect("rax"),
        instructions: *uc.get_data(),
    }
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("schedstat");
    let nanos = stat.split(' ').next().and_then(|n| n.parse().ok());
    Duration::from_nanos(nanos.expect("a number"))
}

fn best(mut run: impl FnMut() -> Answer) -> Duration {
    let once = |_| {
        let begin = cpu_time();
        std::hint::black_box(run());
        cpu_time() - begin
    };
    (0..ROUNDS).map(once).min().unwrap_or_default()
}

fn main() {
    let program = build();
    println!("instructions per microsecond of CPU; every result and count compared first");
    println!("{:<6} {:>12} {:>9} {:>9} {:>9} {:>9}", "", "insns", "ours", "hooked", "unicorn", "hooked");
    let (mut hooked, mut plain, mut both) = (1.0, 1.0, 1.0);
    for (which, name) in PROGRAMS.iter().enumerate() {
        let which = which as u64;
        let answer = ours(&program, which, false);
        let theirs = unicorn(&program, which, true);
        assert_eq!(answer, theirs, "{name}");
        let rate = |time: Duration| answer.instructions as f64 / time.as_secs_f64() / 1e6;
        let rates = [
            rate(best(|| ours(&program, which, false))),
            rate(best(|| ours(&program, which, true))),
            rate(best(|| unicorn(&program, which, false))),
            rate(best(|| unicorn(&program, which, true))),
        ];
        let [a, b, c, d] = rates;
        println!("{name:<6} {:>12} {a:>9.1} {b:>9.1} {c:>9.1} {d:>9.1}", answer.instructions);
        hooked *= a / d;
        plain *= a / c;
        both *= b / d;
    }
    let mean = |product: f64| product.powf(1.0 / PROGRAMS.len() as f64);
    println!("geometric means, ours / Unicorn:");
    println!("  without checks, Unicorn with a code hook  {:.2} (goal {GOAL})", mean(hooked));
    println!("  both with a hook for every instruction    {:.2}", mean(both));
    println!("  both without                              {:.2} (stretch 1)", mean(plain));
}
