//! Records callchains of the kernel's perf: the registers that `get_perf_callchain` is called with,
//! and the entry that it returns.

use super::world::{self, copy_more};
use super::{GdbRecordError, PID, Session};
use std::io::Write;
use unwind_sim_host::gdb::GdbError;
use unwind_sim_recordings::model::{KernelSample, RecordedChain, Sample};
use unwind_sim_unwind::kernel::is_user_cs;
use unwind_sim_unwind::pt_regs::{PT_REGS_LEN, regs_from};
use unwind_sim_unwind::regs::{Reg, RegMask, Regs};
use unwind_sim_unwind::start::SampleRegs;
use unwind_sim_unwind::truth::Truth;

/// The function that makes callchains. With `--at` this function, its results are recorded.
pub(super) const CALLCHAIN: &str = "get_perf_callchain";
/// Maximum number of words in an entry: `PERF_MAX_STACK_DEPTH`, and the context markers.
const WORDS_MAX: u64 = 127 + 8;
/// The registers set by `perf_arch_fetch_caller_regs`.
const FAKE: RegMask = RegMask::of(&[Reg::Rip, Reg::Rsp, Reg::Cs, Reg::Rflags]);

impl<W: Write> Session<'_, '_, '_, W> {
    /// Records callchains, each from the call to the return.
    pub(super) fn callchains(&mut self) -> Result<(), GdbRecordError> {
        let entry = self.locate(CALLCHAIN)?;
        while !self.is_over() && self.run_to(&entry)? {
            self.callchain()?;
        }
        Ok(())
    }

    fn callchain(&mut self) -> Result<(), GdbRecordError> {
        let registers = self.machine.registers()?;
        let live = world::regs(&registers);
        let get = |name: &str| registers.get(name).unwrap_or(0);
        let bytes = self.machine.read(get("rdi"), PT_REGS_LEN as usize)?;
        let sampled = regs_from(&bytes);
        let mut stopped = self.kernel.stopped(self.machine, &live)?;
        let in_user = sampled.get(Reg::Cs).is_some_and(is_user_cs);
        let back = self.machine.word(live.rsp())?;
        let caller_sp = live.rsp().wrapping_add(8);
        let regs = match sampled.is_hardware() {
            true => SampleRegs::hardware(sampled),
            // The unwinder starts further inside, in a function called by this one; the frames
            // between are skipped in any case.
            false => SampleRegs {
                sampled: sampled.restricted(FAKE),
                fetch: None,
                own: Some(Regs::frame(back, caller_sp, live.get_or_zero(Reg::Rbp))),
            },
        };
        if !in_user {
            copy_more(self.machine, &mut stopped, sampled.rsp())?;
        }
        if !self.run_to(&[back])? {
            return Ok(());
        }
        let registers = self.machine.registers()?;
        if registers.get("rsp") != Some(caller_sp) {
            // The callchain of another task was finished.
            self.summary.left_early += 1;
            return Ok(());
        }
        let ips = self.entry(registers.get("rax").unwrap_or(0))?;
        let sample = Sample {
            pid: PID,
            tid: stopped.pid,
            time: self.summary.samples,
            regs,
            regions: stopped.regions,
            truth: Truth::Unknown,
            recorded: vec![RecordedChain {
                source: "perf".into(),
                ips,
            }],
            branches: Vec::new(),
            kernel: Some(Box::new(KernelSample {
                release: self.image.version.clone().unwrap_or_default(),
                task: stopped.task,
                states: Vec::new(),
                boundary: None,
                user: stopped.user,
            })),
            process_memory: None,
        };
        self.put(stopped.comm, sample)
    }

    /// The returned `struct perf_callchain_entry`: a count, and that many words.
    fn entry(&mut self, at: u64) -> Result<Vec<u64>, GdbError> {
        if at == 0 {
            // All buffers of the processor are in use.
            return Ok(Vec::new());
        }
        let count = self.machine.word(at)?.min(WORDS_MAX);
        let bytes = self.machine.read(at.wrapping_add(8), 8 * count as usize)?;
        let words = bytes.as_chunks::<8>().0.iter();
        Ok(words.map(|b| u64::from_le_bytes(*b)).collect())
    }
}
