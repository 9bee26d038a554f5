//! Recording a kernel through a gdb stub: QEMU's, or a kernel's own.
//!
//! The kernel is stopped at breakpoints, or single-stepped; at a stop its current task and stacks
//! become a sample. With truth it is single-stepped, beside a shadow stack that knows the kernel's
//! entries. Time in user space passes in one go: the next stop is the next entry.

mod shadow;
mod states;
mod world;

use super::{At, TraceRecorder, locate};
use shadow::{IretFrame, Seen, Shadow};
use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use unwind_sim_corpus::files::MappingRequest;
use unwind_sim_corpus::kernel::{KernelError, KernelImage};
use unwind_sim_corpus::model::{Event, KernelSample, Sample};
use unwind_sim_corpus::trace::WriteError;
use unwind_sim_host::gdb::{Client, GdbError, Options as GdbOptions, Registers};
use unwind_sim_unwind::kernel::StackType;
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::start::SampleRegs;
use unwind_sim_unwind::truth::{Cpu, INSN_BYTES_MAX, Insn, Truth, classify};
use world::{Kernel, Places};

/// Kernel samples belong to the address space of the first task.
const PID: u32 = 0;
/// How long the machine may run without reaching a place.
const RUN_MAX: Duration = Duration::from_secs(60);
/// Instructions whose classes are remembered.
const CLASSES_MAX: usize = 1 << 20;
/// Words of the stack at the beginning by which it is found how far the kernel was moved.
const WORDS: usize = 512;
/// Where system calls enter.
const SYSCALL_ENTRY: &str = "entry_SYSCALL_64";

/// What is recorded.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// `HOST:PORT`, or the path of a socket.
    pub stub: String,
    /// When samples are taken: [`At::Every`] or [`At::Points`].
    pub at: At,
    /// Keep a shadow stack.
    pub truth: bool,
    /// Record from the first time that this place is reached.
    pub from: Option<String>,
    /// Stop after so many steps from there on.
    pub instructions_max: u64,
    /// Stop after so many samples.
    pub samples_max: u64,
    /// How far the kernel was moved, if that is known.
    pub kaslr: Option<u64>,
    /// Set to end the recording.
    pub stop: Option<&'a AtomicBool>,
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
    /// Unwinds of the kernel's own that it did not bring to their end.
    pub left_early: u64,
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
    /// A place that was named.
    #[error("the kernel's image has no code `{0}`")]
    NotLocated(String),
}

/// Records the kernel of `image` behind a stub. `path` is the image's name in the trace.
///
/// # Errors
/// If the stub cannot be asked, the image does not tell enough, or the trace cannot be written.
pub fn record<W: Write>(
    image: &KernelImage,
    path: &Path,
    options: &Options<'_>,
    recorder: &mut TraceRecorder<'_, W>,
) -> Result<Summary, GdbRecordError> {
    let mut client = Client::connect(&options.stub, GdbOptions::default())?;
    let bias = match options.kaslr {
        Some(bias) => bias,
        None => find_bias(&mut client, image)?,
    };
    let places = Places::new(image, bias)?;
    let range = image.range.start.wrapping_add(bias)..image.range.end.wrapping_add(bias);
    let request = MappingRequest {
        pid: PID,
        name: &path.display().to_string(),
        range: range.clone(),
        file_offset: 0,
        executable: true,
        build_id: &[],
    };
    recorder.map(&request, (Some(image.image.clone()), bias))?;
    let handlers = places.handlers(&mut client)?;
    let mut session = Session {
        client,
        image,
        range,
        options,
        recorder,
        kernel: Kernel::new(&places),
        places: &places,
        handlers,
        shadow: Shadow::default(),
        classes: HashMap::new(),
        thread: String::new(),
        summary: Summary::default(),
    };
    let result = session.run();
    let summary = session.summary.clone();
    // What was recorded is kept; a machine that cannot be let go has ended.
    let _ = session.client.detach();
    result.map(|()| summary)
}

