//! One stack, one unwinder, one start: the chain, the verdict and the cause.

use crate::check::Subject;
use crate::diagnose::{Diagnosis, Walked, diagnose, end_code};
use crate::unjudged::Unjudged;
use unwind_sim_corpus::model::Sample;
use unwind_sim_corpus::world::World;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::{Addresses, Chain, End};
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::kernel::KernelUnwinder;
use unwind_sim_unwind::lbr::Branches;
use unwind_sim_unwind::memory::{Memory, Regions};
use unwind_sim_unwind::reason::{Code, Reason};
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::start::{Start, Variant};
use unwind_sim_unwind::unwinder::{Stack, Unwinder};
use unwind_sim_unwind::verdict::{Ground, Verdict, expected_from, judge, judge_boundary};
use unwind_sim_unwind::walk::{Finder, Limits, Place, walk};

/// An unwinder as the tool holds it: one that finds rules in tables can be asked for them.
pub enum Engine {
    /// Finds rules; the shared walk applies them.
    Table(Box<dyn Finder>),
    /// Walks by itself: guess, LBR, the user's own.
    Other(Box<dyn Unwinder>),
    /// One of the kernel's, with its states.
    Kernel(KernelUnwinder),
}

impl Engine {
    /// The name, as on the command line.
    pub fn name(&self) -> &str {
        match self {
            Engine::Table(finder) => finder.name(),
            Engine::Other(unwinder) => unwinder.name(),
            Engine::Kernel(unwinder) => unwinder.name(),
        }
    }

    /// The finder, if there is one.
    pub fn finder(&self) -> Option<&dyn Finder> {
        match self {
            Engine::Table(finder) => Some(&**finder),
            Engine::Other(_) | Engine::Kernel(_) => None,
        }
    }

    /// Does it read the stack? One that does not can start without rsp.
    pub fn needs_stack(&self) -> bool {
        match self {
            Engine::Other(unwinder) => unwinder.needs_stack(),
            Engine::Table(_) | Engine::Kernel(_) => true,
        }
    }

    /// Does it want branch records put together with those of samples before?
    pub fn wants_stitching(&self) -> bool {
        matches!(self, Engine::Other(unwinder) if unwinder.wants_stitching())
    }

    /// What a walk of `sample` by this unwinder begins with.
    ///
    /// # Errors
    /// As [`SampleRegs::start`](unwind_sim_unwind::start::SampleRegs::start).
    pub fn start<M: Memory>(
        &self,
        sample: &Sample<'_>,
        variant: Variant,
        frame_pointer_kernel: bool,
        memory: &M,
    ) -> Result<Start, Reason> {
        start(
            sample,
            self.needs_stack(),
            variant,
            frame_pointer_kernel,
            memory,
        )
    }

    /// Walks with full provenance.
    pub fn walk(&self, stack: &Stack<'_>, cache: &mut Cache) -> Chain {
        match self {
            Engine::Table(finder) => {
                let place = Place {
                    space: stack.space,
                    memory: stack.memory,
                };
                let mut chain = Chain::default();
                chain.end = walk(
                    &**finder,
                    &place,
                    stack.start,
                    &stack.limits,
                    cache,
                    &mut chain,
                );
                chain
            }
            Engine::Other(unwinder) => unwinder.walk(stack, cache),
            Engine::Kernel(unwinder) => unwinder.walk(stack, cache),
        }
    }

    /// Walks for the addresses only, which are added to `out`.
    pub fn addresses<M: Memory>(
        &self,
        place: &Place<'_, M>,
        start: &Start,
        limits: &Limits,
        cache: &mut Cache,
        out: &mut Addresses,
    ) -> End {
        match self {
            Engine::Table(finder) => walk(&**finder, place, start, limits, cache, out),
            Engine::Other(unwinder) => unwinder.addresses(&stack(place, start, limits), cache, out),
            Engine::Kernel(unwinder) => {
                unwinder.addresses(&stack(place, start, limits), cache, out)
            }
        }
    }
}

