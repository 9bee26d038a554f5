//! The common interface of all unwinders, built-in and user-defined.

use crate::cache::Cache;
use crate::chain::{Addresses, Chain, End, How, Sink, Step};
use crate::finder::Finder;
use crate::image::AddressSpace;
#[cfg(feature = "kernel")]
use crate::kernel::Task;
use crate::memory::Memory;
use crate::regs::RegMask;
use crate::start::Start;
use crate::walk::{self, Limits, WalkTarget};
use crate::{guess, lbr};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;

/// A stack to be unwound.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Stack<'a> {
    /// The initial registers and the mark.
    pub start: &'a Start,
    /// The executable mappings.
    pub space: &'a AddressSpace,
    /// The recorded memory.
    pub memory: &'a dyn Memory,
    /// Limits of the walk.
    pub limits: Limits,
    /// The task, if this is a kernel stack.
    #[cfg(feature = "kernel")]
    pub task: Option<&'a Task>,
    /// The processor's branch records, if any.
    pub branches: lbr::Branches<'a>,
}

impl<'a> Stack<'a> {
    /// A stack without further information, with the default limits.
    pub fn new(start: &'a Start, space: &'a AddressSpace, memory: &'a dyn Memory) -> Self {
        Stack {
            start,
            space,
            memory,
            limits: Limits::default(),
            #[cfg(feature = "kernel")]
            task: None,
            branches: lbr::Branches::default(),
        }
    }
}

/// An unwinder. Implement this for your own unwinder, and run it on the corpus with
/// `unwind_sim_judge::check_dir`.
pub trait Unwinder: Send + Sync {
    /// The name used on the command line and in reports.
    fn name(&self) -> &str;

    /// The registers that it carries from frame to frame; used in explanations.
    fn carries(&self) -> RegMask {
        RegMask::FRAME
    }

    /// Whether it reads the stack. An unwinder that does not can start without rsp.
    fn needs_stack(&self) -> bool {
        true
    }

    /// Whether it uses the stitched branch records of several samples.
    fn wants_stitching(&self) -> bool {
        false
    }

    /// Whether its time is over, so that what it gave last and gives from now on is not judged.
    fn is_out_of_time(&self) -> bool {
        false
    }

    /// Walks `stack`. `cache` is used by this unwinder only and lives as long as the caller likes.
    /// An unwinder with its own kind of cache ignores it.
    ///
    /// Never fails: the chain contains the frames found and why the walk ended.
    fn walk(&self, stack: &Stack<'_>, cache: &mut Cache) -> Chain;

    /// Like [`Unwinder::walk`], but appends only the pcs, to `out`.
    fn addresses(&self, stack: &Stack<'_>, cache: &mut Cache, out: &mut Addresses) -> End {
        let chain = self.walk(stack, cache);
        for frame in &chain.frames {
            let how = How::External;
            out.frame(Step {
                pc: frame.pc,
                sp: frame.sp,
                slot: frame.slot,
                how,
            });
        }
        chain.end
    }
}

impl<F: Finder> Unwinder for F {
    fn name(&self) -> &str {
        Finder::name(self)
    }

    fn carries(&self) -> RegMask {
        Finder::carries(self)
    }

    fn walk(&self, stack: &Stack<'_>, cache: &mut Cache) -> Chain {
        let mut chain = Chain::default();
        let place = WalkTarget {
            space: stack.space,
            memory: stack.memory,
        };
        chain.end = walk::walk(self, &place, stack.start, &stack.limits, cache, &mut chain);
        chain
    }

    fn addresses(&self, stack: &Stack<'_>, cache: &mut Cache, out: &mut Addresses) -> End {
        let place = WalkTarget {
            space: stack.space,
            memory: stack.memory,
        };
        walk::walk(self, &place, stack.start, &stack.limits, cache, out)
    }
}

/// An unwinder that scans the stack for code addresses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Guess;

impl Unwinder for Guess {
    fn name(&self) -> &str {
        "guess"
    }

