//! The demos and what they say.

use super::pictured::{DemoStep, only_chains, words};
use super::{Demo, Narration, seed_004};
use unwind_sim_recordings::view::MemoryView;

macro_rules! trace {
    ($name:literal) => {
        include_bytes!(concat!("../../corpus/traces/", $name, ".bin"))
    };
}

/// All demos. The first is the one to begin with.
pub static ALL: [Demo; 12] = [
    Demo {
        name: "fp",
        about: "frame pointers, and the two instructions at which they lose a frame",
        recording: trace!("demo-fp"),
        source: "cases/frame/fp-loses-the-caller-before-push-rbp.s",
        text: Narration::Pictured(&FP),
    },
    Demo {
        name: "dwarf",
        about: "DWARF CFI, where a function uses rbp for something else",
        recording: trace!("demo-dwarf"),
        source: "cases/frame/rbp-as-data-in-a-middle-function.s",
        text: Narration::Pictured(&DWARF),
    },
    Demo {
        name: "orc",
        about: "ORC, and one row that leads to another stack",
        recording: trace!("demo-orc"),
        source: "cases/orc/stack-switch-through-sp-indirect.s",
        text: Narration::Pictured(&ORC),
    },
    Demo {
        name: "sframe",
        about: "SFrame, and a frame that it cannot describe",
        recording: trace!("demo-sframe"),
        source: "cases/dwarf/lazy-resolver-hangs-its-cfa-on-rbx.s",
        text: Narration::Pictured(&SFRAME),
    },
    Demo {
        name: "lbr",
        about: "branch records: the chain without the stack, as deep as the ring",
        recording: trace!("demo-lbr"),
        source: "demos/lbr.s",
        text: Narration::Pictured(&LBR),
    },
    Demo {
        name: "guess",
        about: "a scan of the stack, and a function pointer that it takes for a frame",
        recording: trace!("demo-guess"),
        source: "cases/frame/guess-takes-a-function-pointer-for-a-frame.s",
        text: Narration::Pictured(&GUESS),
    },
    Demo {
        name: "seed-004",
        about: "a tracepoint's fake registers under ORC: one kernel frame where there should be eight",
        recording: trace!("seed-004"),
        source: "cases/start/seed-004.s",
        text: Narration::OfTrace(seed_004::text),
    },
    Demo {
        name: "copy",
        about: "a profiler's copy of the stack, and the word that it left out",
        recording: trace!("demo-copy"),
        source: "cases/copy/popped-slot-lies-outside-a-copy.s",
        text: Narration::Pictured(&COPY),
    },
    Demo {
        name: "deferral",
        about: "user frames that are recorded later, and joined by a cookie",
        recording: include_bytes!("../../corpus/perfdata/A-two-samples-one-record.data"),
        source: "perfdata/A-two-samples-one-record.data",
        text: Narration::Deferral,
    },
    Demo {
        name: "wrong-row",
        about: "a wrong row in shipped software: a function of glibc that forgets its push %rbp",
        recording: trace!("demo-wrong-row"),
        source: "demos/wrong-row.s",
        text: Narration::Pictured(&WRONG_ROW),
    },
    Demo {
        name: "deadlock",
        about: "two threads that wait for each other, and their stacks",
        recording: trace!("demo-deadlock"),
        source: "demos/deadlock.s",
        text: Narration::Pictured(&DEADLOCK),
    },
    Demo {
        name: "kernel",
        about: "a page fault, and an NMI in the kernel's entry code, which ORC does not see through",
        recording: trace!("demo-kernel"),
        source: "demos/kernel.sh",
        text: Narration::Pictured(&KERNEL),
    },
];

const FP: [DemoStep; 5] = [
    DemoStep::Say(
        "\
A walk by frame pointers believes that rbp points to the frame of the function that runs: the saved
rbp is there, and the return address is the word above. At the first instruction of leaf, rbp is
still that of mid. So the word above it is the return address of mid, and mid itself is skipped:

",
    ),
    words(0, &["fp", "dwarf"]),
    DemoStep::Say(
        "
Two instructions later, after push %rbp and mov %rsp, %rbp, leaf has a frame, and the chain is right:

",
    ),
    words(1, &["fp"]),
    DemoStep::Say(
        "
The same happens at the end, between pop %rbp and ret. DWARF has a row for each of these
instructions. What to try:
  unwind-sim explain US510
  unwind-sim cases quiz fp-loses-the-caller-after-pop-rbp --at after_pop
  unwind-sim demo dwarf
",
    ),
];

