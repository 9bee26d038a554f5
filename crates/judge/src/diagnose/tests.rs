//! Tests of the codes of ends, frame pointers and fake registers.

use super::*;
use std::sync::Arc;
use unwind_sim_unwind::cache::{NewRow, RowId, UnitKey};
use unwind_sim_unwind::fp::FramePointer;
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Mapping, Section, SectionKind, Symbol};
use unwind_sim_unwind::memory::{MemoryCopy, Regions};
use unwind_sim_unwind::regs::{RegMask, Regs};
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::rule::{Rule, Value};
use unwind_sim_unwind::truth::{TrueFrame, TrueKind, Truth};

const FUNCTION: u64 = 0x1000;
const STACK: u64 = 0x7000;

/// A program whose only function is this code, mapped at its link address.
fn space(code: &[u8]) -> AddressSpace {
    let mut text = code.to_vec();

    // `int3` is part of neither a prologue nor an epilogue.
    text.resize(64, 0xcc);

    let image = Image::new(ImageParts {
        name: "program".into(),
        text: std::iter::once(FUNCTION..FUNCTION + 64).collect(),
        sections: vec![Section {
            kind: SectionKind::Text,
            address: FUNCTION,
            data: Bytes::from_vec(text),
        }],
        symbols: vec![Symbol {
            address: FUNCTION,
            size: code.len() as u64,
            name: "function".into(),
        }],
        ..ImageParts::default()
    });

    let mut space = AddressSpace::new();
    space.map(Mapping {
        range: FUNCTION..FUNCTION + 64,
        bias: 0,
        image: Some(Arc::new(image)),
        name: "program".into(),
    });

    space
}

/// A chain of one frame.
fn truth(pc: u64, cfa: u64) -> Truth {
    Truth::Known(vec![TrueFrame {
        pc,
        cfa,
        kind: TrueKind::Top,
        saved: None,
    }])
}

#[test]
fn an_epilogues_rest_is_pops_of_other_registers_and_a_way_out() {
    const OUT: [&[u8]; 6] = [
        &[0xc3],
        &[0xc2, 8, 0],
        &[0xe9, 0, 0, 0, 0],
        &[0xeb, 0],
        &[0xf3, 0xc3],
        &[0xff, 0xe0],
    ];

    for out in OUT {
        assert!(epilogue_rest(out), "{out:x?}");
        for before in [
            &[0x58][..],               // pop rax
            &[0x5c],                   // pop rsp
            &[0x5e],                   // pop rsi
            &[0x5f],                   // pop rdi
            &[0x41, 0x58],             // pop r8
            &[0x41, 0x5f],             // pop r15
            &[0x48, 0x83, 0xc4, 8],    // add rsp, 8
            &[0x41, 0x5c, 0x5b, 0x5e], // several
        ] {
            assert!(epilogue_rest(&[before, out].concat()), "{before:x?}");
        }

        // Before `pop rbp` the frame pointer is still there; the others are not of an epilogue.
        for other in [
            &[0x5d][..],            // pop rbp
            &[0x41, 0x57],          // push r15
            &[0x48, 0x83, 0xec, 8], // sub rsp, 8
            &[0x90],
        ] {
            assert!(!epilogue_rest(&[other, out].concat()), "{other:x?}");
        }
    }

    // Without a way out: cut short, `call *%rax` (ff d0), or not an instruction (ff e8).
    for nothing in [&[][..], &[0x58], &[0x41], &[0xff, 0xd0], &[0xff, 0xe8]] {
        assert!(!epilogue_rest(nothing), "{nothing:x?}");
    }
}

/// push rbp; mov rbp, rsp; nop; pop rbp; ret
const CODE: [u8; 7] = [0x55, 0x48, 0x89, 0xe5, 0x90, 0x5d, 0xc3];

