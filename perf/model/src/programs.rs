//! eBPF programs as handlers: which there are, and the world that their helpers see.
//!
//! The interpreter and its helpers are in `bpf`. Not here: when a handler is called, and what its
//! result does (`overflow`).

use super::log::{Fact, Handling};
use super::overflow::Overflow;
use super::record::Body;
use super::sampling::Handler;
use super::setup::Refusal;
use super::setup::{EventSetup, Kind};
use super::stack::{kernel_frames, user_frame};
use super::world::World;
use crate::bpf::object::MapDef;
use crate::bpf::{
    Attachment, Env, Errno, EventTraits, Handlers, Insn, Limits, Object, PerfEventData,
    SampleChain, Space, Task, Verdict,
};
use std::sync::LazyLock;
use unwind_sim_perf_data::BranchEntry;
use unwind_sim_perf_data::regs::{
    PERF_REG_X86_BP, PERF_REG_X86_CS, PERF_REG_X86_FLAGS, PERF_REG_X86_IP, PERF_REG_X86_SP,
};

/// A program with its maps, to be attached to events.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Its name in scenarios and outputs.
    pub name: String,
    pub(super) handlers: Handlers,
    pub(super) index: usize,
    calls_get_stack: bool,
    walks: bool,
    pub(super) counts: Counts,
}

/// What became of a program's runs and of what it wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) kept: u64,
    pub(super) dropped: u64,
    pub(super) recursions: u64,
    pub(super) faults: u64,
    pub(super) outputs: u64,
    pub(super) lost: u64,
}

/// What is called at an overflow.
pub(super) enum Attached {
    /// Code of the model.
    Plain(Box<dyn Handler>),
    /// A program.
    Program(Box<Program>),
}

impl Program {
    /// Program number `index` of loaded ones.
    pub(super) fn new(name: &str, handlers: Handlers, index: usize) -> Self {
        let program = handlers.programs().get(index);
        Self {
            name: name.to_owned(),
            calls_get_stack: program.is_some_and(crate::bpf::Program::calls_get_stack),
            handlers,
            index,
            walks: false,
            counts: Counts::default(),
        }
    }

    /// Marks it as a program that walks user stacks.
    pub(super) fn walking(self) -> Self {
        Self {
            walks: true,
            ..self
        }
    }

    fn attachment(&self, event: &EventSetup) -> Result<Attachment, Errno> {
        let mut attachment = Attachment::new(EventTraits {
            // Points of the kernel take other programs, and outputs do not overflow.
            has_own_handler: !matches!(event.kind, Kind::Pmu | Kind::Timer | Kind::Software),
            has_callchain: event.has_callchain,
            ..EventTraits::default()
        });
        attachment.set(&self.handlers, self.index)?;
        Ok(attachment)
    }

    /// Whether it can be attached to the event.
    pub(super) fn fits(&self, event: &EventSetup) -> bool {
        self.attachment(event).is_ok()
    }
}

/// Names of the programs that are always there.
pub(super) const BUILT_IN: [&str; 3] = ["report", "report-drop", "stack"];
/// Words that `report` writes: thread, instruction pointer, period, CPU, time.
pub(super) const REPORT_WORDS: usize = 5;
/// Words that `stack` writes: the helper's result, and as many frames as fit.
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
        max_entries: u32::from(super::CPUS_MAX),
        flags: 0,
        initial: Vec::new(),
        inner: Vec::new(),
    };
    let load = |(name, insns): (&&str, Vec<Insn>)| {
        let object = Object::from_insns("perf_event", &insns, std::slice::from_ref(&outputs));
        let handlers = Handlers::load(&object, Limits::default()).ok()?;
        Some(Program::new(name, handlers, 0))
    };
    let all = BUILT_IN.iter().zip([report(1), report(0), stack()]);
    all.filter_map(load).collect()
});

/// The programs that are always there, as they are before they run.
pub(super) fn built_in() -> impl Iterator<Item = Program> {
    PROGRAMS.iter().cloned()
}

impl World {
    /// Adds a program as a handler; its number, from 1. What it writes goes to the first event of
    /// kind `bpf-output`; without one its map of outputs is empty.
    pub fn add_program(&mut self, mut program: Program) -> u16 {
        if self.outputs().is_some() {
            program.handlers.maps.open_outputs(self.cpus.len() as u32);
        }
        self.handlers
            .push(Some(Attached::Program(Box::new(program))));
        self.attach_at_open(self.handlers.len() as u16)
    }

