//! Damaged files: every byte changed, every length cut.

use crate::common::compiler::Scratch;
use crate::common::skip::skip;
use crate::tables_dump::corpus;
use std::sync::Arc;
use unwind_sim_tables::diff::{Input, builds, diff};
use unwind_sim_tables::dump::{Filter, orc, readelf, sframe};
use unwind_sim_tables::file::File;
use unwind_sim_tables::table::{KINDS, Table};

/// Reads and writes everything that a file has. Errors are fine.
fn exercise(bytes: Vec<u8>) {
    let Ok(file) = File::read("damaged", Arc::new(bytes)) else {
        return;
    };
    let sink = std::io::sink;
    readelf::write(&file, &KINDS, &Filter::ALL, sink()).expect("a sink");
    sframe::write(&file, &Filter::ALL, sink()).expect("a sink");
    orc::write(&file, None, &Filter::ALL, sink()).expect("a sink");
    let tables = KINDS.iter().filter_map(|kind| Table::read(&file, *kind));
    let tables: Vec<Table> = tables.collect();
    for table in &tables {
        let rows = table.functions().iter().map(|f| table.rows(f).len());
        assert!(rows.sum::<usize>() < 1 << 20);
        for other in &tables {
            let inputs = [table, other].map(|table| Input { file: &file, table });
            diff(inputs[0], inputs[1]);
            builds::diff(inputs[0], inputs[1]);
        }
    }
}

/// Changes every byte of the file that is not zero or follows one that is not, then cuts it.
fn damage(bytes: &[u8]) {
    exercise(bytes.to_vec());
    for at in 0..bytes.len() {
        let is_padding = bytes[at.saturating_sub(1)..=at]
            .iter()
            .all(|&byte| byte == 0);
        if is_padding {
            continue;
        }
        for change in [0xff, 0x80, 0x01] {
            let mut changed = bytes.to_vec();
            changed[at] ^= change;
            exercise(changed);
        }
    }
    for len in (0..bytes.len()).step_by(7) {
        exercise(bytes[..len].to_vec());
    }
}

const SOURCE: &str = "
    .text
f:  .cfi_startproc
    push %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset rbp, -16
    .cfi_remember_state
    pop %rbp
    .cfi_def_cfa_offset 8
    ret
    .cfi_restore_state
    .cfi_escape 0x0f,3,0x76,0x78,6
    nop
    .cfi_endproc
    .section .orc_unwind_ip, \"a\"
    .long .text + 0 - .
    .section .orc_unwind, \"a\"
    .short 8, 0, 0x0205
";

#[test]
fn a_damaged_object_harms_nobody() {
    let name = "a_damaged_object_harms_nobody";
    let scratch = Scratch::new();
    let object = scratch.cc("damage.s", SOURCE, &["-c", "-Wa,--gsframe"]);
    let object = object.or_else(|_| scratch.cc("damage.s", SOURCE, &["-c"]));
    let Ok(path) = object else {
        return skip(name, "cc cannot assemble");
    };
    damage(&std::fs::read(path).expect("readable"));
}

#[test]
fn a_damaged_program_harms_nobody() {
    damage(&std::fs::read(corpus("sframe/v3flex")).expect("the corpus"));
}
