//! Executes one instruction on each side and compares.

use super::difference::{Difference, Memory, Side};
use super::follow::{Follower, cpu_of, extended_of, same_fx};
use super::insn::{NextInstruction, Reader};
use iced_x86::{Formatter as _, GasFormatter, Instruction, Mnemonic};
use std::ops::Range;
use unwind_sim_emulator::address_space::Change;
use unwind_sim_emulator::differences::{self, Case, DifferenceSet, View};
use unwind_sim_emulator::linux::{
    Kernel, Notice, Outcome, ProcessObserver, ScheduleOutcome, SystemCall, Task,
};
use unwind_sim_emulator::state::Preserved;
use unwind_sim_emulator::{Core, Exception, Executed, Fault, FaultKind, Observer, Processor};
use unwind_sim_emulator_native::stepper::{Cpu, Stop};
use unwind_sim_emulator_native::{Extended, StepError};

/// Instructions between comparisons of all x87, SSE and AVX registers.
const FX_EVERY: u64 = 1 << 10;
/// Instructions between comparisons of all memory.
const MEMORY_EVERY: u64 = 1 << 20;

const TF: u64 = 1 << 8;
const RF: u64 = 1 << 16;
/// Flags that stepping itself changes.
const STEPPING: u64 = TF | RF;

const SIGILL: i32 = 4;
const SIGBUS: i32 = 7;
const SIGFPE: i32 = 8;
const SIGSEGV: i32 = 11;
const SI_KERNEL: i32 = 128;

/// The machine, and the process that follows it.
pub(super) struct Lockstep {
    process: Kernel,
    follower: Follower,
    reader: Reader,
    watch: Watch,
    /// See [`super::Run`].
    pub(super) compared: u64,
    pub(super) led: u64,
    pub(super) vex: u64,
    pub(super) exceptions: u64,
}

/// What the machine did in a step.
#[derive(Default)]
struct Watch {
    /// The registers after the instruction.
    after: Option<Cpu>,
    /// x87, SSE and AVX registers after the instruction, if wanted.
    fx: Option<Extended>,
    fx_wanted: bool,
    exception: Option<(Exception, Cpu)>,
    /// The kernel answered a call or started a handler.
    kernel: bool,
    /// A program was started, or another process runs.
    started: bool,
    /// The thread that runs.
    task: Option<Task>,
}

impl Observer for Watch {
    fn before(&mut self, _: &Core, _: &Executed) {}

    fn after(&mut self, core: &Core, _: &Executed, next: u64) {
        // Not for the first instruction of a signal handler.
        if self.exception.is_none() {
            self.after = Some(cpu_of(core, next));
            self.fx = self.fx_wanted.then(|| extended_of(core));
        }
    }
}

impl ProcessObserver for Watch {
    fn started(&mut self, _: &Core, _: u64) {
        self.started = true;
    }

    fn switched(&mut self, task: Task, _: &Core) {
        let before = self.task.replace(task);
        self.kernel = true;
        self.started |= before.is_none_or(|before| before.process != task.process);
    }

    fn exception(&mut self, exception: Exception, core: &Core) {
        self.exception = Some((exception, cpu_of(core, core.state.rip)));
    }

    fn signal(&mut self, _: u8, _: &Preserved, _: &Preserved, _: u64) {
        self.kernel = true;
    }

    fn system_call(&mut self, _: &SystemCall, _: &Core) {
        self.kernel = true;
    }
}

/// How an instruction ended on one side.
struct SideEnd<T> {
    cpu: Cpu,
    how: T,
}

/// The result of comparing.
#[derive(Default)]
struct Comparison {
    differs: bool,
    fx: Option<(Extended, Extended)>,
    memory: Vec<Memory>,
}

type StepResult = (Outcome, Option<Box<Difference>>);