fn start<M: Memory>(
    sample: &Sample<'_>,
    needs_stack: bool,
    variant: Variant,
    frame_pointer_kernel: bool,
    memory: &M,
) -> Result<Start, Reason> {
    match sample.regs.start(variant, frame_pointer_kernel, memory) {
        Err(Reason::RegistersMissing { reg: Reg::Rsp })
            if variant == Variant::Hardware && !needs_stack =>
        {
            Ok(Start::from_regs(
                sample.regs.live().copied().unwrap_or_default(),
            ))
        }
        start => start,
    }
}

/// A stack of which nothing is known but registers and memory.
fn stack<'a, M: Memory>(place: &'a Place<'_, M>, start: &'a Start, limits: &Limits) -> Stack<'a> {
    Stack {
        start,
        space: place.space,
        memory: place.memory,
        limits: *limits,
        task: None,
        branches: Branches::default(),
    }
}

/// How much of the recorded memory a walk may see.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MemoryView {
    /// Everything that was recorded.
    #[default]
    Cpu,
    /// What a profiler would have copied: so many bytes from rsp upwards.
    Copy(u64),
}

impl MemoryView {
    /// `cpu` or `copy:BYTES`.
    pub fn from_name(name: &str) -> Option<MemoryView> {
        match name.split_once(':') {
            None if name == "cpu" => Some(MemoryView::Cpu),
            Some(("copy", bytes)) => bytes.parse().ok().map(MemoryView::Copy),
            _ => None,
        }
    }
}

impl std::fmt::Display for MemoryView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MemoryView::Cpu => f.write_str("cpu"),
            MemoryView::Copy(bytes) => write!(f, "copy:{bytes}"),
        }
    }
}

/// A sample in its world.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// Its number in the recording, from 0.
    pub number: u64,
    /// The sample.
    pub sample: &'a Sample<'a>,
    /// The mappings of its process at its time.
    pub space: &'a AddressSpace,
    /// The sample before it was corrupted on purpose, if it was: rules are blamed for what they
    /// would have done there.
    pub pristine: Option<&'a Sample<'a>>,
    /// Where calls were that the thread's samples before held in their branch records and this one
    /// has lost, for each of its rings; empty if nobody put them together.
    pub stitched: &'a [Vec<u64>],
    /// All processes at its time, where the recording has them.
    pub world: Option<&'a World>,
}

/// What came of one walk.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The chain.
    pub chain: Chain,
    /// Is it right?
    pub verdict: Verdict,
    /// What the verdict stands on.
    pub ground: Ground,
    /// Why there is none.
    pub unjudged: Option<Unjudged>,
    /// The true frame that the chain is to begin with.
    pub from: usize,
    /// Why it is not right.
    pub diagnosis: Option<Diagnosis>,
}

impl Outcome {
    /// The code of how the walk ended: a root that was claimed where there is none is not one.
    pub fn ended(&self) -> Code {
        end_code(&self.chain, self.verdict, &self.ground)
    }
}

/// What all walks of a run share.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setting {
    /// The bounds of a walk.
    pub limits: Limits,
    /// How much memory is visible.
    pub view: MemoryView,
    /// Was the code built with frame pointers throughout, as a `CONFIG_FRAME_POINTER` kernel?
    pub frame_pointer_kernel: bool,
}

impl<'a> View<'a> {
    /// The name of the sample's thread.
    pub fn task_name(&self) -> Option<&'a str> {
        self.world?.name(self.sample.pid, self.sample.tid)
    }

    /// The mappings of the user space behind the sample.
    pub fn user_mappings(&self) -> Option<&'a AddressSpace> {
        if self.sample.kernel.is_none() {
            return Some(self.space);
        }
        let pid = self.sample.user_space()?.pid;
        Some(self.world?.space(pid))
    }
}

