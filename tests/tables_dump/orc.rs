//! ORC entries against `objtool --dump=orc`.
//!
//! objtool is in Debian's package linux-kbuild-6.1; `UNWIND_SIM_OBJTOOL` names it, and
//! `UNWIND_SIM_KERNELS` a folder with modules (`.ko`) of the same version. Without them the text
//! is compared with the form of objtool's source.

use crate::common::compiler::{Scratch, text_of};
use crate::common::skip::skip;
use crate::tables_dump::{first_difference, text};
use std::path::{Path, PathBuf};
use unwind_sim_tables::dump::DumpSummary;
use unwind_sim_tables::dump::orc::write;

fn ours(path: &Path) -> (String, DumpSummary) {
    text(path, |file, filter, out| write(file, None, filter, out))
}

/// A module with entries of the layout of Linux 6.4: a function that pushes rbp, and its end.
const MODULE: &str = "
    .text
f:  nop
    push %rbp
    nop
    ret
    .section .orc_unwind_ip, \"a\"
    .long .text + 0 - .
    .long .text + 2 - .
    .long .text + 3 - .
    .long .text + 4 - .
    .section .orc_unwind, \"a\"
    .short 8, 0, 0x0205
    .short 16, -16, 0x0215
    .short 0, 0, 0x0b05
    .short 0, 0, 0
    .section .orc_header, \"a\"
    .byte 0xfe,0x5d,0x32,0xbf,0x58,0x1b,0xd6,0x3b,0x2c,0xa9
    .byte 0xa5,0xc6,0x5b,0xa5,0xa6,0x25,0xea,0xb3,0xfe,0x24
";

#[test]
fn entries_of_a_module_are_offsets_in_its_sections() {
    let name = "entries_of_a_module_are_offsets_in_its_sections";
    let scratch = Scratch::new();
    let Ok(path) = scratch.cc("module.s", MODULE, &["-c"]) else {
        return skip(name, "cc cannot assemble");
    };
    let (ours, _) = ours(&path);
    let want = "\
.text+0:type:call sp:sp+8 bp:(und) signal:0
.text+2:type:call sp:sp+16 bp:prevsp-16 signal:0
.text+3:type:regs sp:sp+0 bp:(und) signal:1
.text+4:type:(und) sp:(und) bp:(und) signal:0
";
    assert_eq!(ours, want);
}

fn modules(folder: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            modules(&path, out);
        } else if path.extension().is_some_and(|ending| ending == "ko") {
            out.push(path);
        }
    }
}

#[test]
fn entries_of_kernel_modules_are_objtools() {
    let name = "entries_of_kernel_modules_are_objtools";
    let (objtool, folder) = ("UNWIND_SIM_OBJTOOL", "UNWIND_SIM_KERNELS");
    let slow = std::env::var_os("UNWIND_SIM_SLOW");
    let set = slow.and_then(|_| std::env::var(objtool).ok().zip(std::env::var_os(folder)));
    let Some((objtool, folder)) = set else {
        let all = format!("slow; set UNWIND_SIM_SLOW=1, {objtool} and {folder}");
        return skip(name, all);
    };

    let mut paths = Vec::new();
    modules(Path::new(&folder), &mut paths);
    // Folders are listed in any order; the report has the same one each time.
    paths.sort();

    let (mut rows, mut compared, mut different) = (0, 0, Vec::new());
    for path in &paths {
        let theirs = text_of(&objtool, &["--dump=orc"], path).expect("objtool runs");
        let (ours, dumped) = ours(path);
        rows += dumped.rows;
        compared += 1;
        // Gathered, so that one run shows every module that differs.
        if let Some(difference) = first_difference(&ours, &theirs) {
            different.push(format!("{}: {difference}", path.display()));
        }
    }

    println!("{compared} modules, {rows} entries as objtool");
    assert_eq!(different, [""; 0]);

    // Without modules nothing was compared.
    assert!(rows > 0);
}
