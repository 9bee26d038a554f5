//! The loop: its ends, limits, skipping, the fallback, and that both paths and both sinks agree.

extern crate std;

use super::*;
use crate::address::Lookup;
use crate::cache::{NewRow, UnitKey};
use crate::chain::{Addresses, Chain, How};
use crate::image::{Image, ImageParts, Mapping};
use crate::memory::{MemoryCopy, MemoryError};
use crate::regs::Regs;
use crate::row::TableKind;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use quickcheck::{Arbitrary, Gen, QuickCheck};

mod fallback;
mod held_in_registers;
mod random;
mod registers;
mod roots;

const STACK: u64 = 0x7fff_0000;
const TEXT: core::ops::Range<u64> = 0x1000..0x2000;
const BIAS: u64 = 0x5555_0000_0000;

/// The address in the process of `svma`.
const fn pc(svma: u64) -> u64 {
    BIAS + svma
}

/// A finder with rows that start at these addresses.
struct Rows {
    table: TableKind,
    rows: Vec<(u64, Rule)>,
    lookup: Lookup,
    carries: RegMask,
    fast: bool,
    topmost_only: Option<Rule>,
    fallback: Option<Box<Rows>>,
}

impl Rows {
    fn new(rows: Vec<(u64, Rule)>) -> Rows {
        Rows {
            table: TableKind::EhFrame,
            rows,
            lookup: Lookup::InsideCall,
            carries: RegMask::CALLEE_SAVED,
            fast: true,
            topmost_only: None,
            fallback: None,
        }
    }

    /// A finder with one rule for all of the text.
    fn all(rule: Rule) -> Rows {
        Rows::new(vec![(TEXT.start, rule)])
    }
}

impl Finder for Rows {
    fn name(&self) -> &str {
        "rows"
    }
    fn lookup(&self) -> Lookup {
        self.lookup
    }
    fn carries(&self) -> RegMask {
        self.carries
    }
    fn find(&self, mapping: &Mapping, svma: u64, cache: &mut Cache) -> Result<RowId, Reason> {
        let key = UnitKey {
            table: self.table,
            image: mapping.image.as_ref().map(|i| i.id()),
            offset: 0x40,
            block: 0,
        };
        let row = |(i, &(start, rule)): (usize, &(u64, Rule))| NewRow {
            start,
            offset: 0x40 + i as u64,
            rule,
        };
        let unit = match cache.unit(&key) {
            Some(unit) => unit?,
            None => cache.add_unit(key, TEXT, self.rows.iter().enumerate().map(row), None),
        };
        cache.find_row(unit, svma)
    }
    fn fallback(&self) -> Option<&dyn Finder> {
        self.fallback.as_deref().map(|f| f as &dyn Finder)
    }
    fn permits(&self, rule: &Rule, topmost: bool) -> Result<(), Reason> {
        if !topmost && self.topmost_only == Some(*rule) {
            Err(Reason::NoRow { pc: 1 })
        } else {
            Ok(())
        }
    }
    fn fast(&self) -> bool {
        self.fast
    }
}

