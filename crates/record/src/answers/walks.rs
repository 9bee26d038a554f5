//! Walks of a kernel that are no callchains of perf: those of `kernel/stacktrace.c` (`/proc/PID/stack`, tracers,
//! allocators, live patching), and those that are printed to the console.
//!
//! A sample is taken where `__unwind_start` is called: from registers, from the unwinder's own with a mark, or from
//! where a task left the processor (Linux `arch/x86/kernel/stacktrace.c`, `dumpstack.c`).

use super::calls::{Draft, Function, Walk};
use super::hooks::words;
use super::{Session, truth};
use crate::kernel::KernelMachine as _;
use crate::kernel::callchain::start_regs;
use crate::kernel::stopped::{NotMapped, StoppedCore};
use crate::kernel::world::copy_more;
use std::io::Write;
use unwind_sim_recordings::console::{self, CONSOLE, ConsoleLine, stack_of_name};
use unwind_sim_recordings::model::{RecordedChain, Sample};
use unwind_sim_unwind::kernel::is_user_cs;
use unwind_sim_unwind::pt_regs::{PT_REGS_LEN, regs_from};
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::start::SampleRegs;
use unwind_sim_unwind::truth::Truth;

/// Maximum number of lines of a trace that are kept.
const LINES_MAX: usize = 2048;
/// Maximum number of bytes read of a text of the kernel.
const TEXT_MAX: usize = 32;

/// What the kernel gives to `printk`: for an address, for the beginning of a stack, and for its end. Behind the
/// level of the log come a question mark and the address, or a name.
const ADDRESS: &str = "%pB";
const BEGIN: &str = " <%s>";
const END: &str = " </%s>";

