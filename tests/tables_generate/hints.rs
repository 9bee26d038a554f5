//! Unwind hints of the kernel in relocatable objects: those of the tests' own macros, which emit what
//! the kernel's do, and those of installed kernel headers.

use super::{against, same, told, unwind_sim};
use crate::common::compiler::{Scratch, run};
use crate::common::skip::skip;
use std::path::{Path, PathBuf};
use std::process::Command;
use unwind_sim_tables::convert::Target;
use unwind_sim_tables::generate::Boundaries;

/// `UNWIND_HINT` (Linux `include/linux/objtool.h`), and the hints that are used below, by the numbers
/// of the kernel of an ORC format.
struct Kernel {
    format: &'static str,
    /// Behind the type: `end`, or `signal` and `end`, or `signal`.
    has_signal: bool,
    has_end: bool,
    undefined: &'static str,
    end_of_stack: &'static str,
    call: u8,
    regs: u8,
    regs_partial: u8,
    /// 4.14 had none.
    function: Option<u8>,
    save: u8,
    restore: u8,
    /// Numbers of rsp, rdi and `SP_INDIRECT`.
    sp: u8,
    di: u8,
    sp_indirect: u8,
}

const KERNELS: &[Kernel] = &[
    Kernel {
        format: "orc:4.14",
        has_signal: false,
        has_end: true,
        undefined: "0",
        end_of_stack: "0 end=1",
        call: 0,
        regs: 1,
        regs_partial: 2,
        function: None,
        save: 3,
        restore: 4,
        sp: 5,
        di: 3,
        sp_indirect: 9,
    },
    Kernel {
        format: "orc:5.12",
        has_signal: false,
        has_end: true,
        undefined: "0",
        end_of_stack: "0 end=1",
        call: 0,
        regs: 1,
        regs_partial: 2,
        function: Some(3),
        save: 5,
        restore: 6,
        sp: 5,
        di: 3,
        sp_indirect: 9,
    },
    Kernel {
        format: "orc:6.3",
        has_signal: true,
        has_end: true,
        undefined: "0",
        end_of_stack: "0 end=1",
        call: 0,
        regs: 1,
        regs_partial: 2,
        function: Some(3),
        save: 5,
        restore: 6,
        sp: 5,
        di: 3,
        sp_indirect: 9,
    },
    Kernel {
        format: "orc:6.4",
        has_signal: true,
        has_end: false,
        undefined: "0",
        end_of_stack: "1",
        call: 2,
        regs: 3,
        regs_partial: 4,
        function: Some(5),
        save: 6,
        restore: 7,
        sp: 5,
        di: 3,
        sp_indirect: 9,
    },
    Kernel {
        format: "orc:7.1",
        has_signal: true,
        has_end: false,
        undefined: "0",
        end_of_stack: "1",
        call: 2,
        regs: 3,
        regs_partial: 4,
        function: Some(5),
        save: 6,
        restore: 7,
        sp: 3,
        di: 5,
        sp_indirect: 9,
    },
];

fn macros(kernel: &Kernel) -> String {
    let signal = if kernel.has_signal {
        ".byte \\signal"
    } else {
        ""
    };
    let end = if kernel.has_end { ".byte \\end" } else { "" };
    format!(
        "    .macro HINT type, reg=0, offset=0, signal=0, end=0
771\\@:
    .pushsection .discard.unwind_hints
    .long 771\\@b - .
    .short \\offset
    .byte \\reg
    .byte \\type
    {signal}
    {end}
    .balign 4
    .popsection
    .endm
    .text
"
    )
}

/// Entry code: no frame, an iret frame, registers, a call out of them, another stack, a function
/// that no symbol declares.
fn source(kernel: &Kernel) -> String {
    // The numbers of hint types differ between kernels, so they are part of the source.
    let Kernel {
        undefined,
        end_of_stack,
        call,
        regs,
        regs_partial,
        save,
        restore,
        sp,
        di,
        sp_indirect,
        ..
    } = kernel;

    // Kernels before the type for functions have only the one for calls.
    let function = match kernel.function {
        Some(function) => format!("HINT {function} {sp} 8"),
        None => format!("HINT {call} {sp} 8"),
    };

    // The tests' own macros, so that no kernel headers are needed.
    macros(kernel)
        + &format!(
            "
    .globl before, entry
    .type before, @function
before:
    push %rbx
    pop %rbx
    ret
    .size before, . - before
entry:
    HINT {end_of_stack}
    swapgs
    HINT {regs_partial} {sp}
    push %rax
    nop
    HINT {regs} {sp}
    push %rdi
    mov %rsp, %rdi
    call other
    pop %rdi
    HINT {undefined}
    nop
    HINT {regs} {di}
    mov (%rdi), %rax
    HINT {call} {sp_indirect}
    nop
    {function}
    push %rbx
    pop %rbx
    ret
    .size entry, . - entry
    .globl saves
    .type saves, @function
saves:
    push %rbx
    HINT {save}
    sub $64, %rsp
    nop
    HINT {restore}
    pop %rbx
    ret
    .size saves, . - saves
"
        )
}

