//! `get_perf_callchain` of a stopped kernel: its arguments, and the entry that it makes.

use super::KernelMachine;
use unwind_sim_recordings::kernel::Btf;
use unwind_sim_recordings::model::CallchainRequest;
use unwind_sim_unwind::regs::{Reg, RegMask, Regs};
use unwind_sim_unwind::start::SampleRegs;

/// The function that makes callchains.
pub(crate) const CALLCHAIN: &str = "get_perf_callchain";
/// The registers set by `perf_arch_fetch_caller_regs`.
const FAKE: RegMask = RegMask::of(&[Reg::Rip, Reg::Rsp, Reg::Cs, Reg::Rflags]);
/// Maximum number of words in an entry: `PERF_MAX_STACK_DEPTH`, and the context markers.
const WORDS_MAX: u64 = 127 + 8;

/// The registers of a function's arguments (psABI 3.2.3); further ones are on the stack.
const ARGUMENTS: [&str; 6] = ["rdi", "rsi", "rdx", "rcx", "r8", "r9"];

/// What `get_perf_callchain` was asked for.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct CallchainArguments {
    pub(crate) request: CallchainRequest,
    /// How many entries are left out at the start (`init_nr`, until 6.18): they count as stored.
    pub(crate) skipped: u32,
}

impl CallchainArguments {
    /// Those of a machine that is at the first instruction of the function; `None` if the kernel's types
    /// do not name them.
    pub(crate) fn at<M: KernelMachine>(
        machine: &mut M,
        btf: Option<&Btf>,
    ) -> Result<Option<CallchainArguments>, M::Error> {
        let Some(names) = btf.and_then(|btf| btf.parameters(CALLCHAIN)) else {
            return Ok(None);
        };
        let stack = machine.register("rsp")?.unwrap_or(0);
        let mut values = Vec::new();
        for (i, name) in names.into_iter().enumerate() {
            let value = match ARGUMENTS.get(i) {
                Some(register) => machine.register(register)?.unwrap_or(0),
                // Above the return address.
                None => {
                    let place = 8 * (i - ARGUMENTS.len() + 1) as u64;
                    machine.word(stack.wrapping_add(place))?
                }
            };
            values.push((name, value));
        }
        Ok(CallchainArguments::from_arguments(&values))
    }

    /// From the arguments by their names in the kernel: they were reordered, added and removed.
    /// Only the low half, or byte, of a register is the argument.
    pub(crate) fn from_arguments(values: &[(&str, u64)]) -> Option<CallchainArguments> {
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

/// What a callchain of the sample with the registers `sampled` starts from. Made-up registers need `own`, those
/// of the unwinder itself.
pub(crate) fn start_regs(sampled: Regs, own: Regs) -> SampleRegs {
    if sampled.is_hardware() {
        return SampleRegs::hardware(sampled);
    }
    SampleRegs {
        sampled: sampled.restricted(FAKE),
        fetch: None,
        own: Some(own),
    }
}

/// The words of the `struct perf_callchain_entry` at `at`, a count and that many words, but for the first
/// `skipped`.
pub(crate) fn entry<M: KernelMachine>(
    machine: &mut M,
    at: u64,
    skipped: u64,
) -> Result<Vec<u64>, M::Error> {
    if at == 0 {
        // All buffers of the processor are in use.
        return Ok(Vec::new());
    }
    let count = machine.word(at)?.min(WORDS_MAX);
    let count = count.saturating_sub(skipped);
    let at = at.wrapping_add(8 + 8 * skipped);
    let bytes = machine.read(at, 8 * count as usize)?;
    let words = bytes.as_chunks::<8>().0.iter();
    Ok(words.map(|b| u64::from_le_bytes(*b)).collect())
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
