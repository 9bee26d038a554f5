//! `get_perf_callchain` (Linux `kernel/events/callchain.c`): a kernel part and a user part, each
//! after a context marker, within the limits of an event.

use super::user::{
    UserChain, UserEnd, UserFrame, UserSpace, perf_callchain_user, put_back, unwind_user,
};
use crate::memory::Memory;
use alloc::vec::Vec;

/// The kind of addresses that follow a marker (`enum perf_callchain_context`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Context {
    /// The kernel.
    Kernel,
    /// User space.
    User,
    /// User space, walked later, before the return to it (since 6.19).
    UserDeferred,
}

impl Context {
    /// The name in `include/uapi/linux/perf_event.h`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Context::Kernel => "PERF_CONTEXT_KERNEL",
            Context::User => "PERF_CONTEXT_USER",
            Context::UserDeferred => "PERF_CONTEXT_USER_DEFERRED",
        }
    }

    /// The marker's value among the addresses.
    pub const fn value(self) -> u64 {
        match self {
            Context::Kernel => -128_i64 as u64,
            Context::User => -512_i64 as u64,
            Context::UserDeferred => -640_i64 as u64,
        }
    }
}

/// How user space is walked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum UserWalk {
    /// Not at all (`exclude_callchain_user`).
    None,
    /// `perf_callchain_user`.
    #[default]
    FramePointer,
    /// `unwind_user`, deferred. The chain is shown together with the later part.
    UnwindUser,
}

/// What an event or a BPF helper asks for, and its limits: the arguments of `get_perf_callchain`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallchainOptions {
    /// The maximum number of addresses, kernel and user space together (`sample_max_stack`).
    pub max_stack: u32,
    /// The maximum number of markers (`kernel.perf_event_max_contexts_per_stack`).
    pub max_contexts: u32,
    /// Whether there is a kernel part. Not with `exclude_callchain_kernel`, nor for a BPF helper
    /// that asks for the user stack.
    pub kernel: bool,
    /// How user space is walked.
    pub user: UserWalk,
    /// Whether the event belongs to a task other than the running one; if so, there is no user
    /// part.
    pub crosstask: bool,
    /// Whether markers are stored before the parts. BPF helpers have none.
    pub add_mark: bool,
    /// Whether the kernel puts back the return addresses that return probes took (since 6.11).
    pub puts_back: bool,
}

impl CallchainOptions {
    /// `PERF_MAX_STACK_DEPTH`, the default of `kernel.perf_event_max_stack`.
    pub const MAX_STACK: u32 = 127;
    /// `PERF_MAX_CONTEXTS_PER_STACK`
    pub const MAX_CONTEXTS: u32 = 8;
}

impl Default for CallchainOptions {
    fn default() -> Self {
        CallchainOptions {
            max_stack: Self::MAX_STACK,
            max_contexts: Self::MAX_CONTEXTS,
            kernel: true,
            user: UserWalk::default(),
            crosstask: false,
            add_mark: true,
            puts_back: true,
        }
    }
}

/// An entry of a callchain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallchainEntry {
    /// A marker: the context of the addresses that follow (`PERF_CONTEXT_*`).
    Context(Context),
    /// An address in the kernel, with its index in the kernel part.
    Kernel(usize, u64),
    /// An address in user space.
    User(UserFrame),
}

impl CallchainEntry {
    /// The word in the sample.
    pub const fn value(self) -> u64 {
        match self {
            CallchainEntry::Context(context) => context.value(),
            CallchainEntry::Kernel(_, ip) => ip,
            CallchainEntry::User(frame) => frame.ip,
        }
    }
}

/// The outcome of the user part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UserOutcome {
    /// It was walked.
    Walked(UserEnd),
    /// There was no room for the marker, and nothing is stored after it.
    NoRoomForContext,
    /// It was not requested.
    NotAsked,
    /// The task has no user space.
    NoUserSpace,
    /// The running task is not the event's.
    CrossTask,
    /// The recording does not contain the registers of user space.
    NotRecorded,
}

