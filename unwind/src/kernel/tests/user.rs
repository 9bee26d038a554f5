//! The user part, and assembled callchains.

use crate::kernel::{
    CallchainEntry, CallchainOptions, Context, Hijack, Uretprobes, UserEnd, UserFound, UserOutcome,
    UserSpace, UserWalk, get_perf_callchain, perf_callchain_user, unwind_user,
};
use crate::memory::{MemoryCopy, MemoryError};
use crate::reason::Code;
use crate::regs::{Reg, Regs};
use alloc::vec::Vec;

const AT: u64 = 0x7ffe_0000;
const PUSH_RBP: Option<[u8; 4]> = Some([0x55, 0, 0, 0]);
const ENDBR64: Option<[u8; 4]> = Some([0xf3, 0x0f, 0x1e, 0xfa]);

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

fn regs(cs: u64) -> Regs {
    let mut regs = Regs::frame(0x40_0000, AT, AT);
    regs.set(Reg::Cs, cs);
    regs
}

/// The addresses that `perf_callchain_user` returns, at most `max`, and why it ended.
fn perf(
    regs: &Regs,
    uprobe: Option<[u8; 4]>,
    memory: &MemoryCopy<'_>,
    max: usize,
) -> (Vec<u64>, UserEnd) {
    let chain = perf_callchain_user(regs, uprobe, memory, max);
    (chain.frames.iter().map(|f| f.ip).collect(), chain.end)
}

fn user(
    regs: &Regs,
    uprobe: Option<[u8; 4]>,
    memory: &MemoryCopy<'_>,
    max: usize,
) -> (Vec<u64>, UserEnd) {
    let chain = unwind_user(regs, uprobe, memory, max);
    (chain.frames.iter().map(|f| f.ip).collect(), chain.end)
}

#[test]
fn the_users_part_follows_frame_pointers_whatever_their_order() {
    // The second frame's caller is below it, at AT + 8, where its words mean something else.
    let bytes = bytes(&[AT + 32, 0x40_1111, AT + 64, 0, AT + 8, 0x40_2222]);
    let memory = MemoryCopy::new(AT, &bytes);
    let (ips, end) = perf(&regs(0x33), None, &memory, 9);
    assert_eq!(ips, [0x40_0000, 0x40_1111, 0x40_2222, AT + 64]);
    assert!(
        matches!(end, UserEnd::Fault(e) if e.address() == 0x40_1111),
        "{end}"
    );
    // unwind_user does not go there.
    let (ips, end) = user(&regs(0x33), None, &memory, 9);
    assert_eq!(ips, [0x40_0000, 0x40_1111, 0x40_2222]);
    let expected = UserEnd::FpBelowSp {
        fp: AT + 8,
        sp: AT + 48,
    };
    assert_eq!(
        (end, end.reason().code()),
        (expected, Code::SpDidNotAdvance)
    );
}

#[test]
fn unwind_user_says_what_is_wrong_with_a_frame() {
    let words = bytes(&[AT + 20, 0x40_1111, 0, 0, 0]);
    let memory = MemoryCopy::new(AT, &words);
    let (ips, end) = user(&regs(0x33), None, &memory, 9);
    assert_eq!((ips.len(), end), (2, UserEnd::Misaligned { cfa: AT + 36 }));
    let mut at_top = regs(0x33);
    at_top.set(Reg::Rbp, u64::MAX - 15);
    let (_, end) = user(&at_top, None, &memory, 9);
    assert_eq!(end, UserEnd::CfaNotAboveSp { cfa: 0, sp: AT });
    at_top.set(Reg::Rbp, 0x0055_5541_4156_4150);
    let (_, end) = user(&at_top, None, &memory, 9);
    let address = 0x0055_5541_4156_4158;
    assert_eq!(end, UserEnd::NotUser { address });
    let (ips, end) = user(&regs(0x33), None, &memory, 1);
    assert_eq!((ips.len(), end), (1, UserEnd::MaxStack { max: 1 }));
}

#[test]
fn at_a_functions_entry_its_caller_is_on_top_of_the_stack() {
    let words = bytes(&[AT + 32, 0x40_1111, 0, 0, 0]);
    let memory = MemoryCopy::new(AT, &words);
    for insn in [PUSH_RBP, ENDBR64] {
        let chain = perf_callchain_user(&regs(0x33), insn, &memory, 3);
        let found: Vec<_> = chain.frames.iter().map(|f| (f.ip, f.found)).collect();
        let expected = [
            (0x40_0000, UserFound::Regs),
            (AT + 32, UserFound::Entry { slot: AT }),
            (0x40_1111, UserFound::FramePointer { fp: AT }),
        ];
        assert_eq!(found, expected);
        let (ips, _) = user(&regs(0x33), insn, &memory, 2);
        assert_eq!(ips, [0x40_0000, AT + 32]);
    }
    for insn in [None, Some([0x90; 4])] {
        let (ips, _) = perf(&regs(0x33), insn, &memory, 2);
        assert_eq!(ips, [0x40_0000, 0x40_1111]);
    }
}

