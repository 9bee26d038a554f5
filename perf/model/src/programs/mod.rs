//! eBPF programs as handlers: the built-in ones, and a run of a program.
//!
//! The interpreter and its helpers are in `bpf`. When a handler is called, what its helpers see and
//! what its result does is up to `world`.

mod text;

use super::log::Handling;
use super::registers::Registers;
use super::setup::{EventSetup, Kind};
use crate::bpf::object::MapDef;
use crate::bpf::{
    Attachment, Env, Errno, EventTraits, Guard, Handlers, Insn, Limits, Object, PerfEventData,
    Verdict,
};
use std::sync::LazyLock;
pub(super) use text::programs_text;
use unwind_sim_perf_data::regs::{
    PERF_REG_X86_BP, PERF_REG_X86_CS, PERF_REG_X86_FLAGS, PERF_REG_X86_IP, PERF_REG_X86_SP,
};

/// A program with its maps, to be attached to events.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Its name in scenarios and outputs.
    pub name: String,
    handlers: Handlers,
    index: usize,
    calls_get_stack: bool,
    walks: bool,
    counts: Counts,
}

/// The results of a program's runs and of its output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    kept: u64,
    dropped: u64,
    recursions: u64,
    faults: u64,
    outputs: u64,
    lost: u64,
}

/// A request of a handler from an object file.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectRequest {
    /// Line number, from 1.
    pub line: usize,
    /// The handler's name.
    pub name: String,
    /// Path of the file as written, relative to the scenario's file.
    pub path: String,
    /// Whether it walks user stacks: it writes a number and as many frames, which are compared with
    /// the ground truth.
    pub walks: bool,
    /// Name of the program; by default the first one for perf events.
    pub program: Option<String>,
    /// The program, once it was supplied.
    pub(super) loaded: Option<Program>,
}

impl Program {
    /// Program number `index` of `handlers`. With `walks` it is one that walks user stacks.
    pub(super) fn new(name: &str, handlers: Handlers, index: usize, walks: bool) -> Self {
        let program = handlers.programs().get(index);
        Self {
            name: name.to_owned(),
            calls_get_stack: program.is_some_and(crate::bpf::Program::calls_get_stack),
            handlers,
            index,
            walks,
            counts: Counts::default(),
        }
    }

    /// The program as attached to the event.
    ///
    /// # Errors
    /// As the kernel refuses it.
    pub(super) fn attachment(&self, event: &EventSetup) -> Result<Attachment, Errno> {
        let mut attachment = Attachment::new(EventTraits {
            // Tracepoints and uprobes take other programs, and outputs do not overflow.
            has_own_handler: !matches!(event.kind, Kind::Pmu | Kind::Timer | Kind::Software),
            has_callchain: event.has_callchain,
            ..EventTraits::default()
        });
        attachment.set(&self.handlers, self.index)?;
        Ok(attachment)
    }

    /// Whether it walks user stacks.
    pub(super) const fn walks(&self) -> bool {
        self.walks
    }

    /// Whether it needs the sample's chain before it runs.
    pub(super) const fn needs_chain(&self, event: &EventSetup) -> bool {
        self.calls_get_stack && event.has_callchain
    }

    /// Opens its maps of outputs for this number of CPUs.
    pub(super) fn open_outputs(&mut self, cpus: u32) {
        self.handlers.maps.open_outputs(cpus);
    }

    /// Counts a run: its result, the records that it wrote, and those that did not fit.
    pub(super) const fn count(&mut self, how: Handling, [written, lost]: [u64; 2]) {
        let counts = &mut self.counts;
        counts.outputs += written;
        counts.lost += lost;
        match how {
            Handling::Kept => counts.kept += 1,
            Handling::Dropped => counts.dropped += 1,
            Handling::Recursion => counts.recursions += 1,
            Handling::Fault { .. } => counts.faults += 1,
        }
    }

