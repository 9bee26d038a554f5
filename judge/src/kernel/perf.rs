//! A sample's callchain as perf stores it: the kernel part, the user part and the markers before
//! them. Also its text in the format of `perf script`, where markers are not frames.

use crate::engine::{Engine, Outcome, Setting};
use crate::run::user_part;
use std::fmt::Write as _;
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::kernel::{
    Callchain, CallchainEntry, CallchainOptions, UserFound, get_perf_callchain, is_user_cs,
};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::start::Variant;

/// The source of chains that perf recorded.
const RECORDED: &str = "perf";

/// A callchain and the walk of its kernel part.
pub struct PerfChain {
    /// The walk of the kernel part; `None` for a sample in user mode.
    pub kernel: Option<Outcome>,
    /// Both parts, with markers.
    pub callchain: Callchain,
}

/// Whether the sample has a kernel part. Samples of ordinary programs have none.
fn in_kernel(view: &View<'_>) -> bool {
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

    /// The frames, one per line.
    pub fn lines(&self, view: &View<'_>, indent: &str) -> String {
        let mut out = String::new();
        for entry in &self.callchain.entries {
            let Some(place) = self.place(view, entry) else {
                continue;
            };
            let image = place.image.as_deref().unwrap_or("[unknown]");
            let ip = entry.value();
            let _ = match &place.function {
                Some(name) => {
                    let offset = place.offset;
                    writeln!(out, "{indent}{ip:>16x} {name}+{offset:#x} ({image})")
                }
                None => writeln!(out, "{indent}{ip:>16x} [unknown] ({image})"),
            };
        }
        out
    }

    /// What is wrong with the kernel part, according to the truth or to what the kernel's own
    /// unwinder recorded. `None` if it is right or cannot be judged.
    pub fn wrong(&self, view: &View<'_>) -> Option<String> {
        let outcome = self.kernel.as_ref()?;
        if outcome.verdict.is_wrong() {
            let verdict = outcome.verdict;
            let cause = outcome
                .diagnosis
                .as_ref()
                .map_or(outcome.chain.end.reason.code(), |d| d.code);
            let what = cause.description();
            return Some(format!(
                "the kernel part is {} ({verdict}): {cause} {what}",
                verdict.as_str()
            ));
        }
        let recorded = view
            .sample
            .recorded
            .iter()
            .find(|r| r.source == super::RECORDED)?;
        let ips = outcome.chain.frames.iter().map(|f| f.pc.value());
        let differs = recorded
            .ips
            .iter()
            .copied()
            .zip(ips.clone())
            .position(|(a, b)| a != b);
        let (ours, theirs) = (ips.count(), recorded.ips.len());
        let at = differs.or((ours != theirs).then_some(ours.min(theirs)))?;
        Some(format!(
            "address {at} of the kernel part differs from what the kernel's unwinder gave"
        ))
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
        let differs = ours.iter().zip(&recorded).position(|(a, b)| a != b);
        let shorter = ours.len().min(recorded.len());
        Some(differs.or((ours.len() != recorded.len()).then_some(shorter)))
    }
}

/// A sample in the format of `perf script`: a heading, a line for each frame, an empty line.
/// `event` is the text in place of the event name.
pub fn perf_script(view: &View<'_>, event: &str, chain: &PerfChain) -> String {
    let sample = view.sample;
    let name = view.task_name();
    // perf writes this for a thread whose name it does not know.
    let name = name.map_or_else(|| format!(":{}", sample.tid), str::to_owned);
    let (seconds, rest) = (sample.time / 1_000_000_000, sample.time % 1_000_000_000);
    let (tid, micros) = (sample.tid, rest / 1000);
    let lines = chain.lines(view, "\t");
    format!("{name} {tid:>5} {seconds:>5}.{micros:06}: {event}: \n{lines}\n")
}

/// The callchain entry by entry, and why the user part ended.
pub fn explained(view: &View<'_>, chain: &PerfChain) -> String {
    let mut out = "the callchain that perf stores:\n".to_owned();
    for (i, entry) in chain.callchain.entries.iter().enumerate() {
        let ip = entry.value();
        let place = chain.place(view, entry).map(|p| p.to_string());
        let place = place.unwrap_or_default();
        let _ = match entry {
            CallchainEntry::Context(context) => {
                writeln!(out, "  {i:>3} {ip:>16x}  {}", context.as_str())
            }
            CallchainEntry::Kernel(number, _) => {
                writeln!(out, "  {i:>3} {ip:>16x}  {place}  [frame {number}]")
            }
            CallchainEntry::User(frame) => {
                let by = found_text(frame.found);
                writeln!(out, "  {i:>3} {ip:>16x}  {place}  [{by}]")
            }
        };
    }
    let _ = writeln!(out, "the user part ended: {}", chain.callchain.user);
    out
}

fn found_text(found: UserFound) -> String {
    match found {
        UserFound::Regs => "user's registers".to_owned(),
        UserFound::Entry { slot } => format!("uprobe at a function's entry, *sp, sp {slot:#x}"),
        UserFound::FramePointer { fp } => format!("frame at fp {fp:#x}"),
    }
}