#[test]
fn the_frame_pointer_is_not_yet_there_before_the_prologues_end_and_gone_after_the_pop() {
    // A cache knows the causes of each image.
    let mut cache = Cache::new();
    let mut cause_in = |space: &AddressSpace, at: u64, is_frame_pointer: bool| {
        let (pc, cfa) = (FUNCTION + at, STACK + 16);
        let rbp = if is_frame_pointer { STACK } else { STACK + 8 };
        frame_pointer_cause(
            &Subject {
                space,
                memory: &Regions::default(),
                truth: &truth(pc, cfa),
                live: &Regs::frame(pc, STACK, rbp),
                is_whole: false,
            },
            0,
            &mut cache,
        )
    };

    let ours = space(&CODE);
    let not_yet = Some(Code::FramePointerNotYet);
    let (gone, none) = (Some(Code::FramePointerGone), Some(Code::NoFramePointer));

    for (at, expected) in [
        (0, not_yet),
        (1, not_yet),
        (3, not_yet),
        // Here the frame pointer is set up, so the position of the pc does not explain another
        // value.
        (4, none),
        (5, none),
        (6, gone),
    ] {
        for _ in 0..2 {
            assert_eq!(cause_in(&ours, at, false), expected, "at {at}");
            assert_eq!(cause_in(&ours, at, true), None, "at {at}");
        }
    }

    let mut cause =
        |code: &[u8], at, is_frame_pointer| cause_in(&space(code), at, is_frame_pointer);

    assert_eq!(cause(&[0x90, 0xc3], 0, false), none, "without a prologue");
    assert_eq!(cause(&[0xc8, 0, 0, 0, 0x90], 3, false), not_yet, "enter");
    assert_eq!(cause(&[0xc8, 0, 0, 0, 0x90], 4, false), none);
}

/// What is kept of one place serves for no other, nor for a return address of the same number.
#[test]
fn causes_are_kept_by_place() {
    let mut cache = Cache::new();
    for code in [&CODE[..], &[0xc8, 0, 0, 0, 0x90], &[0x90, 0xc3]] {
        let space = space(code);
        let places = || {
            (FUNCTION..FUNCTION + 80)
                .flat_map(|pc| [CodeAddress::Instruction(pc), CodeAddress::Return(pc)])
        };
        for pc in places().chain(places()) {
            let cause = cause_at(&space, pc, &mut cache);
            assert_eq!(cause, without_frame_pointer(&space, pc), "{pc:?}");
        }
    }
}

#[test]
fn a_root_claimed_by_a_wrong_chain_is_not_one() {
    let root = |verdict, complete, at_last| {
        let chain = Chain::ended(Reason::RootReached);
        let ground = Ground {
            complete,
            at_last,
            ..Ground::default()
        };
        end_code(&chain, verdict, &ground)
    };

    let (reached, not_at_root) = (Code::RootReached, Code::NotAtRoot);
    let (wrong, cut) = (Verdict::Wrong { at: 1 }, Verdict::Truncated { at: 1 });

    assert_eq!(root(wrong, true, false), not_at_root);
    assert_eq!(root(cut, true, false), not_at_root);

    // A chain that ended early certainly had a caller, root or not.
    assert_eq!(root(cut, false, false), not_at_root);
    assert_eq!(root(wrong, false, false), reached);

    // The last true frame is the root, whatever was wrong before it.
    assert_eq!(root(wrong, true, true), reached);
    assert_eq!(root(cut, true, true), reached);

    for right in [Verdict::Ok, Verdict::Unjudged, Verdict::Unsupported] {
        assert_eq!(root(right, true, false), reached, "{right}");
    }

    // Another end keeps its code.
    let chain = Chain::ended(Reason::NoRow { pc: 1 });
    assert_eq!(end_code(&chain, wrong, &Ground::default()), Code::NoRow);
}

/// The start of a walk by the frame pointer.
struct Fake {
    is_fake: bool,
    first_frame: Option<u64>,
    /// The pc that it starts with; the true one is [`FUNCTION`].
    pc: u64,
    /// The true CFA; the step gives [`STACK`] + 16.
    cfa: u64,
}

