//! A sample's callchain as perf stores it: the kernel part, the user part and the markers before
//! them; and whether it is the one that was recorded.
//!
//! What the kernel was asked for, such as the event's `sample_max_stack`, belongs to the sample. A
//! recording that does not say it is judged as far as one request explains all of its chains.

use crate::engine::{Engine, Outcome, Setting};
use crate::run::{kernel_part, user_part};
use unwind_sim_perf_data::callchain::is_marker;
use unwind_sim_recordings::model::{CallchainRequest, RecordedChain};
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::kernel::{
    Callchain, CallchainEntry, CallchainOptions, Context, Hijack, PAGE_SIZE, UserFound, UserWalk,
    Version, get_perf_callchain, is_user_cs,
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

/// perf's own chain of the sample, if it was recorded.
fn recorded<'a>(view: &View<'a>) -> Option<&'a RecordedChain> {
    view.sample.recorded.iter().find(|r| r.source == RECORDED)
}

/// What was asked for when perf's own chain was made, if the recording says it.
pub fn recorded_request(view: &View<'_>) -> Option<CallchainRequest> {
    recorded(view)?.request
}

/// `options` with the recorded arguments in place of its own. A sample without a kernel stack has
/// its user part also where the event excludes it, for a look at it.
pub fn recorded_options(view: &View<'_>, options: CallchainOptions) -> CallchainOptions {
    let Some(request) = recorded_request(view) else {
        return options;
    };
    match view.sample.kernel {
        Some(_) => request.apply(options),
        None => CallchainOptions {
            max_stack: request.apply(options).max_stack,
            ..options
        },
    }
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
    let version = match engine {
        Engine::Kernel(unwinder) => unwinder.version(),
        _ => None,
    };
    let options = CallchainOptions {
        puts_back: puts_back(view, version),
        ..options
    };
    let callchain = assemble(view, kernel.as_ref(), setting, options);
    PerfChain { kernel, callchain }
}

/// Whether the kernel puts back what return probes took: `version`, or else the recorded kernel.
fn puts_back(view: &View<'_>, version: Option<Version>) -> bool {
    let recorded = view.sample.kernel.as_ref().and_then(|k| k.task.version);
    let version = version.or(recorded).unwrap_or(Version::DEFAULT);
    version.puts_back_uretprobes()
}

/// Both parts. Of a sample whose kernel stack was not recorded, perf's own kernel part takes its
/// share of the addresses.
fn assemble(
    view: &View<'_>,
    kernel: Option<&Outcome>,
    setting: &Setting,
    options: CallchainOptions,
) -> Callchain {
    let ips: Option<Vec<u64>> = kernel.map(|outcome| {
        let frames = outcome.chain.frames.iter();
        frames.map(|f| f.pc.value()).collect()
    });

    // perf's own kernel part has taken its share of `max_stack` already.
    let of_perf = recorded(view).filter(|_| view.sample.kernel.is_none());
    let of_perf = of_perf.map_or(0, |chain| kernel_part(&chain.ips).len());
    let options = CallchainOptions {
        max_stack: options
            .max_stack
            .saturating_sub(u32::try_from(of_perf).unwrap_or(u32::MAX)),
        ..options
    };

    // The user part is walked as the kernel does it, by the frame pointer, so it needs the stack.
    let memory = view.memory(setting.view);
    let space = view.sample.user_space();
    let mut callchain = get_perf_callchain(ips.as_deref(), space.as_ref(), &memory, options);

    if options.puts_back && space.is_some_and(|space| space.uretprobes.is_none()) {
        mark_trampolines(view, &mut callchain);
    }

    callchain
}

/// Marks the addresses of the trampoline, which is at the start of the page of uprobes, where the
/// recording has its mapping.
fn mark_trampolines(view: &View<'_>, callchain: &mut Callchain) {
    let Some(space) = view.user_mappings() else {
        return;
    };
    for entry in &mut callchain.entries {
        if let CallchainEntry::User(frame) = entry
            && frame.ip.is_multiple_of(PAGE_SIZE)
        {
            let place = Location::of(space, CodeAddress::Instruction(frame.ip));
            if place.image.as_deref() == Some("[uprobes]") {
                frame.hijack = Hijack::Unknown;
            }
        }
    }
}

/// How a callchain compares with the one that perf recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Agreement {
    /// Both are the same.
    Equal,
    /// Both are the same if the kernel was asked for this, which the recording does not say.
    Fits(CallchainOptions),
    /// Both are the same but for return addresses that return probes took, the first at this index:
    /// the recording does not say which they were.
    Taken(usize),
    /// Both are the same up to this number of addresses, where perf's chain ends. The recording does
    /// not say whether that is a limit, and other chains of the kind have more.
    Cut(u32),
    /// The word of this index differs.
    Different(usize),
}

impl Agreement {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Agreement::Equal => "equal",
            Agreement::Fits(_) => "fits",
            Agreement::Taken(_) | Agreement::Cut(_) => "unknown",
            Agreement::Different(_) => "different",
        }
    }
}

/// The parts and markers of recorded chains, and the most addresses that one of each kind has: what
/// explains the chains of a recording that does not say what the kernel was asked for.
#[derive(Clone, Default, Debug)]
pub struct Shapes(Vec<(Shape, u32)>);

/// What a recorded chain consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape {
    kernel: bool,
    user: bool,
    add_mark: bool,
}

