//! Runs a case that is a kernel, in ring 0 of the emulated machine.
//!
//! The program maps nothing itself. It is loaded at its link address, with stacks at the addresses
//! given by its symbols. User mode starts at `_start`; `hlt` ends the run.

use super::failure::CaseFailure;
use super::limits::Reached;
use super::sample::Point;
use crate::case::{Case, Chain, Delivery, PointKey, SamplePoint};
use object::{Object, ObjectSegment, ObjectSymbol};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use unwind_sim_emulator::ring0::{Event, Gates, Ring0, StepResult};
use unwind_sim_emulator::state::reg;
use unwind_sim_emulator::{AddressSpace, Core, Fault, Permissions, Processor};
use unwind_sim_record::registers::live_registers;
use unwind_sim_record::ring0::Ring0Shadow;
use unwind_sim_recordings::case_limits::CaseLimits;
use unwind_sim_recordings::model::{self, ImageIndex, KernelSample, Region, RegionRole, Sample};
use unwind_sim_recordings::world::World;
use unwind_sim_unwind::elf;
use unwind_sim_unwind::image::{Image, Owner};
use unwind_sim_unwind::kernel::{PAGE_SIZE, StackInfo, StackType, THREAD_SIZE, Task};
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::start::{SampleRegs, fetch_caller_regs};
use unwind_sim_unwind::truth::Truth;

/// The stacks, with the symbols for their lowest addresses.
const STACKS: [(&str, StackType); 4] = [
    ("task_stack", StackType::Task),
    ("irq_stack", StackType::Irq),
    ("nmi_stack", StackType::Nmi),
    ("entry_stack", StackType::Entry),
];
const USER_STACK: &str = "user_stack";
/// The flags that `syscall` clears in Linux (`syscall_init`): all except VM, VIF and VIP.
const FLAGS_CLEARED: u64 = 0x25_7fd5;
/// The process id of the kernel's address space in a recording.
const PID: u32 = 0;
const TID: u32 = 1;

/// The fixed data of a run.
struct Kernel<'a> {
    case: &'a Case,
    symbols: BTreeMap<String, u64>,
    image: Arc<Image>,
    world: World,
    budget: Budget,
    /// For each `each` sample line: the address range it covers, and its index.
    each: Vec<(Range<u64>, usize)>,
}

/// How far the kernel may still run, with the handlers of all its interrupts.
struct Budget {
    limits: CaseLimits,
    began: Instant,
    instructions: Cell<u64>,
}

impl Budget {
    /// Number of instructions between looks at the clock.
    const LOOK_EVERY: u64 = 1 << 10;

    /// Takes an instruction from the budget.
    fn take(&self) -> Result<(), Reached> {
        let executed = self.instructions.get();
        if executed >= self.limits.instructions_max {
            return Err(Reached::Instructions(self.limits.instructions_max));
        }
        let looks = executed.is_multiple_of(Self::LOOK_EVERY);
        if looks && self.began.elapsed() >= self.limits.timeout {
            return Err(Reached::Time(self.limits.timeout));
        }
        self.instructions.set(executed + 1);
        Ok(())
    }
}

/// A fake start whose unwinder has not started yet.
struct Fetched<'a> {
    line: &'a SamplePoint,
    sampled: Regs,
    fetch: Regs,
}

