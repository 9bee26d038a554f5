//! The same kernel walks its stack for `/proc/PID/stack` and for live patching, and prints that of another task.

use super::*;
use unwind_sim_recordings::console::{self, CONSOLE, ConsoleLine};
use unwind_sim_unwind::kernel::StackType;

/// Offsets of the code. The first is called after all that the other tests see.
pub(super) const MORE: u64 = 0x140;
const SAVE: u64 = 0x180;
const WALK: u64 = 0x1a0;
const RELIABLE: u64 = 0x1e0;
const TRACE: u64 = 0x220;
const PRINTK: u64 = 0x2a0;
const REGISTERS: u64 = 0x2b0;
const CONSUMER: u64 = 0x2c0;
/// Where a new task begins.
pub(super) const BEGIN: u64 = 0x2d0;
/// Offsets of data: what is stored, another task, and texts.
const STORE: u64 = 0x880;
const OTHER: u64 = 0x900;
const ADDRESS: u64 = 0x940;
const STACK_BEGIN: u64 = 0x960;
const EMPTY: u64 = 0x980;
const QUESTION: u64 = 0x990;
const NAME: u64 = 0x9a0;
const SAVED: u64 = 0xa00;
/// Where the other task left the processor.
const OTHER_SP: u64 = 0x4100;
/// The mark of a walk, the stored address, and the error of the reliable walk.
const MARK: u64 = 0x7ff0;
const STORED: u64 = 0xabd0;
const REFUSED: i32 = -22;

/// `mov $address, %edi`, and so on.
const RDI: u8 = 0xbf;
const RSI: u8 = 0xbe;
const RDX: u8 = 0xba;
const RCX: u8 = 0xb9;

pub(super) fn code(code: &mut Code) {
    // more: stack_trace_save_tsk(task, store); the reliable walk with a consumer; the trace; ret
    code.at(MORE).with(&[RDI], TASK).with(&[RSI], STORE);
    code.call(SAVE).with(&[RDI], CONSUMER).call(RELIABLE);
    code.call(TRACE).put(&[0xc3]);
    // stack_trace_save_tsk: mov $consumer, %edi; call; movl $stored, store; mov $1, %eax; ret
    code.at(SAVE).with(&[RDI], CONSUMER).call(WALK);
    code.with(&[0xc7, 0x04, 0x25], STORE);
    code.put(&(STORED as u32).to_le_bytes());
    code.put(&[0xb8, 1, 0, 0, 0, 0xc3]);
    // arch_stack_walk: __unwind_start(state, task, 0, mark); consumer(_, found); ret
    code.at(WALK).with(&[RDI], STATE).with(&[RSI], TASK);
    code.put(&[0x31, 0xd2])
        .with(&[RCX], MARK)
        .call(UNWIND_START);
    code.put(&[RSI]).put(&(FOUND as u32).to_le_bytes());
    code.call(CONSUMER).put(&[0xc3]);
    // arch_stack_walk_reliable: the same from registers; mov $error, %eax; ret
    code.at(RELIABLE).with(&[RDI], STATE).with(&[RSI], TASK);
    code.with(&[RDX], SAVED)
        .with(&[RCX], MARK)
        .call(UNWIND_START);
    code.put(&[0xb8]).put(&REFUSED.to_le_bytes()).put(&[0xc3]);
    // __show_trace_log_lvl: __unwind_start(state, other, 0, sp); printk: a stack begins; show_iret_regs(saved)
    // twice; printk: an address, and one with a question mark; ret
    code.at(TRACE).with(&[RDI], STATE).with(&[RSI], OTHER);
    code.put(&[0x31, 0xd2])
        .with(&[RCX], OTHER_SP)
        .call(UNWIND_START);
    code.with(&[RDI], STACK_BEGIN)
        .with(&[RDX], NAME)
        .call(PRINTK);
    code.with(&[RDI], SAVED).call(REGISTERS).call(REGISTERS);
    for (mark, address) in [(EMPTY, WORK), (QUESTION, WORK + 1)] {
        code.with(&[RDI], ADDRESS).with(&[RDX], mark);
        code.with(&[RCX], address).call(PRINTK);
    }
    code.put(&[0xc3]);
    for function in [PRINTK, REGISTERS, CONSUMER] {
        code.at(function).put(&[0xc3]);
    }
}

