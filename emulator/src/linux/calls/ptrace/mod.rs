//! `ptrace`: the requests of tracers. Not here: when a thread stops (`tracing`).
//!
//! Source: Linux 6.12 `kernel/ptrace.c`, `arch/x86/kernel/ptrace.c`, `include/uapi/linux/ptrace.h`.

mod memory;
mod sets;
mod siginfo;
mod user;

use super::signal::signal;
use crate::linux::errno::{Answer, Errno};
use crate::linux::signals::{Info, SIGKILL, SIGSTOP};
use crate::linux::task::Task;
use crate::linux::tracing::{CALL_ENTRY, EVENT_STOP, ResumeMode, StopKind, Traced, option};
use crate::linux::{INIT, Kernel};
use crate::state::reg;

/// The requests by number.
mod request {
    pub(super) const TRACEME: u64 = 0;
    pub(super) const PEEKTEXT: u64 = 1;
    pub(super) const PEEKDATA: u64 = 2;
    pub(super) const PEEKUSER: u64 = 3;
    pub(super) const POKETEXT: u64 = 4;
    pub(super) const POKEDATA: u64 = 5;
    pub(super) const POKEUSER: u64 = 6;
    pub(super) const CONT: u64 = 7;
    pub(super) const KILL: u64 = 8;
    pub(super) const SINGLESTEP: u64 = 9;
    pub(super) const GETREGS: u64 = 12;
    pub(super) const SETREGS: u64 = 13;
    pub(super) const GETFPREGS: u64 = 14;
    pub(super) const SETFPREGS: u64 = 15;
    pub(super) const ATTACH: u64 = 16;
    pub(super) const DETACH: u64 = 17;
    /// Only for the compatibility with 2.4.
    pub(super) const OLDSETOPTIONS: u64 = 21;
    pub(super) const SYSCALL: u64 = 24;
    pub(super) const GET_THREAD_AREA: u64 = 25;
    pub(super) const SINGLEBLOCK: u64 = 33;
    pub(super) const SETOPTIONS: u64 = 0x4200;
    pub(super) const GETEVENTMSG: u64 = 0x4201;
    pub(super) const GETSIGINFO: u64 = 0x4202;
    pub(super) const SETSIGINFO: u64 = 0x4203;
    pub(super) const GETREGSET: u64 = 0x4204;
    pub(super) const SETREGSET: u64 = 0x4205;
    pub(super) const SEIZE: u64 = 0x4206;
    pub(super) const INTERRUPT: u64 = 0x4207;
    pub(super) const LISTEN: u64 = 0x4208;
    pub(super) const PEEKSIGINFO: u64 = 0x4209;
    pub(super) const GETSIGMASK: u64 = 0x420a;
    pub(super) const SETSIGMASK: u64 = 0x420b;
    pub(super) const SECCOMP_GET_FILTER: u64 = 0x420c;
    pub(super) const GET_SYSCALL_INFO: u64 = 0x420e;
    pub(super) const GET_RSEQ_CONFIGURATION: u64 = 0x420f;
    pub(super) const GET_SYSCALL_USER_DISPATCH: u64 = 0x4211;
}

impl Kernel {
    pub(super) fn sys_ptrace(&mut self, request: u64, pid: u64, at: u64, data: u64) -> Answer {
        if request == request::TRACEME {
            return self.trace_me();
        }

        // A number that no thread has.
        if pid as i32 <= 0 {
            return Err(Errno::ESRCH);
        }

        // These two make a tracer, all others need one.
        let task = self.task_of(pid)?;
        if matches!(request, request::ATTACH | request::SEIZE) {
            return self.trace_other(task, request == request::SEIZE, at, data);
        }

        // Only these two do not need a tracee that has stopped (`ptrace_check_attach`).
        let is_anywhere = matches!(request, request::KILL | request::INTERRUPT);
        self.check_tracer(task, is_anywhere)?;
        match request {
            request::PEEKTEXT | request::PEEKDATA => self.peek_word(task, at, data),
            request::POKETEXT | request::POKEDATA => self.poke_word(task, at, data),
            request::PEEKUSER => self.peek_user(task, at, data),
            request::POKEUSER => self.poke_user(task, at, data),
            request::GETREGS => self.get_registers(task, data),
            request::SETREGS => self.set_registers(task, data),
            request::GETFPREGS => self.get_float(task, data),
            request::SETFPREGS => self.set_float(task, data),
            request::GETREGSET => self.get_set(task, at, data),
            request::SETREGSET => self.set_set(task, at, data),
            // `data` is the signal that the thread gets instead of the one it stopped for.
            request::CONT => self.let_go_on(task, ResumeMode::Continue, data),
            request::SYSCALL => self.let_go_on(task, ResumeMode::Syscall, data),
            request::SINGLESTEP => self.let_go_on(task, ResumeMode::Step, data),
            request::DETACH => {
                self.let_go_on(task, ResumeMode::Continue, data)?;
                self.detach(task);
                Ok(0)
            }
            // Like SIGKILL (ptrace(2), which advises against it).
            request::KILL => {
                let (own, uid) = (self.process.number, self.files.own.identity.user.real);
                let info = Info::from_process(SIGKILL, super::signal::SI_USER, own, uid);
                self.send_to(task.process, Some(task.thread), info);
                Ok(0)
            }
            request::INTERRUPT => self.interrupt_tracee(task),
            request::LISTEN => self.listen(task),
            request::SETOPTIONS | request::OLDSETOPTIONS => self.set_trace_options(task, data),
            // Of the event that it stopped for: a number, or an exit status.
            request::GETEVENTMSG => {
                let message = self.traced(task)?.message;
                self.put_u64(data, message)?;
                Ok(0)
            }
            request::GETSIGINFO => self.get_siginfo(task, data),
            request::SETSIGINFO => self.set_siginfo(task, data),
            request::PEEKSIGINFO => self.peek_siginfo(task, at, data),
            request::GETSIGMASK => self.get_sigmask(task, at, data),
            request::SETSIGMASK => self.set_sigmask(task, at, data),
            request::GET_SYSCALL_INFO => self.syscall_info(task, at, data),
            request::GET_RSEQ_CONFIGURATION => self.rseq_configuration(task, at, data),
            request::GET_THREAD_AREA..=request::SINGLEBLOCK
            | request::SECCOMP_GET_FILTER..=request::GET_SYSCALL_USER_DISPATCH => {
                self.not_modelled("ptrace: requests of few tracers", Errno::EIO)
            }
            // What `ptrace_request` answers to an unknown request (ptrace(2)).
            _ => Err(Errno::EIO),
        }
    }

