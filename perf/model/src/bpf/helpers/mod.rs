//! The helpers: the kernel's functions that programs call, by number.
//!
//! Source: `include/uapi/linux/bpf.h`, `kernel/bpf/helpers.c`, `kernel/trace/bpf_trace.c`,
//! Linux 6.18. A program that calls any other helper is refused when it is loaded.

mod callback;
mod maps;
mod memory;
mod output;
mod ring;
mod stack;
mod text;

use super::context::Context;
use super::errno::Errno;
use super::fault::FaultKind;
use super::maps::Map;
use super::names;
use super::vm::address::{Region, decode};
use super::vm::{Helpers, Vm};
pub use output::raw_payload;

/// All helpers, for the interpreter.
pub(crate) const ALL: Helpers = Helpers {
    call,
    tail_call: TAIL_CALL,
    tail_call_target: maps::tail_call_target,
};

/// `bpf_tail_call`.
const TAIL_CALL: i32 = 12;

/// The code of a helper. Arguments are in r1 to r5, the result goes to r0. An error is a fault of
/// the program; the kernel's error numbers are results.
type Helper = fn(&mut Vm<'_>) -> Result<u64, FaultKind>;

/// Who may call a helper.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AllowedCaller {
    All,
    /// Programs whose license is compatible with the GPL.
    Gpl,
    /// Handlers of perf events.
    PerfEvent,
    /// Handlers of perf events whose license is compatible with the GPL.
    PerfEventGpl,
}

/// A helper: its number, who may call it, and what it does.
type Row = (i32, AllowedCaller, Helper);

/// All modelled helpers.
const TABLES: [&[Row]; 8] = [
    OWN,
    callback::HELPERS,
    maps::HELPERS,
    memory::HELPERS,
    output::HELPERS,
    ring::HELPERS,
    stack::HELPERS,
    text::HELPERS,
];

/// The helpers that only query the environment.
const OWN: &[Row] = &[
    (5, AllowedCaller::All, |vm| Ok(vm.env.time_ns())),
    (7, AllowedCaller::All, |vm| Ok(u64::from(vm.env.random()))),
    (8, AllowedCaller::All, |vm| Ok(u64::from(vm.env.cpu()))),
    (TAIL_CALL, AllowedCaller::All, |_| {
        Ok(Errno::Enoent.as_result())
    }),
    (14, AllowedCaller::All, current_pid_tgid),
    (15, AllowedCaller::All, current_uid_gid),
    (125, AllowedCaller::All, |vm| Ok(vm.env.boot_time_ns())),
    (174, AllowedCaller::PerfEvent, |vm| {
        Ok(vm.env.attach_cookie())
    }),
];

/// Whether a helper can be called.
pub(crate) enum Availability {
    /// It is modelled.
    Modelled {
        /// Whether the program must be under the GPL.
        gpl_only: bool,
        /// Its name.
        name: &'static str,
    },
    /// It is not modelled; its name if the kernel has it.
    Missing(Option<&'static str>),
}

fn find(number: i32) -> Option<&'static Row> {
    let mut all = TABLES.into_iter().flatten();
    all.find(|(found, ..)| *found == number)
}

pub(crate) fn availability(number: i32) -> Availability {
    match (find(number), names::helper(number)) {
        (Some((_, who, _)), Some(name)) => Availability::Modelled {
            gpl_only: matches!(who, AllowedCaller::Gpl | AllowedCaller::PerfEventGpl),
            name,
        },
        (_, name) => Availability::Missing(name),
    }
}

/// Calls a helper.
fn call(vm: &mut Vm<'_>, number: i32) -> Result<u64, FaultKind> {
    // The check at loading refused all others.
    let (_, who, helper) = find(number).ok_or(FaultKind::Opcode(super::insn::CALL))?;
    let is_handler = matches!(vm.context, Context::PerfEvent(_));
    if matches!(who, AllowedCaller::PerfEvent | AllowedCaller::PerfEventGpl) && !is_handler {
        return Err(FaultKind::NotPerfEvent(name(number)));
    }
    helper(vm)
}

fn name(number: i32) -> &'static str {
    names::helper(number).unwrap_or("helper")
}

/// Checks that argument 1 is the context.
fn context_argument(vm: &Vm<'_>, helper: &'static str) -> Result<(), FaultKind> {
    match decode(vm.reg(1)?) {
        Some((Region::Context, 0)) => Ok(()),
        _ => Err(FaultKind::Argument {
            helper,
            argument: 1,
        }),
    }
}

/// The map that an argument points to.
fn map_argument(vm: &Vm<'_>, helper: &'static str, argument: u8) -> Result<u32, FaultKind> {
    match decode(vm.reg(argument)?) {
        Some((Region::Map(map), 0)) if vm.maps.get(map as usize).is_some() => Ok(map),
        _ => Err(FaultKind::Argument { helper, argument }),
    }
}

/// The map of the number that [`map_argument`] gave.
fn map_of<'v>(
    vm: &'v mut Vm<'_>,
    map: u32,
    helper: &'static str,
) -> Result<&'v mut Map, FaultKind> {
    vm.maps.get_mut(map as usize).ok_or(FaultKind::Argument {
        helper,
        argument: 1,
    })
}

/// A size argument, of which the kernel takes 32 bits.
fn size_argument(vm: &Vm<'_>, helper: &'static str, argument: u8) -> Result<usize, FaultKind> {
    let size = vm.reg(argument)?;
    // The verifier requires a bound that is not negative.
    match u32::try_from(size) {
        Ok(size) if size <= 1 << 29 => Ok(size as usize),
        _ => Err(FaultKind::Argument { helper, argument }),
    }
}

/// The result of a helper that returns 0 or an error number.
fn status(result: Result<(), Errno>) -> u64 {
    result.map_or_else(Errno::as_result, |()| 0)
}

fn current_pid_tgid(vm: &mut Vm<'_>) -> Result<u64, FaultKind> {
    let task = vm.env.task();
    Ok(u64::from(task.pid) << 32 | u64::from(task.tid))
}

fn current_uid_gid(vm: &mut Vm<'_>) -> Result<u64, FaultKind> {
    let task = vm.env.task();
    Ok(u64::from(task.gid) << 32 | u64::from(task.uid))
}
