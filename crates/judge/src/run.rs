//! Runs unwinders and starts (the columns) on the samples of a recording.

mod comparing;
mod parts;
mod writing;

pub use writing::Describe;

use crate::baseline::{Baseline, BaselineError, Key};
use crate::check::Class;
use crate::compare::{Comparison, GroupBy, class_of};
use crate::engine::{Desk, Engine, Outcome, Room, Setting, reference_code};
use crate::ground::{Ending, ProofTally, Proofs, with_truth};
use crate::input::{Input, InputError};
use crate::kernel;
use crate::spec::column_name;
use crate::spec::{self, SpecError};
use crate::unjudged::Unjudged;
use crate::unwinders::may_err;
use std::sync::{Mutex, MutexGuard, PoisonError};
use unwind_sim_perf_data::callchain::{Callchain, Context};
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::view::Filter;
use unwind_sim_recordings::view::View;
use unwind_sim_tables::ground::FileArena;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::Chain;
use unwind_sim_unwind::kernel::{UnwinderKind, Version};
use unwind_sim_unwind::reason::Code;
use unwind_sim_unwind::start::{FakeVariant, Variant};
use unwind_sim_unwind::verdict::{Ground, Verdict, judge_addresses, judge_against};

/// What chains are judged by.
pub enum Against {
    /// The shadow stack's truth.
    Truth,
    /// Another unwinder's chain, which gives agreement, not truth.
    Engine(Engine),
    /// The chain that perf recorded.
    Perf,
    /// The states that the recorded kernel's own unwinder gave.
    Kernel,
    /// The frames that the code proves.
    Proof(Box<Proof>),
}

/// What was proven in the last run, apart from the truth in each view.
#[derive(Debug, Default)]
pub struct Proof(Mutex<Proven>);

#[derive(Debug, Default)]
struct Proven {
    tally: ProofTally,
    ending: Option<Ending>,
}

impl Proof {
    /// How far the chains of the last run reach.
    pub fn tally(&self) -> ProofTally {
        self.proven().tally.clone()
    }

    /// Why the truth of the sample that is being taken ends.
    pub fn ending(&self) -> Option<Ending> {
        self.proven().ending
    }

    fn proven(&self) -> MutexGuard<'_, Proven> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self) {
        *self.proven() = Proven::default();
    }

    fn add(&self, proven: &crate::ground::Proven) {
        let mut all = self.proven();
        all.tally.add(proven);
        all.ending = proven.ending;
    }
}

impl Against {
    /// The names besides those of unwinders.
    pub const NAMES: [&str; 4] = ["truth", "proof", "perf", "kernel"];

    /// Parses `truth`, `perf`, `kernel`, `proof`, or the name of an unwinder.
    ///
    /// # Errors
    /// If the name is none of these.
    pub fn from_name(name: &str) -> Result<Against, SpecError> {
        Ok(match name {
            "truth" => Against::Truth,
            "perf" => Against::Perf,
            "kernel" => Against::Kernel,
            "proof" => Against::Proof(Box::default()),
            unwinder => Against::Engine(spec::engine(unwinder).map_err(|error| match error {
                SpecError::Unknown { name, .. } => SpecError::unknown(&name, &Self::NAMES),
                error => error,
            })?),
        })
    }
}

/// A column of the matrix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    /// The index of the engine.
    pub engine: usize,
    /// The start variant; `None` for the one that the sample was taken with.
    pub variant: Option<Variant>,
    /// The requested kernel version, which determines how a walk from fake registers starts.
    pub version: Option<Version>,
}

impl Column {
    /// The column of an engine that is alone.
    pub fn of(engine: &Engine, variant: Option<Variant>) -> Column {
        Column {
            engine: 0,
            variant,
            version: match engine {
                Engine::Kernel(unwinder) => unwinder.version(),
                Engine::Table(_) | Engine::Other(_) => None,
            },
        }
    }

    /// The start variant for this sample.
    pub fn variant_for(&self, view: &View<'_>) -> Variant {
        let fake = || {
            let recorded = view.sample.kernel.as_ref().and_then(|k| k.task.version);
            let version = self.version.or(recorded);
            version.map_or(FakeVariant::V5_2, Version::fake_start)
        };
        self.variant.unwrap_or_else(|| {
            if view.sample.regs.is_fake() {
                Variant::Fake(fake())
            } else {
                Variant::Hardware
            }
        })
    }
}

