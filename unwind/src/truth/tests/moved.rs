//! Return addresses that the program pops, moves and pushes.

use super::*;

/// Code without a file.
const INTERPRETER: u64 = GENERATED.start;

#[test]
fn a_popped_return_address_outlives_a_rise_of_rsp() {
    // V8 drops the arguments of a call: `pop %rcx; lea (%rsp,%rdx,8), %rsp; push %rcx; ret`.
    for load in [false, true] {
        let mut m = Machine::new();
        let outer = m.call(F);
        m.push(1);
        m.push(2);

        let back = m.call(G);
        m.pop();

        if load {
            m.load_sp(m.cpu.rsp + 16)
        } else {
            m.add_sp(16)
        }
        assert_eq!(m.callers(), [back, outer]);

        // Pushed again, the frame has a slot: the word at rsp.
        m.push(back);
        let [.., held] = m.tracker.frames() else {
            panic!("no frame");
        };
        assert_eq!((held.slot, held.cfa), (m.cpu.rsp, m.cpu.rsp + 8));

        m.ret();
        assert_eq!((m.callers(), m.stats().returns), (vec![outer], 1));
        m.ret();
        assert_eq!((m.stats().returns, m.stats().failures()), (2, 0));
    }
}

#[test]
fn a_return_address_is_put_back_elsewhere() {
    // HotSpot aligns rsp for compiled code: `pop %rax; sub $24, %rsp; push %rax`, or it stores it.
    for store in [false, true] {
        let mut m = Machine::new();
        let outer = m.call(F);
        let back = m.call(G);
        m.pop();
        m.add_sp(-24);
        if store {
            m.store_top(back)
        } else {
            m.push(back)
        }
        m.jump(G + 0x1000);
        m.push(1);
        let inner = m.call(F + 0x100);
        assert_eq!(m.callers(), [inner, back, outer]);
        m.ret();
        m.pop();
        m.ret();
        assert_eq!((m.callers(), m.stats().returns), (vec![outer], 2));
        assert_eq!((m.stats().rewritten, m.stats().failures()), (0, 0));
    }
}

#[test]
fn an_interpreter_calls_by_a_push_and_a_jump() {
    let mut m = Machine::new();
    let outer = m.call(INTERPRETER);
    let sender = m.cpu.rsp - 8;
    m.push(7);

    let back = INTERPRETER + 0x400;
    m.push(back);
    m.jump(INTERPRETER + 0x800);
    assert_eq!(m.callers(), [back, outer]);

    // The method makes room for its locals above its return address.
    m.pop();
    m.push(0);
    m.push(0);
    m.push(back);
    m.push(5);
    let inner = m.call(F);
    assert_eq!(m.callers(), [inner, back, outer]);

    m.ret();
    m.pop();
    m.pop();
    // rsp as it was before the return address was pushed.
    m.load_sp(sender);
    assert_eq!(m.callers(), [back, outer]);

    m.jump(back);
    assert_eq!(m.callers(), [outer]);
    m.add_sp(8);
    m.ret();

    let stats = m.stats();
    assert_eq!((stats.calls, stats.returns), (3, 3));
    assert_eq!((stats.dropped, stats.failures()), (0, 0));
}

#[test]
fn a_pushed_address_is_a_call_only_if_it_may_be_one() {
    let call = |rip: u64, pushed: u64, target: u64, behind_call: bool| {
        let mut m = Machine::new();
        let outer = m.call(rip);

        if behind_call {
            m.words.0.insert(pushed - 8, 0xe8 << 24);
        }
        m.push(pushed);
        m.jump(target);
        m.callers() != [outer]
    };

    assert!(!call(INTERPRETER, 7, F, false));

    // A saved register with the address of a function, before a switch.
    for (rip, pushed, target) in [
        (F, G, F + 0x40),
        (F, INTERPRETER, F + 0x40),
        (INTERPRETER, G, F),
    ] {
        let mut m = Machine::new();
        m.cpu.saved[3] = pushed;
        let outer = m.call(rip);
        m.push(pushed);
        m.jump(target);
        assert_eq!((m.callers(), m.stats().unknown), (vec![outer], 0));
    }

    assert!(call(F, G, FAR, true));
    assert!(call(INTERPRETER, INTERPRETER + 0x40, G, false));

    let mut m = Machine::new();
    m.cpu.saved[0] = INTERPRETER + 0x40;
    let outer = m.call(INTERPRETER);
    m.push(INTERPRETER + 0x40);
    m.jump(G);
    assert_eq!(m.callers(), [outer], "a saved register");

    // What is at rsp was not pushed last: it may be one.
    let mut m = Machine::new();
    let outer = m.call(INTERPRETER);
    m.push(INTERPRETER + 0x40);
    m.push(1);
    m.add_sp(8);
    m.jump(INTERPRETER + 0x80);
    assert!(m.tracker.in_doubt());
    m.pop();
    assert_eq!(m.callers(), [outer]);

    // rsp is where the caller's return address is.
    m.store_top(INTERPRETER + 0x40);
    m.jump(INTERPRETER + 0x80);
    assert_eq!(m.callers(), [outer]);
}