impl Lockstep {
    /// Starts the process in the machine's state.
    pub(super) fn new(mut process: Kernel) -> Result<Lockstep, StepError> {
        let core = &mut process.machine.core;
        core.memory.note_changes(true);
        let mut follower = Follower::new()?;
        follower.fill(core)?;
        Ok(Lockstep {
            process,
            follower,
            reader: Reader::new(),
            watch: Watch::default(),
            compared: 0,
            led: 0,
            vex: 0,
            exceptions: 0,
        })
    }

    /// The machine, for changes that the processor does not see.
    #[cfg(test)]
    pub(super) fn machine(&mut self) -> &mut Core {
        &mut self.process.machine.core
    }

    /// Instructions executed so far on both sides.
    pub(super) fn executed(&self) -> u64 {
        self.compared + self.led
    }

    pub(super) fn followed(&self) -> ScheduleOutcome {
        self.process.followed()
    }

    pub(super) fn notices(&self) -> &[Notice] {
        self.process.notices()
    }

    /// See [`unwind_sim_emulator_native::stepper::Stepper::bare_speed`].
    pub(super) fn bare_speed(&mut self, steps: u32) -> Result<f64, StepError> {
        self.follower.stepper.bare_speed(steps)
    }

    /// Executes one instruction, or raises one exception, on both sides.
    pub(super) fn step(&mut self) -> Result<StepResult, StepError> {
        let number = self.executed();
        // All memory, now and then: a store that neither side noted shows only here.
        if number.is_multiple_of(MEMORY_EVERY)
            && number != 0
            && let Some(difference) = self.compare_all()?
        {
            return Ok((Outcome::Limit, Some(difference)));
        }

        // Another thread may be due; the process then takes over its state.
        self.watch = Watch {
            task: Some(self.process.task()),
            ..Watch::default()
        };
        self.process.take_turns(&mut self.watch);

        if self.watch.kernel {
            self.take_over()?;
        }

        // With TF, a processor traps after each iteration of a repeated string instruction.
        let core = &mut self.process.machine.core;
        core.state.single_iteration = true;

        let before = cpu_of(core, core.state.rip);
        let processor = core.processor();
        let next = self.reader.next(core);

        self.watch = Watch {
            fx_wanted: next.fx || number.is_multiple_of(FX_EVERY),
            task: Some(self.process.task()),
            ..Watch::default()
        };

        let outcome = self.process.step(&mut self.watch);
        // The machine cannot go on, so there is nothing to compare.
        let unsupported = matches!(outcome, Outcome::Unsupported { .. });
        if unsupported || matches!(outcome, Outcome::OutOfPages { .. }) {
            return Ok((outcome, None));
        }

        let memory = &mut self.process.machine.core.memory;
        memory.take_changes(&mut self.follower.changes);

        // Its result is the kernel's, random, or the processor's own: nothing to compare.
        if next.led {
            self.led += 1;
            self.take_over()?;
            return Ok((outcome, None));
        }

        let stop = self.follower.stepper.step()?;
        let theirs = SideEnd {
            cpu: self.follower.stepper.cpu()?,
            how: stop,
        };

        let mut found = Comparison::default();
        let ours = match self.watch.exception {
            Some((exception, cpu)) => {
                self.exceptions += 1;
                let (mut ours, case) = (cpu, case(&next, &before, processor));

                // How both ended decides which differences are permitted.
                let case = Case {
                    processor: end_of(stop),
                    machine: end_of_exception(exception),
                    ..case
                };
                forgive(&case, (&mut ours, None), (&theirs.cpu, None));

                let may_differ = case.may_end_differently().is_some();
                let same = comparable(&ours) == comparable(&theirs.cpu);
                found.differs = !same || !may_differ && !is_same(exception, stop);
                SideEnd {
                    cpu,
                    how: format!("{exception:?}"),
                }
            }
            None => {
                self.compared += 1;
                self.vex += u64::from(next.vex);
                let ours = SideEnd {
                    cpu: self.watch.after.unwrap_or(before),
                    how: "done".to_owned(),
                };
                self.compare(&next, &before, &ours.cpu, &theirs, &mut found)?;
                ours
            }
        };

        if found.differs {
            let difference = difference(number, &next, before, ours, theirs, found);
            return Ok((outcome, Some(Box::new(difference))));
        }

        // What the kernel did, such as starting a handler, the process has to take over.
        if self.watch.kernel || self.watch.exception.is_some() {
            self.take_over()?;
        }

        self.follower.changes.clear();
        Ok((outcome, None))
    }

