//! Random system calls from random threads and processes of one run.
//!
//! The input becomes a list of calls. A small program fetches one after the other and makes it: its
//! threads fetch from the same list, its children go on in a copy. A run must end, stay within its
//! limits, and be the same however it is cut into pieces and whether or not it was taken back.

use crate::input::Input;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::LazyLock;
use unwind_sim_emulator::linux::{
    Input as Stdin, Kernel, Limits, Notice, Outcome, ProcessOptions, system_call_name,
};

/// Where the program is loaded; its texts and structures follow its code.
const PROGRAM: u64 = 0x40_0000;
/// The list of calls, which the program reads from its standard input: its start and size.
const CALLS: u64 = 0x41_0000;
const CALLS_SIZE: u64 = 0x8000;
/// Words that calls may read and write.
const DATA: u64 = 0x42_0000;
/// The end of the program.
const END: u64 = 0x43_0000;
/// Where the code begins in the file, behind the two headers.
const CODE: u64 = 0x78;
/// Where texts and structures begin in the file.
const TEXTS: u64 = 0x200;
const TEXT_SIZE: u64 = 64;

const CALLS_MAX: usize = 60;
const INSTRUCTIONS_MAX: u64 = 20_000;
const LIMITS: Limits = Limits {
    pages: 1024,
    history_bytes: 8 << 20,
    stack_bytes: 256 << 10,
    file_bytes: 1 << 18,
    output_bytes: 1 << 14,
    tasks: 12,
    objects: 64,
};

/// The program: reads the list; then fetches a call, makes it, and so on.
const PROGRAM_CODE: &[u8] = &[
    0x31, 0xc0, // xor %eax, %eax: read
    0x31, 0xff, // xor %edi, %edi
    0xbe, 0x00, 0x00, 0x41, 0x00, // mov $CALLS, %esi
    0xba, 0x00, 0x80, 0x00, 0x00, // mov $CALLS_SIZE, %edx
    0x0f, 0x05, // syscall
    0x05, 0x00, 0x00, 0x41, 0x00, // add $CALLS, %eax
    0x48, 0x89, 0x04, 0x25, 0x00, 0xff, 0x41, 0x00, // mov %rax, 0x41ff00
    0xbb, 0x38, 0x00, 0x00, 0x00, // next: mov $56, %ebx
    0xf0, 0x48, 0x0f, 0xc1, 0x1c, 0x25, 0x08, 0xff, 0x41, 0x00, // lock xadd %rbx, 0x41ff08
    0x48, 0x81, 0xc3, 0x00, 0x00, 0x41, 0x00, // add $CALLS, %rbx
    0x48, 0x3b, 0x1c, 0x25, 0x00, 0xff, 0x41, 0x00, // cmp 0x41ff00, %rbx
    0x73, 0x1f, // jae done
    0x48, 0x8b, 0x03, // mov (%rbx), %rax
    0x48, 0x8b, 0x7b, 0x08, // mov 8(%rbx), %rdi
    0x48, 0x8b, 0x73, 0x10, // mov 16(%rbx), %rsi
    0x48, 0x8b, 0x53, 0x18, // mov 24(%rbx), %rdx
    0x4c, 0x8b, 0x53, 0x20, // mov 32(%rbx), %r10
    0x4c, 0x8b, 0x43, 0x28, // mov 40(%rbx), %r8
    0x4c, 0x8b, 0x4b, 0x30, // mov 48(%rbx), %r9
    0x0f, 0x05, // syscall
    0xeb, 0xc1, // jmp next
    0xb8, 0x3c, 0x00, 0x00, 0x00, // done: mov $60, %eax: exit
    0x31, 0xff, // xor %edi, %edi
    0x0f, 0x05, // syscall
    0xc3, // handler: ret
    0xb8, 0x0f, 0x00, 0x00, 0x00, // restorer: mov $15, %eax: rt_sigreturn
    0x0f, 0x05, // syscall
];
const NEXT: u64 = PROGRAM + CODE + 0x1d;
const HANDLER: u64 = PROGRAM + CODE + 0x65;
const RESTORER: u64 = HANDLER + 1;

/// Calls that do most, made more often than others.
const FAVOURITES: &[u64] = &[
    0, 1, 2, 3, 5, 7, 8, 9, 10, 11, 12, 13, 14, 16, 19, 20, 22, 23, 25, 32, 33, 34, 35, 37, 38, 40,
    41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 53, 54, 56, 57, 58, 59, 61, 62, 72, 74, 77, 79, 80, 82,
    83, 84, 86, 87, 88, 89, 90, 105, 109, 112, 127, 128, 130, 131, 157, 186, 200, 202, 217, 218,
    222, 223, 230, 232, 233, 234, 247, 257, 269, 270, 271, 275, 280, 281, 282, 283, 286, 288, 289,
    290, 291, 292, 293, 295, 297, 299, 302, 307, 316, 319, 322, 324, 332, 334, 424, 434, 435, 436,
];

