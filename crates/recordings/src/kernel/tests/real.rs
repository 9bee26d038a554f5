//! Real kernels. Needs `UNWIND_SIM_SLOW=1`, and `UNWIND_SIM_KERNELS` set to a folder with
//! `vmlinuz-VERSION`, `System.map-VERSION` (the one printed by nm; on Debian in the `-dbg`
//! package), and optionally modules below it.

use crate::input_file::InputFile;
use crate::kernel::{KernelErrorKind, ModuleLoad, OpenOptions, SymbolSource, open, open_module};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use unwind_sim_unwind::orc::Index;

#[path = "../../../tests/common/skip.rs"]
mod skip;

const SLOW: &str = "UNWIND_SIM_SLOW";
const FOLDER: &str = "UNWIND_SIM_KERNELS";

/// The images and System.map files in the folder.
fn kernels(test: &str) -> Vec<(PathBuf, PathBuf)> {
    let Some(folder) = std::env::var_os(FOLDER).filter(|_| std::env::var_os(SLOW).is_some()) else {
        skip::skip(test, format_args!("slow; set {SLOW}=1 and {FOLDER}"));
        return Vec::new();
    };
    let entries = std::fs::read_dir(folder).expect("the folder").flatten();
    let found = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let version = name.strip_prefix("vmlinuz-")?;
        Some((
            entry.path(),
            entry.path().with_file_name(format!("System.map-{version}")),
        ))
    });
    let found: Vec<_> = found.collect();
    assert!(!found.is_empty(), "{FOLDER} has no vmlinuz-VERSION");
    found
}

fn opened(path: &Path) -> InputFile {
    InputFile::open(path).expect("a file")
}

#[test]
fn kallsyms_of_a_stripped_kernel_are_those_of_system_map() {
    for (vmlinuz, map) in kernels("kallsyms_of_a_stripped_kernel_are_those_of_system_map") {
        let own = open(&opened(&vmlinuz), &OpenOptions::default()).expect("a kernel");
        assert_eq!(own.symbol_source, Some(SymbolSource::Kallsyms));

        let options = OpenOptions {
            system_map: Some(opened(&map)),
            ..OpenOptions::default()
        };
        let told = open(&opened(&vmlinuz), &options).expect("a kernel");
        assert_eq!(own.image.symbols(), told.image.symbols(), "code");

        // kallsyms has neither absolute symbols nor, before 6.2, its own, and marks per-CPU symbols
        // as absolute. That of 5.10 has compiler-generated labels.
        let own_all: BTreeSet<_> = own.symbols.iter().map(|s| (s.address, s.name)).collect();
        let told_all: BTreeSet<_> = told.symbols.iter().map(|s| (s.address, s.name)).collect();
        let absolute = told
            .symbols
            .iter()
            .filter(|s| matches!(s.kind, b'a' | b'A'));
        let absolute: BTreeSet<_> = absolute.map(|s| (s.address, s.name)).collect();

        let missing: Vec<_> = told_all.difference(&own_all).collect();
        let missing: Vec<_> = missing
            .into_iter()
            .filter(|s| {
                !absolute.contains(s) && !s.1.starts_with("kallsyms_") && !s.1.starts_with(".L")
            })
            .collect();
        assert!(missing.is_empty(), "{missing:x?}");

        let added = own_all.difference(&told_all);
        let added: Vec<_> = added.filter(|s| !s.1.starts_with(".L")).collect();
        assert!(added.is_empty(), "{added:x?}");

        let (code, all) = (own.image.symbols().len(), own.symbols.len());
        println!(
            "{}: {code} symbols of code, {all} in all",
            vmlinuz.display()
        );
    }
}

#[test]
fn orc_tables_are_whole() {
    for (vmlinuz, _) in kernels("orc_tables_are_whole") {
        let kernel = open(&opened(&vmlinuz), &OpenOptions::default()).expect("a kernel");
        let index = Index::new(&kernel.image, kernel.encoding).expect("a good table");
        let index = index.expect("a table");
        let table = index.table().expect("a table");
        assert!(
            table
                .table()
                .order(index.encoding().expect("known").layout)
                .is_none()
        );
        let first = table.ip(0).expect("an entry");
        assert!(kernel.image.is_text(first), "{first:x}");
        println!("{}: {} entries", vmlinuz.display(), table.len());
    }
}

/// Collects all modules below `folder`.
fn modules(folder: &Path, depth: usize, out: &mut Vec<PathBuf>) {
    const DEPTH_MAX: usize = 16;
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() && depth < DEPTH_MAX {
            modules(&path, depth + 1, out);
        } else if path
            .extension()
            .is_some_and(|e| e == "ko" || e == "xz" || e == "zst")
        {
            out.push(path);
        }
    }
}

#[test]
fn every_entry_of_every_module_lies_in_its_code() {
    const AT: u64 = 0xffff_ffff_c000_0000;
    let (mut files, mut count, mut without_code) = (Vec::new(), 0, 0);
    if let Some((vmlinuz, _)) = kernels("every_entry_of_every_module_lies_in_its_code").first() {
        modules(vmlinuz.parent().expect("a folder"), 0, &mut files);
    }

    for path in &files {
        let module = match open_module(&opened(path), &ModuleLoad::Text(AT)) {
            Ok(module) => module,
            // A few contain only data.
            Err(error) if error.what == KernelErrorKind::NotLoaded => {
                without_code += 1;
                continue;
            }
            Err(error) => panic!("{error}"),
        };

        let index = Index::new(&module.image, None).expect("a good table");
        // A module may have no ORC table.
        let Some(index) = index else { continue };
        let table = index.table().expect("a table");
        let ips = (0..table.len()).map(|i| table.ip(i).expect("an entry"));
        let ips: Vec<u64> = ips.collect();

        // In the file they are not: the kernel sorts them when it loads a module
        // (`unwind_module_init`).
        assert!(ips.is_sorted(), "{}", path.display());

        // A section's last entry is at its end.
        let text = module.image.text();
        let holds = |ip: &u64| text.iter().any(|r| r.start <= *ip && *ip <= r.end);
        assert!(ips.iter().all(holds), "{}", path.display());

        let functions = module.image.symbols().iter().filter(|s| s.size > 0);
        let covered = |s: u64| ips.first().is_some_and(|first| *first <= s);
        assert!(
            functions.clone().all(|s| covered(s.address)),
            "{}",
            path.display()
        );

        count += ips.len();
    }

    println!(
        "{} modules, {without_code} without code, {count} entries",
        files.len()
    );
}
