//! Recording a kernel through a gdb stub: QEMU's, or a kernel's own.
//!
//! The kernel is stopped at breakpoints, or single-stepped; at a stop its current task and stacks
//! become a sample. With truth it is single-stepped, beside a shadow stack that knows the kernel's
//! entries. Time in user space passes in one go: the next stop is the next entry.

mod callchains;
mod kaslr;
mod loaded;
mod machine;
mod prepare;
mod states;
mod taken;
mod world;

use super::{At, Plan, TraceRecorder, locate};
use machine::Machine;
use prepare::{Ready, prepare};
use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};
use unwind_sim_host::gdb::{GdbError, Others, Registers};
use unwind_sim_recordings::import::VmcoreProblem;
use unwind_sim_recordings::kernel::{KernelError, KernelImage};
use unwind_sim_recordings::model::{Event, KernelSample, Sample};
use unwind_sim_recordings::trace::WriteError;
use unwind_sim_unwind::insn::{INSN_BYTES_MAX, Insn, classify};
use unwind_sim_unwind::kernel::{StackType, UserBoundary, is_user_cs};
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::start::SampleRegs;
use unwind_sim_unwind::truth::shadow::{IretFrame, Left, Seen, Shadow};
use unwind_sim_unwind::truth::{Cpu, Truth};
use world::{Kernel, Places};

/// Kernel samples belong to the address space of the first task.
const PID: u32 = 0;
/// How long the machine may run without reaching a place.
const RUN_MAX: Duration = Duration::from_secs(60);
/// Instructions whose classes are remembered.
const CLASSES_MAX: usize = 1 << 20;
/// Where system calls enter.
const SYSCALL_ENTRY: &str = "entry_SYSCALL_64";

/// Of the function graph tracer, and of kretprobes since 5.18, 5.11 and before.
const TRAMPOLINES: [&str; 4] = [
    "return_to_handler",
    "arch_rethook_trampoline",
    "__kretprobe_trampoline",
    "kretprobe_trampoline",
];

/// What is recorded.
#[derive(Clone, Debug)]
pub struct GdbOptions {
    /// `HOST:PORT`, or the path of a socket.
    pub stub: String,
    /// When samples are taken, [`At::Every`] or [`At::Points`], and when the recording ends.
    pub plan: Plan,
    /// How far the kernel was moved, if that is known.
    pub kaslr: Option<u64>,
    /// Let no interrupt and no timer in while instructions are stepped, which only QEMU's stub can do.
    pub hold_interrupts: bool,
}

/// What a recording was.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Samples taken.
    pub samples: u64,
    /// Instructions stepped, in the kernel.
    pub instructions: u64,
    /// Interrupts and exceptions that were seen in the kernel, and entries from user space.
    pub interrupts: u64,
    /// See [`Summary::interrupts`].
    pub entries: u64,
    /// With truth: instructions at which it was not known, or not as far as the entry.
    pub unknown: u64,
    /// Stops in user space, at which there is nothing to sample.
    pub in_user: u64,
    /// Stops whose stacks could not be read, and why the first one could not.
    pub unreadable: u64,
    /// See [`Summary::unreadable`].
    pub why_unreadable: Option<String>,
    /// Modules and generated code that could not be read.
    pub unread_code: Vec<VmcoreProblem>,
    /// Unwinds of the kernel's own that it did not bring to their end.
    pub left_early: u64,
    /// Unwinds of a task that ran before they were at their end.
    pub changed: u64,
    /// Why it ended before enough was seen.
    pub ended: Option<String>,
}

