//! Modules, assembled with the relocations that real modules have.

use crate::kernel::{KernelErrorKind, Module, ModuleLoad, module_from_bytes};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use unwind_sim_unwind::image::{Bytes, SectionKind};
use unwind_sim_unwind::orc::{Encoding, Index, Layout};

const SOURCE: &str = "
    .text
    .type first, @function
first: nop
    ret
    .size first, . - first
    .section .text.unlikely, \"ax\"
    .balign 16
    .type cold, @function
cold: ret
    .size cold, . - cold
    .section .init.text, \"ax\"
    .type init_module, @function
init_module: ret
    .size init_module, . - init_module

    .macro row place, sp, flags
    .section .orc_unwind_ip, \"a\"
    .long \\place - .
    .section .orc_unwind, \"a\"
    .word \\sp, 0, \\flags
    .endm
    row cold, 16, 0x205
    row .text + 2, 0, 0
    row .init.text, 32, 0x205
    row .text, 8, 0x205
    row .text + 1, 24, 0x205
";

fn assemble(source: &str, name: &str) -> Vec<u8> {
    let folder = std::env::temp_dir().join(format!("unwind-sim-module-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = |end: &str| folder.join(format!("{name}{end}"));
    std::fs::write(path(".s"), source).expect("written");
    let run = Command::new("as")
        .arg("-o")
        .args([path(".o"), path(".s")])
        .status();
    assert!(run.expect("as").success());
    let bytes = std::fs::read(path(".o")).expect("the object");
    for end in [".s", ".o"] {
        std::fs::remove_file(path(end)).expect("removed");
    }
    // The last test to finish removes it.
    let _ = std::fs::remove_dir(&folder);
    bytes
}

/// All entries of the table, sorted: load address and sp_offset.
fn rows(module: &Module) -> Vec<(u64, i16)> {
    let told = Some(Encoding::since_5_12(Layout::V6_4));
    let index = Index::new(&module.image, told).expect("a good table");
    let index = index.expect("a table");
    let table = index.table().expect("a table");
    let row = |position| {
        let stored = table.stored(position)?;
        let entry = table.table().entry(stored, Layout::V6_4)?.ok()?;
        Some((
            table.ip(position)?.wrapping_add(module.bias),
            entry.sp_offset,
        ))
    };
    (0..table.len()).map(|i| row(i).expect("a row")).collect()
}

const AT: u64 = 0xffff_ffff_c020_0000;

#[test]
fn a_table_is_relocated_to_the_address_of_text() {
    let bytes = Bytes::from_vec(assemble(SOURCE, "text"));
    let module = module_from_bytes("m", bytes, &ModuleLoad::Text(AT)).expect("a module");
    // .text.unlikely follows at its alignment; .init.text is dropped.
    let expected = [(AT, 8), (AT + 1, 24), (AT + 2, 0), (AT + 16, 16)];
    assert_eq!(rows(&module), expected);
    assert_eq!(module.range, AT..AT + 17);
    let name = |at: u64| {
        module
            .image
            .symbol(at - module.bias)
            .map(|s| s.name.as_str())
    };
    assert_eq!((name(AT + 1), name(AT + 16)), (Some("first"), Some("cold")));
    assert!(module.image.is_text(0) && !module.image.is_text(8));
    assert!(module.image.section(SectionKind::Text).is_some());
}

#[test]
fn sections_may_lie_anywhere() {
    let bytes = Bytes::from_vec(assemble(SOURCE, "sections"));
    let mut given = BTreeMap::from([(".text".to_owned(), AT + 0x5000)]);
    given.insert(".text.unlikely".to_owned(), AT);
    let load = ModuleLoad::Sections(given.clone());
    let module = module_from_bytes("m", bytes.clone(), &load).expect("a module");
    let expected = [
        (AT, 16),
        (AT + 0x5000, 8),
        (AT + 0x5001, 24),
        (AT + 0x5002, 0),
    ];
    assert_eq!(rows(&module), expected);
    given.remove(".text.unlikely");
    let load = ModuleLoad::Sections(given);
    let module = module_from_bytes("m", bytes.clone(), &load).expect("a module");
    assert_eq!(rows(&module), expected[1..]);
    let nowhere = ModuleLoad::Sections(BTreeMap::new());
    let error = module_from_bytes("m", bytes, &nowhere).expect_err("nowhere");
    assert_eq!(error.what, KernelErrorKind::NotLoaded);
}

#[test]
fn compressed_modules_are_unpacked() {
    let plain = assemble(SOURCE, "packed");
    let zstd = zstd::encode_all(&plain[..], 3).expect("in memory");
    let module = module_from_bytes("m", Bytes::from_vec(zstd), &ModuleLoad::Text(AT));
    assert_eq!(rows(&module.expect("a module")).len(), 4);
}

#[test]
fn other_files_are_not_modules() {
    let load = ModuleLoad::Text(AT);
    let refuse = |bytes| module_from_bytes("m", Bytes::from_vec(bytes), &load);

    let error = refuse(b"text".to_vec()).expect_err("text");
    assert_eq!(error.what, KernelErrorKind::NotModule);
    let program = std::fs::read(Path::new("/proc/self/exe")).expect("this test");
    let error = refuse(program).expect_err("a program");
    assert_eq!(error.what, KernelErrorKind::NotModule);

    // Eight bytes for each address, so there seem to be more addresses than entries.
    let other = SOURCE.replace(".long \\place - .", ".quad \\place");
    let error = refuse(assemble(&other, "other")).expect_err("another relocation");
    let KernelErrorKind::Section { section, .. } = error.what else {
        panic!("{error}");
    };
    assert_eq!(section, ".orc_unwind_ip");

    // The same section, but without the place that is subtracted.
    let other = SOURCE.replace(".long \\place - .", ".long \\place");
    let error = refuse(assemble(&other, "absolute")).expect_err("another relocation");
    let KernelErrorKind::Section { section, what, .. } = error.what else {
        panic!("{error}");
    };
    assert_eq!(
        (section, what),
        (
            ".rela.orc_unwind_ip",
            "a relocation that is not R_X86_64_PC32"
        )
    );
}