fn space() -> AddressSpace {
    let mut space = AddressSpace::new();
    space.map(Mapping {
        range: pc(0)..pc(0x10000),
        bias: BIAS,
        image: Some(Arc::new(Image::new(ImageParts {
            text: vec![TEXT],
            ..ImageParts::default()
        }))),
        name: String::from("text"),
    });
    space
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

fn start(rip: u64, rsp: u64, rbp: u64) -> Start {
    Start::from_regs(Regs::frame(rip, rsp, rbp))
}

/// The full chain of a walk of a stack of `words` at [`STACK`].
fn chain_of(finder: &dyn Finder, start: &Start, words: &[u64]) -> Chain {
    let space = space();
    chain_in(finder, &space, start, words, &mut Cache::new())
}

fn chain_in(
    finder: &dyn Finder,
    space: &AddressSpace,
    start: &Start,
    words: &[u64],
    cache: &mut Cache,
) -> Chain {
    chain_again(finder, space, start, words, cache, Chain::default())
}

/// Like [`chain_in`], with an empty chain that was used before.
fn chain_again(
    finder: &dyn Finder,
    space: &AddressSpace,
    start: &Start,
    words: &[u64],
    cache: &mut Cache,
    mut chain: Chain,
) -> Chain {
    let bytes = bytes(words);
    let memory = MemoryCopy::new(STACK, &bytes);
    let place = WalkTarget {
        space,
        memory: &memory,
    };
    chain.end = walk(finder, &place, start, &Limits::default(), cache, &mut chain);
    chain
}

fn pcs(chain: &Chain) -> Vec<u64> {
    chain.frames.iter().map(|f| f.pc.value()).collect()
}

/// cfa = rsp + 16, return address below it.
const RSP16: Rule = Rule::call(Value::reg(Reg::Rsp, 16));

#[test]
fn a_walk_to_its_root() {
    let rows = vec![(0x1000, RSP16), (0x1800, Rule::OUTERMOST)];
    // Frames of two words: a local variable, then the return address.
    let words = [0, pc(0x1200), 0, pc(0x1900), 7];
    let chain = chain_of(&Rows::new(rows), &start(pc(0x1100), STACK, 0), &words);
    assert_eq!(pcs(&chain), [pc(0x1100), pc(0x1200), pc(0x1900)]);
    assert_eq!(chain.end, Reason::RootReached.into());

    let frames: Vec<_> = chain.frames.iter().map(|f| (f.sp, f.slot)).collect();
    let expected = [
        (STACK, None),
        (STACK + 16, Some(STACK + 8)),
        (STACK + 32, Some(STACK + 24)),
    ];
    assert_eq!(frames, expected);
    assert_eq!(chain.step(0).how, How::Start);

    // The last frame says by which row it was found, and what the row read.
    let How::Rule { row, words } = chain.step(2).how else {
        panic!("{:?}", chain.step(2));
    };
    let source = row.source();
    assert_eq!(*row.rule(), RSP16);
    assert_eq!(
        (source.table, source.start, source.end),
        (TableKind::EhFrame, 0x1000, 0x1800)
    );
    assert_eq!(
        (source.unit_offset, source.row_offset, source.fallback),
        (0x40, 0x40, None)
    );

    let word = Word {
        address: STACK + 24,
        value: pc(0x1900),
    };
    assert_eq!(words, [word]);
}

#[test]
fn ends() {
    let finder = Rows::all(RSP16);
    let from = |rip, words: &[u64]| chain_of(&finder, &start(rip, STACK, 0), words);

    // A zero return address, then the end of the copy.
    let chain = from(pc(0x1100), &[0, 0]);
    assert_eq!(
        (chain.frames.len(), chain.end.reason),
        (1, Reason::NotAtRoot)
    );

    let chain = from(pc(0x1100), &[0]);
    let beyond = MemoryError::BeyondCopy {
        address: STACK + 8,
        end: STACK + 8,
    };
    assert_eq!(
        (chain.frames.len(), chain.end.reason),
        (1, Reason::Memory(beyond))
    );

    // A start outside the code is still a frame. A return address outside the code is not.
    let chain = from(0x10, &[]);
    assert_eq!(
        (chain.frames.len(), chain.end.reason),
        (1, Reason::NoImage { pc: 0x10 })
    );
    let chain = from(pc(0x3000), &[]);
    assert_eq!(
        (chain.frames.len(), chain.end.reason),
        (1, Reason::NoRow { pc: pc(0x3000) })
    );
    let chain = from(pc(0x1100), &[0, 0x10]);
    let not_text = Reason::NotText { address: 0x10 };
    assert_eq!((chain.frames.len(), chain.end.reason), (1, not_text));

    let chain = from(pc(0x1100), &[0, pc(0x3000)]);
    let not_text = Reason::NotText {
        address: pc(0x3000),
    };
    assert_eq!((chain.frames.len(), chain.end.reason), (1, not_text));
}

#[test]
fn a_return_address_past_the_text_belongs_to_the_call() {
    let words = [0, pc(TEXT.end), 0, 0];
    let mut finder = Rows::all(RSP16);
    let chain = chain_of(&finder, &start(pc(0x1100), STACK, 0), &words);
    assert_eq!(pcs(&chain), [pc(0x1100), pc(TEXT.end)]);
    finder.lookup = Lookup::AtReturn;
    let chain = chain_of(&finder, &start(pc(0x1100), STACK, 0), &words);
    assert_eq!(
        chain.end.reason,
        Reason::NotText {
            address: pc(TEXT.end)
        }
    );
}

#[test]
fn an_address_without_a_row_is_reported_as_the_process_has_it() {
    let finder = Rows::new(vec![(0x1800, RSP16)]);
    let chain = chain_of(&finder, &start(pc(0x1100), STACK, 0), &[]);
    assert_eq!(chain.end.reason, Reason::NoRow { pc: pc(0x1100) });
    assert_eq!(pcs(&chain), [pc(0x1100)]);
}

#[test]
fn missing_registers() {
    for reg in [Reg::Rip, Reg::Rsp] {
        let mut regs = Regs::frame(pc(0x1100), STACK, 0);
        regs.forget(reg);
        let chain = chain_of(&Rows::all(RSP16), &Start::from_regs(regs), &[]);
        assert_eq!(chain.end.reason, Reason::RegistersMissing { reg });
        assert!(chain.frames.is_empty());
    }
    let by_rbp = Rows::all(Rule::FRAME_POINTER);
    let mut regs = Regs::frame(pc(0x1100), STACK, 0);
    regs.forget(Reg::Rbp);
    let chain = chain_of(&by_rbp, &Start::from_regs(regs), &[]);
    assert_eq!(chain.end.reason, Reason::RegistersMissing { reg: Reg::Rbp });
}

#[test]
fn sp_must_advance() {
    // The CFA is rsp, so the caller would have the same rsp.
    let stuck = Rule::call(Value::reg(Reg::Rsp, 0));
    let all = RegMask::CALLEE_SAVED;

    for (fast, carries) in [(true, all), (false, all), (true, RegMask::FRAME)] {
        let mut finder = Rows::all(stuck);
        (finder.fast, finder.carries) = (fast, carries);

        let (space, mut cache) = (space(), Cache::new());
        let (from, to) = (STACK + 8, STACK + 8);
        let (at, words) = (start(pc(0x1100), from, 0), [pc(0x1100), 0]);
        // First cold, then from the hot table.
        for _ in 0..2 {
            let chain = chain_in(&finder, &space, &at, &words, &mut cache);
            assert_eq!(chain.end.reason, Reason::SpDidNotAdvance { from, to });
            assert_eq!(pcs(&chain), [pc(0x1100)]);
        }
    }

    // With an rbp that points down.
    let chain = chain_of(
        &Rows::all(Rule::FRAME_POINTER),
        &start(pc(0x1100), STACK + 32, STACK),
        &[0, pc(0x1200)],
    );
    let (from, to) = (STACK + 32, STACK + 16);
    assert_eq!(chain.end.reason, Reason::SpDidNotAdvance { from, to });
}

/// `pop rdi` in vfork: the return address is in a register, and the cfa equals sp.
#[test]
fn a_return_address_in_a_register_of_the_topmost_frame() {
    let rule = Rule {
        ra: Value::reg(Reg::Rdi, 0),
        ..Rule::call(Value::reg(Reg::Rsp, 0))
    };
    let mut at = start(pc(0x1100), STACK, 0);
    at.regs.set(Reg::Rdi, pc(0x1900));
    let mut finder = Rows::new(vec![(0x1000, rule), (0x1800, RSP16)]);
    for carries in [RegMask::CALLEE_SAVED, RegMask::FRAME] {
        finder.carries = carries;
        let chain = chain_of(&finder, &at, &[0, pc(0x1200), 0, 0]);
        assert_eq!(pcs(&chain), [pc(0x1100), pc(0x1900), pc(0x1200)]);
        let lost = Reason::RegisterNotCarried { reg: Reg::Rdi };
        assert_eq!(chain.end.reason, lost);
    }
}

#[test]
fn a_zero_frame_pointer_is_a_root_only_by_a_rule_of_the_convention() {
    let at = start(pc(0x1100), STACK, 0);
    let (from, to) = (STACK, 16);
    for (by_frame_pointer, reason) in [
        (true, Reason::RootReached),
        (false, Reason::SpDidNotAdvance { from, to }),
    ] {
        for fast in [true, false] {
            let mut finder = Rows::all(Rule {
                by_frame_pointer,
                ..Rule::FRAME_POINTER
            });
            finder.fast = fast;
            let end = chain_of(&finder, &at, &[]).end;
            assert_eq!(end.reason, reason, "{by_frame_pointer} {fast}");
        }
    }
}

/// A stack at the bottom of the address space, where even a CFA based on a zero rbp is above sp.
#[test]
fn a_zero_frame_pointer_is_a_root_wherever_the_stack_lies() {
    let (space, mut cache) = (space(), Cache::new());
    let bytes = bytes(&[0, pc(0x1200), 0, 0]);
    let place = WalkTarget {
        space: &space,
        memory: &MemoryCopy::new(0, &bytes),
    };
    let mut finder = Rows::all(Rule::FRAME_POINTER);
    finder.carries = RegMask::FRAME;
    let at = start(pc(0x1100), 0, 0);
    // The second time, the rule is hot.
    for _ in 0..2 {
        let (limits, mut out) = (Limits::default(), Addresses::default());
        let end = walk(&finder, &place, &at, &limits, &mut cache, &mut out);
        assert_eq!((end.reason, out.0.len()), (Reason::RootReached, 1));
    }
}

#[test]
fn the_frame_limit() {
    let words: Vec<u64> = (0..100).map(|i| pc(0x1100) * (i % 2)).collect();
    let (space, bytes) = (space(), bytes(&words));
    let place = WalkTarget {
        space: &space,
        memory: &MemoryCopy::new(STACK, &bytes),
    };

    let limits = Limits { frames_max: 10 };
    let mut out = Addresses::default();
    let (finder, at) = (Rows::all(RSP16), start(pc(0x1100), STACK, 0));
    let end = walk(&finder, &place, &at, &limits, &mut Cache::new(), &mut out);
    assert_eq!(end.reason, Reason::FrameLimit { limit: 10 });
    assert_eq!(out.0.len(), 10);

    // The same if few registers are carried, cold and hot.
    // Few registers take the fast path, and the limit is the same there.
    let (mut finder, mut cache) = (finder, Cache::new());
    finder.carries = RegMask::FRAME;
    for _ in 0..2 {
        let mut out = Addresses::default();
        let end = walk(&finder, &place, &at, &limits, &mut cache, &mut out);
        assert_eq!(
            (end.reason, out.0.len()),
            (Reason::FrameLimit { limit: 10 }, 10)
        );
    }
}

#[test]
fn frames_up_to_the_mark_are_skipped() {
    let words = [0, pc(0x1200), 0, pc(0x1300), 0, pc(0x1400), 0, 0];
    let mut at = start(pc(0x1100), STACK, 0);
    // The second frame is at the mark: it is skipped, too.
    at.first_frame = Some(STACK + 16);

    let chain = chain_of(&Rows::all(RSP16), &at, &words);
    assert_eq!(pcs(&chain), [pc(0x1300), pc(0x1400)]);

    let skipped: Vec<_> = chain
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Skipped {
                pc,
                sp,
                first_frame,
            } => Some((pc.value(), *sp, *first_frame)),
            _ => None,
        })
        .collect();
    let mark = STACK + 16;
    assert_eq!(
        skipped,
        [(pc(0x1100), STACK, mark), (pc(0x1200), mark, mark)]
    );

    // Skipped frames are missing from the other sink, too, and a sampled ip comes first in both.
    at.sampled_ip = Some(pc(0x1234));
    let mut finder = Rows::all(RSP16);
    finder.carries = RegMask::FRAME;
    let (space, bytes, mut cache) = (space(), bytes(&words), Cache::new());
    let place = WalkTarget {
        space: &space,
        memory: &MemoryCopy::new(STACK, &bytes),
    };

    // Once with nothing known, once with all rows known.
    for _ in 0..2 {
        let mut out = Addresses::default();
        walk(
            &finder,
            &place,
            &at,
            &Limits::default(),
            &mut cache,
            &mut out,
        );
        assert_eq!(out.0, [pc(0x1234), pc(0x1300), pc(0x1400)]);
    }

    let chain = chain_of(&finder, &at, &words);
    assert_eq!(pcs(&chain), [pc(0x1234), pc(0x1300), pc(0x1400)]);
    assert_eq!(chain.step(0).how, How::SampledIp);

    let started = Event::Started {
        regs: at.regs,
        first_frame: at.first_frame,
    };
    assert_eq!(chain.events[0], started);
}

