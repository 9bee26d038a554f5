//! A truth for recordings that have none: the frames that the code proves.
//!
//! The innermost frame is known: its registers are the sample's. A caller is known if the frame
//! that it called is, if the rule there is proven by the code
//! ([`unwind_sim_tables::ground`]), and if the words that the rule reads are in the recording. The
//! first step that is not ends the chain, with the reason. No unwind table is believed.

mod ending;
mod tally;
#[cfg(test)]
mod tests;

pub use ending::Ending;
pub use tally::ProofTally;

use crate::engine::Setting;
use crate::precise::is_shifted;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use unwind_sim_recordings::files::{FinderOptions, ImageFinder};
use unwind_sim_recordings::model::{Region, Sample};
use unwind_sim_recordings::view::View;
use unwind_sim_tables::file::File;
use unwind_sim_tables::ground::{FileArena, NoProof, ProvenRule, Prover};
use unwind_sim_tables::proof::verdict::Assumptions;
use unwind_sim_unwind::address::{CodeAddress, Lookup};
use unwind_sim_unwind::apply::{self, Context};
use unwind_sim_unwind::chain::ReadWords;
use unwind_sim_unwind::frame::Frame;
use unwind_sim_unwind::image::{Image, ImageId, Mapping, SectionKind};
use unwind_sim_unwind::memory::Memory;
use unwind_sim_unwind::regs::{Reg, RegMask};
use unwind_sim_unwind::rule::RuleKind;
use unwind_sim_unwind::truth::{TrueFrame, TrueKind, Truth};
use unwind_sim_unwind::walk::STACK_CHANGES_MAX;

/// A chain that the code proves.
#[derive(Clone, Debug)]
pub struct Proven {
    /// The frames, complete if the last one is where the program starts.
    pub truth: Truth,
    /// Why there are no more; `None` at the root.
    pub ending: Option<Ending>,
    /// The callee-saved registers of the last frame that were lost, in the order of
    /// [`Reg::CALLEE_SAVED`].
    pub lost: [Option<Lost>; Reg::CALLEE_SAVED.len()],
    /// What the proofs rest on.
    pub assumptions: Assumptions,
}

/// A callee-saved register that a function overwrote without keeping it where a rule could find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lost {
    /// The register.
    pub reg: Reg,
    /// The frame of that function, counted from 0.
    pub frame: usize,
    /// Where it is.
    pub pc: CodeAddress,
}

/// Proves chains. The code of a file is followed when it is first needed.
pub struct Proofs<'f> {
    shelf: &'f FileArena,
    finder: ImageFinder,
    threads: usize,
    /// The largest text of a file that is followed, bytes.
    text_max: u64,
    /// The place of each image that was seen.
    known: HashMap<ImageId, usize>,
    places: Vec<Place<'f>>,
}

/// An image's prover, and the rules that it was asked for.
struct Place<'f> {
    image: Arc<Image>,
    prover: Prover<'f>,
    is_whole: bool,
    rules: HashMap<(u64, bool), Result<ProvenRule, NoProof>>,
}

