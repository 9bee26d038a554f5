//! Runs one unwinder on one stack from one start: the chain, the verdict and the cause.

mod brief;

pub use brief::{Desk, Room};

use crate::check::{Contradiction, Subject};
use crate::diagnose::{Diagnosis, Walked, diagnose, end_code};
use crate::precise::is_shifted;
use crate::unjudged::Unjudged;
use crate::whole::{self, Seen, Whole};
use unwind_sim_recordings::model::Sample;
use unwind_sim_recordings::view::{MemoryView, View};
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::{Addresses, Chain, End, FoundBy, Frame};
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::kernel::KernelUnwinder;
use unwind_sim_unwind::memory::Memory;
use unwind_sim_unwind::reason::{Code, Reason};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::start::{Start, Variant};
use unwind_sim_unwind::unwinder::{Stack, Unwinder};
use unwind_sim_unwind::verdict::{Ground, Verdict, expected_from, judge, judge_boundary};
use unwind_sim_unwind::walk::{Limits, WalkTarget, walk};

/// An unwinder. If it finds rules in tables, the rules can be queried.
pub enum Engine {
    /// Finds rules; the shared walk applies them.
    Table(Box<dyn Finder>),
    /// Walks by itself: guess, LBR, or the user's own.
    Other(Box<dyn Unwinder>),
    /// One of the kernel's unwinders, with its states.
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

    /// What its row for the true frame `frame` of a sample contradicts. Empty if it finds no rules.
    pub fn contradictions(
        &self,
        view: &View<'_>,
        setting: &Setting,
        frame: usize,
        cache: &mut Cache,
    ) -> Vec<Contradiction> {
        let Some(finder) = self.finder() else {
            return Vec::new();
        };
        let memory = view.memory(setting.view);
        let live = view.live();
        let subject = Subject::of(view, &memory, &live);
        // The row of a precise sample's instruction does not fit its registers, and is not to blame.
        if frame == 0 && is_shifted(&view.live(), view.space) {
            return Vec::new();
        }
        subject.check_frame(finder, frame, cache)
    }

    /// Whether it reads the stack. An unwinder that does not can start without rsp.
    pub fn needs_stack(&self) -> bool {
        match self {
            Engine::Other(unwinder) => unwinder.needs_stack(),
            Engine::Table(_) | Engine::Kernel(_) => true,
        }
    }

    /// Whether it wants branch records stitched with those of earlier samples.
    pub fn wants_stitching(&self) -> bool {
        matches!(self, Engine::Other(unwinder) if unwinder.wants_stitching())
    }

    /// The start of a walk of `sample` by this unwinder.
    ///
    /// # Errors
    /// See [`SampleRegs::start`](unwind_sim_unwind::start::SampleRegs::start).
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

    /// Walks and records full provenance.
    pub fn walk(&self, stack: &Stack<'_>, cache: &mut Cache) -> Chain {
        match self {
            Engine::Table(finder) => {
                walk_in(&**finder, stack, stack.memory, cache, Chain::default())
            }
            Engine::Other(unwinder) => unwinder.walk(stack, cache),
            Engine::Kernel(unwinder) => unwinder.walk(stack, cache),
        }
    }

    /// Walks and adds only the addresses to `out`.
    pub fn addresses<M: Memory>(
        &self,
        place: &WalkTarget<'_, M>,
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

/// A walk in the stack's `memory`, and in the memory of an empty chain.
fn walk_in<F: Finder + ?Sized, M: Memory + ?Sized>(
    finder: &F,
    stack: &Stack<'_>,
    memory: &M,
    cache: &mut Cache,
    mut chain: Chain,
) -> Chain {
    let place = WalkTarget {
        space: stack.space,
        memory,
    };
    let (start, limits) = (stack.start, &stack.limits);
    chain.end = walk(finder, &place, start, limits, cache, &mut chain);
    chain
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

/// A stack with nothing but registers and memory.
fn stack<'a, M: Memory>(
    place: &'a WalkTarget<'_, M>,
    start: &'a Start,
    limits: &Limits,
) -> Stack<'a> {
    let mut stack = Stack::new(start, place.space, place.memory);
    stack.limits = *limits;
    stack
}

/// The result of a walk.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The chain.
    pub chain: Chain,
    /// The verdict on the chain.
    pub verdict: Verdict,
    /// The basis of the verdict.
    pub ground: Ground,
    /// Why the chain is not judged, if it is not.
    pub unjudged: Option<Unjudged>,
    /// The true frame that the chain should start with.
    pub from: usize,
    /// Why the chain is not right.
    pub diagnosis: Option<Diagnosis>,
    /// Whether the chain is whole, if the truth does not say it. `None` for chains that
    /// [`whole::judge`] is not for.
    pub whole: Option<Whole>,
}

