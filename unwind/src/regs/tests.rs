//! Register sets and their display.

use super::*;
use alloc::format;

#[test]
fn a_set_holds_each_register_once() {
    let set = RegMask::of(&[Reg::Rax, Reg::Rsp]);
    assert_eq!(set.with(Reg::Rax), set);
    let three = set.with(Reg::Rip);
    assert!(
        [Reg::Rax, Reg::Rsp, Reg::Rip]
            .iter()
            .all(|r| three.contains(*r))
    );
    assert_eq!(three.without(Reg::Rip), set);
    assert_eq!(set.without(Reg::Rip), set);
    assert_eq!(
        three.and(RegMask::of(&[Reg::Rip, Reg::Rbx])),
        RegMask::of(&[Reg::Rip])
    );
    let found: alloc::vec::Vec<Reg> = three.iter().collect();
    assert_eq!(found.len(), 3);
}

#[test]
fn known_registers_are_shown_with_their_values() {
    let regs = Regs::frame(0x10, 0x20, 0x30);
    let text = format!("{regs:?}");
    for part in ["\"rip\": 0x10", "\"rsp\": 0x20", "\"rbp\": 0x30"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("rax"), "{text}");
    assert_eq!(format!("{:?}", RegMask::of(&[Reg::Rbx])), "{\"rbx\"}");
}
