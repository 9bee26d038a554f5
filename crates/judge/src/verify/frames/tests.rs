//! Tests of what is wrong in a frame, as bits.

use super::*;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::reason::Code;

fn found(reg: Reg, given: Option<u64>, misread: bool) -> Contradiction {
    Contradiction {
        frame: 0,
        pc: CodeAddress::Instruction(1),
        code: Code::WrongRegister,
        reg,
        given,
        truth: 5,
        misread,
        reason: None,
        row: None,
    }
}

#[test]
fn each_contradiction_has_its_bit() {
    let given = Some(7);
    assert_eq!(wrong_in(&[]), 0);
    for (reg, bit) in [
        (Reg::Rsp, 1),
        (Reg::Rip, 2),
        (Reg::Rbx, 4),
        (Reg::Rbp, 8),
        (Reg::R12, 0x10),
        (Reg::R15, 0x80),
        // Not a register that a caller relies on.
        (Reg::Rax, 0x100),
    ] {
        assert_eq!(wrong_in(&[found(reg, given, false)]), bit, "{reg:?}");
        assert_eq!(wrong_in(&[found(reg, None, false)]), 0x100);
        assert_eq!(wrong_in(&[found(reg, None, true)]), 0x100);
        assert_eq!(wrong_in(&[found(reg, given, true)]), 0x200);
    }
    let several = [Reg::Rsp, Reg::Rip, Reg::Rbx, Reg::Rbx];
    let several = several.map(|reg| found(reg, given, false));
    assert_eq!(wrong_in(&several), 7);
}