    /// Runs it at an overflow of its event, with these registers and this period. Returns what
    /// happens to the sample.
    pub(super) fn run(
        &mut self,
        attachment: &Attachment,
        guard: &mut Guard,
        env: &mut dyn Env,
        (registers, period): (Registers, u64),
    ) -> Handling {
        let mut data = PerfEventData::new();
        data.set_reg(PERF_REG_X86_IP, registers.ip);
        data.set_reg(PERF_REG_X86_SP, registers.sp);
        data.set_reg(PERF_REG_X86_BP, registers.bp);
        data.set_reg(PERF_REG_X86_CS, registers.cs);
        data.set_reg(PERF_REG_X86_FLAGS, registers.flags);
        data.set_sample_period(period);
        data.set_address(0);
        match attachment.overflow(&mut self.handlers, guard, env, &data) {
            Verdict::Keep(_) => Handling::Kept,
            Verdict::Drop => Handling::Dropped,
            Verdict::Recursion => Handling::Recursion,
            Verdict::Fault(fault) => Handling::Fault {
                insn: fault.insn.min(usize::from(u16::MAX)) as u16,
            },
        }
    }
}

/// Names of the built-in programs.
pub(super) const BUILT_IN: [&str; 3] = ["report", "report-drop", "stack"];
/// The number of words that `report` writes: thread, instruction pointer, period, CPU, time.
pub(super) const REPORT_WORDS: usize = 5;
/// The number of words that `stack` writes: the helper's result, and as many frames as fit.
pub(super) const STACK_WORDS: usize = 9;

const fn call(helper: i32) -> Insn {
    Insn::new(0x85, 0, 0, 0, helper)
}

/// `*(u64 *)(r10 - bytes) = register`.
const fn store(bytes: i16, register: u8) -> Insn {
    Insn::new(0x7b, 10, register, -bytes, 0)
}

/// Writes the words below the frame pointer to the output, and returns `value`.
fn output_and_return(words: usize, value: i32) -> [Insn; 9] {
    let bytes = 8 * words as i32;
    [
        Insn::new(0xbf, 1, 6, 0, 0),
        // The map of outputs; the slot of this CPU.
        Insn::new(0x18, 2, 1, 0, 0),
        Insn::new(0, 0, 0, 0, 0),
        Insn::new(0xb4, 3, 0, 0, -1),
        Insn::new(0xbf, 4, 10, 0, 0),
        Insn::new(0x07, 4, 0, 0, -bytes),
        Insn::new(0xb7, 5, 0, 0, bytes),
        // perf_event_output
        call(25),
        Insn::new(0xb7, 0, 0, 0, value),
    ]
}

fn report(value: i32) -> Vec<Insn> {
    let mut insns = vec![
        Insn::new(0xbf, 6, 1, 0, 0),
        // get_current_pid_tgid
        call(14),
        store(40, 0),
        // regs.ip and sample_period
        Insn::new(0x79, 1, 6, 128, 0),
        store(32, 1),
        Insn::new(0x79, 1, 6, 168, 0),
        store(24, 1),
        // get_smp_processor_id
        call(8),
        store(16, 0),
        // ktime_get_ns
        call(5),
        store(8, 0),
    ];
    insns.extend(output_and_return(REPORT_WORDS, value));
    insns.push(Insn::EXIT);
    insns
}

fn stack() -> Vec<Insn> {
    let mut insns = vec![
        Insn::new(0xbf, 6, 1, 0, 0),
        Insn::new(0xbf, 2, 10, 0, 0),
        Insn::new(0x07, 2, 0, 0, -64),
        Insn::new(0xb7, 3, 0, 0, 64),
        // BPF_F_USER_STACK; get_stack
        Insn::new(0xb7, 4, 0, 0, 256),
        call(67),
        store(72, 0),
    ];
    insns.extend(output_and_return(STACK_WORDS, 1));
    insns.push(Insn::EXIT);
    insns
}

static PROGRAMS: LazyLock<Vec<Program>> = LazyLock::new(|| {
    let outputs = MapDef {
        name: "outputs".to_owned(),
        // BPF_MAP_TYPE_PERF_EVENT_ARRAY
        kind: 4,
        key_size: 4,
        value_size: 4,
        max_entries: u32::from(super::setup::CPUS_MAX),
        flags: 0,
        initial: Vec::new(),
        inner: Vec::new(),
    };
    let load = |(name, insns): (&&str, Vec<Insn>)| {
        let object = Object::from_insns("perf_event", &insns, std::slice::from_ref(&outputs));
        let handlers = Handlers::load(&object, Limits::default()).ok()?;
        Some(Program::new(name, handlers, 0, false))
    };
    let all = BUILT_IN.iter().zip([report(1), report(0), stack()]);
    all.filter_map(load).collect()
});

/// The built-in programs, in their initial state.
pub(super) fn built_in() -> impl Iterator<Item = Program> {
    PROGRAMS.iter().cloned()
}
