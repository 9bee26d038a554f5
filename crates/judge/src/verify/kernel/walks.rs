//! Walks of a booted kernel's stacks by its own unwinders, from the registers that an interrupt would
//! give them, judged by the shadow stack; and what the kernel would say of their reliability.

use crate::baseline::{Baseline, Key, walk_key};
use crate::check::Subject;
use crate::diagnose::{Walked, diagnose, end_code};
use crate::engine::Engine;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use unwind_sim_emulator::Core;
use unwind_sim_record::machine::MachineMemory;
use unwind_sim_recordings::kernel::{KernelImage, MissingPlace, StackPlaces, symbol};
use unwind_sim_recordings::names::Location;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::{End, Link};
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::kernel::perf::{Begin, addresses};
use unwind_sim_unwind::kernel::trace::stack_walk_reliable;
use unwind_sim_unwind::kernel::{
    Code, FindCache, Kernel, KernelUnwinder, StartFrom, THREAD_SIZE, Task, UnwinderKind, Version,
};
use unwind_sim_unwind::reason;
use unwind_sim_unwind::regs::Regs;
use unwind_sim_unwind::start::Start;
use unwind_sim_unwind::truth::{TrueFrame, Truth};
use unwind_sim_unwind::unwinder::{Stack, Unwinder as _};
use unwind_sim_unwind::verdict::{Claim, Verdict, judge, true_links};
use unwind_sim_unwind::walk::WalkTarget;

/// How many addresses live patching makes room for (`MAX_STACK_ENTRIES`, Linux
/// `kernel/livepatch/transition.c`). A stack with more is not reliable.
const RELIABLE_MAX: usize = 100;
/// How many distinct findings of one unwinder are kept.
const FINDINGS_MAX: usize = 1 << 14;
/// Maximum padding at the end of a task's stack, bytes (`TOP_OF_KERNEL_STACK_PADDING`).
const TOP_PADDING_MAX: u64 = 64;

/// How many walks had which result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WalkTally {
    /// Walks, by verdict, in the order of [`Verdict::WORDS`].
    pub verdicts: [u64; Verdict::WORDS.len()],
    /// What `arch_stack_walk_reliable` said, for those that can be judged; `None` for an unwinder that has
    /// no such walk.
    pub reliability: Option<Reliability>,
}

/// What `arch_stack_walk_reliable` said of chains.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reliability {
    /// Reliable, and the chain is the true one.
    pub reliable_right: u64,
    /// Reliable, and the chain is not the true one: what live patching trusts, and must not.
    pub reliable_wrong: u64,
    /// Not reliable, and the chain is the true one.
    pub refused_right: u64,
    /// Not reliable, and the chain is not the true one.
    pub refused_wrong: u64,
}

impl WalkTally {
    /// The number of walks.
    pub fn walks(&self) -> u64 {
        self.verdicts.iter().sum()
    }

    /// The number of walks with this verdict's letter.
    pub fn with(&self, letter: char) -> u64 {
        let all = Verdict::WORDS.iter().zip(&self.verdicts);
        all.filter(|((its, _), _)| *its == letter)
            .map(|(_, n)| n)
            .sum()
    }

    /// The number of walks that were judged.
    pub fn judged(&self) -> u64 {
        self.walks() - self.with('u') - self.with('?')
    }

    fn count(&mut self, verdict: Verdict) {
        let index = Verdict::WORDS
            .iter()
            .position(|(l, _)| *l == verdict.letter());
        if let Some(count) = index.and_then(|index| self.verdicts.get_mut(index)) {
            *count += 1;
        }
    }
}

/// Chains of the kernel's own unwinder that are wrong in one way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WalkFinding {
    /// The verdict on the first of them.
    pub verdict: Verdict,
    /// The cause.
    pub code: reason::Code,
    /// Where the chain leaves the truth: the pc of the frame whose row is to blame, or else of the last
    /// right frame.
    pub pc: CodeAddress,
    /// Whether `arch_stack_walk_reliable` calls the chain reliable.
    pub is_reliable: bool,
    /// How often it was met.
    pub count: u64,
    /// The number of the instruction at which it was first met, from 0.
    pub first: u64,
    /// The chain that the unwinder found there, the interrupted instruction first.
    pub found: Vec<CodeAddress>,
    /// The true one.
    pub truth: Vec<CodeAddress>,
}

impl WalkFinding {
    /// Where the chain leaves the truth.
    pub fn place(&self, space: &AddressSpace) -> Location {
        Location::of(space, self.pc)
    }

    /// The identity of these chains across runs.
    fn key(&self, unwinder: &str, space: &AddressSpace) -> Key {
        Key {
            unwinder: unwinder.to_owned(),
            what: walk_key(self.verdict.as_str(), self.is_reliable),
            code: self.code.as_str().to_owned(),
            place: self.place(space).to_string(),
            class: None,
        }
    }
}

