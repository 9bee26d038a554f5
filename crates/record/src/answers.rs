//! Records a kernel that the machine boots where it unwinds itself: the registers that its perf was given, what
//! its unwinder said, and the true chain.
//!
//! The functions are found by their names, and what they work on by the kernel's types (`.BTF`):
//! `perf_callchain_kernel` and, if there is one around it, `get_perf_callchain`, whose entry is read when they
//! return; the BPF helpers around these; `__unwind_start` and `unwind_next_frame`, after which the `struct
//! unwind_state` is read; `perf_unwind_deferred_callback`, which is called with the user part that was left for
//! later (Linux `arch/x86/events/core.c`, `kernel/events/callchain.c`, `kernel/bpf/stackmap.c`,
//! `arch/x86/kernel/unwind_orc.c`, `kernel/events/core.c`).
//!
//! Walks for other purposes than perf, and those that are printed, are in `walks`.

mod calls;
mod hooks;
mod walks;

use crate::boot::{self, Boot, BootRun, BootRunError, Observed, ObservedFrom};
use crate::emulate::Bounds;
use crate::kernel::callchain::{self, CallchainArguments};
use crate::kernel::stopped::{NotMapped, StoppedCore};
use crate::kernel::world::{Kernel, KernelLayout, copy_more};
use crate::kernel::{KernelMachine as _, PID, loaded, truth};
use crate::kernel_stacks::{KernelPlaces, KernelShadow};
use crate::{Plan, TraceRecorder};
use calls::{Call, Calls, Draft, Function, Helper};
use hooks::{Hook, Hooks};
use std::io::{self, Write};
use std::path::Path;
use unwind_sim_emulator::machine::{BlockId, Executed};
use unwind_sim_emulator::state::Preserved;
use unwind_sim_emulator::system::{SystemEntry, SystemObserver};
use unwind_sim_emulator::{Core, Observer};
use unwind_sim_recordings::kernel::{KernelImage, MissingPlace};
use unwind_sim_recordings::model::{Event, RecordedChain, Sample};
use unwind_sim_recordings::trace::WriteError;
use unwind_sim_unwind::kernel::{Context, State, is_user_cs};
use unwind_sim_unwind::pt_regs::{PT_REGS_LEN, regs_from};
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::start::SampleRegs;
use unwind_sim_unwind::truth::Stats;

/// The function that makes the kernel's part of a callchain.
pub const KERNEL_PART: &str = "perf_callchain_kernel";
/// Maximum number of states of a walk that are kept.
const STATES_MAX: usize = 256;

/// What to record.
#[derive(Debug)]
pub struct AnswersOptions<'a> {
    /// The kernel's image, its name in the trace, and where it switches between tasks.
    pub image: &'a KernelImage,
    /// The image's name in the trace.
    pub path: &'a Path,
    /// Where the kernel switches between tasks.
    pub places: &'a KernelPlaces,
    /// Since when the shadow stack is kept, and samples are taken.
    pub from: ObservedFrom,
    /// Only callchains of perf, and no other walks.
    pub is_only_perf: bool,
    /// When the recording ends.
    pub plan: &'a Plan,
    /// Limits of the run.
    pub bounds: Bounds,
}

/// Result of a recording.
#[derive(Debug)]
pub struct Summary {
    /// How the run ended.
    pub boot: BootRun,
    /// Number of samples.
    pub samples: u64,
    /// Of these, the samples with made-up registers.
    pub fake: u64,
    /// Of these, the samples whose true chain is complete.
    pub known: u64,
    /// Number of samples of user space whose callchain was left for later.
    pub deferred: u64,
    /// Number of stacks that helpers gave to BPF programs.
    pub helpers: u64,
    /// Of these, the ones that are the callchain made for them, as far as there was room.
    pub helpers_same: u64,
    /// Number of samples of walks that were stored or handed to another part of the kernel.
    pub walks: u64,
    /// Number of walks that were printed.
    pub traces: u64,
    /// Statistics of the shadow stacks.
    pub truth: Stats,
    /// Number of samples that were not kept since memory could not be read, and why the first was not.
    pub unreadable: u64,
    /// Why the first of these could not be read.
    pub why_unreadable: Option<String>,
    /// Number of samples that the kernel did not finish.
    pub left_early: u64,
}