/// An error of a run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The recording cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The output cannot be written.
    #[error(transparent)]
    Output(#[from] std::io::Error),
    /// The output cannot be written.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// An unwinder's name is invalid.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A baseline cannot be used.
    #[error(transparent)]
    Baseline(#[from] BaselineError),
}

/// The configuration of a run.
pub struct Run {
    /// The unwinders.
    pub engines: Vec<Engine>,
    /// The start variants; empty for the one that each sample was taken with.
    pub variants: Vec<Variant>,
    /// The setting that all walks share.
    pub setting: Setting,
    /// What chains are judged by.
    pub against: Against,
    /// How divergences are grouped.
    pub group_by: GroupBy,
}

/// What a thread keeps between samples.
struct Walker<'r> {
    run: &'r Run,
    columns: Vec<Column>,
    caches: Vec<Cache>,
    reference: Cache,
    room: Room,
    /// An empty chain for each column, whose memory and rows are used again.
    chains: Vec<Chain>,
    frames: Frames,
}

impl<'r> Walker<'r> {
    fn new(run: &'r Run, frames: Frames) -> Walker<'r> {
        // What was recorded is compared with the frames.
        let frames = match run.against {
            Against::Truth | Against::Proof(_) | Against::Engine(_) => frames,
            Against::Perf | Against::Kernel => Frames::Kept,
        };
        let columns = run.columns();
        Walker {
            run,
            chains: vec![Chain::default(); columns.len()],
            columns,
            caches: run.engines.iter().map(|_| Cache::new()).collect(),
            reference: Cache::new(),
            room: Room::default(),
            frames,
        }
    }

    /// Calls `take` with the outcome of every column on one sample.
    fn walk(&mut self, view: &View<'_>, take: &mut Take<'_>) -> Result<(), RunError> {
        let (run, setting) = (self.run, &self.run.setting);
        // What a kernel's own unwinder gave is compared with the frames, too.
        let has_said = view
            .sample
            .recorded
            .iter()
            .any(|r| r.source == kernel::RECORDED);
        let is_brief = self.frames == Frames::Dropped && !has_said;
        let room = &mut self.room;

        // A desk has what the walks of one sample share: its memory, and room for frames.
        let mut desk = is_brief.then(|| Desk::new(view, setting, std::mem::take(room)));
        for (i, column) in self.columns.iter().enumerate() {
            let engine = &run.engines[column.engine];
            let variant = column.variant_for(view);
            let cache = &mut self.caches[column.engine];

            let counted = match (&mut desk, &run.against) {
                (Some(desk), Against::Engine(other)) => {
                    let other = (other, &mut self.reference);
                    engine.verdict_against(other, desk, variant, setting, cache)
                }
                (Some(desk), _) => {
                    let mut outcome = engine.verdict(desk, variant, setting, cache);
                    run.judge(view, *column, &mut outcome, &mut self.reference);
                    Some(outcome)
                }
                (None, _) => None,
            };

            // Where more counts than the frames, the walk with all details decides.
            let outcome = counted.unwrap_or_else(|| {
                let chain = std::mem::take(&mut self.chains[i]);
                let mut outcome = engine.examine_in(view, variant, setting, cache, chain);
                run.judge(view, *column, &mut outcome, &mut self.reference);
                outcome
            });

            take(view, i, &outcome)?;
            // The room of the frames is used again for the next sample.
            self.chains[i] = outcome.chain.emptied();
        }

        self.room = desk.map(Desk::into_room).unwrap_or_default();
        Ok(())
    }
}

/// Whether outcomes have the frames of their chains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Frames {
    /// All.
    Kept,
    /// Only as far as the verdict needs them.
    Dropped,
}

/// A callback for every outcome, with the sample and the index of the column.
pub type Take<'a> = dyn FnMut(&View<'_>, usize, &Outcome) -> Result<(), RunError> + 'a;

