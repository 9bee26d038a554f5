//! The chains of the kernel's unwinders: the address of each frame, how it was found, events on the
//! way, and the registers with which the walk leaves the kernel.

use super::fp::{SP, TASK_REGS, frames};
use super::support::{MODULE, Small, TASK, TEXT, call, kernel_regs, of_kind};
use crate::address::CodeAddress::{Instruction, Return};
use crate::cache::Cache;
use crate::chain::{Chain, How};
use crate::event::Event;
use crate::image::AddressSpace;
use crate::kernel::{
    FindCache, FpState, Kernel, KernelUnwinder, OrcState, RegsPtr, StackInfo, StackType, State,
    Unwind, UnwinderKind, UserRegs,
};
use crate::lbr::Branches;
use crate::orc::EntryType;
use crate::reason::Reason;
use crate::regs::{Reg, Regs};
use crate::row::TableKind;
use crate::rule::Rule;
use crate::start::Start;
use crate::unwinder::{Stack, Unwinder};
use crate::walk::Limits;
use alloc::vec::Vec;

fn chain(small: &Small, kind: UnwinderKind, start: &Start) -> Chain {
    let space: AddressSpace = small.space();
    let encoding = Some(small.version.encoding());
    let stack = Stack {
        start,
        space: &space,
        memory: &small.words,
        limits: Limits::default(),
        task: Some(&small.task),
        branches: Branches::default(),
    };
    KernelUnwinder::new(kind, Some(small.version), encoding).walk(&stack, &mut Cache::new())
}

fn from(regs: [u64; 3]) -> Start {
    Start::from_regs(kernel_regs(regs))
}

/// The frames without how they were found.
fn places(chain: &Chain) -> Vec<(crate::address::CodeAddress, u64, Option<u64>)> {
    chain.frames.iter().map(|f| (f.pc, f.sp, f.slot)).collect()
}

fn skipped(chain: &Chain) -> Vec<(u64, u64, u64)> {
    let skipped = chain.events.iter().filter_map(|event| match event {
        Event::Skipped {
            pc,
            sp,
            first_frame,
        } => Some((pc.value(), *sp, *first_frame)),
        _ => None,
    });
    skipped.collect()
}

/// The rule of a frame, its table, start and end, and what it replaces.
fn row(how: How<'_>) -> (Rule, TableKind, u64, u64, Option<Reason>) {
    match how {
        How::Rule { row, .. } => {
            let source = row.source();
            let range = (source.start, source.end);
            (*row.rule(), source.table, range.0, range.1, source.fallback)
        }
        other => panic!("{other:?}"),
    }
}

/// A function called by a function called by the last one.
fn nested() -> Small {
    let entries = [
        (0, call(24)),
        (0x100, call(8)),
        (0x200, of_kind(EntryType::EndOfStack, 0)),
    ];
    let mut small = Small::new("6.12", &entries);
    small.put(SP, &[0, 0, TEXT + 0x110, TEXT + 0x210]);
    small
}

#[test]
fn orc_from_its_own_registers_says_what_it_skips() {
    let mut start = from([TEXT + 4, SP, 0]);
    start.first_frame = Some(SP + 24);
    start.sampled_ip = Some(TEXT + 0x99);
    let chain = chain(&nested(), UnwinderKind::Orc, &start);
    let expected = [
        (Return(TEXT + 0x99), 0, None),
        (Return(TEXT + 0x210), SP + 32, Some(SP + 24)),
    ];
    assert_eq!(places(&chain), expected);
    assert_eq!(chain.step(0).how, How::SampledIp);
    let mark = SP + 24;
    let passed = [(TEXT + 4, SP, mark), (TEXT + 0x110, mark, mark)];
    assert_eq!(skipped(&chain), passed);
}

