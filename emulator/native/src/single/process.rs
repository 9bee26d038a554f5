//! The child's lifetime, and batches: fill the slots, let the child execute them, read the results.

use super::error::NativeError;
use super::layout::*;
use super::shared::{JUMP_SIZE, Shared, memory_file};
use super::{CODE_MAX, Mode, NativeCase, NativeState, Outcome, driver, image, setup};
use crate::extended;
use nix::libc;
use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long this process sleeps before it checks whether the child is still alive.
const LOOK: Duration = Duration::from_millis(10);
/// A child that spends this much processor time on one case is stuck: its own tick did not help.
const STUCK_CPU: Duration = Duration::from_millis(500);
/// The same for a child that sleeps. Generous, because this machine may be busy.
const STUCK_WALL: Duration = Duration::from_secs(30);

const CF: u64 = 1;
const PF: u64 = 1 << 2;
const AF: u64 = 1 << 4;
const ZF: u64 = 1 << 6;
const SF: u64 = 1 << 7;
const TF: u64 = 1 << 8;
const DF: u64 = 1 << 10;
const OF: u64 = 1 << 11;
const NT: u64 = 1 << 14;
const RF: u64 = 1 << 16;
const AC: u64 = 1 << 18;
const ID: u64 = 1 << 21;
/// The flags that a case can set, and bit 1, which is always set.
const CASE_FLAGS: u64 = CF | 2 | PF | AF | ZF | SF | DF | OF | NT | AC | ID;

/// Number of #DB, the exception that ends a single step.
const TRAPNO_DEBUG: u64 = 1;

/// All bits of MXCSR that any processor defines.
const MXCSR: u32 = 0xffff;

/// A child process that executes single instructions.
///
/// It lives as long as this value and the thread that created it. If it dies, the next
/// [`Native::run`] starts another.
pub struct Native {
    shared: Shared,
    /// The driver's executable file.
    image: File,
    child: Child,
    clock: ClockId,
    /// The processor that the child is pinned to.
    cpu: Option<usize>,
    exit: u64,
    /// Whether there is an AVX state.
    avx: bool,
}

/// How a batch ended.
enum BatchEnd {
    Done,
    Died(ExitStatus),
    Stuck,
}

impl Native {
    /// The best number of cases for one [`Native::run`]: as many as the child executes between two
    /// system calls. More are split into batches; fewer cost more per case.
    pub const BATCH: usize = SLOTS;

    /// Starts the child.
    ///
    /// # Errors
    ///
    /// If this machine does not allow it ([`NativeError::is_denied`]) or has no memory left.
    pub fn spawn() -> Result<Native, NativeError> {
        let mut image = memory_file("unwind-sim-driver")?;
        image
            .write_all(&image::image())
            .map_err(|error| NativeError::System {
                call: "write",
                error,
            })?;
        let mut shared = Shared::new()?;
        let (child, clock) = start(&mut shared, &image)?;
        Ok(Native {
            shared,
            image,
            child,
            clock,
            cpu: None,
            exit: driver::sites().exit,
            avx: Native::has_avx(),
        })
    }

    /// Whether this processor and its kernel have AVX, so that [`Mode::Avx`] can be used.
    pub fn has_avx() -> bool {
        extended::has_avx()
    }

    /// The address at which [`Native::run`] executes the case at `index`. Indices that differ by
    /// [`Native::BATCH`] share it.
    pub const fn place(index: usize) -> u64 {
        CODE + (index % SLOTS * CODE_STRIDE) as u64
    }

    /// Executes each of `cases` by itself, and writes its outcome and final state to `results`.
    /// `fx` of a result is written unless the mode is [`Mode::Plain`], its `upper` not in
    /// [`Mode::Fx`] or without AVX, and `window` if the case uses memory; `results` beyond the number of cases are unchanged. Whatever a case does, the
    /// cases after it are executed as well.
    ///
    /// # Errors
    ///
    /// If a case is malformed (then none is executed), or a child that died cannot be replaced.
    pub fn run(
        &mut self,
        cases: &[NativeCase],
        results: &mut [(Outcome, NativeState)],
    ) -> Result<(), NativeError> {
        if results.len() < cases.len() {
            return Err(NativeError::TooFewResults {
                cases: cases.len(),
                results: results.len(),
            });
        }
        for (index, case) in cases.iter().enumerate() {
            check(index, case, self.avx)?;
        }
        for (cases, results) in cases.chunks(SLOTS).zip(results.chunks_mut(SLOTS)) {
            self.run_batch(cases, results)?;
        }
        Ok(())
    }

