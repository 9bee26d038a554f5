//! The interface of unwinders: name, requirements, and the finders they use.

use super::*;
use crate::address::Lookup;
use crate::cache::RowId;
use crate::image::Mapping;
use crate::lbr::{Branch, BranchStack, Branches, LbrOptions};
use crate::memory::MemoryCopy;
use crate::reason::Reason;
use crate::regs::{Reg, Regs};
use crate::rule::Rule;
use alloc::vec;
use alloc::vec::Vec;

const STACK: u64 = 0x7fff_0000;

/// A walk over zeros.
fn walked(unwinder: &dyn Unwinder, branches: Branches<'_>) -> (Chain, Vec<u64>, End) {
    let start = Start::from_regs(Regs::frame(0x1234, STACK, 0));
    let (space, memory) = (AddressSpace::new(), MemoryCopy::new(STACK, &[0; 64]));
    let stack = Stack {
        start: &start,
        space: &space,
        memory: &memory,
        limits: Limits::default(),
        task: None,
        branches,
    };
    let mut out = Addresses::default();
    let chain = unwinder.walk(&stack, &mut Cache::new());
    let end = unwinder.addresses(&stack, &mut Cache::new(), &mut out);
    (chain, out.0, end)
}

#[test]
fn a_guess_scans_the_stack_and_finds_no_root() {
    assert_eq!(Guess.name(), "guess");
    assert!(Guess.needs_stack() && !Guess.wants_stitching());
    assert_eq!(Guess.carries(), RegMask::FRAME);
    let (chain, addresses, end) = walked(&Guess, Branches::default());
    assert_eq!((chain.frames.len(), addresses), (1, vec![0x1234]));
    assert_eq!(
        (chain.end.reason, chain.end.marks_roots),
        (Reason::NotAtRoot, false)
    );
    assert_eq!((end.reason, end.marks_roots), (Reason::NotAtRoot, false));
}

#[test]
fn branch_records_need_no_stack() {
    let stacks = [BranchStack {
        depth: 8,
        hw_index: None,
        entries: vec![Branch {
            from: 0x5555,
            to: 1,
        }],
    }];

    let stitched = [vec![0x6666]];
    let branches = Branches {
        stacks: &stacks,
        stitched: &stitched,
    };

    for (depth, stitch, name) in [
        (None, false, "lbr"),
        (None, true, "lbr:stitch"),
        (Some(8), false, "lbr:8"),
        (Some(8), true, "lbr:8-stitch"),
    ] {
        let unwinder = Lbr::new(LbrOptions { depth, stitch });
        assert_eq!(unwinder.name(), name);

        assert!(!unwinder.needs_stack());
        assert_eq!(unwinder.wants_stitching(), stitch);

        // The stitched branches come behind those of the ring.
        let (chain, addresses, end) = walked(&unwinder, branches);
        let pcs: Vec<u64> = chain.frames.iter().map(|f| f.pc.value()).collect();
        let all: &[u64] = if stitch {
            &[0x1234, 0x5555, 0x6666]
        } else {
            &[0x1234, 0x5555]
        };
        assert_eq!((&pcs[..], &addresses[..]), (all, all));
        assert!(!chain.end.marks_roots && !end.marks_roots);
    }
}

/// A finder that returns preset values.
#[derive(Clone, Copy)]
struct PresetFinder {
    name: &'static str,
    lookup: Lookup,
    carries: RegMask,
    yes: bool,
    outside: Option<Reason>,
}

const QUIET: PresetFinder = PresetFinder {
    name: "quiet",
    lookup: Lookup::AtReturn,
    carries: RegMask::FRAME,
    yes: false,
    outside: None,
};

impl Finder for PresetFinder {
    fn name(&self) -> &str {
        self.name
    }
    fn lookup(&self) -> Lookup {
        self.lookup
    }
    fn carries(&self) -> RegMask {
        self.carries
    }
    fn find(&self, _: &Mapping, svma: u64, _: &mut Cache) -> Result<RowId, Reason> {
        Err(Reason::NoRow { pc: svma })
    }
    fn find_outside(&self, _: &mut Cache) -> Option<Result<RowId, Reason>> {
        self.outside.map(Err)
    }
    fn marks_roots(&self, _: &AddressSpace, _: u64, _: &mut Cache) -> bool {
        self.yes
    }
    fn permits(&self, _: &Rule, _: bool) -> Result<(), Reason> {
        if self.yes {
            Ok(())
        } else {
            Err(Reason::RegisterNotCarried { reg: Reg::R10 })
        }
    }
    fn skips(&self, _: u64, _: u64) -> bool {
        self.yes
    }
    fn fast(&self) -> bool {
        self.yes
    }
}

#[test]
fn the_first_of_two_says_how_they_walk() {
    let loud = PresetFinder {
        name: "loud",
        lookup: Lookup::InsideCall,
        carries: RegMask::CALLEE_SAVED,
        yes: true,
        outside: None,
    };

    // Whichever is first says how the walk is done; the second is only asked for rows.
    for (first, second) in [(QUIET, loud), (loud, QUIET)] {
        let both = WithFallback::new(Box::new(first), Box::new(second));
        assert_eq!(
            Finder::name(&both),
            alloc::format!("{}+{}", first.name, second.name)
        );
        assert_eq!(both.lookup(), first.lookup);
        assert_eq!(Finder::carries(&both), first.carries);
        assert_eq!(Unwinder::carries(&both), first.carries);
        assert_eq!(both.permits(&Rule::OUTERMOST, true).is_ok(), first.yes);
        assert_eq!((both.skips(0, 0), both.fast()), (first.yes, first.yes));
        assert_eq!(both.fallback().map(|f| f.name()), Some(second.name));

        let mapping = Mapping {
            range: 0..1,
            bias: 0,
            image: None,
            name: String::new(),
        };

        // Neither has a row: the error is the first one's.
        let found = both.find(&mapping, 5, &mut Cache::new());
        assert_eq!(found, Err(Reason::NoRow { pc: 5 }));
    }
}

#[test]
fn one_of_two_that_marks_roots_is_enough() {
    for (first, second) in [(false, false), (false, true), (true, false), (true, true)] {
        let says = |yes| Box::new(PresetFinder { yes, ..QUIET });
        let both = WithFallback::new(says(first), says(second));
        let marks = both.marks_roots(&AddressSpace::new(), 0, &mut Cache::new());
        assert_eq!(marks, first || second);
    }
}

#[test]
fn the_second_is_asked_for_code_outside_if_the_first_does_not_know() {
    let reasons = [None, Some(Reason::NotAtRoot), Some(Reason::RootReached)];
    for first in reasons {
        for second in reasons {
            let says = |outside| Box::new(PresetFinder { outside, ..QUIET });
            let both = WithFallback::new(says(first), says(second));
            let found = both.find_outside(&mut Cache::new());
            assert_eq!(found, first.or(second).map(Err));
        }
    }
}