impl Run {
    /// The columns, unwinder by unwinder.
    pub fn columns(&self) -> Vec<Column> {
        let starts: Vec<Option<Variant>> = match self.variants.as_slice() {
            [] => vec![None],
            variants => variants.iter().copied().map(Some).collect(),
        };
        let of_engine = |engine| {
            starts
                .iter()
                .map(move |&variant| Column {
                    engine,
                    ..Column::of(&self.engines[engine], variant)
                })
                .collect::<Vec<_>>()
        };
        (0..self.engines.len()).flat_map(of_engine).collect()
    }

    /// The names of the columns.
    pub fn column_names(&self) -> Vec<String> {
        let name = |c: &Column| match c.variant {
            Some(variant) => column_name(self.engines[c.engine].name(), variant),
            None => self.engines[c.engine].name().to_owned(),
        };
        self.columns().iter().map(name).collect()
    }

    /// Calls `take` with the outcome of every column on every sample.
    ///
    /// # Errors
    /// If the recording cannot be read, or `take` fails.
    pub fn for_each(
        &self,
        input: &Input,
        filter: &Filter,
        take: &mut Take<'_>,
    ) -> Result<(), RunError> {
        self.for_each_as(input, filter, Frames::Kept, take)
    }

    fn for_each_as(
        &self,
        input: &Input,
        filter: &Filter,
        frames: Frames,
        take: &mut Take<'_>,
    ) -> Result<(), RunError> {
        let shelf = FileArena::default();
        let mut proofs = Proofs::new(&shelf, input.files());
        self.for_each_with(input, filter, frames, &mut proofs, take)
    }

    /// [`Run::for_each`], with proofs that others use, too. They are asked only if the stacks are judged
    /// by them.
    pub(crate) fn for_each_with(
        &self,
        input: &Input,
        filter: &Filter,
        frames: Frames,
        proofs: &mut Proofs<'_>,
        take: &mut Take<'_>,
    ) -> Result<(), RunError> {
        // A column may need what stitching gives, whatever was asked for.
        let filter = Filter {
            stitch: filter.stitch || self.wants_stitching(),
            ..*filter
        };

        let mut walker = Walker::new(self, frames);
        let ground = match &self.against {
            Against::Proof(proof) => {
                proof.start();
                Some(proof)
            }
            _ => None,
        };

        input.for_each(&filter, &mut |view| {
            let proven = ground.map(|proof| {
                let proven = proofs.prove(view, &self.setting);
                proof.add(&proven);
                with_truth(view.sample, proven.truth)
            });

            // The proven frames take the place of the truth, so all that follows judges by them.
            let sample = proven.as_ref().unwrap_or(view.sample);
            walker.walk(&View { sample, ..*view }, take)
        })
    }

    /// Whether an unwinder wants branch records stitched, for which samples are read in order.
    fn wants_stitching(&self) -> bool {
        let wants = Engine::wants_stitching;
        let against = matches!(&self.against, Against::Engine(engine) if wants(engine));
        against || self.engines.iter().any(wants)
    }

    /// Judges again if not by truth.
    fn judge(&self, view: &View<'_>, column: Column, outcome: &mut Outcome, cache: &mut Cache) {
        // A walk that ran out of time says nothing of its unwinder.
        if outcome.unjudged == Some(Unjudged::OutOfTime) {
            return;
        }

        let variant = column.variant_for(view);

        // Only some of the ways to judge compare addresses.
        let found = || -> Vec<u64> {
            let frames = outcome.chain.frames.iter();
            frames.map(|f| f.pc.value()).collect()
        };

        let ((verdict, ground), why) = match &self.against {
            Against::Truth => return,
            Against::Proof(proof) => {
                // The proven frames are already the truth of the view; only the reason is another
                // one.
                if let (Some(Unjudged::TruthToDepth | Unjudged::NoTruth), Some(ending)) =
                    (outcome.unjudged, proof.ending())
                {
                    outcome.unjudged = Some(Unjudged::ProofEnded(ending));
                }
                return;
            }
            Against::Engine(engine) => {
                let other = engine.examine(view, variant, &self.setting, cache).chain;
                let ended = reference_code(view, &other, cache);
                let is_whole = ended == Code::RootReached;
                let why = Unjudged::ReferenceEnded(ended);
                (judge_against(&outcome.chain, &other, is_whole), why)
            }
            Against::Perf => {
                let kind = match &self.engines[column.engine] {
                    Engine::Kernel(unwinder) => Some(unwinder.kind()),
                    _ => None,
                };
                against_perf(view, &found(), kind)
            }
            Against::Kernel => {
                let verdict = match &self.engines[column.engine] {
                    Engine::Kernel(unwinder) => {
                        kernel::judge(view, unwinder, variant, &found(), cache)
                    }
                    _ => Verdict::Unjudged,
                };
                // The kernel's states are known completely, including the end.
                let ground = Ground {
                    complete: verdict.is_judged(),
                    ..Ground::default()
                };
                ((verdict, ground), Unjudged::NotRecorded)
            }
        };

        outcome.verdict = verdict;
        outcome.ground = ground;
        outcome.unjudged = (verdict == Verdict::Unjudged).then_some(why);

        // It explained the verdict by the truth, not this one.
        outcome.diagnosis = None;

        if verdict != Verdict::Unjudged {
            outcome.whole = None;
        }
    }

