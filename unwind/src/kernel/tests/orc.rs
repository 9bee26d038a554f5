//! The ORC unwinder.

use super::support::{IRQ, MODULE, NMI, Small, TASK, TEXT, call, kernel_regs, of_kind};
use crate::kernel::{GraphReturn, RegsPtr, Rethook, StackType, State, UnwinderKind};
use crate::orc::{Entry, EntryType, OrcReg};
use crate::reason::{Code, Reason};
use crate::regs::{Reg, Regs};
use crate::start::Start;
use alloc::string::ToString;
use alloc::vec::Vec;

const SP: u64 = TASK.start + 0x3000;
/// The address of a user task's first registers.
const USER_REGS: u64 = TASK.end - 168;

/// A leaf, a function with a frame of 16 bytes, and code with the registers of a system call.
fn system_call(version: &str) -> Small {
    let mut small = Small::new(
        version,
        &[
            (0, call(8)),
            (0x100, call(16)),
            (0x200, of_kind(EntryType::Regs, 0)),
            (0x300, Entry::UNDEFINED),
        ],
    );
    small.put(USER_REGS - 24, &[TEXT + 0x110, 0x1111, TEXT + 0x210]);
    let user = [
        (Reg::Rip, 0x40_1000),
        (Reg::Cs, 0x33),
        (Reg::Rsp, 0x7ffe_0000),
    ];
    small.put_regs(USER_REGS, &user);
    small
}