/// How far the kernel was moved, by the return addresses on the stack.
fn find_bias(client: &mut Client, image: &KernelImage) -> Result<u64, GdbRecordError> {
    let regs = world::regs(&client.registers()?);
    let sp = regs.rsp() & !7;
    let mut words = Vec::new();
    for index in 0..WORDS as u64 {
        // The stack may end.
        let Ok(word) = client.word(sp.wrapping_add(8 * index)) else {
            break;
        };
        words.push(word);
    }
    Ok(image.kaslr(&words).unwrap_or(0))
}

struct Session<'a, 'r, 'w, W: Write> {
    client: Client,
    image: &'a KernelImage,
    range: Range<u64>,
    options: &'a Options<'a>,
    recorder: &'r mut TraceRecorder<'w, W>,
    kernel: Kernel<'a>,
    places: &'a Places,
    /// Addresses, and whether an error code is pushed.
    handlers: Vec<(u64, bool)>,
    shadow: Shadow,
    classes: HashMap<u64, Insn>,
    thread: String,
    summary: Summary,
}

impl<W: Write> Session<'_, '_, '_, W> {
    fn run(&mut self) -> Result<(), GdbRecordError> {
        if let Some(from) = &self.options.from {
            let places = self.locate(from)?;
            self.run_to(&places)?;
        }
        let mut points = Vec::new();
        for point in match &self.options.at {
            At::Points(points) => &points[..],
            _ => &[],
        } {
            points.extend(self.locate(&point.name)?);
        }
        if self.options.truth || points.is_empty() {
            return self.steps(&points);
        }
        let is_unwind = |p: &super::Point| p.name == states::START;
        if matches!(&self.options.at, At::Points(points) if points.iter().all(is_unwind)) {
            return self.unwinds();
        }
        while !self.is_over() && self.run_to(&points)? {
            let registers = self.client.registers()?;
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
        let stop = self.options.stop.is_some_and(|s| s.load(Ordering::Relaxed));
        stop || self.summary.samples >= self.options.samples_max
            || self.summary.instructions >= self.options.instructions_max
    }

    /// Lets the machine run to one of these places; false if none was reached.
    fn run_to(&mut self, places: &[u64]) -> Result<bool, GdbRecordError> {
        // From a breakpoint it would not get away.
        self.step()?;
        for &place in places {
            self.client.set_breakpoint(place)?;
        }
        let stopped = self.client.resume(RUN_MAX);
        for &place in places {
            self.client.clear_breakpoint(place)?;
        }
        let stop = match stopped {
            Ok(stop) => stop,
            Err(GdbError::Ended(why)) => {
                self.summary.ended = Some(format!("the machine has ended: {why}"));
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        self.thread = stop.thread;
        let rip = self.client.registers()?.get("rip");
        let reached = rip.is_some_and(|rip| places.contains(&rip));
        if !reached {
            let ms = RUN_MAX.as_millis();
            self.summary.ended = Some(format!("no place was reached within {ms} ms"));
        }
        Ok(reached)
    }

    fn step(&mut self) -> Result<(), GdbRecordError> {
        self.thread = self.client.step()?.thread;
        Ok(())
    }

    /// Single-steps the kernel.
    fn steps(&mut self, points: &[u64]) -> Result<(), GdbRecordError> {
        let every = match self.options.at {
            At::Every(n) => Some(n),
            _ => None,
        };
        // QEMU holds interrupts back while it steps, unless it is told not to.
        let _ = self.client.accept("Qqemu.sstep=1");
        let result = self.steps_with(points, every);
        let _ = self.client.accept("Qqemu.sstep=7");
        result
    }

    fn steps_with(&mut self, points: &[u64], every: Option<u64>) -> Result<(), GdbRecordError> {
        let mut entries = self.locate(SYSCALL_ENTRY)?;
        entries.extend(self.handlers.iter().map(|(address, _)| *address));
        let mut registers = self.client.registers()?;
        self.tell_stacks(&registers)?;
        let mut before = seen(&registers);
        if entries.contains(&before.cpu.rip) {
            self.entered(&before)?;
        }
        while !self.is_over() {
            if before.is_user() {
                self.summary.in_user += 1;
                if !self.run_to(&entries)? {
                    return Ok(());
                }
                registers = self.client.registers()?;
                before = seen(&registers);
                self.summary.entries += 1;
                self.entered(&before)?;
                continue;
            }
            let steps = self.summary.instructions;
            let is_point = points.contains(&before.cpu.rip);
            if is_point || every.is_some_and(|n| steps.is_multiple_of(n)) {
                let truth = match self.options.truth {
                    true => self.shadow.truth(&before.cpu),
                    false => Truth::Unknown,
                };
                let regs = world::regs(&registers);
                self.sample(&regs, truth)?;
            }
            let insn = match self.options.truth {
                true => self.class(before.cpu.rip),
                false => Insn::Other,
            };
            self.step()?;
            registers = self.client.registers()?;
            let after = seen(&registers);
            self.summary.instructions += 1;
            if self.options.truth {
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
        let stopped = self.kernel.stopped(&mut self.client, &self.thread, &regs)?;
        let stacks = stopped.task.stacks.iter();
        let processor = stacks.filter(|s| s.kind != StackType::Task);
        self.shadow
            .set_processor(processor.map(|s| s.range()).collect());
        Ok(())
    }

    /// The first instruction of an entry.
    fn entered(&mut self, at: &Seen) -> Result<(), GdbRecordError> {
        match self.iret_frame(at)? {
            Some((slot, frame)) => self.shadow.interrupted(at, slot, frame),
            // A system call: from user space.
            None => self.shadow.root(),
        }
        Ok(())
    }

    /// What was pushed, if a handler is about to run, and where the saved rip is.
    fn iret_frame(&mut self, at: &Seen) -> Result<Option<(u64, IretFrame)>, GdbRecordError> {
        let handler = self.handlers.iter().find(|(a, _)| *a == at.cpu.rip);
        let Some((_, has_error)) = handler else {
            return Ok(None);
        };
        let slot = at.cpu.rsp.wrapping_add(8 * u64::from(*has_error));
        let bytes = self.client.read(slot, 40)?;
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
            self.shadow.interrupted(after, slot, frame);
            return Ok(());
        }
        let client = &mut self.client;
        let mut word = |at: u64| client.word(at).ok();
        self.shadow.step(insn, before, after, &mut word);
        Ok(())
    }

    fn class(&mut self, rip: u64) -> Insn {
        if let Some(class) = self.classes.get(&rip) {
            return *class;
        }
        let bytes = self.client.read(rip, INSN_BYTES_MAX);
        let class = bytes.map_or(Insn::Other, |bytes| classify(&bytes));
        if self.classes.len() < CLASSES_MAX {
            self.classes.insert(rip, class);
        }
        class
    }

    fn sample(&mut self, regs: &Regs, truth: Truth) -> Result<(), GdbRecordError> {
        if regs
            .get(Reg::Cs)
            .is_some_and(unwind_sim_unwind::kernel::is_user_cs)
        {
            self.summary.in_user += 1;
            return Ok(());
        }
        let stopped = match self.kernel.stopped(&mut self.client, &self.thread, regs) {
            Ok(stopped) => stopped,
            Err(error @ GdbError::Refused { .. }) => {
                self.summary.unreadable += 1;
                self.summary.why_unreadable.get_or_insert(error.to_string());
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let sample = Sample {
            pid: PID,
            tid: stopped.pid,
            time: self.summary.instructions,
            regs: SampleRegs::hardware(*regs),
            regions: stopped.regions,
            truth,
            recorded: Vec::new(),
            kernel: Some(Box::new(KernelSample {
                release: self.image.version.clone().unwrap_or_default(),
                task: stopped.task,
                states: Vec::new(),
            })),
        };
        self.put(stopped.comm, sample)
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