    /// Applies what the machine did to the process.
    fn take_over(&mut self) -> Result<(), StepError> {
        let core = &mut self.process.machine.core;
        // `started` is also set before the first instruction, but then no call was handled.
        if self.watch.started && self.watch.kernel {
            core.memory.note_changes(true);
            self.follower.changes.clear();
            return self.follower.fill(core);
        }
        self.follower.apply(core)
    }

    /// Compares after an instruction that completed in the machine.
    fn compare(
        &mut self,
        next: &NextInstruction,
        before: &Cpu,
        ours: &Cpu,
        theirs: &SideEnd<Stop>,
        found: &mut Comparison,
    ) -> Result<(), StepError> {
        let processor = self.process.machine.core.processor();
        let case = case(next, before, processor);

        let (mut cpu, mut fx) = (*ours, self.watch.fx);
        // Only if ours are there, because it takes a system call.
        let their_fx = match fx {
            Some(_) => Some(*self.follower.fx()?),
            None => None,
        };
        let used = forgive(
            &case,
            (&mut cpu, fx.as_mut()),
            (&theirs.cpu, their_fx.as_ref()),
        );

        found.differs = theirs.how != Stop::Done || comparable(&cpu) != comparable(&theirs.cpu);
        if let (Some(fx), Some(theirs)) = (fx, their_fx) {
            found.differs |= !same_fx(&fx, &theirs);
            found.fx = self.watch.fx.zip(Some(theirs));
        }

        // The machine goes on with the processor's values; a permitted difference must not spread.
        if !used.is_empty() && !found.differs && !self.watch.kernel {
            self.adopt(&cpu, fx.as_ref());
        }
        // A signal handler's frame may be anywhere.
        if self.watch.kernel || theirs.how != Stop::Done {
            return Ok(());
        }

        // The processor is stepped with TF, which its `pushf` stores.
        if matches!(next.insn.mnemonic(), Mnemonic::Pushf | Mnemonic::Pushfq) {
            self.hide_trap_flag(ours)?;
        }

        let (_, open) = case.open_stores(theirs.cpu.rflags);
        let mut last = 0..0;

        // What the instruction may store as iced says, and what the machine has stored.
        for range in 0..self.reader.stores.len() + self.follower.changes.len() {
            let noted = range.checked_sub(self.reader.stores.len());
            let range = match noted.map(|index| &self.follower.changes[index]) {
                None => self.reader.stores[range].clone(),
                Some(Change::Stored(range)) => range.clone(),
                Some(Change::Mapped(_)) => continue,
            };

            // Usually both are the same range.
            if range.is_empty() || range == last {
                continue;
            }
            last = range.clone();

            let memory = if open.is_empty() {
                let core = &self.process.machine.core;
                self.follower.compare(core, range)?
            } else {
                self.compare_but(&open, range)?
            };
            if let Some(memory) = memory {
                found.differs = true;
                found.memory.push(memory);
            }
        }
        Ok(())
    }

    /// Continues the machine with the processor's registers.
    fn adopt(&mut self, cpu: &Cpu, fx: Option<&Extended>) {
        let core = &mut self.process.machine.core;
        core.state.set_rflags(cpu.rflags);
        for (number, value) in cpu.gpr.iter().enumerate() {
            core.state.set_gpr(number, *value);
        }
        if let Some(fx) = fx {
            let set = core.set_fx_image(&fx.legacy);
            debug_assert!(set.is_some(), "MXCSR was the machine's");
            for (number, upper) in fx.upper.iter().enumerate() {
                let vectors = &mut core.state.vectors;
                vectors.set_ymm(number, [vectors.xmm(number), *upper]);
            }
        }
    }

