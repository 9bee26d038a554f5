//! Tests of disagreements between walks and the check of single frames, and of the end of memory.

use super::*;
use std::sync::Arc;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::cache::RowId;
use unwind_sim_unwind::chain::{Chain, FoundBy, Frame};
use unwind_sim_unwind::fp::FramePointer;
use unwind_sim_unwind::image::{AddressSpace, Image, ImageParts, Mapping};
use unwind_sim_unwind::memory::{MemoryCopy, Regions};
use unwind_sim_unwind::reason::Reason;
use unwind_sim_unwind::regs::{RegMask, Regs};
use unwind_sim_unwind::truth::{TrueFrame, TrueKind, Truth};
use unwind_sim_unwind::unwinder::{Unwinder, WithFallback};

#[test]
fn a_hundred_disagreements_are_kept() {
    let mut walks = Walks::new(Setting::default());
    for number in 0..150 {
        let site = Site {
            address: 0x1000 + number,
            place: 3,
            number,
            activation: None,
        };
        walks.disagree(2, &site, "the quick check");
    }
    assert_eq!(walks.tally(2), (0, 0, 0), "no walk was taken");
    let kept = walks.finish();
    assert_eq!(kept.len(), 100);
    let last = Disagreement {
        unwinder: 2,
        address: 0x1000 + 99,
        place: 3,
        number: 99,
        what: "the quick check".into(),
    };
    assert_eq!(kept.last(), Some(&last));
}

#[test]
fn a_walks_own_ends_are_no_rows() {
    for code in [Code::BeyondCopy, Code::Cycle, Code::FrameLimit] {
        assert!(is_the_walks(code), "{code}");
    }
    for code in [Code::WrongCfa, Code::NoRow, Code::NoRowForExecuted] {
        assert!(!is_the_walks(code), "{code}");
    }
}

#[test]
fn a_window_shows_its_part_of_the_memory_to_the_last_byte() {
    let bytes: Vec<u8> = (0..64).collect();
    let memory = Regions::new(vec![MemoryCopy::new(0x1000, &bytes)]);
    let window = Window {
        memory: &memory,
        range: 0x1008..0x1020,
    };

    let word = |at: usize| Ok(u64::from_le_bytes(std::array::from_fn(|i| (at + i) as u8)));
    assert_eq!(window.read_u64(0x1008), word(8));
    assert_eq!(window.read_u64(0x1018), word(24));

    let below = |address| MemoryError::BelowCopy {
        address,
        start: 0x1008,
    };
    let beyond = |address| MemoryError::BeyondCopy {
        address,
        end: 0x1020,
    };

    assert_eq!(window.read_u64(0x1007), Err(below(0x1007)));
    // The last byte of this word is beyond the end.
    assert_eq!(window.read_u64(0x1019), Err(beyond(0x1019)));
    // The end of this word would wrap around to 0.
    assert_eq!(window.read_u64(u64::MAX), Err(beyond(u64::MAX)));

    let mut buffer = [0; 3];
    assert_eq!(window.read(0x101d, &mut buffer), Ok(()));
    assert_eq!(buffer, [29, 30, 31]);

    assert_eq!(window.read(0x101e, &mut buffer), Err(beyond(0x101e)));
    assert_eq!(window.read(0x1007, &mut buffer), Err(below(0x1007)));
}

const FUNCTION: u64 = 0x40_1000;
const STACK: u64 = 0x7000;

/// An unwinder that claims this caller.
struct Says(u64);

impl Unwinder for Says {
    fn name(&self) -> &str {
        "says"
    }
    fn walk(&self, stack: &Stack<'_>, _: &mut Cache) -> Chain {
        let frame = |pc, sp, slot| Frame {
            pc,
            sp,
            slot,
            found: FoundBy::External,
        };
        let top = CodeAddress::Instruction(stack.start.regs.rip());
        let caller = CodeAddress::Return(self.0);
        let frames = vec![
            frame(top, STACK, None),
            frame(caller, STACK + 16, Some(STACK + 8)),
        ];
        let mut chain = Chain::ended(Reason::RootReached);
        chain.frames = frames;
        chain
    }
}

/// The index of an unwinder, and what disagrees.
type Disagrees = (usize, String);

