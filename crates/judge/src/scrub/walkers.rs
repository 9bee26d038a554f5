//! Every unwinder that can walk a sample, with every profile, fallback and start: what they read of
//! it, and what they give.

use super::watched::{Part, Watched};
use crate::engine::{Engine, Outcome, Setting, stack_of};
use crate::ground::{Proofs, Proven, with_truth};
use crate::spec::{self, SpecError, column_name};
use crate::unwinders::{self, FINDERS, is_scan};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use unwind_sim_recordings::model::Sample;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::Chain;
use unwind_sim_unwind::event::Event;
use unwind_sim_unwind::kernel::{CallchainOptions, UserWalk, get_perf_callchain};
use unwind_sim_unwind::memory::Memory as _;
use unwind_sim_unwind::reason::Reason;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::start::Variant;
use unwind_sim_unwind::truth::Truth;

/// An unwinder, with what it keeps between walks.
struct Walker {
    engine: Engine,
    cache: Cache,
}

/// All unwinders.
pub(super) struct Walkers {
    /// Those of programs, each alone, with every profile.
    single: Vec<Walker>,
    /// Each with each as its fallback, without profiles.
    pairs: Vec<Walker>,
    /// Each profile with each fallback. These only show what is read.
    profiles: Vec<Walker>,
    /// Those of a kernel, of every version.
    kernel: Vec<Walker>,
}

impl Walkers {
    pub(super) fn new() -> Result<Walkers, SpecError> {
        let (mut single, mut kernel) = (Vec::new(), Vec::new());
        for unwinder in unwinders::all() {
            // A kernel's unwinders walk other stacks than those of programs, whatever their name.
            let plain = unwinder.name.trim_end_matches(":kernel");
            let list = if plain == unwinder.name {
                &mut single
            } else {
                &mut kernel
            };
            list.push(unwinder.name.to_owned());

            // Branch records are not memory.
            if unwinder.needs_stack {
                let profiles = unwinder.profiles.iter();
                list.extend(profiles.map(|profile| format!("{plain}:{profile}")));
            }
        }

        let of = |name: &str| name.split(':').next().unwrap_or_default().to_owned();
        let finders: Vec<&String> = single
            .iter()
            .filter(|name| FINDERS.contains(&of(name).as_str()))
            .collect();

        // Only finders can be joined: a fallback gives a row where the first one has none.
        let all = finders.iter().flat_map(|first| {
            let second = FINDERS.iter().filter(|second| of(first) != **second);
            second.map(move |second| format!("{first}+{second}"))
        });

        // Pairs without a profile are compared, too; those with one only show what is read.
        let (profiles, pairs): (Vec<String>, Vec<String>) =
            all.partition(|pair| pair.contains(':'));

        Ok(Walkers {
            single: walkers(&single)?,
            pairs: walkers(&pairs)?,
            profiles: walkers(&profiles)?,
            kernel: walkers(&kernel)?,
        })
    }

    /// The parts of memory that anything reads: unwinders from every start, the check of rows, and
    /// the proof. A scan is not among them; it uses nothing but code addresses.
    pub(super) fn read(
        &mut self,
        view: &View<'_>,
        proofs: &mut Proofs<'_>,
        setting: &Setting,
    ) -> Vec<Part> {
        let watched = Watched::new(view.sample.memory());
        let mut read = Vec::new();

        let proven = proofs.prove_in(view, &watched, setting);
        let judged = judged_by(view, proven.truth);
        let judged = View {
            sample: &judged,
            ..*view
        };

        let is_kernel = view.sample.kernel.is_some();
        let kernel = self.kernel.iter_mut().filter(|_| is_kernel);
        let all = self.single.iter_mut().chain(&mut self.pairs);

        for walker in all.chain(kernel).chain(&mut self.profiles) {
            // A scan uses nothing but code addresses, which are kept anyway.
            if is_scan(walker.engine.name()) {
                continue;
            }

            for (variant, setting) in starts(view, setting) {
                walker.examine_over(&judged, &watched, variant, &setting);
            }
        }

        // A profile that changes nothing in a walk changes nothing in walks of copies either.
        let mut walked = HashSet::new();
        for walker in self.pairs.iter_mut().chain(&mut self.profiles) {
            read.extend(walker.read_of_copies(view, &watched, setting, &mut walked));
        }

        // perf's own walk of user space reads through other code than the unwinders.
        if let (Some(_), Some(space)) = (&view.sample.kernel, view.sample.user_space()) {
            for user in [UserWalk::FramePointer, UserWalk::UnwindUser] {
                let options = CallchainOptions {
                    user,
                    ..CallchainOptions::default()
                };
                get_perf_callchain(None, Some(&space), &watched, options);
            }
        }

        // Where the pc is not in code, the doctor looks whether a `ret` took it from below rsp.
        let live = view.live();
        let is_elsewhere = live.get(Reg::Rip).is_some_and(|pc| !view.space.is_text(pc));
        let below = live.get(Reg::Rsp).and_then(|rsp| rsp.checked_sub(8));
        if let Some(below) = below.filter(|_| is_elsewhere) {
            let _ = watched.read_u64(below);
        }

        // The return addresses of true frames are kept, whether a walk came there or not.
        let truth = &view.sample.truth;
        for slot in (0..truth.frames().len()).filter_map(|i| truth.slot(i)) {
            // Whether it is in the recording does not matter.
            let _ = watched.read_u64(slot);
        }

        read.extend(watched.into_read());
        read.sort_unstable();
        read.dedup();
        read
    }

