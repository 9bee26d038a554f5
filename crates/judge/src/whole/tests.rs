//! What the code says of chains, on functions of a few bytes.

mod other_stacks;

use super::*;
use std::sync::Arc;
use unwind_sim_recordings::model::{Region, RegionRole, Sample};
use unwind_sim_unwind::image::{
    AddressSpace, Bytes, Image, ImageParts, Mapping, Section, SectionKind, Symbol,
};
use unwind_sim_unwind::memory::MemoryError;
use unwind_sim_unwind::regs::Regs;
use unwind_sim_unwind::start::SampleRegs;

const BASE: u64 = 0x1000;

/// Functions, each 32 bytes long: their names and code. Calls and jumps name their targets by number.
struct Program(Vec<(&'static str, Vec<u8>)>);

impl Program {
    fn parts(&self, entry: Option<u64>) -> ImageParts {
        let code: Vec<u8> = self
            .0
            .iter()
            .flat_map(|(_, code)| {
                let mut code = code.clone();
                assert!(code.len() <= 32);
                // Filled up with `nop`: each function starts 32 bytes behind the one before.
                code.resize(32, 0x90);
                code
            })
            .collect();

        let symbols = (0..).zip(&self.0).map(|(index, (name, _))| Symbol {
            address: BASE + 32 * index,
            size: 32,
            name: (*name).to_owned(),
        });

        let text = Section {
            kind: SectionKind::Text,
            address: BASE,
            data: Bytes::from_vec(code),
        };
        let entry = entry.map(|address| Section {
            kind: SectionKind::Entry,
            address,
            data: Bytes::from_vec(Vec::new()),
        });

        let end = BASE + 32 * self.0.len() as u64;
        ImageParts {
            text: std::iter::once(BASE..end).collect(),
            sections: std::iter::once(text).chain(entry).collect(),
            symbols: symbols.filter(|s| !s.name.is_empty()).collect(),
            ..ImageParts::default()
        }
    }

    fn image(&self, entry: Option<u64>) -> Image {
        Image::new(self.parts(entry))
    }
}

/// The address of byte `skip` of function `index`.
fn at(index: u64, skip: u64) -> u64 {
    BASE + 32 * index + skip
}

/// `call` from byte `skip` of function `from` to function `to`, behind `before`.
fn calls(before: &[u8], from: u64, to: u64) -> Vec<u8> {
    relative(0xe8, before, from, to)
}

fn relative(opcode: u8, before: &[u8], from: u64, to: u64) -> Vec<u8> {
    let next = at(from, before.len() as u64 + 5);
    let offset = at(to, 0).wrapping_sub(next) as u32;
    let mut code = before.to_vec();
    code.push(opcode);
    code.extend(offset.to_le_bytes());
    code.push(0xc3);
    code
}

const SET_UP: [u8; 4] = [0x55, 0x48, 0x89, 0xe5];
/// The return address behind a call at the start of a function.
const BEHIND: u64 = 5;
const END: End = End {
    reason: Reason::RootReached,
    fallback: None,
    marks_roots: true,
};

fn judged(image: Option<Image>, frames: &[(u64, By)], end: &End) -> Whole {
    let sample = Sample::of_regs(SampleRegs::hardware(Regs::UNKNOWN));
    judged_on(&sample, image, &[], frames, end)
}

/// Judges frames whose sp is [`STACK`], in a program with files or memory of these names, whose code is
/// not there, from [`ELSEWHERE`] upwards.
fn judged_on(
    sample: &Sample<'_>,
    image: Option<Image>,
    others: &[&str],
    frames: &[(u64, By)],
    end: &End,
) -> Whole {
    let mut space = AddressSpace::new();
    space.map(Mapping {
        range: BASE..BASE + 0x1000,
        bias: 0,
        image: image.map(Arc::new),
        name: "/bin/a".into(),
    });

    for (start, name) in (ELSEWHERE..).step_by(0x1000).zip(others) {
        space.map(Mapping {
            range: start..start + 0x1000,
            bias: 0,
            image: None,
            name: (*name).to_owned(),
        });
    }

    let view = View {
        number: 0,
        sample,
        space: &space,
        pristine: None,
        stitched: &[],
        world: None,
    };

    let seen = |(index, &(pc, by)): (usize, &(u64, By))| Seen {
        pc: match index {
            0 => CodeAddress::Instruction(pc),
            _ => CodeAddress::Return(pc),
        },
        sp: STACK,
        by,
    };

    let frames: Vec<Seen> = frames.iter().enumerate().map(seen).collect();
    judge(&view, &frames, end, &mut Cache::new()).expect("frames")
}

/// What a file shows that may be another one than ran is no ground to call a chain whole.
#[test]
fn chains_of_other_files_are_unknown() {
    let whole = [
        (at(0, 0), By::Row),
        (at(1, BEHIND), By::Row),
        (at(2, BEHIND), By::Row),
    ];
    let wrong = [(at(0, 0), By::Row), (at(1, 0), By::Row)];

    let with = |frames: &[(u64, By)], doubt: Option<image::Doubt>| {
        let image = program().image(Some(at(2, 0)));
        let image = match doubt {
            Some(doubt) => image.with_doubt(doubt),
            None => image,
        };
        judged(Some(image), frames, &END)
    };

    // The first frame in that file is the one in doubt.
    let other = Whole::Unknown(Doubt {
        frame: 0,
        pc: CodeAddress::Instruction(at(0, 0)),
        why: Why::OtherFile,
    });
    let [likely, certain] = [image::Doubt::Likely, image::Doubt::Certain].map(Some);

    assert!(with(&whole, None).is_yes());
    assert_eq!(with(&whole, likely), other);
    assert_eq!(with(&whole, certain), other);

    // That a chain is broken holds if the file only may be another one, but not if it is.
    let broken = with(&wrong, None);
    assert!(matches!(broken, Whole::No(_)), "{broken:?}");
    assert_eq!(with(&wrong, likely), broken);
    assert_eq!(with(&wrong, certain), other);
}

const ELSEWHERE: u64 = 0x10_0000;
const STACK: u64 = 0x7000;

/// A sample whose stack has these words from [`STACK`] upwards, and ends `beyond` bytes above them.
fn with_stack(words: &[u64], beyond: u64) -> Sample<'static> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let end = STACK + bytes.len() as u64;
    Sample {
        regions: vec![Region {
            role: RegionRole::Stack,
            bounds: STACK - 0x1000..end + beyond,
            next_sp: 0,
            address: STACK,
            bytes: bytes.into(),
        }],
        ..Sample::of_regs(SampleRegs::hardware(Regs::UNKNOWN))
    }
}

/// A return address of 0 is the end of a stack where its memory ends, and no return address lies between.
#[test]
fn a_coroutine_ends_where_its_memory_does() {
    let image = || Some(program().image(None));
    let frames = [(at(0, 0), By::Row), (at(1, BEHIND), By::Row)];

    let on = |words: &[u64], beyond, reason: Reason| {
        let sample = with_stack(words, beyond);
        judged_on(&sample, image(), &[], &frames, &End::from(reason))
    };

    let zero = Reason::NotAtRoot;
    assert_eq!(on(&[0, 7, 0], 0, zero), Whole::Yes(Root::Coroutine));
    let is_unknown = |whole| matches!(whole, Whole::Unknown(doubt) if doubt.why == Why::StackEnd);
    assert!(is_unknown(on(&[0, 7, at(2, BEHIND)], 0, zero)), "a caller");
    // A return address may be in the part of the stack that was not copied.
    assert!(is_unknown(on(&[0, 7, 0], 4096, zero)), "no more was copied");

    let not_text = Reason::NotText { address: 7 };
    assert_eq!(what(on(&[7, 0], 0, not_text)), Some((1, Fault::Unmarked)));

    // Ruby's fibers have their own stack of values above, up to which nothing is a return address.
    let values = [vec![0], vec![7; 20_000], vec![0]].concat();
    assert_eq!(on(&values, 0, zero), Whole::Yes(Root::Coroutine));
    assert!(is_unknown(on(&[0; 40_000], 0, zero)), "too far");

    // Text that ran over the stack.
    let text = Reason::NotText {
        address: 0x4141_4141_4141_4141,
    };
    assert_eq!(what(on(&[7, 0], 0, text)), Some((1, Fault::Ended(text))));

    let beyond = |address| {
        Reason::Memory(MemoryError::BeyondCopy {
            address,
            end: STACK + 16,
        })
    };

    assert_eq!(
        what(on(&[7, 0], 0, beyond(STACK + 16))),
        Some((1, Fault::Unmarked))
    );
    let far = beyond(STACK + 0x4000);
    assert_eq!(what(on(&[7, 0], 0, far)), Some((1, Fault::Ended(far))));
}

#[test]
fn generated_code_keeps_a_frame_pointer_only_by_its_runtimes_convention() {
    let frames = [(ELSEWHERE, By::Row), (at(2, BEHIND), By::FramePointer)];
    let of = |runtime| {
        let sample = Sample::of_regs(SampleRegs::hardware(Regs::UNKNOWN));
        let image = Some(program().image(None));
        judged_on(&sample, image, &["//anon", runtime], &frames, &END)
    };
    assert_eq!(of("/usr/bin/node"), Whole::Yes(Root::Entry));
    for runtime in [
        "/usr/lib/jvm/lib/server/libjvm.so",
        "/usr/bin/luajit",
        "/bin/b",
    ] {
        let Whole::Unknown(doubt) = of(runtime) else {
            panic!("{runtime}: known");
        };
        assert_eq!((doubt.frame, doubt.why), (0, Why::NoCode), "{runtime}");
    }
}

/// Its rows leave out the frame of the prologue that called it.
#[test]
fn morestack_is_called_by_a_function_that_its_caller_calls() {
    let chain = |name| {
        let program = Program(vec![
            (name, vec![0x90, 0xc3]),
            ("split", calls(&[], 1, 0)),
            ("_start", calls(&[], 2, 1)),
        ]);
        let frames = [(at(0, 0), By::Row), (at(2, BEHIND), By::Row)];
        judged(Some(program.image(None)), &frames, &END)
    };
    assert_eq!(chain("__morestack"), Whole::Yes(Root::Entry));
    assert_eq!(what(chain("leaf")), Some((0, Fault::OtherFunction)));
}

/// `_start` calls middle, which calls leaf; other calls nobody of them.
fn program() -> Program {
    Program(vec![
        ("leaf", vec![0x90, 0xc3]),
        ("middle", calls(&[], 1, 0)),
        ("_start", calls(&[], 2, 1)),
        ("other", calls(&[], 3, 2)),
        ("jumps", relative(0xe9, &[], 4, 0)),
        ("calls jumps", calls(&[], 5, 4)),
        ("with frame pointer", calls(&SET_UP, 6, 0)),
    ])
}

fn what(whole: Whole) -> Option<(usize, Fault)> {
    match whole {
        Whole::No(found) => Some((found.frame, found.what)),
        _ => None,
    }
}

#[test]
fn each_frame_called_the_next_and_the_last_is_an_entry() {
    let right = [
        (at(0, 0), By::Row),
        (at(1, BEHIND), By::Row),
        (at(2, BEHIND), By::Row),
    ];

    let image = || Some(program().image(None));
    assert_eq!(judged(image(), &right, &END), Whole::Yes(Root::Entry));

    // Whatever the unwinder says.
    let no_row = End::from(Reason::NoRow { pc: 0 });
    assert_eq!(judged(image(), &right, &no_row), Whole::Yes(Root::Entry));

    // middle is missing: _start calls it, and it does not jump to leaf.
    let skipped = [right[0], right[2]];
    assert_eq!(
        what(judged(image(), &skipped, &END)),
        Some((0, Fault::OtherFunction))
    );

    // The end is missing.
    let cut = [right[0], right[1]];
    assert_eq!(
        what(judged(image(), &cut, &END)),
        Some((1, Fault::FramePointersEnd))
    );
    assert_eq!(
        what(judged(image(), &cut, &no_row)),
        Some((1, Fault::Ended(no_row.reason)))
    );

    // Something follows.
    let mut more = right.to_vec();
    more.push((at(3, BEHIND), By::Row));
    let found = what(judged(image(), &more, &END));
    assert_eq!(found, Some((2, Fault::BeyondRoot(Root::Entry))));
}

#[test]
fn a_call_may_lead_to_a_function_through_jumps() {
    let image = || Some(program().image(None));
    let by_jump = [(at(0, 0), By::Row), (at(5, BEHIND), By::Row)];
    let found = what(judged(image(), &by_jump, &END));
    assert_eq!(
        found,
        Some((1, Fault::FramePointersEnd)),
        "the link is right"
    );
    let not = [(at(0, 0), By::Row), (at(3, BEHIND), By::Row)];
    assert_eq!(
        what(judged(image(), &not, &END)),
        Some((0, Fault::OtherFunction))
    );
}

#[test]
fn return_addresses_are_behind_calls() {
    let image = Some(program().image(None));
    let frames = [
        (at(0, 0), By::Row),
        (at(1, 3), By::Row),
        (at(2, BEHIND), By::Row),
    ];
    assert_eq!(
        what(judged(image, &frames, &END)),
        Some((1, Fault::NotBehindCall))
    );
}

#[test]
fn a_step_by_rbp_needs_code_that_sets_it_up() {
    let image = || Some(program().image(None));
    let step = |pc| [(pc, By::Row), (at(2, BEHIND), By::FramePointer)];
    let found = what(judged(image(), &step(at(1, 0)), &END));
    assert_eq!(found, Some((0, Fault::NoFramePointer)));
    // With it, the call is what is wrong: _start calls middle.
    let with = what(judged(image(), &step(at(6, 4)), &END));
    assert_eq!(with, Some((0, Fault::OtherFunction)));
    let not_yet = what(judged(image(), &step(at(6, 1)), &END));
    assert_eq!(not_yet, Some((0, Fault::NoFramePointer)));
}

/// Behind `pop %rbp` a function returns, or jumps to another one.
#[test]
fn a_frame_pointer_ends_before_the_return_and_before_a_jump_out() {
    // push %rbp; mov %rsp, %rbp; pop %rbp, and this end.
    let body = |end: &[u8]| [&SET_UP[..], &[0x5d], end].concat();
    // jmp -7: to the start of the function.
    let jump_back = [0xeb, 0xf9];

    let step_to = |function, called| {
        let program = Program(vec![
            ("returns", body(&[0xc3])),
            ("jumps out", relative(0xe9, &body(&[]), 1, 0)),
            ("jumps back", body(&jump_back)),
            ("jumps somewhere", body(&[0xff, 0xe0])),
            ("_start", calls(&[], 4, called)),
        ]);
        let frames = [
            (at(function, 5), By::Row),
            (at(4, BEHIND), By::FramePointer),
        ];
        judged(Some(program.image(None)), &frames, &END)
    };

    let step = |function| step_to(function, 0);
    assert_eq!(what(step(0)), Some((0, Fault::NoFramePointer)));
    assert_eq!(what(step(1)), Some((0, Fault::NoFramePointer)));
    assert_eq!(what(step(2)), Some((0, Fault::OtherFunction)));

    let Whole::Unknown(doubt) = step_to(3, 3) else {
        panic!("known");
    };
    assert_eq!((doubt.frame, doubt.why), (0, Why::FramePointer));

    // What follows cannot be: the step was wrong.
    assert_eq!(what(step(3)), Some((0, Fault::NoFramePointer)));

    // Frame pointers end further out, in a function that has a caller, whatever that step was.
    let program = Program(vec![
        ("jumps somewhere", body(&[0xff, 0xe0])),
        ("outer", calls(&[], 1, 0)),
    ]);
    let frames = [(at(0, 5), By::Row), (at(1, BEHIND), By::FramePointer)];
    let found = what(judged(Some(program.image(None)), &frames, &END));
    assert_eq!(found, Some((1, Fault::FramePointersEnd)));
}

#[test]
fn without_code_nothing_is_known() {
    let frames = [(at(0, 0), By::Row), (at(2, BEHIND), By::Row)];
    let Whole::Unknown(doubt) = judged(None, &frames, &END) else {
        panic!("known");
    };
    assert_eq!((doubt.frame, doubt.why), (1, Why::NoCode));
    let guessed = [(at(0, 0), By::Row), (at(1, BEHIND), By::Guess)];
    let Whole::Unknown(doubt) = judged(Some(program().image(None)), &guessed, &END) else {
        panic!("known");
    };
    assert_eq!((doubt.frame, doubt.why), (1, Why::Guess));
}

#[test]
fn an_entry_without_a_name_is_one_as_a_whole() {
    let mut program = program();
    program.0[2].0 = "";
    program.0[2].1.extend([0xf4]);
    let frames = [
        (at(0, 0), By::Row),
        (at(1, BEHIND), By::Row),
        (at(2, BEHIND), By::Row),
    ];
    let with = judged(Some(program.image(Some(at(2, 0)))), &frames, &END);
    assert_eq!(with, Whole::Yes(Root::Entry));
    // Without a name, nothing says whether it has a frame pointer.
    let found = what(judged(Some(program.image(None)), &frames, &END));
    assert_eq!(found, Some((2, Fault::FramePointersEnd)));
}

/// What the entry calls is start code, as `__libc_start_main` is: only the entry itself is missing.
#[test]
fn what_the_entry_calls_is_known() {
    let called = |entry: Option<u64>, pc: CodeAddress| {
        let mut space = AddressSpace::new();
        space.map(Mapping {
            range: BASE..BASE + 0x1000,
            bias: 0,
            image: Some(Arc::new(program().image(entry))),
            name: "/bin/a".into(),
        });
        let sample = Sample::of_regs(SampleRegs::hardware(Regs::UNKNOWN));
        let view = View {
            number: 0,
            sample: &sample,
            space: &space,
            pristine: None,
            stitched: &[],
            world: None,
        };
        is_called_by_entry(&view, pc, &mut Cache::new())
    };

    let middle = CodeAddress::Return(at(1, BEHIND));
    assert!(called(Some(at(2, 0)), middle));
    assert!(!called(None, middle));
    assert!(!called(Some(at(3, 0)), middle), "another function calls it");

    let entry = CodeAddress::Return(at(2, BEHIND));
    assert!(!called(Some(at(2, 0)), entry), "itself");
}

/// `syscall; call *%rax; mov %eax, %edi; mov $60, %eax; syscall`, as in every clone.
#[test]
fn a_thread_starts_behind_its_system_call() {
    let clone = vec![
        0x0f, 0x05, 0xff, 0xd0, 0x89, 0xc7, 0xb8, 60, 0, 0, 0, 0x0f, 0x05,
    ];
    let returns = vec![0x0f, 0x05, 0xff, 0xd0, 0xc3];
    let judged_with = |code: &[u8]| {
        let program = Program(vec![("leaf", vec![0x90, 0xc3]), ("starts", code.to_vec())]);
        judged(
            Some(program.image(None)),
            &[(at(0, 0), By::Row), (at(1, 4), By::Row)],
            &END,
        )
    };
    assert_eq!(judged_with(&clone), Whole::Yes(Root::Thread));
    // `call *%rax; hlt` ends a program as well, but no thread was made before.
    // nop; nop; call *%rax; hlt: as long as with the system call.
    let ends = [0x90, 0x90, 0xff, 0xd0, 0xf4];
    assert_eq!(what(judged_with(&ends)), Some((1, Fault::FramePointersEnd)));
    assert_eq!(
        what(judged_with(&returns)),
        Some((1, Fault::FramePointersEnd))
    );
}

#[test]
fn what_only_roots_call_is_named() {
    for name in [
        "_start",
        "clone3",
        "__libc_start_call_main",
        "__libc_start_main@@GLIBC_2.34",
        "start_thread",
    ] {
        assert!(root::is_near_root(name), "{name}");
    }
    assert!(!root::is_near_root("main") && !root::is_near_root("clone_tree"));
}

#[test]
fn names_are_roots() {
    for (name, root) in [
        ("_start", Some(Root::Entry)),
        ("clone3", Some(Root::Thread)),
        ("runtime.goexit.abi0", Some(Root::Runtime)),
        ("runtime.goexit", Some(Root::Runtime)),
        ("runtime.mcall.abi0", Some(Root::Switch)),
        ("runtime.mstart.abi0", Some(Root::RuntimeThread)),
        ("runtime.systemstack.abi0", None),
        ("__start_context", Some(Root::Coroutine)),
        ("main", None),
        ("my_start", None),
        ("cloned", None),
    ] {
        assert_eq!(root::by_name(name), root, "{name}");
    }
}

/// A recording may say that a stack of fewer than eight bytes lies at address 0.
#[test]
fn a_stack_smaller_than_a_word_has_an_end() {
    let sample = Sample {
        regions: vec![Region {
            role: RegionRole::Stack,
            bounds: 0..4,
            next_sp: 0,
            address: 0,
            bytes: vec![0; 4].into(),
        }],
        ..Sample::of_regs(SampleRegs::hardware(Regs::UNKNOWN))
    };
    let space = AddressSpace::new();
    let view = View {
        number: 0,
        sample: &sample,
        space: &space,
        pristine: None,
        stitched: &[],
        world: None,
    };

    assert!(top::is_beyond(&view, 2, 4));
    assert!(!top::is_beyond(&view, 2, 4 + 64));
    assert!(!top::is_beyond(&view, 5, 4));
}
