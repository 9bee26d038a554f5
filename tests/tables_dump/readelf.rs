//! `.eh_frame` and `.debug_frame` against `readelf --debug-dump=frames-interp`.

use crate::common::compiler::{Scratch, text_of};
use crate::common::skip::skip;
use crate::tables_dump::{first_difference, open, text};
use std::io::Read;
use std::path::{Path, PathBuf};
use unwind_sim_tables::dump::readelf::write;
use unwind_sim_tables::dump::{DumpSummary, Filter};
use unwind_sim_unwind::row::TableKind;

const KINDS: [TableKind; 2] = [TableKind::EhFrame, TableKind::DebugFrame];

/// `N`: not the tables of separate debug files.
const ARGS: [&str; 1] = ["-wFN"];

fn ours(path: &Path) -> (String, DumpSummary) {
    text(path, |file, filter, out| write(file, &KINDS, filter, out))
}

/// What readelf prints, without `.eh_frame_hdr`, which it shows first since 2.43.
fn without_index(text: &str) -> String {
    let start = "Contents of the ";
    let sections = text.split_inclusive(start);
    let is_index = |section: &&str| section.starts_with(".eh_frame_hdr section:");
    let sections: Vec<&str> = sections.collect();
    match sections.iter().position(is_index) {
        // The heading of the next section ends this one.
        Some(at) => [&sections[..at], &sections[at + 1..]].concat().concat(),
        None => text.to_owned(),
    }
}

/// Compares the text for a file with readelf's. `None` if readelf is not installed.
fn compare(path: &Path) -> Option<Result<DumpSummary, String>> {
    let theirs = without_index(&text_of("readelf", &ARGS, path)?);
    let (ours, dumped) = ours(path);
    Some(match first_difference(&ours, &theirs) {
        Some(difference) => Err(format!("{}: {difference}", path.display())),
        None => Ok(dumped),
    })
}

#[test]
fn rows_of_a_debian_systems_files_are_readelfs() {
    let name = "rows_of_a_debian_systems_files_are_readelfs";
    let files = [
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib64/ld-linux-x86-64.so.2",
        "/bin/sh",
        "/usr/bin/env",
        "/usr/bin/perl",
    ];
    for file in files {
        let path = Path::new(file);
        if !path.exists() {
            skip(name, format_args!("there is no {file}"));
            continue;
        }
        match compare(path) {
            None => return skip(name, "readelf is not installed"),
            Some(compared) => {
                let dumped = compared.expect("as readelf");
                assert!(dumped.rows > 100, "{file}: {dumped:?}");
            }
        }
    }
}

/// A rule of every kind, for registers of every kind.
const EVERY_RULE: &str = "
    .text
f:  .cfi_startproc
    push %rbp
    .cfi_adjust_cfa_offset 8
    .cfi_undefined rip
    nop
    .cfi_same_value rbx
    .cfi_register r12, rax
    nop
    .cfi_val_offset r13, -24
    .cfi_def_cfa_offset 300000
    nop
    .cfi_remember_state
    .cfi_offset xmm3, -160
    .cfi_offset st1, -168
    .cfi_offset 59, -176
    nop
    .cfi_restore_state
    .cfi_restore rbx
    .cfi_restore r14
    nop
    .cfi_offset rip, -16
    .cfi_def_cfa_register r10
    nop
    .cfi_escape 0x0f,3,0x76,0x78,6          # def_cfa_expression
    .cfi_escape 0x10,3,2,0x76,0x78          # expression, rbx
    .cfi_escape 0x16,15,2,0x76,0x70         # val_expression, r15
    nop
    .cfi_def_cfa rsp, 16
    .cfi_escape 0x2e,0x10                   # args_size
    .cfi_escape 0x13,2                      # def_cfa_offset_sf
    nop
    .cfi_escape 0x12,6,0x7e                 # def_cfa_sf
    .cfi_escape 0x11,14,3                   # offset_extended_sf
    .cfi_escape 0x15,13,0x7d                # val_offset_sf
    .skip 300, 0x90
    .cfi_restore rip
    .skip 70000, 0x90
    .cfi_def_cfa rsp, 8
    ret
    .cfi_endproc
g:  .cfi_startproc
    .cfi_signal_frame
    nop
    .cfi_endproc
h:  .cfi_startproc simple
    nop
    .cfi_endproc
i:  .cfi_startproc simple
    .cfi_def_cfa rsp, 8
    nop
    .cfi_endproc
    .section .text.other, \"ax\"
    nop
j:  .cfi_startproc
    .cfi_personality 0x9b, p
    .cfi_lsda 0x1b, l
    push %rax
    .cfi_def_cfa_offset 16
    ret
    .cfi_endproc
    .data
p:  .quad 0
l:  .quad 0
";

const PROGRAM: &str = "
int g(int *, ...);
struct __attribute__((aligned(64))) wide { int x[64]; };
int f(int n) { int a[n]; return g(a) + g(a); }
int d(int n) { struct wide w; int a[n]; return g(a, &w) + g(w.x); }
void *s(int n) { return n > 2 ? __builtin_alloca(n), g(&n) ? (void *)0 : 0 : 0; }
int main(void) { return f(3) + d(4) + !s(1); }
int g(int *p, ...) { return *p; }
";

