//! Replays a recorded program in Unicorn: at each `syscall`, applies what our kernel answered.

use crate::record::{Contents, InstructionEffects, MappingChange, Recording};
use crate::timing::cpu_time;
use std::ops::Range;
use std::time::Duration;
use unicorn_engine::{Arch, Mode, Prot, RegisterX86, Unicorn, X86Insn};
use unwind_sim_emulator::{Access, Permissions};

/// `UC_CPU_X86_NEHALEM`: SSE4.2 without AVX, like our machine.
const CPU_MODEL: i32 = 17;
/// The general registers in the order of their numbers.
const REGISTERS: [RegisterX86; 16] = [
    RegisterX86::RAX,
    RegisterX86::RCX,
    RegisterX86::RDX,
    RegisterX86::RBX,
    RegisterX86::RSP,
    RegisterX86::RBP,
    RegisterX86::RSI,
    RegisterX86::RDI,
    RegisterX86::R8,
    RegisterX86::R9,
    RegisterX86::R10,
    RegisterX86::R11,
    RegisterX86::R12,
    RegisterX86::R13,
    RegisterX86::R14,
    RegisterX86::R15,
];
/// The registers that `syscall`, `cpuid`, `rdtsc` or `xgetbv` change.
const CHANGED: [usize; 5] = [0, 1, 2, 3, 11];

/// How a run is watched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ObserverMode {
    /// Not at all.
    Bare,
    /// A hook counts every instruction.
    Hook,
    /// Compare everything with the recording.
    Compare,
}

struct Replay<'a> {
    recording: &'a Recording,
    watch: ObserverMode,
    next: usize,
    /// Number of calls of the hook, or instructions executed when comparing.
    instructions: u64,
    last: u64,
    /// CPU time spent on answers.
    answering: Duration,
}

/// Runs a recorded program; returns its CPU time without the time for answers.
pub fn unicorn(recording: &Recording, watch: ObserverMode) -> Duration {
    let replay = Replay {
        recording,
        watch,
        next: 0,
        instructions: 0,
        last: 0,
        answering: Duration::ZERO,
    };

    let mut uc = Unicorn::new_with_data(Arch::X86, Mode::MODE_64, replay).expect("unicorn");
    uc.ctl_set_cpu_model(CPU_MODEL).expect("a model");

    // The mappings and their content before the first instruction.
    apply(&mut uc, &recording.start, &recording.patches);
    for (register, value) in REGISTERS.iter().zip(recording.start.after) {
        uc.reg_write(*register, value).expect("a register");
    }

    // The values that `fninit` and the kernel set.
    uc.reg_write(RegisterX86::FPCW, 0x37f).expect("fpcw");
    uc.reg_write(RegisterX86::MXCSR, 0x1f80).expect("mxcsr");

    // A range that begins after its end means every address (`unicorn.h`).
    uc.add_insn_sys_hook(X86Insn::SYSCALL, 1, 0, system_call)
        .expect("a hook");

    match watch {
        ObserverMode::Bare => {}
        ObserverMode::Hook => {
            let count =
                |uc: &mut Unicorn<'_, Replay<'_>>, _, _| uc.get_data_mut().instructions += 1;
            uc.add_code_hook(1, 0, count).expect("a hook");
        }
        // A repeated string instruction counts once, however often Unicorn calls the hook.
        ObserverMode::Compare => {
            let count = |uc: &mut Unicorn<'_, Replay<'_>>, address, _| {
                let mut first = [0];
                let repeated = uc.get_data().last == address
                    && uc.mem_read(address, &mut first).is_ok()
                    && matches!(first, [0xf2 | 0xf3]);
                let replay = uc.get_data_mut();
                replay.instructions += u64::from(!repeated);
                replay.last = address;
            };
            uc.add_code_hook(1, 0, count).expect("a hook");
        }
    }

    let begin = cpu_time();
    uc.emu_start(recording.entry, 0, 0, 0).expect("it runs");
    let time = cpu_time() - begin;

    // Unicorn may stop by itself without an error.
    assert_eq!(
        uc.get_data().next,
        recording.answers.len(),
        "it ended early"
    );

    if watch == ObserverMode::Compare {
        compare_memory(&uc, recording);
    }
    time - uc.get_data().answering
}

