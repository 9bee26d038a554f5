//! A sample's callchain as perf stores it: the kernel part, the user part and the markers before
//! them.

use crate::engine::{Engine, Outcome, Setting};
use crate::run::user_part;
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::kernel::{
    Callchain, CallchainEntry, CallchainOptions, UserFound, get_perf_callchain, is_user_cs,
};
use unwind_sim_unwind::reason::Code;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::start::Variant;
use unwind_sim_unwind::verdict::Verdict;

/// The source of chains that perf recorded.
const RECORDED: &str = "perf";

/// A callchain and the walk of its kernel part.
pub struct PerfChain {
    /// The walk of the kernel part; `None` for a sample in user mode.
    pub kernel: Option<Outcome>,
    /// Both parts, with markers.
    pub callchain: Callchain,
}

/// What is wrong with the kernel part of a callchain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PerfWrong {
    /// Its verdict.
    Judged {
        /// The verdict.
        verdict: Verdict,
        /// The diagnosis, or else why the walk ended.
        cause: Code,
    },
    /// The address of this index is not the one that the kernel's unwinder gave.
    Recorded(usize),
}

/// Whether the sample has a kernel part. Samples of ordinary programs have none.
pub fn in_kernel(view: &View<'_>) -> bool {
    let cs = view.live().get(Reg::Cs);
    view.sample.kernel.is_some() && !cs.is_some_and(is_user_cs)
}

/// The callchain of a sample, with the kernel part found by `engine` from start `variant`.
pub fn perf_chain(
    view: &View<'_>,
    engine: &Engine,
    variant: Variant,
    setting: &Setting,
    options: CallchainOptions,
    cache: &mut Cache,
) -> PerfChain {
    let kernel = in_kernel(view).then(|| {
        let mut setting = *setting;
        setting.limits.frames_max = options.max_stack;
        engine.examine(view, variant, &setting, cache)
    });
    let ips: Option<Vec<u64>> = kernel.as_ref().map(|outcome| {
        let frames = outcome.chain.frames.iter();
        frames.map(|f| f.pc.value()).collect()
    });
    let memory = view.memory(setting.view);
    let space = view.sample.user_space();
    let callchain = get_perf_callchain(ips.as_deref(), space.as_ref(), &memory, options);
    PerfChain { kernel, callchain }
}

impl PerfChain {
    /// The location of an address as `perf script` looks it up: for a return address, inside the
    /// call. `None` for a marker.
    pub fn place(&self, view: &View<'_>, entry: &CallchainEntry) -> Option<Location> {
        let kernel_pc = |number: usize, ip| {
            let frame = self.kernel.as_ref()?.chain.frames.get(number);
            frame.map(|f| f.pc).or(Some(CodeAddress::Return(ip)))
        };
        match *entry {
            CallchainEntry::Context(_) => None,
            CallchainEntry::Kernel(number, ip) => {
                let pc = kernel_pc(number, ip).unwrap_or(CodeAddress::Return(ip));
                Some(Location::of(view.space, pc))
            }
            CallchainEntry::User(frame) => {
                let pc = match frame.found {
                    UserFound::Regs => CodeAddress::Instruction(frame.ip),
                    UserFound::Entry { .. } | UserFound::FramePointer { .. } => {
                        CodeAddress::Return(frame.ip)
                    }
                };
                let nothing = AddressSpace::default();
                let space = view.user_mappings().unwrap_or(&nothing);
                Some(Location::of(space, pc))
            }
        }
    }

    /// What is wrong with the kernel part, according to the truth or to what the kernel's own
    /// unwinder recorded. `None` if it is right or cannot be judged.
    pub fn wrong(&self, view: &View<'_>) -> Option<PerfWrong> {
        let outcome = self.kernel.as_ref()?;
        let verdict = outcome.verdict;
        if verdict.is_wrong() {
            let cause = outcome.diagnosis.as_ref().map(|d| d.code);
            let cause = cause.unwrap_or(outcome.chain.end.reason.code());
            return Some(PerfWrong::Judged { verdict, cause });
        }
        let mut recorded = view.sample.recorded.iter();
        let recorded = recorded.find(|r| r.source == super::RECORDED)?;
        let ips: Vec<u64> = outcome.chain.frames.iter().map(|f| f.pc.value()).collect();
        first_other(&ips, &recorded.ips).map(PerfWrong::Recorded)
    }

    /// The index of the first word that differs from what perf recorded, if any differs. The outer
    /// `None` means that perf recorded nothing. For a sample without a kernel stack only the user
    /// part is compared.
    pub fn difference(&self, view: &View<'_>) -> Option<Option<usize>> {
        let mut recorded = view.sample.recorded.iter();
        let recorded = recorded.find(|r| r.source == RECORDED)?;
        let ours = self.callchain.ips();
        let (ours, recorded) = match view.sample.kernel {
            Some(_) => (ours, recorded.ips.clone()),
            None => (user_part(&ours), user_part(&recorded.ips)),
        };
        if recorded.is_empty() {
            return None;
        }
        Some(first_other(&ours, &recorded))
    }
}

/// The index of the first word that is not the same in both.
fn first_other(ours: &[u64], theirs: &[u64]) -> Option<usize> {
    let differs = ours.iter().zip(theirs).position(|(a, b)| a != b);
    differs.or((ours.len() != theirs.len()).then_some(ours.len().min(theirs.len())))
}
