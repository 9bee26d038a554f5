//! Each explanation, and what is said where its condition does not hold.

use super::*;
use crate::diagnose::Diagnosis;
use crate::engine::Outcome;
use crate::whole::one_row::{RBX, RSP, rows};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use unwind_sim_recordings::model::{ProcessMemory, Region, RegionRole, Sample};
use unwind_sim_unwind::chain::{Chain, FoundBy, Frame};
use unwind_sim_unwind::dwarf::Dwarf;
use unwind_sim_unwind::image::{
    AddressSpace, Bytes, Image, ImageParts, Mapping, Section, SectionKind,
};
use unwind_sim_unwind::memory::{MappedMemory, MemoryError};
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::start::SampleRegs;
use unwind_sim_unwind::verdict::{Ground, Verdict};

const CODE: u64 = 0x40_1000;
const STACK: u64 = 0x7fff_0000;
/// An address that is neither code nor stack.
const ELSEWHERE: u64 = 0x1234_5678;

/// A walk that ended at its first frame.
struct Scene {
    unwinder: &'static str,
    made: Made,
    space: AddressSpace,
    sample: Sample<'static>,
    code: Code,
    end: Reason,
    contradiction: Option<Contradiction>,
    proof_ended: Option<Ending>,
    frames: usize,
}

/// A program of `code`, whose rows count from `base`.
fn program(code: u8, base: u8) -> AddressSpace {
    let text = CODE..CODE + 0x100;
    let mut space = AddressSpace::new();
    space.map(Mapping {
        range: CODE..CODE + 0x1000,
        bias: 0,
        image: Some(Arc::new(Image::new(ImageParts {
            text: vec![text.clone()],
            sections: vec![
                Section {
                    kind: SectionKind::Text,
                    address: CODE,
                    data: Bytes::from_vec(vec![code; 0x100]),
                },
                rows(text, base),
            ],
            ..ImageParts::default()
        }))),
        name: "/bin/prog".into(),
    });
    space
}

/// Bytes of a stack with these bounds, from `STACK` on.
fn stack(bytes: Vec<u8>, bounds: Range<u64>) -> Region<'static> {
    Region {
        role: RegionRole::Stack,
        bounds,
        next_sp: 0,
        address: STACK,
        bytes: Cow::Owned(bytes),
    }
}

/// A core's memory, of which it lists `mapped`.
fn process(mapped: Range<u64>) -> ProcessMemory {
    ProcessMemory {
        memory: Arc::new(MappedMemory::new([])),
        mapped: std::iter::once(mapped).collect(),
        is_whole: true,
        crash: None,
    }
}

impl Scene {
    fn new(end: Reason) -> Scene {
        let mut regs = Regs::UNKNOWN;
        for (reg, value) in [
            (Reg::Rip, CODE + 8),
            (Reg::Rsp, STACK),
            (Reg::Rbp, STACK + 16),
        ] {
            regs.set(reg, value);
        }

        let mut sample = Sample::of_regs(SampleRegs::hardware(regs));
        sample.regions = vec![stack(vec![0; 64], STACK..STACK + 0x1000)];
        Scene {
            unwinder: "dwarf",
            made: Made::default(),
            space: program(0x90, RSP),
            sample,
            code: end.code(),
            end,
            contradiction: None,
            proof_ended: None,
            frames: 1,
        }
    }

    fn engine(mut self, kind: FileKind) -> Scene {
        self.made.engine = Engine::Import(kind);
        self
    }

