//! A kernel in small (`corpus/kernel/mini.s`) in the emulated machine: at every instruction of a
//! system call with a tracepoint in it, with an interrupt and with an NMI at every instruction, what
//! the kernel's unwinders say, held against the calls that were made.

use object::{Object, ObjectSegment, ObjectSymbol};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;
use std::sync::Arc;
use unwind_sim_emulator::state::reg;
use unwind_sim_emulator::{AddressSpace as Memory, Exit, Machine, Permissions, State as Cpu};
use unwind_sim_unwind::elf;
use unwind_sim_unwind::image::{AddressSpace, Image, Mapping};
use unwind_sim_unwind::kernel::perf::{Visit, callchain};
use unwind_sim_unwind::kernel::{Code, Finds, Kernel, Kind, StackInfo, StackType, Task, Version};
use unwind_sim_unwind::memory::Memory as _;
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::start::{FakeVariant, SampleRegs, Start, Variant, fetch_caller_regs};
use unwind_sim_unwind::verdict::{Verdict, judge_addresses};

const TASK: u64 = 0x200_0000;
const IRQ: u64 = 0x300_0000;
const NMI: u64 = 0x400_0000;
const USER: u64 = 0x500_0000;
const STACK: u64 = 0x4000;
const KERNEL_CS: u64 = 0x10;

/// Who is to be returned to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Caller {
    /// At this address, which a call pushed into this slot.
    Call { ret: u64, slot: u64 },
    /// At this instruction, which was interrupted.
    Interrupted { rip: u64 },
}

#[derive(Clone)]
struct Mini {
    machine: Machine,
    /// Innermost last.
    callers: Vec<Caller>,
    symbols: Arc<BTreeMap<String, u64>>,
    code: Arc<Code>,
    image: Arc<Image>,
}

/// Assembles the kernel, with frame pointers or without.
fn build(frame_pointers: bool) -> Mini {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mini");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/kernel/mini.s");
    let mut cc = Command::new("cc");
    cc.args([
        "-nostdlib",
        "-static",
        "-no-pie",
        "-Wl,-Ttext=0x1000000,-e,entry_SYSCALL_64",
    ]);
    cc.args(["-Wl,--build-id=none", "-Wa,-W"]);
    if frame_pointers {
        cc.arg("-Wa,--defsym,FP=1");
    }
    let status = cc
        .arg("-o")
        .arg(&path)
        .arg(source)
        .status()
        .expect("cc runs");
    assert!(status.success(), "cc: {status}");
    let bytes = std::fs::read(&path).expect("cc wrote it");
    let file = object::File::parse(bytes.as_slice()).expect("an ELF file");
    let mut memory = Memory::bare();
    for segment in file.segments() {
        let (start, end) = (
            segment.address() & !0xfff,
            segment.address() + segment.size(),
        );
        let range = start..end.next_multiple_of(0x1000);
        memory.map(range, Permissions::ALL).expect("it is free");
        let data = segment.data().expect("it is in the file");
        memory.poke(segment.address(), data).expect("it was mapped");
    }
    for start in [TASK, IRQ, NMI, USER] {
        memory
            .map(start..start + STACK, Permissions::READ_WRITE)
            .expect("it is free");
    }
    let symbols: BTreeMap<String, u64> = file
        .symbols()
        .filter_map(|s| Some((s.name().ok()?.to_owned(), s.address())))
        .collect();
    let word = |memory: &mut Memory, name: &str, value: u64| {
        memory
            .poke(symbols[name], &value.to_le_bytes())
            .expect("it was mapped");
    };
    word(&mut memory, "task_top", TASK + STACK);
    word(&mut memory, "irq_top", IRQ + STACK - 8);
    let mut cpu = Cpu::new(memory);
    cpu.rip = symbols["entry_SYSCALL_64"];
    cpu.set_gpr(reg::RSP, USER + 0x1000);
    cpu.set_gpr(reg::RCX, USER);
    cpu.set_gpr(reg::R11, 0x202);
    let owner: unwind_sim_unwind::image::Owner = Arc::new(bytes.clone());
    let image = elf::image_from_elf("mini", owner, &elf::Options::default()).expect("an image");
    let image = Arc::new(image);
    let mut space = AddressSpace::new();
    space.map(Mapping {
        range: symbols["_stext"]..symbols["_etext"],
        bias: 0,
        image: Some(image.clone()),
        name: "mini".into(),
    });
    let version = Version::from_name("6.12").expect("a version");
    Mini {
        machine: Machine::new(cpu),
        callers: Vec::new(),
        code: Arc::new(Code::new(&space, version, Some(version.encoding()))),
        symbols: Arc::new(symbols),
        image,
    }
}