    /// Clears the trap flag that `pushf` pushes under single-stepping and the program did not set.
    fn hide_trap_flag(&mut self, ours: &Cpu) -> Result<(), StepError> {
        let second = ours.gpr[4].wrapping_add(1);
        let mut byte = [0];
        self.follower.stepper.read(second, &mut byte)?;
        let hidden = byte[0] & !((TF >> 8) as u8);
        if hidden != byte[0] && ours.rflags & TF == 0 {
            self.follower.stepper.write(second, &[hidden])?;
        }
        Ok(())
    }

    /// Compares stored x87 or SSE state except the open parts, and gives the process the machine's
    /// bytes.
    fn compare_but(
        &mut self,
        open: &[Range<usize>],
        range: Range<u64>,
    ) -> Result<Option<Memory>, StepError> {
        let mut machine = vec![0; (range.end - range.start) as usize];
        let core = &self.process.machine.core;
        if core.memory.peek(range.start, &mut machine).is_err() {
            return Ok(None);
        }
        let mut cpu = machine.clone();
        self.follower.stepper.read(range.start, &mut cpu)?;
        for part in open {
            let part = part.start.min(cpu.len())..part.end.min(cpu.len());
            cpu[part.clone()].copy_from_slice(&machine[part]);
        }
        let difference = Memory::of(range.start, &machine, &cpu);
        if difference.is_none() {
            self.follower.stepper.write(range.start, &machine)?;
        }
        Ok(difference)
    }

    /// Compares all memory.
    pub(super) fn compare_all(&mut self) -> Result<Option<Box<Difference>>, StepError> {
        let core = &self.process.machine.core;
        let Some(memory) = self.follower.compare_all(core)? else {
            return Ok(None);
        };
        let cpu = cpu_of(core, core.state.rip);
        let side = Side {
            cpu,
            fx: None,
            ended: String::new(),
        };
        Ok(Some(Box::new(Difference {
            number: self.executed(),
            rip: core.state.rip,
            bytes: Vec::new(),
            insn: String::new(),
            before: cpu,
            machine: side.clone(),
            processor: side,
            memory: vec![memory],
            late: true,
        })))
    }
}

/// What the table of differences needs to know about an instruction that raised no exception.
fn case<'a>(next: &'a NextInstruction, before: &'a Cpu, processor: Processor) -> Case<'a> {
    Case {
        insn: &next.insn,
        cpu: processor,
        gpr: &before.gpr,
        in_parts: next.in_parts,
        processor: differences::End::Done,
        machine: differences::End::Done,
    }
}

/// Replaces our values by the processor's where the table of differences allows any.
fn forgive(
    case: &Case<'_>,
    ours: (&mut Cpu, Option<&mut Extended>),
    theirs: (&Cpu, Option<&Extended>),
) -> DifferenceSet {
    let (ours, fx) = ours;
    let (mut cpu, mut their_fx) = (*theirs.0, theirs.1.copied());
    let (their_fx, their_upper) = parts(their_fx.as_mut());

    // Both sides as the same kind of view: the table masks bits of one by bits of the other. The
    // processor's is a copy, so that only ours changes.
    let processor = View {
        gpr: &mut cpu.gpr,
        rip: &mut cpu.rip,
        rflags: &mut cpu.rflags,
        fx: their_fx,
        upper: their_upper,
    };

    let (fx, upper) = parts(fx);
    let mut machine = View {
        gpr: &mut ours.gpr,
        rip: &mut ours.rip,
        rflags: &mut ours.rflags,
        fx,
        upper,
    };

    case.forgive(&processor, &mut machine)
}

type ExtendedParts<'a> = (Option<&'a mut [u8; 512]>, Option<&'a mut [u128; 16]>);

