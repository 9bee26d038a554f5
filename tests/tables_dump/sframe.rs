//! `.sframe` against `objdump --sframe`.

use crate::common::compiler::{Scratch, text_of};
use crate::common::skip::skip;
use crate::tables_dump::{corpus, first_difference, text};
use std::path::Path;
use std::sync::Arc;
use unwind_sim_tables::dump::sframe::write;
use unwind_sim_tables::dump::{DumpSummary, Filter};
use unwind_sim_tables::elf_write::{NewFile, NewFileSection};
use unwind_sim_tables::file::File;

fn ours(path: &Path) -> (String, DumpSummary) {
    text(path, |file, filter, out| write(file, filter, out))
}

/// What objdump prints, without the line that names the file.
fn without_heading(text: &str) -> &str {
    let start = text.find("Contents of").unwrap_or(0);
    &text[start..]
}

#[test]
fn files_are_shown_as_by_objdump() {
    for name in ["t_2.40", "t_2.46", "v3flex"] {
        let theirs = corpus(&format!("sframe/{name}.objdump.txt"));
        let theirs = std::fs::read_to_string(theirs).expect("its text");
        let (ours, _) = ours(&corpus(&format!("sframe/{name}")));
        assert_eq!(ours, without_heading(&theirs), "{name}");
    }
}

#[test]
fn bare_sections_of_every_version_are_shown_as_by_objdump() {
    let addresses = std::fs::read_to_string(corpus("sframe/addresses.txt")).expect("addresses");
    let mut versions = [0; 4];
    for line in addresses.lines() {
        let (name, address) = line.split_once(" 0x").expect("NAME 0xADDRESS");
        let address = u64::from_str_radix(address, 16).expect("hexadecimal");
        let bytes = std::fs::read(corpus(&format!("sframe/{name}.sframe.bin"))).expect("bytes");
        let theirs = std::fs::read_to_string(corpus(&format!("sframe/{name}.objdump.txt")));
        versions[usize::from(bytes[2])] += 1;
        let elf = with_section(".sframe", address, &bytes);
        let file = File::read(name, Arc::new(elf)).expect("an ELF file");
        let mut ours = Vec::new();
        let dumped = write(&file, &Filter::ALL, &mut ours).expect("a vector");
        assert_eq!(dumped.problem_count, 0, "{name}: {:?}", dumped.problems);
        let ours = String::from_utf8(ours).expect("text");
        assert_eq!(ours, without_heading(&theirs.expect("its text")), "{name}");
    }
    assert!(versions[1..].iter().all(|&count| count > 0), "{versions:?}");
}

/// A shared object that has only this section.
pub(super) fn with_section(name: &str, address: u64, bytes: &[u8]) -> Vec<u8> {
    let section = NewFileSection::new(name, bytes).at(address, NewFileSection::READ_ONLY);
    let file = NewFile {
        sections: vec![section],
        ..NewFile::default()
    };
    file.bytes(u64::MAX).expect("a small file")
}

const SOURCE: &str = "
int g(int *);
int f(int n) { int a[n]; return g(a) + g(a); }
int h(int n) { int a[100]; for (int i = 0; i < n; i++) n += g(a); return g(a) + n; }
int main(void) { return f(3) + h(4); }
int g(int *p) { return *p; }
";

#[test]
fn sections_of_this_systems_assembler_are_shown_as_by_its_objdump() {
    let name = "sections_of_this_systems_assembler_are_shown_as_by_its_objdump";
    let scratch = Scratch::new();
    for args in [
        ["-O2", "-shared"],
        ["-O0", "-no-pie"],
        ["-O2", "-fno-plt"],
        ["-O1", "-Wl,-z,lazy"],
    ] {
        let args: Vec<&str> = args.into_iter().chain(["-Wa,--gsframe"]).collect();
        let Ok(path) = scratch.cc("sframe.c", SOURCE, &args) else {
            return skip(name, "as has no --gsframe");
        };
        let Some(theirs) = text_of("objdump", &["--sframe=.sframe"], &path) else {
            return skip(name, "objdump is not installed");
        };
        let (ours, dumped) = ours(&path);
        let difference = first_difference(&ours, without_heading(&theirs));
        assert_eq!(difference, None, "{args:?}");
        assert!(dumped.rows > 5, "{args:?} {dumped:?}");
    }
}

#[test]
fn functions_of_an_object_start_where_its_symbols_do() {
    // objdump and readelf 2.40 do not apply the relocations of `.sframe` in an object, and show
    // every function at 0; after linking they agree with the symbols.
    let name = "functions_of_an_object_start_where_its_symbols_do";
    let scratch = Scratch::new();
    let Ok(path) = scratch.cc("object.c", SOURCE, &["-c", "-O2", "-Wa,--gsframe"]) else {
        return skip(name, "as has no --gsframe");
    };
    let (ours, _) = ours(&path);
    let file = crate::tables_dump::open(&path);
    for symbol in file.image().symbols() {
        let (_, offset) = file.place(symbol.address).expect("a section");
        let line = format!(": pc = {offset:#x}, size = {} bytes\n", symbol.size);
        assert!(ours.contains(&line), "{}: {line}{ours}", symbol.name);
    }
}

#[test]
fn concatenated_sections_are_reported() {
    let first = std::fs::read(corpus("sframe/v2.sframe.bin")).expect("bytes");
    let both = [&first[..], &first[..]].concat();
    let elf = with_section(".sframe", 0x40_3000, &both);
    let file = File::read("both", Arc::new(elf)).expect("an ELF file");
    let dumped = write(&file, &Filter::ALL, std::io::sink()).expect("a sink");
    let problems: Vec<String> = dumped.problems.iter().map(ToString::to_string).collect();
    let offset = first.len();
    assert_eq!(problems.len(), 1, "{problems:?}");
    let start = format!(".sframe+{offset:#x}: bytes after the table");
    assert!(problems[0].starts_with(&start), "{problems:?}");
}