/// Whether a chain of the kernel's own unwinder counts: one that is not in `known`, or was met more often
/// than there.
pub fn unexpected_walks(
    walks: &[&KernelWalked],
    space: &AddressSpace,
    known: Option<&Baseline>,
) -> bool {
    let mut counted: BTreeMap<Key, u64> = BTreeMap::new();
    for walked in walks.iter().filter(|walked| walked.is_own) {
        for finding in &walked.findings {
            let key = finding.key(&walked.name, space);
            *counted.entry(key).or_default() += finding.count;
        }
    }
    let is_new = |(key, &count): (&Key, &u64)| !known.is_some_and(|b| b.holds(key, count));
    counted.iter().any(is_new)
        || walks
            .iter()
            .any(|walked| walked.is_own && walked.not_kept > 0)
}

/// What became of one unwinder's walks.
#[derive(Clone, Debug)]
pub struct KernelWalked {
    /// The unwinder's name.
    pub name: String,
    /// Whether it is the one that the kernel was built with.
    pub is_own: bool,
    /// The totals.
    pub tally: WalkTally,
    /// What is wrong, in the order in which it was met; only of the kernel's own unwinder.
    pub findings: Vec<WalkFinding>,
    /// Wrong walks that belong to no finding, because there were too many distinct ones.
    pub not_kept: u64,
}

/// An unwinder, and what it has seen.
struct Walker {
    unwinder: KernelUnwinder,
    is_own: bool,
    cache: Cache,
    code: Option<Arc<Code>>,
    finds: FindCache,
    tally: WalkTally,
    findings: HashMap<(char, reason::Code, CodeAddress, bool), WalkFinding>,
    not_kept: u64,
}

/// The kernel's unwinders, and where they find the stacks.
pub struct KernelWalks {
    walkers: Vec<Walker>,
    places: StackPlaces,
    /// The address of `orc_init`, which is not 0 as soon as the kernel unwinds by its table.
    ready: Option<u64>,
    is_ready: bool,
    task: Task,
    found: Vec<u64>,
    links: Vec<Link>,
    truth: Vec<Link>,
}

/// Where a walk starts.
pub(in crate::verify) struct Place<'a> {
    pub(in crate::verify) space: &'a AddressSpace,
    /// The registers that an interrupt saves.
    pub(in crate::verify) live: &'a Regs,
    pub(in crate::verify) truth: &'a Truth,
    /// The number of the instruction.
    pub(in crate::verify) number: u64,
}

impl KernelWalks {
    /// Walks by those of `engines` that are a kernel's, of the kernel `image`, which is moved up by
    /// `slide`. `None` if there are none.
    ///
    /// # Errors
    /// If the image does not say where the stacks are.
    pub fn new(
        engines: &[Engine],
        image: &KernelImage,
        slide: u64,
    ) -> Result<Option<KernelWalks>, MissingPlace> {
        if !engines.iter().any(|e| matches!(e, Engine::Kernel(_))) {
            return Ok(None);
        }
        let ready = symbol(image, slide, "orc_init").ok();
        let places = StackPlaces::new(image, slide)?;
        Ok(Some(KernelWalks::with(engines, image, places, ready)))
    }

    /// Walks of a kernel whose stacks are at these places, from when the byte at `ready` is not 0.
    pub(super) fn with(
        engines: &[Engine],
        image: &KernelImage,
        places: StackPlaces,
        ready: Option<u64>,
    ) -> KernelWalks {
        let own = match image.encoding {
            Some(_) => UnwinderKind::Orc,
            None => UnwinderKind::Fp,
        };
        let kernels = engines.iter().filter_map(|engine| match engine {
            Engine::Kernel(unwinder) => Some(unwinder),
            _ => None,
        });
        let walkers = kernels
            .map(|unwinder| Walker {
                unwinder: unwinder.clone(),
                is_own: unwinder.kind() == own,
                cache: Cache::new(),
                code: None,
                finds: FindCache::default(),
                tally: WalkTally {
                    // `HAVE_RELIABLE_STACKTRACE` (Linux `arch/x86/Kconfig`).
                    reliability: (unwinder.kind() != UnwinderKind::Guess)
                        .then(Reliability::default),
                    ..WalkTally::default()
                },
                findings: HashMap::new(),
                not_kept: 0,
            })
            .collect();
        KernelWalks {
            walkers,
            places,
            ready,
            is_ready: ready.is_none(),
            task: Task {
                version: image.version.as_deref().and_then(Version::from_name),
                encoding: image.encoding,
                ..Task::default()
            },
            found: Vec::new(),
            links: Vec::new(),
            truth: Vec::new(),
        }
    }