#[test]
fn rows_of_objects_made_here_are_readelfs() {
    let name = "rows_of_objects_made_here_are_readelfs";
    let scratch = Scratch::new();

    // Every instruction of CFI by hand, and what compilers make of a program: objects, which have
    // relocations, and linked files.
    let sources: [(&str, &str, &[&[&str]]); 2] = [
        ("every.s", EVERY_RULE, &[&["-c"], &["-shared"]]),
        (
            "program.c",
            PROGRAM,
            &[
                &["-c", "-O0"],
                &["-c", "-O2", "-ffunction-sections"],
                &["-O2", "-g", "-fno-asynchronous-unwind-tables"],
                &["-O1", "-fno-omit-frame-pointer", "-static"],
                &["-c", "-g", "-fno-asynchronous-unwind-tables"],
            ],
        ),
    ];

    for (file, source, variants) in sources {
        for args in variants {
            let Ok(path) = scratch.cc(file, source, args) else {
                skip(name, format_args!("cc cannot build {file} with {args:?}"));
                continue;
            };
            match compare(&path) {
                None => return skip(name, "readelf is not installed"),
                Some(compared) => {
                    let dumped = compared.unwrap_or_else(|error| panic!("{args:?} {error}"));

                    // A comparison of nothing would pass.
                    assert!(dumped.rows > 10, "{args:?} {dumped:?}");
                }
            }
        }
    }
}

/// Two functions with a terminator between them. The second entry is 0x100 bytes long, so that the
/// lowest byte of its length is zero.
const BEHIND_A_TERMINATOR: &str = "
    .text
    nop
f:  nop
    .section .eh_frame, \"a\", @progbits
cie:
    .long 1f - 0f
0:  .long 0
    .byte 1
    .asciz \"zR\"
    .uleb128 1
    .sleb128 -8
    .byte 16
    .uleb128 1
    .byte 0x1b
    .byte 0x0c, 7, 8, 0x90, 1
    .balign 4
1:  .long 0
    .long 0x100
2:  .long 2b - cie
    .long f - .
    .long 1
    .uleb128 0
    .byte 0x0e, 16
    .skip 0x100 - (. - 2b)
";

#[test]
fn an_entry_behind_a_terminator_is_not_lost() {
    // readelf 2.40 skips all zero bytes after a terminator, also the first one of the next entry's
    // length, and reads the rest as nonsense. The entry's length is 0x100; llvm-dwarfdump has it.
    let name = "an_entry_behind_a_terminator_is_not_lost";
    let scratch = Scratch::new();
    let Ok(path) = scratch.cc("terminator.s", BEHIND_A_TERMINATOR, &["-c"]) else {
        return skip(name, "cc cannot assemble");
    };
    let (ours, dumped) = ours(&path);
    assert_eq!(dumped.functions, 1, "{ours}");
    assert!(
        ours.contains("FDE cie=00000000 pc=0000000000000001..0000000000000002\n"),
        "{ours}"
    );
    assert!(
        ours.contains("0000000000000001 rsp+16   c-8   \n"),
        "{ours}"
    );
}

#[test]
fn a_filter_shows_the_function_and_its_cie() {
    let name = "a_filter_shows_the_function_and_its_cie";
    let scratch = Scratch::new();
    let Ok(path) = scratch.cc("every.s", EVERY_RULE, &["-c"]) else {
        return skip(name, "cc cannot assemble");
    };
    let file = open(&path);
    let symbols = file.image().symbols();
    let j = symbols.iter().find(|s| s.name == "j").expect("j");
    let first_byte = j.address..j.address + 1;
    let filter = Filter::ranges(vec![first_byte]);
    let mut out = Vec::new();
    let dumped = write(&file, &KINDS, &filter, &mut out).expect("a vector");
    let out = String::from_utf8(out).expect("text");
    assert_eq!(dumped.functions, 1, "{out}");
    assert_eq!(out.matches(" CIE \"zPLR\"").count(), 1, "{out}");
    assert!(
        out.contains("pc=0000000000000001..0000000000000003"),
        "{out}"
    );
}

/// All regular files below a folder, in order.
fn files(folder: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        match path.symlink_metadata() {
            Ok(data) if data.is_dir() => files(&path, out),
            Ok(data) if data.is_file() => out.push(path),
            _ => {}
        }
    }
}

fn is_x86_64_elf(path: &Path) -> bool {
    let mut head = [0; 20];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && head.starts_with(b"\x7fELF\x02\x01") && head[18..] == [62, 0]
}

#[test]
fn every_row_of_this_machine_is_readelfs() {
    let name = "every_row_of_this_machine_is_readelfs";
    if std::env::var_os("UNWIND_SIM_SLOW").is_none() {
        return skip(name, "slow; set UNWIND_SIM_SLOW=1");
    }

    let mut paths = Vec::new();
    // Whatever is installed: compilers and languages differ in the rows that they write.
    for folder in ["/usr/bin", "/usr/lib/x86_64-linux-gnu"] {
        files(Path::new(folder), &mut paths);
    }

    let (mut compared, mut functions, mut rows) = (0, 0, 0);
    // Gathered, so that one run of this slow test shows all of them.
    let mut different = Vec::new();
    for path in paths.iter().filter(|path| is_x86_64_elf(path)) {
        match compare(path) {
            None => return skip(name, "readelf is not installed"),
            Some(Ok(dumped)) => {
                compared += 1;
                functions += dumped.functions;
                rows += dumped.rows;
            }
            Some(Err(difference)) => different.push(difference),
        }
    }

    println!("{compared} files, {functions} FDEs, {rows} rows as readelf");
    assert_eq!(different, [""; 0]);

    // So that a test that finds no files does not pass.
    assert!(compared > 100, "{compared}");
}