impl Outcome {
    /// What a row gave in place of the truth, if that is why the chain is not right.
    pub fn contradiction(&self) -> Option<&Contradiction> {
        self.diagnosis.as_ref()?.contradiction.as_ref()
    }

    /// The code with which the walk ended. A root that was wrongly claimed counts as
    /// [`Code::NotAtRoot`]; without truth, one that is not known to be one as [`Code::EndUnknown`].
    pub fn ended(&self) -> Code {
        let code = end_code(&self.chain, self.verdict, &self.ground);
        self.whole.map_or(code, |whole| whole.code(code))
    }

    /// How the chain ends: `root` if it is whole, `broken`, or `unknown`. By the truth, or else by
    /// [`whole`](Outcome::whole).
    pub fn end_kind(&self) -> &'static str {
        match (self.verdict, self.whole) {
            (Verdict::Ok | Verdict::OkUnproven, _) => "root",
            (verdict, _) if verdict.is_wrong() => "broken",
            (Verdict::Unjudged, Some(whole)) => whole.as_str(),
            _ => "unknown",
        }
    }

    /// Why the chain is not right: the code of the cause, or that of an early end; `None` for a
    /// right chain.
    pub fn code(&self) -> Option<Code> {
        let ended_early = matches!(
            self.verdict,
            Verdict::Truncated { .. } | Verdict::Looped | Verdict::Unsupported | Verdict::Refused
        );
        match &self.diagnosis {
            _ if self.verdict == Verdict::Ok => None,
            Some(diagnosis) => Some(diagnosis.code),
            None if ended_early => Some(self.ended()),
            None => None,
        }
    }
}

/// The setting that all walks of a run share.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setting {
    /// The limits of a walk.
    pub limits: Limits,
    /// The memory that a walk can read.
    pub view: MemoryView,
    /// Whether all code has frame pointers, as in a kernel with `CONFIG_FRAME_POINTER`.
    pub frame_pointer_kernel: bool,
}

impl Engine {
    /// Unwinds the view's stack from start `variant`, and judges the chain.
    pub fn examine(
        &self,
        view: &View<'_>,
        variant: Variant,
        setting: &Setting,
        cache: &mut Cache,
    ) -> Outcome {
        self.examine_in(view, variant, setting, cache, Chain::default())
    }

    /// [`Engine::examine`], in the memory of an empty chain.
    pub(crate) fn examine_in(
        &self,
        view: &View<'_>,
        variant: Variant,
        setting: &Setting,
        cache: &mut Cache,
        room: Chain,
    ) -> Outcome {
        let memory = view.memory(setting.view);
        let frame_pointers = setting.frame_pointer_kernel;
        match self.start(view.sample, variant, frame_pointers, &memory) {
            Err(reason) => unsupported(reason),
            Ok(start) => {
                let stack = stack_of(view, &start, &memory, setting);
                let chain = match self {
                    Engine::Table(finder) => walk_in(&**finder, &stack, &memory, cache, room),
                    _ => self.walk(&stack, cache),
                };
                let outcome = judged(view, &stack, variant, chain, self.finder(), cache);
                in_time(outcome, self.is_out_of_time())
            }
        }
    }