    /// The names of the unwinders.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.walkers.iter().map(|walker| walker.unwinder.name())
    }

    /// Finds the current task and its stacks. `None` where the kernel has not set them up.
    fn find_stacks(&mut self, core: &Core) -> Option<()> {
        let mut word = |at: u64| core.memory.read_u64(at);
        if !self.is_ready {
            let flag = self.ready.and_then(|at| word(at).ok())?;
            self.is_ready = flag & 0xff != 0;
            if !self.is_ready {
                return None;
            }
        }

        let places = &self.places;
        // There is one processor.
        let base = word(places.bases).ok()?;
        let processor = places.processor(base, &mut word).ok()?;
        let task = word(places.current.wrapping_add(base)).ok()?;
        let stack = word(task.wrapping_add(places.stack)).ok()?;
        if let Some(top) = places.top_of_stack {
            let top = word(top.wrapping_add(base)).ok()?;
            // In a switch the variable may belong to the other task.
            let padding = stack.wrapping_add(THREAD_SIZE).wrapping_sub(top);
            if padding <= TOP_PADDING_MAX {
                self.task.top_padding = padding;
            }
        }

        // It is being changed, or not set up yet.
        if places
            .tracers
            .read(task, &mut word, &mut self.task)
            .is_err()
        {
            self.task.rethooks.clear();
            self.task.graph.clear();
        }
        self.task.stacks = places.stacks(stack, Some(&processor));
        for stack in &mut self.task.stacks {
            let link = stack.kind.next_sp_at(stack.end);
            stack.next_sp = link.and_then(|at| word(at).ok()).unwrap_or(0);
        }
        Some(())
    }

    /// Walks with every unwinder. `finder` has the rows of the kernel's table, if they are checked, too.
    pub(in crate::verify) fn take(
        &mut self,
        core: &Core,
        place: &Place<'_>,
        mut finder: Option<(&dyn Finder, &mut Cache)>,
    ) {
        if self.find_stacks(core).is_none() {
            return;
        }

        let memory = MachineMemory(&core.memory);
        let start = Start::from_regs(*place.live);
        let mut stack = Stack::new(&start, place.space, &memory);
        stack.task = Some(&self.task);
        self.truth.clear();
        self.truth.extend(true_links(place.truth, 0));
        let complete = place.truth.is_complete();

        for walker in &mut self.walkers {
            let kind = walker.unwinder.kind();
            let code = walker.unwinder.code(&stack, &mut walker.cache);
            if !walker
                .code
                .as_ref()
                .is_some_and(|known| Arc::ptr_eq(known, &code))
            {
                walker.finds = FindCache::default();
                walker.code = Some(code.clone());
            }
            let kernel = Kernel {
                code: &code,
                task: &self.task,
                memory: &memory,
            };

            self.found.clear();
            let limit = stack.limits.frames_max;
            let ended = addresses(
                kind,
                kernel,
                &start,
                limit,
                &mut walker.finds,
                &mut self.found,
            );
            let Ok((state, reason)) = ended else {
                walker.tally.count(Verdict::Unsupported);
                continue;
            };

            let reliable = walker.tally.reliability.map(|_| {
                let begin = Begin {
                    from: StartFrom::Regs(&start.regs),
                    first_frame: start.regs.rsp(),
                    ip: None,
                };
                stack_walk_reliable(kind, kernel, begin, RELIABLE_MAX, &mut walker.finds)
            });
            let is_reliable = matches!(reliable, Some(Ok(_)));

            self.links.clear();
            let link = |&pc: &u64| Link {
                pc,
                slot: None,
                sp: None,
                is_return: true,
            };
            self.links.extend(self.found.iter().map(link));
            let end = End {
                marks_roots: kind != UnwinderKind::Guess,
                ..End::from(reason)
            };
            let claim = Claim {
                frames: &self.links,
                end: &end,
                guessed: kind == UnwinderKind::Guess,
                refused: state.is_error(),
            };
            let (mut verdict, _) = claim.judge(&self.truth, complete);

            // A stack that leads through what cannot be read from the kernel's lists.
            let is_known = self.truth.iter().skip(1).all(|link| code.is_text(link.pc));
            if verdict.is_wrong() && complete && !is_known {
                walker.tally.count(Verdict::Unjudged);
                continue;
            }

            if walker.is_own && verdict.is_wrong() {
                let finder = finder
                    .as_mut()
                    .map(|(finder, cache)| (*finder, &mut **cache));
                verdict = walker.explain(&stack, place, &self.found, is_reliable, finder);
            }
            walker.tally.count(verdict);

            if let (Some(counts), Some(reliable)) = (&mut walker.tally.reliability, reliable) {
                match reliable {
                    Ok(chain) => match is_true(&chain, &self.truth, complete) {
                        Some(true) => counts.reliable_right += 1,
                        Some(false) => counts.reliable_wrong += 1,
                        None => {}
                    },
                    Err(_) if verdict.is_wrong() => counts.refused_wrong += 1,
                    Err(_) if verdict.is_judged() => counts.refused_right += 1,
                    Err(_) => {}
                }
            }
        }
    }

    /// What became of the walks.
    pub fn finish(self) -> Vec<KernelWalked> {
        let done = |walker: Walker| {
            let mut findings: Vec<WalkFinding> = walker.findings.into_values().collect();
            findings.sort_by_key(|f| (f.first, f.pc.value(), f.verdict, f.is_reliable));
            KernelWalked {
                name: walker.unwinder.name().to_owned(),
                is_own: walker.is_own,
                tally: walker.tally,
                findings,
                not_kept: walker.not_kept,
            }
        };
        self.walkers.into_iter().map(done).collect()
    }
}