const DWARF: [DemoStep; 3] = [
    DemoStep::Say(
        "\
counts uses rbp as a counter, as optimized code does. It saves its caller's rbp on the stack, and
its row of .eh_frame says where. Frame pointers read the counter as an address; DWARF restores rbp
from its slot and goes on:

",
    ),
    words(0, &["dwarf", "fp"]),
    DemoStep::Say(
        "
A row says, for a range of instructions, where the caller's frame begins (the CFA) and where each
register of the caller is. What to try:
  unwind-sim demo dwarf -o dwarf.bin
  unwind-sim explain dwarf.bin --unwinder dwarf
  unwind-sim demo wrong-row
",
    ),
];

const ORC: [DemoStep; 3] = [
    DemoStep::Say(
        "\
on_other_stack calls callee on a stack of its own, as a kernel does for interrupts. The old stack
pointer is in the last word of the new stack. The ORC row at the call is SP_INDIRECT: load sp from
the word at sp, then add 16. ORC is the only table in this program:

",
    ),
    words(0, &["orc", "dwarf"]),
    DemoStep::Say(
        "
An ORC entry has 6 bytes and describes ip, sp and bp. That is enough for a kernel, and there is no
expression to evaluate in an NMI. What to try:
  unwind-sim explain US104
  unwind-sim demo orc -o orc.bin
  unwind-sim explain orc.bin --unwinder orc
",
    ),
];

const SFRAME: [DemoStep; 5] = [
    DemoStep::Say(
        "\
resolve realigns the stack, as the lazy resolver of ld.so does, and finds its own frame through rbx.
While resolve itself runs, rbx is at hand, and its row can be used:

",
    ),
    only_chains(0, &["dwarf", "sframe", "orc"]),
    DemoStep::Say(
        "
Then it calls fixup. Now rbx of resolve would have to be carried through the frame of fixup. SFrame
and ORC carry ip, sp and bp only; DWARF carries every callee-saved register:

",
    ),
    words(1, &["dwarf", "sframe", "orc"]),
    DemoStep::Say(
        "
Here the rows of SFrame and ORC are derived from .eh_frame, since no compiler writes them for this
code; what cannot be held is left out. What to try:
  unwind-sim explain US106
  unwind-sim demo sframe -o sframe.bin
  unwind-sim compare sframe.bin --strict
",
    ),
];

const LBR: [DemoStep; 3] = [
    DemoStep::Say(
        "\
In call-stack mode a processor writes each call into a ring and removes it when the call returns. No
memory is read, and no table. But the ring has 8, 16 or 32 places, and this recursion is 12 calls
deep:

",
    ),
    only_chains(0, &["lbr:8", "lbr:16", "fp"]),
    DemoStep::Say(
        "
The smaller ring is right as far as it goes. The larger one has every frame, but nothing in it says
that the last one is the root. What to try:
  unwind-sim explain US302
  unwind-sim demo lbr -o lbr.bin
  unwind-sim replay lbr.bin --unwinder lbr:8
",
    ),
];

const GUESS: [DemoStep; 3] = [
    DemoStep::Say(
        "\
The simplest unwinder takes every word of the stack that is the address of code. It needs nothing and
misses nothing, but holds has a function pointer in a local variable:

",
    ),
    words(0, &["guess", "dwarf"]),
    DemoStep::Say(
        "
A kernel prints such entries with a question mark. What a scan finds proves nothing, even if it is
right: its best verdict is ~. What to try:
  unwind-sim explain US502
  unwind-sim demo guess -o guess.bin
  unwind-sim explain guess.bin --unwinder guess
",
    ),
];