/// Runs the kernel at `program`, and samples it at the points of the case.
pub(super) fn run(
    case: &Case,
    program: &Path,
    processor: Processor,
    limits: &CaseLimits,
) -> Result<Vec<Point>, CaseFailure> {
    let fail = |what: String| CaseFailure::run(case, what);
    let (kernel, ring0) = Kernel::load(case, program, processor, limits)?;
    let mut now = Moment {
        ring0,
        shadow: Ring0Shadow::default(),
    };

    // Ordered by line and offset, as the rows of the expectation are.
    let mut found: BTreeMap<(usize, u64), Point> = BTreeMap::new();
    let mut visits: BTreeMap<u64, u32> = BTreeMap::new();
    let mut fetched: Vec<Fetched<'_>> = Vec::new();
    let mut delivered = BTreeSet::new();
    let mut time = 0;

    loop {
        // When the handler has returned, the label is reached again, and its sample is taken.
        for (event, delivery) in [
            (Event::Interrupt, &case.header.interrupt),
            (Event::Nmi, &case.header.nmi),
        ] {
            if let Some(Delivery::Before(label)) = delivery
                && now.ring0.machine.core.state.rip == kernel.symbol(label)?
                && delivered.insert((label, event == Event::Nmi))
                && !now.deliver(event).map_err(|e| fail(e.to_string()))?
            {
                return Err(fail(format!("the interrupt is masked before {label}")));
            }
        }

        let rip = now.ring0.machine.core.state.rip;

        // Only ring 0 is sampled: unwinders see the kernel's text alone.
        if !now.ring0.in_user() {
            let visit = visits.entry(rip).or_default();
            *visit += 1;
            for (index, key) in kernel.points_at(rip, *visit)? {
                let offset = key.offset.unwrap_or_default();
                let line = &case.samples[index];
                if line.is_fake() {
                    fetched.push(kernel.fetch(line, &now.ring0)?);
                } else if let Some((chain, inside)) = kernel.inside(line, &now)? {
                    let regs = SampleRegs::hardware(kernel.regs(&inside.ring0));
                    let point = kernel.point(key, chain, &inside, regs, time)?;
                    found.insert((index, offset), point);
                }
            }

            // A fake sample has registers from the moment of the fetch and is walked from the
            // unwinder's own frame: it is complete when that is reached.
            for fake in std::mem::take(&mut fetched) {
                let own = fake.line.key.own.as_deref().unwrap_or_default();
                if rip != kernel.symbol(own)? {
                    fetched.push(fake);
                    continue;
                }
                let regs = SampleRegs {
                    sampled: fake.sampled,
                    fetch: Some(fake.fetch),
                    own: Some(kernel.regs(&now.ring0)),
                };
                let (key, chain) = (fake.line.key.clone(), fake.line.chain.clone());
                let point = kernel.point(key, chain, &now, regs, time)?;
                let index = case.samples.iter().position(|s| s.key == fake.line.key);
                found.insert((index.unwrap_or_default(), 0), point);
            }
        }

        // Without a budget, a kernel that never halts would run forever.
        kernel.take()?;

        match now.step() {
            StepResult::Done => {}
            StepResult::Halted => {
                // Without this, a case whose code never gets to a label would pass.
                let reached = |index| found.keys().any(|(i, _)| *i == index);
                if let Some(index) = (0..case.samples.len()).find(|i| !reached(*i)) {
                    let key = &case.samples[index].key;
                    return Err(fail(format!("{key} was never reached")));
                }
                return Ok(found.into_values().collect());
            }
            StepResult::Stopped(exit) => return Err(fail(format!("at {rip:#x}: {exit:?}"))),
        }

        // The stated chains are only checked where the shadow stack knows the truth.
        if now.shadow.unknown() > case.header.truth_unknown_max {
            return Err(fail(format!("the shadow stack lost the truth at {rip:#x}")));
        }

        time += 1;
    }
}

/// The machine between two instructions, and the shadow stack kept beside it.
#[derive(Clone)]
struct Moment {
    ring0: Ring0,
    shadow: Ring0Shadow,
}

impl Moment {
    fn step(&mut self) -> StepResult {
        self.ring0.step(&mut self.shadow)
    }

    fn deliver(&mut self, event: Event) -> Result<bool, Fault> {
        self.ring0.deliver(event, &mut self.shadow)
    }

    fn truth(&self) -> Truth {
        self.shadow.truth(&self.ring0)
    }
}

