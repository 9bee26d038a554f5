//! `replay --confirm` as text: how far a resumed thread got, and which frames it confirmed.

use crate::text::plural;
use std::fmt::Write as _;
use unwind_sim_judge::confirm::{Counts, Judgement, Resumed, call_name};
use unwind_sim_recordings::names::Location;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::chain::Frame;
use unwind_sim_unwind::image::AddressSpace;

/// How far a resumed thread got.
pub fn resumed_text(space: &AddressSpace, resumed: &Resumed) -> String {
    let (n, returns) = (resumed.instructions, resumed.returns.len());
    let place = Location::at(space, resumed.rip);
    let mut out = format!(
        "resumed: {n} instruction{}, {returns} return{} out of the stack; stopped at {:#x} {place}: {}\n",
        plural(n),
        plural(returns as u64),
        resumed.rip,
        resumed.end
    );
    let assumed: u64 = resumed.assumed.values().sum();
    if assumed > 0 {
        let of = |(&number, count): (&u64, &u64)| format!("{} {count}", call_name(number));
        let calls: Vec<String> = resumed.assumed.iter().map(of).collect();
        let _ = writeln!(
            out,
            "  {assumed} assumed result{} of system calls: {}; {} interrupted",
            plural(assumed),
            calls.join(", "),
            resumed.interrupted
        );
    }
    out
}

/// A summary line for the frames of a chain, and a line for each frame that is contradicted.
pub fn judgement_text(space: &AddressSpace, frames: &[Frame], judged: &[Judgement]) -> String {
    let Counts {
        callers,
        confirmed,
        confirmed_assumed,
        contradicted,
        unjudged,
    } = Counts::of(judged);

    // A system call that was not made, but whose result was assumed, may have changed the way that
    // execution took.
    let behind = match confirmed_assumed {
        0 => String::new(),
        n => format!(" ({n} after assumed results)"),
    };

    let mut out = format!(
        "  of {callers} caller{}: {confirmed} confirmed{behind}, {contradicted} contradicted, {unjudged} unjudged\n",
        plural(callers),
    );

    // Only contradictions have a line: that a frame was confirmed is in the count.
    for (index, (frame, judgement)) in frames.iter().zip(judged).enumerate() {
        let Judgement::Contradicted(reached) = judgement else {
            continue;
        };

        // A return address lies behind its call, so the function is looked up within the call.
        let pc = CodeAddress::Return(reached.to);
        let place = Location::of(space, pc);
        // A call pushes the return address right below the caller's rsp (Intel SDM volume 2, CALL).
        let slot = frame.sp.wrapping_sub(8);
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "  frame {index}: its return address should be at {slot:#x}, but from {:#x} execution \
             returned to {:#x} {place}",
            reached.slot, reached.to,
        );
    }

    out
}
