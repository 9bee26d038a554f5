//! A single step: whose rule it uses, and where it ends.

use super::*;
use crate::cache::{NewRow, RowId, UnitKey};
use crate::dwarf::Dwarf;
use crate::fp::FramePointer;
use crate::image::AddressSpace;
use crate::memory::MemoryCopy;
use crate::regs::{Reg, RegMask, Regs};
use crate::row::TableKind;
use crate::rule::{Rule, Value};
use crate::unwinder::WithFallback;
use alloc::boxed::Box;
use alloc::vec::Vec;

const STACK: u64 = 0x7000;
const PC: u64 = 0x1100;

/// A table with only this rule, which it permits in the topmost frame.
struct OneRuleTable(Rule);

impl Finder for OneRuleTable {
    fn name(&self) -> &str {
        "one"
    }
    fn carries(&self) -> RegMask {
        RegMask::FRAME
    }
    fn find(&self, _: &Mapping, svma: u64, cache: &mut Cache) -> Result<RowId, Reason> {
        let key = UnitKey {
            table: TableKind::Orc,
            image: None,
            offset: 0,
            block: 0,
        };
        let row = NewRow {
            start: 0x1000,
            offset: 0,
            rule: self.0,
        };
        let unit = cache.add_unit(key, 0x1000..0x2000, [row], None);
        cache.find_row(unit, svma)
    }
    fn permits(&self, _: &Rule, topmost: bool) -> Result<(), Reason> {
        if topmost {
            Ok(())
        } else {
            Err(Reason::NotAtRoot)
        }
    }
}

/// A step from [`PC`] with rsp at [`STACK`], on these words.
fn step_from(finder: &dyn Finder, rbp: u64, topmost: bool, words: &[u64]) -> Stepped {
    let mut space = AddressSpace::new();
    space.map(Mapping {
        range: 0x1000..0x2000,
        bias: 0,
        image: None,
        name: "text".into(),
    });
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let place = WalkTarget {
        space: &space,
        memory: &MemoryCopy::new(STACK, &bytes),
    };
    let frame = Frame {
        topmost,
        ..Frame::top(Regs::frame(PC, STACK, rbp))
    };
    step(finder, &place, &frame, &mut Cache::new())
}

fn pc(stepped: &Stepped) -> Result<u64, Reason> {
    stepped
        .caller
        .as_ref()
        .map(|f| f.pc.value())
        .map_err(|&e| e)
}

#[test]
fn a_zero_rbp_is_a_root_for_frame_pointer_unwinders() {
    let words = [STACK + 32, 0x1200];
    let by_rbp = step_from(&FramePointer, STACK, true, &words);
    assert_eq!((pc(&by_rbp), by_rbp.cfa), (Ok(0x1200), Some(STACK + 16)));
    let at_root = step_from(&FramePointer, 0, true, &words);
    assert_eq!(
        (pc(&at_root), at_root.cfa),
        (Err(Reason::RootReached), None)
    );
    // A table's rule does not depend on rbp.
    let table = OneRuleTable(Rule::call(Value::reg(Reg::Rsp, 16)));
    for rbp in [0, STACK] {
        let stepped = step_from(&table, rbp, true, &words);
        assert_eq!(pc(&stepped), Ok(0x1200), "{rbp:#x}");
        let word = |w: &crate::chain::Word| (w.address, w.value);
        let read: Vec<_> = stepped.words.iter().map(word).collect();
        assert_eq!(read, [(STACK + 8, 0x1200)]);
    }
}

#[test]
fn a_rule_that_cannot_be_applied_may_still_give_the_cfa() {
    let table = OneRuleTable(Rule::call(Value::reg(Reg::Rsp, 16)));
    let stepped = step_from(&table, 0, true, &[]);
    assert!(matches!(stepped.caller, Err(Reason::Memory(_))));
    assert_eq!(stepped.cfa, Some(STACK + 16));
    // The CFA is unknown if the rule must not be used.
    let refused = step_from(&table, 0, false, &[0, 0x1200]);
    assert_eq!((pc(&refused), refused.cfa), (Err(Reason::NotAtRoot), None));
}

#[test]
fn a_fallback_row_says_what_it_replaces() {
    let both = WithFallback::new(Box::new(Dwarf::new()), Box::new(FramePointer));
    let words = [STACK + 32, 0x1200];
    let stepped = step_from(&both, STACK, true, &words);
    let cause = Reason::NoImage { pc: PC };
    let source = stepped.row.expect("the fallback has one").source;
    assert_eq!(source.table, TableKind::FramePointer);
    assert_eq!((source.fallback, pc(&stepped)), (Some(cause), Ok(0x1200)));
    let alone = step_from(&Dwarf::new(), STACK, true, &words);
    assert_eq!((alone.row.err(), pc(&alone)), (Some(cause), Err(cause)));
    let first = step_from(&FramePointer, STACK, true, &words);
    assert_eq!(first.row.map(|r| r.source.fallback), Ok(None));
}