    /// What the three questions say of it.
    fn ask(&self, kind: Kind) -> [Option<Explanation>; 3] {
        let view = View {
            number: 0,
            sample: &self.sample,
            space: &self.space,
            pristine: None,
            stitched: &[],
            world: None,
        };

        let pc = CodeAddress::Instruction(view.live().rip());
        let mut chain = Chain::ended(self.end);
        chain.frames = vec![
            Frame {
                pc,
                sp: STACK,
                slot: None,
                found: FoundBy::Start,
            };
            self.frames
        ];

        let ground = Ground {
            known: 1,
            ..Ground::default()
        };
        let diagnosis = self.contradiction.clone().map(|contradiction| Diagnosis {
            code: self.code,
            frame: 0,
            pc,
            contradiction: Some(contradiction),
        });
        let outcome = Outcome {
            chain,
            verdict: Verdict::Unjudged,
            ground,
            unjudged: None,
            from: 0,
            diagnosis,
            whole: None,
        };

        let mut reading = Reading::of(self.unwinder, &self.made);
        reading.proof_ended = self.proof_ended;
        let walk = BrokenWalk {
            view: &view,
            outcome: &outcome,
            reading,
            code: self.code,
            pc,
        };

        let mut cache = Cache::new();
        [
            walk.is_not_there(kind),
            walk.is_done_by_program(kind, &Dwarf::new(), &mut cache),
            walk.is_cut_off(kind),
        ]
    }

    /// The only explanation there is: its kind, what is lacking, and its words.
    fn explained(&self, kind: Kind) -> Option<(Kind, Option<Lack>, String)> {
        let mut found = self.ask(kind).into_iter().flatten();
        let explanation = found.next()?;
        assert!(found.next().is_none(), "two explanations");
        let words = explanation.note.or(explanation.if_proven);
        Some((
            explanation.kind,
            explanation.lack,
            words.unwrap_or_default(),
        ))
    }

    /// The same, without the words.
    fn kind(&self, kind: Kind) -> Option<(Kind, Option<Lack>)> {
        self.explained(kind).map(|(kind, lack, _)| (kind, lack))
    }
}

fn unmapped(address: u64) -> Reason {
    Reason::Memory(MemoryError::Unmapped { address })
}

fn not_text(address: u64) -> Reason {
    Reason::NotText { address }
}

/// perf asks for a copy of the stack, and the kernel does not wait for a page that is not in memory.
#[test]
fn a_stack_of_which_nothing_was_copied() {
    let mut scene = Scene::new(unmapped(STACK));
    scene.made.stack_copy = 8192;
    assert_eq!(scene.kind(Kind::NotRecorded), None);

    scene.sample.regions.clear();
    let lack = Some((Kind::NotRecorded, Some(Lack::Copy)));
    assert_eq!(scene.kind(Kind::NotRecorded), lack);
    // Nobody asked for a copy.
    scene.made.stack_copy = 0;
    assert_eq!(scene.kind(Kind::NotRecorded), None);
}

/// The registers are of the program before `execve`.
#[test]
fn a_sample_within_execve() {
    let mut scene = Scene::new(Reason::NoImage { pc: CODE + 8 }).engine(FileKind::PerfData);
    scene.space = AddressSpace::new();
    assert_eq!(scene.kind(Kind::NoFile), Some((Kind::Exec, None)));

    // A program that has run for a while has more mappings: this one is missing.
    for number in 0..5 {
        let start = 0x10_0000 * (number + 100);
        scene.space.map(Mapping {
            range: start..start + 0x1000,
            bias: 0,
            image: None,
            name: "/lib/x.so".into(),
        });
    }
    let mappings = Some((Kind::NotRecorded, Some(Lack::Mappings)));
    assert_eq!(scene.kind(Kind::NoFile), mappings);

    // In other recordings all mappings are there: the program has jumped to nowhere.
    let scene = scene.engine(FileKind::Core);
    assert_eq!(scene.kind(Kind::NoFile), None);
}

#[test]
fn recursion_that_has_used_up_its_stack_is_endless() {
    let mut scene = Scene::new(Reason::FrameLimit { limit: 2000 });
    scene.frames = 2000;
    assert_eq!(scene.kind(Kind::FrameLimit), None);

    scene.sample.regions[0].bounds = STACK..STACK + (8 << 20);
    let endless = Some((Kind::EndlessRecursion, None));
    assert_eq!(scene.kind(Kind::FrameLimit), endless);
    // Deep, but not as deep as endless recursion gets.
    scene.frames = 200;
    assert_eq!(scene.kind(Kind::FrameLimit), None);
}