#[test]
fn a_tail_call_with_fewer_arguments_moves_its_return_address_up() {
    let copied = |words: u64| {
        let mut m = Machine::new();
        let outer = m.call(F);
        m.push(1);
        m.push(2);
        let back = m.call(G);
        m.push(3);
        let up = 8 + 8 * words;
        m.words.0.insert(m.cpu.rsp + up, back);
        m.add_sp(up as i64);
        (m, back, outer)
    };

    // By two words, the copy is certain.
    let (mut m, back, outer) = copied(2);
    assert_eq!(m.callers(), [back, outer]);
    let truth = m.tracker.truth(&m.cpu);
    assert_eq!(truth.frames()[0].cfa, m.cpu.rsp + 8);
    m.ret();
    assert_eq!((m.callers(), m.stats().returns), (vec![outer], 1));
    assert_eq!((m.stats().dropped, m.stats().failures()), (0, 0));

    // By one word: the address may as well be in a register, and the word there an old one.
    for jumps in [false, true] {
        let (mut m, back, outer) = copied(1);
        assert!(m.tracker.in_doubt());
        if jumps {
            m.jump(FAR);
            assert_eq!(m.callers(), [back, outer]);
            let truth = m.tracker.truth(&m.cpu);
            assert_eq!(truth.frames()[0].cfa, m.cpu.rsp + 8);
        }
        m.ret();
        assert_eq!((m.callers(), m.stats().returns), (vec![outer], 1));
        assert_eq!((m.stats().dropped, m.stats().failures()), (0, 0));
    }
}

#[test]
fn an_old_return_address_above_a_popped_one_is_not_it() {
    let mut m = Machine::new();
    m.call(F);
    // One byte for the push, five for the call.
    let back = m.cpu.rip + 6;
    m.push(back);
    assert_eq!(m.call(G), back);
    m.pop();
    m.jump(FAR);
    m.push(back);
    let [.., held] = m.tracker.frames() else {
        panic!("no frame");
    };
    assert_eq!((held.slot, held.cfa), (m.cpu.rsp, m.cpu.rsp + 8));
    m.ret();
    assert_eq!((m.cpu.rip, m.stats().failures()), (back, 0));
}

#[test]
fn what_only_resembles_a_moved_return_address_is_none() {
    // Recursion: what is there is the return address of the caller's own frame.
    let mut m = Machine::new();
    m.call(F);
    let back = m.call(F);
    m.push(1);
    m.cpu.rip = back - 5;
    assert_eq!(m.call(F), back);
    m.add_sp(16);
    assert_eq!(m.callers(), [back, START + 5]);
    m.ret();
    assert_eq!((m.callers(), m.stats().dropped), (vec![START + 5], 1));
}

#[test]
fn a_tail_call_with_more_arguments_moves_its_return_address_down() {
    // V8: `push (%rsp)`. HotSpot aligns rsp for compiled code: `mov (%rsp), %rax; and $-16, %rsp;
    // push %rax`.
    for room in [0, 24] {
        let mut m = Machine::new();
        let outer = m.call(INTERPRETER);
        m.push(1);

        let back = m.call(INTERPRETER + 0x100);
        m.jump(INTERPRETER + 0x180);
        m.add_sp(-room);
        m.push(back);
        m.jump(INTERPRETER + 0x200);
        assert_eq!(m.callers(), [back, outer]);

        let truth = m.tracker.truth(&m.cpu);
        assert_eq!(truth.frames()[0].cfa, m.cpu.rsp + 8);

        // Recursion: the same address, but that of another call.
        m.push(1);
        m.push(back);
        m.jump(INTERPRETER + 0x200);
        assert_eq!(m.callers(), [back, back, outer]);

        m.ret();
        let inner = m.call(F);
        m.ret();
        m.push(back);
        m.jump(INTERPRETER + 0x200);
        assert_eq!(m.callers(), [back, back, outer]);
        m.ret();
        m.pop();
        m.ret();

        assert_ne!(inner, back);
        assert_eq!((m.callers(), m.stats().returns), (vec![outer], 4));
        assert_eq!((m.stats().dropped, m.stats().failures()), (0, 0));
    }
}