#[test]
fn programs_of_32_bits_have_small_frames() {
    let words = [0x7ffe_0010_u32, 0x111, 0, 0, 0, 0x222];
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let memory = MemoryCopy::new(AT, &bytes);

    // `__USER32_CS`
    let mut compat = regs(0x23);
    // Bits above 32 are not part of a pointer (`compat_ptr`).
    compat.set(Reg::Rbp, 0xffff_ffff_0000_0000 | AT);

    let (ips, end) = perf(&compat, None, &memory, 9);
    assert_eq!(ips, [0x40_0000, 0x111, 0x222]);
    assert_eq!(
        end,
        UserEnd::Fault(MemoryError::BelowCopy {
            address: 0,
            start: AT
        })
    );

    // At a function's entry 32 bits are read; endbr64 does not mark the entry of a 32-bit program.
    let (ips, _) = perf(&compat, PUSH_RBP, &memory, 2);
    assert_eq!(ips, [0x40_0000, 0x7ffe_0010]);
    let (ips, _) = perf(&compat, ENDBR64, &memory, 2);
    assert_eq!(ips, [0x40_0000, 0x111]);

    compat.set(Reg::Rbp, AT);
    let (ips, end) = user(&compat, None, &memory, 9);
    assert_eq!(ips, [0x40_0000, 0x111, 0x222]);
    assert!(matches!(end, UserEnd::FpBelowSp { fp: 0, .. }), "{end}");

    // `X86_EFLAGS_VM`
    compat.set(Reg::Rflags, 1 << 17);
    assert_eq!(perf(&compat, None, &memory, 9), (Vec::new(), UserEnd::Vm86));
}

fn space(regs: Option<Regs>) -> UserSpace {
    UserSpace {
        regs,
        pid: 7,
        ..UserSpace::default()
    }
}

#[test]
fn markers_stand_before_the_parts_and_are_not_counted_as_addresses() {
    let words = bytes(&[0, 0x40_1111]);
    let memory = MemoryCopy::new(AT, &words);

    let (k, u) = (Context::Kernel.value(), Context::User.value());
    let later = Context::UserDeferred.value();
    let known = space(Some(regs(0x33)));

    let chain = |kernel: Option<&[u64]>, options| {
        let chain = get_perf_callchain(kernel, Some(&known), &memory, options);
        (chain.ips(), chain.user)
    };

    let all = CallchainOptions::default();
    let fault = UserOutcome::Walked(UserEnd::Fault(MemoryError::BelowCopy {
        address: 0,
        start: AT,
    }));

    let whole = [k, 1, 2, 3, u, 0x40_0000, 0x40_1111];
    assert_eq!(chain(Some(&[1, 2, 3]), all), (whole.to_vec(), fault));
    assert_eq!(chain(None, all), (whole[4..].to_vec(), fault));

    // The two limits: for addresses, and for markers.
    let of = |max_stack, max_contexts| CallchainOptions {
        max_stack,
        max_contexts,
        ..all
    };
    // Kernel and user addresses share one limit; markers have another.
    for (max, stored) in [(1, 2), (3, 4)] {
        let (ips, user) = chain(Some(&[1, 2, 3]), of(max, 8));
        let expected = [&whole[..stored], &[u]].concat();
        assert_eq!(ips, expected);
        assert_eq!(user, UserOutcome::Walked(UserEnd::MaxStack { max }));
    }
    let (ips, user) = chain(Some(&[1, 2, 3]), of(4, 8));
    assert_eq!(ips, whole[..6]);
    assert_eq!(user, UserOutcome::Walked(UserEnd::MaxStack { max: 4 }));

    // Without room for a marker, nothing of its part is stored.
    let no_room = UserOutcome::NoRoomForContext;
    assert_eq!(chain(Some(&[1]), of(9, 1)), (Vec::from([k, 1]), no_room));
    assert_eq!(chain(Some(&[1]), of(9, 0)), (Vec::new(), no_room));

    let deferred = CallchainOptions {
        user: UserWalk::UnwindUser,
        ..of(1, 8)
    };
    // The deferred part is not limited by max_stack.
    let (ips, _) = chain(Some(&[1, 2]), deferred);
    assert_eq!(ips, [k, 1, later, 0x40_0000, 0x40_1111]);
}