    /// `PTRACE_TRACEME`: the parent traces the running thread.
    fn trace_me(&mut self) -> Answer {
        let (parent, creator) = (self.process.parent, self.process.creator);
        if self.process.thread.traced.is_some() {
            return Err(Errno::EPERM);
        }
        if parent == INIT {
            return self.not_modelled("ptrace: being traced by init", Errno::EPERM);
        }
        let has_it = self
            .process(parent)
            .is_some_and(|process| process.threads().any(|thread| thread.number == creator));
        let tracer = Task {
            process: parent,
            thread: if has_it { creator } else { parent },
        };
        self.process.thread.traced = Some(Box::new(Traced::new(tracer, false, 0)));
        self.process.signals.own.is_traced = true;
        Ok(0)
    }

    /// `PTRACE_ATTACH` and `PTRACE_SEIZE`.
    fn trace_other(&mut self, task: Task, seizes: bool, at: u64, options: u64) -> Answer {
        let options = match seizes {
            false => 0,
            // `ptrace_attach` takes no address.
            true if at != 0 => return Err(Errno::EIO),
            true => self.trace_options(options, Errno::EIO)?,
        };

        let own = self.task();
        if task.process == own.process || task.process == INIT {
            return Err(Errno::EPERM);
        }

        self.may_access(task.process)?;
        let process = self.process(task.process).ok_or(Errno::EPERM)?;
        // Who is not dumpable is traced only with CAP_SYS_PTRACE (`__ptrace_may_access`).
        let is_hidden = process.settings.dumpable != 1;
        if is_hidden && !self.is_capable_over(task.process) {
            return Err(Errno::EPERM);
        }

        let tracee = self.tracee(task).ok_or(Errno::EPERM)?;
        if tracee.thread.traced.is_some() {
            return Err(Errno::EPERM);
        }

        self.attach(task, Traced::new(own, seizes, options));
        // PTRACE_ATTACH stops the thread with a signal, PTRACE_SEIZE does not stop it (ptrace(2)).
        if !seizes && let Some(tracee) = self.tracee(task) {
            tracee.signals.put_back(Info::from_kernel(SIGSTOP));
        }
        Ok(0)
    }

    /// Checks that the running thread traces another one, which has stopped unless it may be anywhere.
    ///
    /// # Errors
    /// `ESRCH`.
    fn check_tracer(&mut self, task: Task, is_anywhere: bool) -> Answer<()> {
        let own = self.task();
        let traced = self.traced(task)?;
        let is_stopped = traced.stop.as_ref().is_some_and(|stop| !stop.listens);
        if traced.tracer == own && (is_stopped || is_anywhere) {
            Ok(())
        } else {
            Err(Errno::ESRCH)
        }
    }

    /// What the tracer of a thread wants.
    fn traced(&mut self, task: Task) -> Answer<&mut Traced> {
        let tracee = self.tracee(task).ok_or(Errno::ESRCH)?;
        tracee.thread.traced.as_deref_mut().ok_or(Errno::ESRCH)
    }

    fn let_go_on(&mut self, task: Task, how: ResumeMode, number: u64) -> Answer {
        let number = match u32::try_from(number) {
            Ok(number) => signal(number.into()).map_err(|_| Errno::EIO)?,
            Err(_) => return Err(Errno::EIO),
        };
        self.resume_tracee(task, how, number);
        Ok(0)
    }