    /// Attaches a new handler to the open events whose attribute names it. Returns its number.
    pub(super) fn attach_at_open(&mut self, handler: u16) -> u16 {
        for event in 0..self.events.len() as u16 {
            let is_its = self.events[usize::from(event)].program == Some(handler);
            if is_its && self.open >> event & 1 != 0 {
                self.attach(0, event);
            }
        }
        handler
    }

    /// Attaches the handler that the event's attribute names.
    pub(super) fn attach(&mut self, cpu: usize, event: u16) {
        if let Some(handler) = self.events[usize::from(event)].program {
            self.slots.set_handler(event, handler);
            self.slots.set_context(event, handler);
            self.say(cpu, Fact::Installed { event, handler });
        }
    }

    /// Whether a handler is a program that walks user stacks.
    pub(super) fn walks(&self, handler: u16) -> bool {
        matches!(self.attached(handler), Some(Attached::Program(program)) if program.walks)
    }

    /// Checks that all handlers named by attributes exist and fit.
    ///
    /// # Errors
    /// The index of an event whose handler does not exist or does not fit.
    pub(super) fn check_programs(&self) -> Result<(), (usize, Refusal)> {
        for (index, event) in self.events.iter().enumerate() {
            let Some(handler) = event.program else {
                continue;
            };
            let is_fit = match self.attached(handler) {
                Some(Attached::Program(program)) => program.fits(event),
                Some(Attached::Plain(_)) => true,
                None => false,
            };
            if !is_fit {
                return Err((index, Refusal::NotForPrograms));
            }
        }
        Ok(())
    }

    /// The event that programs write to.
    fn outputs(&self) -> Option<u16> {
        let mut all = self.events.iter();
        let found = all.position(|event| event.kind == Kind::BpfOutput);
        found.map(|index| index as u16)
    }

    pub(super) fn attached(&self, handler: u16) -> Option<&Attached> {
        let at = usize::from(handler).checked_sub(1)?;
        self.handlers.get(at)?.as_ref()
    }

    /// Whether the handler is a program, and whether it needs the sample's chain before it runs.
    pub(super) fn program_needs_chain(&self, job: &Overflow) -> Option<bool> {
        match self.attached(job.slot.handler)? {
            Attached::Plain(_) => None,
            Attached::Program(program) => {
                let event = &self.events[usize::from(job.event)];
                Some(program.calls_get_stack && event.has_callchain)
            }
        }
    }

    /// A program was about to run while another one did.
    pub(super) fn program_recursion(&mut self, handler: u16) {
        let at = usize::from(handler).wrapping_sub(1);
        if let Some(Some(Attached::Program(program))) = self.handlers.get_mut(at) {
            program.counts.recursions += 1;
        }
    }

    /// Runs the job's program: what becomes of the sample.
    pub(super) fn run_program(&mut self, cpu: usize, job: &Overflow) -> Handling {
        let at = usize::from(job.slot.handler).wrapping_sub(1);
        // Out of the world while it runs in it.
        let taken = self.handlers.get_mut(at).and_then(Option::take);
        let Some(Attached::Program(mut program)) = taken else {
            return Handling::Kept;
        };
        let setup = &self.events[usize::from(job.event)];
        let attachment = program.attachment(setup).unwrap_or_default();
        let mut data = PerfEventData::new();
        let registers = self.registers(cpu, job);
        data.set_reg(PERF_REG_X86_IP, registers.ip);
        data.set_reg(PERF_REG_X86_SP, registers.sp);
        data.set_reg(PERF_REG_X86_BP, registers.bp);
        data.set_reg(PERF_REG_X86_CS, registers.cs);
        data.set_reg(PERF_REG_X86_FLAGS, registers.flags);
        data.set_sample_period(job.period);
        data.set_address(0);
        let mut guard = self.cpus[cpu].guard;
        guard.leave();
        let mut site = Site {
            world: self,
            cpu,
            job,
            random: job.number as u32,
            written: [0; 2],
        };
        let verdict = attachment.overflow(&mut program.handlers, &mut guard, &mut site, &data);
        let [written, lost] = site.written;
        self.cpus[cpu].guard = guard;
        let counts = &mut program.counts;
        counts.outputs += written;
        counts.lost += lost;
        let (handling, count) = match verdict {
            Verdict::Keep(_) => (Handling::Kept, &mut counts.kept),
            Verdict::Drop => (Handling::Dropped, &mut counts.dropped),
            Verdict::Recursion => (Handling::Recursion, &mut counts.recursions),
            Verdict::Fault(fault) => {
                let insn = fault.insn.min(usize::from(u16::MAX)) as u16;
                (Handling::Fault { insn }, &mut counts.faults)
            }
        };
        *count += 1;
        self.handlers[at] = Some(Attached::Program(program));
        handling
    }
}