impl<'a> Kernel<'a> {
    fn load(
        case: &'a Case,
        program: &Path,
        processor: Processor,
        limits: &CaseLimits,
    ) -> Result<(Kernel<'a>, Ring0), CaseFailure> {
        let fail = |what: String| CaseFailure::run(case, what);
        let bytes = std::fs::read(program).map_err(|e| fail(e.to_string()))?;
        let file = object::File::parse(&*bytes).map_err(|e| fail(e.to_string()))?;

        let mut memory = AddressSpace::bare();
        for segment in file.segments() {
            // A segment may start within a page.
            let begin = segment.address() & !(PAGE_SIZE - 1);
            let end = segment.address().saturating_add(segment.size());
            let range = begin..end.next_multiple_of(PAGE_SIZE);
            let data = segment.data().map_err(|e| fail(e.to_string()))?;
            // Of a file: the truth takes code in other memory for that of a JIT compiler.
            let mut pages = vec![0; (segment.address() - begin) as usize];
            pages.extend_from_slice(data);
            let mapped = memory.map_file(range, Permissions::ALL, pages, 0);
            mapped.map_err(|e| fail(format!("a segment at {begin:#x}: {e}")))?;
        }

        let symbols = file.symbols();
        let symbols = symbols.filter_map(|s| Some((s.name().ok()?.to_owned(), s.address())));
        let symbols: BTreeMap<String, u64> = symbols.collect();

        let owner: Owner = Arc::new(bytes.clone());
        let image = elf::image_from_elf(&case.name, owner, &elf::ReadOptions::default());
        let image = Arc::new(image.map_err(|e| fail(e.to_string()))?);

        let mut kernel = Kernel {
            case,
            symbols,
            image,
            world: World::new(),
            budget: Budget {
                limits: *limits,
                began: Instant::now(),
                instructions: Cell::new(0),
            },
            each: Vec::new(),
        };

        // Unwinders see the text of the kernel alone, which ends at `_etext`.
        kernel.world.apply(
            &model::Event::Map {
                pid: PID,
                range: kernel.symbol("_stext")?..kernel.symbol("_etext")?,
                bias: 0,
                image: Some(ImageIndex(0)),
                name: case.name.clone(),
            },
            std::slice::from_ref(&kernel.image),
        );

        // This needs the symbols and the image, which are in `kernel` only now.
        kernel.each = kernel.each()?;

        // The program maps nothing itself: its stacks are where its symbols say.
        for (name, _) in STACKS.into_iter().chain([(USER_STACK, StackType::Unknown)]) {
            let begin = kernel.symbol(name)?;
            let mapped = memory.map(begin..begin + THREAD_SIZE, Permissions::READ_WRITE);
            mapped.map_err(|e| fail(format!("{name} at {begin:#x}: {e}")))?;
        }

        let mut core = Core::with_processor(memory, processor);
        core.state.rip = kernel.symbol("_start")?;
        let end = |stack: &str| kernel.symbol(stack).map(|begin| begin + THREAD_SIZE);
        core.state.set_gpr(reg::RSP, end(USER_STACK)? - 256);

        // On a processor, IA32_LSTAR, IA32_FMASK, the IDT and the TSS say this (Intel SDM).
        let gates = Gates {
            syscall: kernel.symbol("entry_SYSCALL_64")?,
            flags_cleared: FLAGS_CLEARED,

            interrupt: kernel.symbol("asm_sysvec_apic_timer_interrupt")?,
            stack: end("task_stack")?,
            nmi: kernel.symbol("asm_exc_nmi")?,
            nmi_stack: end("nmi_stack")?,
        };

        Ok((kernel, Ring0::new(core, gates)))
    }

    /// Takes an instruction from the budget.
    fn take(&self) -> Result<(), CaseFailure> {
        let taken = self.budget.take();
        taken.map_err(|reached| CaseFailure::run(self.case, reached))
    }

    fn symbol(&self, name: &str) -> Result<u64, CaseFailure> {
        let address = self.symbols.get(name).copied();
        address.ok_or_else(|| CaseFailure::run(self.case, format!("no symbol {name}")))
    }

    /// The address range of each `each` sample line.
    fn each(&self) -> Result<Vec<(Range<u64>, usize)>, CaseFailure> {
        let mut out = Vec::new();
        for (index, line) in self.case.samples.iter().enumerate() {
            if line.each {
                let begin = self.symbol(&line.key.label)?;
                let function = self.image.symbol(begin).map(|s| s.address + s.size);
                out.push((begin..function.unwrap_or(begin), index));
            }
        }
        out.sort_by_key(|(range, _)| range.start);
        for at in 1..out.len() {
            let next = out[at].0.start;
            let end = &mut out[at - 1].0.end;
            *end = next.min(*end);
        }
        Ok(out)
    }

    /// The sample lines that cover the instruction at `rip` on its visit number `visit`.
    fn points_at(&self, rip: u64, visit: u32) -> Result<Vec<(usize, PointKey)>, CaseFailure> {
        let mut out = Vec::new();
        for (index, line) in self.case.samples.iter().enumerate() {
            let key = &line.key;
            if !line.each && key.visit == visit && self.symbol(&key.label)? == rip {
                out.push((index, key.clone()));
            }
        }
        if visit == 1
            && let Some((range, index)) = self.each.iter().find(|(r, _)| r.contains(&rip))
        {
            let key = PointKey {
                offset: Some(rip - range.start),
                ..self.case.samples[*index].key.clone()
            };
            out.push((*index, key));
        }
        Ok(out)
    }