#[test]
fn a_rule_that_is_permitted_only_in_the_topmost_frame() {
    let mut finder = Rows::all(RSP16);
    finder.topmost_only = Some(RSP16);
    finder.fast = false;
    let chain = chain_of(
        &finder,
        &start(pc(0x1100), STACK, 0),
        &[0, pc(0x1200), 0, pc(0x1300)],
    );
    assert_eq!(pcs(&chain), [pc(0x1100), pc(0x1200)]);
    assert_eq!(chain.end.reason, Reason::NoRow { pc: 1 });
}

/// A finder that implements only the required methods and permits nothing.
struct Refusing(Rows);

impl Finder for Refusing {
    fn name(&self) -> &str {
        "refusing"
    }
    fn carries(&self) -> RegMask {
        self.0.carries
    }
    fn find(&self, mapping: &Mapping, svma: u64, cache: &mut Cache) -> Result<RowId, Reason> {
        self.0.find(mapping, svma, cache)
    }
    fn permits(&self, _: &Rule, _: bool) -> Result<(), Reason> {
        Err(Reason::NoRow { pc: 1 })
    }
}

#[test]
fn by_default_only_a_rule_that_is_not_common_needs_a_permit() {
    let finder = Refusing(Rows::new(vec![(0x1000, RSP16), (0x1800, Rule::OUTERMOST)]));
    let chain = chain_of(
        &finder,
        &start(pc(0x1100), STACK, 0),
        &[0, pc(0x1200), 0, pc(0x1900)],
    );
    assert_eq!(pcs(&chain), [pc(0x1100), pc(0x1200), pc(0x1900)]);
    assert_eq!(chain.end.reason, Reason::NoRow { pc: 1 });
}

