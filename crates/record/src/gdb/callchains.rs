//! Records callchains of the kernel's perf: the arguments that `get_perf_callchain` is called with,
//! among them the sample's registers, and the entry that it returns.

use super::world::{self, copy_more};
use super::{GdbRecordError, PID, Session};
use std::io::Write;
use unwind_sim_host::gdb::GdbError;
use unwind_sim_recordings::kernel::Btf;
use unwind_sim_recordings::model::{CallchainRequest, KernelSample, RecordedChain, Sample};
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

/// The registers of a function's arguments (psABI 3.2.3); further ones are on the stack.
const ARGUMENTS: [&str; 6] = ["rdi", "rsi", "rdx", "rcx", "r8", "r9"];

/// What `get_perf_callchain` was asked for.
#[derive(PartialEq, Eq, Debug)]
struct CallchainArguments {
    request: CallchainRequest,
    /// How many entries are left out at the start (`init_nr`, until 6.18): they count as stored.
    skipped: u32,
}

impl CallchainArguments {
    /// From the arguments by their names in the kernel: they were reordered, added and removed.
    /// Only the low half, or byte, of a register is the argument.
    fn from_arguments(values: &[(&str, u64)]) -> Option<CallchainArguments> {
        let find = |name: &str| values.iter().find(|(n, _)| *n == name).map(|(_, v)| *v);
        let flag = |name: &str| find(name).map(|value| value & 0xff != 0);
        let skipped = find("init_nr").unwrap_or(0) as u32;
        Some(CallchainArguments {
            request: CallchainRequest {
                kernel: flag("kernel")?,
                user: flag("user")?,
                add_mark: flag("add_mark")?,
                crosstask: flag("crosstask").unwrap_or(false),
                max_stack: (find("max_stack")? as u32).saturating_sub(skipped),
                cookie: find("defer_cookie").filter(|cookie| *cookie != 0),
            },
            skipped,
        })
    }
}

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
        let asked = self.asked()?;
        let registers = self.machine.registers()?;
        let live = world::regs(&registers);
        let get = |name: &str| registers.get(name).unwrap_or(0);
        // The first argument is the sample's `struct pt_regs` (psABI 3.2.3).
        let bytes = self.machine.read(get("rdi"), PT_REGS_LEN as usize)?;
        let sampled = regs_from(&bytes);

        let mut stopped = self.kernel.stopped(self.machine, &live)?;
        let in_user = sampled.get(Reg::Cs).is_some_and(is_user_cs);

        // The function has not pushed anything yet, so its return address is at rsp (psABI 3.2.2).
        let back = self.machine.word(live.rsp())?;
        let caller_sp = live.rsp().wrapping_add(8);

        let regs = if sampled.is_hardware() {
            SampleRegs::hardware(sampled)
        } else {
            // The unwinder starts further inside, in a function called by this one; the frames
            // between are skipped in any case.
            SampleRegs {
                sampled: sampled.restricted(FAKE),
                fetch: None,
                own: Some(Regs::frame(back, caller_sp, live.get_or_zero(Reg::Rbp))),
            }
        };

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
        let ips = self.entry(registers.get("rax").unwrap_or(0), skipped)?;

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
                request: asked.map(|asked| asked.request),
            }],
            branches: Vec::new(),
            kernel: Some(Box::new(KernelSample {
                release: self.image.version.clone().unwrap_or_default(),
                unwinder: self.places.unwinder(),
                task: stopped.task,
                states: Vec::new(),
                boundary: None,
                user: stopped.user,
            })),
            process_memory: None,
        };

        self.put(stopped.comm, sample)
    }

    /// The arguments at the function's entry; `None` if the kernel's types do not name them.
    fn asked(&mut self) -> Result<Option<CallchainArguments>, GdbError> {
        let btf = self.image.btf.as_ref();
        let Some(names) = btf.and_then(|btf: &Btf| btf.parameters(CALLCHAIN)) else {
            return Ok(None);
        };
        let registers = self.machine.registers()?;
        let stack = registers.get("rsp").unwrap_or(0);
        let mut values = Vec::new();
        for (i, name) in names.into_iter().enumerate() {
            let value = match ARGUMENTS.get(i) {
                Some(register) => registers.get(register).unwrap_or(0),
                // Above the return address.
                None => {
                    let place = 8 * (i - ARGUMENTS.len() + 1) as u64;
                    self.machine.word(stack.wrapping_add(place))?
                }
            };
            values.push((name, value));
        }
        Ok(CallchainArguments::from_arguments(&values))
    }

    /// The returned `struct perf_callchain_entry`: a count, and that many words, of which the first
    /// `skipped` were left out.
    fn entry(&mut self, at: u64, skipped: u32) -> Result<Vec<u64>, GdbError> {
        if at == 0 {
            // All buffers of the processor are in use.
            return Ok(Vec::new());
        }
        let skipped = u64::from(skipped);
        let count = self.machine.word(at)?.min(WORDS_MAX);
        let count = count.saturating_sub(skipped);
        let at = at.wrapping_add(8 + 8 * skipped);
        let bytes = self.machine.read(at, 8 * count as usize)?;
        let words = bytes.as_chunks::<8>().0.iter();
        Ok(words.map(|b| u64::from_le_bytes(*b)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_go_by_their_names() {
        let request = CallchainRequest {
            kernel: true,
            user: false,
            add_mark: true,
            crosstask: false,
            max_stack: 4,
            cookie: None,
        };
        // Up to 6.17; only the low byte of a `bool` is defined.
        let old = [
            ("regs", 1),
            ("init_nr", 0),
            ("kernel", 0xff01),
            ("user", 0x100),
            ("max_stack", 0xffff_ffff_0000_0004),
            ("crosstask", 0),
            ("add_mark", 1),
        ];
        let skipped = 0;
        assert_eq!(
            CallchainArguments::from_arguments(&old),
            Some(CallchainArguments { request, skipped })
        );
        // A BPF helper before 5.18.
        let mut skipping = old;
        (skipping[1].1, skipping[4].1, skipping[6].1) = (123, 127, 0);
        let request = CallchainRequest {
            add_mark: false,
            ..request
        };
        let skipped = 123;
        let expected = Some(CallchainArguments { request, skipped });
        assert_eq!(CallchainArguments::from_arguments(&skipping), expected);

        // Since then, without the number to skip and with a cookie.
        let new = [
            ("regs", 1),
            ("kernel", 1),
            ("user", 0),
            ("max_stack", 4),
            ("crosstask", 0),
            ("add_mark", 0),
            ("defer_cookie", 0x3_0000_0001),
        ];
        let request = CallchainRequest {
            cookie: Some(0x3_0000_0001),
            ..request
        };
        let skipped = 0;
        assert_eq!(
            CallchainArguments::from_arguments(&new),
            Some(CallchainArguments { request, skipped })
        );

        // Without one of the arguments, nothing can be said.
        assert_eq!(CallchainArguments::from_arguments(&old[..4]), None);
    }
}
