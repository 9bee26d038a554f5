//! Kernel stacks as text: states, walks as the kernel prints them, callchains as perf does.

use std::fmt::Write as _;
use unwind_sim_judge::engine::Outcome;
use unwind_sim_judge::kernel::{
    ADDRESSES_MAX, Agreement, PerfChain, PerfWrong, Printed, compare_states, wrong_user_regs,
};
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::kernel::trace::{Line, Unreliable};
use unwind_sim_unwind::kernel::{
    CallchainEntry, CallchainOptions, Hijack, KernelUnwinder, RegsPtr, StackType, State, UserFound,
    UserWalk,
};
use unwind_sim_unwind::printable::{Printable, printable};
use unwind_sim_unwind::start::Variant;

/// A paragraph that compares our states with those that the kernel recorded. `None` if it recorded
/// none for this unwinder, or the sample cannot start this way.
pub(crate) fn recorded_states(
    view: &View<'_>,
    unwinder: &KernelUnwinder,
    variant: Variant,
) -> Option<String> {
    let Some(first) = compare_states(view, unwinder, variant)? else {
        let n = view.sample.kernel.as_ref()?.states.len();
        return Some(format!("the kernel recorded the same {n} states\n"));
    };
    let line = |state: Option<State>| {
        state.map_or("none".to_owned(), |state| state_line(&state, view.space))
    };
    Some(format!(
        "state {} differs from the kernel's\n  ours    {}\n  kernel  {}\n",
        first.number,
        line(first.ours),
        line(first.recorded)
    ))
}

/// What a walk took for the registers of user space, and the true ones. `None` if they are right or
/// not known.
pub(crate) fn wrong_user_regs_text(view: &View<'_>, outcome: &Outcome) -> Option<String> {
    let (found, boundary) = wrong_user_regs(view, outcome)?;
    let kernel = view.sample.kernel.as_ref()?;
    let places = boundary.places(&kernel.task).map(|at| format!("{at:#x}"));
    let places: Vec<String> = places.collect();
    Some(format!(
        "took ip {:#x}, sp {:#x} at {:#x} for the user registers; the true ones are ip {:#x}, \
         sp {:#x}, saved at {}",
        found.ip,
        found.sp,
        found.at,
        boundary.ip,
        boundary.sp,
        places.join(" or ")
    ))
}

/// A state as one line, with the field names of `struct unwind_state`.
pub(crate) fn state_line(state: &State, space: &AddressSpace) -> String {
    // The field names and flags are the kernel's own, so that a line can be compared with a
    // debugger's.
    let (stack, mask) = state.stack();
    let head = format!("{} mask {mask:#x}", stack.kind);
    let pointer = |regs: RegsPtr| match regs {
        RegsPtr::None => "0".to_owned(),
        RegsPtr::Start => "those of the start".to_owned(),
        RegsPtr::At(address) => format!("{address:#x}"),
    };
    let flag = |flag: bool, name: &str| {
        if flag {
            format!(" {name}")
        } else {
            String::new()
        }
    };

    match state {
        State::Orc(s) => format!(
            "{head} ip {:#x} {} sp {:#x} bp {:#x} regs {} prev_regs {}{}{}{}",
            s.ip,
            // Without `signal`, ip is a return address, and is looked up within the call.
            Location::at(space, s.ip.wrapping_sub(u64::from(!s.signal))),
            s.sp,
            s.bp,
            pointer(s.regs),
            pointer(s.prev_regs),
            flag(s.signal, "signal"),
            flag(s.full_regs, "full_regs"),
            flag(s.error, "error")
        ),
        State::Fp(s) => format!(
            "{head} ip {:#x} {} bp {:#x} next_bp {:#x} orig_sp {:#x} regs {}{}{}",
            s.ip,
            Location::at(space, s.ip.wrapping_sub(1)),
            s.bp,
            s.next_bp,
            s.orig_sp,
            pointer(s.regs),
            flag(s.got_irq, "got_irq"),
            flag(s.error, "error")
        ),
        State::Guess(s) => format!("{head} sp {:#x}", s.sp),
    }
}

/// A walk as the kernel prints it.
pub fn printed(view: &View<'_>, walk: &Printed) -> String {
    // Every address of a printed walk is taken for a return address.
    let place = |address: u64| Location::of(view.space, CodeAddress::Return(address)).to_string();

    let list = |addresses: &[u64]| {
        let mut out = String::new();
        for &address in addresses {
            let _ = writeln!(out, "  {address:x} {}", place(address));
        }
        out
    };

    match walk {
        // A walk for live patching says whether it can be relied on; only a trace has stacks and
        // registers in it.
        Printed::StackWalk(addresses) => list(addresses),
        Printed::Reliable(Ok(addresses)) => list(addresses) + "  reliable\n",
        Printed::Reliable(Err(why)) => format!("  not reliable: {}\n", unreliable(*why)),
        Printed::Trace(lines) => {
            let mut out = "Call Trace:\n".to_owned();
            for line in lines {
                let _ = match *line {
                    Line::StackBegin(kind) => writeln!(out, " <{}>", stack_name(kind)),
                    Line::StackEnd(kind) => writeln!(out, " </{}>", stack_name(kind)),
                    Line::Regs(regs) => {
                        let part = if regs.partial {
                            "iret registers"
                        } else {
                            "registers"
                        };
                        let at = regs.at.address().unwrap_or(0);
                        writeln!(out, " {part} at {at:#x}")
                    }

                    // The kernel prints `?` before what it found on the stack, but did not unwind
                    // to.
                    Line::Address { address, reliable } => {
                        let mark = if reliable { "" } else { "? " };
                        writeln!(out, " {mark}{}", place(address))
                    }
                };
            }
            out
        }
    }
}