    fn walk(&self, stack: &Stack<'_>, _: &mut Cache) -> Chain {
        let mut chain = Chain::default();
        let place = WalkTarget {
            space: stack.space,
            memory: stack.memory,
        };
        chain.end = guess::walk(&place, stack.start, &stack.limits, &mut chain);
        chain.end.marks_roots = false;
        chain
    }
}

/// An unwinder that reads branch records.
#[derive(Clone, Debug)]
pub struct Lbr {
    name: String,
    options: lbr::LbrOptions,
}

impl Lbr {
    /// Named `lbr`, `lbr:DEPTH`, `lbr:stitch` or `lbr:DEPTH-stitch`, according to `options`.
    pub fn new(options: lbr::LbrOptions) -> Self {
        let name = match (options.depth, options.stitch) {
            (None, false) => "lbr".to_owned(),
            (None, true) => "lbr:stitch".to_owned(),
            (Some(depth), false) => alloc::format!("lbr:{depth}"),
            (Some(depth), true) => alloc::format!("lbr:{depth}-stitch"),
        };
        Lbr { name, options }
    }
}

impl Unwinder for Lbr {
    fn name(&self) -> &str {
        &self.name
    }

    fn needs_stack(&self) -> bool {
        false
    }

    fn wants_stitching(&self) -> bool {
        self.options.stitch
    }

    fn walk(&self, stack: &Stack<'_>, _: &mut Cache) -> Chain {
        let mut chain = Chain::default();
        let (start, space, branches) = (stack.start, stack.space, stack.branches);
        let (options, limits) = (self.options, &stack.limits);
        chain.end = lbr::walk(start, space, branches, options, limits, &mut chain);
        chain.end.marks_roots = false;
        chain
    }
}

/// A finder with a fallback, used where the first has no rule or one that cannot be applied. Each
/// use is an event of the walk.
pub struct WithFallback {
    name: String,
    first: Box<dyn Finder>,
    second: Box<dyn Finder>,
}

impl WithFallback {
    /// Tries `first`, then `second`.
    pub fn new(first: Box<dyn Finder>, second: Box<dyn Finder>) -> Self {
        let name = alloc::format!("{}+{}", first.name(), second.name());
        WithFallback {
            name,
            first,
            second,
        }
    }
}

impl Finder for WithFallback {
    fn name(&self) -> &str {
        &self.name
    }
    fn lookup(&self) -> crate::address::Lookup {
        self.first.lookup()
    }
    fn find_outside(
        &self,
        cache: &mut Cache,
    ) -> Option<Result<crate::cache::RowId, crate::reason::Reason>> {
        let first = self.first.find_outside(cache);
        first.or_else(|| self.second.find_outside(cache))
    }
    fn carries(&self) -> RegMask {
        self.first.carries()
    }
    fn find(
        &self,
        mapping: &crate::image::Mapping,
        svma: u64,
        cache: &mut Cache,
    ) -> Result<crate::cache::RowId, crate::reason::Reason> {
        self.first.find(mapping, svma, cache)
    }
    fn fallback(&self) -> Option<&dyn Finder> {
        Some(&*self.second)
    }
    fn marks_roots(&self, space: &AddressSpace, address: u64, cache: &mut Cache) -> bool {
        let finders = [&self.first, &self.second];
        finders.iter().any(|f| f.marks_roots(space, address, cache))
    }
    fn permits(
        &self,
        rule: &crate::rule::Rule,
        topmost: bool,
    ) -> Result<(), crate::reason::Reason> {
        self.first.permits(rule, topmost)
    }
    fn skips(&self, sp: u64, first_frame: u64) -> bool {
        self.first.skips(sp, first_frame)
    }
    fn fast(&self) -> bool {
        self.first.fast()
    }
}

#[cfg(test)]
mod tests;