impl Walker {
    /// Walks once more with provenance, says why the chain is wrong, and keeps that. Returns the verdict on
    /// that chain.
    #[cold]
    fn explain(
        &mut self,
        stack: &Stack<'_>,
        place: &Place<'_>,
        found: &[u64],
        is_reliable: bool,
        finder: Option<(&dyn Finder, &mut Cache)>,
    ) -> Verdict {
        let chain = self.unwinder.walk(stack, &mut self.cache);
        let (verdict, ground) = judge(&chain, place.truth, 0);
        if !verdict.is_wrong() {
            return verdict;
        }

        let walked = Walked {
            left_wrong: false,
            chain: &chain,
            ended: end_code(&chain, verdict, &ground),
            start: stack.start,
            is_fake: false,
            place: WalkTarget {
                space: stack.space,
                memory: stack.memory,
            },
        };
        let subject = Subject {
            space: stack.space,
            memory: stack.memory,
            truth: place.truth,
            live: place.live,
            is_whole: true,
        };
        let diagnosis = match finder {
            Some((finder, cache)) => diagnose(&subject, Some(finder), &walked, verdict, 0, cache),
            None => diagnose(&subject, None, &walked, verdict, 0, &mut self.cache),
        };
        let start = CodeAddress::Instruction(place.live.rip());
        let (code, pc) = diagnosis.map_or((walked.ended, start), |d| (d.code, d.pc));

        let key = (verdict.letter(), code, pc, is_reliable);
        if self.findings.len() >= FINDINGS_MAX && !self.findings.contains_key(&key) {
            self.not_kept += 1;
            return verdict;
        }
        let finding = self.findings.entry(key).or_insert_with(|| WalkFinding {
            verdict,
            code,
            pc,
            is_reliable,
            count: 0,
            first: place.number,
            found: found.iter().map(|&pc| as_in(place.truth, pc)).collect(),
            truth: place
                .truth
                .frames()
                .iter()
                .map(TrueFrame::address)
                .collect(),
        });
        finding.count += 1;
        verdict
    }
}

/// An address that was found, as what it is in the true chain; one that is not there was taken for a return
/// address.
fn as_in(truth: &Truth, pc: u64) -> CodeAddress {
    let mut frames = truth.frames().iter();
    let known = frames.find(|frame| frame.pc == pc);
    known.map_or(CodeAddress::Return(pc), TrueFrame::address)
}

/// Whether a reliable chain, which starts behind the interrupted instruction, is the true one. `None` if
/// that is not known.
fn is_true(chain: &[u64], truth: &[Link], complete: bool) -> Option<bool> {
    let callers = truth.get(1..)?;
    let same = chain
        .iter()
        .zip(callers)
        .all(|(found, link)| *found == link.pc);
    match (same, chain.len().cmp(&callers.len())) {
        (false, _) | (true, std::cmp::Ordering::Less) => Some(false),
        (true, _) if !complete => None,
        (true, order) => Some(order.is_eq()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reliable_chain_is_true_if_it_has_all_callers() {
        let link = |pc| Link {
            pc,
            slot: None,
            sp: None,
            is_return: true,
        };
        let truth = [1, 2, 3].map(link);
        let of = |chain: &[u64], complete| is_true(chain, &truth, complete);
        assert_eq!(of(&[2, 3], true), Some(true));
        assert_eq!(of(&[2], true), Some(false));
        assert_eq!(of(&[2, 3, 4], true), Some(false));
        assert_eq!(of(&[2, 4], true), Some(false));
        // What is outside of the known frames may be true.
        assert_eq!(of(&[2, 3], false), None);
        assert_eq!(of(&[2, 3, 4], false), None);
        assert_eq!(of(&[3, 3], false), Some(false));
        assert_eq!(is_true(&[], &[], true), None);
    }
}