#[test]
fn a_return_by_an_address_that_was_popped_and_stored_unseen() {
    let mut m = Machine::new();
    let outer = m.call(F);
    let back = m.call(G);
    m.pop();
    m.add_sp(-32);
    m.words.0.insert(m.cpu.rsp + 8, back);
    m.add_sp(8);
    m.ret();
    assert_eq!((m.callers(), m.stats().returns), (vec![outer], 1));
    assert_eq!(m.stats().failures(), 0);
}

#[test]
fn a_return_address_is_read_before_rsp_leaves_it_and_pushed_again() {
    for load in [false, true] {
        let mut m = Machine::new();
        let outer = m.call(F);
        m.push(1);
        m.push(2);
        let back = m.call(G);
        m.push(3);

        if load {
            m.load_sp(m.cpu.rsp + 32)
        } else {
            m.add_sp(32)
        }

        m.push(back);
        assert_eq!(m.callers(), [back, outer]);

        m.ret();
        assert_eq!((m.callers(), m.stats().returns), (vec![outer], 1));
        assert_eq!((m.stats().dropped, m.stats().trampolines), (0, 0));

        // Another word, or something was called in between.
        let back = m.call(G);
        m.add_sp(16);
        m.push(1);
        m.push(back);
        assert_eq!(m.callers(), []);

        m.call(F);
        let back = m.call(G);
        m.add_sp(16);
        m.call(G);
        m.ret();
        m.push(back);
        assert_eq!(m.callers(), []);
    }
}

#[test]
fn code_builds_frames() {
    let mut m = Machine::new();
    let outer = m.call(F);
    let (first, second) = (G + 0x500, G + 0x600);
    let mut record = m.cpu.rsp - 8;

    // A word, a code address and a pointer to the last record: a frame each.
    for pc in [first, second] {
        m.push(1);
        m.push(pc);
        m.push(record);
        record = m.cpu.rsp;
    }

    // Calls and returns in between do not disturb them.
    m.add_sp(-16);
    m.call(F);
    m.ret();
    assert_eq!(m.callers(), [second, first, outer]);

    m.add_sp(24);
    for pc in [second, first] {
        m.ret();
        assert_eq!(m.cpu.rip, pc);
        m.add_sp(if pc == second { 16 } else { 8 });
    }
    assert_eq!((m.callers(), m.stats().failures()), (vec![outer], 0));

    // Saved registers: another code address, another pointer, or not below each other.
    let built_with = |rbx: u64, rip: u64, pc: u64, pointer: u64, apart: bool| {
        let mut m = Machine::new();
        m.cpu.saved[0] = rbx;
        m.cpu.saved[1] = 99;
        let outer = m.call(rip);
        m.push(1);
        m.push(pc);
        if apart {
            m.add_sp(-8);
        }
        m.push(pointer);
        m.callers() != [outer]
    };

    // A frame needs a code address and the pointer to the frame before, one below the other.
    let built = |rip, pc, pointer, apart| built_with(0, rip, pc, pointer, apart);
    let record = STACK - 16;
    assert!(built(F, G, record, false));
    assert!(!built(F, 7, record, false));
    assert!(!built(F, G, record + 8, false));
    assert!(!built(F, G, record, true));

    // In generated code: an address of its own, and rbp as it is.
    let pc = INTERPRETER + 0x500;
    assert!(built(INTERPRETER, pc, 99, false));
    assert!(!built(F, pc, 99, false));
    assert!(!built(INTERPRETER, G, 99, false));
    assert!(!built(INTERPRETER, pc, 98, false));

    // A prologue: push %rbx; push %rbp.
    assert!(!built_with(pc, INTERPRETER, pc, 99, false));
}