#[test]
fn a_signal_frame_may_switch_stacks_only_so_often() {
    // Every frame is a signal frame and its own caller.
    let rule = Rule {
        kind: RuleKind::Signal,
        sp: Value::reg(Reg::Rsp, 0),
        ..RSP16
    };
    let words = [0, pc(0x1100)];
    let chain = chain_of(&Rows::all(rule), &start(pc(0x1100), STACK, 0), &words);
    let cycle = Reason::Cycle {
        pc: pc(0x1100),
        sp: STACK,
    };
    assert_eq!(chain.end.reason, cycle);
    // It is listed once, and no change of stacks is reported.
    assert_eq!(pcs(&chain), [pc(0x1100)]);
    let is_change = |e: &Event| matches!(e, Event::StackChanged { .. });
    assert!(!chain.events.iter().any(is_change));
}

#[test]
fn stacks_change_only_so_often() {
    // Down by a word each time: no state repeats, but the walk ends.
    let rule = Rule {
        kind: RuleKind::Signal,
        sp: Value::reg(Reg::Rsp, -8),
        ..RSP16
    };
    let words = [pc(0x1100); 64];
    let chain = chain_of(&Rows::all(rule), &start(pc(0x1100), STACK + 400, 0), &words);
    assert!(
        matches!(chain.end.reason, Reason::Cycle { .. }),
        "{:?}",
        chain.end
    );
    assert_eq!(chain.frames.len(), STACK_CHANGES_MAX + 1);
}

#[test]
fn a_non_canonical_address_does_not_alias_another() {
    let words = [0, pc(0x1200), 0, pc(0x1200) | 1 << 48, 0, 0];
    let (space, mut cache) = (space(), Cache::new());
    let at = start(pc(0x1100), STACK, 0);
    for _ in 0..2 {
        let chain = chain_in(&Rows::all(RSP16), &space, &at, &words, &mut cache);
        assert_eq!(pcs(&chain), [pc(0x1100), pc(0x1200)]);
        let address = pc(0x1200) | 1 << 48;
        assert_eq!(chain.end.reason, Reason::NotText { address });
    }
}

#[test]
fn another_address_space_has_its_own_rules() {
    let (one, other) = (space(), AddressSpace::new());
    let (finder, mut cache) = (Rows::all(RSP16), Cache::new());
    let at = start(pc(0x1100), STACK, 0);
    let words = [0, pc(0x1200), 0, 0];
    for _ in 0..2 {
        assert_eq!(
            chain_in(&finder, &one, &at, &words, &mut cache)
                .frames
                .len(),
            2
        );
        let chain = chain_in(&finder, &other, &at, &words, &mut cache);
        assert_eq!(chain.end.reason, Reason::NoImage { pc: pc(0x1100) });
    }
}