impl Mini {
    fn word(&self, address: u64) -> u64 {
        self.machine
            .state
            .memory
            .read_u64(address)
            .expect("a stack's word")
    }

    fn at(&self, symbol: &str) -> bool {
        self.machine.state.rip == self.symbols[symbol]
    }

    fn sp(&self) -> u64 {
        self.machine.state.gpr(reg::RSP)
    }

    /// One instruction. False at the end.
    fn step(&mut self) -> bool {
        let (rip, sp) = (self.machine.state.rip, self.sp());
        let mut bytes = [0; 2];
        self.machine
            .state
            .memory
            .peek(rip, &mut bytes)
            .expect("it is code");
        match bytes {
            [0xf4, _] => return false,
            [0x48, 0xcf] => self.iretq(),
            [first, _] => {
                let exit = self.machine.run(1, &mut ());
                assert_eq!(exit, Exit::Limit, "at {rip:#x}");
                match first {
                    0xe8 => self.callers.push(Caller::Call {
                        ret: rip + 5,
                        slot: sp - 8,
                    }),
                    0xc3 => self.returned(sp),
                    _ => {}
                }
            }
        }
        true
    }

    /// A return ends the innermost call, whether it goes back or, in a retpoline, elsewhere.
    fn returned(&mut self, slot: u64) {
        let Some(Caller::Call { slot: pushed, .. }) = self.callers.pop() else {
            panic!("a return without a call");
        };
        assert_eq!(pushed, slot);
    }

    fn iretq(&mut self) {
        let sp = self.sp();
        let cpu = &mut self.machine.state;
        let word = |at| cpu.memory.read_u64(sp + at).expect("an iret frame");
        let (rip, flags, old_sp) = (word(0), word(16), word(24));
        cpu.rip = rip;
        cpu.set_rflags(flags);
        cpu.set_gpr(reg::RSP, old_sp);
        assert_eq!(self.callers.pop(), Some(Caller::Interrupted { rip }));
    }

    /// What the processor does on an interrupt, or an NMI, which has a stack of its own.
    fn interrupt(&mut self, handler: &str, stack: u64) {
        let cpu = &mut self.machine.state;
        let (rip, sp) = (cpu.rip, cpu.gpr(reg::RSP));
        let at = (stack & !0xf) - 40;
        for (i, word) in [rip, KERNEL_CS, cpu.rflags(), sp, 0x18]
            .into_iter()
            .enumerate()
        {
            let place = at + 8 * i as u64;
            cpu.memory
                .poke(place, &word.to_le_bytes())
                .expect("it is a stack");
        }
        cpu.set_gpr(reg::RSP, at);
        cpu.rip = self.symbols[handler];
        self.callers.push(Caller::Interrupted { rip });
    }

    /// The true chain, up to user space.
    fn truth(&self) -> Vec<u64> {
        let callers = self.callers.iter().rev().map(|c| match *c {
            Caller::Call { ret, .. } => ret,
            Caller::Interrupted { rip } => rip,
        });
        std::iter::once(self.machine.state.rip)
            .chain(callers)
            .collect()
    }

    fn regs(&self) -> Regs {
        let cpu = &self.machine.state;
        let mut regs = Regs::UNKNOWN;
        let numbers = [
            (Reg::Rax, reg::RAX),
            (Reg::Rbx, reg::RBX),
            (Reg::Rbp, reg::RBP),
            (Reg::Rsp, reg::RSP),
        ];
        for (name, number) in numbers {
            regs.set(name, cpu.gpr(number));
        }
        regs.set(Reg::Rip, cpu.rip);
        regs.set(Reg::Rflags, cpu.rflags() | 2);
        regs.set(Reg::Cs, KERNEL_CS);
        regs
    }

