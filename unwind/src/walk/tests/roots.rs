//! Which ends are roots, and that walks reach them.

use super::*;

/// A finder whose table cannot mark roots.
struct Unmarked(Rows);

impl Finder for Unmarked {
    fn name(&self) -> &str {
        "unmarked"
    }
    fn carries(&self) -> RegMask {
        self.0.carries
    }
    fn find(&self, mapping: &Mapping, svma: u64, cache: &mut Cache) -> Result<RowId, Reason> {
        self.0.find(mapping, svma, cache)
    }
    fn marks_roots(&self, _: &AddressSpace, _: u64, _: &mut Cache) -> bool {
        false
    }
}

#[test]
fn a_root_that_was_found_was_marked_whatever_the_table_can() {
    let rows = Rows::new(vec![(0x1000, RSP16), (0x1800, Rule::OUTERMOST)]);
    let (finder, at) = (Unmarked(rows), start(pc(0x1100), STACK, 0));
    let root = chain_of(&finder, &at, &[0, pc(0x1900)]);
    assert_eq!(root.end, Reason::RootReached.into());
    let lost = chain_of(&finder, &at, &[0, 0]);
    assert_eq!(lost.end, End::unmarked(Reason::NotAtRoot));
    let marked = chain_of(&finder.0, &at, &[0, 0]);
    assert_eq!(marked.end, Reason::NotAtRoot.into());
}

/// A finder whose table marks roots only at one address.
struct MarkedAt(Rows, u64);

impl Finder for MarkedAt {
    fn name(&self) -> &str {
        "marked at"
    }
    fn carries(&self) -> RegMask {
        RegMask::FRAME
    }
    fn find(&self, mapping: &Mapping, svma: u64, cache: &mut Cache) -> Result<RowId, Reason> {
        self.0.find(mapping, svma, cache)
    }
    fn marks_roots(&self, _: &AddressSpace, address: u64, _: &mut Cache) -> bool {
        address == self.1
    }
}

/// The second walk is hot, and its fast loop goes on to the end.
#[test]
fn the_table_of_the_last_frame_with_a_caller_says_whether_it_marks_roots() {
    let words = [0, pc(0x1200), 0, pc(0x1300), 0, pc(0x5000)];
    let (space, at) = (space(), start(pc(0x1100), STACK, STACK));
    for (address, marks_roots) in [(0x1100, false), (0x11ff, false), (0x12ff, true)] {
        let finder = MarkedAt(Rows::all(RSP16), pc(address));
        let mut cache = Cache::new();
        for _ in 0..2 {
            let end = chain_in(&finder, &space, &at, &words, &mut cache).end;
            let address = pc(0x5000);
            assert_eq!(end.reason, Reason::NotText { address });
            assert_eq!(end.marks_roots, marks_roots, "{address:#x}");
        }
    }
}

/// Only the return address popped by `pop rdi` is no longer on the stack; one read from it still
/// is.
#[test]
fn sp_must_advance_where_the_return_address_is_read_from_the_stack() {
    let rule = Rule {
        ra: Value::at_cfa(0),
        ..Rule::call(Value::reg(Reg::Rsp, 0))
    };

    // With the return address at rsp and the CFA there, too, the walk would stand still.
    let chain = chain_of(
        &Rows::all(rule),
        &start(pc(0x1100), STACK, 0),
        &[pc(0x1200)],
    );
    let stuck = Reason::SpDidNotAdvance {
        from: STACK,
        to: STACK,
    };
    assert_eq!((pcs(&chain), chain.end.reason), (vec![pc(0x1100)], stuck));

    // Nor may sp go down if the address is in a register.
    let rule = Rule {
        ra: Value::reg(Reg::Rdi, 0),
        ..Rule::call(Value::reg(Reg::Rsp, -8))
    };

    let mut at = start(pc(0x1100), STACK, 0);
    at.regs.set(Reg::Rdi, pc(0x1900));
    let chain = chain_of(&Rows::all(rule), &at, &[]);
    let back = Reason::SpDidNotAdvance {
        from: STACK,
        to: STACK - 8,
    };
    assert_eq!((pcs(&chain), chain.end.reason), (vec![pc(0x1100)], back));
}
