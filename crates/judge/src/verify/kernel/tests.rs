//! A kernel of a few instructions, with an exception and two tasks.

use super::*;
use crate::engine::{Engine, Setting};
use crate::spec;
use std::ops::Range;
use std::sync::Arc;
use unwind_sim_emulator::Processor;
use unwind_sim_emulator::linux::Task;
use unwind_sim_emulator::system;
use unwind_sim_emulator::system::Stopped;
use unwind_sim_emulator::system::boot::BootOptions;
use unwind_sim_record::boot::BootEnd;
use unwind_sim_record::kernel_stacks::KernelShadow;
use unwind_sim_record::machine::{KERNEL_STACK, KernelCode};
use unwind_sim_recordings::kernel::{KernelSymbols, StackPlaces, TracerPlaces};
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Section, SectionKind, Symbol};
use unwind_sim_unwind::kernel::Version;
use unwind_sim_unwind::orc::{Encoding, Entry, EntryType, Layout, OrcReg};
use unwind_sim_unwind::reason::Code;
use unwind_sim_unwind::truth::Stats;

/// Where the kernel is, in physical memory and before it has page tables of its own.
const CODE: u64 = 16 << 20;
/// Offsets in it: the interrupt descriptor table, what `lidt` loads, and where rsp is kept of each task.
const IDT: u64 = 0x400;
const IDT_POINTER: u64 = 0x4f0;
const FIRST: u64 = 0x500;
const SECOND: u64 = 0x508;
/// The end of the second task's stack.
const STACK_END: u64 = 0x8000;
const SIZE: u64 = 0x8000;

/// The second task's code, and the other functions behind it.
const MAIN: u64 = 0x20;
const TASK: u64 = 0x40;
const SWITCH_TO: u64 = 0x60;
const HELPER: u64 = 0xa0;
const HANDLER: u64 = 0xb0;
/// What the kernel's unwinders look for: the base of the processor's data, the current task, and its
/// `struct task_struct`, which starts with its stack. A word of zeros is behind them.
const BASE: u64 = 0x520;
const CURRENT: u64 = 0x528;
const TASK_STRUCT: u64 = 0x530;
const ZERO: u64 = 0x538;
const MEMORY: usize = 64 << 20;
/// More than the kernel executes.
const INSTRUCTIONS_MAX: u64 = 1000;

/// Code, and the offsets of its labels.
struct Kernel {
    bytes: Vec<u8>,
    /// The instruction that loads rsp with the stack of the next task.
    switch: Range<u64>,
    /// Where the second task begins.
    begin: u64,
}