pub(super) fn data(code: &mut Code) {
    // Its stack is that of the only task; this is the end that is not used.
    code.words(OTHER, &[CODE + STACK.start, 9, 0, CODE + OTHER_SP]);
    code.words(OTHER_SP + 48, &[CODE + BEGIN]);
    let texts = [
        (ADDRESS, "%s %s%pBb\n"),
        (STACK_BEGIN, "%s <%s>\n"),
        (QUESTION, "? "),
        (NAME, "TASK"),
    ];
    for (at, text) in texts {
        code.0[at as usize..][..text.len()].copy_from_slice(text.as_bytes());
    }
    // rip, cs, flags and rsp of a `struct pt_regs`: those of hardware.
    code.words(SAVED + 128, &[CODE + WORK + 2, 0x10, 0x202, CODE + 0x7f00]);
}

const SYMBOLS: [(&str, char, u64); 8] = [
    ("stack_trace_save_tsk", 't', SAVE),
    ("arch_stack_walk", 't', WALK),
    ("arch_stack_walk_reliable", 't', RELIABLE),
    ("__show_trace_log_lvl", 't', TRACE),
    ("_printk", 't', PRINTK),
    ("show_iret_regs", 't', REGISTERS),
    ("consumer", 't', CONSUMER),
    ("ret_from_fork_asm", 't', BEGIN),
];

fn sources(sample: &Sample<'_>) -> Vec<(String, Vec<u64>)> {
    let chains = sample.recorded.iter();
    let chains = chains.map(|chain| (chain.source.clone(), chain.ips.clone()));
    chains.collect()
}

#[test]
fn walks_and_printed_stacks_are_recorded_with_their_task_and_the_truth() {
    let (summary, trace) = recorded(&image_with(&SYMBOLS, ""), None);
    let summary = summary.expect("it is recorded");
    assert_eq!((summary.samples, summary.walks, summary.traces), (5, 2, 1));
    assert_eq!((summary.unreadable, summary.left_early), (0, 0));
    // The made-up registers of walks are not those of perf.
    assert_eq!(summary.fake, 1);
    let all = samples(&trace);

    // From the unwinder itself, up to the mark.
    let saved = &all[2];
    assert_eq!(
        sources(saved),
        [
            ("kernel".into(), vec![FOUND]),
            ("arch_stack_walk".into(), vec![FOUND]),
            ("stack_trace_save_tsk".into(), vec![STORED]),
        ]
    );
    assert!(saved.regs.is_fake());
    assert_eq!(saved.regs.sampled.rsp(), CODE + MARK);
    let pcs = saved.truth.frames().iter().map(|frame| frame.pc - CODE);
    let expected = [UNWIND_START + 4, WALK + 22, SAVE + 10, MORE + 15, 0x17];
    assert_eq!(pcs.collect::<Vec<u64>>(), expected);

    // From registers, and refused.
    let refused = &all[3];
    let name = "arch_stack_walk_reliable:-22".to_owned();
    assert_eq!(
        sources(refused),
        [("kernel".into(), vec![]), (name, vec![])]
    );
    assert_eq!(refused.regs.sampled.rip(), CODE + WORK + 2);
    assert!(!refused.regs.is_fake());

    // Of a task that has not run yet: from where it left the processor.
    let printed = &all[4];
    let kernel = printed.kernel.as_ref().expect("a kernel's sample");
    assert!(!kernel.task.is_current);
    assert_eq!((printed.tid, kernel.task.thread_sp), (9, CODE + OTHER_SP));
    assert!(printed.truth.is_complete());
    assert_eq!(printed.truth.frames()[0].pc, CODE + BEGIN);
    let recorded = sources(printed);
    let lines = console::lines(&recorded[1].1);
    let address = |address, is_confirmed| ConsoleLine::Address {
        address,
        is_confirmed,
    };
    assert_eq!(recorded[1].0, CONSOLE);
    assert_eq!(
        lines,
        [
            ConsoleLine::StackBegin(StackType::Task),
            // Printed twice, by functions of which one calls the other.
            ConsoleLine::Registers {
                ip: CODE + WORK + 2
            },
            address(CODE + WORK, true),
            address(CODE + WORK + 1, false),
        ]
    );
    assert_eq!(recorded[0], ("kernel".into(), vec![CODE + WORK]));
}

#[test]
fn with_only_perf_no_other_walk_is_recorded() {
    let (summary, trace) = recorded_of(&image_with(&SYMBOLS, ""), None, true);
    let summary = summary.expect("it is recorded");
    assert_eq!((summary.samples, summary.walks, summary.traces), (2, 0, 0));
    assert_eq!(trace.len(), 2);
}
