//! Return addresses that no call makes.

use super::*;
use crate::insn::Link;

/// A jump to a displacement.
fn jump_to(m: &mut Machine, target: u64) {
    m.step(Insn::Jump, target, m.cpu.rsp);
}

/// A conditional jump.
fn branch(m: &mut Machine, target: u64) {
    m.step(Insn::Other, target, m.cpu.rsp);
}

/// How the running function puts an address on its stack.
const PUTS: [fn(&mut Machine, u64); 4] = [
    |m, pc| m.push(pc),
    |m, pc| {
        m.add_sp(-8);
        m.store_top(pc);
    },
    |m, pc| {
        m.words.0.insert(m.cpu.rsp - 8, pc);
        m.step(Insn::StoreBelow { offset: -8 }, m.cpu.rip + 5, m.cpu.rsp);
        m.add_sp(-8);
    },
    |m, pc| {
        m.add_sp(-8);
        m.words.0.insert(m.cpu.rsp, pc);
        m.step(Insn::SwapTop, m.cpu.rip + 4, m.cpu.rsp);
    },
];

const JUMPS: [fn(&mut Machine, u64); 5] = [
    jump_to,
    branch,
    Machine::jump,
    |m, target| {
        m.push(target);
        m.ret();
    },
    // The address was taken before.
    |m, target| jump_linked(m, m.words.0[&m.cpu.rsp].min(m.cpu.rip + 0x1c), target),
];

#[test]
fn a_return_address_and_a_jump_are_a_call() {
    for (put, jump) in PUTS.iter().flat_map(|put| JUMPS.map(|jump| (put, jump))) {
        let mut m = Machine::new();
        let outer = m.call(F);
        m.push(1);
        let back = m.cpu.rip + 0x18;
        put(&mut m, back);
        jump(&mut m, G);
        assert_eq!(m.callers(), [back, outer]);
        let truth = m.tracker.truth(&m.cpu);
        assert_eq!(truth.frames()[0].cfa, m.cpu.rsp + 8);
        let inner = m.call(FAR);
        assert_eq!(m.callers(), [inner, back, outer]);
        m.ret();
        m.ret();
        assert_eq!((m.cpu.rip, m.callers()), (back, vec![outer]));
        m.pop();
        m.ret();
        assert_eq!((m.stats().unknown, m.stats().failures()), (0, 0));
        assert_eq!((m.stats().calls, m.stats().returns), (3, 3));
    }
}

#[test]
fn what_may_be_data_is_doubted_until_it_is_known() {
    for (put, jump) in PUTS.iter().flat_map(|put| JUMPS.map(|jump| (put, jump))) {
        let far = F + 0x900;
        let go = |m: &mut Machine| {
            let outer = m.call(F);
            m.push(1);
            put(m, far);
            assert_eq!(m.callers(), [outer]);
            jump(m, G);
            outer
        };

        // It is a return address: from then on, that is known.
        let mut m = Machine::new();
        for known in [false, true] {
            let outer = go(&mut m);
            assert_eq!(m.tracker.in_doubt(), !known);
            assert_eq!(m.tracker.truth(&m.cpu).is_complete(), known);
            let inner = m.call(FAR);
            let truth = m.tracker.truth(&m.cpu);
            assert_eq!(truth.is_complete(), known);
            assert_eq!((truth.frames()[1].pc, m.tracker.in_doubt()), (inner, false));
            assert_eq!(m.tracker.known().len(), if known { 3 } else { 1 });
            m.ret();
            m.ret();
            assert_eq!((m.cpu.rip, m.callers()), (far, vec![outer]));
            m.pop();
            m.ret();
        }
        assert_eq!((m.stats().returns, m.stats().failures()), (6, 0));

        // It is data: the same.
        let mut m = Machine::new();
        for known in [false, true] {
            let outer = go(&mut m);
            assert_eq!(m.tracker.in_doubt(), !known);
            m.pop();
            assert_eq!(m.callers(), [outer]);
            m.pop();
            m.ret();
        }
        assert_eq!((m.stats().returns, m.stats().failures()), (2, 0));
    }
}