/// Branch records as programs get them.
fn branch_bytes(entries: &[BranchEntry]) -> Vec<u8> {
    let words = |e: &BranchEntry| [e.from, e.to, e.flags].map(u64::to_le_bytes);
    entries.iter().flat_map(words).flatten().collect()
}

/// The world at an overflow, as helpers see it.
struct Site<'a> {
    world: &'a mut World,
    cpu: usize,
    job: &'a Overflow,
    random: u32,
    /// Records written, and records that found no room.
    written: [u64; 2],
}

impl Env for Site<'_> {
    fn cpu(&mut self) -> u32 {
        self.cpu as u32
    }

    fn time_ns(&mut self) -> u64 {
        self.world.now
    }

    fn task(&mut self) -> Task {
        let tid = self.world.tid(self.cpu);
        let task = self.world.current(self.cpu);
        let name = match task {
            None => format!("swapper/{}", self.cpu),
            Some(task) if task.kthread => format!("kthread-{tid}"),
            Some(_) => format!("task-{tid}"),
        };
        let mut comm = [0; 16];
        for (byte, char) in comm.iter_mut().take(15).zip(name.bytes()) {
            *byte = char;
        }
        Task {
            pid: tid as u32,
            tid: tid as u32,
            comm,
            ..Task::default()
        }
    }

    fn random(&mut self) -> u32 {
        self.random = self
            .random
            .wrapping_mul(1_664_525)
            .wrapping_add(0x3c6e_f35f);
        self.random
    }

    fn read(&mut self, space: Space, address: u64, into: &mut [u8]) -> bool {
        // The user stack is all the memory that the model has.
        let task = self.world.current(self.cpu).filter(|task| !task.kthread);
        space != Space::Kernel
            && task.is_some_and(|task| self.world.stacks.read(task.stack, address, into))
    }

    fn stack(&mut self, user: bool, max_depth: u32) -> Option<Vec<u64>> {
        let (world, max) = (&*self.world, max_depth as usize);
        let mut frames = Vec::new();
        match (user, world.current(self.cpu)) {
            (true, Some(task)) if !task.kthread => {
                let at = self.job.at_uprobe;
                let frame = |index| user_frame(&*world.stacks, task.stack, task.leaf, at, index);
                frames.extend((0..max).map_while(frame));
            }
            (false, _) if !self.job.user_mode => {
                let ip = world.kernel_at(self.cpu, self.job.context);
                kernel_frames(ip, false, false, &mut frames);
                frames.truncate(max);
            }
            _ => {}
        }
        Some(frames)
    }

    fn sample_chain(&mut self) -> SampleChain {
        match self.job.is_chain_ready {
            true => {
                let buffers = &self.world.cpus[self.cpu].buffers;
                SampleChain::Words(buffers[self.job.context as usize].clone())
            }
            false => SampleChain::NotSampled,
        }
    }

    fn branch_records(&mut self) -> Option<Vec<u8>> {
        let branches = self.job.branches.as_ref()?;
        Some(branch_bytes(&branches.entries))
    }

    fn branch_snapshot(&mut self) -> Vec<u8> {
        branch_bytes(&self.world.branches_now(self.cpu).entries)
    }

    fn output(&mut self, _: &str, _: u32, data: &[u8]) -> Result<(), Errno> {
        let event = self.world.outputs().ok_or(Errno::Enoent)?;
        if !self.world.counts(event, self.cpu) {
            return Err(Errno::Eopnotsupp);
        }
        let (number, handler) = (self.job.number, self.job.slot.handler);
        let body = Body::Raw {
            data: crate::bpf::raw_payload(data),
        };
        let bytes = data.len() as u32;
        if self.world.write(self.cpu, event, body) {
            self.written[0] += 1;
            let fact = Fact::Output {
                number,
                event,
                handler,
                bytes,
            };
            self.world.say(self.cpu, fact);
            Ok(())
        } else {
            self.written[1] += 1;
            self.world.say(self.cpu, Fact::OtherLost { event });
            Err(Errno::Enospc)
        }
    }
}
