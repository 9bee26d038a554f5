//! The true chain of a sample inside the true chain of the code that takes it.

use std::ops::Range;
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::truth::{TrueFrame, TrueKind, Truth};

/// Maximum length of the instruction that called a probe's code in place of the sampled one, bytes: a call of
/// ftrace, or what an optimized probe has overwritten.
const PROBED_MAX: u64 = 16;

/// The chain of the interrupted or probed code that has the registers `sampled`, inside `truth`, which is that of
/// the code that takes the sample. Unknown if it is not in there. `trampolines` is the code to which a probed
/// function returns instead of its caller; there the registers are those that the caller is going to have.
pub(crate) fn of_sampled(truth: &Truth, sampled: &Regs, trampolines: &[Range<u64>]) -> Truth {
    let (Some(ip), Some(sp)) = (sampled.get(Reg::Rip), sampled.get(Reg::Rsp)) else {
        return Truth::Unknown;
    };
    let frames = truth.frames();
    let is_it = |callee: &TrueFrame, frame: &TrueFrame| {
        // A callee's CFA is its caller's rsp. The probe of a function's entry is called behind the address
        // that its registers state.
        let is_there = match frame.kind {
            TrueKind::Top => false,
            TrueKind::Call => frame.pc.wrapping_sub(ip) <= PROBED_MAX,
            TrueKind::Interrupted | TrueKind::Trapped => frame.pc == ip,
        };
        // The trampoline runs in place of the caller, and has pushed what it needs.
        let is_trampoline = trampolines.iter().any(|code| code.contains(&frame.pc));
        let is_below = callee.cfa <= sp && (frame.cfa == 0 || sp < frame.cfa);
        is_there && callee.cfa == sp || is_trampoline && is_below
    };
    let mut pairs = frames.windows(2);
    match pairs.position(|pair| is_it(&pair[0], &pair[1])) {
        Some(at) => from(truth, at + 1, ip),
        None => Truth::Unknown,
    }
}

/// The chain from frame `first` on, whose next instruction is at `pc`.
pub(crate) fn from(truth: &Truth, first: usize, pc: u64) -> Truth {
    let Some(frames) = truth.frames().get(first..).filter(|f| !f.is_empty()) else {
        return Truth::Unknown;
    };
    let mut frames = frames.to_vec();
    frames[0].pc = pc;
    frames[0].kind = TrueKind::Top;
    match truth.is_complete() {
        true => Truth::Complete(frames),
        false => Truth::Known(frames),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn frame(pc: u64, cfa: u64, kind: TrueKind) -> TrueFrame {
        TrueFrame {
            pc,
            cfa,
            kind,
            saved: None,
        }
    }

    /// A handler and its callee, in interrupted code that was called once.
    fn frames() -> Vec<TrueFrame> {
        vec![
            frame(0x1000, 0x8010, TrueKind::Top),
            frame(0x2004, 0x8100, TrueKind::Call),
            frame(0x3000, 0x8180, TrueKind::Trapped),
            frame(0x4000, 0, TrueKind::Call),
        ]
    }

    #[test]
    fn the_chain_of_a_sample_begins_with_its_registers() {
        let truth = Truth::Complete(frames());
        let expected = |first: usize, pc| {
            let mut rest = frames()[first..].to_vec();
            (rest[0].pc, rest[0].kind) = (pc, TrueKind::Top);
            Truth::Complete(rest)
        };
        let interrupted = Regs::frame(0x3000, 0x8100, 0);
        assert_eq!(of_sampled(&truth, &interrupted, &[]), expected(2, 0x3000));
        // A probe at the entry of the function that returns to 0x2004.
        let probed = Regs::frame(0x2000, 0x8010, 0);
        assert_eq!(of_sampled(&truth, &probed, &[]), expected(1, 0x2000));

        // Neither another rsp nor another rip is that frame's.
        for other in [
            Regs::frame(0x3000, 0x8108, 0),
            Regs::frame(0x3001, 0x8100, 0),
            Regs::frame(0x1000, 0x8010, 0),
            Regs::UNKNOWN,
        ] {
            assert_eq!(of_sampled(&truth, &other, &[]), Truth::Unknown);
        }

        // What is not known up to the root stays so.
        let known = Truth::Known(frames());
        assert!(matches!(
            of_sampled(&known, &interrupted, &[]),
            Truth::Known(_)
        ));
        assert_eq!(
            of_sampled(&Truth::Unknown, &interrupted, &[]),
            Truth::Unknown
        );
        assert_eq!(from(&truth, 4, 0), Truth::Unknown);
    }
    /// A probed function has returned to the trampoline, which stands for its caller.
    #[test]
    fn a_trampoline_is_in_place_of_the_caller() {
        let truth = Truth::Complete(frames());
        // The caller's frame ends at 0x8100.
        let returned = Regs::frame(0x5000, 0x8080, 0);
        let trampoline = 0x2000..0x2010;
        let found = of_sampled(&truth, &returned, std::slice::from_ref(&trampoline));
        assert_eq!(found.frames()[0].pc, 0x5000);
        assert_eq!(found.frames()[1..], frames()[2..]);
        assert_eq!(of_sampled(&truth, &returned, &[]), Truth::Unknown);
        let outside = Regs::frame(0x5000, 0x8100, 0);
        let found = of_sampled(&truth, &outside, std::slice::from_ref(&trampoline));
        assert_eq!(found, Truth::Unknown);
    }
}