/// Texts and structures at which pointers point, one each [`TEXT_SIZE`] bytes.
fn texts() -> Vec<Vec<u8>> {
    let words = |all: &[u64]| {
        all.iter()
            .flat_map(|w| w.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let text = |text: &str| [text.as_bytes(), b"\0"].concat();

    let mut all: Vec<Vec<u8>> = [
        "/program",
        "file",
        "folder",
        "folder/..",
        "link",
        "new",
        "folder/new",
        "/proc/self/fd/3",
        "/proc/self/maps",
        "/dev/shm/x",
        "/dev/zero",
        "/dev/stdin",
        ".",
        "/proc/self/cwd/file",
    ]
    .map(text)
    .to_vec();

    // Signal actions: handler, flags, restorer, mask.
    all.push(words(&[HANDLER, 0x0400_0000, RESTORER, 0]));
    all.push(words(&[HANDLER, 0x5400_0004, RESTORER, !0]));
    all.push(words(&[1, 0, 0, 0]));

    // Vectors; a message with one of them; descriptors to pass.
    all.push(words(&[DATA, 16, DATA + 0x100, 0x2000]));
    all.push(words(&[
        0,
        0,
        PROGRAM + TEXTS + 17 * TEXT_SIZE,
        2,
        PROGRAM + TEXTS + 19 * TEXT_SIZE,
        24,
        0,
    ]));
    all.push([words(&[20]), words(&[1 | 1 << 32]), words(&[3])].concat());

    // Addresses of sockets: Unix, abstract, IPv4, IPv6.
    all.push(b"\x01\0socket\0".to_vec());
    all.push(b"\x01\0\0abstract".to_vec());
    all.push(vec![2, 0, 0x1f, 0x90, 127, 0, 0, 1]);
    all.push(vec![
        10, 0, 0x1f, 0x91, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
    ]);

    // Times: intervals and moments.
    all.push(words(&[0, 1000, 0, 5000]));
    all.push(words(&[1, 0, 2, 0]));
    all.push(words(&[0, 0, 0, 0]));

    // Descriptors to poll; an event of epoll.
    all.push(words(&[3 | 5 << 32, 4 | 5 << 32, 5 | 0x41 << 32]));
    all.push(words(&[0x8000_0005 | 7 << 32, 9]));

    // Arguments of clone3: a thread, a process; of execve.
    all.push(words(&[
        0x35_0f00 & !0x8_0000,
        0,
        DATA + 64,
        DATA + 72,
        0,
        0,
        0,
        0,
    ]));
    all.push(words(&[0, 0, 0, 0, 17, 0, 0, 0]));
    all.push(words(&[PROGRAM + TEXTS, PROGRAM + TEXTS + TEXT_SIZE, 0]));

    // Limits; the head of a robust list; a signal's data.
    all.push(words(&[4096, 8192]));
    all.push(words(&[PROGRAM + TEXTS + 33 * TEXT_SIZE, 0, 0]));
    all.push(words(&[0, (-1_i32).cast_unsigned().into(), 0]));

    all
}

/// The program as a file.
fn program() -> Vec<u8> {
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();

    // An ELF header of 64 bytes, a program header of 56 (elf(5)).
    let mut add = |size: usize, value: u64| elf.extend_from_slice(&value.to_le_bytes()[..size]);

    // Type, machine, version, entry, program headers, section headers, flags, sizes and counts.
    for (size, value) in [
        (2, 2),
        (2, 62),
        (4, 1),
        (8, PROGRAM + CODE),
        (8, 64),
        (8, 0),
        (4, 0),
    ] {
        add(size, value);
    }
    for value in [64, 56, 1, 0, 0, 0] {
        add(2, value);
    }

    let size = TEXTS + texts().len() as u64 * TEXT_SIZE;
    // A segment that is readable, writable and executable.
    add(4, 1);
    add(4, 7);
    for value in [0, PROGRAM, PROGRAM, size, END - PROGRAM, 0x1000] {
        add(8, value);
    }

    elf.extend_from_slice(PROGRAM_CODE);
    assert!(elf.len() as u64 <= TEXTS);
    elf.resize(TEXTS as usize, 0);

    // Each in its own slot, so that pointers to them can be drawn by number.
    for text in texts() {
        assert!(text.len() as u64 <= TEXT_SIZE);
        elf.extend_from_slice(&text);
        elf.resize((elf.len() as u64).next_multiple_of(TEXT_SIZE) as usize, 0);
    }

    elf
}

/// The folder that the program sees as `/`. Nothing changes it.
static ROOT: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let root = tempfile::tempdir().expect("a folder");
    let path = |name: &str| root.path().join(name);
    fs::write(path("program"), program()).expect("written");
    fs::set_permissions(path("program"), fs::Permissions::from_mode(0o755)).expect("changed");
    fs::write(path("file"), "some text\n".repeat(700)).expect("written");
    fs::create_dir(path("folder")).expect("made");
    symlink("file", path("link")).expect("linked");
    root
});