fn kernel() -> Kernel {
    let absolute = |offset: u64| ((CODE + offset) as u32).to_le_bytes();
    let mut bytes = Vec::new();
    // A call of what starts at an offset.
    let call = |bytes: &mut Vec<u8>, target: u64| {
        bytes.push(0xe8);
        let next = bytes.len() as i64 + 4;
        bytes.extend((target as i64 - next).to_le_bytes()[..4].to_vec());
    };
    // mov $prev, %edi; mov $next, %esi
    let tasks =
        |prev: u64, next: u64| [&[0xbf][..], &absolute(prev), &[0xbe], &absolute(next)].concat();

    // lidt; call main; cli; hlt
    bytes.extend([&[0x0f, 0x01, 0x1c, 0x25][..], &absolute(IDT_POINTER)].concat());
    call(&mut bytes, MAIN);
    bytes.extend([0xfa, 0xf4]);
    // main: int3; switch_to; ret
    bytes.resize(MAIN as usize, 0xcc);
    bytes.push(0xcc);
    bytes.extend(tasks(FIRST, SECOND));
    call(&mut bytes, SWITCH_TO);
    bytes.push(0xc3);
    // task: helper; switch_to; ud2
    bytes.resize(TASK as usize, 0xcc);
    call(&mut bytes, HELPER);
    bytes.extend(tasks(SECOND, FIRST));
    call(&mut bytes, SWITCH_TO);
    bytes.extend([0x0f, 0x0b]);
    // switch_to: push rbp, rbx, r12 to r15; mov %rsp, (%rdi)
    bytes.resize(SWITCH_TO as usize, 0xcc);
    bytes.extend([0x55, 0x53, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57]);
    bytes.extend([0x48, 0x89, 0x27]);
    // mov (%rsi), %rsp
    let switch = CODE + bytes.len() as u64;
    bytes.extend([0x48, 0x8b, 0x26]);
    // pop r15 to r12, rbx, rbp; helper; ret
    bytes.extend([0x41, 0x5f, 0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c, 0x5b, 0x5d]);
    call(&mut bytes, HELPER);
    bytes.push(0xc3);
    // helper: ret
    bytes.resize(HELPER as usize, 0xcc);
    bytes.push(0xc3);
    // handler: push %rax; pop %rax; iretq
    bytes.resize(HANDLER as usize, 0xcc);
    bytes.extend([0x50, 0x58, 0x48, 0xcf]);

    bytes.resize(SIZE as usize, 0);
    let mut put = |offset: u64, words: &[u64]| {
        let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes[offset as usize..][..words.len()].copy_from_slice(&words);
    };
    // Interrupt gates for an NMI and for `int3`: selector 0x10.
    let target = CODE + HANDLER;
    let gate = target & 0xffff | 0x10 << 16 | 0x8e << 40 | target >> 16 << 48;
    for vector in [2, 3] {
        put(IDT + 16 * vector, &[gate, target >> 32]);
    }
    put(IDT_POINTER, &[0xfff | (CODE + IDT) << 16, 0]);
    // What the second task pops, and where it returns to.
    put(STACK_END - 56, &[15, 14, 13, 12, 3, 5, CODE + TASK]);
    put(SECOND, &[CODE + STACK_END - 56]);
    Kernel {
        bytes,
        switch: switch..switch + 3,
        begin: CODE + TASK,
    }
}

/// An ELF file with one segment.
fn elf(code: &[u8]) -> Vec<u8> {
    const HEADERS: u64 = 64 + 56;
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend([2, 0, 0x3e, 0, 1, 0, 0, 0]);
    file.extend([CODE, 64, 0].iter().flat_map(|word| word.to_le_bytes()));
    file.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    file.extend([1, 0, 0, 0, 7, 0, 0, 0]);
    let size = code.len() as u64;
    let address = 0xffff_ffff_8000_0000 + CODE;
    let segment = [HEADERS, address, CODE, size, size, 0x1000];
    file.extend(segment.iter().flat_map(|word| word.to_le_bytes()));
    file.extend(code);
    file
}

/// What is known of its code.
fn code() -> KernelCode {
    KernelCode {
        ranges: vec![IDENTITY],
        trampolines: Vec::new(),
    }
}

/// A computer with the kernel in the ELF file `image`.
fn boot(image: &[u8]) -> Boot<'_> {
    Boot {
        options: BootOptions {
            image,
            setup_header: None,
            initrd: None,
            command_line: "",
            relocations: None,
            slide: 0,
            acpi: false,
        },
        memory: MEMORY,
        processor: Processor::default(),
        has_counters: false,
        seed: 0,
        clock: 0,
        console_input: &[],
    }
}

/// Runs the code, whose image is `kernel`, with these unwinders.
fn check(
    code: &[u8],
    kernel: &KernelImage,
    places: &KernelPlaces,
    engines: &[Engine],
    beside: Beside,
) -> KernelRun {
    let image = elf(code);
    let boot = boot(&image);
    let request = Request {
        engines,
        setting: Setting::default(),
        elide: true,
        each: false,
        tables_from: None,
        instructions_max: INSTRUCTIONS_MAX,
        timeout: None,
    };
    let run = run_kernel(&boot, (kernel, places), beside, &request, &mut || {});
    let run = run.expect("it can be loaded");
    assert_eq!(run.results.disagreements.len(), 0);
    run
}

fn run_checked(places: &KernelPlaces, code: &[u8]) -> (BootEnd, Stats, u64) {
    let kernel = KernelImage {
        range: 0xffff_ffff_8100_0000..0xffff_ffff_8100_1000,
        ..KernelImage::of_symbols(KernelSymbols::default(), None)
    };
    let engines = spec::engines(&["fp".to_owned()]).expect("it is known");
    let run = check(code, &kernel, places, &engines, Beside::default());
    (
        run.boot.end,
        run.results.truth,
        run.results.tallies[0].checked,
    )
}