/// Why nothing, or not all, was recorded.
#[derive(Debug, thiserror::Error)]
pub enum GdbRecordError {
    /// The stub.
    #[error(transparent)]
    Stub(#[from] GdbError),
    /// The image.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The trace cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The image does not say where the members of its structures are.
    #[error("the kernel's image has no types (.BTF, CONFIG_DEBUG_INFO_BTF)")]
    NoTypes,
    /// The image does not say where something is.
    #[error("the kernel's image has no symbol `{0}` (CONFIG_KALLSYMS_ALL, or --system-map)")]
    NoSymbol(&'static str),
    /// The kernel is not as the known ones.
    #[error("the kernel's `struct {structure}` has no `{path}`")]
    NoMember {
        /// Which.
        structure: &'static str,
        /// The member.
        path: &'static str,
    },
    /// Another kernel runs than that of the image.
    #[error(
        "the image is not that of the kernel behind the stub: the image is of {image}, {}; give the \
         vmlinuz or vmlinux that it booted",
        is_running(.running.as_deref())
    )]
    OtherKernel {
        /// The release of the image.
        image: String,
        /// The release that runs, if it could be read.
        running: Option<String>,
    },
    /// The stub is not QEMU's.
    #[error(
        "the stub cannot hold interrupts back: it does not know QEMU's packet qqemu.sstepbits; record \
         without --hold-interrupts"
    )]
    CannotHold,
    /// A place that was named.
    #[error("the kernel's image has no code `{0}`")]
    NotLocated(String),
}

/// What is known of the kernel that runs, for a message.
fn is_running(release: Option<&str>) -> String {
    match release {
        Some(release) => format!("{release} is running"),
        None => "whose handlers and return addresses the one that runs does not have; it may have to boot first".to_owned(),
    }
}

/// Records the kernel of `image` behind a stub. `path` is the image's name in the trace.
///
/// # Errors
/// If the stub cannot be asked, the image does not tell enough, or the trace cannot be written.
pub fn record<W: Write>(
    image: &KernelImage,
    path: &Path,
    options: &GdbOptions,
    recorder: &mut TraceRecorder<'_, W>,
) -> Result<Summary, GdbRecordError> {
    let mut machine = Machine::connect(&options.stub)?;
    let result = record_on(&mut machine, image, path, options, recorder);
    // What was recorded is kept; a machine that cannot be let go has ended.
    let _ = machine.detach();
    result
}

/// As [`record`], on a machine that is let go afterwards, whatever comes of it.
fn record_on<W: Write>(
    machine: &mut Machine,
    image: &KernelImage,
    path: &Path,
    options: &GdbOptions,
    recorder: &mut TraceRecorder<'_, W>,
) -> Result<Summary, GdbRecordError> {
    let Ready {
        bias,
        places,
        range,
        handlers,
        problems,
    } = prepare(machine, image, path, options, recorder)?;
    let mut session = Session {
        machine,
        image,
        range,
        options,
        recorder,
        kernel: Kernel::new(&places),
        places: &places,
        handlers,
        shadow: Shadow::new(trampolines(image, bias)),
        classes: HashMap::new(),
        summary: Summary {
            unread_code: problems,
            ..Summary::default()
        },
    };
    session.run()?;
    Ok(session.summary)
}

/// Where functions return to whose return addresses tracers took.
fn trampolines(image: &KernelImage, bias: u64) -> Vec<u64> {
    let addresses = TRAMPOLINES
        .iter()
        .filter_map(|name| image.symbols.address(name));
    addresses.map(|at| at.wrapping_add(bias)).collect()
}

struct Session<'a, 'r, 'w, W: Write> {
    machine: &'a mut Machine,
    image: &'a KernelImage,
    range: Range<u64>,
    options: &'a GdbOptions,
    recorder: &'r mut TraceRecorder<'w, W>,
    kernel: Kernel<'a>,
    places: &'a Places,
    /// Addresses, and whether an error code is pushed.
    handlers: Vec<(u64, bool)>,
    shadow: Shadow,
    classes: HashMap<u64, Insn>,
    summary: Summary,
}