/// The numbers of all calls.
static NUMBERS: LazyLock<Vec<u64>> = LazyLock::new(|| {
    (0..600)
        .filter(|&n| system_call_name(n).is_some())
        .collect()
});

/// An argument: often one that is valid for some call.
fn argument(input: &mut Input<'_>) -> u64 {
    let (tag, value) = (input.u8(), u64::from(input.u8()));
    match tag % 16 {
        // Descriptors and small flags are the most frequent valid arguments.
        0..5 => value % 12,
        5 | 6 => PROGRAM + TEXTS + value % 35 * TEXT_SIZE,
        7 | 8 => DATA + value * 8,
        9 => 1 << (value % 64),
        10 => value,
        11 => 1000 + value % 16,
        // Small negative numbers, such as -1 for no descriptor.
        12 => (value % 16).wrapping_neg(),
        13 => value << 12,
        // Addresses of code and data, and sets of flags of `clone`.
        14 => [
            0,
            NEXT,
            HANDLER,
            CALLS,
            END,
            0x7fff_ffff_f000,
            0x10f00,
            0x11,
            0x4111,
            0x35_0f00,
        ][(value % 10) as usize],
        _ => input.u64(),
    }
}

/// The list of calls.
fn calls(input: &mut Input<'_>) -> Vec<u8> {
    let mut calls = Vec::new();
    for _ in 0..CALLS_MAX {
        if input.is_empty() {
            break;
        }
        let which = usize::from(input.u16());
        let number = match which & 0x8000 {
            0 => FAVOURITES[which % FAVOURITES.len()],
            _ => NUMBERS[which % NUMBERS.len()],
        };
        calls.extend_from_slice(&number.to_le_bytes());
        for _ in 0..6 {
            calls.extend_from_slice(&argument(input).to_le_bytes());
        }
    }
    assert!(calls.len() as u64 <= CALLS_SIZE);
    calls
}

/// What is visible of a run.
#[derive(PartialEq, Debug)]
struct RunResult {
    outcome: Outcome,
    executed: u64,
    output: [Vec<u8>; 2],
    notices: Vec<Notice>,
    registers: Vec<u64>,
    pages: usize,
    file: Option<Vec<u8>>,
}

fn run(kernel: &mut Kernel, slice: u64) -> RunResult {
    let mut outcome = Outcome::Limit;
    while outcome == Outcome::Limit && kernel.executed() < INSTRUCTIONS_MAX {
        let left = INSTRUCTIONS_MAX - kernel.executed();
        outcome = kernel.run(slice.min(left), &mut ());
    }
    let core = &kernel.machine.core;
    assert!(core.memory.pages_in_use() <= LIMITS.pages);
    assert!(kernel.stdout().len() <= LIMITS.output_bytes);
    let state = (0..16).map(|number| core.state.gpr(number));
    RunResult {
        outcome,
        executed: kernel.executed(),
        output: [kernel.stdout().to_vec(), kernel.stderr().to_vec()],
        notices: kernel.notices().to_vec(),
        registers: state.chain([core.state.rip, core.state.rflags()]).collect(),
        pages: core.memory.pages_in_use(),
        file: kernel.file(b"/file"),
    }
}

/// Makes random calls.
pub fn syscalls(data: &[u8]) {
    let mut input = Input::new(data);
    let (seed, cut) = (input.u8(), u64::from(input.u8()));
    let calls = calls(&mut input);
    let root: &Path = ROOT.path();

    let start = || {
        let options = ProcessOptions {
            args: vec![b"program".to_vec()],
            root: root.to_path_buf(),
            seed: seed.into(),
            uid: u32::from(seed % 2) * 1000,
            stdin: Stdin::Bytes(calls.clone()),
            limits: LIMITS,
            ..ProcessOptions::default()
        };
        Kernel::start(b"/program", options).expect("it starts")
    };

    // The reference: one run to the end.
    let mut whole = start();
    let seen = run(&mut whole, u64::MAX);

    // Where a run is interrupted must not matter.
    let mut pieces = start();
    assert_eq!(run(&mut pieces, 1 + cut), seen, "in pieces");

    // Neither must a snapshot, nor the way back to it.
    let mut taken_back = start();
    let at = seen.executed * cut / 256;
    taken_back.run(at, &mut ());
    let snapshot = taken_back.snapshot();
    assert_eq!(run(&mut taken_back, u64::MAX), seen, "after a snapshot");
    if taken_back.restore(&snapshot).is_ok() {
        assert_eq!(run(&mut taken_back, u64::MAX), seen, "taken back");
    }
}