    fn task(&self) -> Task {
        let stack = |kind: StackType, begin, next_sp| StackInfo {
            kind,
            begin,
            end: begin + STACK,
            next_sp,
        };
        let link = |kind: StackType, begin| {
            let slot = kind.next_sp_at(begin + STACK);
            slot.map_or(0, |slot| self.word(slot))
        };
        let stacks = [
            (StackType::Task, TASK),
            (StackType::Nmi, NMI),
            (StackType::Irq, IRQ),
        ];
        Task {
            stacks: stacks
                .map(|(kind, at)| stack(kind, at, link(kind, at)))
                .to_vec(),
            ..Task::default()
        }
    }

    /// A callchain, and whether the unwinder says that it is not reliable.
    fn chain(&self, kind: Kind, start: &Start) -> (Vec<u64>, bool) {
        let task = self.task();
        let kernel = Kernel {
            code: &self.code,
            task: &task,
            memory: &self.machine.state.memory,
        };
        let mut ips = Vec::new();
        let mut finds = Finds::default();
        let ended = callchain(
            kind,
            kernel,
            start,
            100,
            &mut finds,
            &mut |visit| match visit {
                Visit::Ip(ip) | Visit::Stored(_, ip) => ips.push(ip),
                Visit::Skipped(_) | Visit::Last(_) => {}
            },
        );
        (ips, ended.expect("registers are known").0.is_error())
    }

    /// What each unwinder says here: a verdict, and `!` if it says that it is not reliable.
    fn cells(&self) -> String {
        let start = Start::from_regs(self.regs());
        let truth = self.truth();
        let cell = |kind| {
            let (found, error) = self.chain(kind, &start);
            let verdict: Verdict = judge_addresses(&found, &truth, true);
            format!("{verdict}{}", if error { "!" } else { "" })
        };
        Kind::ALL.map(cell).map(|c| format!("{c:<8}")).concat()
    }

    /// What they say inside of a handler that is called here; afterwards all is as before.
    fn cells_in(&self, handler: &str, stack: u64, inside: &str, ret: &str) -> String {
        let mut other = self.clone();
        other.interrupt(handler, stack);
        while !other.at(inside) {
            assert!(other.step());
        }
        let cells = other.cells();
        while !other.at(ret) {
            assert!(other.step());
        }
        assert!(other.step());
        assert_eq!(
            (other.regs(), other.callers.len()),
            (self.regs(), self.callers.len())
        );
        cells
    }

    fn place(&self, address: u64) -> String {
        let symbol = self.image.symbol(address).expect("code has symbols");
        format!("{}+{:#x}", symbol.name, address - symbol.address)
    }
}

/// Every instruction of the system call: the verdicts there, in an interrupt there, in an NMI there.
fn matrix(frame_pointers: bool) -> String {
    let mut mini = build(frame_pointers);
    let columns = "orc     fp      guess   ";
    let mut out = format!(
        "{:40}{columns}| interrupted: {columns}| NMI: {columns}\n",
        ""
    );
    loop {
        let on_task = (TASK..=TASK + STACK).contains(&mini.sp());
        let here = mini.cells();
        // Interrupts are disabled until the stack is the kernel's.
        let interrupted = match on_task {
            true => mini.cells_in(
                "asm_sysvec_timer",
                mini.sp(),
                "in_interrupt",
                "interrupt_return",
            ),
            false => " ".repeat(24),
        };
        let nmi = mini.cells_in("asm_exc_nmi", NMI + STACK, "in_nmi", "nmi_return");
        let place = mini.place(mini.machine.state.rip);
        let line = format!("{place:40}{here}|              {interrupted}|      {nmi}");
        let _ = writeln!(out, "{}", line.trim_end());
        if !mini.step() {
            return out;
        }
    }
}

