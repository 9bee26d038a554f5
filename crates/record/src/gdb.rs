//! Records a kernel through a gdb stub: QEMU's, or a kernel's own.
//!
//! The kernel is stopped at breakpoints, or single-stepped; at a stop, its current task and stacks
//! become a sample. With truth it is single-stepped, and a shadow stack follows it, including the
//! kernel's entries. User space runs freely until the next kernel entry.

mod callchains;
mod kaslr;
mod machine;
mod prepare;
mod states;

use super::{At, Plan, TraceRecorder, locate};
use crate::kernel::callchain::CALLCHAIN;
use crate::kernel::world::{Kernel, KernelLayout, Stopped};
use crate::kernel::{KernelMachine as _, PID, TRAMPOLINES};
use machine::Machine;
use prepare::{RecordingSetup, prepare};
use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};
use unwind_sim_host::gdb::{GdbError, OtherThreads, Registers};
use unwind_sim_recordings::import::VmcoreProblem;
use unwind_sim_recordings::kernel::{KernelError, KernelImage, MissingPlace};
use unwind_sim_recordings::model::{Event, Sample};
use unwind_sim_recordings::trace::WriteError;
use unwind_sim_unwind::insn::{INSN_BYTES_MAX, Insn, classify};
use unwind_sim_unwind::kernel::{StackType, UserBoundary, is_user_cs};
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::start::SampleRegs;
use unwind_sim_unwind::truth::shadow::{IretFrame, LeftUserSpace, ObservedState, Shadow};
use unwind_sim_unwind::truth::{Cpu, Truth};

/// Maximum time to run without reaching a place.
const RUN_MAX: Duration = Duration::from_secs(60);
/// Maximum number of instructions whose class is cached.
const CLASSES_MAX: usize = 1 << 20;
/// The entry point of system calls.
const SYSCALL_ENTRY: &str = "entry_SYSCALL_64";

/// What to record.
#[derive(Clone, Debug)]
pub struct GdbOptions {
    /// `HOST:PORT`, or the path of a Unix socket.
    pub stub: String,
    /// When to take samples, [`At::Every`] or [`At::Points`], and when the recording ends.
    pub plan: Plan,
    /// KASLR offset, if known.
    pub kaslr: Option<u64>,
    /// Block interrupts and timers while single-stepping. Only QEMU's stub can do this.
    pub hold_interrupts: bool,
}

/// Result of a recording.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Number of samples taken.
    pub samples: u64,
    /// Number of instructions single-stepped in the kernel.
    pub instructions: u64,
    /// Number of interrupts and exceptions seen in the kernel.
    pub interrupts: u64,
    /// Number of entries from user space.
    pub entries: u64,
    /// With truth: number of instructions at which it was unknown or did not reach the entry.
    pub unknown: u64,
    /// Number of stops in user space, which are not sampled.
    pub in_user: u64,
    /// Number of stops whose stacks could not be read.
    pub unreadable: u64,
    /// Why the first unreadable stop could not be read.
    pub why_unreadable: Option<String>,
    /// Modules and generated code that could not be read.
    pub unread_code: Vec<VmcoreProblem>,
    /// Number of the kernel's own unwinds that the kernel did not finish.
    pub left_early: u64,
    /// Number of unwinds of a task that ran before its unwind was finished.
    pub changed: u64,
    /// Why the recording ended early.
    pub ended: Option<String>,
}

/// Why a recording failed or is incomplete.
#[derive(Debug, thiserror::Error)]
pub enum GdbRecordError {
    /// The stub failed.
    #[error(transparent)]
    Stub(#[from] GdbError),
    /// The kernel image cannot be read.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The trace cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The image does not say where the kernel keeps something.
    #[error(transparent)]
    Place(#[from] MissingPlace),
    /// The running kernel is not the one of the image.
    #[error(
        "the image is not that of the kernel behind the stub: the image is of {image}, {}; give the \
         vmlinuz or vmlinux that was booted",
        is_running(.running.as_deref())
    )]
    OtherKernel {
        /// The image's release.
        image: String,
        /// The running kernel's release, if it could be read.
        running: Option<String>,
    },
    /// The stub cannot block interrupts, since it is not QEMU's.
    #[error(
        "the stub cannot hold back interrupts: it does not support QEMU's packet qqemu.sstepbits; record \
         without --hold-interrupts"
    )]
    CannotHold,
    /// The image has no code with the given name.
    #[error("the kernel image has no code named `{0}`")]
    NotLocated(String),
}

/// The running kernel's release, for a message.
fn is_running(release: Option<&str>) -> String {
    match release {
        Some(release) => format!("but {release} is running"),
        None => "but the running kernel has other handlers and return addresses; it may not have \
                 booted far enough"
            .to_owned(),
    }
}