    /// The digest of what every column gives: the proof, then each unwinder from each start. What
    /// stands for a word that is no address counts as that word.
    pub(super) fn results(
        &mut self,
        view: &View<'_>,
        proofs: &mut Proofs<'_>,
        setting: &Setting,
    ) -> Vec<u64> {
        let proven = proofs.prove(view, setting);
        let mut results = vec![of_proof(&proven)];
        let judged = judged_by(view, proven.truth);
        let judged = View {
            sample: &judged,
            ..*view
        };
        let mut text = String::new();
        for walker in self.columns(view.sample.kernel.is_some()) {
            for (variant, setting) in starts(view, setting) {
                let Walker { engine, cache } = walker;
                let outcome = engine.examine(&judged, variant, &setting, cache);
                results.push(of_outcome(engine, &outcome, &mut text));
            }
        }
        results
    }

    /// The name of a column of [`Walkers::results`].
    pub(super) fn column_name(&mut self, view: &View<'_>, column: usize) -> String {
        let is_kernel = view.sample.kernel.is_some();
        let starts = starts(view, &Setting::default());
        let Some(column) = column.checked_sub(1) else {
            return "proof".to_owned();
        };
        let walker = self.columns(is_kernel).nth(column / starts.len());
        let (variant, _) = starts[column % starts.len()];
        walker.map_or_else(String::new, |w| column_name(w.engine.name(), variant))
    }

    fn columns(&mut self, is_kernel: bool) -> impl Iterator<Item = &mut Walker> {
        let kernel = self.kernel.iter_mut().filter(move |_| is_kernel);
        self.single.iter_mut().chain(&mut self.pairs).chain(kernel)
    }
}

fn walkers(names: &[String]) -> Result<Vec<Walker>, SpecError> {
    let walker = |name: &String| {
        Ok(Walker {
            engine: spec::engine(name)?,
            cache: Cache::new(),
        })
    };
    names.iter().map(walker).collect()
}

/// The sample with its own truth, or with the proven one if it has none.
fn judged_by<'a>(view: &View<'a>, proven: Truth) -> Sample<'a> {
    let truth = &view.sample.truth;
    let truth = if truth.frames().is_empty() {
        proven
    } else {
        truth.clone()
    };
    with_truth(view.sample, truth)
}

/// The starts that a sample allows.
fn starts(view: &View<'_>, setting: &Setting) -> Vec<(Variant, Setting)> {
    if !view.sample.regs.is_fake() {
        return vec![(Variant::Hardware, *setting)];
    }
    let settings = [false, true].map(|frame_pointer_kernel| Setting {
        frame_pointer_kernel,
        ..*setting
    });
    let of = |setting| {
        Variant::ALL
            .into_iter()
            .map(move |variant| (variant, setting))
    };
    settings.into_iter().flat_map(of).collect()
}

impl Walker {
    fn examine_over(
        &mut self,
        view: &View<'_>,
        memory: &Watched<'_>,
        variant: Variant,
        setting: &Setting,
    ) {
        let Walker { engine, cache } = self;
        let outcome = engine.examine_over(view, memory, variant, setting, cache);
        // The doctor looks whether that is a breakpoint on the stack, to which a debugger's call
        // returns. Whether it is in the recording does not matter.
        if let Reason::NotText { address } = outcome.chain.end.reason {
            let _ = memory.read_u64(address & !7);
        }
        // A walk may end before frames whose rows another view of the stack lets it check.
        let frames = view.sample.truth.frames().len();
        if let Some(finder) = engine.finder().filter(|f| f.fallback().is_none()) {
            let live = view.live();
            let subject = crate::check::Subject::of(view, memory, &live);
            for frame in 0..frames {
                subject.check_frame(finder, frame, cache);
            }
        }
    }