#[test]
fn a_request_leaves_out_parts_and_markers() {
    let words = bytes(&[0, 0x40_1111]);
    let memory = MemoryCopy::new(AT, &words);
    let known = space(Some(regs(0x33)));
    let chain = |options| get_perf_callchain(Some(&[1, 2]), Some(&known), &memory, options).ips();
    let (k, u) = (Context::Kernel.value(), Context::User.value());
    let all = CallchainOptions::default();
    let no_kernel = CallchainOptions {
        kernel: false,
        ..all
    };
    assert_eq!(chain(no_kernel), [u, 0x40_0000, 0x40_1111]);
    let none = UserWalk::None;
    let no_user = CallchainOptions { user: none, ..all };
    assert_eq!(chain(no_user), [k, 1, 2]);
    // A BPF helper's: without markers, for which there need not be room either.
    let bare = CallchainOptions {
        add_mark: false,
        max_contexts: 0,
        max_stack: 3,
        ..all
    };
    assert_eq!(chain(bare), [1, 2, 0x40_0000]);
}

#[test]
fn what_return_probes_took_is_put_back_in_the_order_of_their_list() {
    const T: u64 = 0x7fff_ffff_e000;

    // Frame pointers and return addresses; T is the trampoline of the return probes.
    let frames = [(AT + 16, T), (AT + 32, 0x40_2222), (AT + 48, T), (0, T)];
    let words: Vec<u64> = frames.iter().flat_map(|(fp, ip)| [*fp, *ip]).collect();
    let bytes = bytes(&words);
    let memory = MemoryCopy::new(AT, &bytes);

    let with = |uretprobes: Option<(u64, &[u64])>, options: CallchainOptions| {
        let mut known = space(Some(regs(0x33)));
        known.uretprobes = uretprobes.map(|(trampoline, originals)| Uretprobes {
            trampoline,
            originals: originals.to_vec(),
        });

        let chain = get_perf_callchain(None, Some(&known), &memory, options);
        let user = chain.entries.iter().filter_map(|entry| match entry {
            CallchainEntry::User(frame) => Some((frame.ip, frame.hijack)),
            _ => None,
        });
        user.skip(1).collect::<Vec<_>>()
    };

    let all = CallchainOptions::default();
    let (no, back, lost) = (Hijack::None, Hijack::PutBack, Hijack::Unknown);

    let three: &[u64] = &[0x40_1111, 0x40_3333, 0x40_4444];
    let expected = [
        (0x40_1111, back),
        (0x40_2222, no),
        (0x40_3333, back),
        (0x40_4444, back),
    ];
    assert_eq!(with(Some((T, three)), all), expected);

    // A shorter list leaves the outer trampolines.
    let expected = [(0x40_1111, back), (0x40_2222, no), (T, no), (T, no)];
    assert_eq!(with(Some((T, &three[..1])), all), expected);

    // So do one for another trampoline, and a kernel before 6.11.
    let kept = [(T, no), (0x40_2222, no), (T, no), (T, no)];
    assert_eq!(with(Some((T + 64, three)), all), kept);
    let old = CallchainOptions {
        puts_back: false,
        ..all
    };
    assert_eq!(with(Some((T, three)), old), kept);

    // Without the list it is known where something is missing, at the highest page of either kind
    // of page tables.
    let expected = [(T, lost), (0x40_2222, no), (T, lost), (T, lost)];
    assert_eq!(with(None, all), expected);
}

#[test]
fn there_is_not_always_a_user_part() {
    let memory = MemoryCopy::new(AT, &[]);
    let kernel: Option<&[u64]> = Some(&[1]);
    let k = Context::Kernel.value();
    let known = space(Some(regs(0x33)));
    let all = CallchainOptions::default();
    let none = CallchainOptions {
        user: UserWalk::None,
        ..all
    };
    let other = CallchainOptions {
        crosstask: true,
        ..all
    };
    for (space, options, expected) in [
        (Some(&known), none, UserOutcome::NotAsked),
        (Some(&known), other, UserOutcome::CrossTask),
        (Some(&space(None)), all, UserOutcome::NoUserSpace),
        (None, all, UserOutcome::NotRecorded),
    ] {
        let chain = get_perf_callchain(kernel, space, &memory, options);
        assert_eq!((chain.ips(), chain.user), (Vec::from([k, 1]), expected));
    }
}

#[test]
fn user_space_ends_one_page_below_the_canonical_half() {
    let end: u64 = (1 << 47) - 4096;
    let fault = |at: u64| {
        let mut regs = regs(0x33);
        regs.set(Reg::Rbp, at);
        regs.set(Reg::Rsp, at);
        let bytes = bytes(&[0, 0x40_1111]);
        perf(&regs, None, &MemoryCopy::new(at, &bytes), 9)
    };
    // The frame's last word is the last one in user space; one word further, it is outside.
    let (ips, _) = fault(end - 16);
    assert_eq!(ips, [0x40_0000, 0x40_1111]);
    let (ips, why) = fault(end - 8);
    assert_eq!((ips.len(), why), (1, UserEnd::NotUser { address: end }));
}