const COPY: [DemoStep; 5] = [
    DemoStep::Say(
        "\
perf record --call-graph dwarf copies the stack from rsp upwards and unwinds later. sorts has just
popped rbp, and its row still says: rbp is saved at cfa-16. That word is below rsp now, so the copy
does not have it:

",
    ),
    DemoStep::Show {
        sample: 0,
        unwinders: &["dwarf", "dwarf+fp"],
        memory: MemoryView::Copy(u64::MAX),
        words: true,
    },
    DemoStep::Say(
        "
The row is not wrong. An unwinder that sees all memory, such as a debugger's, finds the word still
in place:

",
    ),
    only_chains(0, &["dwarf"]),
    DemoStep::Say(
        "
What to try:
  unwind-sim explain US203
  unwind-sim demo copy -o copy.bin
  unwind-sim compare copy.bin --view copy:65528
",
    ),
];

const WRONG_ROW: [DemoStep; 5] = [
    DemoStep::Say(
        "\
_ZGVcN4vvv_sincos is the vector version of sincos in glibc's libmvec, here of version 2.36. It is
written by hand and starts with push %rbp, and its only row says for all of the function: the CFA is
rsp+8. After the push that is the place of the saved rbp, which is taken for the return address:

",
    ),
    words(0, &["dwarf", "fp"]),
    DemoStep::Say(
        "
One instruction later the function has a frame pointer. Now the walk without any table is right, and
DWARF is still wrong:

",
    ),
    only_chains(1, &["dwarf", "fp"]),
    DemoStep::Say(
        "
unwind-sim proves rows from the code, and found this one and 1,478 other functions in Debian's
binaries (docs/findings.md). What to try:
  unwind-sim demo wrong-row -o wrong-row.bin
  unwind-sim explain wrong-row.bin --unwinder dwarf
  unwind-sim tables check /bin/ls
",
    ),
];

const KERNEL: [DemoStep; 11] = [
    DemoStep::Say(
        "\
A program of Linux 6.12, booted in the emulated machine, touches memory for the first time: a page
fault. The processor has pushed where it was and an error code, and is at the first instruction of
the kernel. Nobody has called, so the chain is one frame:

",
    ),
    words(0, &KERNELS),
    DemoStep::Say(
        "
Four instructions later it calls error_entry. ORC has the caller; the kernel has no frame pointers:

",
    ),
    only_chains(1, &KERNELS),
    DemoStep::Say(
        "
error_entry pushes all registers, and its own return address ends up below them. The rows for that say
where the program's registers are. So the walk goes straight to user mode, and leaves out the caller:

",
    ),
    words(2, &KERNELS),
    DemoStep::Say(
        "
There an NMI comes. It has a stack of its own, and the walk goes on where the processor was
interrupted, but no further:

",
    ),
    only_chains(3, &KERNELS),
    DemoStep::Say(
        "
In the NMI's handler, where perf would take the chain, the caller is still missing. The kernel calls
this stack reliable. A scan finds the return address, among others that are only copies:

",
    ),
    only_chains(4, &KERNELS),
    DemoStep::Say(
        "
With a kernel of yours, step --kernel shows the same at any instruction. What to try:
  unwind-sim demo kernel -o kernel.bin
  unwind-sim compare kernel.bin --unwinder orc:kernel
  unwind-sim explain US501
",
    ),
];

/// The kernel's own unwinders.
const KERNELS: [&str; 3] = ["orc:kernel", "fp:kernel", "guess:kernel"];

const DEADLOCK: [DemoStep; 5] = [
    DemoStep::Say(
        "\
Two threads take two locks in opposite order. Each has one and waits in futex for the other, for ever.
The emulated machine knows when no thread can go on, and shows where each stands. One has
lock_b and waits for lock_a:

",
    ),
    words(0, &["fp"]),
    DemoStep::Say(
        "
The other has lock_a and waits for lock_b:

",
    ),
    words(1, &["fp"]),
    DemoStep::Say(
        "
The frames above take_lock say who has to change the order. What to try:
  unwind-sim demo deadlock -o deadlock.bin
  unwind-sim replay deadlock.bin --unwinder fp
  unwind-sim emulate -- PROG (for a program of yours that hangs)
",
    ),
];
