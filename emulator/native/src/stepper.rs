//! A process without a program of its own: the caller provides its memory and registers, steps it
//! instruction by instruction, and acts as its kernel.
//!
//! Its memory is empty except for one page (and next to it the vDSO, where the kernel keeps it),
//! used only by the system calls that [`Stepper::map`] and [`Stepper::unmap`] make in it. System
//! calls by the code that is stepped are suppressed.
//!
//! ptrace requires all requests to come from the thread that started the process, so [`Stepper`] is
//! not `Send`.

mod image;
#[cfg(test)]
mod tests;

use crate::error::{StepError, TraceError};
use crate::extended::{self, AVX_BIT, Extended, HEADER, LEGACY_BITS, UPPER, UPPER_SIZE};
use crate::maps::Maps;
use crate::pin::Pinned;
use crate::ptrace::{self, FxArea, Registers, Resume, Status, Waited};
use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io::Write;
use std::marker::PhantomData;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Makes the kernel place new mappings bottom-up, far from where programs have theirs (Linux
/// `include/uapi/linux/personality.h`).
const PERSONALITY: libc::c_ulong = (libc::ADDR_NO_RANDOMIZE | libc::ADDR_COMPAT_LAYOUT) as _;

/// Size of the largest XSAVE area that is expected: with AMX it has 11 KiB.
const XSTATE_MAX: usize = 1 << 16;
/// The bytes of the x87 and SSE state before those that the kernel uses.
const LEGACY: usize = 416;

/// The registers of a thread except x87, SSE and AVX.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cpu {
    /// rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15: the order of their encoding.
    pub gpr: [u64; 16],
    /// Address of the next instruction.
    pub rip: u64,
    /// All of rflags as the kernel reports them: RF may be set after a fault.
    pub rflags: u64,
    /// The fs and gs bases.
    pub bases: [u64; 2],
}

/// How a step ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// The instruction completed. For a repeated string instruction, this is one iteration. Also
    /// reported for `int3` and `int1`.
    Done,
    /// The instruction was a system call, which was suppressed; rip is past it.
    Syscall,
    /// The instruction raised this signal and did not complete.
    Signal {
        /// The signal's number.
        signal: i32,
        /// `si_code`.
        code: i32,
        /// `si_addr`.
        address: u64,
    },
}

/// The process, killed when dropped.
#[derive(Debug)]
pub struct Stepper {
    pid: i32,
    memory: File,
    /// Whether there is an AVX state.
    avx: bool,
    /// Registers that [`Cpu`] lacks: the selectors.
    template: Registers,
    _tracee: Tracee,
    _pinned: Option<Pinned>,
    /// ptrace is bound to one thread.
    _thread: PhantomData<*const ()>,
}

impl Stepper {
    /// Starts the process, and pins it and this thread to one processor.
    ///
    /// # Errors
    /// If this machine does not allow tracing.
    pub fn new() -> Result<Stepper, StepError> {
        let tracee = start()?;
        let pid = tracee.pid();

        // After PTRACE_TRACEME, `execve` stops the process with SIGTRAP (ptrace(2)).
        match ptrace::wait_until(pid)? {
            Waited::Stopped(_, Status::Signal(libc::SIGTRAP)) => {}
            other => return Err(unexpected(pid, &other)),
        }

        // EXITKILL, because the process must not outlive its tracer (ptrace(2)).
        ptrace::set_options(pid, libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACESYSGOOD)?;

        // One call for any length; PTRACE_PEEKDATA reads a word (ptrace(2)).
        let memory = File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem"))
            .map_err(failed("open of /proc/PID/mem", pid))?;

        let pinned = Pinned::here();
        if let Some(pinned) = &pinned {
            pinned.bring(pid);
        }

        let mut stepper = Stepper {
            pid,
            memory,
            avx: extended::has_avx(),
            template: ptrace::registers(pid)?,
            _tracee: tracee,
            _pinned: pinned,
            _thread: PhantomData,
        };

        stepper.clear()?;
        Ok(stepper)
    }

