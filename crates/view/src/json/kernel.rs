//! `struct unwind_state` and callchains as JSON.

use super::Line;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use unwind_sim_judge::SCHEMA;
use unwind_sim_judge::hex::hex;
use unwind_sim_judge::kernel::{Agreement, PerfChain};
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::chain::Chain;
use unwind_sim_unwind::event::Event;
use unwind_sim_unwind::kernel::{
    CallchainEntry, Hijack, RegsPtr, StackInfo, State, UserFound, UserOutcome, UserRegs,
};

/// A state of one of a kernel's unwinders, with the names of its fields.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct StateLine {
    /// The state was skipped, because it is not above the mark.
    skipped: bool,
    /// The `stack_info`.
    stack: StackLine,
    stack_mask: u64,
    graph_idx: u32,
    error: bool,
    #[serde(flatten)]
    fields: Fields,
}

/// A stack.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct StackLine {
    #[serde(rename = "type")]
    kind: &'static str,
    begin: String,
    end: String,
    next_sp: String,
}

/// The fields that differ between the unwinders.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(untagged)]
enum Fields {
    /// The fields of the ORC unwinder.
    Orc {
        signal: bool,
        full_regs: bool,
        sp: String,
        bp: String,
        ip: String,
        regs: Option<String>,
        prev_regs: Option<String>,
    },
    /// The fields of the frame-pointer unwinder.
    Fp {
        got_irq: bool,
        bp: String,
        orig_sp: String,
        ip: String,
        next_bp: String,
        regs: Option<String>,
    },
    /// The fields of the guess unwinder.
    Guess { sp: String },
}

/// The registers with which user space was left.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct UserRegsLine {
    /// The addresses at which the kernel keeps them (`struct pt_regs`); for a walk, the one it
    /// read.
    at: Vec<String>,
    ip: String,
    sp: String,
}

/// What a chain of a kernel's unwinder has beside its frames.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(super) struct KernelPart {
    /// For a kernel's unwinder: its states, including skipped ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    states: Vec<StateLine>,
    /// For a kernel's unwinder: it reported the chain as unreliable.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unreliable: bool,
    /// For a kernel's unwinder: the registers at which it left the kernel. If it is right, they are
    /// those of user space.
    #[serde(skip_serializing_if = "Option::is_none")]
    user_regs: Option<UserRegsLine>,
    /// The registers with which user space was left, if the truth includes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    true_user_regs: Option<UserRegsLine>,
}

impl KernelPart {
    pub(super) fn is_empty(&self) -> bool {
        let KernelPart {
            states,
            unreliable,
            user_regs,
            true_user_regs,
        } = self;
        states.is_empty() && !unreliable && user_regs.is_none() && true_user_regs.is_none()
    }

    pub(super) fn new(view: &View<'_>, chain: &Chain) -> KernelPart {
        KernelPart {
            states: states(&chain.events),
            unreliable: chain.refused,
            user_regs: chain.user_regs.map(user_regs),
            true_user_regs: true_user_regs(view),
        }
    }
}

/// The user registers at which a walk ended.
fn user_regs(found: UserRegs) -> UserRegsLine {
    UserRegsLine {
        at: vec![hex(found.at)],
        ip: hex(found.ip),
        sp: hex(found.sp),
    }
}

/// The true user registers of a sample.
fn true_user_regs(view: &View<'_>) -> Option<UserRegsLine> {
    let kernel = view.sample.kernel.as_ref()?;
    let boundary = kernel.boundary.as_ref()?;
    Some(UserRegsLine {
        at: boundary.places(&kernel.task).map(hex).collect(),
        ip: hex(boundary.ip),
        sp: hex(boundary.sp),
    })
}

/// `START` means the registers that the walk started with.
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

    // Each unwinder of the kernel has its own fields in `struct unwind_state`.
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
        // In this state there is no `graph_idx`.
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
fn states(events: &[Event]) -> Vec<StateLine> {
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

/// A callchain as perf records it in a sample.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct CallchainLine {
    schema: &'static str,
    /// The sample's number, from 0.
    sample: u64,
    pid: u32,
    tid: u32,
    time: u64,
    /// The unwinder of the kernel part.
    unwinder: String,
    /// The start variant.
    start: &'static str,
    entries: Vec<CallchainEntryLine>,
    /// Why the kernel part ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel_end: Option<super::EndLine>,
    /// Why the user part ended, or why there is none.
    user_end: String,
    /// The code with which the walk of the user part ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    user_code: Option<&'static str>,
    /// How it compares with what perf recorded: `equal`; `fits`, equal with arguments that the
    /// recording does not say; `unknown`, equal but for return addresses that return probes took;
    /// `different`.
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded: Option<&'static str>,
    /// The index of the first word that differs from what perf recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    differs_at: Option<usize>,
}

/// One word of a callchain.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct CallchainEntryLine {
    value: String,
    /// The name of the marker, if the word is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<&'static str>,
    /// For an address in user space: where it was read, if not from registers.
    #[serde(skip_serializing_if = "Option::is_none")]
    read_at: Option<String>,
    /// For a return address that a return probe took: `put_back`, or `unknown` if the trampoline's
    /// address is in its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    uretprobe: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<String>,
}

/// One sample's callchain as perf records it, and how it compares with what perf recorded.
pub fn callchain(
    view: &View<'_>,
    unwinder: &str,
    start: &'static str,
    chain: &PerfChain,
    agreement: Option<Agreement>,
) -> Line {
    let entry = |entry: &CallchainEntry| {
        let place = chain.place(view, entry);
        let context = match entry {
            CallchainEntry::Context(context) => Some(context.as_str()),
            CallchainEntry::Kernel(..) | CallchainEntry::User(_) => None,
        };

        // Where the address was read; only entries of the user part have that.
        let read_at = match entry {
            CallchainEntry::User(frame) => match frame.found {
                UserFound::Regs => None,
                UserFound::Entry { slot: at } | UserFound::FramePointer { fp: at } => Some(at),
            },
            CallchainEntry::Context(_) | CallchainEntry::Kernel(..) => None,
        };

        // A uretprobe replaces the return address by that of its trampoline.
        let hijack = match entry {
            CallchainEntry::User(frame) => frame.hijack,
            CallchainEntry::Context(_) | CallchainEntry::Kernel(..) => Hijack::None,
        };

        CallchainEntryLine {
            value: hex(entry.value()),
            context,
            read_at: read_at.map(hex),
            uretprobe: match hijack {
                Hijack::None => None,
                Hijack::PutBack => Some("put_back"),
                Hijack::Unknown => Some("unknown"),
            },
            function: place.as_ref().and_then(|p| p.function.clone()),
            offset: place.as_ref().map(|p| hex(p.offset)),
            image: place.and_then(|p| p.image),
        }
    };

    let user = chain.callchain.user;
    Line::Callchain(Box::new(CallchainLine {
        schema: SCHEMA,
        sample: view.number,
        pid: view.sample.pid,
        tid: view.sample.tid,
        time: view.sample.time,
        unwinder: unwinder.to_owned(),
        start,
        entries: chain.callchain.entries.iter().map(entry).collect(),
        kernel_end: chain.kernel.as_ref().map(|o| super::end_line(&o.chain.end)),
        user_end: user.to_string(),
        user_code: match user {
            UserOutcome::Walked(end) => Some(end.reason().code().as_str()),
            _ => None,
        },
        recorded: agreement.map(Agreement::as_str),
        differs_at: match agreement {
            Some(Agreement::Different(at)) => Some(at),
            _ => None,
        },
    }))
}