fn snapshot(name: &str, text: &str) {
    insta::with_settings!({
        snapshot_path => concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots"),
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, { insta::assert_snapshot!(name, text) });
}

#[test]
fn every_instruction_without_frame_pointers() {
    snapshot("mini-kernel", &matrix(false));
}

#[test]
fn every_instruction_with_frame_pointers() {
    snapshot("mini-kernel-frame-pointers", &matrix(true));
}

/// A sample of the tracepoint, and the machine where its stack is unwound.
fn tracepoint(frame_pointers: bool) -> (Mini, SampleRegs) {
    let mut mini = build(frame_pointers);
    while !mini.at("fetch_caller_regs") {
        assert!(mini.step());
    }
    let fetch = mini.regs();
    let frame = fetch.get_or_zero(Reg::Rbp);
    let sampled = fetch_caller_regs(mini.word(frame + 8), frame + 16);
    while !mini.at("unwinding") {
        assert!(mini.step());
    }
    let sample = SampleRegs {
        sampled,
        fetch: Some(fetch),
        own: Some(mini.regs()),
    };
    (mini, sample)
}

/// As `perf script` shows a chain.
fn script(mini: &Mini, chain: &[u64]) -> String {
    let lines = chain
        .iter()
        .map(|ip| format!("\t{ip:16x} {} (mini)\n", mini.place(*ip)));
    lines.collect()
}

#[test]
fn one_entry_before_5_2_and_eight_since() {
    let mut out = String::new();
    for (frame_pointers, kind) in [(false, Kind::Orc), (true, Kind::Fp), (true, Kind::Orc)] {
        let (mini, sample) = tracepoint(frame_pointers);
        let chain = |variant| {
            let memory = &mini.machine.state.memory;
            let start = sample.start(Variant::Fake(variant), frame_pointers, memory);
            mini.chain(kind, &start.expect("all registers are known")).0
        };
        let built = if frame_pointers { "with" } else { "without" };
        for variant in [
            FakeVariant::V5_1,
            FakeVariant::V3_2019,
            FakeVariant::V5_2,
            FakeVariant::AlwaysIp,
        ] {
            let _ = writeln!(
                out,
                "{} {built} frame pointers, {}:",
                kind.as_str(),
                Variant::Fake(variant).as_str()
            );
            out += &script(&mini, &chain(variant));
        }
        let (old, new) = (chain(FakeVariant::V5_1), chain(FakeVariant::V5_2));
        assert_eq!(new.len(), 8, "{out}");
        if !frame_pointers {
            assert_eq!(old, new[..1], "the bug of seed 004");
        }
    }
    snapshot("mini-kernel-tracepoint", &out);
}

/// The patch of 2019: registers are real if a snapshot of the flags says so (SNAP, bit 1), or in a
/// kernel with frame pointers; else sp is the mark; without one, nothing is walked.
#[test]
fn every_cell_of_the_table_of_2019() {
    let mut out = String::new();
    for frame_pointers in [false, true] {
        let kind = if frame_pointers { Kind::Fp } else { Kind::Orc };
        let (mini, fake) = tracepoint(frame_pointers);
        for snap in [false, true] {
            for sp in [false, true] {
                let mut sample = fake;
                if snap {
                    sample = SampleRegs::hardware(mini.regs());
                }
                if !sp {
                    sample.sampled.set(Reg::Rsp, 0);
                }
                let variant = match sample.is_fake() {
                    true => Variant::Fake(FakeVariant::V3_2019),
                    false => Variant::Hardware,
                };
                let memory = &mini.machine.state.memory;
                let start = sample.start(variant, frame_pointers, memory);
                let chain = start.map(|start| mini.chain(kind, &start).0);
                let _ = writeln!(out, "SNAP {snap} FRAME_POINTER {frame_pointers} sp {sp}:");
                match chain {
                    Ok(chain) => out += &script(&mini, &chain),
                    Err(reason) => {
                        let _ = writeln!(out, "\tnot started: {reason}");
                    }
                }
            }
        }
    }
    snapshot("mini-kernel-2019", &out);
}