/// Where the next word should be, there is no address at all: a register on the stack was overwritten.
#[test]
fn a_word_that_would_not_be_at_an_address() {
    let mut scene = Scene::new(unmapped(0x4141_4141_4141_4141));
    let (kind, _, words) = scene.explained(Kind::NotRecorded).expect("a reason");
    assert_eq!(kind, Kind::OverwrittenReturn);
    assert!(
        words.contains("0x4141414141414141, which is not an address"),
        "{words}"
    );

    // Frame pointers are not promised to be any.
    scene.unwinder = "fp";
    assert_eq!(scene.kind(Kind::NotRecorded), None);
    // An address, of which nothing was recorded.
    let scene = Scene::new(unmapped(ELSEWHERE));
    assert_eq!(scene.kind(Kind::NotRecorded), None);
}

/// The caller's frame would lie below: the register from which the row counts is not this stack's.
#[test]
fn a_frame_below_by_a_register_that_was_saved() {
    let below = Reason::SpDidNotAdvance {
        from: STACK,
        to: 0x1000,
    };
    let mut scene = Scene::new(below);
    // By rsp, which nothing can overwrite.
    assert_eq!(scene.kind(Kind::Other), None);

    scene.space = program(0x90, RBX);
    let (kind, _, words) = scene.explained(Kind::Other).expect("a reason");
    assert_eq!(kind, Kind::Other);
    assert!(words.ends_with(", or a row is wrong"), "{words}");

    // The code proves the rule, so the row is right.
    scene.proof_ended = Some(Ending::NotCode);
    let (kind, _, words) = scene.explained(Kind::Other).expect("a reason");
    assert_eq!(kind, Kind::OverwrittenReturn);
    assert!(words.ends_with("overwritten on the stack"), "{words}");
    scene.unwinder = "fp";
    assert_eq!(scene.kind(Kind::Other), None);
}

/// gdb's `call f()` returns to a breakpoint on the stack.
#[test]
fn a_call_that_a_debugger_made() {
    let mut scene = Scene::new(not_text(STACK + 19));
    let mut bytes = vec![0; 64];
    bytes[19] = 0xcc;
    scene.sample.regions = vec![stack(bytes, STACK..STACK + 0x1000)];
    let (kind, _, words) = scene.explained(Kind::Other).expect("a reason");
    assert_eq!(kind, Kind::Other);
    assert!(words.contains("a debugger called this function"), "{words}");

    // Another byte is there.
    scene.end = not_text(STACK + 20);
    let (_, _, words) = scene.explained(Kind::Other).expect("a reason");
    assert!(!words.contains("debugger"), "{words}");
}

/// A word in the place of a return address that is not in code: it was overwritten if the code proves the
/// place, or if the program crashed at that `ret`; else the row may be wrong.
#[test]
fn a_return_address_that_is_not_in_code() {
    let mut scene = Scene::new(not_text(ELSEWHERE));
    let (kind, _, words) = scene.explained(Kind::Other).expect("a reason");
    assert_eq!(kind, Kind::Other);
    assert!(words.ends_with(OVERWRITTEN_OR_WRONG), "{words}");

    scene.proof_ended = Some(Ending::NotCode);
    let overwritten = Some((Kind::OverwrittenReturn, None));
    assert_eq!(scene.kind(Kind::Other), overwritten);

    // A core whose program stands at the `ret`.
    let mut scene = Scene::new(not_text(ELSEWHERE)).engine(FileKind::Core);
    assert_eq!(scene.kind(Kind::Other), Some((Kind::Other, None)));
    scene.space = program(0xc3, RSP);
    assert_eq!(scene.kind(Kind::Other), overwritten);

    // By frame pointers it says nothing.
    scene.unwinder = "fp";
    assert_eq!(scene.kind(Kind::Other), None);
}