    /// The options that determine the content of a comparison, as on the command line.
    pub fn options(&self, filter: &Filter) -> Vec<String> {
        let against = match &self.against {
            Against::Truth => "truth",
            Against::Engine(engine) => engine.name(),
            Against::Perf => "perf",
            Against::Kernel => "kernel",
            Against::Proof(_) => "proof",
        };

        // Not `--threads`: it changes no result.
        let mut options = vec![
            format!("--unwinder {}", self.column_names().join(",")),
            format!("--against {against}"),
            format!("--group-by {}", self.group_by.as_str()),
            format!("--view {}", self.setting.view),
            format!("--max-frames {}", self.setting.limits.frames_max),
        ];

        if self.setting.frame_pointer_kernel {
            options.push("--frame-pointer-kernel".to_owned());
        }

        // Counts of other samples cannot be compared with these.
        let numbers = [
            ("--sample", filter.sample),
            ("--tid", filter.tid.map(u64::from)),
            ("--limit", filter.limit),
        ];
        for (name, number) in numbers {
            options.extend(number.map(|n| format!("{name} {n}")));
        }

        options.extend(filter.time.map(|(a, b)| format!("--time {a}..{b}")));
        options
    }

    /// Whether errors of this engine are expected.
    pub fn may_err(&self, engine: usize) -> bool {
        may_err(self.engines[engine].name())
    }

    /// Whether the comparison has anything wrong that is neither expected nor in `known`. Losses of
    /// derived tables count if `strict`.
    pub fn unexpected(
        &self,
        comparison: &Comparison,
        strict: bool,
        known: Option<&Baseline>,
    ) -> bool {
        let columns = self.columns();
        let names = self.column_names();
        comparison.groups.iter().any(|(key, group)| {
            let key_of = || Key::of_group(&names[key.column], key);
            let known = known.is_some_and(|b| b.holds(&key_of(), group.count));
            let engine = columns[key.column].engine;
            self.counts(engine, group.verdict, key.class, strict) && !known
        })
    }

    /// Whether an outcome of this engine is wrong and not expected to be, see [`Run::unexpected`].
    pub fn is_unexpected(&self, engine: usize, outcome: &Outcome, strict: bool) -> bool {
        let is_group = outcome.verdict.is_wrong() || outcome.diagnosis.is_some();
        is_group && self.counts(engine, outcome.verdict, class_of(outcome), strict)
    }

    fn counts(&self, engine: usize, verdict: Verdict, class: Class, strict: bool) -> bool {
        // Of the kernel that had this unwinder, ours must not differ.
        let is_own = matches!(self.against, Against::Kernel);
        (verdict.is_wrong() || verdict == Verdict::Ok)
            && class.counts(strict)
            && (is_own || !self.may_err(engine))
    }
}

/// The number of addresses that perf stores for a sample by default, kernel and user space together
/// (`kernel.perf_event_max_stack`).
const PERF_MAX_STACK: usize = 127;
/// Addresses from here upwards are context markers.
const PERF_CONTEXT_MAX: u64 = -4095_i64 as u64;