/// Why a recording failed.
#[derive(Debug, thiserror::Error)]
pub enum AnswersError {
    /// The image does not say where things are.
    #[error(transparent)]
    Layout(#[from] MissingPlace),
    /// The kernel cannot be run.
    #[error(transparent)]
    Boot(#[from] BootRunError),
    /// The trace cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Boots a kernel and records where it unwinds itself. `console` is called with what the kernel writes to its
/// console, as it comes.
///
/// # Errors
/// If the image lacks something required, the kernel cannot be run, or the trace cannot be written.
pub fn record<W: Write>(
    boot: &Boot<'_>,
    options: &AnswersOptions<'_>,
    recorder: &mut TraceRecorder<'_, W>,
    console: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> Result<Summary, AnswersError> {
    let bias = boot.options.slide;
    let layout = KernelLayout::new(options.image, bias)?;
    let hooks = Hooks::new(options.image, bias, options.is_only_perf)?;
    loaded::map_image(recorder, options.path, options.image, bias)?;

    let mut session = Session {
        options,
        recorder,
        shadow: KernelShadow::new(options.places.clone()),
        kernel: Kernel::new(&layout),
        layout: &layout,
        hooks,
        calls: Calls::default(),
        counts: Counts::default(),
        error: None,
    };
    let observed = Observed {
        from: options.from,
        is_enough: &|session: &Session<'_, '_, '_, W>| session.is_over(),
    };
    let run = boot::run_until(boot, options.bounds, console, &mut session, &observed);
    if let Some(error) = session.error.take() {
        return Err(error.into());
    }
    let counts = session.counts;
    Ok(Summary {
        boot: run?,
        samples: counts.samples,
        fake: counts.fake,
        known: counts.known,
        deferred: counts.deferred,
        helpers: counts.helpers,
        helpers_same: counts.helpers_same,
        walks: counts.walks,
        traces: counts.traces,
        truth: session.shadow.stats(),
        unreadable: counts.unreadable,
        why_unreadable: counts.why_unreadable,
        left_early: session.calls.lost,
    })
}

/// What is counted.
#[derive(Default)]
struct Counts {
    samples: u64,
    fake: u64,
    known: u64,
    deferred: u64,
    helpers: u64,
    helpers_same: u64,
    walks: u64,
    traces: u64,
    unreadable: u64,
    why_unreadable: Option<String>,
}

struct Session<'a, 'r, 'w, W: Write> {
    options: &'a AnswersOptions<'a>,
    recorder: &'r mut TraceRecorder<'w, W>,
    shadow: KernelShadow,
    kernel: Kernel<'a>,
    layout: &'a KernelLayout,
    hooks: Hooks,
    calls: Calls,
    counts: Counts,
    error: Option<WriteError>,
}

impl<W: Write> Session<'_, '_, '_, W> {
    fn is_over(&self) -> bool {
        let plan = self.options.plan;
        self.error.is_some() || plan.is_stopped() || plan.has_samples(self.counts.samples)
    }

    /// A block starts at `rip`. Functions begin with one, and one follows each call.
    #[inline]
    fn at(&mut self, core: &Core, rip: u64) {
        let mut machine = StoppedCore { core, rip };
        let done = match self.hooks.at(rip) {
            Some(Hook::Next) => self.next(&mut machine),
            Some(Hook::Start) => self.start(&mut machine),
            Some(Hook::KernelPart) => self.kernel_part(&mut machine),
            Some(Hook::Callchain) => self.callchain(&mut machine),
            Some(Hook::Stack) => self.helper(&mut machine, Helper::Stack { buffer: 0 }),
            Some(Hook::StackId) => self.helper(&mut machine, Helper::StackId { map: 0 }),
            Some(Hook::Deferred) => self.deferred(&mut machine),
            Some(Hook::Walk(walk)) => self.walk(&mut machine, walk),
            Some(Hook::Save(name, store)) => self.save(&mut machine, name, store),
            Some(Hook::SaveUser) => self.save_user(&mut machine),
            Some(Hook::Trace) => self.trace(&mut machine),
            Some(Hook::Print) => self.print(&mut machine),
            Some(Hook::Registers) => self.registers(&mut machine),
            None if self.calls.is_consumer(rip) => {
                self.offered(&machine);
                Ok(())
            }
            None if self.calls.is_back(rip) => self.back(&mut machine),
            None => return,
        };
        if let Err(error) = done {
            self.counts.unreadable += 1;
            let why = &mut self.counts.why_unreadable;
            why.get_or_insert_with(|| error.to_string());
            // What is known of the sample is not all of it.
            if let Some(draft) = self.calls.draft() {
                draft.sample = None;
                draft.walked.is_it = false;
            }
        }
    }

    /// `get_perf_callchain` is called.
    fn callchain(&mut self, machine: &mut StoppedCore<'_>) -> Result<(), NotMapped> {
        let btf = self.options.image.btf.as_ref();
        let asked = CallchainArguments::at(machine, btf)?;
        self.calls.push(machine.back()?, Function::Callchain(asked));
        Ok(())
    }

    /// A helper is called, whose second argument is what it fills.
    fn helper(&mut self, machine: &mut StoppedCore<'_>, helper: Helper) -> Result<(), NotMapped> {
        let fills = machine.argument(1);
        let helper = match helper {
            Helper::Stack { .. } => Helper::Stack { buffer: fills },
            Helper::StackId { .. } => Helper::StackId { map: fills },
        };
        self.calls.push(machine.back()?, Function::Helper(helper));
        Ok(())
    }

    /// The user part of earlier callchains, which was left for later, is there: the arguments are a
    /// `struct unwind_work`, a `struct unwind_stacktrace`, and the cookie of those callchains.
    fn deferred(&mut self, machine: &mut StoppedCore<'_>) -> Result<(), NotMapped> {
        let Some(trace) = self.hooks.trace.filter(|_| !self.is_over()) else {
            return Ok(());
        };
        let found = trace.read(machine, machine.argument(1))?;
        let live = machine.live();
        let stopped = self.kernel.stopped(machine, &live)?;
        let user = stopped.user.as_ref().and_then(|user| user.regs);
        // Only a task with a user space has a user part.
        let Some(user) = user else {
            return Ok(());
        };
        let release = self.options.image.version.as_deref();
        let regs = SampleRegs::hardware(user);
        let (comm, mut sample) = stopped.sample(self.layout, release, regs, machine.core.time);
        let marker = Context::User.value();
        sample.recorded.push(RecordedChain {
            source: "perf".into(),
            ips: std::iter::once(marker).chain(found).collect(),
            request: None,
        });
        self.counts.deferred += 1;
        self.put(comm, &sample);
        Ok(())
    }

    /// `perf_callchain_kernel` is called with the entry that it adds to, and the sample's registers.
    fn kernel_part(&mut self, machine: &mut StoppedCore<'_>) -> Result<(), NotMapped> {
        if self.is_over() {
            return Ok(());
        }
        let entry = machine.word(machine.argument(0).wrapping_add(self.hooks.entry))?;
        let before = machine.word(entry)?;
        let function = Function::KernelPart { entry, before };
        self.calls.push(machine.back()?, function);

        let sampled = regs_from(&machine.read(machine.argument(1), PT_REGS_LEN as usize)?);
        let live = machine.live();
        let mut stopped = self.kernel.stopped(machine, &live)?;
        // The sampled rsp may be on another stack than the live one.
        if !sampled.get(Reg::Cs).is_some_and(is_user_cs) {
            copy_more(machine, &mut stopped, sampled.rsp())?;
        }
        let regs = callchain::start_regs(sampled, live);
        let (comm, mut sample) = stopped.sample(
            self.layout,
            self.options.image.version.as_deref(),
            regs,
            machine.core.time,
        );
        let truth = self.shadow.truth(machine.core, machine.rip);
        sample.truth = match sample.regs.is_fake() {
            true => truth,
            false => truth::of_sampled(&truth, &sampled, &self.hooks.trampolines),
        };
        if let Some(draft) = self.calls.draft() {
            draft.sample = Some((comm, sample));
        }
        Ok(())
    }

    /// `__unwind_start` is called with the state that it sets.
    fn start(&mut self, machine: &mut StoppedCore<'_>) -> Result<(), NotMapped> {
        let state = machine.argument(0);
        let is_walk = |draft: &mut Draft| draft.walked.is_it && draft.sample.is_none();
        if self.calls.draft().is_some_and(is_walk) {
            let sample = self.walk_begins(machine)?;
            if let Some(draft) = self.calls.draft() {
                draft.walked.is_it = sample.is_some();
                draft.sample = sample;
            }
        }
        let Some(draft) = self.calls.draft() else {
            return Ok(());
        };
        // Another walk may be inside this one: that of a warning.
        if draft.sample.is_some() && draft.state_at.is_none() {
            draft.state_at = Some(state);
            self.calls.push(machine.back()?, Function::Start);
        }
        Ok(())
    }

    /// `unwind_next_frame` is called with a state.
    fn next(&mut self, machine: &mut StoppedCore<'_>) -> Result<(), NotMapped> {
        let state = machine.argument(0);
        let is_first = match self.calls.draft() {
            Some(draft) if draft.state_at == Some(state) => draft.states.is_empty(),
            _ => return Ok(()),
        };
        if is_first {
            let first = self.state(machine, state)?;
            self.begins(machine, &first)?;
        }
        self.calls.push(machine.back()?, Function::Next);
        Ok(())
    }

    /// `__unwind_start` takes its first step from the state `first`. If it starts from itself, the sample is
    /// that of this moment.
    fn begins(&mut self, machine: &mut StoppedCore<'_>, first: &State) -> Result<(), NotMapped> {
        let Some(draft) = self.calls.draft() else {
            return Ok(());
        };
        draft.states.push(*first);
        let Some((comm, sample)) = &mut draft.sample else {
            return Ok(());
        };
        let State::Orc(first) = first else {
            return Ok(());
        };
        if !sample.regs.is_fake() {
            return Ok(());
        }
        let own = Regs::frame(first.ip, first.sp, first.bp);
        let regs = callchain::start_regs(sample.regs.sampled, own);
        let live = machine.live();
        let stopped = self.kernel.stopped(machine, &live)?;
        // The innermost function is the one that takes the step.
        let truth = self.shadow.truth(machine.core, machine.rip);
        let release = self.options.image.version.as_deref();
        let comm = comm.take();
        let (_, mut now) = stopped.sample(self.layout, release, regs, sample.time);
        now.truth = truth::from(&truth, 1, first.ip);
        if let Some(draft) = self.calls.draft() {
            draft.sample = Some((comm, now));
        }
        Ok(())
    }

    /// A state of the kernel's unwinder.
    fn state(&self, machine: &mut StoppedCore<'_>, at: u64) -> Result<State, NotMapped> {
        let layout = &self.hooks.state;
        Ok(layout.state(&machine.read(at, layout.len())?))
    }

    /// A function has returned, perhaps one of those that are recorded.
    fn back(&mut self, machine: &mut StoppedCore<'_>) -> Result<(), NotMapped> {
        let back = (machine.rip, machine.live().rsp());
        let Some(Call {
            function, draft, ..
        }) = self.calls.pop(back)
        else {
            return Ok(());
        };
        match function {
            Function::Callchain(asked) => {
                let skipped = asked.as_ref().map_or(0, |asked| asked.skipped);
                // The entry is returned in rax (psABI 3.2.3).
                let at = machine.register("rax")?.unwrap_or(0);
                let ips = callchain::entry(machine, at, skipped.into())?;
                let whole = RecordedChain {
                    source: "perf".into(),
                    ips,
                    request: asked.map(|asked| asked.request),
                };
                match draft {
                    Some(mut draft) => {
                        draft.add(whole);
                        self.write(machine, draft);
                    }
                    // Of the helper around it.
                    None => {
                        if let Some(draft) = self.calls.draft() {
                            draft.add(whole);
                        }
                    }
                }
            }
            Function::Helper(helper) => {
                let Some(mut draft) = draft else {
                    return Ok(());
                };
                // A length or a number, or an error, in rax.
                let result = machine.register("rax")?.unwrap_or(0) as i64;
                if let (Some((_, sample)), Ok(result)) = (&mut draft.sample, u64::try_from(result))
                {
                    let ips = self.hooks.filled(machine, helper, result)?;
                    let mut whole = sample.recorded.iter();
                    let whole = whole.find(|chain| chain.source == "perf");
                    let is_same = whole.is_some_and(|whole| whole.ips.starts_with(&ips));
                    self.counts.helpers += 1;
                    self.counts.helpers_same += u64::from(is_same && !ips.is_empty());
                    sample.recorded.push(RecordedChain {
                        source: helper.as_str().into(),
                        ips,
                        request: None,
                    });
                }
                self.write(machine, draft);
            }
            Function::KernelPart { entry, before } => {
                let found = callchain::entry(machine, entry, before)?;
                match draft {
                    Some(mut draft) => {
                        draft.found = Some(found);
                        self.write(machine, draft);
                    }
                    None => {
                        if let Some(draft) = self.calls.draft() {
                            draft.found = Some(found);
                        }
                    }
                }
            }
            Function::Walk { walk, .. } => self.walk_ends(machine, walk, draft)?,
            Function::Save { name, store } => self.save_ends(machine, (name, store), draft)?,
            Function::SaveUser { store } => self.save_user_ends(machine, store)?,
            Function::Trace => self.trace_ends(machine, draft),
            Function::Start | Function::Next => {
                let Some(state_at) = self.calls.draft().and_then(|draft| draft.state_at) else {
                    return Ok(());
                };
                let state = self.state(machine, state_at)?;
                let Some(draft) = self.calls.draft() else {
                    return Ok(());
                };
                // A start that took steps has ended with the last of them.
                let is_new = matches!(function, Function::Next) || draft.states.is_empty();
                if is_new && draft.states.len() < STATES_MAX {
                    draft.states.push(state);
                }
            }
        }
        Ok(())
    }

    /// Writes a sample that is complete.
    fn write(&mut self, machine: &mut StoppedCore<'_>, draft: Draft) {
        let (Some((comm, mut sample)), Some(found)) = (draft.sample, draft.found) else {
            return;
        };
        sample.recorded.insert(
            0,
            RecordedChain {
                source: "kernel".into(),
                ips: found,
                request: None,
            },
        );
        if let Some(kernel) = &mut sample.kernel {
            kernel.states = draft.states;
        }

        // The truth also has the frames that the kernel skips.
        let frames = sample.truth.frames().iter().map(|frame| frame.pc);
        let known = sample.recorded[0].ips.iter().copied().chain(frames);
        let mapped = self.map_generated(machine, &known.collect::<Vec<u64>>());
        self.check(mapped);
        self.put(comm, &sample);
        self.counts.known += u64::from(sample.truth.is_complete());
        match (draft.walked.is_it, draft.walked.printed.is_empty()) {
            (false, _) => self.counts.fake += u64::from(sample.regs.is_fake()),
            (true, true) => self.counts.walks += 1,
            (true, false) => self.counts.traces += 1,
        }
    }

    /// Writes a sample, preceded by its task's name if that is new.
    fn put(&mut self, comm: Option<String>, sample: &Sample<'_>) {
        if let Some(name) = comm {
            let (pid, tid) = (PID, sample.tid);
            let event = self.recorder.event(&Event::Comm { pid, tid, name });
            self.check(event);
        }
        let written = self.recorder.sample(sample, None);
        self.check(written);
        self.counts.samples += 1;
    }

    /// Modules and generated code come and go: they are looked for when a chain has an address that is not
    /// mapped.
    fn map_generated(
        &mut self,
        machine: &mut StoppedCore<'_>,
        found: &[u64],
    ) -> Result<(), WriteError> {
        let space = self.recorder.world.space(PID);
        let is_mapped = |ip: &u64| space.find(ip.wrapping_sub(1)).is_some();
        if found.iter().all(is_mapped) {
            return Ok(());
        }
        let bias = self.layout.bias();
        let (code, _) = loaded::find(machine, self.options.image, bias);
        for code in code {
            let known = self.recorder.world.space(PID).find(code.range.start);
            if known.is_none_or(|known| known.range != code.range) {
                loaded::map_code(self.recorder, code)?;
            }
        }
        Ok(())
    }

    /// Keeps the first error only.
    fn check(&mut self, result: Result<(), WriteError>) {
        if let (Err(error), None) = (result, &self.error) {
            self.error = Some(error);
        }
    }
}

impl<W: Write> Observer for Session<'_, '_, '_, W> {
    #[inline]
    fn enter(&mut self, core: &Core, block: Option<BlockId>, operations: usize, end: u64) -> usize {
        self.at(core, core.state.rip);
        self.shadow.enter(core, block, operations, end)
    }

    #[inline]
    fn before(&mut self, core: &Core, insn: &Executed) {
        self.shadow.before(core, insn);
    }

    #[inline]
    fn after(&mut self, core: &Core, insn: &Executed, next: u64) {
        self.shadow.after(core, insn, next);
    }
}

impl<W: Write> SystemObserver for Session<'_, '_, '_, W> {
    fn entered(&mut self, entry: &SystemEntry, core: &Core) {
        self.shadow.entered(entry, core);
    }

    fn returned(&mut self, before: &Preserved, core: &Core) {
        self.shadow.returned(before, core);
    }

    fn left(&mut self, core: &Core) {
        self.shadow.left(core);
    }
}

#[cfg(test)]
pub(crate) mod tests;