fn parts(fx: Option<&mut Extended>) -> ExtendedParts<'_> {
    fx.map(|fx| (&mut fx.legacy, &mut fx.upper)).unzip()
}

fn end_of(stop: Stop) -> differences::End {
    use differences::End;
    match stop {
        Stop::Done => End::Done,
        Stop::Signal { signal: SIGILL, .. } => End::InvalidOpcode,
        // Linux reports #GP and #SS, which have no address, with the code SI_KERNEL (128).
        Stop::Signal {
            signal: SIGSEGV | SIGBUS,
            code: SI_KERNEL,
            ..
        } => End::GeneralProtection,
        Stop::Signal {
            signal: SIGSEGV, ..
        } => End::PageFault,
        Stop::Signal { .. } | Stop::Syscall => End::Other,
    }
}

fn end_of_exception(exception: Exception) -> differences::End {
    use differences::End;
    match exception {
        Exception::InvalidOpcode => End::InvalidOpcode,
        Exception::GeneralProtection => End::GeneralProtection,
        Exception::Memory(Fault {
            kind: FaultKind::NonCanonical,
            ..
        }) => End::GeneralProtection,
        Exception::Memory(_) => End::PageFault,
        _ => End::Other,
    }
}

/// The registers without the flags that stepping itself changes.
fn comparable(cpu: &Cpu) -> Cpu {
    Cpu {
        rflags: cpu.rflags & !STEPPING,
        ..*cpu
    }
}

/// Whether the signal is the kernel's for this exception, with the same address.
fn is_same(exception: Exception, stop: Stop) -> bool {
    let (signal, at) = match stop {
        Stop::Done => return matches!(exception, Exception::Breakpoint | Exception::Debug),
        Stop::Syscall => return false,
        Stop::Signal {
            signal, address, ..
        } => (signal, address),
    };
    match exception {
        Exception::Divide | Exception::X87 | Exception::Simd => signal == SIGFPE,
        Exception::InvalidOpcode => signal == SIGILL,
        Exception::GeneralProtection | Exception::Interrupt(_) | Exception::Overflow => {
            signal == SIGSEGV
        }
        Exception::Alignment => signal == SIGBUS,
        Exception::Breakpoint | Exception::Debug => false,
        Exception::Memory(Fault {
            kind: FaultKind::NonCanonical,
            ..
        }) => signal == SIGSEGV || signal == SIGBUS,
        Exception::Memory(Fault { address, .. }) => signal == SIGSEGV && at == address,
    }
}

fn difference(
    number: u64,
    next: &NextInstruction,
    before: Cpu,
    ours: SideEnd<String>,
    theirs: SideEnd<Stop>,
    found: Comparison,
) -> Difference {
    // Our end is text already.
    let ended = match theirs.how {
        Stop::Done => "done".to_owned(),
        Stop::Syscall => "system call".to_owned(),
        Stop::Signal {
            signal,
            code,
            address,
        } => format!("signal {signal}, code {code}, {address:#x}"),
    };

    let (ours_fx, theirs_fx) = found.fx.unzip();
    Difference {
        number,
        rip: before.rip,
        // What could be fetched may end before the instruction does.
        bytes: next.bytes[..next.insn.len().min(next.bytes.len())].to_vec(),
        insn: disassembled(&next.insn),
        before,
        machine: Side {
            cpu: ours.cpu,
            fx: ours_fx,
            ended: ours.how,
        },
        processor: Side {
            cpu: theirs.cpu,
            fx: theirs_fx,
            ended,
        },
        memory: found.memory,
        late: false,
    }
}

/// An instruction in AT&T syntax.
fn disassembled(insn: &Instruction) -> String {
    let mut formatter = GasFormatter::new();
    let options = formatter.options_mut();
    options.set_uppercase_hex(false);
    options.set_branch_leading_zeros(false);
    options.set_rip_relative_addresses(true);
    let mut text = String::new();
    formatter.format(insn, &mut text);
    text
}
