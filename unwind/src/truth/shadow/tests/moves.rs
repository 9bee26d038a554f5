//! What ends a frame, and what only looks like it.

use super::*;

#[test]
fn other_changes_of_rsp_are_not_calls_pushes_or_pops() {
    // Interrupted before it was done, or with another operand: the words stay in place.
    let mut m = Machine::new();
    let insn = Insn::Call {
        len: CALL_LEN as u8,
        indirect: false,
    };
    m.step(insn, |at| at.cpu.rip = TEXT + 0x900);
    m.expect(&[]);
    let a = m.call(TEXT + 0x100);
    let slot = m.at.cpu.rsp;
    m.memory.insert(slot - 16, a);
    m.sp(Insn::Push, slot - 16);
    assert_eq!(m.truth().frames()[0].cfa, slot + 8);
    // `pop %rsp` pops no return address: the frame ends when rsp leaves it.
    m.sp(Insn::Other, slot);
    m.sp(Insn::Pop, slot - 0x40);
    m.expect(&[a]);
    m.sp(Insn::Other, slot + 8);
    m.expect(&[]);
}

#[test]
fn words_above_a_return_address_come_and_go() {
    let mut m = Machine::new();
    let a = m.call(TEXT + 0x100);
    let slot = m.at.cpu.rsp;
    // Popping another word, or returning to another address, keeps the frame.
    m.push(7);
    m.pop();
    m.push(TEXT + 0x500);
    m.ret();
    m.expect(&[a]);
    assert_eq!((m.at.cpu.rip, m.at.cpu.rsp), (TEXT + 0x500, slot));
    // A return to its own address in another place: the address was moved there.
    m.push(a);
    m.ret();
    m.expect(&[]);
}

#[test]
fn a_jump_ends_a_frame_only_by_its_popped_address() {
    for (pops, to, callers) in [(true, 0, 0), (true, 1, 1), (false, 0, 1)] {
        let mut m = Machine::new();
        let a = m.call(TEXT + 0x100);
        if pops {
            m.pop();
        }
        m.jump(a + to);
        m.expect(&[a][..callers]);
    }
}

#[test]
fn only_the_iret_of_an_interrupt_ends_it() {
    for (rip, rsp) in [(0, 8), (1, 0), (1, 8)] {
        let mut m = Machine::new();
        m.call(TEXT + 0x100);
        let left = m.interrupt(Some(IRQ + THREAD_SIZE));
        let inner = m.interrupt(Some(NMI + 0x2000));
        let mut to = inner;
        to.cpu.rip += rip;
        to.cpu.rsp -= rsp;
        m.iret(to);
        let frames = m.truth().frames().len();
        let trapped = m
            .truth()
            .frames()
            .iter()
            .filter(|f| f.kind == TrueKind::Trapped)
            .count();
        assert_eq!((frames, trapped), (4, 2), "{rip} {rsp}");
        m.at = inner;
        m.iret(left);
    }
}