impl<'f> Proofs<'f> {
    /// `shelf` keeps the files; `files` says where to look for those of which a recording has only
    /// parts.
    pub fn new(shelf: &'f FileArena, files: FinderOptions) -> Proofs<'f> {
        let threads = std::thread::available_parallelism();
        Proofs {
            shelf,
            finder: ImageFinder::new(files),
            threads: threads.map_or(1, usize::from),
            text_max: u64::MAX,
            known: HashMap::new(),
            places: Vec::new(),
        }
    }

    /// From now on, does not follow files with more than `text_max` bytes of text: it takes a second or
    /// more for each ten million bytes. Returns the limit before.
    pub(crate) fn set_text_max(&mut self, text_max: u64) -> u64 {
        std::mem::replace(&mut self.text_max, text_max)
    }

    /// The frames of a sample's user stack that are proven.
    pub fn prove(&mut self, view: &View<'_>, setting: &Setting) -> Proven {
        self.prove_in(view, &view.sample.memory(), setting)
    }

    /// [`Proofs::prove`], with the words that `memory` has.
    pub(crate) fn prove_in(
        &mut self,
        view: &View<'_>,
        memory: &dyn Memory,
        setting: &Setting,
    ) -> Proven {
        let mut chain = Chain {
            frames: Vec::new(),
            lost: [None; Reg::CALLEE_SAVED.len()],
            assumptions: Assumptions::NONE,
        };
        let ending = self.follow(view, memory, setting, &mut chain);
        let truth = match (ending, chain.frames.is_empty()) {
            (None, _) => Truth::Complete(chain.frames),
            (Some(_), true) => Truth::Unknown,
            (Some(_), false) => Truth::Known(chain.frames),
        };
        Proven {
            truth,
            ending,
            lost: chain.lost,
            assumptions: chain.assumptions,
        }
    }

    /// Adds the proven frames to `chain`, and returns why there are no more.
    fn follow(
        &mut self,
        view: &View<'_>,
        memory: &dyn Memory,
        setting: &Setting,
        chain: &mut Chain,
    ) -> Option<Ending> {
        let live = view.sample.regs.live();
        let live = live.filter(|r| [Reg::Rip, Reg::Rsp].iter().all(|&reg| r.get(reg).is_some()));
        let Some(live) = live.filter(|_| view.sample.kernel.is_none()) else {
            return Some(Ending::NoStart);
        };

        if is_shifted(live, view.space) {
            return Some(Ending::AfterInstruction);
        }

        let mut frame = Frame::top(*live);
        chain.push(&frame, TrueKind::Top);
        let mut stack_changes = 0;

        loop {
            // After a call that does not return, the return address may belong to the next
            // function.
            let at = frame.pc.lookup(Lookup::InsideCall);
            let Some(mapping) = view.space.find(at) else {
                return Some(Ending::NotCode);
            };
            let Some(image) = &mapping.image else {
                return Some(ending_without_image(mapping));
            };

            // The proof takes a second or more for each ten million bytes of code.
            if text_bytes(image) > self.text_max {
                return Some(Ending::Code(NoProof::TooLarge));
            }

            let place = self.place(image);
            let rule = match place.rule(mapping, frame.pc) {
                Ok(rule) => rule,
                Err(why) => return Some(place.ending(image, why)),
            };
            chain.assumptions.add_all(rule.assumptions);

            if rule.rule.kind == RuleKind::Outermost {
                return None;
            }

            let context = Context {
                memory,
                expressions: place.prover.expressions(),
                bias: mapping.bias,
                carries: RegMask::CALLEE_SAVED,
            };
            let caller = match apply::apply(&rule.rule, &frame, &context, &mut ReadWords::new()) {
                Ok(caller) => caller,
                Err(reason) => return Some(Ending::of_rule(&reason)),
            };

            chain.note_lost(&frame, &caller);
            let kind = match rule.rule.kind {
                RuleKind::Signal => {
                    // A handler may have a stack of its own (sigaltstack(2)), so rsp need not rise
                    // here.
                    stack_changes += 1;
                    TrueKind::Interrupted
                }
                _ => TrueKind::Call,
            };

            // A caller's frame is above. Without the bounds, frames that lead to one another would
            // go on forever.
            let advances = caller.regs.rsp() > frame.regs.rsp() || kind == TrueKind::Interrupted;
            let frames_max = setting.limits.frames_max as usize;
            if !advances || stack_changes > STACK_CHANGES_MAX || chain.frames.len() >= frames_max {
                return Some(Ending::Limit);
            }

            // The proof says where the return address is. The word there may have been overwritten.
            if !is_code(view, caller.pc) {
                return Some(Ending::NotCode);
            }

            // DWARF 5, 6.4: the CFA is rsp at the call site in the caller.
            if let Some(last) = chain.frames.last_mut() {
                last.cfa = caller.regs.rsp();
            }

            chain.push(&caller, kind);
            frame = caller;
        }
    }

    /// The place of an image. Each time that a recording is read it has other images of the same files,
    /// and to follow the code of a C library takes longer than all else: they share one place.
    fn place(&mut self, image: &Arc<Image>) -> &mut Place<'f> {
        let id = image.id();
        let number = match self.known.get(&id) {
            Some(&number) => number,
            None => {
                let same = self.places.iter().position(|p| is_same(&p.image, image));
                let number = same.unwrap_or_else(|| self.add(image));
                self.known.insert(id, number);
                number
            }
        };
        &mut self.places[number]
    }

    fn add(&mut self, image: &Arc<Image>) -> usize {
        let mut file = File::of_image(image);
        if !file.is_whole()
            && let Some(found) = self.finder.image_of(image.name(), image.build_id())
        {
            file = File::of_image(&found);
        }
        self.places.push(Place {
            image: image.clone(),
            is_whole: file.is_whole(),
            prover: Prover::new(self.shelf.add(file), self.threads),
            rules: HashMap::new(),
        });
        self.places.len() - 1
    }
}