const UNKNOWN: &str = "undefined";
/// The rows of the source, by what they say of the CFA. One that says what the row before it says is
/// not written.
const ROWS: &[&str] = &[
    "before call cfa=rsp+8",
    "before+0x1 call cfa=rsp+16",
    "before+0x2 call cfa=rsp+8",
    "entry outermost",
    "entry+0x3 iret cfa=rsp",
    "entry+0x4 iret cfa=rsp+8",
    "entry+0x5 pt_regs cfa=rsp",
    "entry+0x6 pt_regs cfa=rsp+8",
    "entry+0xf undefined",
    "entry+0x10 pt_regs cfa=rdi",
    "entry+0x13 call cfa=*(rsp)",
    "entry+0x14 call cfa=rsp+8",
    "entry+0x15 call cfa=rsp+16",
    "entry+0x16 call cfa=rsp+8",
    "saves+0x1 call cfa=rsp+16",
    "saves+0x5 call cfa=rsp+80",
    "saves+0x6 call cfa=rsp+16",
    "saves+0x7 call cfa=rsp+8",
    "? undefined",
];

fn write(object: &Path, to: &str, out: &Path) -> Vec<String> {
    let word = |path: &Path| path.display().to_string();
    unwind_sim(&[
        "tables",
        "generate",
        &word(object),
        "--to",
        to,
        "-o",
        &word(out),
    ]);
    let text = unwind_sim(&["tables", "dump", "--table", "orc", &word(out)]);

    // Only what hints decide: the place, the kind, and the CFA.
    let rows = text.lines().map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        match words.get(1..) {
            // Such a row has fewer words.
            Some([place, kind, cfa, ..]) if kind.starts_with(".orc") && *cfa == "outermost" => {
                format!("{place} outermost")
            }
            Some([place, _, _, cfa, ..]) if cfa.ends_with(UNKNOWN) => format!("{place} {UNKNOWN}"),
            Some([place, _, kind, cfa, ..]) => format!("{place} {kind} {cfa}"),
            _ => line.to_owned(),
        }
    });
    rows.collect()
}

#[test]
fn hints_of_every_kernel_are_honoured() {
    let scratch = Scratch::new();
    for kernel in KERNELS {
        let source = source(kernel);
        let object = scratch.cc("hints.s", &source, &["-c"]).expect("cc");
        let rows = write(&object, kernel.format, &scratch.path("out.o"));
        assert_eq!(rows, ROWS, "{}", kernel.format);
    }
}

/// A call within a function, code behind `ud2`, code behind a call that does not return, a function
/// that is left alone.
const NOTES: &str = "
    .globl f, alone
    .type f, @function
f:  sub $8, %rsp
771: call 772f
    int3
772: add $16, %rsp
    ud2
773: ret
774: push %rax
    .size f, . - f
    .type alone, @function
alone: push %rbx
    pop %rbx
    ret
    .size alone, . - alone
    .section .discard.intra_function_calls, \"\", @progbits
    .long 771b
    .section .discard.reachable, \"\", @progbits
    .long 773b - .
    .section .discard.unreachable, \"\", @progbits
    .long 774b - .
    .section .discard.func_stack_frame_non_standard, \"aw\"
    .quad alone
";

#[test]
fn notes_for_objtool_are_read() {
    let scratch = Scratch::new();
    let object = scratch.cc("notes.s", NOTES, &["-c"]).expect("cc");
    let rows = write(&object, "orc:6.4", &scratch.path("out.o"));
    let wanted = [
        "f call cfa=rsp+8",
        "f+0x4 call cfa=rsp+16",
        "f+0x9 undefined",
        "f+0xa call cfa=rsp+24",
        "f+0xe call cfa=rsp+8",
        "f+0x11 undefined",
    ];
    assert_eq!(rows, wanted);
}

#[test]
fn damaged_hints_are_refused_and_leave_no_file() {
    let scratch = Scratch::new();
    let out = scratch.path("out.o");
    let kernel = KERNELS.iter().find(|kernel| kernel.format == "orc:6.4");
    let macros = macros(kernel.expect("a kernel"));

    // An unknown type, an unknown register, and a section whose size is no multiple of an entry's.
    for (code, wanted) in [
        ("HINT 9", "offset 0x0: unknown type"),
        ("HINT 1\nHINT 3 1", "offset 0xc: unknown sp_reg"),
        (
            "nop; .section .discard.unwind_hints; .long 1, 2, 3",
            "offset 0x0: not an array of struct unwind_hint",
        ),
    ] {
        let source =
            format!("{macros}.type f, @function; f: nop; {code}\nnop; .text; .size f, 1\n");
        let object = scratch.cc("bad.s", &source, &["-c"]).expect("cc");

        let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
        command.args(["tables", "generate"]).arg(&object);
        let refused = run(command.args(["--to", "orc:6.4", "-o"]).arg(&out));

        let text = refused.expect_err("the hints are wrong");
        assert!(text.contains(wanted), "{code}: {text}");
        assert!(text.contains(".discard.unwind_hints"), "{code}: {text}");

        // Nothing is written.
        assert!(!out.exists());
    }
}