    fn interrupt_tracee(&mut self, task: Task) -> Answer {
        let tracee = self.tracee(task).ok_or(Errno::ESRCH)?;
        let traced = tracee.thread.traced.as_mut().ok_or(Errno::ESRCH)?;
        if !traced.seized {
            return Err(Errno::EIO);
        }
        traced.stop.take_if(|stop| stop.listens);
        tracee.signals.notified = true;
        self.system.changes += 1;
        Ok(0)
    }

    /// `PTRACE_LISTEN`: the thread stays stopped, until its group goes on.
    fn listen(&mut self, task: Task) -> Answer {
        let tracee = self.tracee(task).ok_or(Errno::ESRCH)?;
        let notified = tracee.signals.notified;
        let traced = tracee.thread.traced.as_mut().ok_or(Errno::ESRCH)?;
        let is_group = |code: u32| code >> 8 == EVENT_STOP;
        match &mut traced.stop {
            Some(stop) if traced.seized && stop.info.is_some() && is_group(stop.code) => {
                stop.listens = true;
            }
            _ => return Err(Errno::EIO),
        }
        if notified {
            traced.stop = None;
        }
        self.system.changes += 1;
        Ok(0)
    }

    /// Checks options of a tracer; `unknown` is the error for those that there are not.
    fn trace_options(&mut self, options: u64, unknown: Errno) -> Answer<u32> {
        let known = u32::try_from(options)
            .ok()
            .filter(|options| options & !option::ALL == 0);
        let options = known.ok_or(unknown)?;
        if options & option::SUSPEND_SECCOMP != 0 {
            return self.not_modelled("ptrace: suspending filters of system calls", Errno::EPERM);
        }
        Ok(options)
    }

    fn set_trace_options(&mut self, task: Task, options: u64) -> Answer {
        let options = self.trace_options(options, Errno::EINVAL)?;
        self.traced(task)?.options = options;
        Ok(0)
    }

    /// `PTRACE_GET_SYSCALL_INFO`: a `struct ptrace_syscall_info`, as much of it as there is room for.
    fn syscall_info(&mut self, task: Task, room: u64, to: u64) -> Answer {
        const ARCH_X86_64: u32 = 0xc000_003e;
        const SIGTRAP_GOOD: u32 = 0x85;
        const ENTRY: u8 = 1;
        const EXIT: u8 = 2;
        const SECCOMP: u8 = 3;
        const SIGTRAP_SECCOMP: u32 = 0x705;

        let traced = self.traced(task)?;
        let message = traced.message;
        let code = match &traced.stop {
            Some(stop) if matches!(stop.kind, StopKind::Call | StopKind::Event) => stop.code,
            _ => 0,
        };

        let registers = self.registers_of(task)?;
        let tracee = self.tracee(task).ok_or(Errno::ESRCH)?;
        // psABI A.2.1: the arguments of a system call.
        let arguments = [reg::RDI, reg::RSI, reg::RDX, 10, 8, 9].map(|n| tracee.state.gpr(n));
        let (rip, rsp) = (tracee.state.rip, tracee.state.gpr(reg::RSP));

        let (operation, words, extra) = match (code, message) {
            (SIGTRAP_GOOD, CALL_ENTRY) | (SIGTRAP_SECCOMP, _) => {
                let number = [registers[user::ORIG_RAX]];
                let mut words = [&number[..], &arguments].concat();
                let is_entry = code == SIGTRAP_GOOD;
                words.extend((!is_entry).then_some(message & 0xffff_ffff));
                (if is_entry { ENTRY } else { SECCOMP }, words, None)
            }
            (SIGTRAP_GOOD, _) => {
                let result = registers[user::RAX];
                // `IS_ERR_VALUE`.
                let is_error = result > u64::MAX - 4095;
                (EXIT, vec![result], Some(u8::from(is_error)))
            }
            _ => (0, Vec::new(), None),
        };

        // `struct ptrace_syscall_info`: `op` and padding, `arch`, then both pointers.
        let mut bytes = vec![operation, 0, 0, 0];
        bytes.extend(ARCH_X86_64.to_le_bytes());
        let words = [rip, rsp].into_iter().chain(words);
        bytes.extend(words.flat_map(u64::to_le_bytes));
        bytes.extend(extra);

        // The full size is returned even if there is less room.
        let count = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        self.put(to, &bytes[..count])?;
        Ok(bytes.len() as u64)
    }

    /// `PTRACE_GET_RSEQ_CONFIGURATION`: a `struct ptrace_rseq_configuration`.
    fn rseq_configuration(&mut self, task: Task, room: u64, to: u64) -> Answer {
        let tracee = self.tracee(task).ok_or(Errno::ESRCH)?;
        let registered = tracee.thread.rseq.as_ref();
        let [address, size, signature] = registered.map_or([0; 3], |rseq| rseq.words());
        let mut bytes = address.to_le_bytes().to_vec();
        for word in [size as u32, signature as u32, 0, 0] {
            bytes.extend(word.to_le_bytes());
        }
        let count = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        self.put(to, &bytes[..count])?;
        Ok(bytes.len() as u64)
    }
}