#[test]
fn each_task_has_a_stack_of_its_own() {
    let kernel = kernel();
    let places = KernelPlaces {
        switch: kernel.switch.clone(),
        begin: kernel.begin,
        code: code(),
    };
    let (end, truth, checked) = run_checked(&places, &kernel.bytes);
    assert_eq!(end, BootEnd::Stopped(Stopped::Halted));
    // main, switch_to twice, and helper three times; of these, one of switch_to returns to where the
    // second task begins.
    assert_eq!((truth.calls, truth.returns), (6, 6));
    assert_eq!((truth.unknown, truth.failures(), truth.dropped), (0, 0, 0));
    assert_eq!((truth.redirected, truth.switches), (0, 0));
    // All instructions but those at which the root runs, which has no caller.
    assert!(checked > 40, "{checked}");
}

/// An observer that only keeps the shadow stacks has the same.
#[test]
fn the_stacks_can_be_followed_without_the_checker() {
    let kernel = kernel();
    let places = KernelPlaces {
        switch: kernel.switch.clone(),
        begin: kernel.begin,
        code: code(),
    };
    let image = elf(&kernel.bytes);
    let mut shadow = KernelShadow::new(places.clone());
    let bounds = Bounds {
        instructions_max: INSTRUCTIONS_MAX,
        timeout: None,
    };
    let run = boot::run_observed(&boot(&image), bounds, &mut |_| Ok(()), &mut shadow);
    let (end, truth, _) = run_checked(&places, &kernel.bytes);
    assert_eq!(run.expect("it can be loaded").end, end);
    assert_eq!(shadow.stats(), truth);
    assert_eq!(shadow.task(), Task::FIRST);
}

#[test]
fn a_switch_that_is_not_known_as_one_leaves_the_truth_in_doubt() {
    let kernel = kernel();
    let places = KernelPlaces {
        switch: 0..0,
        begin: 0,
        code: code(),
    };
    let (end, truth, _) = run_checked(&places, &kernel.bytes);
    assert_eq!(end, BootEnd::Stopped(Stopped::Halted));
    assert!(
        truth.failures() + truth.unknown + truth.switches > 0,
        "{truth:?}"
    );
}

/// The ORC table of the kernel. If `ends`, it says that `main` has no caller.
fn orc(ends: bool) -> Vec<Section> {
    let row = |kind, sp_offset| Entry {
        sp_reg: OrcReg::Sp,
        sp_offset,
        kind,
        signal: kind == EntryType::RegsPartial,
        ..Entry::UNDEFINED
    };
    let end = Entry {
        kind: EntryType::EndOfStack,
        ..Entry::UNDEFINED
    };
    let call = |offset| row(EntryType::Call, offset);
    let regs = |offset| row(EntryType::RegsPartial, offset);
    let main = if ends { end } else { call(8) };
    let mut rows = vec![(0, end), (MAIN, main), (TASK, end)];
    // Six pushes, and after the switch six pops.
    let pushes = [
        (0, 8),
        (1, 16),
        (2, 24),
        (4, 32),
        (6, 40),
        (8, 48),
        (10, 56),
    ];
    let pops = [(18, 48), (20, 40), (22, 32), (24, 24), (25, 16), (26, 8)];
    let switch = pushes.into_iter().chain(pops);
    rows.extend(switch.map(|(at, offset)| (SWITCH_TO + at, call(offset))));
    rows.extend([(HELPER, call(8)), (HANDLER, regs(0))]);
    rows.extend([(HANDLER + 1, regs(8)), (HANDLER + 2, regs(0))]);

    let ips_at = CODE + SIZE;
    let (mut entries, mut ips) = (Vec::new(), Vec::new());
    for (number, (at, entry)) in rows.iter().enumerate() {
        entries.extend(entry.encode(Layout::V6_4));
        let slot = ips_at + 4 * number as u64;
        ips.extend(((CODE + at).wrapping_sub(slot) as i32).to_le_bytes());
    }
    let section = |kind, address, bytes| Section {
        kind,
        address,
        data: Bytes::from_vec(bytes),
    };
    vec![
        section(SectionKind::OrcUnwind, 0, entries),
        section(SectionKind::OrcUnwindIp, ips_at, ips),
    ]
}