#[test]
fn what_is_surely_data_makes_no_doubt() {
    // A saved register, the address by which the function was called or jumped to, that of another
    // function.
    let pushed = |saved: u64, value: u64| {
        let mut m = Machine::new();
        m.cpu.saved[2] = saved;

        let outer = m.call(F);
        m.push(value);
        jump_to(&mut m, F + 0x400);
        assert_eq!(m.callers(), [outer]);
        m.pop();
        m.ret();
        assert_eq!((m.stats().unknown, m.stats().failures()), (0, 0));
    };

    pushed(G + 0x123, G + 0x123);
    pushed(7, F);
    pushed(7, 8);
    pushed(7, STACK);

    let mut m = Machine::new();
    let outer = m.call(F);
    m.jump(G);
    // `endbr64`: a function starts here.
    m.words.0.insert(FAR + 0x40, 0xfa1e_0ff3);
    for value in [G, F, FAR + 0x40] {
        m.push(value);
        jump_to(&mut m, G + 0x10);
        assert_eq!(m.callers(), [outer]);
        m.add_sp(8);
    }

    // Words that are not at rsp, and a jump to the word itself.
    m.push(G + 0x456);
    m.push(1);
    jump_to(&mut m, G + 0x40);
    assert_eq!(m.callers(), [outer]);
    m.add_sp(8);
    m.jump(G + 0x456);
    assert_eq!(m.callers(), [outer]);
    m.add_sp(8);
    m.ret();
    assert_eq!((m.stats().unknown, m.stats().failures()), (0, 0));
}

#[test]
fn a_word_stored_in_an_aligned_frame_is_a_local_variable() {
    // glibc's `__libc_start_main` keeps the address of `main` at rsp.
    for (room, is_local) in [(-24, true), (-16, false)] {
        let mut m = Machine::new();
        let outer = m.call(F);
        m.add_sp(room);
        m.store_top(FAR + 0x123);
        jump_to(&mut m, F + 0x400);
        assert_eq!(m.tracker.in_doubt(), !is_local);
        m.add_sp(-room);
        assert_eq!(m.callers(), [outer]);
    }

    // It may be in this function, unless it is aligned as functions are.
    for (near, is_local) in [(F + 0x510, true), (F + 0x511, false)] {
        let mut m = Machine::new();
        m.call(F);
        m.add_sp(-24);
        m.store_top(near);
        jump_to(&mut m, F + 0x400);
        assert_eq!(m.tracker.in_doubt(), !is_local);
    }
    // Not where stacks are not aligned.
    let mut m = Machine::new();
    m.push(1);
    m.call(F);
    m.add_sp(-16);
    m.store_top(G + 0x123);
    jump_to(&mut m, F + 0x400);
    assert!(m.tracker.in_doubt());
}

#[test]
fn a_return_to_a_function_that_was_held_for_left_is_a_failure() {
    let mut m = Machine::new();
    let outer = m.call(F);
    m.push(1);
    m.push(F);
    jump_to(&mut m, G);
    assert_eq!(m.callers(), [outer]);
    m.ret();
    assert_eq!((m.cpu.rip, m.stats().failures()), (F, 1));
    assert_eq!(m.callers(), [outer]);
    // A function that was skipped by writing its return address, which it had read before.
    let mut m = Machine::new();
    m.call(F);
    let back = m.call(G);
    m.store_top(FAR);
    m.ret();
    m.jump(back);
    assert_eq!(m.stats().failures(), 1);
}

