//! Compares what is read from this machine's programs and libraries with the output of `readelf`.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use unwind_sim_unwind::elf::{self, Elf, ReadOptions};
use unwind_sim_unwind::image::SectionKind;

fn readelf(arguments: &[&str], path: &Path) -> String {
    let out = Command::new("readelf")
        .args(arguments)
        .arg(path)
        .env("LC_ALL", "C")
        .output();
    let out = out.expect("readelf (binutils) must be installed: it is the authority here");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn hex(word: &str) -> u64 {
    u64::from_str_radix(word.trim_start_matches("0x"), 16).expect("a hexadecimal number")
}

/// (name, address, offset, size) of each section listed by readelf.
fn sections(path: &Path) -> Vec<(String, u64, u64, u64)> {
    let text = readelf(&["-SW"], path);
    let rows = text
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix('['));
    let rows = rows.filter_map(|row| row.split_once(']'));
    rows.filter_map(|(_, row)| {
        let words: Vec<&str> = row.split_whitespace().collect();
        let [name, _, address, offset, size, ..] = words[..] else {
            return None;
        };
        name.starts_with('.')
            .then(|| (name.into(), hex(address), hex(offset), hex(size)))
    })
    .collect()
}

fn check_sections(path: &Path, bytes: &[u8], elf: &Elf) -> usize {
    let mut found = 0;
    for (name, address, offset, size) in sections(path) {
        let kind = SectionKind::ALL.into_iter().find(|k| k.as_str() == name);
        let Some(kind) = kind else { continue };
        if matches!(kind, SectionKind::Text | SectionKind::Got) {
            continue;
        }
        let mut ours = elf.parts.sections.iter().filter(|s| s.kind == kind);
        let ours = ours
            .next()
            .unwrap_or_else(|| panic!("{name} of {}", path.display()));
        assert_eq!(ours.address, address, "{name} of {}", path.display());
        let (start, size) = (offset as usize, size as usize);
        assert!(
            ours.data[..] == bytes[start..start + size],
            "{name} of {}",
            path.display()
        );
        found += 1;
    }
    found
}

fn check_segments(path: &Path, elf: &Elf) {
    let text = readelf(&["-lW"], path);
    let rows = text
        .lines()
        .filter(|line| line.trim_start().starts_with("LOAD"));

    let theirs: Vec<_> = rows
        .map(|row| {
            let words: Vec<&str> = row.split_whitespace().collect();
            // Type, offset, virtual and physical address, size in the file and in memory, then
            // flags.
            let executable = words[6..].iter().any(|word| word.contains('E'));
            (
                hex(words[1]),
                hex(words[2]),
                hex(words[4]),
                hex(words[5]),
                executable,
            )
        })
        .collect();

    let ours = elf.segments.iter();
    let ours: Vec<_> = ours
        .map(|s| {
            (
                s.offset,
                s.address,
                s.file_size,
                s.memory_size,
                s.is_executable(),
            )
        })
        .collect();

    assert_eq!(ours, theirs, "{}", path.display());
    for range in &elf.parts.text {
        let of = |s: &&(u64, u64, u64, u64, bool)| (s.1, s.1 + s.3) == (range.start, range.end);
        assert!(theirs.iter().any(|s| of(&s) && s.4), "{}", path.display());
    }
}

/// The size to compare: `_init` and `_fini` state none, and are given that of their section.
fn stated(name: &str, size: u64) -> u64 {
    match name {
        "_init" | "_fini" => 0,
        _ => size,
    }
}

/// Checks that all functions listed by readelf are found, and nothing that it does not list.
fn check_symbols(path: &Path, elf: &Elf) -> usize {
    let text = readelf(&["-sW"], path);

    let table = if elf.has_symtab { ".symtab" } else { ".dynsym" };
    let mut inside = false;
    let (mut functions, mut all) = (BTreeSet::new(), BTreeSet::new());

    for line in text.lines() {
        if line.starts_with("Symbol table") {
            inside = line.contains(&format!("'{table}'"));
        }

        // Number, value, size, type, binding, visibility, section, name.
        let words: Vec<&str> = line.split_whitespace().collect();
        if !inside || words.len() < 8 || !words[0].ends_with(':') || words[0] == "Num:" {
            continue;
        }

        // Newer versions put [<other>: ..] in between; a dynamic symbol has its version after the
        // name.
        let name = words[7..]
            .iter()
            .find(|w| !w.starts_with('[') && !w.ends_with(']'));
        let name = name.map_or("", |name| name.split('@').next().unwrap_or(""));

        // Readelf prints large sizes in hexadecimal.
        let size = match words[2].strip_prefix("0x") {
            Some(hex_size) => hex(hex_size),
            None => words[2].parse().expect("a size"),
        };

        let symbol = (hex(words[1]), stated(name, size), name.to_owned());
        if words[6] != "UND" && matches!(words[3], "FUNC" | "IFUNC") && !name.is_empty() {
            functions.insert(symbol.clone());
        }

        all.insert(symbol);
    }

    let ours: BTreeSet<_> = elf
        .parts
        .symbols
        .iter()
        // Linkage tables have no symbols: their entries are named here, the rest after the section.
        .filter(|s| !s.name.ends_with("@plt") && !s.name.starts_with(".plt"))
        .map(|s| {
            let name = s.name.split('@').next().unwrap_or("");
            (s.address, stated(name, s.size), name.to_owned())
        })
        .collect();

    let missing: Vec<_> = functions.difference(&ours).take(3).collect();
    assert!(
        missing.is_empty(),
        "{}: not found: {missing:x?}",
        path.display()
    );

    // Where no symbol names them, `.init` and `.fini` are named as start files name them.
    let is_section = |name: &str| matches!(name, "_init" | "_fini");
    let invented = ours.difference(&all).filter(|s| !is_section(&s.2));
    let invented: Vec<_> = invented.take(3).collect();
    assert!(
        invented.is_empty(),
        "{}: made up: {invented:x?}",
        path.display()
    );

    functions.len()
}

