//! Prints walks as the kernel does: `arch_stack_walk`, `arch_stack_walk_reliable`,
//! `show_trace_log_lvl`.

use super::with_walk;
use std::fmt::Write as _;
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::kernel::trace::{Line, Unreliable, show, stack_walk, stack_walk_reliable};
use unwind_sim_unwind::kernel::{KernelUnwinder, StackType};
use unwind_sim_unwind::start::Variant;

/// The maximum number of addresses of a printed walk (`MAX_STACK_ENTRIES` of livepatch is 100; the
/// limits of lockdep and stackdepot are smaller).
const ADDRESSES_MAX: usize = 1000;

/// How a walk is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Print {
    /// `arch_stack_walk`: the addresses.
    StackWalk,
    /// `arch_stack_walk_reliable`: the addresses, or why they are not reliable.
    Reliable,
    /// `show_trace_log_lvl`: every code address on the stacks, with a question mark before those
    /// that the unwinder did not give.
    Trace,
}

/// The walk of `unwinder` over a sample, printed.
pub fn printed(
    view: &View<'_>,
    unwinder: &KernelUnwinder,
    variant: Variant,
    print: Print,
    cache: &mut Cache,
) -> String {
    let place = |address: u64| Location::of(view.space, CodeAddress::Return(address)).to_string();
    let list = |addresses: &[u64]| {
        let mut out = String::new();
        for &address in addresses {
            let _ = writeln!(out, "  {address:x} {}", place(address));
        }
        out
    };
    let out = with_walk(
        view,
        unwinder,
        variant,
        cache,
        |kind, kernel, begin, finds| match print {
            Print::StackWalk => list(&stack_walk(kind, kernel, begin.from, ADDRESSES_MAX, finds)),
            Print::Reliable => {
                match stack_walk_reliable(kind, kernel, begin.from, ADDRESSES_MAX, finds) {
                    Ok(addresses) => list(&addresses) + "  reliable\n",
                    Err(why) => format!("  not reliable: {}\n", unreliable(why)),
                }
            }
            Print::Trace => {
                let mut out = "Call Trace:\n".to_owned();
                for line in show(kind, kernel, begin.from, finds) {
                    let _ = match line {
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
                        Line::Address { address, reliable } => {
                            let mark = if reliable { "" } else { "? " };
                            writeln!(out, " {mark}{}", place(address))
                        }
                    };
                }
                out
            }
        },
    );
    out.unwrap_or_else(|reason| format!("  not started: {reason}\n"))
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
        Unreliable::KernelRegs => "kernel registers are on the stack".to_owned(),
        Unreliable::NotText(address) => format!("{address:#x} is not kernel text"),
        Unreliable::TooMany => format!("more than {ADDRESSES_MAX} addresses"),
    }
}
