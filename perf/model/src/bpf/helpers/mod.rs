//! The kernel's functions that programs call, by number.
//!
//! Source: `include/uapi/linux/bpf.h`, `kernel/bpf/helpers.c`, `kernel/trace/bpf_trace.c`,
//! Linux 6.18. A helper that is not here is refused when a program is loaded, by its name.

mod callback;
mod maps;
mod memory;
mod output;
mod ring;
mod stack;
mod text;

use super::context::Context;
use super::env::Space;
use super::errno::Errno;
use super::fault::FaultKind;
use super::names;
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

/// What a helper does: arguments are in r1 to r5, the result goes to r0. An error is a fault of
/// the program; the kernel's error numbers are results.
type Helper = fn(&mut Vm<'_>) -> Result<u64, FaultKind>;

/// Who may call a helper.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    All,
    /// Programs whose license is compatible with the GPL.
    Gpl,
    /// Handlers of perf events.
    PerfEvent,
    /// Those of them under the GPL.
    PerfEventGpl,
}

/// All helpers that are here, by number.
const HELPERS: &[(i32, For, Helper)] = &[
    (1, For::All, maps::lookup),
    (2, For::All, maps::update),
    (3, For::All, maps::delete),
    (4, For::Gpl, |vm| memory::probe_read(vm, Space::Any)),
    (5, For::All, |vm| Ok(vm.env.time_ns())),
    (6, For::Gpl, text::trace_printk),
    (7, For::All, |vm| Ok(u64::from(vm.env.random()))),
    (8, For::All, |vm| Ok(u64::from(vm.env.cpu()))),
    (TAIL_CALL, For::All, |_| Ok(Errno::Enoent.as_result())),
    (14, For::All, current_pid_tgid),
    (15, For::All, current_uid_gid),
    (16, For::All, memory::current_comm),
    (25, For::Gpl, output::perf_event_output),
    (27, For::Gpl, stack::get_stackid),
    (45, For::Gpl, |vm| memory::probe_read_str(vm, Space::Any)),
    (56, For::PerfEventGpl, output::prog_read_value),
    (67, For::Gpl, stack::get_stack),
    (112, For::Gpl, |vm| memory::probe_read(vm, Space::User)),
    (113, For::Gpl, |vm| memory::probe_read(vm, Space::Kernel)),
    (114, For::Gpl, |vm| memory::probe_read_str(vm, Space::User)),
    (115, For::Gpl, |vm| {
        memory::probe_read_str(vm, Space::Kernel)
    }),
    (119, For::PerfEventGpl, output::read_branch_records),
    (125, For::All, |vm| Ok(vm.env.boot_time_ns())),
    (130, For::All, ring::output),
    (131, For::All, ring::reserve),
    (132, For::All, |vm| ring::release(vm, true)),
    (133, For::All, |vm| ring::release(vm, false)),
    (134, For::All, ring::query),
    (164, For::All, callback::for_each_map_elem),
    (174, For::PerfEvent, |vm| Ok(vm.env.attach_cookie())),
    (176, For::Gpl, output::get_branch_snapshot),
    (181, For::All, callback::rounds),
    (182, For::All, text::strncmp),
    (195, For::All, maps::lookup_percpu),
];

/// Whether a helper can be called.
pub(crate) enum Availability {
    /// It is here.
    Modelled {
        /// Whether the program must be under the GPL.
        gpl_only: bool,
        /// Its name.
        name: &'static str,
    },
    /// It is not; its name if the kernel has it.
    Missing(Option<&'static str>),
}

fn find(number: i32) -> Option<&'static (i32, For, Helper)> {
    HELPERS.iter().find(|(found, ..)| *found == number)
}

pub(crate) fn availability(number: i32) -> Availability {
    match (find(number), names::helper(number)) {
        (Some((_, who, _)), Some(name)) => Availability::Modelled {
            gpl_only: matches!(who, For::Gpl | For::PerfEventGpl),
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
    if matches!(who, For::PerfEvent | For::PerfEventGpl) && !is_handler {
        return Err(FaultKind::NotPerfEvent(name(number)));
    }
    helper(vm)
}

fn name(number: i32) -> &'static str {
    names::helper(number).unwrap_or("helper")
}

/// The context as argument 1.
fn context_argument(vm: &Vm<'_>, helper: &'static str) -> Result<(), FaultKind> {
    use super::vm::address::{Region, decode};
    match decode(vm.reg(1)?) {
        Some((Region::Context, 0)) => Ok(()),
        _ => Err(FaultKind::Argument {
            helper,
            argument: 1,
        }),
    }
}

/// A size as argument, which the kernel takes as 32 bits.
fn size_argument(vm: &Vm<'_>, helper: &'static str, argument: u8) -> Result<usize, FaultKind> {
    let size = vm.reg(argument)?;
    // The verifier wants to see a bound that is no negative number.
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
