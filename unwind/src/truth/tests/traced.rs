//! Return addresses that a tracer has taken.

use super::*;

const RETHOOK: u64 = TRACERS[0];
const GRAPH: u64 = TRACERS[1];

impl super::Machine {
    /// A tracer puts its own address in place of the innermost return address.
    fn take(&mut self, tracer: u64) {
        let slot = self.cpu.rsp;
        self.words.0.insert(slot, tracer);
        self.tracker.take_return(slot, true);
    }

    /// What the trampoline of kretprobes does: it keeps a place for the return address, and another
    /// function puts that there.
    fn return_by_rethook(&mut self, to: u64) {
        self.push(RETHOOK);
        let slot = self.cpu.rsp;
        self.push(0);
        self.push(slot);
        self.call(F);
        self.ret();
        self.words.0.insert(slot, to);
        self.add_sp(16);
        self.ret();
    }
}

#[test]
fn a_kretprobe_returns_for_the_function() {
    let mut m = Machine::new();
    let outer = m.call(F);
    let back = m.call(G);
    m.take(RETHOOK);
    assert!(m.tracker.frames()[1].is_taken());
    assert_eq!(m.callers(), [back, outer]);
    let inner = m.call(FAR);
    assert_eq!(m.callers(), [inner, back, outer]);
    m.ret();
    m.ret();
    // The function has returned, but the tracer has not.
    assert_eq!((m.cpu.rip, m.callers()), (RETHOOK, vec![back, outer]));
    let cfa = m.cpu.rsp;
    m.push(RETHOOK);
    assert_eq!(m.callers(), [back, outer]);
    assert_eq!(
        (m.tracker.frames()[1].slot, m.tracker.frames()[1].cfa),
        (cfa - 8, cfa)
    );
    m.pop();
    m.return_by_rethook(back);
    assert_eq!((m.cpu.rip, m.callers()), (back, vec![outer]));
    m.ret();
    assert_eq!(
        (m.stats().failures(), m.stats().unknown, m.stats().dropped),
        (0, 0, 0)
    );
    assert_eq!((m.stats().calls, m.stats().returns), (4, 4));
}

/// `return_to_handler` calls over the next instructions, writes the return address and returns by it.
#[test]
fn the_function_graph_tracer_returns_for_the_function() {
    let mut m = Machine::new();
    let outer = m.call(F);
    let back = m.call(G);
    m.take(GRAPH);
    m.ret();
    assert_eq!((m.cpu.rip, m.callers()), (GRAPH, vec![back, outer]));
    m.add_sp(-24);
    m.call(F);
    m.ret();
    m.add_sp(24);
    assert_eq!(m.callers(), [back, outer]);
    let rop = m.call(GRAPH + 0x40);
    assert_eq!(m.callers(), [rop, back, outer]);
    m.store_top(back);
    m.ret();
    assert_eq!((m.cpu.rip, m.callers()), (back, vec![outer]));
    m.ret();
    assert_eq!((m.stats().failures(), m.stats().unknown), (0, 0));
}

#[test]
fn one_tracer_returns_to_another() {
    let mut m = Machine::new();
    let outer = m.call(F);
    let back = m.call(G);
    m.take(GRAPH);
    m.take(RETHOOK);
    m.ret();
    m.return_by_rethook(GRAPH);
    assert_eq!((m.cpu.rip, m.callers()), (GRAPH, vec![back, outer]));
    m.call(GRAPH + 0x40);
    m.store_top(back);
    m.ret();
    assert_eq!((m.cpu.rip, m.callers()), (back, vec![outer]));
    assert_eq!((m.stats().failures(), m.stats().unknown), (0, 0));
}

#[test]
fn a_tracer_may_give_back_what_it_has_taken() {
    let mut m = Machine::new();
    let outer = m.call(F);
    m.take(RETHOOK);
    m.words.0.insert(m.cpu.rsp, outer);
    m.tracker.take_return(m.cpu.rsp, false);
    assert!(!m.tracker.frames()[0].is_taken());
    m.ret();
    assert_eq!(
        (m.cpu.rip, m.callers(), m.stats().returns),
        (outer, vec![], 1)
    );
}

/// What `ftrace_regs_caller` of Linux does: it stores the address of other code above rsp, and returns to
/// it. Only a kernel does so, and only where no call was.
#[test]
fn a_kernel_may_jump_by_a_word_below_its_return_address() {
    for (is_kernel, is_call, failures) in [(true, false, 0), (true, true, 1), (false, false, 1)] {
        let mut m = Machine::new();
        m.words.2 = is_kernel;
        let outer = m.call(F);
        m.add_sp(-8);
        m.call(G);
        m.ret();
        m.words.0.insert(m.cpu.rsp, FAR);
        // A call of 5 bytes in front of the target.
        let before = if is_call { 0xe8 << 24 } else { 0 };
        m.words.0.insert(FAR - 8, before);
        m.ret();
        assert_eq!(m.stats().failures(), failures, "{is_kernel} {is_call}");
        if failures == 0 {
            assert_eq!((m.cpu.rip, m.callers()), (FAR, vec![outer]));
            m.ret();
            assert_eq!((m.stats().unknown, m.stats().failures()), (0, 0));
        }
    }
}

/// A trampoline of BPF, which the function calls first: it calls the rest of the function, and returns to
/// its caller.
#[test]
fn a_kernels_trampoline_skips_a_frame() {
    let mut m = Machine::new();
    m.words.2 = true;
    let outer = m.call(F);
    let rest = m.call(FAR);
    m.call(rest);
    m.ret();
    m.add_sp(8);
    assert_eq!(m.callers(), [outer]);
    m.ret();
    assert_eq!((m.stats().unknown, m.stats().failures()), (0, 0));
    assert_eq!(m.callers(), []);
}