#[test]
fn an_own_return_address_is_pushed_again_before_a_direct_jump() {
    let mut m = Machine::new();
    let outer = m.call(F);
    m.push(1);
    let back = m.call(G);

    // The own return address below three words: the frame is now there.
    m.add_sp(-24);
    m.push(back);
    jump_to(&mut m, FAR);
    assert_eq!(m.callers(), [back, outer]);
    m.step(Insn::Ret, back, m.cpu.rsp + 8);
    assert_eq!((m.callers(), m.stats().failures()), (vec![outer], 0));

    // After arguments, of which one takes its place. Otherwise it may be an argument itself.
    for is_moved in [true, false] {
        let back = m.call(G);
        let own = m.cpu.rsp;
        m.push(1);
        m.push(back);
        if is_moved {
            m.words.0.insert(own, 2);
        }
        jump_to(&mut m, FAR);
        assert_eq!(m.tracker.in_doubt(), !is_moved);
        m.step(Insn::Ret, back, m.cpu.rsp + 24);
        assert_eq!(m.callers(), [outer]);
        m.add_sp(-8);
    }

    assert_eq!(m.stats().failures(), 0);
}

/// Jumps with a return address in a register.
fn jump_linked(m: &mut Machine, back: u64, target: u64) {
    let link = Link::new((back - m.cpu.rip) as i64, 0).expect("it fits");
    m.step(Insn::JumpLinked { link }, target, m.cpu.rsp);
}

#[test]
fn a_return_address_in_a_register_and_a_jump_are_a_call() {
    let mut m = Machine::new();
    let outer = m.call(G);
    m.push(1);
    let back = m.cpu.rip + 6;
    jump_linked(&mut m, back, F);
    assert_eq!(m.callers(), [back, outer]);
    let truth = m.tracker.truth(&m.cpu);
    assert_eq!(truth.frames()[0].cfa, m.cpu.rsp);
    let inner = m.call(FAR);
    assert_eq!(m.callers(), [inner, back, outer]);
    m.ret();
    m.jump(back);
    assert_eq!(m.callers(), [outer]);
    // It is pushed, and returned to.
    let back = m.cpu.rip + 6;
    jump_linked(&mut m, back, F);
    m.push(back);
    m.ret();
    m.pop();
    m.ret();
    assert_eq!((m.stats().returns, m.stats().calls), (4, 4));
    assert_eq!((m.stats().unknown, m.stats().failures()), (0, 0));
}

#[test]
fn a_register_that_was_changed_since_holds_no_return_address() {
    for (value, calls) in [(0, true), (5, false)] {
        let mut m = Machine::new();
        let outer = m.call(G);
        m.push(1);
        let back = m.cpu.rip + 6;
        m.cpu.saved[2] = back + value;
        let link = Link::new(6, 12).expect("it fits");
        m.step(Insn::JumpLinked { link }, F, m.cpu.rsp);
        let found = if calls {
            vec![back, outer]
        } else {
            vec![outer]
        };
        assert_eq!(m.callers(), found);
        if !calls {
            continue;
        }
        // It was none after all.
        m.pop();
        m.ret();
        assert_eq!((m.cpu.rip, m.stats().failures()), (outer, 1));
    }
}

#[test]
fn a_jump_over_data_may_be_a_call_by_a_register() {
    let mut m = Machine::new();
    for known in [false, true] {
        let outer = m.call(F);
        m.push(1);

        let back = m.cpu.rip + 6;
        jump_linked(&mut m, back, back + 0x20);
        assert_eq!(m.tracker.in_doubt(), !known);
        // It was data: the running function goes on, and returns.
        m.pop();
        m.ret();
        assert_eq!((m.cpu.rip, m.callers()), (outer, vec![]));
    }

    assert_eq!(m.stats().failures(), 0);

    let mut m = Machine::new();
    for known in [false, true] {
        let outer = m.call(F);
        m.push(1);

        let back = m.cpu.rip + 6;
        jump_linked(&mut m, back, back + 0x20);
        assert_eq!(m.tracker.in_doubt(), !known);
        // It was a call: the callee returns by the register.
        m.jump(back);
        assert_eq!(m.callers(), [outer]);
        m.pop();
        m.ret();
    }
    assert_eq!(m.stats().failures(), 0);
}