fn system_call(uc: &mut Unicorn<'_, Replay<'_>>) {
    let begin = cpu_time();
    let replay = uc.get_data_mut();
    let recording = replay.recording;

    let Some(answer) = recording.answers.get(replay.next) else {
        panic!("it enters the kernel more often than ours");
    };

    // The recording has what the kernel did for ours, and its answers come in the same order.
    replay.next += 1;

    if replay.watch == ObserverMode::Compare {
        assert_eq!(replay.instructions, answer.instructions, "instructions");
        let registers = REGISTERS.map(|register| uc.reg_read(register).expect("a register"));
        assert_eq!(
            registers, answer.before,
            "registers after {}",
            answer.instructions
        );
    }

    // The last one is the exit, after which there is nothing to go on with.
    if uc.get_data().next == recording.answers.len() {
        uc.emu_stop().expect("it stops");
    } else {
        apply(uc, answer, &recording.patches);
        for number in CHANGED {
            uc.reg_write(REGISTERS[number], answer.after[number])
                .expect("a register");
        }
        uc.reg_write(RegisterX86::FS_BASE, answer.fs_base)
            .expect("fs");
    }

    // What the kernel does is not Unicorn's time.
    uc.get_data_mut().answering += cpu_time() - begin;
}

fn apply(uc: &mut Unicorn<'_, Replay<'_>>, answer: &InstructionEffects, patches: &Contents) {
    for deed in &answer.deeds {
        match deed {
            MappingChange::Unmap(range) => unmap(uc, range),
            MappingChange::Map(range, permissions) => {
                let size = range.end - range.start;
                uc.mem_map(range.start, size, protection(*permissions))
                    .expect("mapped");
            }
        }
    }
    for (address, bytes) in &answer.contents {
        uc.mem_write(*address, bytes).expect("written");
        let range = *address..address + bytes.len() as u64;
        for (at, patch) in patches.iter().filter(|(at, _)| range.contains(at)) {
            uc.mem_write(*at, patch).expect("written");
        }
    }
}

fn unmap(uc: &mut Unicorn<'_, Replay<'_>>, range: &Range<u64>) {
    for region in uc.mem_regions().expect("regions") {
        let part = region.begin.max(range.start)..(region.end + 1).min(range.end);
        if part.start < part.end {
            uc.mem_unmap(part.start, part.end - part.start)
                .expect("unmapped");
        }
    }
}

fn protection(permissions: Permissions) -> Prot {
    let bits = [
        (Access::Read, Prot::READ),
        (Access::Write, Prot::WRITE),
        (Access::Execute, Prot::EXEC),
    ];
    let allowed = bits
        .into_iter()
        .filter(|(access, _)| permissions.allow(*access));
    allowed.fold(Prot::NONE, |all, (_, bit)| all | bit)
}

/// Compares all memory at the end, except the patched instructions.
fn compare_memory(uc: &Unicorn<'_, Replay<'_>>, recording: &Recording) {
    for (address, ours) in &recording.end {
        let mut ours = ours.clone();
        let range = *address..address + ours.len() as u64;
        for (at, patch) in recording
            .patches
            .iter()
            .filter(|(at, _)| range.contains(at))
        {
            let at = (at - address) as usize;
            ours[at..at + patch.len()].copy_from_slice(patch);
        }
        let theirs = uc
            .mem_read_as_vec(*address, ours.len())
            .expect("it is mapped");
        let differs = ours.iter().zip(&theirs).position(|(a, b)| a != b);
        assert_eq!(differs, None, "memory at {address:#x}");
    }
}