const FAKE: Fake = Fake {
    is_fake: true,
    first_frame: None,
    pc: FUNCTION,
    cfa: STACK + 32,
};

fn with_walk<T>(fake: &Fake, run: impl FnOnce(&Subject<'_>, &Walked<'_>, &mut Cache) -> T) -> T {
    let space = space(&CODE);

    // The saved rbp and, above it, the return address: a step by rbp gives CFA rbp + 16.
    let words = [STACK + 0x100, FUNCTION + 4].map(u64::to_le_bytes).concat();

    let memory = Regions::new(vec![MemoryCopy {
        address: STACK,
        bytes: &words,
    }]);

    // rbp is always that of the frame: only the pc, the start or the true CFA may be another.
    let regs = Regs::frame(fake.pc, STACK, STACK);
    let start = Start {
        regs,
        first_frame: fake.first_frame,
        sampled_ip: None,
    };

    let subject = Subject {
        space: &space,
        memory: &memory,
        truth: &truth(FUNCTION, fake.cfa),
        live: &regs,
        is_whole: false,
    };
    let walked = Walked {
        chain: &Chain::default(),
        ended: Code::NoRow,
        start: &start,
        is_fake: fake.is_fake,
        left_wrong: false,
        place: WalkTarget {
            space: &space,
            memory: &memory,
        },
    };

    run(&subject, &walked, &mut Cache::new())
}

#[test]
fn fake_registers_start_wrong_if_they_are_of_the_frame_and_give_another_cfa() {
    let wrong = |fake: Fake| {
        with_walk(&fake, |subject, walked, cache| {
            starts_wrong(subject, &FramePointer, walked, 0, cache)
        })
    };
    assert!(wrong(FAKE));
    let cfa = STACK + 16;
    assert!(!wrong(Fake { cfa, ..FAKE }), "the true CFA");
    let pc = FUNCTION + 1;
    assert!(!wrong(Fake { pc, ..FAKE }), "of another frame");
    let is_fake = false;
    assert!(!wrong(Fake { is_fake, ..FAKE }), "the real ones");
    let first_frame = Some(STACK);
    assert!(
        !wrong(Fake {
            first_frame,
            ..FAKE
        }),
        "frames are skipped"
    );
}

#[test]
fn a_walk_that_could_not_begin_is_diagnosed_by_how_it_ended() {
    let code = |verdict| {
        with_walk(&FAKE, |subject, walked, cache| {
            let found = diagnose(subject, None, walked, verdict, 0, cache);
            found.map(|d| (d.code, d.frame))
        })
    };
    assert_eq!(code(Verdict::Unsupported), Some((Code::NoRow, 0)));
    assert_eq!(code(Verdict::Looped), Some((Code::NoRow, 0)));
    assert_eq!(code(Verdict::Unjudged), None);
    assert_eq!(code(Verdict::Ok), None);
}

/// What a table says about one of three frames.
#[derive(Clone, Copy)]
enum Row {
    Right,
    /// rbx is in the wrong slot.
    Wrong,
    /// The format cannot represent the row.
    Lost,
}

/// A row for each 16 bytes from [`FUNCTION`].
struct Rows([Row; 2]);

impl Finder for Rows {
    fn name(&self) -> &str {
        "rows"
    }
    fn carries(&self) -> RegMask {
        RegMask::CALLEE_SAVED
    }
    fn find(&self, mapping: &Mapping, svma: u64, cache: &mut Cache) -> Result<RowId, Reason> {
        let frame = ((svma - FUNCTION) / 16) as usize;

        // CFA - 8 is the slot of the return address, so rbx cannot be there.
        let slot = match self.0.get(frame) {
            Some(Row::Right) | None => -16,
            Some(Row::Wrong) => -8,
            Some(Row::Lost) => return Err(Reason::NotHeld { what: "a rule" }),
        };

        let rule = Rule::call(Value::reg(Reg::Rsp, 16));
        let row = NewRow {
            start: FUNCTION + 16 * frame as u64,
            offset: 0,
            rule: rule.with_saved(Reg::Rbx, Value::at_cfa(slot)),
        };

        let key = UnitKey {
            table: TableKind::EhFrame,
            image: mapping.image.as_ref().map(|i| i.id()),
            offset: frame as u64,
            block: 0,
        };

        let unit = match cache.unit(&key) {
            Some(unit) => unit?,
            None => cache.add_unit(key, row.start..row.start + 16, [row], None),
        };

        cache.find_row(unit, svma)
    }
}