fn check_build_id(path: &Path, elf: &Elf) {
    let text = readelf(&["-nW"], path);
    let theirs = text
        .lines()
        .find_map(|line| Some(line.split_once("Build ID: ")?.1));
    let ours: String = elf
        .parts
        .build_id
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    assert_eq!(ours, theirs.unwrap_or(""), "{}", path.display());
}

/// Checks that a program or an interpreter has the entry point that readelf prints, and that a
/// library has none.
fn check_entry(path: &Path, elf: &Elf) {
    let header = readelf(&["-hW"], path);
    let line = |start: &str| {
        let line = header
            .lines()
            .find_map(|l| l.trim_start().strip_prefix(start));
        line.map_or("", str::trim)
    };
    let is_program = line("Type:").starts_with("EXEC")
        || readelf(&["-lW"], path).contains("INTERP")
        || readelf(&["-dW"], path).contains(" PIE");
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let starts = is_program || name.starts_with("ld-");
    let entry = line("Entry point address:").trim_start_matches("0x");
    let theirs = Some(hex(entry)).filter(|&entry| starts && entry != 0);
    let mut sections = elf.parts.sections.iter();
    let ours = sections.find(|s| s.kind == SectionKind::Entry);
    assert_eq!(ours.map(|s| s.address), theirs, "{}", path.display());
}

/// Programs that exist everywhere, and this test itself (with a large symbol table).
fn files() -> Vec<std::path::PathBuf> {
    let mut out = vec![std::env::current_exe().expect("our own path")];
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let libraries = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]));
    let libraries: BTreeSet<_> = libraries.filter(|path| path.contains(".so")).collect();
    out.extend(libraries.into_iter().map(Into::into));
    let programs = [
        "/bin/sh",
        "/bin/ls",
        "/usr/bin/git",
        "/usr/bin/perl",
        "/usr/bin/python3",
    ];
    out.extend(
        programs
            .map(Into::into)
            .into_iter()
            .filter(|path: &std::path::PathBuf| path.exists()),
    );
    out
}

#[test]
fn sections_segments_symbols_and_build_id_are_those_of_readelf() {
    let (mut sections, mut symbols) = (0, 0);
    for path in files() {
        let bytes = std::fs::read(&path).expect("readable");
        let name = path.to_string_lossy();
        let elf = elf::read(&name, Arc::new(bytes.clone()), &ReadOptions::default());
        let elf = elf.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(elf.problems, [], "{name}");
        sections += check_sections(&path, &bytes, &elf);
        symbols += check_symbols(&path, &elf);
        check_segments(&path, &elf);
        check_build_id(&path, &elf);
        check_entry(&path, &elf);
    }
    assert!(sections >= 4, "{sections} sections compared");
    assert!(symbols > 1000, "{symbols} symbols compared");
}

/// `objdump` gives the same names to the entries of the linkage table.
#[test]
fn linkage_table_names_are_those_of_objdump() {
    let mut compared = 0;

    for path in files() {
        let out = Command::new("objdump")
            .args(["-d", "-j", ".plt", "-j", ".plt.sec", "-j", ".plt.got"])
            .arg(&path)
            .output()
            .expect("objdump (binutils) must be installed: it is the authority here");

        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let rows = text.lines().filter_map(|line| line.strip_suffix("@plt>:"));
        let theirs: BTreeSet<_> = rows
            .filter_map(|row| row.split_once(" <"))
            // `*ABS*+0x1234@plt` and `name-0x10@plt` are not the name of a slot.
            .filter(|(_, name)| !name.starts_with('*') && !name.contains("-0x"))
            .map(|(address, name)| {
                (
                    hex(address),
                    name.split('@').next().unwrap_or("").to_owned(),
                )
            })
            .collect();

        // Every name that objdump has must be ours, too; we may have more.
        let bytes = std::fs::read(&path).expect("readable");
        let elf = elf::read("", Arc::new(bytes), &ReadOptions::default()).expect("read above");
        let ours = elf.parts.symbols.iter();
        let ours: BTreeSet<_> = ours
            .filter_map(|s| Some((s.address, s.name.strip_suffix("@plt")?.to_owned())))
            .collect();

        let missing: Vec<_> = theirs.difference(&ours).take(3).collect();
        assert!(missing.is_empty(), "{}: {missing:x?}", path.display());
        compared += theirs.len();
    }

    assert!(compared > 10, "{compared} names compared");
}

/// A real file, damaged in the parts that are read: header, program headers, notes, section
/// headers.
#[test]
fn a_damaged_real_file_never_panics() {
    let path = Path::new("/bin/ls");
    let bytes = std::fs::read(path).expect("readable");
    let shoff = u64::from_le_bytes(bytes[40..48].try_into().expect("8 bytes")) as usize;
    let interesting = (0..0x400).chain(shoff..bytes.len());
    let mut damaged = bytes.clone();
    for at in interesting.step_by(3) {
        for value in [0, 0x7f, 0xff, bytes[at] ^ 0x10] {
            damaged[at] = value;
            let _ = elf::read("", Arc::new(damaged.clone()), &ReadOptions::default());
        }
        damaged[at] = bytes[at];
    }
    for len in (0..bytes.len()).step_by(1009) {
        let _ = elf::read("", Arc::new(bytes[..len].to_vec()), &ReadOptions::default());
    }
}