    /// The stated chain, and the machine at the moment of the sample: here, or in a handler if
    /// every point is interrupted. `None` if the interrupt is masked.
    fn inside(
        &self,
        line: &SamplePoint,
        here: &Moment,
    ) -> Result<Option<(Chain, Moment)>, CaseFailure> {
        let fail = |what: String| CaseFailure::run(self.case, what);
        let Some((is_nmi, inside, handler)) = self.case.header.every() else {
            return Ok(Some((line.chain.clone(), here.clone())));
        };

        let event = if is_nmi { Event::Nmi } else { Event::Interrupt };

        // The run itself goes on without the interrupt: it is delivered to a copy of the machine.
        let mut now = here.clone();
        if !now.deliver(event).map_err(|e| fail(e.to_string()))? {
            return Ok(None);
        }

        let label = self.symbol(inside)?;
        let mut sampled = None;
        let registers = |ring0: &Ring0| {
            let state = &ring0.machine.core.state;
            (
                state.rip,
                state.rflags(),
                (0..16).map(|r| state.gpr(r)).collect::<Vec<_>>(),
            )
        };

        let before = registers(&here.ring0);
        // The handler has returned when registers and stack are as before. Its label may be
        // anywhere on the way.
        loop {
            if sampled.is_none() && now.ring0.machine.core.state.rip == label {
                sampled = Some(now.clone());
            }

            // A handler that never returns must end, too: it has no budget of its own.
            self.take()?;
            match now.step() {
                StepResult::Done => {}
                other => return Err(fail(format!("{} in a handler: {other:?}", line.key))),
            }

            if registers(&now.ring0) == before && now.truth() == here.truth() {
                let sampled = sampled.ok_or_else(|| fail(format!("{inside} was never reached")))?;
                let mut chain = handler.clone();
                chain.frames.extend(line.chain.frames.iter().cloned());
                chain.complete = line.chain.complete;
                return Ok(Some((chain, sampled)));
            }
        }
    }

    /// The registers that `perf_arch_fetch_caller_regs` makes here.
    fn fetch<'l>(&self, line: &'l SamplePoint, ring0: &Ring0) -> Result<Fetched<'l>, CaseFailure> {
        let fetch = self.regs(ring0);
        let frame = fetch.get_or_zero(Reg::Rbp);
        let ip = ring0.machine.core.memory.read_u64(frame.wrapping_add(8));
        let ip = ip.map_err(|e| CaseFailure::run(self.case, format!("{}: {e}", line.key)))?;
        Ok(Fetched {
            line,
            sampled: fetch_caller_regs(ip, frame.wrapping_add(16)),
            fetch,
        })
    }

    fn regs(&self, ring0: &Ring0) -> Regs {
        let state = &ring0.machine.core.state;
        let mut regs = live_registers(state, state.rip);
        regs.set(Reg::Cs, ring0.cs().into());
        regs
    }

    fn point(
        &self,
        key: PointKey,
        stated: Chain,
        now: &Moment,
        regs: SampleRegs,
        time: u64,
    ) -> Result<Point, CaseFailure> {
        let memory = &now.ring0.machine.core.memory;
        let mut stacks = Vec::new();
        let mut regions = Vec::new();

        // All of them: a walk in a handler goes on to the stack that was interrupted.
        for (name, kind) in STACKS {
            let begin = self.symbol(name)?;
            let end = begin + THREAD_SIZE;
            let mut bytes = vec![0; THREAD_SIZE as usize];
            let read = memory.read(begin, &mut bytes);
            read.map_err(|e| CaseFailure::run(self.case, e))?;

            // Unwinders of the kernel go on from an exception or interrupt stack at the word that
            // links it to the interrupted stack.
            let next_sp = kind.next_sp_at(end).map(|at| memory.read_u64(at));
            let next_sp = next_sp
                .transpose()
                .map_err(|e| CaseFailure::run(self.case, e))?;
            let next_sp = next_sp.unwrap_or_default();

            stacks.push(StackInfo {
                kind,
                begin,
                end,
                next_sp,
            });
            regions.push(Region {
                role: RegionRole::OtherStack,
                bounds: begin..end,
                next_sp,
                address: begin,
                bytes: bytes.into(),
            });
        }

        // The sampled stack comes first.
        let sp = now.ring0.machine.core.state.gpr(reg::RSP);

        // The end counts: there rsp is while the stack is empty.
        let is_own = |r: &Region<'_>| (r.bounds.start..=r.bounds.end).contains(&sp);
        regions.sort_by_key(|r| !is_own(r));
        regions[0].role = RegionRole::Stack;

        let sample = Sample {
            pid: PID,
            tid: TID,
            time,
            regs,
            regions,
            truth: now.truth(),
            recorded: Vec::new(),
            branches: Vec::new(),
            kernel: Some(Box::new(KernelSample {
                task: Task {
                    stacks,
                    ..Task::default()
                },
                boundary: now.shadow.boundary(),
                ..KernelSample::default()
            })),
            process_memory: None,
        };

        Ok(Point {
            key,
            stated,
            pristine: sample.clone(),
            sample,
            world: self.world.clone(),
        })
    }
}