/// Where the kernel has no entry, it continues with rbp and no longer trusts the walk.
#[test]
fn a_frame_found_by_rbp_without_an_entry_says_so() {
    let page = MODULE + 0x40_0000;
    let mut small = nested();
    small.generated = Vec::from([(page..page + 0x1000, "bpf_prog")]);
    small.put(SP, &[0, 0, page + 0x20]);
    let bp = SP + 0x100;
    small.put(bp, &[0, TEXT + 0x110, TEXT + 0x210]);
    let chain = chain(&small, UnwinderKind::Orc, &from([TEXT + 4, SP, bp]));
    let expected = [
        (Instruction(TEXT + 4), SP, None),
        (Return(page + 0x20), SP + 24, Some(SP + 16)),
        (Return(TEXT + 0x110), bp + 16, Some(bp + 8)),
        (Return(TEXT + 0x210), bp + 24, Some(bp + 16)),
    ];
    assert_eq!(places(&chain), expected);
    let missing = Reason::NoRow { pc: page + 0x1f };
    let causes: Vec<_> = chain.steps().skip(1).map(|s| row(s.how).4).collect();
    assert_eq!(causes, [None, Some(missing), None]);
    assert_eq!(row(chain.step(2).how).1, TableKind::FramePointer);
    assert_eq!(
        (chain.end, chain.refused),
        (Reason::RootReached.into(), true)
    );
}

/// An interrupted function has not set up its frame. rbp is its caller's, and lies below rsp if it
/// was popped already.
#[test]
fn frames_below_the_interrupted_sp_are_passed_by_frame_pointers() {
    let chain = chain(&frames(), UnwinderKind::Fp, &from([TEXT, SP + 8, SP]));
    let pcs: Vec<_> = chain.frames.iter().map(|f| f.pc.value()).collect();
    assert_eq!(pcs, [TEXT, TEXT + 0x20, TEXT + 0x30]);
    assert_eq!(skipped(&chain), [(TEXT + 0x10, SP + 16, SP + 8)]);
}

#[test]
fn an_interrupted_frame_has_an_exact_address_and_its_registers() {
    let mut small = frames();
    let regs = SP + 0x100;
    small.put(SP, &[regs | 1, TEXT + 0x10]);
    let saved = [
        (Reg::Rip, TEXT + 0x50),
        (Reg::Cs, 0x10),
        (Reg::Rbp, TASK_REGS - 16),
    ];
    small.put_regs(regs, &saved);
    let chain = chain(&small, UnwinderKind::Fp, &from([TEXT, SP - 8, SP]));
    let slot = Some(regs + crate::pt_regs::offset_of(Reg::Rip));
    assert_eq!(places(&chain)[2], (Instruction(TEXT + 0x50), 0, slot));
    assert_eq!(chain.step(2).how, How::External);
}

#[test]
fn the_kernel_is_left_by_registers_of_user_space_or_of_no_kernel_code() {
    let stack = StackInfo {
        kind: StackType::Task,
        begin: TASK.start,
        end: TASK.end,
        next_sp: 0,
    };

    let found = |cs, regs, ip| {
        let mut small = nested();
        let saved = [(Reg::Rip, 0x1234), (Reg::Rsp, 0x5678), (Reg::Cs, cs)];
        small.put_regs(SP, &saved);

        let (code, start, mut finds) = (small.code(), Regs::UNKNOWN, FindCache::default());
        let orc = State::Orc(OrcState {
            stack,
            regs,
            ip,
            ..OrcState::default()
        });
        let fp = State::Fp(FpState {
            stack,
            regs,
            ip,
            ..FpState::default()
        });

        // Both unwinders that follow registers must agree.
        let [orc, fp] = [orc, fp].map(|state| {
            let unwind = Unwind {
                kernel: Kernel {
                    code: &code,
                    task: &small.task,
                    memory: &small.words,
                },
                start: &start,
                state,
                finds: &mut finds,
                found: None,
                ended: None,
            };
            unwind.user_regs()
        });

        assert_eq!(orc, fp);
        orc
    };

    // `__KERNEL_CS` and `__USER_CS`.
    let (at, kernel, user) = (RegsPtr::At(SP), 0x10, 0x33);
    let regs = UserRegs {
        at: SP,
        ip: 0x1234,
        sp: 0x5678,
    };

    // Left is the kernel by the code segment, or by an ip that is not kernel text.
    assert_eq!(found(user, at, TEXT), Some(regs));
    assert_eq!(found(user, at, 0x1234), Some(regs));
    assert_eq!(found(kernel, at, 0x1234), Some(regs));
    assert_eq!(found(kernel, at, TEXT), None);

    // Registers without an address are those of the start.
    assert_eq!(found(user, RegsPtr::None, 0x1234), None);
    assert_eq!(found(user, RegsPtr::Start, 0x1234), None);
}