/// The place is the usual one, so only the code can tell whether the row or the word is wrong.
#[test]
fn a_usual_slot_with_another_word() {
    // The table has one row; only its rule is changed.
    let row = |ra| {
        let space = program(0x90, RSP);
        let pc = CodeAddress::Instruction(CODE + 8);
        let row = row(&space, pc, &Dwarf::new(), &mut Cache::new());
        let mut row = row.expect("a row");
        row.rule.ra = ra;
        Some(Arc::new(row))
    };

    let mut scene = Scene::new(not_text(ELSEWHERE));
    scene.code = Code::WrongReturnAddress;
    let mut contradiction = Contradiction {
        frame: 0,
        pc: CodeAddress::Instruction(CODE + 8),
        code: Code::WrongReturnAddress,
        reg: Reg::Rip,
        given: Some(ELSEWHERE),
        truth: CODE + 16,
        misread: false,
        reason: None,
        row: row(Value::at_cfa(-8)),
    };
    scene.contradiction = Some(contradiction.clone());
    let (kind, _, words) = scene.explained(Kind::WrongRow).expect("a reason");
    assert_eq!(kind, Kind::WrongRow);
    assert_eq!(
        words,
        "the return address is 0x12345678, which is not in code"
    );

    contradiction.row = row(Value::at_cfa(-16));
    scene.contradiction = Some(contradiction);
    assert_eq!(scene.kind(Kind::WrongRow), None);
}

/// A core lists all that is mapped.
#[test]
fn a_core_without_memory_at_the_stack_pointer() {
    let below = Reason::Memory(MemoryError::BelowCopy {
        address: STACK,
        start: STACK + 64,
    });
    let mut scene = Scene::new(below).engine(FileKind::Core);
    // A copy that begins above rsp, by another engine: nothing to say of it here.
    let profile = Scene::new(below).engine(FileKind::PerfData);
    assert_eq!(profile.kind(Kind::BelowCopy), None);

    let (kind, lack, words) = scene.explained(Kind::BelowCopy).expect("a reason");
    assert_eq!((kind, lack), (Kind::NotRecorded, None));
    assert!(
        words.contains("no memory where the stack pointer is"),
        "{words}"
    );

    scene.sample.process_memory = Some(process(CODE..CODE + 0x1000));
    let lack = Some((Kind::NotRecorded, Some(Lack::Stack)));
    assert_eq!(scene.kind(Kind::BelowCopy), lack);
    // The same where the walk asked for another word.
    scene.end = unmapped(STACK + 8);
    assert_eq!(scene.kind(Kind::NotRecorded), lack);

    // It is mapped, and the dump has left it out.
    scene.sample.process_memory = Some(process(STACK - 0x1000..STACK + 0x1000));
    assert_eq!(scene.kind(Kind::NotRecorded), None);
}

/// A core has the whole stack, or was cut; perf copies a part, up to a page that is not there.
#[test]
fn what_lies_beyond_the_stack() {
    let beyond = Reason::Memory(MemoryError::BeyondCopy {
        address: STACK + 80,
        end: STACK + 64,
    });
    let too_short = |scene: &Scene| scene.kind(Kind::CopyTooShort);

    let mut core = Scene::new(beyond).engine(FileKind::Core);
    assert_eq!(too_short(&core), Some((Kind::NotRecorded, None)));
    core.made.is_cut = true;
    assert_eq!(too_short(&core), Some((Kind::CutCore, None)));

    let mut profile = Scene::new(beyond).engine(FileKind::PerfData);
    assert_eq!(too_short(&profile), None);
    profile.sample.regions[0].bounds = STACK..STACK + 64;
    let copy = Some((Kind::NotRecorded, Some(Lack::Copy)));
    assert_eq!(too_short(&profile), copy);
}
