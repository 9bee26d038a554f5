//! A kernel of a few instructions, with a function `perf_callchain_kernel`, that unwinds itself.

mod walks;

use super::*;
use crate::At;
use crate::kernel_stacks::IDENTITY;
use crate::machine::KernelCode;
use std::ops::Range;
use std::sync::Arc;
use unwind_sim_emulator::Processor;
use unwind_sim_emulator::system::boot::BootOptions;
use unwind_sim_recordings::files::FinderOptions;
use unwind_sim_recordings::kernel::{Btf, KernelSymbols};
use unwind_sim_recordings::model::Sample;
use unwind_sim_recordings::trace::{Meta, Trace, TraceWriter};
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Symbol};
use unwind_sim_unwind::truth::TrueKind;

/// Where the kernel is, in physical memory and before it has page tables of its own.
pub(crate) const CODE: u64 = 16 << 20;
const SIZE: u64 = 0x8000;
/// Offsets in it.
pub(crate) const WORK: u64 = 0x20;
pub(crate) const HANDLER: u64 = 0x60;
pub(crate) const CALLCHAIN: u64 = 0xa0;
const UNWIND_START: u64 = 0xe0;
const UNWIND_NEXT: u64 = 0x100;
const IDT: u64 = 0x400;
const IDT_POINTER: u64 = 0x4f0;
const REGS: u64 = 0x500;
const CONTEXT: u64 = 0x600;
const ENTRY: u64 = 0x620;
const STATE: u64 = 0x700;
const TASK: u64 = 0x800;
const PER_CPU: u64 = 0x1000;
const POINTERS: u64 = 0x2000;
/// The stack of the only task.
const STACK: Range<u64> = 0x4000..0x8000;
/// What it says that it has found.
const FOUND: u64 = 0xabc0;
/// rip and rsp in its made-up registers.
const FAKE_IP: u64 = CODE + WORK + 1;
const FAKE_SP: u64 = CODE + 0x7fe0;

/// Puts instructions at an offset, and calls into them.
struct Code(Vec<u8>);

impl Code {
    fn at(&mut self, offset: u64) -> &mut Code {
        assert!(self.0.len() as u64 <= offset, "{offset:#x} is taken");
        self.0.resize(offset as usize, 0xcc);
        self
    }

    fn put(&mut self, bytes: &[u8]) -> &mut Code {
        self.0.extend(bytes);
        self
    }

    /// An instruction whose last operand is an absolute address.
    fn with(&mut self, opcode: &[u8], offset: u64) -> &mut Code {
        self.put(opcode)
            .put(&((CODE + offset) as u32).to_le_bytes())
    }

    fn call(&mut self, target: u64) -> &mut Code {
        self.put(&[0xe8]);
        let next = self.0.len() as i64 + 4;
        self.put(&((target as i64 - next) as i32).to_le_bytes())
    }

