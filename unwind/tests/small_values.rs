//! Addresses, registers and words: equality, display and lookup.

use unwind_sim_unwind::address::{CodeAddress, Lookup};
use unwind_sim_unwind::regs::{Reg, RegMask, Regs};
use unwind_sim_unwind::row::TableKind;

#[test]
fn a_return_address_is_named_by_the_call_before_it() {
    let (instruction, back) = (CodeAddress::Instruction(0x10), CodeAddress::Return(0x10));
    assert_eq!((instruction.value(), back.value()), (0x10, 0x10));
    assert_eq!(instruction.symbol_address(), 0x10);
    assert_eq!(back.symbol_address(), 0xf);
    assert_eq!(back.lookup(Lookup::InsideCall), 0xf);
    assert_eq!(instruction.lookup(Lookup::InsideCall), 0x10);
    assert!(instruction.is_instruction() && !back.is_instruction());
    assert_eq!(format!("{instruction:?}"), "Instruction(0x10)");
    assert_eq!(format!("{back:?}"), "Return(0x10)");
}

#[test]
fn registers_are_equal_if_the_same_are_known_with_the_same_values() {
    let regs = Regs::frame(1, 2, 3);
    assert_eq!(regs, Regs::frame(1, 2, 3));
    for other in [
        Regs::frame(9, 2, 3),
        Regs::frame(1, 9, 3),
        Regs::frame(1, 2, 9),
    ] {
        assert_ne!(regs, other);
    }
    let mut more = regs;
    more.set(Reg::Rax, 0);
    assert_ne!(regs, more);
    // The value of a forgotten register does not count.
    more.set(Reg::Rax, 7);
    more.forget(Reg::Rax);
    assert_eq!(regs, more);
    assert_eq!((regs.get(Reg::Rax), regs.get_or_zero(Reg::Rax)), (None, 0));
}

#[test]
fn a_set_of_registers_has_those_it_was_made_of() {
    for reg in Reg::ALL {
        let one = RegMask::of(&[reg]);
        assert_eq!(one, RegMask(1 << reg as u32), "{reg}");
        assert_eq!(one.iter().collect::<Vec<_>>(), [reg]);
        assert!(one.contains(reg) && !RegMask::NONE.contains(reg));
        assert_eq!(RegMask::NONE.with(reg), one);
        assert_eq!(one.without(reg), RegMask::NONE);
        assert_eq!(one.and(RegMask::ALL), one);
        assert!(!RegMask::ALL.without(reg).contains(reg));
    }
    assert_eq!(RegMask::of(&[]), RegMask::NONE);
    assert_eq!(RegMask::of(&Reg::ALL), RegMask::ALL);
}

#[test]
fn tables_have_distinct_names() {
    let kinds = [
        TableKind::EhFrame,
        TableKind::DebugFrame,
        TableKind::Sframe,
        TableKind::Orc,
        TableKind::FramePointer,
    ];
    let names: std::collections::BTreeSet<_> = kinds.iter().map(|k| k.as_str()).collect();
    assert_eq!(names.len(), kinds.len());
    assert!(!names.contains(""));
}