#[test]
fn a_saved_register_may_hold_a_return_address_at_an_indirect_jump() {
    let mut m = Machine::new();
    for known in [false, true] {
        let outer = m.call(F);
        m.push(1);

        let back = m.cpu.rip + 4;
        m.cpu.saved[4] = back;
        m.jump(FAR);
        assert_eq!(m.tracker.in_doubt(), !known);
        m.jump(back);
        assert_eq!(m.callers(), [outer]);
        m.cpu.saved[4] = 5;
        m.pop();
        m.ret();
    }

    // The caller's own, or a computed jump to just behind.
    m.call(F);
    let back = m.cpu.rip + 4;
    for target in [back, back + 0x20] {
        m.cpu.saved[4] = back;
        m.jump(target);
        assert!(!m.tracker.in_doubt());
        m.cpu.rip = F;
    }

    assert_eq!(m.stats().failures(), 0);
}

#[test]
fn a_return_address_is_read_by_a_pop_and_taken_back() {
    // OCaml 4's `caml_c_call`: `pop mem; sub $8, %rsp; jmp *%rax`.
    for jump in [Machine::jump, jump_to] {
        let mut m = Machine::new();
        let outer = m.call(F);
        m.push(1);
        let back = m.call(G);
        m.pop();
        assert_eq!(m.callers(), [back, outer]);
        m.add_sp(-8);
        assert_eq!(m.callers(), [back, outer]);
        jump(&mut m, FAR);
        assert_eq!(m.callers(), [back, outer]);
        m.push(2);
        let inner = m.call(FAR + 0x100);
        assert_eq!(m.callers(), [inner, back, outer]);
        m.ret();
        m.pop();
        m.ret();
        assert_eq!((m.cpu.rip, m.callers()), (back, vec![outer]));
        assert_eq!((m.stats().unknown, m.stats().failures()), (0, 0));
    }
}

#[test]
fn a_popped_return_address_may_be_discarded_or_used_by_another_function() {
    // HotSpot takes the address off the stack, and goes to the handler of an exception.
    let mut m = Machine::new();
    for known in [false, true] {
        let outer = m.call(F);
        m.push(1);

        m.call(G);
        m.pop();
        m.jump(FAR);
        assert_eq!(m.tracker.in_doubt(), !known);
        m.pop();
        m.ret();
        assert_eq!((m.cpu.rip, m.callers()), (outer, vec![]));
    }

    // The other function returns by the register.
    let mut m = Machine::new();
    for known in [false, true] {
        let outer = m.call(F);
        m.push(1);
        let back = m.call(G);
        m.pop();
        m.jump(FAR);
        assert_eq!(m.tracker.in_doubt(), !known);
        m.jump(back);
        assert_eq!((m.cpu.rip, m.callers()), (back, vec![outer]));
        m.pop();
        m.ret();
    }

    assert_eq!(m.stats().failures(), 0);
}

#[test]
fn a_return_address_that_was_only_read_is_doubted() {
    // `mov (%rsp), %rcx; add $8, %rsp; jmp *%rcx`
    let mut m = Machine::new();
    for known in [false, true] {
        let outer = m.call(F);
        m.push(1);
        let back = m.call(G);
        m.add_sp(8);
        assert_eq!(m.tracker.in_doubt(), !known);
        m.jump(back);
        assert_eq!(m.callers(), [outer]);
        m.pop();
        m.ret();
    }

    // It is discarded: the function returns to its caller's caller.
    let mut m = Machine::new();
    for known in [false, true] {
        let outer = m.call(F);
        m.call(G);
        m.add_sp(8);
        assert_eq!(m.tracker.in_doubt(), !known);
        m.ret();
        assert_eq!((m.cpu.rip, m.callers()), (outer, vec![]));
    }

    assert_eq!(m.stats().failures(), 0);
}