/// Records the kernel `image` through a stub. `path` is the image's name in the trace.
///
/// # Errors
/// If the stub fails, the image lacks something required, or the trace cannot be written.
pub fn record<W: Write>(
    image: &KernelImage,
    path: &Path,
    options: &GdbOptions,
    recorder: &mut TraceRecorder<'_, W>,
) -> Result<Summary, GdbRecordError> {
    let mut machine = Machine::connect(&options.stub)?;
    let result = record_on(&mut machine, image, path, options, recorder);
    // Keep what was recorded; if the machine cannot be detached from, it has ended.
    let _ = machine.detach();
    result
}

/// [`record`] on a machine that the caller detaches from afterwards, even after an error.
fn record_on<W: Write>(
    machine: &mut Machine,
    image: &KernelImage,
    path: &Path,
    options: &GdbOptions,
    recorder: &mut TraceRecorder<'_, W>,
) -> Result<Summary, GdbRecordError> {
    let RecordingSetup {
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
        // One for the whole recording, because it remembers what does not change.
        kernel: Kernel::new(&places),
        places: &places,
        handlers,
        // A return to a trampoline leads to the address that a tracer took.
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

/// The addresses of the trampolines that replace return addresses taken by tracers.
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
    places: &'a KernelLayout,
    /// Addresses of handlers, and whether an error code is pushed for them.
    handlers: Vec<(u64, bool)>,
    shadow: Shadow,
    classes: HashMap<u64, Insn>,
    summary: Summary,
}

impl<W: Write> Session<'_, '_, '_, W> {
    fn run(&mut self) -> Result<(), GdbRecordError> {
        if let Some(from) = &self.options.plan.from {
            let places = self.locate(from)?;
            // The summary says that the starting point was not reached.
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

        // The truth needs every instruction, and without places there is nothing to run to.
        if self.options.plan.truth || points.is_empty() {
            return self.steps(&points);
        }

        // Unwinds and callchains are recorded from start to end, not sampled at their start.
        let is_unwind = |p: &super::Point| p.name == states::START;
        if matches!(&self.options.plan.at, At::Points(points) if points.iter().all(is_unwind)) {
            return self.unwinds();
        }

        let is_callchain = |p: &super::Point| p.name == CALLCHAIN;
        if matches!(&self.options.plan.at, At::Points(points) if points.iter().all(is_callchain)) {
            return self.callchains();
        }

        while !self.is_over() && self.run_to(&points)? {
            let registers = self.machine.registers()?;
            let regs = machine::regs(&registers);
            self.sample(&regs, Truth::Unknown)?;
        }
        Ok(())
    }

    fn locate(&self, name: &str) -> Result<Vec<u64>, GdbRecordError> {
        let bias = self.places.bias();
        let found = locate(Some(&self.image.image), bias, &self.range, name);
        if found.is_empty() {
            Err(GdbRecordError::NotLocated(name.to_owned()))
        } else {
            Ok(found)
        }
    }

    fn is_over(&self) -> bool {
        self.options.plan.is_stopped()
            || self
                .options
                .plan
                .is_complete(self.summary.samples, self.summary.instructions)
    }

    /// Runs the machine until a processor reaches one of `places`; false if none did.
    fn run_to(&mut self, places: &[u64]) -> Result<bool, GdbRecordError> {
        let reached = self.run_until(places, OtherThreads::Run, RUN_MAX, &mut |_, _| true)?;
        Ok(self.waited(reached))
    }

    /// Runs the machine until a thread at one of `places` satisfies `is_it`, which gets the thread
    /// and its registers; false if that did not happen in time.
    fn run_until(
        &mut self,
        places: &[u64],
        others: OtherThreads,
        most: Duration,
        is_it: &mut dyn FnMut(&str, &Registers) -> bool,
    ) -> Result<bool, GdbRecordError> {
        // It could not leave a breakpoint.
        if self.rip()?.is_some_and(|rip| places.contains(&rip)) {
            self.machine.step(OtherThreads::Wait)?;
        }
        for &place in places {
            self.machine.set_breakpoint(place)?;
        }
        let reached = self.wait_at(places, others, most, is_it);
        if let Err(GdbError::Ended(why)) = reached {
            self.summary.ended = Some(format!("the machine ended: {why}"));
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
        others: OtherThreads,
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
            // It stopped for another reason, or ran until the time was over.
            let Some(place) = registers.get("rip").filter(|rip| places.contains(rip)) else {
                break;
            };
            if is_it(self.machine.thread(), &registers) {
                return Ok(true);
            }

            // The others wait, so that none passes the place while its breakpoint is lifted.
            self.machine.clear_breakpoint(place)?;
            self.machine.step(OtherThreads::Wait)?;
            self.machine.set_breakpoint(place)?;
        }
        Ok(false)
    }

    fn rip(&mut self) -> Result<Option<u64>, GdbError> {
        Ok(self.machine.registers()?.get("rip"))
    }

    /// Notes in the summary if no place was reached.
    fn waited(&mut self, reached: bool) -> bool {
        if !reached {
            let seconds = RUN_MAX.as_secs();
            let why = || format!("no breakpoint was reached within {seconds} s");
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
        // By default, QEMU blocks interrupts and timers while stepping.
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
        // Into the kernel lead system calls, and the handlers of exceptions and interrupts.
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
                // User space is not stepped: the thread runs to its next entry into the kernel.
                self.summary.in_user += 1;
                // Other threads enter the kernel, too, but the shadow stack follows this one.
                let mut is_chosen = |thread: &str, _: &Registers| thread == chosen;
                let (others, most) = (OtherThreads::Run, RUN_MAX);
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
                let truth = if self.options.plan.truth {
                    self.shadow.truth(&before.cpu)
                } else {
                    Truth::Unknown
                };
                let regs = machine::regs(&registers);
                self.sample(&regs, truth)?;
            }

            // Only the shadow stack asks what the instruction was, and reading it takes a packet.
            let insn = if self.options.plan.truth {
                self.class(before.cpu.rip)
            } else {
                Insn::Other
            };

            // The others run, because this thread may wait for them.
            self.machine.step(OtherThreads::Run)?;
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

    /// Passes the processor's stacks to the shadow stack.
    fn tell_stacks(&mut self, registers: &Registers) -> Result<(), GdbRecordError> {
        let regs = machine::regs(registers);
        let stopped = self.kernel.stopped(self.machine, &regs)?;
        let stacks = stopped.task.stacks.iter();
        let processor = stacks.filter(|s| s.kind != StackType::Task);
        self.shadow
            .set_processor(processor.map(|s| s.range()).collect());
        Ok(())
    }

    /// Handles the first instruction of an entry.
    fn entered(&mut self, at: &ObservedState) -> Result<(), GdbRecordError> {
        match self.iret_frame(at)? {
            Some((slot, frame)) => {
                // The interrupted code was not seen.
                self.shadow.lost();
                let pt_regs = self.pt_regs(&frame)?;
                self.shadow.interrupted(at, slot, frame, pt_regs);
            }
            // A system call: the processor left rip of user space in rcx, and its rsp unchanged.
            None => {
                let rcx = self.machine.registers()?.get("rcx");
                let boundary = rcx.map(|ip| UserBoundary {
                    ip,
                    sp: at.cpu.rsp,
                    pushed_at: None,
                });
                let pt_regs = self.kernel.pt_regs(self.machine)?;
                self.shadow
                    .root(boundary.map(|b| LeftUserSpace::new(b, pt_regs)));
            }
        }
        Ok(())
    }

    /// Where the user-space registers will be saved, if `frame` is from user space.
    fn pt_regs(&mut self, frame: &IretFrame) -> Result<Option<u64>, GdbRecordError> {
        Ok(if is_user_cs(frame.cs) {
            self.kernel.pt_regs(self.machine)?
        } else {
            None
        })
    }

    /// If a handler is about to run, the frame pushed by the processor and the address of its saved
    /// rip.
    fn iret_frame(
        &mut self,
        at: &ObservedState,
    ) -> Result<Option<(u64, IretFrame)>, GdbRecordError> {
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

    fn stepped(
        &mut self,
        insn: Insn,
        before: &ObservedState,
        after: &ObservedState,
    ) -> Result<(), GdbRecordError> {
        // Entry code reaches another handler by a jump or call of its own; that is not an
        // interrupt.
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
        // Only the kernel's stacks are recorded.
        if regs.get(Reg::Cs).is_some_and(is_user_cs) {
            self.summary.in_user += 1;
            return Ok(());
        }

        let stopped = match self.kernel.stopped(self.machine, regs) {
            Ok(stopped) => stopped,
            // What the stub refuses to read is not mapped; only this sample is lost.
            Err(error @ GdbError::Refused { .. }) => {
                self.unreadable(&error);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };

        // An incomplete chain does not reach user space.
        let boundary = self.shadow.boundary().filter(|_| truth.is_complete());
        let regs = SampleRegs::hardware(*regs);
        let (comm, mut sample) = self.sample_of(stopped, regs, self.summary.instructions);
        sample.truth = truth;
        if let Some(kernel) = &mut sample.kernel {
            kernel.boundary = boundary;
        }
        self.put(comm, sample)
    }

    /// The sample of a stop, and its task's name if that is new.
    fn sample_of(
        &self,
        stopped: Stopped,
        regs: SampleRegs,
        time: u64,
    ) -> (Option<String>, Sample<'static>) {
        stopped.sample(self.places, self.image.version.as_deref(), regs, time)
    }

    fn unreadable(&mut self, error: &GdbError) {
        self.summary.unreadable += 1;
        let why = &mut self.summary.why_unreadable;
        why.get_or_insert_with(|| error.to_string());
    }

    /// Writes a sample, preceded by its task's name if that is new.
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

fn seen(registers: &Registers) -> ObservedState {
    let get = |name: &str| registers.get(name).unwrap_or(0);
    ObservedState {
        cpu: Cpu {
            rip: get("rip"),
            rsp: get("rsp"),
            saved: Reg::CALLEE_SAVED.map(|r| get(r.as_str())),
        },
        cs: get("cs"),
    }
}