    /// Unmaps everything.
    ///
    /// # Errors
    /// If the process is gone.
    pub fn clear(&mut self) -> Result<(), StepError> {
        for mapping in Maps::read(self.pid).iter() {
            let Range { start, end } = mapping.range;
            // The kernel may keep its own mappings, such as the vsyscall page, which is not user
            // memory.
            let kernel = mapping.name.starts_with("[v");
            if mapping.range == image::PAGE {
                continue;
            }
            match self.unmap(start..end) {
                Err(StepError::Trace(_)) if kernel => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Maps zeros, replacing what was there. `may` is readable, writable, executable.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn map(&mut self, range: Range<u64>, may: [bool; 3]) -> Result<(), StepError> {
        if range.start < image::PAGE.end && image::PAGE.start < range.end {
            return Err(self.refused("mmap", libc::EEXIST));
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let size = range.end.wrapping_sub(range.start);
        let flags = flags as u64;
        let arguments = [range.start, size, protection(may), flags, u64::MAX, 0];
        self.call("mmap", libc::SYS_mmap, arguments)
    }

    /// Changes the protection of mapped pages.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn protect(&mut self, range: Range<u64>, may: [bool; 3]) -> Result<(), StepError> {
        let size = range.end.wrapping_sub(range.start);
        let arguments = [range.start, size, protection(may), 0, 0, 0];
        self.call("mprotect", libc::SYS_mprotect, arguments)
    }

    /// Unmaps pages, mapped or not.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn unmap(&mut self, range: Range<u64>) -> Result<(), StepError> {
        if range.start < image::PAGE.end && image::PAGE.start < range.end {
            return Err(self.refused("munmap", libc::EEXIST));
        }
        let size = range.end.wrapping_sub(range.start);
        self.call("munmap", libc::SYS_munmap, [range.start, size, 0, 0, 0, 0])
    }

    /// Makes a system call in the process and restores its registers.
    fn call(
        &mut self,
        name: &'static str,
        number: libc::c_long,
        arguments: [u64; 6],
    ) -> Result<(), StepError> {
        let saved = ptrace::registers(self.pid)?;
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;

        // Without a system call in orig_rax, the kernel does not restart one
        // (arch/x86/kernel/signal.c).
        let registers = Registers {
            rip: image::SYSCALL,
            rax: number.cast_unsigned(),
            orig_rax: u64::MAX,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..saved
        };

        ptrace::set_registers(self.pid, &registers)?;
        ptrace::resume(self.pid, Resume::Step, 0)?;
        match ptrace::wait_until(self.pid)? {
            Waited::Stopped(_, Status::Signal(libc::SIGTRAP)) => {}
            other => return Err(unexpected(self.pid, &other)),
        }

        let result = ptrace::registers(self.pid)?.rax.cast_signed();
        let saved = Registers {
            orig_rax: u64::MAX,
            ..saved
        };
        ptrace::set_registers(self.pid, &saved)?;

        // -4095 to -1 are errors (psABI A.2.1).
        match i32::try_from(-result) {
            Ok(errno @ 1..4096) => Err(self.refused(name, errno)),
            _ => Ok(()),
        }
    }

    /// Reads memory into `to`.
    ///
    /// # Errors
    /// If part of it is not mapped.
    pub fn read(&self, address: u64, to: &mut [u8]) -> Result<(), StepError> {
        self.memory
            .read_exact_at(to, address)
            .map_err(failed("read of memory", self.pid))
    }

    /// Writes to mapped, writable memory.
    ///
    /// # Errors
    /// If part of it is not mapped or not writable.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), StepError> {
        self.memory
            .write_all_at(bytes, address)
            .map_err(failed("write of memory", self.pid))
    }

    /// The general registers, rip, rflags and bases.
    ///
    /// # Errors
    /// If the process is gone.
    pub fn cpu(&self) -> Result<Cpu, StepError> {
        let r = ptrace::registers(self.pid)?;
        let gpr = [
            r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11,
            r.r12, r.r13, r.r14, r.r15,
        ];
        Ok(Cpu {
            gpr,
            rip: r.rip,
            rflags: r.eflags,
            bases: [r.fs_base, r.gs_base],
        })
    }

    /// Sets the registers.
    ///
    /// # Errors
    /// If the kernel refuses, for example because a base is above user space.
    pub fn set_cpu(&mut self, cpu: &Cpu) -> Result<(), StepError> {
        let [
            rax,
            rcx,
            rdx,
            rbx,
            rsp,
            rbp,
            rsi,
            rdi,
            r8,
            r9,
            r10,
            r11,
            r12,
            r13,
            r14,
            r15,
        ] = cpu.gpr;

        // Without a system call in orig_rax, the kernel does not restart one
        // (arch/x86/kernel/signal.c).
        let registers = Registers {
            r15,
            r14,
            r13,
            r12,
            rbp,
            rbx,
            r11,
            r10,
            r9,
            r8,
            rax,
            rcx,
            rdx,
            rsi,
            rdi,
            orig_rax: u64::MAX,
            rip: cpu.rip,
            eflags: cpu.rflags,
            rsp,
            fs_base: cpu.bases[0],
            gs_base: cpu.bases[1],
            ..self.template
        };

        Ok(ptrace::set_registers(self.pid, &registers)?)
    }

    /// The x87, SSE and AVX registers.
    ///
    /// # Errors
    /// If the process is gone.
    pub fn extended(&self) -> Result<Extended, StepError> {
        let mut state = Extended::default();
        if self.avx {
            let mut area = [0; UPPER + UPPER_SIZE];
            ptrace::xstate(self.pid, &mut area)?;
            state.legacy.copy_from_slice(&area[..HEADER]);
            // Otherwise the registers are in their initial state.
            if components(&area) & AVX_BIT != 0 {
                let upper = area[UPPER..].as_chunks::<16>().0;
                for (to, from) in state.upper.iter_mut().zip(upper) {
                    *to = u128::from_le_bytes(*from);
                }
            }
        } else {
            let mut area = FxArea([0; 512]);
            ptrace::fx(self.pid, &mut area)?;
            state.legacy = area.0;
        }
        Ok(state)
    }

    /// Sets the x87, SSE and AVX registers. Without AVX, the upper halves are ignored.
    ///
    /// # Errors
    /// If the process is gone, or reserved bits of MXCSR are set.
    pub fn set_extended(&mut self, state: &Extended) -> Result<(), StepError> {
        if !self.avx {
            return Ok(ptrace::set_fx(self.pid, &FxArea(state.legacy))?);
        }
        let mut area = vec![0; XSTATE_MAX];
        let size = ptrace::xstate(self.pid, &mut area)?;
        area.truncate(size);
        if size < UPPER + UPPER_SIZE {
            return Err(self.refused("PTRACE_GETREGSET", libc::ENODATA));
        }
        area[..LEGACY].copy_from_slice(&state.legacy[..LEGACY]);
        let upper = area[UPPER..UPPER + UPPER_SIZE].as_chunks_mut::<16>().0;
        for (to, from) in upper.iter_mut().zip(state.upper) {
            *to = from.to_le_bytes();
        }
        let components = components(&area) | LEGACY_BITS | AVX_BIT;
        area[HEADER..HEADER + 8].copy_from_slice(&components.to_le_bytes());
        Ok(ptrace::set_xstate(self.pid, &mut area)?)
    }

    /// Executes one instruction.
    ///
    /// # Errors
    /// If the process is gone.
    pub fn step(&mut self) -> Result<Stop, StepError> {
        ptrace::resume(self.pid, Resume::StepWithoutSyscall, 0)?;
        match ptrace::wait_until(self.pid)? {
            Waited::Stopped(_, Status::Signal(libc::SIGTRAP)) => Ok(Stop::Done),
            Waited::Stopped(_, Status::Syscall) => Ok(Stop::Syscall),
            Waited::Stopped(_, Status::Signal(signal)) => {
                let (code, address) = ptrace::signal_info(self.pid)?;
                Ok(Stop::Signal {
                    signal,
                    code,
                    address,
                })
            }
            other => Err(unexpected(self.pid, &other)),
        }
    }

    /// Steps per second on this machine when only the general registers are read after each step:
    /// the upper limit for any stepper.
    ///
    /// # Errors
    /// If the process is gone.
    pub fn bare_speed(&mut self, steps: u32) -> Result<f64, StepError> {
        let saved = ptrace::registers(self.pid)?;
        let registers = Registers {
            rip: image::SPIN,
            orig_rax: u64::MAX,
            ..self.template
        };
        ptrace::set_registers(self.pid, &registers)?;
        let begin = Instant::now();
        for _ in 0..steps {
            ptrace::resume(self.pid, Resume::Step, 0)?;
            ptrace::wait_until(self.pid)?;
            ptrace::registers(self.pid)?;
        }
        let time = begin.elapsed();
        ptrace::set_registers(self.pid, &saved)?;
        Ok(f64::from(steps) / time.as_secs_f64())
    }

    fn refused(&self, call: &'static str, errno: i32) -> StepError {
        failed(call, self.pid)(std::io::Error::from_raw_os_error(errno))
    }
}

/// The traced child, killed when dropped.
#[derive(Debug)]
struct Tracee(Child);

impl Tracee {
    fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        // Fails only if the process is already gone.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn unexpected(pid: i32, what: &Waited) -> StepError {
    StepError::Stopped {
        pid,
        what: format!("{what:?}"),
    }
}

fn failed(call: &'static str, tid: i32) -> impl FnOnce(std::io::Error) -> StepError {
    move |error| TraceError { call, tid, error }.into()
}

/// `XSTATE_BV`: the components of an XSAVE area that are not in their initial state.
fn components(area: &[u8]) -> u64 {
    area[HEADER..]
        .first_chunk()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn protection(may: [bool; 3]) -> u64 {
    let bits = [libc::PROT_READ, libc::PROT_WRITE, libc::PROT_EXEC];
    let given = bits.into_iter().zip(may).filter(|&(_, may)| may);
    given.fold(0, |all, (bit, _)| all | bit as u64)
}

/// Starts the traced process; it stops at its first instruction.
fn start() -> Result<Tracee, StepError> {
    let system = |call| failed(call, 0);
    let mut file = memory_file()?;
    file.write_all(&image::image()).map_err(system("write"))?;

    // The image is a file in memory, which has no other path (memfd_create(2)).
    let mut command = Command::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
    command
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // A signal from the terminal is for the parent.
        .process_group(0);

    // Both outlast `execve`.
    let prepare = || {
        // SAFETY: plain system calls on numbers; PTRACE_TRACEME ignores the other arguments.
        let result = unsafe {
            libc::personality(PERSONALITY);
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0)
        };

        match result {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // SAFETY: `prepare` makes async-signal-safe calls only.
    unsafe { command.pre_exec(prepare) };

    let child = command.spawn();
    child
        .map(Tracee)
        .map_err(system("start of a traced process"))
}

/// Creates an executable file in memory.
fn memory_file() -> Result<File, StepError> {
    let (name, flags) = ("unwind-sim-stepper", MFdFlags::MFD_CLOEXEC);
    // Before Linux 6.3 this flag does not exist, and every memfd is executable.
    memfd_create(name, flags | MFdFlags::from_bits_retain(libc::MFD_EXEC))
        .or_else(|_| memfd_create(name, flags))
        .map(File::from)
        .map_err(|error| failed("memfd_create", 0)(error.into()))
}
