//! `seccomp`: filters of system calls. Not here: the filters (`filter`).
//!
//! Source: Linux 6.12 `kernel/seccomp.c`.

use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::filter::{self, Filter, INSTRUCTIONS_MAX, Instruction};
use crate::linux::outcome::{Outcome, SignalOrigin};
use crate::linux::signals::Info;
use crate::linux::tracing::TraceEvent;

const ARCH_X86_64: u32 = 0xc000_003e;
const SIGSYS: u8 = 31;
/// The most that a filter can give as an error number.
const ERRNO_MAX: u32 = 4095;

mod action {
    pub(super) const KILL_PROCESS: u32 = 0x8000_0000;
    pub(super) const KILL_THREAD: u32 = 0;
    pub(super) const TRAP: u32 = 0x3_0000;
    pub(super) const ERRNO: u32 = 0x5_0000;
    pub(super) const USER_NOTIF: u32 = 0x7fc0_0000;
    pub(super) const TRACE: u32 = 0x7ff0_0000;
    pub(super) const LOG: u32 = 0x7ffc_0000;
    pub(super) const ALLOW: u32 = 0x7fff_0000;
    /// The bits that are an action; the others are its number.
    pub(super) const BITS: u32 = 0xffff_0000;
    pub(super) const ALL: [u32; 8] = [
        KILL_PROCESS,
        KILL_THREAD,
        TRAP,
        ERRNO,
        USER_NOTIF,
        TRACE,
        LOG,
        ALLOW,
    ];
}

impl Kernel {
    pub(super) fn sys_seccomp(&mut self, operation: u64, flags: u64, at: u64) -> Answer {
        /// `SECCOMP_FILTER_FLAG_*`.
        const TSYNC: u32 = 1;
        const NEW_LISTENER: u32 = 8;
        const TSYNC_ESRCH: u32 = 16;
        const WAIT_KILLABLE: u32 = 32;
        const FLAGS: u32 = 0x3f;
        /// Sizes of the structures of a listener.
        const SIZES: [u16; 3] = [80, 24, 64];

        let flags = flags as u32;
        match operation as u32 {
            // SECCOMP_SET_MODE_STRICT.
            0 if flags != 0 || at != 0 => Err(Errno::EINVAL),
            0 => self.not_modelled("seccomp: strict mode", Errno::EINVAL),
            // SECCOMP_SET_MODE_FILTER.
            1 => {
                // TSYNC and NEW_LISTENER both return a number, of a thread and of a descriptor:
                // without TSYNC_ESRCH, failure and success would look the same.
                let both = TSYNC | NEW_LISTENER;
                let is_wrong = flags & !FLAGS != 0
                    || flags & both == both && flags & TSYNC_ESRCH == 0
                    || flags & WAIT_KILLABLE != 0 && flags & NEW_LISTENER == 0;
                if is_wrong {
                    return Err(Errno::EINVAL);
                }

                let filter = self.filter_at(at)?;
                if flags & NEW_LISTENER != 0 {
                    return self.not_modelled("seccomp: listeners", Errno::EINVAL);
                }
                if flags & TSYNC != 0 && !self.process.others.is_empty() {
                    return self.not_modelled("seccomp: filters of all threads", Errno::EINVAL);
                }
                self.process.thread.filters.push(filter);
                Ok(0)
            }
            // SECCOMP_GET_ACTION_AVAIL.
            2 if flags != 0 => Err(Errno::EINVAL),
            2 => {
                if action::ALL.contains(&self.u32_at(at)?) {
                    Ok(0)
                } else {
                    Err(Errno::EOPNOTSUPP)
                }
            }
            // SECCOMP_GET_NOTIF_SIZES.
            3 if flags != 0 => Err(Errno::EINVAL),
            3 => {
                let bytes = SIZES.map(u16::to_le_bytes);
                self.put(at, bytes.as_flattened())?;
                Ok(0)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// The filter of a `struct sock_fprog`.
    fn filter_at(&self, at: u64) -> Answer<Filter> {
        let head = self.bytes::<16>(at)?;
        let count = u16::from_le_bytes([head[0], head[1]]);
        let from = u64::from_le_bytes(std::array::from_fn(|i| head[8 + i]));
        if count == 0 || count > INSTRUCTIONS_MAX {
            return Err(Errno::EINVAL);
        }
        let is_root = self.files.own.identity.is_capable();
        if !self.process.settings.no_new_privileges && !is_root {
            return Err(Errno::EACCES);
        }
        let read = |index: u16| {
            let word = self.u64_at(from.wrapping_add(8 * u64::from(index)))?;
            Ok(Instruction::from_word(word))
        };
        let program: Vec<Instruction> = (0..count).map(read).collect::<Answer<_>>()?;
        if filter::is_valid(&program) {
            Ok(program.into())
        } else {
            Err(Errno::EINVAL)
        }
    }

    /// What the thread's filters answer to a call; `None` if they let it pass.
    pub(in crate::linux) fn filtered(&mut self, number: u64, args: [u64; 6]) -> Option<Answer> {
        if self.process.thread.filters.is_empty() {
            return None;
        }

        let rip = self.machine.core.state.rip;
        let mut data = [0; 16];
        // `struct seccomp_data`: number, architecture, instruction pointer, arguments.
        (data[0], data[1]) = (number as u32, ARCH_X86_64);
        for (pair, word) in data[2..].chunks_exact_mut(2).zip([rip].iter().chain(&args)) {
            (pair[0], pair[1]) = (*word as u32, (*word >> 32) as u32);
        }

        // The newest filter comes first, and the strictest action counts.
        let filters = self.process.thread.filters.iter().rev();
        let said = filters.map(|filter| filter::run(filter, &data));
        let said = said.min_by_key(|said| (said & action::BITS).cast_signed())?;
        let number_of_action = said & !action::BITS;

        match said & action::BITS {
            action::ALLOW | action::LOG => None,
            // With an error of 0 the call succeeds without being made.
            action::ERRNO => Some(match number_of_action.min(ERRNO_MAX) {
                0 => Ok(0),
                errno => Ok(u64::from(errno).wrapping_neg()),
            }),
            action::TRAP => {
                const SYS_SECCOMP: i32 = 1;

                let mut info = Info::fault(SIGSYS, SYS_SECCOMP, rip, SignalOrigin::Sent);
                // `si_errno` is the filter's number; `si_syscall` and `si_arch` follow at 24.
                info.bytes[4..8].copy_from_slice(&number_of_action.to_le_bytes());
                info.bytes[24..28].copy_from_slice(&data[0].to_le_bytes());
                info.bytes[28..32].copy_from_slice(&data[1].to_le_bytes());
                self.process.signals.force(info);
                // The handler sees the call's number.
                Some(Ok(number))
            }
            action::TRACE if self.passes_filter() => None,
            action::TRACE if self.wants_event(TraceEvent::Seccomp) => {
                self.stop_at_filter(number_of_action);
                None
            }
            // There is neither a tracer that wants to see it nor a listener.
            action::TRACE | action::USER_NOTIF => Some(Err(Errno::ENOSYS)),
            action::KILL_THREAD if !self.process.others.is_empty() => {
                Some(self.not_modelled("seccomp: killing one of several threads", Errno::ENOSYS))
            }
            // Other actions than the known ones kill the process, too.
            _ => {
                self.end_process(Outcome::Killed {
                    signal: SIGSYS,
                    rip,
                    why: SignalOrigin::Sent,
                });
                Some(Ok(0))
            }
        }
    }
}