/// The diagnosis of a correct three-frame walk that used these rows, starting at frame `from`: code,
/// frame and class.
fn of_right_walk(rows: [Row; 2], from: usize) -> Option<(Code, usize, Class)> {
    let space = space(&[0x90; 64]);

    // For each frame, the saved rbx and the return address above it, as the right rows say.
    let words = [0x77, FUNCTION + 20, 0x88, FUNCTION + 36];
    let words = words.map(u64::to_le_bytes).concat();

    let memory = Regions::new(vec![MemoryCopy {
        address: STACK,
        bytes: &words,
    }]);

    // Each frame has 16 bytes of code, with a row of its own, and 16 bytes of stack.
    let frame = |number: u64, kind, rbx| TrueFrame {
        pc: FUNCTION + 16 * number + 4,
        cfa: STACK + 16 * (number + 1),
        kind,
        saved: Some([rbx, 0, 0, 0, 0, 0]),
    };

    let truth = Truth::Complete(vec![
        frame(0, TrueKind::Top, 0x66),
        frame(1, TrueKind::Call, 0x77),
        frame(2, TrueKind::Call, 0x88),
    ]);

    // All callee-saved registers are known and right, so only a row can be wrong.
    let mut live = Regs::frame(FUNCTION + 4, STACK, 0);
    live.set(Reg::Rbx, 0x66);
    for reg in [Reg::R12, Reg::R13, Reg::R14, Reg::R15] {
        live.set(reg, 0);
    }

    let start = Start::from_regs(live);
    let subject = Subject {
        space: &space,
        memory: &memory,
        truth: &truth,
        live: &live,
        is_whole: false,
    };
    let walked = Walked {
        chain: &Chain::default(),
        ended: Code::RootReached,
        start: &start,
        is_fake: false,
        left_wrong: false,
        place: WalkTarget {
            space: &space,
            memory: &memory,
        },
    };

    let (rows, mut cache) = (Rows(rows), Cache::new());
    let found = diagnose(
        &subject,
        Some(&rows),
        &walked,
        Verdict::Ok,
        from,
        &mut cache,
    )?;

    let class = found.contradiction.as_ref()?.class();
    Some((found.code, found.frame, class))
}

#[test]
fn a_right_walk_over_a_wrong_row_is_told() {
    use Row::{Lost, Right, Wrong};
    let wrong = |frame| Some((Code::WrongRegister, frame, Class::Wrong));
    assert_eq!(of_right_walk([Right, Right], 0), None);
    assert_eq!(of_right_walk([Wrong, Right], 0), wrong(0));
    assert_eq!(of_right_walk([Right, Wrong], 0), wrong(1));
    assert_eq!(of_right_walk([Wrong, Wrong], 0), wrong(0));
    assert_eq!(of_right_walk([Wrong, Right], 1), None);
    assert_eq!(of_right_walk([Wrong, Wrong], 1), wrong(1));
    // A loss does not hide a wrong row on either side of it.
    assert_eq!(of_right_walk([Lost, Wrong], 0), wrong(1));
    assert_eq!(of_right_walk([Wrong, Lost], 0), wrong(0));
    let lost = |rows| of_right_walk(rows, 0).map(|(_, frame, class)| (frame, class));
    assert_eq!(lost([Lost, Right]), Some((0, Class::Loss)));
    assert_eq!(lost([Right, Lost]), Some((1, Class::Loss)));
    assert_eq!(lost([Lost, Lost]), Some((0, Class::Loss)));
}