/// The results of walks of a function that has a frame pointer, with or without a caller: for each
/// unwinder the numbers of walks and wrong walks, and what disagrees.
fn taken(
    engines: &[Engine],
    wrong: Wrong,
    has_caller: bool,
    view: MemoryView,
) -> (Vec<(u64, u64)>, Vec<Disagrees>) {
    let caller = FUNCTION + 0x20;
    // At rbp: the saved rbp, and above it the return address.
    let words = if has_caller { [0, caller] } else { [0, 0] };
    let bytes = words.map(u64::to_le_bytes).concat();
    let memory = Regions::new(vec![MemoryCopy::new(STACK, &bytes)]);

    let image = Image::new(ImageParts {
        text: std::iter::once(FUNCTION..FUNCTION + 0x100).collect(),
        ..ImageParts::default()
    });

    let mut space = AddressSpace::new();
    space.map(Mapping {
        range: FUNCTION..FUNCTION + 0x100,
        bias: 0,
        image: Some(Arc::new(image)),
        name: String::new(),
    });

    // The psABI asks user code to mark the deepest frame with an rbp of 0.
    let rbp = if has_caller { STACK } else { 0 };
    let live = Regs::frame(FUNCTION + 4, STACK, rbp);

    let frame = |pc, cfa, kind| TrueFrame {
        pc,
        cfa,
        kind,
        saved: None,
    };

    // CFA = rbp + 16: the saved rbp and the return address lie below it.
    let mut frames = vec![frame(FUNCTION + 4, STACK + 16, TrueKind::Top)];
    if has_caller {
        frames.push(frame(caller, STACK + 32, TrueKind::Call));
    }
    let truth = Truth::Complete(frames);

    let subject = Subject {
        space: &space,
        memory: &memory,
        truth: &truth,
        live: &live,
        is_whole: true,
    };

    let mut walks = Walks::new(Setting {
        view,
        ..Setting::default()
    });
    let mut caches: Vec<_> = engines.iter().map(|_| Cache::new()).collect();
    let mut wrongs = [0; UNWINDERS_MAX];
    // What the check of the innermost frame is said to have found, true or not.
    wrongs[..engines.len()].fill(wrong);

    // Twice: after a walk that goes wrong, the next one is taken with provenance at once.
    for _ in 0..2 {
        let found = walks.take(engines, &subject, &mut caches, &wrongs, (9, 3));
        assert!(found.is_empty(), "no row is to blame");
    }

    let tallies = (0..engines.len()).map(|which| walks.tally(which));
    let tallies = tallies.map(|(all, wrong, _)| (all, wrong)).collect();
    let all = walks.finish();
    for one in &all {
        assert_eq!((one.address, one.place, one.number), (FUNCTION + 4, 3, 9));
    }

    let what = all.into_iter().map(|one| (one.unwinder, one.what));
    (tallies, what.collect())
}

fn table() -> Engine {
    Engine::Table(Box::new(FramePointer))
}

#[test]
fn a_right_walk_from_a_row_that_was_found_wrong_is_our_own_bug() {
    let right = "a walk that is right".to_owned();
    let cpu = MemoryView::Cpu;
    let expected = vec![
        (0, right.clone()),
        (1, right.clone()),
        (0, right.clone()),
        (1, right),
    ];
    for wrong in [claim::CFA, claim::RA, claim::CFA | claim::RA | claim::SAVED] {
        let (tallies, found) = taken(&[table(), table()], wrong, true, cpu);
        assert_eq!((tallies, found), (vec![(2, 0); 2], expected.clone()));
    }
    // A wrong register does not make the walk wrong, and the root has no caller.
    for (wrong, has_caller) in [(0, true), (claim::SAVED, true), (claim::CFA, false)] {
        let (tallies, found) = taken(&[table()], wrong, has_caller, cpu);
        assert_eq!(
            (tallies, found),
            (vec![(2, 0)], vec![]),
            "{wrong} {has_caller}"
        );
    }
}

/// A finder without any row.
struct Nothing;

impl Finder for Nothing {
    fn name(&self) -> &str {
        "nothing"
    }
    fn carries(&self) -> RegMask {
        RegMask::FRAME
    }
    fn find(&self, _: &Mapping, svma: u64, _: &mut Cache) -> Result<RowId, Reason> {
        Err(Reason::NoRow { pc: svma })
    }
}

#[test]
fn what_a_fallback_made_right_is_no_disagreement() {
    let both = WithFallback::new(Box::new(Nothing), Box::new(FramePointer));
    let engines = [Engine::Table(Box::new(both))];
    let (tallies, found) = taken(&engines, claim::CFA, true, MemoryView::Cpu);
    assert_eq!((tallies, found), (vec![(2, 0)], vec![]));
}

#[test]
fn a_wrong_walk_without_a_row_to_blame_is_our_own_bug_or_its_own_end() {
    let says = |pc| Engine::Other(Box::new(Says(pc)));
    let engines = [says(FUNCTION + 0x20), says(FUNCTION + 0x30)];
    let (tallies, found) = taken(&engines, 0, true, MemoryView::Cpu);
    assert_eq!(tallies, [(2, 0), (2, 2)]);
    let what = (1, "a walk (w@1 US502)".to_owned());
    assert_eq!(found, [what.clone(), what]);
    // The copy ends below the return address.
    let (tallies, found) = taken(&[table()], 0, true, MemoryView::Copy(8));
    assert_eq!((tallies, found), (vec![(2, 2)], vec![]));
}