impl core::fmt::Display for UserOutcome {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            UserOutcome::Walked(end) => return end.fmt(f),
            UserOutcome::NoRoomForContext => "max_contexts: no room for the marker",
            UserOutcome::NotAsked => "not requested",
            UserOutcome::NoUserSpace => "the task has no user space (mm is NULL)",
            UserOutcome::CrossTask => "the event belongs to another task (crosstask)",
            UserOutcome::NotRecorded => "the user-space registers are not recorded",
        })
    }
}

/// A callchain as `get_perf_callchain` assembles it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Callchain {
    /// The entries, as in `PERF_SAMPLE_CALLCHAIN`.
    pub entries: Vec<CallchainEntry>,
    /// The outcome of the user part.
    pub user: UserOutcome,
}

impl Callchain {
    /// The words, including markers.
    pub fn ips(&self) -> Vec<u64> {
        self.entries.iter().map(|e| e.value()).collect()
    }
}

/// Assembles a callchain. `kernel` is what `perf_callchain_kernel` found; `None` for a sample in
/// user mode. `space` is the task's user space; `None` if the recording does not contain it. For a
/// sample in user mode its registers are those of the sample.
pub fn get_perf_callchain<M: Memory + ?Sized>(
    kernel: Option<&[u64]>,
    space: Option<&UserSpace>,
    memory: &M,
    options: CallchainOptions,
) -> Callchain {
    let mut entries = Vec::new();
    let (max_stack, mut contexts) = (options.max_stack as usize, 0);

    // Once there is no room for a marker, nothing more is stored (`contexts_maxed`).
    let mut maxed = false;
    let mut context = |entries: &mut Vec<CallchainEntry>, context: Context| {
        if !options.add_mark {
            return true;
        }
        maxed |= contexts >= options.max_contexts;
        if !maxed {
            entries.push(CallchainEntry::Context(context));
            contexts += 1;
        }
        !maxed
    };

    let mut stored = 0;
    // The marker comes first; if there is no room for it, its addresses are not stored either.
    if let Some(ips) = kernel.filter(|_| options.kernel)
        && context(&mut entries, Context::Kernel)
    {
        let ips = ips.iter().take(max_stack).enumerate();
        stored = ips.len();
        entries.extend(ips.map(|(i, ip)| CallchainEntry::Kernel(i, *ip)));
    }

    let mut user = || {
        let mut chain: UserChain;
        let (mark, walk) = match options.user {
            UserWalk::None => return UserOutcome::NotAsked,
            UserWalk::FramePointer => (Context::User, true),
            UserWalk::UnwindUser => (Context::UserDeferred, false),
        };

        let Some(space) = space else {
            return UserOutcome::NotRecorded;
        };
        let Some(regs) = &space.regs else {
            return UserOutcome::NoUserSpace;
        };
        // The user memory of another task is not mapped here (`kernel/events/callchain.c`).
        if options.crosstask {
            return UserOutcome::CrossTask;
        }

        if !context(&mut entries, mark) {
            return UserOutcome::NoRoomForContext;
        }

        if walk {
            // Addresses of both parts share `max_stack`; markers have a limit of their own.
            let left = max_stack - stored;
            chain = perf_callchain_user(regs, space.uprobe, memory, left);
            if let UserEnd::MaxStack { max } = &mut chain.end {
                *max = options.max_stack;
            }
            if options.puts_back {
                put_back(&mut chain.frames, space.uretprobes.as_ref());
            }
        } else {
            // A separate record with its own limit.
            chain = unwind_user(regs, space.uprobe, memory, UNWIND_MAX_ENTRIES);
        }

        entries.extend(chain.frames.into_iter().map(CallchainEntry::User));
        UserOutcome::Walked(chain.end)
    };

    // The user part is decided last, because its room is what the kernel part left.
    let user = user();
    Callchain { entries, user }
}

/// The maximum number of addresses in a deferred user part (`kernel/unwind/deferred.c`): a page,
/// minus the structure before them.
const UNWIND_MAX_ENTRIES: usize = (4096 - 16) / 8;