impl<W: Write> Session<'_, '_, '_, W> {
    fn run(&mut self) -> Result<(), GdbRecordError> {
        if let Some(from) = &self.options.plan.from {
            let places = self.locate(from)?;
            if !self.run_to(&places)? {
                return Ok(());
            }
        }
        let mut points = Vec::new();
        for point in match &self.options.plan.at {
            At::Points(points) => &points[..],
            _ => &[],
        } {
            points.extend(self.locate(&point.name)?);
        }
        if self.options.plan.truth || points.is_empty() {
            return self.steps(&points);
        }
        let is_unwind = |p: &super::Point| p.name == states::START;
        if matches!(&self.options.plan.at, At::Points(points) if points.iter().all(is_unwind)) {
            return self.unwinds();
        }
        let is_callchain = |p: &super::Point| p.name == callchains::CALLCHAIN;
        if matches!(&self.options.plan.at, At::Points(points) if points.iter().all(is_callchain)) {
            return self.callchains();
        }
        while !self.is_over() && self.run_to(&points)? {
            let registers = self.machine.registers()?;
            let regs = world::regs(&registers);
            self.sample(&regs, Truth::Unknown)?;
        }
        Ok(())
    }

    fn locate(&self, name: &str) -> Result<Vec<u64>, GdbRecordError> {
        let bias = self.places.bias();
        let found = locate(Some(&self.image.image), bias, &self.range, name);
        match found.is_empty() {
            true => Err(GdbRecordError::NotLocated(name.to_owned())),
            false => Ok(found),
        }
    }

    fn is_over(&self) -> bool {
        self.options.plan.is_stopped()
            || self
                .options
                .plan
                .is_complete(self.summary.samples, self.summary.instructions)
    }

    /// Lets the machine run until a processor is at one of these places; false if none was.
    fn run_to(&mut self, places: &[u64]) -> Result<bool, GdbRecordError> {
        let reached = self.run_until(places, Others::Run, RUN_MAX, &mut |_, _| true)?;
        Ok(self.waited(reached))
    }

    /// Lets the machine run until `is_it` says so of a thread and its registers at one of these
    /// places; false if none was reached in time.
    fn run_until(
        &mut self,
        places: &[u64],
        others: Others,
        most: Duration,
        is_it: &mut dyn FnMut(&str, &Registers) -> bool,
    ) -> Result<bool, GdbRecordError> {
        // From a breakpoint it would not get away.
        if self.rip()?.is_some_and(|rip| places.contains(&rip)) {
            self.machine.step(Others::Wait)?;
        }
        for &place in places {
            self.machine.set_breakpoint(place)?;
        }
        let reached = self.wait_at(places, others, most, is_it);
        if let Err(GdbError::Ended(why)) = reached {
            self.summary.ended = Some(format!("the machine has ended: {why}"));
            return Ok(false);
        }
        for &place in places {
            self.machine.clear_breakpoint(place)?;
        }
        Ok(reached?)
    }

    fn wait_at(
        &mut self,
        places: &[u64],
        others: Others,
        most: Duration,
        is_it: &mut dyn FnMut(&str, &Registers) -> bool,
    ) -> Result<bool, GdbError> {
        let deadline = Instant::now() + most;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.machine.resume(others, left)?;
            let registers = self.machine.registers()?;
            let Some(place) = registers.get("rip").filter(|rip| places.contains(rip)) else {
                break;
            };
            if is_it(self.machine.thread(), &registers) {
                return Ok(true);
            }
            self.machine.clear_breakpoint(place)?;
            self.machine.step(Others::Wait)?;
            self.machine.set_breakpoint(place)?;
        }
        Ok(false)
    }

    fn rip(&mut self) -> Result<Option<u64>, GdbError> {
        Ok(self.machine.registers()?.get("rip"))
    }

    /// Tells it if a wait for places was in vain.
    fn waited(&mut self, reached: bool) -> bool {
        if !reached {
            let seconds = RUN_MAX.as_secs();
            let why = || format!("no place was reached within {seconds} s");
            self.summary.ended.get_or_insert_with(why);
        }
        reached
    }

    /// Single-steps the kernel.
    fn steps(&mut self, points: &[u64]) -> Result<(), GdbRecordError> {
        let every = match self.options.plan.at {
            At::Every(n) => Some(n),
            _ => None,
        };
        // QEMU holds interrupts and timers back while it steps, unless it is told not to.
        let all = self.machine.step_bits();
        match (self.options.hold_interrupts, &all) {
            (false, _) => {
                let _ = self.machine.accept("Qqemu.sstep=1");
            }
            (true, Some(all)) => self.machine.accept(&format!("Qqemu.sstep={all:x}"))?,
            (true, None) => return Err(GdbRecordError::CannotHold),
        }
        let result = self.steps_with(points, every);
        if let Some(all) = all {
            let _ = self.machine.accept(&format!("Qqemu.sstep={all:x}"));
        }
        result
    }

    fn steps_with(&mut self, points: &[u64], every: Option<u64>) -> Result<(), GdbRecordError> {
        let mut entries = self.locate(SYSCALL_ENTRY)?;
        entries.extend(self.handlers.iter().map(|(address, _)| *address));
        let chosen = self.machine.thread().to_owned();
        let mut registers = self.machine.registers()?;
        self.tell_stacks(&registers)?;
        let mut before = seen(&registers);
        if entries.contains(&before.cpu.rip) {
            self.entered(&before)?;
        }
        while !self.is_over() {
            if before.is_user() {
                self.summary.in_user += 1;
                let mut is_chosen = |thread: &str, _: &Registers| thread == chosen;
                let (others, most) = (Others::Run, RUN_MAX);
                let reached = self.run_until(&entries, others, most, &mut is_chosen)?;
                if !self.waited(reached) {
                    return Ok(());
                }
                registers = self.machine.registers()?;
                before = seen(&registers);
                self.summary.entries += 1;
                self.entered(&before)?;
                continue;
            }
            let steps = self.summary.instructions;
            let is_point = points.contains(&before.cpu.rip);
            if is_point || every.is_some_and(|n| steps.is_multiple_of(n)) {
                let truth = match self.options.plan.truth {
                    true => self.shadow.truth(&before.cpu),
                    false => Truth::Unknown,
                };
                let regs = world::regs(&registers);
                self.sample(&regs, truth)?;
            }
            let insn = match self.options.plan.truth {
                true => self.class(before.cpu.rip),
                false => Insn::Other,
            };
            self.machine.step(Others::Run)?;
            registers = self.machine.registers()?;
            let after = seen(&registers);
            self.summary.instructions += 1;
            if self.options.plan.truth {
                self.summary.unknown += u64::from(!self.shadow.truth(&before.cpu).is_complete());
                self.stepped(insn, &before, &after)?;
            }
            before = after;
        }
        Ok(())
    }

    /// Tells the shadow stack of the processor's stacks.
    fn tell_stacks(&mut self, registers: &Registers) -> Result<(), GdbRecordError> {
        let regs = world::regs(registers);
        let stopped = self.kernel.stopped(self.machine, &regs)?;
        let stacks = stopped.task.stacks.iter();
        let processor = stacks.filter(|s| s.kind != StackType::Task);
        self.shadow
            .set_processor(processor.map(|s| s.range()).collect());
        Ok(())
    }

    /// The first instruction of an entry.
    fn entered(&mut self, at: &Seen) -> Result<(), GdbRecordError> {
        match self.iret_frame(at)? {
            Some((slot, frame)) => {
                // What was interrupted was not seen.
                self.shadow.lost();
                let pt_regs = self.pt_regs(&frame)?;
                self.shadow.interrupted(at, slot, frame, pt_regs);
            }
            // A system call: from user space, whose rip the processor left in rcx, and its rsp in
            // place.
            None => {
                let rcx = self.machine.registers()?.get("rcx");
                let boundary = rcx.map(|ip| UserBoundary {
                    ip,
                    sp: at.cpu.rsp,
                    pushed_at: None,
                });
                let pt_regs = self.kernel.pt_regs(self.machine)?;
                self.shadow.root(boundary.map(|b| Left::new(b, pt_regs)));
            }
        }
        Ok(())
    }

    /// Where the registers of user space will be saved, if `frame` is of user space.
    fn pt_regs(&mut self, frame: &IretFrame) -> Result<Option<u64>, GdbRecordError> {
        Ok(match is_user_cs(frame.cs) {
            true => self.kernel.pt_regs(self.machine)?,
            false => None,
        })
    }

    /// What was pushed, if a handler is about to run, and where the saved rip is.
    fn iret_frame(&mut self, at: &Seen) -> Result<Option<(u64, IretFrame)>, GdbRecordError> {
        let handler = self.handlers.iter().find(|(a, _)| *a == at.cpu.rip);
        let Some((_, has_error)) = handler else {
            return Ok(None);
        };
        let slot = at.cpu.rsp.wrapping_add(8 * u64::from(*has_error));
        let bytes = self.machine.read(slot, 40)?;
        let words = bytes.as_chunks::<8>().0;
        let word = |n: usize| words.get(n).map_or(0, |w| u64::from_le_bytes(*w));
        let frame = IretFrame {
            rip: word(0),
            cs: word(1),
            rsp: word(3),
        };
        Ok(Some((slot, frame)))
    }

    fn stepped(&mut self, insn: Insn, before: &Seen, after: &Seen) -> Result<(), GdbRecordError> {
        // Entry code goes from one handler to another only by jumps.
        let transfers = matches!(insn, Insn::Jump | Insn::JumpIndirect | Insn::Call { .. });
        if !transfers && let Some((slot, frame)) = self.iret_frame(after)? {
            self.summary.interrupts += 1;
            let pt_regs = self.pt_regs(&frame)?;
            self.shadow.interrupted(after, slot, frame, pt_regs);
            return Ok(());
        }
        let machine = &mut *self.machine;
        let mut word = |at: u64| machine.word(at).ok();
        self.shadow.step(insn, before, after, &mut word);
        Ok(())
    }

    fn class(&mut self, rip: u64) -> Insn {
        if let Some(class) = self.classes.get(&rip) {
            return *class;
        }
        let bytes = self.machine.read(rip, INSN_BYTES_MAX);
        let class = bytes.map_or(Insn::Other, |bytes| classify(&bytes));
        if self.classes.len() < CLASSES_MAX {
            self.classes.insert(rip, class);
        }
        class
    }

    fn sample(&mut self, regs: &Regs, truth: Truth) -> Result<(), GdbRecordError> {
        if regs.get(Reg::Cs).is_some_and(is_user_cs) {
            self.summary.in_user += 1;
            return Ok(());
        }
        let stopped = match self.kernel.stopped(self.machine, regs) {
            Ok(stopped) => stopped,
            Err(error @ GdbError::Refused { .. }) => {
                self.unreadable(&error);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let boundary = self.shadow.boundary().filter(|_| truth.is_complete());
        let sample = Sample {
            pid: PID,
            tid: stopped.pid,
            time: self.summary.instructions,
            regs: SampleRegs::hardware(*regs),
            regions: stopped.regions,
            truth,
            recorded: Vec::new(),
            branches: Vec::new(),
            kernel: Some(Box::new(KernelSample {
                release: self.image.version.clone().unwrap_or_default(),
                task: stopped.task,
                states: Vec::new(),
                boundary,
                user: stopped.user,
            })),
        };
        self.put(stopped.comm, sample)
    }

    fn unreadable(&mut self, error: &GdbError) {
        self.summary.unreadable += 1;
        let why = &mut self.summary.why_unreadable;
        why.get_or_insert_with(|| error.to_string());
    }

    /// Writes a sample, and its task's name if that is new.
    fn put(&mut self, comm: Option<String>, sample: Sample<'_>) -> Result<(), GdbRecordError> {
        if let Some(name) = comm {
            let (pid, tid) = (PID, sample.tid);
            self.recorder.event(&Event::Comm { pid, tid, name })?;
        }
        self.recorder.sample(&sample, None)?;
        self.summary.samples += 1;
        Ok(())
    }
}

fn seen(registers: &Registers) -> Seen {
    let get = |name: &str| registers.get(name).unwrap_or(0);
    Seen {
        cpu: Cpu {
            rip: get("rip"),
            rsp: get("rsp"),
            saved: Reg::CALLEE_SAVED.map(|r| get(r.as_str())),
        },
        cs: get("cs"),
    }
}