    fn run_batch(
        &mut self,
        cases: &[NativeCase],
        results: &mut [(Outcome, NativeState)],
    ) -> Result<(), NativeError> {
        self.bring();

        for (index, case) in cases.iter().enumerate() {
            self.fill(index, case);
        }

        // Cases that ended the child, and how.
        let mut fatal: Vec<(usize, Outcome)> = Vec::new();
        let mut first = 0;
        let mut died_at = None;

        while first < cases.len() {
            self.shared.ask(first, cases.len());
            let end = self.wait()?;

            // The child may have overwritten its own record of the current slot.
            let undone = (first..cases.len()).find(|&index| self.shared.kind(index) == UNDONE);
            let Some(index) = undone else {
                break;
            };

            let outcome = match end {
                // The first death may be chance: others can kill the child, too, and it dies with
                // the thread that created it, even before it gets the batch.
                BatchEnd::Died(_) if died_at != Some(index) => None,
                BatchEnd::Died(status) => Some(Outcome::Killed {
                    signal: status.signal().unwrap_or(0),
                }),
                BatchEnd::Done | BatchEnd::Stuck => Some(Outcome::Hung),
            };

            self.replace()?;
            self.fill(index, &cases[index]);
            died_at = Some(index);
            first = index + usize::from(outcome.is_some());
            fatal.extend(outcome.map(|outcome| (index, outcome)));
        }

        for (index, (case, result)) in cases.iter().zip(&mut *results).enumerate() {
            self.harvest(index, case, result);
        }

        // After `harvest`, which knows only what the child has written.
        for (index, outcome) in fatal {
            results[index].0 = outcome;
        }

        Ok(())
    }

    fn status(&mut self) -> Result<Option<ExitStatus>, NativeError> {
        self.child.try_wait().map_err(|error| NativeError::System {
            call: "waitpid",
            error,
        })
    }

    /// Replaces the child with a new one.
    fn replace(&mut self) -> Result<(), NativeError> {
        end(&mut self.child);
        (self.child, self.clock) = start(&mut self.shared, &self.image)?;
        self.cpu = None;
        self.bring();
        Ok(())
    }

