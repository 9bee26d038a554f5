//! A kernel unwinder behind the common interface: the chain made from its states.

use super::support::{Small, TASK, TEXT, call, of_kind};
use crate::address::CodeAddress;
use crate::cache::Cache;
use crate::chain::{Chain, How};
use crate::event::Event;
use crate::kernel::{KernelUnwinder, UnwinderKind, Version};
use crate::orc::EntryType;
use crate::reason::Reason;
use crate::regs::{Reg, Regs};
use crate::row::TableKind;
use crate::start::Start;
use crate::unwinder::{Stack, Unwinder};
use crate::walk::Limits;
use alloc::vec::Vec;

const SP: u64 = TASK.start + 0x3000;
const TASK_REGS: u64 = TASK.end - 168;

/// Two functions with frames of 16 bytes, before a system call's registers.
fn small() -> Small {
    let entries = [
        (0, call(16)),
        (0x100, of_kind(EntryType::Regs, 0)),
        (0x200, call(16)),
    ];
    let mut small = Small::new("6.12", &entries);
    small.put(
        TASK_REGS - 32,
        &[TASK_REGS - 16, TEXT + 0x10, 0, TEXT + 0x110],
    );
    small.put_regs(TASK_REGS, &[(Reg::Rip, 0x40_1000), (Reg::Cs, 0x33)]);
    for address in (SP..TASK.end).step_by(8) {
        small.words.0.entry(address).or_insert(0);
    }
    small
}

fn walk(kind: UnwinderKind, start: &Start, cache: &mut Cache) -> Chain {
    let small = small();
    let (space, version) = (small.space(), Some(small.version));
    let stack = Stack {
        start,
        space: &space,
        memory: &small.words,
        limits: Limits::default(),
        task: Some(&small.task),
        branches: Default::default(),
    };
    let encoding = Some(small.version.encoding());
    KernelUnwinder::new(kind, version, encoding).walk(&stack, cache)
}

/// Address, sp and slot of each frame.
fn frames(chain: &Chain) -> Vec<(CodeAddress, u64, Option<u64>)> {
    let frames = chain.frames.iter();
    frames.map(|f| (f.pc, f.sp, f.slot)).collect()
}

const AT: u64 = TASK_REGS - 32;

/// Registers in the first function, whose frame starts at [`AT`].
fn start() -> Start {
    let mut regs = Regs::frame(TEXT + 4, AT, AT);
    regs.set(Reg::Cs, 0x10);
    Start::from_regs(regs)
}

#[test]
fn frames_say_what_they_were_read_from() {
    let (ret, exact) = (CodeAddress::Return, CodeAddress::Instruction);
    let first = (exact(TEXT + 4), AT, None);

    // The three unwinders find the same frames here, each in its own way.
    let orc = walk(UnwinderKind::Orc, &start(), &mut Cache::new());
    let expected = [
        first,
        (ret(TEXT + 0x10), AT + 16, Some(AT + 8)),
        (ret(TEXT + 0x110), AT + 32, Some(AT + 24)),
    ];
    assert_eq!(frames(&orc), expected);

    let fp = walk(UnwinderKind::Fp, &start(), &mut Cache::new());
    assert_eq!(frames(&fp), expected);

    let guess = walk(UnwinderKind::Guess, &start(), &mut Cache::new());
    assert_eq!(frames(&guess), expected);

    let found = |chain: &Chain| match chain.step(1).how {
        How::Rule { row, .. } => Some((row.source().table, row.source().fallback)),
        How::Guess => None,
        other => panic!("{other:?}"),
    };
    assert_eq!(found(&orc), Some((TableKind::Orc, None)));
    assert_eq!(found(&fp), Some((TableKind::FramePointer, None)));
    assert_eq!(found(&guess), None);

    // The guess cannot mark a root.
    let ends = [&orc, &fp, &guess].map(|c| (c.end.reason, c.end.marks_roots));
    let root = (Reason::RootReached, true);
    assert_eq!(ends, [root, root, (Reason::NotAtRoot, false)]);

    // Only a walk that follows registers comes to those of user space.
    let user = |c: &Chain| c.user_regs.map(|regs| (regs.at, regs.ip));
    let regs = Some((TASK_REGS, 0x40_1000));
    assert_eq!([&orc, &fp, &guess].map(user), [regs, regs, None]);
}

#[test]
fn only_frames_passed_on_the_way_to_a_mark_are_skipped() {
    let skipped = |kind, start: &Start| {
        let chain = walk(kind, start, &mut Cache::new());
        let events = chain.events.iter();
        let passed = |e: &&Event| matches!(e, Event::Skipped { .. });
        (events.filter(passed).count(), chain.frames.len())
    };
    let mut marked = start();
    marked.first_frame = Some(AT + 16);
    for kind in [UnwinderKind::Orc, UnwinderKind::Fp] {
        assert_eq!(skipped(kind, &start()), (0, 3), "{kind:?}");
        let (passed, left) = skipped(kind, &marked);
        assert!(passed > 0 && left < 3, "{kind:?}: {passed} {left}");
    }
}

#[test]
fn results_for_a_space_are_kept_with_it() {
    let mut cache = Cache::new();
    let first = walk(UnwinderKind::Orc, &start(), &mut cache);
    // Another space with the same addresses: nothing of the first one is reused.
    let again = walk(UnwinderKind::Orc, &start(), &mut cache);
    assert_eq!(frames(&first), frames(&again));
    let space = small().space();
    let made = |cache: &mut Cache, new: u32| *cache.of_space(&space, || new);
    assert_eq!((made(&mut cache, 1), made(&mut cache, 2)), (1, 1));
    let other = small().space();
    assert_eq!(*cache.of_space(&other, || 3u32), 3);
    assert_eq!(made(&mut cache, 4), 4);
}

#[test]
fn an_unwinder_is_named_after_its_kernel() {
    let name = |kind, version: Option<&str>| {
        let version = version.map(|v| Version::from_name(v).expect("a version"));
        let unwinder = KernelUnwinder::new(kind, version, None);
        assert_eq!((unwinder.kind(), unwinder.version()), (kind, version));
        alloc::string::String::from(unwinder.name())
    };
    assert_eq!(name(UnwinderKind::Orc, None), "orc:kernel");
    assert_eq!(name(UnwinderKind::Fp, Some("6.12")), "fp:kernel-6.12");
    assert_eq!(name(UnwinderKind::Guess, Some("5.10")), "guess:kernel-5.10");
}