    /// Whether its time for all its answers is over.
    fn is_out_of_time(&self) -> bool {
        match self {
            Engine::Other(unwinder) => unwinder.is_out_of_time(),
            Engine::Table(_) | Engine::Kernel(_) => false,
        }
    }
}

impl Engine {
    /// [`Engine::examine`], where everything is read through `memory`.
    pub(crate) fn examine_over(
        &self,
        view: &View<'_>,
        memory: &dyn Memory,
        variant: Variant,
        setting: &Setting,
        cache: &mut Cache,
    ) -> Outcome {
        let frame_pointers = setting.frame_pointer_kernel;
        match self.start(view.sample, variant, frame_pointers, &memory) {
            Err(reason) => unsupported(reason),
            Ok(start) => {
                let stack = stack_of(view, &start, memory, setting);
                let chain = self.walk(&stack, cache);
                let walked = (chain, self.finder());
                let outcome = judged_over(view, memory, &stack, variant, walked, cache);
                in_time(outcome, self.is_out_of_time())
            }
        }
    }
}

/// Like [`Engine::examine`], for any unwinder.
pub fn examine(
    view: &View<'_>,
    unwinder: &dyn Unwinder,
    variant: Variant,
    setting: &Setting,
    cache: &mut Cache,
) -> Outcome {
    let memory = view.memory(setting.view);
    let frame_pointers = setting.frame_pointer_kernel;
    let needs_stack = unwinder.needs_stack();
    match start(view.sample, needs_stack, variant, frame_pointers, &memory) {
        Err(reason) => unsupported(reason),
        Ok(start) => {
            let stack = stack_of(view, &start, &memory, setting);
            let chain = unwinder.walk(&stack, cache);
            let outcome = judged(view, &stack, variant, chain, None, cache);
            in_time(outcome, unwinder.is_out_of_time())
        }
    }
}

/// `outcome` without a judgement if the unwinder's time is over: it was not asked, or its answer was
/// cut off.
fn in_time(outcome: Outcome, is_out_of_time: bool) -> Outcome {
    if !is_out_of_time {
        return outcome;
    }
    Outcome {
        verdict: Verdict::Unjudged,
        ground: Ground::default(),
        unjudged: Some(Unjudged::OutOfTime),
        diagnosis: None,
        whole: None,
        ..outcome
    }
}

/// The outcome for a sample that lacks what the start needs.
fn unsupported(reason: Reason) -> Outcome {
    Outcome {
        chain: Chain::ended(reason),
        verdict: Verdict::Unsupported,
        ground: Ground::default(),
        unjudged: None,
        from: 0,
        diagnosis: None,
        whole: None,
    }
}

pub(crate) fn stack_of<'a>(
    view: &'a View<'_>,
    start: &'a Start,
    memory: &'a dyn Memory,
    setting: &Setting,
) -> Stack<'a> {
    let mut stack = Stack::new(start, view.space, memory);
    stack.limits = setting.limits;
    stack.task = view.sample.kernel.as_ref().map(|k| &k.task);
    stack.branches = view.branches();
    stack
}

/// Compares `chain` with the truth and, if it is wrong, finds the cause.
fn judged(
    view: &View<'_>,
    stack: &Stack<'_>,
    variant: Variant,
    chain: Chain,
    finder: Option<&dyn Finder>,
    cache: &mut Cache,
) -> Outcome {
    let all = sound(view).memory();
    judged_over(view, &all, stack, variant, (chain, finder), cache)
}

/// [`judged`], where `all` is all memory of the sound sample.
fn judged_over(
    view: &View<'_>,
    all: &dyn Memory,
    stack: &Stack<'_>,
    variant: Variant,
    (chain, finder): (Chain, Option<&dyn Finder>),
    cache: &mut Cache,
) -> Outcome {
    let truth = &view.sample.truth;
    let from = from(view, variant);
    let (of_frames, ground) = judge(&chain, truth, from);
    let verdict = at_boundary(view, of_frames, &chain, from);
    let left_wrong = verdict != of_frames;
    let judged = Judged {
        chain,
        verdict,
        ground,
        from,
        left_wrong,
    };
    judged.diagnosed(view, stack, all, variant, finder, cache)
}