#[test]
fn a_pushed_address_is_returned_to_after_more_pushes() {
    // V8 goes to a builtin, which goes on in the interpreter.
    let mut m = Machine::new();
    let outer = m.call(F);
    m.push(G + 0x40);
    m.push(G);
    for _ in 0..3 {
        m.push(5);
    }
    m.add_sp(24);
    m.ret();
    assert_eq!((m.cpu.rip, m.callers()), (G, vec![G + 0x40, outer]));
    m.call(F);
    m.ret();
    m.ret();
    assert_eq!((m.cpu.rip, m.callers()), (G + 0x40, vec![outer]));
    assert_eq!((m.stats().trampolines, m.stats().failures()), (1, 0));
    // A word that was not pushed.
    m.add_sp(-24);
    m.words.0.insert(m.cpu.rsp, G);
    m.ret();
    assert_eq!(m.stats().unheld, 1);
}

#[test]
fn a_return_address_is_written_through_the_frame_pointer() {
    let mut m = Machine::new();
    let outer = m.call(F);
    m.call(G);
    let slot = m.cpu.rsp;
    m.push(1);
    m.cpu.saved[1] = m.cpu.rsp;
    m.words.0.insert(slot, F + 0x40);
    m.step(Insn::StoreFrame, m.cpu.rip + 4, m.cpu.rsp);
    m.pop();
    m.ret();
    assert_eq!((m.callers(), m.stats().rewritten), (vec![outer], 1));
    assert_eq!(m.stats().failures(), 0);
    // Another object.
    m.call(G);
    m.cpu.saved[1] = m.cpu.rsp;
    m.step(Insn::StoreFrame, m.cpu.rip + 4, m.cpu.rsp);
    m.words.0.insert(m.cpu.rsp, F + 0x40);
    m.ret();
    assert_eq!(m.stats().mismatched, 1);
}

/// An NMI at each instruction, whose handler has a stack farther up or farther down.
#[test]
fn a_kernel_moves_a_return_address_while_nmis_come() {
    for frame in [HIGHER, OTHER] {
        for interrupted in 0..5 {
            let mut m = Machine::new();
            m.words.2 = true;
            let outer = m.call(F);
            let inner = m.call(G);
            let slot = m.cpu.rsp;
            for number in 0..5 {
                match number {
                    0 => m.push(1),
                    1 => {
                        m.words.0.insert(slot, 7);
                        m.step(Insn::Other, m.cpu.rip + 5, m.cpu.rsp);
                    }
                    2 => m.push(FAR),
                    3 => m.push(inner),
                    _ => {}
                }
                if number == interrupted {
                    let at = m.trap(FAR, frame);
                    m.push(3);
                    m.call(F);
                    m.push(4);
                    m.pop();
                    m.ret();
                    m.pop();
                    m.iret(&at);
                }
            }
            assert_eq!(m.callers(), [inner, outer], "{frame:#x} {interrupted}");
            m.ret();
            assert_eq!((m.cpu.rip, m.callers()), (inner, vec![outer]));
            assert_eq!((m.stats().failures(), m.stats().unknown), (0, 0));
            assert!(!m.tracker.in_doubt(), "{frame:#x} {interrupted}");
        }
    }
}

/// Linux's `error_entry`: it reads its return address, uses the slot for a register, and pushes the address
/// below all registers. Any other code address that a kernel pushes is data.
#[test]
fn a_kernel_moves_a_return_address_below_its_registers() {
    let mut m = Machine::new();
    m.words.2 = true;
    let outer = m.call(F);
    let bottom = m.cpu.rsp;
    let inner = m.call(G);
    let slot = m.cpu.rsp;
    m.push(1);
    m.words.0.insert(slot, 7);
    m.step(Insn::Other, m.cpu.rip + 5, m.cpu.rsp);
    m.push(FAR);
    m.push(inner);
    assert_eq!(m.callers(), [inner, outer]);
    m.ret();
    assert_eq!((m.cpu.rip, m.callers()), (inner, vec![outer]));
    assert_eq!((m.stats().failures(), m.stats().trampolines), (0, 0));
    // A copy of an address that is where it was is data, too.
    m.push(outer);
    assert_eq!(m.callers(), [outer]);
    m.add_sp((bottom - m.cpu.rsp).cast_signed());
    m.ret();
    assert_eq!((m.callers(), m.stats().unknown), (vec![], 0));
}