    /// What is read where a copy of the stack ends at a frame of the walk, so that the fallback is
    /// used there.
    fn read_of_copies(
        &mut self,
        view: &View<'_>,
        memory: &Watched<'_>,
        setting: &Setting,
        walked: &mut HashSet<u64>,
    ) -> Vec<Part> {
        let Walker { engine, cache } = self;
        let Ok(start) = engine.start(view.sample, Variant::Hardware, false, memory) else {
            return Vec::new();
        };
        let rsp = start.regs.rsp();
        let whole = engine.walk(&stack_of(view, &start, memory, setting), cache);
        if !walked.insert(shape(engine.name(), &whole)) {
            return Vec::new();
        }
        let ends = whole.frames.iter().filter_map(|frame| frame.slot);
        let mut read = Vec::new();
        for end in ends.filter(|&end| end > rsp) {
            let copy = memory.copy(rsp, end - rsp);
            engine.walk(&stack_of(view, &start, &copy, setting), cache);

            // Copies read almost the same parts: kept until the end, they would be as many as the
            // square of the frames. The stable sort merges two sorted runs in linear time.
            read.extend(copy.into_read());
            read.sort();
            read.dedup();
        }
        read
    }
}

/// A number for what a walk with this fallback found, and where it fell back.
fn shape(name: &str, chain: &Chain) -> u64 {
    let mut hasher = DefaultHasher::new();
    let of = |name: &str| name.split(':').next().unwrap_or_default().to_owned();
    let (first, second) = name.split_once('+').unwrap_or((name, ""));
    (of(first), second).hash(&mut hasher);
    for frame in &chain.frames {
        (frame.pc, frame.sp, frame.slot).hash(&mut hasher);
    }
    for event in &chain.events {
        if let Event::Fallback { pc, .. } = event {
            pc.hash(&mut hasher);
        }
    }
    hasher.finish()
}

fn of_proof(proven: &Proven) -> u64 {
    let mut hasher = DefaultHasher::new();
    let truth = &proven.truth;
    truth.is_complete().hash(&mut hasher);
    for frame in truth.frames() {
        let saved = frame.saved.map(|saved| saved.map(number));
        (number(frame.pc), number(frame.cfa), frame.kind, saved).hash(&mut hasher);
    }
    neutral(&format!("{:?}", proven.ending)).hash(&mut hasher);
    hasher.finish()
}

/// The digest of an outcome. `text` is room for a text.
fn of_outcome(engine: &Engine, outcome: &Outcome, text: &mut String) -> u64 {
    let mut hasher = DefaultHasher::new();
    let chain = &outcome.chain;
    for frame in &chain.frames {
        (number(frame.pc.value()), frame.pc.is_instruction()).hash(&mut hasher);
        (number(frame.sp), frame.slot.map(number)).hash(&mut hasher);
    }
    text.clear();
    if matches!(engine, Engine::Kernel(_)) {
        let _ = writeln!(text, "{:?}", chain.events);
    }
    let (verdict, ground) = (outcome.verdict, outcome.ground);
    let _ = writeln!(text, "{:?} {verdict:?} {ground:?}", chain.end);
    let _ = writeln!(text, "{:?}", outcome.unjudged);
    if let Some(diagnosis) = &outcome.diagnosis {
        let (code, frame, pc) = (diagnosis.code, diagnosis.frame, diagnosis.pc);
        let _ = writeln!(text, "{code:?} in frame {frame} at {pc:?}");
        if let Some(c) = &diagnosis.contradiction {
            let _ = writeln!(text, "{:?}: {:?}, not {}", c.reg, c.given, c.truth);
        }
    }
    neutral(text).hash(&mut hasher);
    hasher.finish()
}

/// A number, or the same one for all that are no address.
fn number(word: u64) -> u64 {
    if super::address::is_address(word) {
        word
    } else {
        1 << 63
    }
}

/// `text` without numbers that are no address: a word that was replaced is as good as it was where
/// it is only reported.
pub(super) fn neutral(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        out.push_str(&rest[..at]);
        let (radix, skip) = if rest[at..].starts_with("0x") {
            (16, 2)
        } else {
            (10, 0)
        };
        let digits = &rest[at + skip..];
        let end = digits.find(|c: char| !c.is_digit(radix));
        let (digits, behind) = digits.split_at(end.unwrap_or(digits.len()));
        match u64::from_str_radix(digits, radix) {
            Ok(number) if !super::address::is_address(number) => out.push('?'),
            _ => out.push_str(&rest[at..at + skip + digits.len()]),
        }
        rest = behind;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_no_address_is_left_out() {
        let text =
            "NotText { address: 4702111234474983745 } at 140737488346624, 0xdeadbeef00000000";
        let expected = "NotText { address: ? } at 140737488346624, ?";
        assert_eq!(neutral(text), expected);
        assert_eq!(
            neutral("0x7fff12, r12 18446603336221196288"),
            "0x7fff12, r12 18446603336221196288"
        );
    }
}
