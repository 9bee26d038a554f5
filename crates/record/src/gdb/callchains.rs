//! Records callchains of the kernel's perf: the arguments that `get_perf_callchain` is called with,
//! among them the sample's registers, and the entry that it returns.

use super::{GdbRecordError, Session, machine};
use crate::kernel::KernelMachine as _;
use crate::kernel::callchain::{self, CALLCHAIN, CallchainArguments};
use crate::kernel::world::copy_more;
use std::io::Write;
use unwind_sim_recordings::model::RecordedChain;
use unwind_sim_unwind::kernel::is_user_cs;
use unwind_sim_unwind::pt_regs::{PT_REGS_LEN, regs_from};
use unwind_sim_unwind::regs::{Reg, Regs};

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
        let asked = CallchainArguments::at(self.machine, self.image.btf.as_ref())?;
        let registers = self.machine.registers()?;
        let live = machine::regs(&registers);
        let get = |name: &str| registers.get(name).unwrap_or(0);
        // The first argument is the sample's `struct pt_regs` (psABI 3.2.3).
        let bytes = self.machine.read(get("rdi"), PT_REGS_LEN as usize)?;
        let sampled = regs_from(&bytes);

        let mut stopped = self.kernel.stopped(self.machine, &live)?;
        let in_user = sampled.get(Reg::Cs).is_some_and(is_user_cs);

        // The function has not pushed anything yet, so its return address is at rsp (psABI 3.2.2).
        let back = self.machine.word(live.rsp())?;
        let caller_sp = live.rsp().wrapping_add(8);

        // The unwinder starts further inside, in a function called by this one; the frames
        // between are skipped in any case.
        let own = Regs::frame(back, caller_sp, live.get_or_zero(Reg::Rbp));
        let regs = callchain::start_regs(sampled, own);

        // The sampled rsp may be on another stack than the live one.
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

        let skipped = asked.as_ref().map_or(0, |asked| asked.skipped);
        // The entry is returned in rax (psABI 3.2.3).
        let at = registers.get("rax").unwrap_or(0);
        let ips = callchain::entry(self.machine, at, skipped.into())?;

        let (comm, mut sample) = self.sample_of(stopped, regs, self.summary.samples);
        sample.recorded.push(RecordedChain {
            source: "perf".into(),
            ips,
            request: asked.map(|asked| asked.request),
        });
        self.put(comm, sample)
    }
}
