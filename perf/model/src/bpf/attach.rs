//! Programs as handlers of perf events: which events may have one, and the effect of its result.
//!
//! Source: `perf_event_set_bpf_handler`, `bpf_overflow_handler` and `__perf_event_overflow` of
//! `kernel/events/core.c`, Linux 6.18.

use super::context::{Context, PerfEventData};
use super::env::Env;
use super::errno::Errno;
use super::fault::Fault;
use super::{Handlers, Program};

/// The properties of an event that matter for attaching a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventTraits {
    /// A hardware breakpoint, or an event that the kernel itself opened: it has another handler.
    pub has_own_handler: bool,
    /// `attr.precise_ip`.
    pub precise_ip: u8,
    /// `PERF_SAMPLE_CALLCHAIN`.
    pub has_callchain: bool,
    /// `attr.exclude_callchain_kernel`.
    pub exclude_callchain_kernel: bool,
    /// `attr.exclude_callchain_user`.
    pub exclude_callchain_user: bool,
}

/// What happens to a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The event's own output follows, as without a program: it returned this.
    Keep(u32),
    /// The program returned 0: no output, no wakeup, no signal; the interrupt still counts for
    /// throttling.
    Drop,
    /// A program was running on this processor: this one was not run, and the sample is dropped.
    Recursion,
    /// The program did what the kernel's verifier would have refused; the sample is dropped.
    Fault(Fault),
}

/// The handler of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attachment {
    event: EventTraits,
    program: Option<usize>,
}

impl Attachment {
    /// An event without a program.
    pub fn new(event: EventTraits) -> Self {
        Self {
            event,
            program: None,
        }
    }

    /// `PERF_EVENT_IOC_SET_BPF`: makes a program of `handlers` the event's handler.
    ///
    /// # Errors
    /// `EINVAL` if the event has a handler of the kernel or the program is for something else,
    /// `EEXIST` if it has a program, `EPROTO` if samples are precise and the program walks stacks
    /// that the samples do not bring along.
    pub fn set(&mut self, handlers: &Handlers, program: usize) -> Result<(), Errno> {
        let found = handlers.programs().get(program).ok_or(Errno::Einval)?;
        if self.event.has_own_handler {
            return Err(Errno::Einval);
        }
        if self.program.is_some() {
            return Err(Errno::Eexist);
        }
        if !found.is_perf_event() {
            return Err(Errno::Einval);
        }
        let has_full_chain = self.event.has_callchain
            && !self.event.exclude_callchain_kernel
            && !self.event.exclude_callchain_user;
        if self.event.precise_ip != 0 && found.calls_get_stack() && !has_full_chain {
            return Err(Errno::Eproto);
        }
        self.program = Some(program);
        Ok(())
    }

    /// Detaches the program. The event has its own output again.
    pub fn clear(&mut self) {
        self.program = None;
    }

    /// The attached program.
    pub fn program(&self) -> Option<usize> {
        self.program
    }

    /// Runs the handler, if there is one, for an overflow on a processor whose guard is given.
    pub fn overflow(
        &self,
        handlers: &mut Handlers,
        guard: &mut Guard,
        env: &mut dyn Env,
        data: &PerfEventData,
    ) -> Verdict {
        let Some(program) = self.program else {
            return Verdict::Keep(1);
        };
        guard.run(handlers, program, env, Context::PerfEvent(data))
    }
}

/// A processor's count of programs that are running (`bpf_prog_active`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    active: u32,
}

impl Guard {
    /// Counts one more; `false` if it is not the only one. Each call is followed by
    /// [`Guard::leave`].
    pub fn enter(&mut self) -> bool {
        self.active += 1;
        self.active == 1
    }

    /// Runs a program, unless one is running (`trace_call_bpf` does so, too, for tracepoints and probes).
    pub fn run(
        &mut self,
        handlers: &mut Handlers,
        program: usize,
        env: &mut dyn Env,
        context: Context<'_>,
    ) -> Verdict {
        if !self.enter() {
            self.leave();
            return Verdict::Recursion;
        }
        let result = handlers.run(program, env, context);
        self.leave();
        match result.map(|outcome| outcome.value()) {
            Ok(0) => Verdict::Drop,
            Ok(value) => Verdict::Keep(value),
            Err(fault) => Verdict::Fault(fault),
        }
    }

    /// Counts one less.
    pub fn leave(&mut self) {
        self.active = self.active.saturating_sub(1);
    }
}

impl Program {
    /// Whether it handles perf events.
    pub fn is_perf_event(&self) -> bool {
        self.section == "perf_event"
    }

    /// Whether it calls `get_stackid` or `get_stack`.
    pub fn calls_get_stack(&self) -> bool {
        self.insns.iter().any(|insn| {
            insn.code == super::insn::CALL && insn.src == 0 && matches!(insn.imm, 27 | 67)
        })
    }
}