/// Judges by the part that perf recorded of where the sample was: the kernel's or user space's. It
/// proves its own frames. The kernel part is whole if a user part follows and there was room; the end
/// of others is not known: they end where a word could not be read or was rejected, or where there was
/// no more room. An unwinder of the kernel, which is of a `kind`, has nothing to do with a sample in user
/// mode. What a kernel guessed proves nothing to the other unwinders of kernels.
fn against_perf(
    view: &View<'_>,
    found: &[u64],
    kind: Option<UnwinderKind>,
) -> ((Verdict, Ground), Unjudged) {
    let is_kernels = kind.is_some();
    let recorded = view.sample.recorded.iter().find(|r| r.source == "perf");
    let ips = recorded.map_or(&[][..], |r| &r.ips);
    let addresses = ips.iter().filter(|&&ip| ip < PERF_CONTEXT_MAX).count();

    // What the event asked for, if the recording says it.
    let asked = recorded.and_then(|r| r.request);
    let most = asked.map_or(0, |asked| asked.max_stack as usize);
    // The kernel's default is `PERF_MAX_STACK_DEPTH` of `uapi/linux/perf_event.h`.
    let is_cut = addresses >= if most == 0 { PERF_MAX_STACK } else { most };

    let user = user_part(ips);
    let in_kernel = kernel::in_kernel(view);
    let own = view.sample.kernel.as_ref().and_then(|kernel| kernel.kind());
    let guesses = own == Some(UnwinderKind::Guess);

    let (part, is_whole) = match (in_kernel, is_kernels) {
        // A scan goes to the end of the stack, whatever follows.
        (true, _) => (kernel_part(ips), (guesses || !user.is_empty()) && !is_cut),
        (false, true) => (Vec::new(), false),
        (false, false) => (user, false),
    };

    // `arch/x86/kernel/unwind_guess.c` reports every text address on the stack, whether or not it
    // is a return address.
    if in_kernel && guesses && kind != own && !part.is_empty() {
        return (
            judge_addresses(found, &[], false),
            Unjudged::GuessedByKernel,
        );
    }

    let why = match part.is_empty() {
        true if in_kernel || is_kernels => Unjudged::NoKernelChain,
        true => Unjudged::NoChain,
        false if is_cut => Unjudged::ChainCut,
        false => Unjudged::ChainWithoutEnd,
    };

    (judge_addresses(found, &part, is_whole), why)
}

/// The user part of a chain with context markers, or the whole chain if there are none.
pub fn user_part(ips: &[u64]) -> Vec<u64> {
    let bytes: Vec<u8> = ips.iter().flat_map(|ip| ip.to_le_bytes()).collect();
    let chain = Callchain::new(&bytes);
    let marked: Vec<u64> = chain.frames_of(Context::User).collect();
    if marked.is_empty() {
        chain.frames_of(Context::Unmarked).collect()
    } else {
        marked
    }
}

/// The kernel part of a chain with context markers.
pub fn kernel_part(ips: &[u64]) -> Vec<u64> {
    let bytes: Vec<u8> = ips.iter().flat_map(|ip| ip.to_le_bytes()).collect();
    Callchain::new(&bytes).frames_of(Context::Kernel).collect()
}

/// The heading of a comparison's text: what was compared, and by what.
pub fn head(run: &Run, comparison: &Comparison) -> String {
    let [complete, known, unknown] = comparison.truths;
    let n = comparison.samples;
    match &run.against {
        Against::Truth => format!(
            "{}: truth complete in {complete}, known to a depth in {known}, unknown in {unknown}",
            counted(n, "sample")
        ),
        // Two unwinders that agree may both be wrong, and the heading says so.
        Against::Engine(engine) if complete + known == 0 => {
            format!(
                "no truth: agreement only\n{}, compared with {}",
                counted(n, "sample"),
                engine.name()
            )
        }
        Against::Engine(engine) => {
            format!("{}, compared with {}", counted(n, "sample"), engine.name())
        }
        Against::Perf => format!(
            "{}, compared with the chains that perf recorded",
            counted(n, "sample")
        ),
        Against::Proof(proof) => format!(
            "{}: known to the root in {complete}, to a depth in {known}, unknown in {unknown}\n{}",
            counted(n, "sample"),
            proof.tally().text()
        ),
        Against::Kernel => format!(
            "{}, compared with what the kernel's unwinder gave",
            counted(n, "sample")
        ),
    }
}
