//! `struct unwind_state` as JSON.

use crate::own::hex;
use schemars::JsonSchema;
use serde::Serialize;
use unwind_sim_unwind::event::Event;
use unwind_sim_unwind::kernel::{RegsPtr, StackInfo, State};

/// A state of one of a kernel's unwinders, with the names of its fields.
#[derive(Serialize, JsonSchema)]
pub struct StateLine {
    /// It was passed on the way to the mark.
    skipped: bool,
    /// `stack_info`
    stack: StackLine,
    stack_mask: u64,
    graph_idx: u32,
    error: bool,
    #[serde(flatten)]
    fields: Fields,
}

/// A stack.
#[derive(Serialize, JsonSchema)]
struct StackLine {
    #[serde(rename = "type")]
    kind: &'static str,
    begin: String,
    end: String,
    next_sp: String,
}

/// What the unwinders do not have in common.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum Fields {
    /// ORC's.
    Orc {
        signal: bool,
        full_regs: bool,
        sp: String,
        bp: String,
        ip: String,
        regs: Option<String>,
        prev_regs: Option<String>,
    },
    /// The frame pointer's.
    Fp {
        got_irq: bool,
        bp: String,
        orig_sp: String,
        ip: String,
        next_bp: String,
        regs: Option<String>,
    },
    /// The guess's.
    Guess { sp: String },
}

/// `START` stands for the registers that the walk was started with.
fn pointer(regs: RegsPtr) -> Option<String> {
    match regs {
        RegsPtr::None => None,
        RegsPtr::Start => Some("START".to_owned()),
        RegsPtr::At(address) => Some(hex(address)),
    }
}

fn stack_line(stack: &StackInfo) -> StackLine {
    StackLine {
        kind: stack.kind.as_str(),
        begin: hex(stack.begin),
        end: hex(stack.end),
        next_sp: hex(stack.next_sp),
    }
}

fn state_line(state: &State, skipped: bool) -> StateLine {
    let (stack, stack_mask) = state.stack();
    let (graph_idx, fields) = match *state {
        State::Orc(s) => (
            s.cursors.graph_idx,
            Fields::Orc {
                signal: s.signal,
                full_regs: s.full_regs,
                sp: hex(s.sp),
                bp: hex(s.bp),
                ip: hex(s.ip),
                regs: pointer(s.regs),
                prev_regs: pointer(s.prev_regs),
            },
        ),
        State::Fp(s) => (
            s.cursors.graph_idx,
            Fields::Fp {
                got_irq: s.got_irq,
                bp: hex(s.bp),
                orig_sp: hex(s.orig_sp),
                ip: hex(s.ip),
                next_bp: hex(s.next_bp),
                regs: pointer(s.regs),
            },
        ),
        State::Guess(s) => (0, Fields::Guess { sp: hex(s.sp) }),
    };
    StateLine {
        skipped,
        stack: stack_line(stack),
        stack_mask,
        graph_idx,
        error: state.is_error(),
        fields,
    }
}

/// The states among the events of a walk.
pub(super) fn states(events: &[Event]) -> Vec<StateLine> {
    let next = events.iter().skip(1).map(Some).chain([None]);
    let pairs = events.iter().zip(next);
    let states = pairs.filter_map(|(event, next)| match event {
        Event::State(state) => Some(state_line(
            state,
            matches!(next, Some(Event::Skipped { .. })),
        )),
        _ => None,
    });
    states.collect()
}