#[test]
fn a_return_address_that_a_register_holds_is_kept() {
    // `mov (%rsp), %r8; add $8, %rsp; jmp *%rdx`: boost.context.
    let mut m = Machine::new();
    let outer = m.call(F);
    let back = m.call(G);
    m.words.1 = Some(back);
    m.add_sp(8);
    assert!(!m.tracker.in_doubt());
    assert_eq!(m.callers(), [back, outer]);
    m.jump(back);
    assert_eq!(m.callers(), [outer]);
    m.ret();
    assert_eq!((m.stats().unknown, m.stats().failures()), (0, 0));
}

#[test]
fn a_function_that_a_retpoline_led_to_may_push_its_own_address() {
    // It is not aligned as functions are.
    let mut m = Machine::new();
    let outer = m.call(F);
    let thunk = m.call(G);
    m.call(G + 16);
    m.store_top(FAR + 8);
    m.ret();
    assert_eq!(m.callers(), [thunk, outer]);
    // Other functions are entered since.
    for number in 0..8 {
        m.call(G + 32);
        m.call(G + 48);
        m.store_top(FAR + 0x1008 + 16 * number);
        m.ret();
        m.ret();
    }
    m.push(FAR + 8);
    jump_to(&mut m, FAR + 0x10);
    assert!(!m.tracker.in_doubt());
    m.add_sp(8);
    m.ret();
    assert_eq!((m.stats().unknown, m.stats().failures()), (0, 0));
}

#[test]
fn a_return_address_is_swapped_with_a_register() {
    // `xchg %rax, (%rsp); ret`: another function goes on, and returns by rax.
    let mut m = Machine::new();
    for known in [false, true] {
        let outer = m.call(F);
        m.push(1);
        let back = m.call(G);

        m.words.0.insert(m.cpu.rsp, FAR);
        m.step(Insn::SwapTop, m.cpu.rip + 4, m.cpu.rsp);
        assert_eq!(m.callers(), [back, outer]);
        m.ret();
        assert_eq!((m.cpu.rip, m.tracker.in_doubt()), (FAR, !known));

        let inner = m.call(FAR + 0x100);
        assert_eq!(m.tracker.truth(&m.cpu).frames()[1].pc, inner);
        m.ret();
        m.jump(back);
        assert_eq!((m.cpu.rip, m.callers()), (back, vec![outer]));

        // And back again before the return.
        let back = m.call(G);
        for word in [FAR, back] {
            m.words.0.insert(m.cpu.rsp, word);
            m.step(Insn::SwapTop, m.cpu.rip + 4, m.cpu.rsp);
            assert_eq!(m.callers(), [back, outer]);
        }
        m.ret();
        m.pop();
        m.ret();
    }

    assert_eq!((m.stats().returns, m.stats().failures()), (8, 0));
}

#[test]
fn two_words_are_swapped_by_pops_and_pushes() {
    let mut m = Machine::new();
    let outer = m.call(F);
    m.push(FAR);
    let back = m.call(G);
    m.pop();
    m.pop();
    m.push(back);
    assert_eq!(m.callers(), [back, outer]);
    m.push(FAR);
    m.ret();
    assert_eq!((m.cpu.rip, m.callers()), (FAR, vec![back, outer]));
    m.ret();
    assert_eq!((m.callers(), m.stats().failures()), (vec![outer], 0));
}

#[test]
fn a_jump_out_of_several_frames_to_where_the_outermost_returns_leaves_them_all() {
    // GCC's `__builtin_longjmp` to a label behind the call that led here.
    let mut m = Machine::new();
    for _ in 0..3 {
        let outer = m.call(F);
        m.push(1);
        let back = m.call(G);
        let above = m.cpu.rsp + 8;
        m.push(2);
        m.call(G);
        m.push(3);
        m.add_sp(above.wrapping_sub(m.cpu.rsp).cast_signed());
        m.jump(back);
        assert_eq!(m.callers(), [outer]);
        m.pop();
        m.ret();
    }
    assert_eq!(m.stats().failures(), 0);
}