impl Shape {
    fn of(ips: &[u64]) -> Shape {
        /// Where the kernel's half of the addresses begins.
        const KERNEL: u64 = 1 << 63;
        if ips.iter().any(|ip| is_marker(*ip)) {
            let has = |context: Context| ips.contains(&context.value());
            return Shape {
                kernel: has(Context::Kernel),
                user: has(Context::User),
                add_mark: true,
            };
        }
        Shape {
            kernel: ips.first().is_some_and(|ip| *ip >= KERNEL),
            user: ips.iter().any(|ip| *ip < KERNEL),
            add_mark: false,
        }
    }

    /// `options` with these parts.
    fn apply(self, options: CallchainOptions) -> CallchainOptions {
        CallchainOptions {
            kernel: self.kernel,
            user: if self.user {
                options.user
            } else {
                UserWalk::None
            },
            add_mark: self.add_mark,
            ..options
        }
    }
}

/// The number of addresses in a chain.
fn addresses(ips: &[u64]) -> u32 {
    let count = ips.iter().filter(|ip| !is_marker(**ip)).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

impl Shapes {
    /// Takes a sample's recorded chain into account, if the recording does not say its arguments.
    pub fn add(&mut self, view: &View<'_>) {
        let Some(chain) = recorded(view).filter(|chain| chain.request.is_none()) else {
            return;
        };
        let (shape, most) = (Shape::of(&chain.ips), addresses(&chain.ips));
        match self.0.iter_mut().find(|(known, _)| *known == shape) {
            Some((_, known)) => *known = most.max(*known),
            None => self.0.push((shape, most)),
        }
    }

    /// The most addresses that a recorded chain of the kind of `chain` has.
    fn most(&self, chain: &RecordedChain) -> u32 {
        let shape = Shape::of(&chain.ips);
        let known = self.0.iter().find(|(known, _)| *known == shape);
        known.map_or(u32::MAX, |(_, most)| *most)
    }
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

    /// How the callchain, made with `options`, compares with the one that perf recorded. `None` if
    /// perf recorded none. With `shapes`, other arguments are tried where the recording does not say
    /// them. For a sample without a kernel stack only the user part is compared.
    pub fn agreement(
        &self,
        view: &View<'_>,
        setting: &Setting,
        options: CallchainOptions,
        shapes: Option<&Shapes>,
    ) -> Option<Agreement> {
        let recorded = recorded(view)?;
        let compared = match view.sample.kernel {
            Some(_) => recorded.ips.clone(),
            None => user_part(&recorded.ips),
        };

        if compared.is_empty() {
            return None;
        }

        // What the recording says of the request is compared first; only without it may other
        // requests be tried.
        let cookie = recorded.request.and_then(|request| request.cookie);
        let compare = |chain: &Callchain| compare(view, chain, &compared, cookie);
        let found = compare(&self.callchain);

        let (Agreement::Different(_), None, Some(shapes)) = (found, recorded.request, shapes)
        else {
            return Some(found);
        };

        // Of user space alone, no shape of the kernel part can explain a difference.
        if view.sample.kernel.is_none() {
            return Some(found);
        }
        // The parts that are there, then a limit that explains all chains of the kind, and then one
        // that explains this chain alone.
        let own = addresses(&recorded.ips);
        let asked = CallchainOptions {
            puts_back: puts_back(view, None),
            ..Shape::of(&recorded.ips).apply(options)
        };

        for most in [options.max_stack, shapes.most(recorded), own] {
            let asked = CallchainOptions {
                max_stack: most.min(options.max_stack),
                ..asked
            };

            let other = assemble(view, self.kernel.as_ref(), setting, asked);
            match compare(&other) {
                Agreement::Different(_) => {}
                _ if most < shapes.most(recorded) => return Some(Agreement::Cut(own)),
                Agreement::Equal => return Some(Agreement::Fits(asked)),
                taken => return Some(taken),
            }
        }

        Some(found)
    }
}

/// Compares a callchain with recorded words. A user part that is walked later has a `cookie` in its
/// place.
fn compare(view: &View<'_>, chain: &Callchain, recorded: &[u64], cookie: Option<u64>) -> Agreement {
    let later = CallchainEntry::Context(Context::UserDeferred);
    let mut ours = chain.ips();

    // A deferred callchain has a cookie here, and the user part comes with a later record
    // (`PERF_RECORD_CALLCHAIN_DEFERRED`).
    if let (Some(cookie), Some(at)) = (cookie, chain.entries.iter().position(|e| *e == later)) {
        ours.truncate(at + 1);
        ours.push(cookie);
    }

    if view.sample.kernel.is_none() {
        ours = user_part(&ours);
    }

    // uretprobes put the trampoline's address over return addresses, and the recording does not say
    // over which.
    let taken = chain.entries.iter().filter_map(|entry| match entry {
        CallchainEntry::User(frame) if frame.hijack == Hijack::Unknown => Some(frame.ip),
        _ => None,
    });
    let taken: Vec<u64> = taken.collect();

    let Some(at) = first_other(&ours, recorded) else {
        return Agreement::Equal;
    };

    // The trampoline's address stands for any address.
    let (mut known, mut same) = (ours, recorded.to_vec());
    for (ours, theirs) in known.iter_mut().zip(&mut same) {
        if taken.contains(ours) {
            (*ours, *theirs) = (0, 0);
        }
    }

    match first_other(&known, &same) {
        None => Agreement::Taken(at),
        Some(at) => Agreement::Different(at),
    }
}

/// The index of the first word that is not the same in both.
fn first_other(ours: &[u64], theirs: &[u64]) -> Option<usize> {
    let differs = ours.iter().zip(theirs).position(|(a, b)| a != b);
    differs.or((ours.len() != theirs.len()).then_some(ours.len().min(theirs.len())))
}