fn stack_name(kind: StackType) -> &'static str {
    match kind {
        StackType::Entry => "ENTRY_TRAMPOLINE",
        other => other.as_str(),
    }
}

fn unreliable(why: Unreliable) -> String {
    match why {
        Unreliable::Error(reason) => format!("{} {reason}", reason.code()),
        Unreliable::KernelRegs => "registers of the kernel are on the stack".to_owned(),
        Unreliable::NotText(address) => format!("{address:#x} is not kernel text"),
        Unreliable::TooMany => format!("more than {ADDRESSES_MAX} addresses"),
    }
}

/// What is wrong with the kernel part of a callchain.
pub fn perf_wrong(wrong: PerfWrong) -> String {
    match wrong {
        PerfWrong::Judged { verdict, cause } => format!(
            "the kernel part is {} ({verdict}): {cause} {}",
            verdict.as_str(),
            cause.description()
        ),
        PerfWrong::Recorded(at) => {
            format!("address {at} of the kernel part differs from what the kernel's unwinder gave")
        }
    }
}

/// What is wrong with, or not known of, a callchain that perf recorded too.
pub fn perf_difference(agreement: Agreement) -> Option<String> {
    match agreement {
        Agreement::Equal | Agreement::Fits(_) => None,
        Agreement::Cut(most) => Some(format!(
            "as perf recorded up to {most} addresses; whether the kernel was asked for more is not \
             recorded"
        )),
        Agreement::Taken(at) => Some(format!(
            "word {at} is the trampoline of a return probe; which address the kernel put back is not \
             recorded"
        )),
        Agreement::Different(at) => Some(format!("word {at} differs from what perf recorded")),
    }
}

/// The arguments of a callchain in a few words, as far as they are not the usual ones.
pub fn callchain_request(options: CallchainOptions) -> String {
    let parts = [
        (!options.kernel).then(|| "no kernel part".to_owned()),
        (options.user == UserWalk::None).then(|| "no user part".to_owned()),
        (!options.add_mark).then(|| "no markers".to_owned()),
        (options.max_stack != CallchainOptions::MAX_STACK)
            .then(|| format!("at most {} addresses", options.max_stack)),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The frames of a callchain, one per line.
pub fn callchain_lines(view: &View<'_>, chain: &PerfChain, indent: &str) -> String {
    let mut out = String::new();
    for entry in &chain.callchain.entries {
        let Some(place) = chain.place(view, entry) else {
            continue;
        };
        let image = Printable::new(place.image.as_deref().unwrap_or("[unknown]"));
        let ip = entry.value();
        let _ = match &place.function {
            Some(name) => {
                let (name, offset) = (Printable::new(name), place.offset);
                writeln!(out, "{indent}{ip:>16x} {name}+{offset:#x} ({image})")
            }
            None => writeln!(out, "{indent}{ip:>16x} [unknown] ({image})"),
        };
    }
    out
}

/// A sample in the format of `perf script`: a heading, a line for each frame, an empty line.
/// `event` is the text in place of the event name.
pub fn perf_script(view: &View<'_>, event: &str, chain: &PerfChain) -> String {
    let sample = view.sample;
    let name = view.task_name();
    // perf writes this for a thread whose name it does not know.
    let name = name.map_or_else(|| format!(":{}", sample.tid), |name| printable(name).into());
    let (seconds, rest) = (sample.time / 1_000_000_000, sample.time % 1_000_000_000);
    let (tid, micros) = (sample.tid, rest / 1000);
    let lines = callchain_lines(view, chain, "\t");
    format!("{name} {tid:>5} {seconds:>5}.{micros:06}: {event}: \n{lines}\n")
}

/// The callchain entry by entry, and why the user part ended.
pub(crate) fn explained(view: &View<'_>, chain: &PerfChain) -> String {
    let mut out = "the callchain that perf stores:\n".to_owned();

    // Context markers stay in the list, as perf stores them between the parts.
    for (i, entry) in chain.callchain.entries.iter().enumerate() {
        let ip = entry.value();
        let place = chain.place(view, entry).map(|p| p.to_string());
        let place = place.unwrap_or_default();

        let _ = match entry {
            CallchainEntry::Context(context) => {
                writeln!(out, "  {i:>3} {ip:>16x}  {}", context.as_str())
            }
            CallchainEntry::Kernel(number, _) => {
                writeln!(out, "  {i:>3} {ip:>16x}  {place}  [frame {number}]")
            }
            CallchainEntry::User(frame) => {
                let by = found_text(frame.found);

                // The kernel puts back what a return probe replaced, if it can.
                let taken = match frame.hijack {
                    Hijack::None => "",
                    Hijack::PutBack => ", put back: a return probe took it",
                    Hijack::Unknown => ", a return probe's trampoline: the address is not recorded",
                };
                writeln!(out, "  {i:>3} {ip:>16x}  {place}  [{by}{taken}]")
            }
        };
    }

    let _ = writeln!(out, "the user part ended: {}", chain.callchain.user);
    out
}

fn found_text(found: UserFound) -> String {
    match found {
        UserFound::Regs => "user's registers".to_owned(),
        UserFound::Entry { slot } => format!("uprobe at a function's entry, *sp, sp {slot:#x}"),
        UserFound::FramePointer { fp } => format!("frame at fp {fp:#x}"),
    }
}