/// The sample before a case corrupted it on purpose, with all of its memory: what a short copy
/// hides is not a fault of a row.
fn sound<'a>(view: &View<'a>) -> &'a Sample<'a> {
    view.pristine.unwrap_or(view.sample)
}

/// The true frame that a chain from this start should begin with. Fake registers describe the
/// caller of the fetching function, whatever the variant does with them: frames inside that caller
/// are not expected.
fn from(view: &View<'_>, variant: Variant) -> usize {
    let mark = match variant {
        Variant::Hardware => None,
        Variant::Fake(_) => Some(sound(view).regs.sampled.rsp()),
    };
    expected_from(&view.sample.truth, view.live().rsp(), mark)
}

/// A chain with its verdict, before its cause is known.
struct Judged {
    chain: Chain,
    verdict: Verdict,
    ground: Ground,
    from: usize,
    /// All frames are right, but not what a kernel's unwinder left the kernel with.
    left_wrong: bool,
}

impl Judged {
    /// Adds the cause; `all` is all memory of the sound sample.
    fn diagnosed(
        self,
        view: &View<'_>,
        stack: &Stack<'_>,
        all: &dyn Memory,
        variant: Variant,
        finder: Option<&dyn Finder>,
        cache: &mut Cache,
    ) -> Outcome {
        let Judged {
            chain,
            verdict,
            ground,
            from,
            left_wrong,
        } = self;

        let truth = &view.sample.truth;

        // The cause is looked for in the sound sample: the walk may have seen a changed one.
        let live = sound(view).regs.live().copied().unwrap_or_default();
        let subject = Subject::of(view, all, &live);

        let walked = Walked {
            chain: &chain,
            ended: end_code(&chain, verdict, &ground),
            start: stack.start,
            is_fake: variant != Variant::Hardware,
            left_wrong,
            // What the walk saw, which may be less than the sound sample has.
            place: WalkTarget {
                space: stack.space,
                memory: stack.memory,
            },
        };

        let diagnosis = diagnose(&subject, finder, &walked, verdict, from, cache);

        // Without a truth, the code may still say whether the chain is whole.
        let whole = match verdict {
            Verdict::Unjudged => of_chain(view, &chain, cache),
            _ => None,
        };

        Outcome {
            whole,
            chain,
            verdict,
            ground,
            unjudged: Unjudged::by_truth(verdict, truth, from),
            from,
            diagnosis,
        }
    }
}

/// Whether a chain of user code is whole. One by branch records is judged by their number.
fn of_chain(view: &View<'_>, chain: &Chain, cache: &mut Cache) -> Option<Whole> {
    let is_branch = |frame: &Frame| matches!(frame.found, FoundBy::Branch { .. });
    if view.sample.kernel.is_some() || chain.frames.iter().any(is_branch) {
        return None;
    }
    whole::judge(view, &Seen::of_chain(chain), &chain.end, cache)
}

/// The code with which a walk ended that others are judged by; US001 if it is whole. The truth is not
/// asked.
pub(crate) fn reference_code(view: &View<'_>, chain: &Chain, cache: &mut Cache) -> Code {
    let code = chain.end.reason.code();
    of_chain(view, chain, cache).map_or(code, |whole| whole.code(code))
}

/// Judges the end of a kernel's chain too, and returns the combined verdict.
fn at_boundary(view: &View<'_>, verdict: Verdict, chain: &Chain, from: usize) -> Verdict {
    let truth = &view.sample.truth;
    let kernel = view.sample.kernel.as_ref().filter(|_| truth.is_complete());
    let judged = kernel.and_then(|kernel| {
        let (boundary, task) = (kernel.boundary.as_ref()?, &kernel.task);
        let frames = truth.frames().len() - from;
        Some(judge_boundary(verdict, chain, frames, boundary, task))
    });
    judged.unwrap_or(verdict)
}