/// Whether two images hold the same.
fn is_same(one: &Image, other: &Image) -> bool {
    let sections = || one.sections().iter().zip(other.sections());
    one.name() == other.name()
        && one.build_id() == other.build_id()
        && one.text() == other.text()
        && one.sections().len() == other.sections().len()
        && sections().all(|(a, b)| (a.kind, a.address) == (b.kind, b.address))
        && one.symbols() == other.symbols()
        && sections().all(|(a, b)| a.data[..] == b.data[..])
}

impl Place<'_> {
    fn rule(&mut self, mapping: &Mapping, pc: CodeAddress) -> Result<ProvenRule, NoProof> {
        let svma = mapping.svma(pc.value());
        let of = match pc {
            CodeAddress::Instruction(_) => CodeAddress::Instruction(svma),
            CodeAddress::Return(_) => CodeAddress::Return(svma),
        };
        let rules = &mut self.rules;
        *rules
            .entry((svma, pc.is_instruction()))
            .or_insert_with(|| self.prover.rule(of))
    }

    /// What ended the chain, if the proof did. What is missing of a file that is not whole may be
    /// all that the proof lacks.
    fn ending(&self, image: &Image, why: NoProof) -> Ending {
        let has_text = |s: &unwind_sim_unwind::image::Section| s.kind == SectionKind::Text;
        match why {
            NoProof::NoCode
                if !image.sections().iter().any(has_text) && image.build_id().is_empty() =>
            {
                Ending::Jit
            }
            NoProof::NoFunction | NoProof::NoCode if !self.is_whole => {
                Ending::Code(NoProof::NoCode)
            }
            why => Ending::Code(why),
        }
    }
}

/// The number of bytes of an image's text.
pub(crate) fn text_bytes(image: &Image) -> u64 {
    image
        .text()
        .iter()
        .map(|text| text.end.saturating_sub(text.start))
        .sum()
}

/// A chain as it grows.
struct Chain {
    frames: Vec<TrueFrame>,
    /// By whom each callee-saved register was lost.
    lost: [Option<Lost>; Reg::CALLEE_SAVED.len()],
    assumptions: Assumptions,
}

impl Chain {
    /// Notes the registers that the step from `frame` to `caller`, the last frame's, lost.
    fn note_lost(&mut self, frame: &Frame, caller: &Frame) {
        for (reg, lost) in Reg::CALLEE_SAVED.into_iter().zip(&mut self.lost) {
            let pc = frame.pc;
            match (frame.regs.get(reg), caller.regs.get(reg)) {
                (_, Some(_)) => *lost = None,
                (Some(_), None) => {
                    let frame = self.frames.len() - 1;
                    *lost = Some(Lost { reg, frame, pc });
                }
                (None, None) => {}
            }
        }
    }

    fn push(&mut self, frame: &Frame, kind: TrueKind) {
        let saved = Reg::CALLEE_SAVED.map(|reg| frame.regs.get(reg));
        let is_known = saved.iter().all(Option::is_some);
        self.frames.push(TrueFrame {
            pc: frame.pc.value(),
            cfa: 0,
            kind,
            saved: is_known.then(|| saved.map(Option::unwrap_or_default)),
        });
    }
}

/// Whether a caller's pc is code, and not that of the kernel's trampoline for uretprobes, which
/// hides the real return address.
fn is_code(view: &View<'_>, pc: CodeAddress) -> bool {
    let at = pc.lookup(Lookup::InsideCall);
    let mapping = view.space.find(at);
    mapping.is_some_and(|m| m.name != "[uprobes]") && view.space.is_text(at)
}

fn ending_without_image(mapping: &Mapping) -> Ending {
    if mapping.name.starts_with('/') && !mapping.name.starts_with("//anon") {
        Ending::NoFile
    } else {
        Ending::Jit
    }
}

/// A copy of `sample` with another truth. The memory is not copied.
pub fn with_truth<'a>(sample: &'a Sample<'_>, truth: Truth) -> Sample<'a> {
    let regions = sample.regions.iter().map(|region| Region {
        role: region.role,
        bounds: region.bounds.clone(),
        next_sp: region.next_sp,
        address: region.address,
        bytes: Cow::Borrowed(&*region.bytes),
    });
    Sample {
        pid: sample.pid,
        tid: sample.tid,
        time: sample.time,
        regs: sample.regs,
        regions: regions.collect(),
        truth,
        recorded: sample.recorded.clone(),
        branches: sample.branches.clone(),
        kernel: sample.kernel.clone(),
        process_memory: sample.process_memory.clone(),
    }
}