    fn words(&mut self, offset: u64, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.0[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
    }
}

pub(crate) fn code() -> Vec<u8> {
    let mut code = Code(Vec::new());
    // lidt; mov $stack, %esp; call work; call more; cli; hlt
    code.with(&[0x0f, 0x01, 0x1c, 0x25], IDT_POINTER);
    code.with(&[0xbc], STACK.end).call(WORK);
    code.call(walks::MORE).put(&[0xfa, 0xf4]);
    // work: int3; mov $context, %edi; mov $regs, %esi; call perf_callchain_kernel; ret
    code.at(WORK).put(&[0xcc]);
    code.with(&[0xbf], CONTEXT).with(&[0xbe], REGS);
    code.call(CALLCHAIN).put(&[0xc3]);
    // handler: sub $0x80, %rsp; mov %rsp, %rsi; mov $context, %edi; call; add $0x80, %rsp; iretq. What
    // is below the frame of the exception is the rest of `struct pt_regs`.
    code.at(HANDLER).put(&[0x48, 0x81, 0xec, 0x80, 0, 0, 0]);
    code.put(&[0x48, 0x89, 0xe6]).with(&[0xbf], CONTEXT);
    code.call(CALLCHAIN);
    code.put(&[0x48, 0x81, 0xc4, 0x80, 0, 0, 0, 0x48, 0xcf]);
    // perf_callchain_kernel: mov $state, %edi; call; movl $found, ip; incl nr; ret
    code.at(CALLCHAIN).with(&[0xbf], STATE).call(UNWIND_START);
    code.with(&[0xc7, 0x04, 0x25], ENTRY + 8);
    code.put(&(FOUND as u32).to_le_bytes());
    code.with(&[0xff, 0x04, 0x25], ENTRY).put(&[0xc3]);
    // __unwind_start: mov %rsp, sp; call unwind_next_frame; ret
    code.at(UNWIND_START).with(&[0x48, 0x89, 0x24, 0x25], STATE);
    code.call(UNWIND_NEXT).put(&[0xc3]);
    code.at(UNWIND_NEXT).put(&[0xc3]);
    walks::code(&mut code);

    code.0.resize(SIZE as usize, 0);
    // Interrupt gates for an NMI and for `int3`: selector 0x10.
    let target = CODE + HANDLER;
    let gate = target & 0xffff | 0x10 << 16 | 0x8e << 40 | target >> 16 << 48;
    for vector in [2, 3] {
        code.words(IDT + 16 * vector, &[gate, target >> 32]);
    }
    code.words(IDT_POINTER, &[0xfff | (CODE + IDT) << 16, 0]);
    // ip, cs, flags, sp of a `struct pt_regs`.
    code.words(REGS + 128, &[FAKE_IP, 0x10, 0, FAKE_SP]);
    code.words(CONTEXT, &[CODE + ENTRY]);
    // What the second call adds is here already.
    code.words(ENTRY + 16, &[FOUND + 1]);
    // ip of the state is inside of `__unwind_start`.
    code.words(STATE + 16, &[CODE + UNWIND_START + 4]);
    code.words(TASK, &[CODE + STACK.start]);
    code.words(POINTERS, &[CODE + TASK]);
    walks::data(&mut code);
    code.0
}

/// An ELF file with one segment.
pub(crate) fn elf(code: &[u8]) -> Vec<u8> {
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

/// Types: structures, whose members are words or earlier structures, each with its offset.
type Structure = (&'static str, &'static [(&'static str, Option<usize>, u32)]);

const STRUCTURES: &[Structure] = &[
    ("perf_callchain_entry_ctx", &[("entry", None, 0)]),
    (
        "stack_info",
        &[
            ("type", None, 0),
            ("begin", None, 8),
            ("end", None, 16),
            ("next_sp", None, 24),
        ],
    ),
    (
        "unwind_state",
        &[
            ("sp", None, 0),
            ("bp", None, 8),
            ("ip", None, 16),
            ("regs", None, 24),
            ("prev_regs", None, 32),
            ("error", None, 40),
            ("signal", None, 48),
            ("full_regs", None, 56),
            ("stack_mask", None, 64),
            ("graph_idx", None, 72),
            ("stack_info", Some(1), 80),
        ],
    ),
    ("thread_struct", &[("sp", None, 0)]),
    (
        "task_struct",
        &[
            ("stack", None, 0),
            ("pid", None, 8),
            ("mm", None, 16),
            ("thread", Some(3), 24),
        ],
    ),
    (
        "cea_exception_stacks",
        &[
            ("DF_stack", None, 0),
            ("NMI_stack", None, 0),
            ("DB_stack", None, 0),
            ("MCE_stack", None, 0),
            ("VC_stack", None, 0),
            ("VC2_stack", None, 0),
        ],
    ),
    (
        "cpu_entry_area",
        &[("entry_stack_page", None, 0), ("estacks", None, 0)],
    ),
];

fn btf() -> Btf {
    let mut strings = vec![0];
    let mut name = |text: &str| {
        let at = strings.len() as u32;
        strings.extend(text.bytes().chain([0]));
        at
    };
    let word = |words: &mut Vec<u8>, word: u32| words.extend(word.to_le_bytes());
    let mut types = Vec::new();
    // Type 1 is a word: kind INT, 8 bytes, 64 bits.
    for field in [name("word"), 1 << 24, 8, 64] {
        word(&mut types, field);
    }
    for (structure, members) in STRUCTURES {
        for field in [name(structure), 4 << 24 | members.len() as u32, 128] {
            word(&mut types, field);
        }
        for (member, of, offset) in *members {
            let of = of.map_or(1, |index| 2 + index as u32);
            for field in [name(member), of, 8 * offset] {
                word(&mut types, field);
            }
        }
    }
    let mut section = Vec::new();
    let lengths = [0, types.len(), types.len(), strings.len()].map(|len| len as u32);
    for field in [0x0001_eb9f, 24].into_iter().chain(lengths) {
        word(&mut section, field);
    }
    section.extend(types);
    section.extend(strings);
    Btf::parse(Bytes::from_vec(section)).expect("it is BTF")
}

pub(crate) fn image(without: &str) -> KernelImage {
    image_with(&[], without)
}

/// An image with these symbols, too.
fn image_with(more: &[(&str, char, u64)], without: &str) -> KernelImage {
    let symbols = [
        ("perf_callchain_kernel", 't', CALLCHAIN),
        ("__unwind_start", 't', UNWIND_START),
        ("unwind_next_frame", 't', UNWIND_NEXT),
        ("work", 't', WORK),
        ("__per_cpu_offset", 'd', PER_CPU),
        ("current_task", 'd', POINTERS),
        ("hardirq_stack_ptr", 'd', POINTERS + 8),
        ("cea_exception_stacks", 'd', POINTERS + 16),
        ("idt_table", 'd', IDT),
    ];
    let map: String = symbols
        .iter()
        .chain(more)
        .filter(|(name, _, _)| *name != without)
        .map(|(name, kind, offset)| format!("{:016x} {kind} {name}\n", CODE + offset))
        .collect();
    let symbols = KernelSymbols::from_map(map.as_bytes()).expect("it is a map");
    let code = symbols.iter().filter(|symbol| symbol.is_code());
    let code = code.map(|symbol| Symbol {
        address: symbol.address,
        size: 0,
        name: symbol.name.to_owned(),
    });
    let code = Image::new(ImageParts {
        name: "vmlinux".to_owned(),
        symbols: code.collect(),
        ..ImageParts::default()
    });
    KernelImage {
        image: Arc::new(code),
        range: CODE..CODE + SIZE,
        btf: Some(btf()),
        ..KernelImage::of_symbols(symbols, Some("6.12.117".to_owned()))
    }
}

/// A computer with the kernel in the ELF file `file`.
pub(crate) fn boot(file: &[u8]) -> Boot<'_> {
    Boot {
        options: BootOptions {
            image: file,
            setup_header: None,
            initrd: None,
            command_line: "",
            relocations: None,
            slide: 0,
            acpi: false,
        },
        memory: 64 << 20,
        processor: Processor::default(),
        has_counters: false,
        seed: 0,
        clock: 0,
        console_input: &[],
    }
}

/// Where it switches between tasks: nowhere, since it has one.
pub(crate) fn places() -> KernelPlaces {
    KernelPlaces {
        code: KernelCode {
            ranges: vec![IDENTITY],
            ..KernelCode::default()
        },
        begin: CODE + walks::BEGIN,
        ..KernelPlaces::default()
    }
}

fn recorded(
    image: &KernelImage,
    samples_max: Option<u64>,
) -> (Result<Summary, AnswersError>, Trace) {
    recorded_of(image, samples_max, false)
}

fn recorded_of(
    image: &KernelImage,
    samples_max: Option<u64>,
    is_only_perf: bool,
) -> (Result<Summary, AnswersError>, Trace) {
    let file = elf(&code());
    let boot = boot(&file);
    let options = AnswersOptions {
        image,
        path: Path::new("vmlinux"),
        places: &places(),
        from: ObservedFrom::Start,
        is_only_perf,
        plan: &Plan {
            max_samples: samples_max,
            ..Plan::new(At::Points(Vec::new()))
        },
        bounds: Bounds {
            instructions_max: 1000,
            timeout: None,
        },
    };
    let mut writer = TraceWriter::new(Vec::new(), &Meta::default()).expect("memory");
    let mut recorder = TraceRecorder::new(&mut writer, FinderOptions::default());
    let summary = record(&boot, &options, &mut recorder, &mut |_| Ok(()));
    let trace = writer.finish().expect("it is written to memory");
    (
        summary,
        Trace::from_bytes(trace).expect("it was written just now"),
    )
}

fn samples(trace: &Trace) -> Vec<Sample<'static>> {
    let all = 0..trace.len();
    all.map(|number| trace.sample(number).expect("it is there").into_owned())
        .collect()
}

#[test]
fn what_the_kernel_says_of_its_stack_is_recorded_with_the_truth() {
    let (summary, trace) = recorded(&image(""), None);
    let summary = summary.expect("it is recorded");
    assert_eq!((summary.samples, summary.fake, summary.known), (2, 1, 2));
    assert_eq!((summary.unreadable, summary.left_early), (0, 0));
    let samples = samples(&trace);
    let pcs = |sample: &Sample<'_>| -> Vec<u64> {
        let frames = sample.truth.frames().iter();
        frames.map(|frame| frame.pc - CODE).collect()
    };

    // The first has the registers of the exception, and the chain that they belong to: behind `int3`.
    let hardware = &samples[0];
    assert!(!hardware.regs.is_fake());
    assert_eq!(hardware.regs.sampled.rip(), CODE + WORK + 1);
    assert_eq!(pcs(hardware), [WORK + 1, 0x12]);
    assert_eq!(hardware.truth.frames()[0].kind, TrueKind::Top);
    assert!(hardware.truth.is_complete());

    // The second has made-up registers: the unwinder begins in itself.
    let fake = &samples[1];
    assert!(fake.regs.is_fake());
    assert_eq!(
        (fake.regs.sampled.rip(), fake.regs.sampled.rsp()),
        (FAKE_IP, FAKE_SP)
    );
    let own = fake.regs.own.expect("its own registers");
    assert_eq!(own.rip(), CODE + UNWIND_START + 4);
    // rsp in `__unwind_start`: below the return addresses to the start, work and perf_callchain_kernel.
    assert_eq!(own.rsp(), CODE + STACK.end - 24);
    assert_eq!(
        pcs(fake),
        [UNWIND_START + 4, CALLCHAIN + 10, WORK + 16, 0x12]
    );

    for (sample, found) in samples.iter().zip([FOUND, FOUND + 1]) {
        assert_eq!(sample.recorded.len(), 1);
        assert_eq!(sample.recorded[0].source, "kernel");
        // What was in the entry before does not count.
        assert_eq!(sample.recorded[0].ips, [found]);
        let kernel = sample.kernel.as_ref().expect("a kernel's sample");
        assert_eq!(kernel.release, "6.12.117");
        // Before and after the only step.
        assert_eq!(kernel.states.len(), 2);
        assert_eq!(
            sample.regions[0].bounds,
            CODE + STACK.start..CODE + STACK.end
        );
    }
}

#[test]
fn a_recording_ends_with_its_last_sample() {
    let (summary, trace) = recorded(&image(""), Some(1));
    assert_eq!(summary.expect("it is recorded").samples, 1);
    assert_eq!(trace.len(), 1);
}

#[test]
fn an_image_without_the_functions_or_their_types_is_refused() {
    let (summary, _) = recorded(&image("unwind_next_frame"), None);
    let error = summary.expect_err("a function is missing").to_string();
    assert!(
        error.contains("has no symbol `unwind_next_frame`"),
        "{error}"
    );
    let without = KernelImage {
        btf: None,
        ..image("")
    };
    let (summary, _) = recorded(&without, None);
    let error = summary.expect_err("types are missing").to_string();
    assert!(error.contains("no type information"), "{error}");
}