/// The walks of its own unwinder.
fn walked(ends: bool) -> KernelWalked {
    let mut run = run_walked(ends, IDT, None);
    run.walks.pop().expect("one unwinder")
}

/// Runs the kernel, whose text ends at an offset, walks with its own unwinder, and sends NMIs.
fn run_walked(ends: bool, text_end: u64, nmis: Option<NmiPlan>) -> KernelRun {
    let mut code = kernel();
    let image = elf(&code.bytes);
    let entry = system::boot::place(&boot(&image).options, &mut vec![0; MEMORY]);
    let stack = entry.expect("it can be loaded").rsp & !(KERNEL_STACK - 1);
    let mut put = |offset: u64, word: u64| {
        code.bytes[offset as usize..][..8].copy_from_slice(&word.to_le_bytes());
    };
    put(CURRENT, CODE + TASK_STRUCT);
    put(TASK_STRUCT, stack);

    let symbol = |name: &str, at: u64| Symbol {
        address: CODE + at,
        size: 0,
        name: name.to_owned(),
    };
    let text = CODE..CODE + IDT;
    let image = Image::new(ImageParts {
        text: vec![text],
        sections: orc(ends),
        symbols: vec![
            symbol("startup_64", 1),
            symbol("main", MAIN),
            symbol("ret_from_fork_asm", TASK - 1),
            symbol("switch_to", SWITCH_TO),
            symbol("_stext", 0),
            symbol("_etext", text_end),
        ],
        ..ImageParts::default()
    });
    let image = KernelImage {
        image: Arc::new(image),
        encoding: Some(Encoding::since_5_12(Layout::V6_4)),
        range: CODE..CODE + SIZE,
        ..KernelImage::of_symbols(KernelSymbols::default(), Some("6.12".to_owned()))
    };
    let stacks = StackPlaces {
        version: Version::DEFAULT,
        bases: CODE + BASE,
        current: CODE + CURRENT,
        stack: 0,
        top_of_stack: None,
        hardirq: CODE + ZERO,
        exceptions: CODE + ZERO,
        exception_at: [0; 6],
        entry_at: 0,
        tracers: TracerPlaces::default(),
    };
    let engines = spec::engines(&["orc:kernel".to_owned()]).expect("it is known");
    let walks = || KernelWalks::with(&engines, &image, stacks.clone(), None);
    let places = KernelPlaces {
        switch: code.switch.clone(),
        begin: code.begin,
        code: self::code(),
    };
    let beside = Beside {
        walks: Some(walks()),
        nmis: nmis.map(|plan| (plan, Some(walks()))),
    };
    let run = check(&code.bytes, &image, &places, &[], beside);
    assert_eq!(run.boot.end, BootEnd::Stopped(Stopped::Halted));
    run
}

#[test]
fn the_kernels_own_unwinder_is_judged_with_what_it_says_of_itself() {
    // The second task runs while the first one is the current one, as between the two parts of a switch:
    // its stack is none that the unwinder may visit.
    let right = walked(false);
    let reliability = right.tally.reliability.expect("ORC has it");
    let walks = right.tally.walks();
    assert!(right.tally.with('.') > 20, "{:?}", right.tally);
    assert_eq!(
        right.tally.with('.') + right.tally.with('r'),
        walks,
        "{right:?}"
    );
    assert_eq!(reliability.reliable_right, right.tally.with('.'));
    assert_eq!(reliability.refused_wrong, right.tally.with('r'));
    assert_eq!(
        (reliability.reliable_wrong, reliability.refused_right),
        (0, 0)
    );
    let refused = |f: &WalkFinding| !f.is_reliable && f.code == Code::NotOnStack;
    assert!(right.findings.iter().all(refused), "{:?}", right.findings);

    // A wrong row leads to a wrong chain that the kernel would trust.
    let wrong = walked(true);
    let reliability = wrong.tally.reliability.expect("ORC has it");
    assert!(reliability.reliable_wrong > 0, "{reliability:?}");
    assert_eq!(wrong.tally.walks(), walks);
    let mut trusted = wrong.findings.iter().filter(|f| f.is_reliable);
    let main = CODE + MAIN..CODE + TASK;
    assert!(
        trusted.all(|f| main.contains(&f.pc.value())),
        "{:?}",
        wrong.findings
    );
}