/// The headers of an installed kernel (`linux-headers`), or of `UNWIND_SIM_HEADERS`.
fn headers() -> Option<PathBuf> {
    let has = |folder: &PathBuf| folder.join("arch/x86/include/asm/unwind_hints.h").exists();
    if let Some(folder) = std::env::var_os("UNWIND_SIM_HEADERS") {
        return Some(PathBuf::from(folder)).filter(has);
    }
    let entries = std::fs::read_dir("/usr/src")
        .into_iter()
        .flatten()
        .flatten();
    entries.map(|entry| entry.path()).find(has)
}

const KERNEL_MACROS: &str = r#"
#define __ASSEMBLY__ 1
#define CONFIG_OBJTOOL 1
#define CONFIG_STACK_VALIDATION 1
#include <asm/unwind_hints.h>
    .text
entry:
    UNWIND_HINT_IRET_REGS
    push %rax
    nop
    UNWIND_HINT_REGS
    push %rdi
    nop
    UNWIND_HINT_REGS base=%rdi extra=0
    nop
    UNWIND_HINT_FUNC
    push %rbx
    pop %rbx
    ret
    .size entry, . - entry
"#;

#[test]
fn hints_of_kernel_headers_are_honoured() {
    const NAME: &str = "hints_of_kernel_headers_are_honoured";
    let Some(headers) = headers() else {
        return skip(
            NAME,
            "no kernel headers with unwind hints; set UNWIND_SIM_HEADERS",
        );
    };

    let include = |folder: &str| format!("-I{}", headers.join(folder).display());
    let scratch = Scratch::new();

    // A header that the kernel's build generates, and that assembly needs nothing of.
    std::fs::create_dir(scratch.path("asm")).expect("the folder is writable");
    std::fs::write(scratch.path("asm/rwonce.h"), "").expect("the folder is writable");
    let folders = [
        include("arch/x86/include"),
        include("include"),
        format!("-I{}", scratch.path("").display()),
    ];

    let args: Vec<&str> = folders.iter().map(String::as_str).chain(["-c"]).collect();
    let object = scratch.cc("headers.S", KERNEL_MACROS, &args).expect("cc");

    // The types of 6.4 are in a header of their own.
    let is_new = headers.join("include/linux/objtool_types.h").exists();
    let format = if is_new { "orc:6.4" } else { "orc:5.12" };
    let rows = write(&object, format, &scratch.path("out.o"));

    let wanted = [
        "entry iret cfa=rsp",
        "entry+0x1 iret cfa=rsp+8",
        "entry+0x2 pt_regs cfa=rsp",
        "entry+0x3 pt_regs cfa=rsp+8",
        "entry+0x5 call cfa=rsp+8",
        "entry+0x6 call cfa=rsp+16",
        "entry+0x7 call cfa=rsp+8",
        "? undefined",
    ];

    // At +0x4 the registers are where rdi points.
    let lossless: Vec<&String> = rows.iter().filter(|row| !row.contains("+0x4 ")).collect();
    assert_eq!(lossless, wanted, "{rows:?}");
}

/// What objtool makes of the same hints.
#[test]
fn objtools_rows_of_hints_are_the_same() {
    const NAME: &str = "objtools_rows_of_hints_are_the_same";
    let tool = std::env::var_os("UNWIND_SIM_OBJTOOL").unwrap_or_else(|| "objtool".into());
    if Command::new(&tool).arg("--help").output().is_err() {
        return skip(NAME, "objtool is not installed; set UNWIND_SIM_OBJTOOL");
    }
    let scratch = Scratch::new();
    let mut compared = 0;
    for kernel in KERNELS {
        let source = source(kernel);
        let object = scratch.cc("objtool.s", &source, &["-c"]).expect("cc");
        // An objtool knows the hints of its own kernel only.
        let made = Command::new(&tool).arg("--orc").arg(&object).output();
        let target = Target::from_name(kernel.format).expect("a format");
        let is_its_own = unwind_sim_objtool_is(&object, kernel.format);
        if made.is_ok_and(|made| made.status.success()) && is_its_own {
            let found = against(&object, Boundaries::Symbols, target).expect("it has ORC");
            assert_eq!(same(&found), found.total(), "{}", told(&found));
            compared += 1;
        }
    }
    assert!(compared > 0, "objtool is of a known kernel");
}

/// Whether the ORC that objtool has written is of this format: since 6.4 it has a header.
fn unwind_sim_objtool_is(object: &Path, format: &str) -> bool {
    let file = super::open(object);
    let has_header = file.section_range(".orc_header").is_some();
    match format {
        "orc:5.12" => !has_header,
        "orc:6.4" => has_header,
        _ => false,
    }
}