    /// Moves the child to the processor that this thread runs on. The two never run at the same
    /// time; on one processor, their shared memory is cached and waking is cheap.
    fn bring(&mut self) {
        let cpu = sched_getcpu().ok();
        if cpu == self.cpu {
            return;
        }
        let mut set = CpuSet::new();
        let set = cpu.and_then(|cpu| set.set(cpu).ok()).map(|()| set);
        // If the kernel refuses, the child merely runs elsewhere.
        let _ = set.map(|set| sched_setaffinity(self.pid(), &set));
        self.cpu = cpu;
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Waits for the end of the batch.
    fn wait(&mut self) -> Result<BatchEnd, NativeError> {
        let mut seen = (self.shared.current(), self.cpu(), Instant::now());
        loop {
            if self.shared.wait(LOOK) {
                return Ok(BatchEnd::Done);
            }
            if let Some(status) = self.status()? {
                return Ok(BatchEnd::Died(status));
            }
            let current = self.shared.current();
            if current != seen.0 {
                seen = (current, self.cpu(), Instant::now());
            } else if self.cpu().saturating_sub(seen.1) > STUCK_CPU || seen.2.elapsed() > STUCK_WALL
            {
                return Ok(BatchEnd::Stuck);
            }
        }
    }

    /// The processor time that the child has used; 0 if it has just died.
    fn cpu(&self) -> Duration {
        clock_gettime(self.clock).map_or(Duration::ZERO, Duration::from)
    }

    fn fill(&mut self, index: usize, case: &NativeCase) {
        let length = usize::from(case.code_len);
        let place = Native::place(index);
        let mut slot = Slot {
            gpr: case.state.gpr,
            rip: place,
            // Bit 1 of rflags is always set.
            rflags: case.state.rflags & CASE_FLAGS | 2,
            ..Slot::default()
        };

        let mut jump = [0; JUMP_SIZE];
        match case.mode {
            Mode::Plain => {}
            Mode::Fx => slot.flags |= FX,
            Mode::Avx => slot.flags |= FX | AVX,
            Mode::Step => {
                slot.flags |= FX | STEP | if self.avx { AVX } else { 0 };

                // TF makes the processor raise #DB after one instruction.
                slot.rflags |= TF;
            }
        }

        // `jmp rel32` to the driver's exit. A step ends with #DB instead.
        let then = if case.mode == Mode::Step {
            &[]
        } else {
            let from = place + (length + JUMP_SIZE) as u64;
            jump[0] = 0xe9;
            jump[1..].copy_from_slice(&(self.exit.wrapping_sub(from) as u32).to_le_bytes());
            &jump[..]
        };

        self.shared.set_code(index, &case.code[..length], then);
        if slot.flags & FX != 0 {
            self.shared.set_fx(index, &case.state);
        }
        if slot.flags & AVX != 0 {
            self.shared.set_avx(index, &case.state);
        }

        if case.memory {
            slot.flags |= MEMORY | if case.middle { MIDDLE } else { 0 };
            self.shared.set_window(index, &case.state);
        }

        // Last, because the flags are complete only now.
        self.shared.set_slot(index, &slot);
    }
}

impl Native {
    /// Reads the outcome in slot `index`. A slot that is neither done nor a signal is a case that
    /// ended the child.
    fn harvest(&self, index: usize, case: &NativeCase, result: &mut (Outcome, NativeState)) {
        let slot = self.shared.get_slot(index);
        let (outcome, state) = result;
        let stepped = slot.signal == libc::SIGTRAP && slot.trapno == TRAPNO_DEBUG;

        *outcome = match slot.kind {
            DONE => Outcome::Done,
            // A step ends with #DB.
            SIGNAL if case.mode == Mode::Step && stepped => Outcome::Done,
            SIGNAL => Outcome::Signal {
                signal: slot.signal,
                code: slot.code,
                trapno: slot.trapno,
                error_code: slot.error_code,
                address: slot.address,
            },
            _ => Outcome::Hung,
        };

        state.gpr = slot.gpr;
        // Done: the jump behind the code was reached.
        state.rip = match slot.kind {
            DONE => slot.rip.wrapping_add(u64::from(case.code_len)),
            _ => slot.rip,
        };

        // A fault sets RF in the rflags that it saves, and TF is from `fill`.
        let ours = if case.mode == Mode::Step { TF | RF } else { RF };
        state.rflags = slot.rflags & !ours;

        if slot.flags & FX != 0 {
            self.shared.get_fx(index, state);
        }
        if slot.flags & AVX != 0 {
            self.shared.get_avx(index, state);
        }
        if slot.flags & MEMORY != 0 {
            self.shared.get_window(index, state);
        }
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Rejects cases that cannot be executed.
fn check(index: usize, case: &NativeCase, avx: bool) -> Result<(), NativeError> {
    if !(1..=CODE_MAX).contains(&usize::from(case.code_len)) {
        return Err(NativeError::CodeLength {
            index,
            length: case.code_len,
        });
    }
    let mxcsr = case.state.fx.mxcsr();
    if case.mode != Mode::Plain && mxcsr & !MXCSR != 0 {
        return Err(NativeError::Mxcsr { index, mxcsr });
    }
    if case.mode == Mode::Avx && !avx {
        return Err(NativeError::NoAvx { index });
    }
    Ok(())
}

/// Starts a child and waits until it is ready.
fn start(shared: &mut Shared, image: &File) -> Result<(Child, ClockId), NativeError> {
    let system = |call| move |error: io::Error| NativeError::System { call, error };

    shared.reset();
    // The image is a file in memory, which has no other path (memfd_create(2)).
    let mut child = Command::new(format!("/proc/self/fd/{}", image.as_raw_fd()))
        .env_clear()
        // `setup` maps descriptor 0.
        .stdin(shared.file()?)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // A signal from the terminal is for the parent.
        .process_group(0)
        .spawn()
        .map_err(system("execve"))?;

    // An empty batch: when it is done, the child has set itself up.
    let begin = Instant::now();
    shared.ask(0, 0);
    while !shared.wait(LOOK) {
        let status = child.try_wait().map_err(system("waitpid"))?;
        let late = || begin.elapsed() > STUCK_WALL;
        let Some(status) = status.or_else(|| late().then(|| end(&mut child)).flatten()) else {
            continue;
        };

        // A failed call of the setup ends the child with its errno.
        return Err(match status.code() {
            Some(errno) => NativeError::Setup {
                call: setup::name(shared.calls() as usize),
                error: io::Error::from_raw_os_error(errno),
            },
            None => NativeError::NotReady(status),
        });
    }

    let pid = Pid::from_raw(child.id().cast_signed());
    match clock_getcpuclockid(pid) {
        Ok(clock) => Ok((child, clock)),
        Err(error) => {
            end(&mut child);
            Err(system("clock_getcpuclockid")(error.into()))
        }
    }
}

/// Kills a child and waits for it. `None` if its status is unknown.
fn end(child: &mut Child) -> Option<ExitStatus> {
    // Fails only if the child has already been waited for; then there is nothing to kill.
    let _ = child.kill();
    child.wait().ok()
}