impl View<'_> {
    /// The live registers, as far as recorded.
    pub fn live(&self) -> Regs {
        self.sample.regs.live().copied().unwrap_or_default()
    }

    /// The branch records.
    pub fn branches(&self) -> Branches<'_> {
        Branches {
            stacks: &self.sample.branches,
            stitched: self.stitched,
        }
    }

    /// The memory that a walk may see.
    pub fn memory(&self, view: MemoryView) -> Regions<'_> {
        let memory = self.sample.memory();
        match view {
            MemoryView::Cpu => memory,
            MemoryView::Copy(bytes) => memory.profiler_copy(self.live().rsp(), bytes),
        }
    }

    /// Puts the stack in front of `engine`, started as `variant`, and judges the chain.
    pub fn examine(
        &self,
        engine: &Engine,
        variant: Variant,
        setting: &Setting,
        cache: &mut Cache,
    ) -> Outcome {
        let walk = |stack: &Stack<'_>, cache: &mut Cache| engine.walk(stack, cache);
        let needs_stack = engine.needs_stack();
        self.examine_by(&walk, engine.finder(), needs_stack, variant, setting, cache)
    }

    /// As [`View::examine`], with an unwinder that somebody else holds.
    pub fn examine_unwinder(
        &self,
        unwinder: &dyn Unwinder,
        variant: Variant,
        setting: &Setting,
        cache: &mut Cache,
    ) -> Outcome {
        let walk = |stack: &Stack<'_>, cache: &mut Cache| unwinder.walk(stack, cache);
        let needs_stack = unwinder.needs_stack();
        self.examine_by(&walk, None, needs_stack, variant, setting, cache)
    }

    /// `verdict`, with the end of a kernel's chain judged too.
    fn at_boundary(&self, verdict: Verdict, chain: &Chain, from: usize) -> Verdict {
        let truth = &self.sample.truth;
        let kernel = self.sample.kernel.as_ref().filter(|_| truth.is_complete());
        let judged = kernel.and_then(|kernel| {
            let (boundary, task) = (kernel.boundary.as_ref()?, &kernel.task);
            let frames = truth.frames().len() - from;
            Some(judge_boundary(verdict, chain, frames, boundary, task))
        });
        judged.unwrap_or(verdict)
    }

    fn examine_by(
        &self,
        walk: &dyn Fn(&Stack<'_>, &mut Cache) -> Chain,
        finder: Option<&dyn Finder>,
        needs_stack: bool,
        variant: Variant,
        setting: &Setting,
        cache: &mut Cache,
    ) -> Outcome {
        let memory = self.memory(setting.view);
        let frame_pointers = setting.frame_pointer_kernel;
        let start = match start(self.sample, needs_stack, variant, frame_pointers, &memory) {
            Ok(start) => start,
            Err(reason) => {
                let chain = Chain {
                    end: reason.into(),
                    ..Chain::default()
                };
                let verdict = Verdict::Unsupported;
                return Outcome {
                    chain,
                    verdict,
                    ground: Ground::default(),
                    unjudged: None,
                    from: 0,
                    diagnosis: None,
                };
            }
        };
        let limits = setting.limits;
        let stack = Stack {
            start: &start,
            space: self.space,
            memory: &memory,
            limits,
            task: self.sample.kernel.as_ref().map(|k| &k.task),
            branches: self.branches(),
        };
        let chain = walk(&stack, cache);
        let truth = &self.sample.truth;
        let live = self.live();
        // Fake registers describe the fetching function's caller, whatever the variant does with
        // them: the frames inside of it are not expected.
        let mark = match variant {
            Variant::Hardware => None,
            Variant::Fake(_) => Some(self.pristine.unwrap_or(self.sample).regs.sampled.rsp()),
        };
        let from = expected_from(truth, live.rsp(), mark);
        let (of_frames, ground) = judge(&chain, truth, from);
        let verdict = self.at_boundary(of_frames, &chain, from);
        // Rules are put in front of what was there before a case corrupted it on purpose, and of
        // all of it: what a short copy hides is no fault of a row.
        let sound = self.pristine.unwrap_or(self.sample);
        let (all, sound_live) = (
            sound.memory(),
            sound.regs.live().copied().unwrap_or_default(),
        );
        let subject = Subject {
            space: self.space,
            memory: &all,
            truth,
            live: &sound_live,
        };
        let place = Place {
            space: self.space,
            memory: &memory as &dyn Memory,
        };
        let walked = Walked {
            chain: &chain,
            ended: end_code(&chain, verdict, &ground),
            start: &start,
            is_fake: variant != Variant::Hardware,
            left_wrong: verdict != of_frames,
            place,
        };
        let diagnosis = diagnose(&subject, finder, &walked, verdict, from, cache);
        Outcome {
            chain,
            verdict,
            ground,
            unjudged: Unjudged::by_truth(verdict, truth, from),
            from,
            diagnosis,
        }
    }
}