impl<W: Write> Session<'_, '_, '_, W> {
    /// `arch_stack_walk` or its reliable form is called, with the function that gets the addresses.
    pub(super) fn walk(
        &mut self,
        machine: &mut StoppedCore<'_>,
        walk: Walk,
    ) -> Result<(), NotMapped> {
        let consumer = machine.argument(0);
        self.begin(machine, Function::Walk { walk, consumer })
    }

    /// A function that stores a walk is called.
    pub(super) fn save(
        &mut self,
        machine: &mut StoppedCore<'_>,
        name: &'static str,
        store: usize,
    ) -> Result<(), NotMapped> {
        let store = machine.argument(store);
        self.begin(machine, Function::Save { name, store })
    }

    /// `stack_trace_save_user` is called.
    pub(super) fn save_user(&mut self, machine: &mut StoppedCore<'_>) -> Result<(), NotMapped> {
        let store = machine.argument(0);
        self.begin(machine, Function::SaveUser { store })
    }

    /// A function that prints a walk is called.
    pub(super) fn trace(&mut self, machine: &mut StoppedCore<'_>) -> Result<(), NotMapped> {
        self.begin(machine, Function::Trace)
    }

    fn begin(
        &mut self,
        machine: &mut StoppedCore<'_>,
        function: Function,
    ) -> Result<(), NotMapped> {
        if !self.is_over() {
            self.calls.push(machine.back()?, function);
        }
        Ok(())
    }

    /// The sample of a walk, for which `__unwind_start` is called with a task, registers and a mark. `None` if
    /// there is nothing to walk: user space was interrupted.
    pub(super) fn walk_begins(
        &mut self,
        machine: &mut StoppedCore<'_>,
    ) -> Result<Option<(Option<String>, Sample<'static>)>, NotMapped> {
        let [task, registers, mark] = [1, 2, 3].map(|number| machine.argument(number));
        let live = machine.live();
        let mut stopped = self.kernel.stopped(machine, &live)?;
        let (regs, truth) = if registers != 0 {
            let mut sampled = regs_from(&machine.read(registers, PT_REGS_LEN as usize)?);
            if sampled.get(Reg::Cs).is_some_and(is_user_cs) {
                return Ok(None);
            }
            // Those that ftrace makes have no flags. The unwinder does not look at them.
            if !sampled.is_hardware() {
                sampled.forget(Reg::Rflags);
            }
            copy_more(machine, &mut stopped, sampled.rsp())?;
            let truth = self.shadow.truth(machine.core, machine.rip);
            let truth = truth::of_sampled(&truth, &sampled, &self.hooks.trampolines);
            (SampleRegs::hardware(sampled), truth)
        } else if task == stopped.address {
            // Its own registers and the truth are those of its first step, which is not yet taken.
            let mut marked = Regs::UNKNOWN;
            marked.set(Reg::Rip, machine.rip);
            marked.set(Reg::Rsp, mark);
            marked.set(Reg::Rflags, 0);
            (start_regs(marked, live), Truth::Unknown)
        } else {
            stopped = self.kernel.inactive(machine, task)?;
            let sp = stopped.task.thread_sp;
            let truth = self.shadow.truth_at_rest(machine.core, sp);
            (SampleRegs::hardware(Regs::frame(0, sp, 0)), truth)
        };
        let release = self.options.image.version.as_deref();
        let (comm, mut sample) = stopped.sample(self.layout, release, regs, machine.core.time);
        sample.truth = truth;
        Ok(Some((comm, sample)))
    }

    /// A walk hands over an address: the second argument of the function that is called.
    pub(super) fn offered(&mut self, machine: &StoppedCore<'_>) {
        let address = machine.argument(1);
        if let Some(draft) = self.calls.draft()
            && draft.walked.offered.len() < LINES_MAX
        {
            draft.walked.offered.push(address);
        }
    }

    /// `arch_stack_walk` or its reliable form returns.
    pub(super) fn walk_ends(
        &mut self,
        machine: &mut StoppedCore<'_>,
        walk: Walk,
        own: Option<Draft>,
    ) -> Result<(), NotMapped> {
        // 0, or an error.
        let result = machine.register("rax")?.unwrap_or(0) as i32;
        let source = match (walk, result) {
            (Walk::Reliable, error @ ..0) => format!("{}:{error}", walk.as_str()),
            _ => walk.as_str().to_owned(),
        };
        let end = |draft: &mut Draft| {
            let offered = std::mem::take(&mut draft.walked.offered);
            draft.add(chain(source, offered.clone()));
            draft.found = Some(offered);
        };
        match own {
            Some(mut draft) => {
                end(&mut draft);
                self.write(machine, draft);
            }
            // Of the function around it.
            None => {
                if let Some(draft) = self.calls.draft() {
                    end(draft);
                }
            }
        }
        Ok(())
    }

    /// A function that stores a walk returns how many addresses it has stored, or an error.
    pub(super) fn save_ends(
        &mut self,
        machine: &mut StoppedCore<'_>,
        (name, store): (&'static str, u64),
        own: Option<Draft>,
    ) -> Result<(), NotMapped> {
        let Some(mut draft) = own else {
            return Ok(());
        };
        let result = machine.register("rax")?.unwrap_or(0) as i32;
        draft.add(match u64::try_from(result) {
            Ok(count) => chain(name.to_owned(), words(machine, store, count)?),
            Err(_) => chain(format!("{name}:{result}"), Vec::new()),
        });
        self.write(machine, draft);
        Ok(())
    }

    /// `stack_trace_save_user` returns how many addresses it has stored: a sample of user space.
    pub(super) fn save_user_ends(
        &mut self,
        machine: &mut StoppedCore<'_>,
        store: u64,
    ) -> Result<(), NotMapped> {
        let count = machine.register("rax")?.unwrap_or(0) & 0xffff_ffff;
        let stored = words(machine, store, count)?;
        let live = machine.live();
        let stopped = self.kernel.stopped(machine, &live)?;
        let Some(user) = stopped.user.as_ref().and_then(|user| user.regs) else {
            return Ok(());
        };
        let release = self.options.image.version.as_deref();
        let regs = SampleRegs::hardware(user);
        let (comm, mut sample) = stopped.sample(self.layout, release, regs, machine.core.time);
        sample
            .recorded
            .push(chain("stack_trace_save_user".into(), stored));
        self.counts.walks += 1;
        self.put(comm, &sample);
        Ok(())
    }

    /// `printk` is called, perhaps by a function that prints a walk.
    pub(super) fn print(&mut self, machine: &mut StoppedCore<'_>) -> Result<(), NotMapped> {
        if !matches!(self.calls.last(), Some(Function::Trace)) {
            return Ok(());
        }
        let (back, _) = machine.back()?;
        if !self.hooks.traces.iter().any(|code| code.contains(&back)) {
            return Ok(());
        }
        let format = machine.text(machine.argument(0), TEXT_MAX);
        let mut second = || machine.text(machine.argument(2), TEXT_MAX);
        let line = if format.contains(ADDRESS) {
            let is_confirmed = second().is_empty();
            let address = machine.argument(3);
            Some(ConsoleLine::Address {
                address,
                is_confirmed,
            })
        } else if format.contains(BEGIN) {
            stack_of_name(&second()).map(ConsoleLine::StackBegin)
        } else if format.contains(END) {
            stack_of_name(&second()).map(ConsoleLine::StackEnd)
        } else {
            None
        };
        self.printed(line, None);
        Ok(())
    }

    /// Saved registers are about to be printed.
    pub(super) fn registers(&mut self, machine: &mut StoppedCore<'_>) -> Result<(), NotMapped> {
        if !matches!(self.calls.last(), Some(Function::Trace)) {
            return Ok(());
        }
        let at = machine.argument(0);
        // One of the functions calls the other.
        let before = self.calls.draft().and_then(|draft| draft.walked.registers);
        if before != Some(at) {
            let offset = unwind_sim_unwind::pt_regs::offset_of(Reg::Rip);
            let ip = machine.word(at.wrapping_add(offset))?;
            self.printed(Some(ConsoleLine::Registers { ip }), Some(at));
        }
        Ok(())
    }

    fn printed(&mut self, line: Option<ConsoleLine>, registers: Option<u64>) {
        if let Some(line) = line
            && let Some(draft) = self.calls.draft()
            && draft.walked.printed.len() < LINES_MAX
        {
            draft.walked.printed.push(line);
            draft.walked.registers = registers;
        }
    }

    /// A function that prints a walk returns.
    pub(super) fn trace_ends(&mut self, machine: &mut StoppedCore<'_>, own: Option<Draft>) {
        let Some(mut draft) = own else {
            return;
        };
        let lines = &draft.walked.printed;
        let mut found = console::confirmed(lines);
        // The registers that it starts from are printed before.
        if let Some((_, sample)) = &draft.sample
            && !sample.regs.is_fake()
            && sample.kernel.as_ref().is_some_and(|k| k.task.is_current)
        {
            found.insert(0, sample.regs.sampled.rip());
        }
        let whole = chain(CONSOLE.to_owned(), console::words(lines));
        draft.add(whole);
        draft.found = Some(found);
        self.write(machine, draft);
    }
}

fn chain(source: String, ips: Vec<u64>) -> RecordedChain {
    RecordedChain {
        source,
        ips,
        request: None,
    }
}