/// The boot goes on as without them, and each handler is followed to its end.
#[test]
fn nmis_are_handled_beside_the_boot() {
    let plain = run_walked(false, IDT, None);
    assert!(plain.nmis.is_none());

    // int3, two moves, a call and a return.
    let main = CODE + MAIN..CODE + TASK;
    let at_main = NmiPlan {
        at: vec![main],
        ..NmiPlan::default()
    };
    let every = NmiPlan {
        every: Some(10),
        ..NmiPlan::default()
    };
    let all = plain.boot.instructions;
    for (plan, sent) in [(at_main, 5), (every, (all - 1) / 10)] {
        let run = run_walked(false, IDT, Some(plan));
        assert_eq!(run.boot.instructions, all);
        assert_eq!(run.results.truth, plain.results.truth);
        let tally = run.walks[0].tally;
        assert_eq!(tally.with('r'), plain.walks[0].tally.with('r'));
        assert_eq!(tally.with('.') + tally.with('r'), tally.walks());

        let nmis = run.nmis.expect("they were sent");
        assert_eq!((nmis.sent, nmis.returned, nmis.lost), (sent, sent, None));
        assert_eq!((nmis.unknown, nmis.failures), (0, 0));
        // push, pop, iretq
        assert_eq!(nmis.instructions, 3 * sent);
        let tally = nmis.walks[0].tally;
        assert!(tally.with('.') > 0, "{tally:?}");
        assert_eq!(
            tally.with('.') + tally.with('r'),
            tally.walks(),
            "{tally:?}"
        );
    }
}

/// The first code of Linux 6.1 pushes the address behind a far return, "for unwinders", and
/// enters C code by it.
#[test]
fn a_far_return_with_the_address_behind_it_on_the_stack_is_a_call() {
    let run = |behind: u64| {
        let absolute = |offset: u64| ((CODE + offset) as u32).to_le_bytes();
        // push $behind; mov $main, %eax; push $0x10; push %rax; lretq; cli; hlt
        let mut bytes = [&[0x68][..], &absolute(behind), &[0xb8], &absolute(MAIN)].concat();
        bytes.extend([0x6a, 0x10, 0x50, 0x48, 0xcb, 0xfa, 0xf4]);
        // main: nop; nop; cli; hlt
        bytes.resize(MAIN as usize, 0xcc);
        bytes.extend([0x90, 0x90, 0xfa, 0xf4]);
        bytes.resize(SIZE as usize, 0);
        let places = KernelPlaces {
            switch: 0..0,
            begin: 0,
            code: self::code(),
        };
        let (end, truth, checked) = run_checked(&places, &bytes);
        assert_eq!(end, BootEnd::Stopped(Stopped::Halted));
        assert_eq!((truth.unknown, truth.failures()), (0, 0));
        checked
    };
    // Of a function with a caller, the rows are checked.
    assert_eq!(run(15), 4);
    assert_eq!(run(16), 0);
}

/// The kernel may know code that is in none of the images: what it would say of it is not known here.
#[test]
fn a_chain_through_code_without_an_image_is_not_judged() {
    let run = run_walked(false, TASK, None);
    let tally = run.walks[0].tally;
    assert!(tally.with('?') > 0 && tally.with('.') > 0, "{tally:?}");
    let judged = tally.with('.') + tally.with('r');
    assert_eq!(judged + tally.with('?'), tally.walks(), "{tally:?}");
    let reliability = tally.reliability.expect("ORC has it");
    assert_eq!(reliability.reliable_wrong, 0, "{reliability:?}");
}