fn orc(state: &State) -> &crate::kernel::OrcState {
    match state {
        State::Orc(state) => state,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_walk_ends_at_the_registers_of_user_space() {
    for version in ["4.14", "5.2", "6.1", "6.12", "7.1"] {
        let small = system_call(version);
        let (ips, state, reason) =
            small.walk_from(UnwinderKind::Orc, [TEXT + 4, USER_REGS - 24, 7]);
        assert_eq!(ips, [TEXT + 4, TEXT + 0x110, TEXT + 0x210], "{version}");
        assert_eq!(reason, Reason::RootReached);
        let state = orc(&state);
        assert_eq!((state.ip, state.sp), (0x40_1000, 0x7ffe_0000));
        assert_eq!(state.regs, RegsPtr::At(USER_REGS));
        assert!(state.signal && state.full_regs && !state.error);
    }
}

#[test]
fn fake_registers_skip_frames_up_to_the_mark() {
    let small = system_call("6.12");
    // The mark is the frame address of the function at 0x100: its CFA - 16.
    let own = Regs::frame(TEXT + 5, USER_REGS - 24, 0);
    let mut start = Start::from_regs(own);
    start.first_frame = Some(USER_REGS - 16);
    let (ips, ..) = small.chain(UnwinderKind::Orc, &start);
    assert_eq!(ips, [TEXT + 0x210]);
    // A frame whose sp equals the mark is skipped; the next one is not.
    start.first_frame = Some(USER_REGS - 17);
    assert_eq!(
        small.chain(UnwinderKind::Orc, &start).0,
        [TEXT + 0x110, TEXT + 0x210]
    );
    start.sampled_ip = Some(TEXT + 0x110);
    let always_ip = small.chain(UnwinderKind::Orc, &start).0;
    assert_eq!(always_ip, [TEXT + 0x110, TEXT + 0x110, TEXT + 0x210]);
}

#[test]
fn some_versions_keep_the_frame_at_the_mark() {
    // Stable releases went back to dropping the frame; a distribution's number says nothing of
    // them.
    for (version, kept) in [
        ("5.6", false),
        ("5.7", true),
        ("5.10", true),
        ("5.10.152", true),
        ("5.10.153", false),
        ("5.10.0-34-amd64", false),
        ("5.14.21", true),
        ("5.15.77", false),
        ("6.0.6", true),
        ("6.0.7", false),
        ("6.1", false),
        ("6.12", false),
    ] {
        let small = system_call(version);
        let own = Regs::frame(TEXT + 5, USER_REGS - 24, 0);
        let mut start = Start::from_regs(own);
        // The sp of the frame at 0x110.
        start.first_frame = Some(USER_REGS - 16);

        let (ips, ..) = small.chain(UnwinderKind::Orc, &start);
        let whole = [TEXT + 0x110, TEXT + 0x210];
        assert_eq!(ips, whole[usize::from(!kept)..], "{version}");
    }
}

#[test]
fn code_without_an_entry_is_assumed_to_have_a_frame_pointer() {
    let far = 0xffff_ffff_c123_4000;
    for (version, chain, error) in [
        ("5.1", &[far][..], true),
        ("5.2", &[far, TEXT + 0x210], true),
        ("4.14", &[far], false),
    ] {
        let mut small = system_call(version);
        let bp = USER_REGS - 16;
        small.put(bp, &[0, TEXT + 0x210]);
        let (ips, state, _) = small.walk_from(UnwinderKind::Orc, [far, bp - 64, bp]);
        assert_eq!(ips, chain, "{version}");
        assert_eq!(state.is_error(), error, "{version}");
    }
}

#[test]
fn ends_have_reasons() {
    let undefined = system_call("6.12");
    let (_, state, reason) = undefined.walk_from(UnwinderKind::Orc, [TEXT + 0x300, SP, 0]);
    assert_eq!(reason.code(), Code::UndefinedByTable);
    assert!(state.is_error());
    let nowhere = undefined.walk_from(UnwinderKind::Orc, [TEXT, 0x1234_5678, 0]);
    assert_eq!(nowhere.2.code(), Code::NotOnStack);

    let entries = |entry: Entry| Small::new("6.12", &[(0, entry)]);
    let end = |small: &Small| {
        let (_, state, reason) = small.walk_from(UnwinderKind::Orc, [TEXT, SP, SP + 64]);
        (reason.code(), state.is_error())
    };
    assert_eq!(
        end(&entries(of_kind(EntryType::EndOfStack, 0))),
        (Code::RootReached, false)
    );

    // The return address is beyond the stack.
    assert_eq!(end(&entries(call(0x2000))), (Code::NotOnStack, true));
    assert_eq!(
        end(&entries(of_kind(EntryType::Regs, 0x2000))),
        (Code::CannotAccessRegs, true)
    );

    let r13 = Entry {
        sp_reg: OrcReg::R13,
        ..call(0)
    };
    // Registers of the start are known; after a call they are not.
    assert_ne!(end(&entries(r13)).0, Code::RegisterNotCarried);
    let mut behind = Small::new("6.12", &[(0, call(8)), (0x100, r13)]);
    behind.put(SP, &[TEXT + 0x110]);
    assert_eq!(end(&behind), (Code::RegisterNotCarried, true));

    let bad = Entry {
        sp_reg: OrcReg::PrevSp,
        ..call(0)
    };
    assert_eq!(end(&entries(bad)), (Code::MalformedRow, true));

    // The CFA is below this frame's sp.
    let mut stays = entries(call(-8));
    stays.put(SP - 16, &[TEXT + 0x10]);
    assert_eq!(end(&stays), (Code::SpDidNotAdvance, true));

    // Missing words are not the kernel's error, but the walk cannot continue.
    assert_eq!(end(&entries(call(8))).0, Code::Unmapped);

    // The kernel does not walk a task that runs on another CPU.
    let mut other = system_call("6.12");
    (other.task.is_current, other.task.on_other_cpu) = (false, true);
    let (_, state, reason) = other.walk_from(UnwinderKind::Orc, [TEXT, SP, 0]);
    assert_eq!((reason.code(), state.is_error()), (Code::OnOtherCpu, true));
}

/// An interrupt on its own stack, in a task that was in the kernel.
fn interrupted(version: &str) -> Small {
    let indirect = |offset| Entry {
        sp_reg: OrcReg::SpIndirect,
        ..call(offset)
    };

    let mut small = Small::new(
        version,
        &[
            (0, call(8)),
            // The handler runs on the interrupt stack, whose top word links back.
            (0x100, indirect(8)),
            (0x200, of_kind(EntryType::Regs, 0)),
            (0x300, call(8)),
            (0x400, of_kind(EntryType::EndOfStack, 0)),
        ],
    );

    // The handler's return address, the link to the task's stack, and the return address there.
    let link = IRQ.end - 8;
    small.put(link - 8, &[TEXT + 0x110, SP]);
    small.put(SP, &[TEXT + 0x210]);

    // The registers that the interrupt saved, and the frame of the code that it interrupted.
    let kernel = [
        (Reg::Rip, TEXT + 0x300),
        (Reg::Cs, 0x10),
        (Reg::Rsp, SP + 0x200),
    ];
    small.put_regs(SP + 8, &kernel);
    small.put(SP + 0x200, &[TEXT + 0x401]);

    small
}

#[test]
fn stacks_are_left_for_the_one_that_was_interrupted() {
    let small = interrupted("6.1");
    let (ips, state, reason) = small.walk_from(UnwinderKind::Orc, [TEXT, IRQ.end - 16, 0]);
    let chain = [TEXT, TEXT + 0x110, TEXT + 0x210, TEXT + 0x300, TEXT + 0x401];
    assert_eq!(ips, chain);
    assert_eq!(reason, Reason::RootReached);
    // TASK and IRQ were visited.
    assert_eq!(orc(&state).stack_mask, 1 << 1 | 1 << 2);
    // The interrupted instruction is looked up at its exact address, not one byte before.
    let mut exact = interrupted("6.1");
    exact.entries.insert(3, (0x2ff, Entry::UNDEFINED));
    assert_eq!(
        exact
            .walk_from(UnwinderKind::Orc, [TEXT, IRQ.end - 16, 0])
            .0,
        chain
    );
}

#[test]
fn sp_indirect_changed_its_meaning() {
    let mut small = interrupted("5.11");
    // Before 5.12, the offset was added first.
    assert_ne!(
        small
            .walk_from(UnwinderKind::Orc, [TEXT, IRQ.end - 16, 0])
            .0
            .len(),
        5
    );
    small.put(IRQ.end - 16, &[TEXT + 0x110, 0xdead]);
    small.task.stacks[2].end += 8;
    small.put(IRQ.end, &[SP + 8]);
    assert_eq!(
        small
            .walk_from(UnwinderKind::Orc, [TEXT, IRQ.end - 16, 0])
            .0
            .len(),
        5
    );
}

#[test]
fn a_stack_is_not_visited_twice() {
    let mut small = interrupted("6.1");
    // The link leads from the task's stack to the NMI's, and back from there.
    small.entries = Vec::from([(
        0,
        Entry {
            sp_reg: OrcReg::SpIndirect,
            ..call(8)
        },
    )]);
    small.put(SP, &[NMI.start + 0x100]);
    small.put(NMI.start + 0x100, &[TEXT + 1, SP]);
    let (_, state, reason) = small.walk_from(UnwinderKind::Orc, [TEXT, SP, 0]);
    assert_eq!(reason.code(), Code::StackRecursion, "{reason}");
    assert!(state.is_error());
    assert_eq!(
        reason.to_string(),
        "WARNING: stack recursion on stack type 1"
    );
}

#[test]
fn only_the_hardwares_part_keeps_the_registers_before() {
    // An NMI in entry code: its registers are complete, those of the entry are not saved yet.
    let r10 = Entry {
        sp_reg: OrcReg::R10,
        ..call(0)
    };
    let partial = of_kind(EntryType::RegsPartial, 0);
    let entries = [
        (0, of_kind(EntryType::Regs, 0)),
        (0x100, partial),
        (0x200, r10),
    ];

    let outcome = |version: &str| {
        let mut small = Small::new(version, &entries);
        // The iret frame of the entry has five words, `struct pt_regs` has 21.
        let sp = TASK.end - 40;
        let nmi = [
            (Reg::Rip, TEXT + 0x100),
            (Reg::Cs, 0x10),
            (Reg::Rsp, sp),
            (Reg::R10, SP + 0x108),
        ];
        small.put_regs(NMI.end - 168, &nmi);
        // ip, cs, flags, sp, ss
        small.put(sp, &[TEXT + 0x200, 0x10, 2, SP, 0x18]);
        small.put(SP + 0x100, &[0]);
        small.walk_from(UnwinderKind::Orc, [TEXT, NMI.end - 168, 0])
    };

    let (ips, state, reason) = outcome("6.1");
    assert_eq!(ips, [TEXT, TEXT + 0x100, TEXT + 0x200]);
    assert_eq!(reason, Reason::NotText { address: 0 });
    assert_eq!(orc(&state).sp, SP + 0x108);

    assert_eq!(outcome("5.6").2.code(), Code::RegisterNotCarried);
}

#[test]
fn a_guard_page_below_the_stack_is_forgiven_under_error() {
    let mut small = Small::new(
        "6.1",
        &[
            (0, call(0x1008)),
            (0x100, of_kind(EntryType::EndOfStack, 0)),
        ],
    );
    small.put(TASK.start, &[TEXT + 0x110]);
    let (ips, state, _) = small.walk_from(UnwinderKind::Orc, [TEXT, TASK.start - 0x1000, 0]);
    // The following page is not on the stack yet.
    assert_eq!((ips.len(), state.is_error()), (1, true));
    let (ips, state, _) = small.walk_from(UnwinderKind::Orc, [TEXT, TASK.start - 0xff8, 0]);
    assert_eq!((ips, state.is_error()), ([TEXT].to_vec(), true));
    small.entries[0].1 = call(0x18);
    small.put(TASK.start, &[0, TEXT + 0x110]);
    let (ips, state, _) = small.walk_from(UnwinderKind::Orc, [TEXT, TASK.start - 8, 0]);
    assert_eq!(
        (ips, state.is_error()),
        ([TEXT, TEXT + 0x110].to_vec(), true)
    );
}

#[test]
fn an_inactive_task_starts_where_it_was_switched_out() {
    let walk = |version: &str| {
        let mut small = Small::new(
            version,
            &[
                (0, call(8)),
                (0x100, call(16)),
                (0x200, of_kind(EntryType::EndOfStack, 0)),
            ],
        );

        (small.task.is_current, small.task.thread_sp) = (false, SP);
        // r15 r14 r13 r12 bx bp ret_addr, then the next frame.
        small.put(SP, &[15, 14, 13, 12, 3, 5, TEXT + 0x10]);
        small.put(SP + 56, &[TEXT + 0x110, 0, TEXT + 0x210]);
        small
            .chain(UnwinderKind::Orc, &Start::from_regs(Regs::frame(0, 0, 0)))
            .0
    };

    let chain = [TEXT + 0x10, TEXT + 0x110, TEXT + 0x210];
    assert_eq!(walk("6.1"), chain);
    // sp was that of the struct: the first frame was skipped, and the row was applied to the
    // struct.
    assert_ne!(walk("5.2"), chain);

    let mut new = Small::new("6.12", &[(0xd00, of_kind(EntryType::EndOfStack, 0))]);
    (new.task.is_current, new.task.thread_sp) = (false, SP);
    new.put(SP, &[0, 0, 0, 0, 0, 0, TEXT + 0xd00]);
    let start = Start::from_regs(Regs::frame(0, 0, 0));
    let (ips, state, reason) = new.chain(UnwinderKind::Orc, &start);
    assert_eq!(
        (ips, reason),
        ([TEXT + 0xd00].to_vec(), Reason::RootReached)
    );
    assert!(orc(&state).signal, "the code of a new task starts there");
}

#[test]
fn taken_return_addresses_are_found() {
    let handler = TEXT + 0xe00;
    let walk = |version: &str, graph: &[GraphReturn]| {
        let mut small = Small::new(
            version,
            &[(0, call(8)), (0x100, of_kind(EntryType::EndOfStack, 0))],
        );
        small.task.graph = graph.to_vec();
        // The function graph tracer has taken the return address.
        small.put(SP, &[handler]);
        small.walk_from(UnwinderKind::Orc, [TEXT, SP, 0]).0
    };

    let taken = |ret, retp| GraphReturn { ret, retp };
    let real = TEXT + 0x110;
    for version in ["6.1", "6.12"] {
        assert_eq!(walk(version, &[taken(real, SP)]), [TEXT, real], "{version}");
        assert_eq!(
            walk(version, &[taken(real, SP + 8)])[1],
            handler,
            "{version}"
        );
    }

    // A tail call was traced, too: the newest entry that is not a trampoline counts.
    let tail = [taken(real, SP), taken(handler, SP)];
    assert_eq!(walk("6.12", &tail), [TEXT, real]);

    let trampoline = TEXT + 0xe40;
    let rethook = |rethooks: &[Rethook]| {
        let mut small = Small::new(
            "6.1",
            &[
                (0, call(8)),
                (0x100, call(8)),
                (0x200, of_kind(EntryType::EndOfStack, 0)),
            ],
        );
        small.task.rethooks = rethooks.to_vec();
        // Rethooks (kretprobes) have taken two.
        small.put(SP, &[trampoline, trampoline]);
        small.walk_from(UnwinderKind::Orc, [TEXT, SP, 0]).0
    };

    let hook = |ret_addr, frame| Rethook { ret_addr, frame };
    let both = [hook(TEXT + 0x110, SP), hook(TEXT + 0x210, SP + 8)];
    assert_eq!(rethook(&both), [TEXT, TEXT + 0x110, TEXT + 0x210]);
    // The list is searched only forwards, and without an entry the address is lost.
    assert_eq!(rethook(&[both[1], both[0]]), [TEXT, TEXT + 0x110]);
    assert_eq!(rethook(&[]), [TEXT]);
}

#[test]
fn generated_code_has_the_entries_of_its_original() {
    let page = 0xffff_ffff_c050_0000;
    let walk = |version: &str, name: &'static str| {
        let mut small = Small::new(
            version,
            &[
                (0, call(8)),
                (0x100, of_kind(EntryType::EndOfStack, 0)),
                (0xc00, call(8)),
                (0xc10, call(24)),
                (0xc80, call(8)),
                (0xc90, call(40)),
            ],
        );
        small.generated.push((page..page + 0x1000, name));
        small.put(SP, &[page + 0x18, 0, 0, TEXT + 0x110, 0, TEXT + 0x111]);
        small.walk_from(UnwinderKind::Orc, [TEXT, SP, SP + 32])
    };

    let last = |version, name| *walk(version, name).0.last().unwrap_or(&0);
    assert_eq!(last("6.1", "ftrace_trampoline"), TEXT + 0x110);
    assert_eq!(last("6.1", "ftrace_trampoline:regs"), TEXT + 0x111);

    // Before, the whole trampoline was looked up at the start of the original.
    assert_eq!(walk("5.2", "ftrace_trampoline").0, [TEXT, page + 0x18]);

    // A BPF program is walked with its frame pointer, reliably only where that is known.
    let reliable = |version, name| !walk(version, name).1.is_error();
    assert_eq!(last("6.12", "bpf_prog"), TEXT + 0x111);
    assert!(!reliable("6.12", "bpf_prog:4-20"));
    assert!(reliable("7.1", "bpf_prog:4-20"));
    assert!(
        !reliable("7.1", "bpf_prog:4-10"),
        "the address is outside of that part"
    );
}

#[test]
fn modules_have_their_own_tables() {
    let mut small = Small::new(
        "6.12",
        &[(0, call(8)), (0x100, of_kind(EntryType::EndOfStack, 0))],
    );
    // Unsorted, as in the file, and with a terminator at the same address as an entry.
    small.module = Vec::from([
        (0x80, call(8)),
        (0x40, call(24)),
        (0x40, Entry::UNDEFINED),
        (0, call(8)),
    ]);
    small.put(SP, &[MODULE + 0x51, 0, 0, TEXT + 0x110]);
    let (ips, _, reason) = small.walk_from(UnwinderKind::Orc, [TEXT, SP, 0]);
    assert_eq!(ips, [TEXT, MODULE + 0x51, TEXT + 0x110]);
    assert_eq!(reason, Reason::RootReached);
}

#[test]
fn registers_of_user_space_start_nothing() {
    let small = system_call("6.12");
    let mut regs = kernel_regs([0x40_0000, 0x7ffe_0000, 0]);
    regs.set(Reg::Cs, 0x33);
    let (ips, state, _) = small.chain(UnwinderKind::Orc, &Start::from_regs(regs));
    assert_eq!(ips, [0x40_0000], "perf stores the ip before");
    assert!(!state.is_error() && state.stack().0.kind == StackType::Unknown);
}
