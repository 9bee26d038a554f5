//! `tables convert` and `tables merge` on programs made by this machine's compiler and on its own
//! programs: they run as before, and other tools read the new tables as they read the old ones.
//!
//! That the tables say the same at every address is tested in `crates/tables/tests/convert.rs`.

mod layouts;

use crate::common::skip::skip;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use unwind_sim_unwind::elf::{ReadOptions, image_from_elf};
use unwind_sim_unwind::image::SectionKind;
use unwind_sim_unwind::sframe::{Table, text_rows};

/// A program whose tables have small and large frames, a variable one, and a PLT. It prints how many
/// frames the C library's unwinder finds.
const PROGRAM: &str = r#"
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int order(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
__attribute__((noinline)) int depth(int n) {
    volatile char kept[100];
    void *frames[64];
    kept[n] = n;
    if (n == 0) return backtrace(frames, 64);
    return depth(n - 1) + kept[n] - n;
}
__attribute__((noinline)) int large(int n) {
    volatile char kept[5000];
    memset((char *)kept, n, sizeof kept);
    return kept[n];
}
__attribute__((noinline)) int variable(int n) {
    volatile char kept[n];
    memset((char *)kept, 1, n);
    return kept[n / 2];
}
int main(int argc, char **argv) {
    int v[100];
    for (int i = 0; i < 100; i++) v[i] = i * 37 % 101;
    qsort(v, 100, sizeof v[0], order);
    printf("%d %d %d, %d frames\n", v[3], large(7), variable(99), depth(5));
    return argc;
}
"#;

/// Every format that a program with `.eh_frame` can be given.
const TARGETS: [&str; 7] = [
    "sframe-v1",
    "sframe-v2",
    "sframe-v3",
    "orc:4.14",
    "orc:6.3",
    "orc:6.4",
    "orc:7.1",
];

/// A folder for the files of one test.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn tool(program: &str, args: &[&str]) -> Option<Output> {
    Command::new(program).args(args).output().ok()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The command line's output; it must end with `status`.
fn tables(status: i32, args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
    let output = command
        .args(["--color", "never", "tables"])
        .args(args)
        .output()
        .expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{args:?}: {errors}");
    stdout(&output) + &errors
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// Compiles `source` with these options; says why not if that does not work here.
fn compile(folder: &Path, name: &str, source: &str, options: &[&str]) -> Result<PathBuf, String> {
    let (from, to) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&from, source).expect("the source is written");
    let mut command = Command::new("cc");
    let command = command.arg(&from).args(options).arg("-o").arg(&to);
    match command.output() {
        Err(_) => Err("there is no cc".to_owned()),
        Ok(output) if !output.status.success() => Err(format!("cc does not take {options:?}")),
        Ok(_) => Ok(to),
    }
}

/// What readelf complains about.
fn complaints(path: &Path) -> Option<String> {
    let output = tool("readelf", &["-aW", text(path)])?;
    Some(String::from_utf8_lossy(&output.stderr).replace(text(path), "FILE"))
}

/// Converts `program` to every format and compares what the results print and return.
fn runs_as_before(program: &Path, args: &[&str], folder: &Path) {
    let run = |path: &Path| {
        let output = Command::new(path).args(args).output().expect("it starts");
        (output.status.code(), stdout(&output))
    };
    let before = run(program);
    let name = program.file_name().expect("a name");
    // Programs with several functions look at their own name.
    let new_folder = folder.join("converted");
    std::fs::create_dir_all(&new_folder).expect("a folder");
    let new = new_folder.join(name);
    for to in TARGETS {
        tables(0, &["convert", text(program), "--to", to, "-o", text(&new)]);
        assert_eq!(run(&new), before, "{} as {to}", program.display());
        assert_eq!(complaints(&new), complaints(program), "{to}");
    }
}

#[test]
fn converted_programs_run_as_before() {
    let folder = folder();
    let kinds: [&[&str]; 6] = [
        &["-O2"],
        &["-O2", "-no-pie"],
        &["-O1", "-static"],
        &["-O0", "-static-pie"],
        &["-O2", "-fno-omit-frame-pointer", "-fcf-protection"],
        &["-O2", "-Wl,-z,lazy", "-fasynchronous-unwind-tables"],
    ];

    // Position-independent or not, with a loader or without: each has other tables, and another
    // place for a new one.
    for options in kinds {
        match compile(folder.path(), "program", PROGRAM, options) {
            Ok(program) => runs_as_before(&program, &[], folder.path()),
            Err(why) => skip("converted_programs_run_as_before", why),
        }
    }

    // Programs that others built.
    for name in ["ls", "sort", "perl", "python3"] {
        let path = Path::new("/usr/bin").join(name);
        match std::fs::canonicalize(&path) {
            Ok(path) => runs_as_before(&path, &["--version"], folder.path()),
            Err(_) => skip(
                "converted_programs_run_as_before",
                format!("there is no {name}"),
            ),
        }
    }
}

#[test]
fn converted_libraries_are_loaded_as_before() {
    let folder = folder();
    let at = folder.path();
    let library = "int answer(void) { return 42; }\n";
    let made = compile(at, "libanswer.so", library, &["-O2", "-shared", "-fPIC"]);
    let Ok(library) = made else {
        return skip(
            "converted_libraries_are_loaded_as_before",
            "cc makes no library",
        );
    };

    let user = "int answer(void);\nint main(void) { return answer(); }\n";
    let options = [
        &format!("-L{}", text(at))[..],
        "-Wl,-rpath,$ORIGIN",
        "-lanswer",
    ];
    // The library comes after the source that needs it.
    let program = compile(at, "user", user, &options).expect("a program that uses it");

    // The loader maps the converted file: segments that are wrong would end the program before
    // `main`.
    let status = || Command::new(&program).status().expect("it starts").code();
    assert_eq!(status(), Some(42));

    // Each target starts from the original: a converted library may have lost its first table.
    let original = std::fs::read(&library).expect("the library");
    for to in TARGETS {
        std::fs::write(&library, &original).expect("the library");
        tables(
            0,
            &["convert", text(&library), "--to", to, "-o", text(&library)],
        );
        assert_eq!(status(), Some(42), "{to}");
    }
}

#[test]
fn the_c_library_unwinds_through_a_table_that_was_sframe() {
    let folder = folder();
    let program = match compile(folder.path(), "program", PROGRAM, &["-O2"]) {
        Ok(program) => program,
        Err(why) => return skip("the_c_library_unwinds_through_a_table_that_was_sframe", why),
    };
    let run = |path: &Path| stdout(&Command::new(path).output().expect("it starts"));
    let before = run(&program);
    let new = folder.path().join("new");
    for to in ["sframe-v1", "sframe-v2", "sframe-v3", "orc:7.1"] {
        let kind = to.split(['-', ':']).next().unwrap_or_default();
        tables(
            0,
            &["convert", text(&program), "--to", to, "-o", text(&new)],
        );
        let back = ["convert", text(&new), "--from", kind, "--to", "eh_frame"];
        let told = tables(2, &[&back[..], &["-o", text(&new)]].concat());
        assert!(told.contains("--replace"), "{told}");
        tables(0, &[&back[..], &["--replace", "-o", text(&new)]].concat());
        assert_eq!(run(&new), before, "{to}");
        assert_eq!(complaints(&new), complaints(&program), "{to}");
    }
}

/// The lines below the headings of `objdump --sframe`, with single spaces.
fn objdump_rows(text: &str) -> Vec<String> {
    let one_space = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_row = |line: &&str| {
        let first = line.split_whitespace().next().unwrap_or_default();
        first.len() == 16 && first.bytes().all(|b| b.is_ascii_hexdigit())
    };
    text.lines().filter(is_row).map(one_space).collect()
}

/// The rows of the `.sframe` in a file, as our reader gives them.
fn own_rows(path: &Path) -> Vec<String> {
    let data = std::fs::read(path).expect("the file");
    let options = ReadOptions::default();
    let image = image_from_elf("new", std::sync::Arc::new(data), &options).expect("an ELF file");
    let section = image.section(SectionKind::Sframe).expect("a table");
    let table = Table::parse(&section.data, section.address).expect("a header");
    let rows = table
        .fdes()
        .flatten()
        .flat_map(|fde| text_rows(&table, &fde));
    let rows = rows.map(|row| row.expect("a row").to_string());
    objdump_rows(&rows.collect::<Vec<_>>().join("\n"))
}

#[test]
fn objdump_shows_the_rows_of_v1() {
    const NAME: &str = "objdump_shows_the_rows_of_v1";
    let folder = folder();
    let new = folder.path().join("new");
    tables(
        0,
        &["convert", "/bin/sh", "--to", "sframe-v1", "-o", text(&new)],
    );
    let Some(shown) = tool("objdump", &["--sframe=.sframe", text(&new)]) else {
        return skip(NAME, "there is no objdump");
    };
    let shown = stdout(&shown);
    // Newer ones name the version, but show only the header.
    if !shown.contains("SFRAME_VERSION_1") || objdump_rows(&shown).is_empty() {
        return skip(NAME, "objdump does not read SFrame V1");
    }
    same_rows(&own_rows(&new), &objdump_rows(&shown));
}

/// The rows of `llvm-readobj --sframe`, in the words of objdump. LLVM 22 knows the first errata only,
/// so it shows a row without words as one without a CFA.
fn llvm_rows(shown: &str) -> Vec<String> {
    // Addresses are hexadecimal, offsets decimal.
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).expect("a number"),
        None => text.parse().expect("a number"),
    };

    let (mut rows, mut start, mut base): (Vec<String>, i64, &str) = (Vec::new(), 0, "");

    for line in shown.lines().map(str::trim) {
        let (key, value) = line.split_once(": ").unwrap_or((line, ""));
        match key {
            "Start Address" => {
                start = number(value);

                // Stays if no words follow.
                rows.push(format!("{start:016x} RA undefined"));
            }
            "Base Register" => base = if value.starts_with("SP") { "sp" } else { "fp" },
            // It follows the base register, whose name is known by then.
            "CFA Offset" => {
                rows.pop();
                rows.push(format!("{start:016x} {base}{:+} u f", number(value)));
            }
            "FP Offset" => {
                let row = rows.pop().unwrap_or_default();
                rows.push(row.replace(" u f", &format!(" c{:+} f", number(value))));
            }
            _ => {}
        }
    }
    rows
}

/// Both have these rows. Says only where they part.
fn same_rows(ours: &[String], theirs: &[String]) {
    assert!(ours.len() > 100, "{} rows", ours.len());
    let mut both = ours.iter().zip(theirs);
    assert_eq!(both.find(|(ours, theirs)| ours != theirs), None);
    assert_eq!(ours.len(), theirs.len());
}

#[test]
fn llvm_shows_the_rows_of_v2() {
    const NAME: &str = "llvm_shows_the_rows_of_v2";
    let folder = folder();
    let new = folder.path().join("new");
    tables(
        0,
        &["convert", "/bin/sh", "--to", "sframe-v2", "-o", text(&new)],
    );
    let names = ["llvm-readobj", "llvm-readobj-23", "llvm-readobj-22"];
    let shown = names.iter().find_map(|name| {
        let output = tool(name, &["--sframe", text(&new)])?;
        let shown = stdout(&output);
        shown.contains("Version: V2").then_some(shown)
    });
    let Some(shown) = shown else {
        return skip(NAME, "no llvm-readobj that reads SFrame V2 is installed");
    };
    same_rows(&own_rows(&new), &llvm_rows(&shown));
}

#[test]
fn orc_tables_say_what_readelf_shows_of_eh_frame() {
    const NAME: &str = "orc_tables_say_what_readelf_shows_of_eh_frame";
    let folder = folder();
    let (new, shown) = (folder.path().join("new"), folder.path().join("shown"));
    tables(
        0,
        &["convert", "/bin/sh", "--to", "orc:6.4", "-o", text(&new)],
    );
    let Some(output) = tool("readelf", &["--debug-dump=frames-interp", "/bin/sh"]) else {
        return skip(NAME, "there is no readelf");
    };
    std::fs::write(&shown, &output.stdout).expect("a file");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tables_convert/orc.py");
    let mut command = Command::new("python3");
    let input = std::fs::File::open(&shown).expect("the file");
    let Ok(output) = command.arg(script).arg(&new).stdin(input).output() else {
        return skip(NAME, "there is no python3");
    };
    let (told, errors) = (stdout(&output), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}{errors}");
    println!("{told}");
}

/// The findings of `verify`, without the instruction numbers, which depend on the program headers.
fn findings(program: &Path, unwinder: &str) -> Vec<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
    let command = command.args(["--color", "never", "verify", "--unwinder", unwinder, "--"]);
    let output = command.arg(program).output().expect("it runs");
    let shown = stdout(&output);
    let lines = shown
        .lines()
        .filter(|line| line.trim_start().starts_with("US"));
    let lines = lines.map(|line| line.split(" times, ").next().unwrap_or_default());
    let places = lines.map(|line| line.rsplit_once(',').map_or(line, |found| found.0));
    places.map(str::to_owned).collect()
}

#[test]
fn verify_finds_in_a_converted_program_what_it_found_before() {
    const NAME: &str = "verify_finds_in_a_converted_program_what_it_found_before";
    let folder = folder();
    let program = match compile(folder.path(), "program", PROGRAM, &["-O1", "-static"]) {
        Ok(program) => program,
        Err(why) => return skip(NAME, why),
    };

    let new = folder.path().join("new");
    for (to, unwinder) in [("sframe-v3", "sframe"), ("orc:6.4", "orc:6.4")] {
        tables(
            0,
            &["convert", text(&program), "--to", to, "-o", text(&new)],
        );
        // Without a table of its own, rows are derived from .eh_frame.
        assert_eq!(findings(&new, "dwarf"), findings(&program, "dwarf"), "{to}");

        let [before, after] = [&program, &new].map(|path| {
            let found = findings(path, unwinder).into_iter();
            // Where the other formats have no row, ORC has an undefined entry: another code.
            let place = |line: String| match unwinder {
                "sframe" => line,
                _ => line
                    .split_once(" at ")
                    .map_or_else(String::new, |at| at.1.to_owned()),
            };
            let mut found: Vec<String> = found.map(place).collect();
            found.sort();
            found
        });

        // Equal lists that are empty would say nothing.
        assert!(!before.is_empty());
        assert_eq!(after, before, "{to}");
    }
}

const PARTS: [&str; 3] = [
    "int twice(int n); int main(int c, char **v) { return twice(c) - 2; }\n",
    "int once(int n); int twice(int n) { return once(n) + once(n); }\n",
    "__attribute__((noinline)) int once(int n) { volatile int kept[40]; kept[n] = n; return kept[n]; }\n",
];

/// Assembles the parts with SFrame tables and links them, once as the linker merges them and once so
/// that it puts them one after the other.
fn linked(folder: &Path) -> Option<[PathBuf; 2]> {
    let mut objects: [Vec<PathBuf>; 2] = [Vec::new(), Vec::new()];
    for (number, part) in PARTS.iter().enumerate() {
        let options = ["-c", "-O1", "-Wa,--gsframe"];
        let object = compile(folder, &format!("part{number}.o"), part, &options).ok()?;
        let renamed = folder.join(format!("renamed{number}.o"));

        // A section of another name is not merged by the linker: it puts the parts one after the
        // other.
        let rename = [
            "--rename-section",
            ".sframe=.other",
            text(&object),
            text(&renamed),
        ];
        tool("objcopy", &rename).filter(|output| output.status.success())?;
        objects[0].push(object);
        objects[1].push(renamed);
    }

    let [merged, both] = objects.map(|objects| {
        let to = objects[0].with_extension("linked");
        let mut command = Command::new("cc");
        let command = command.args(&objects).arg("-o").arg(&to);
        let output = command.output().ok();
        output.filter(|output| output.status.success()).map(|_| to)
    });

    // Afterwards it gets its name back.
    let both = both?;
    let rename = ["--rename-section", ".other=.sframe", text(&both)];
    tool("objcopy", &rename).filter(|output| output.status.success())?;
    Some([merged?, both])
}

#[test]
fn concatenated_tables_are_merged_as_the_linker_merges_them() {
    const NAME: &str = "concatenated_tables_are_merged_as_the_linker_merges_them";
    let folder = folder();
    let Some([merged, both]) = linked(folder.path()) else {
        return skip(NAME, "as and ld make no SFrame tables");
    };
    let new = folder.path().join("new");
    let told = tables(0, &["merge", text(&both), "-o", text(&new)]);
    assert!(told.contains("3 tables as one"), "{told}");
    // The linker also describes the PLT, which no object does, and leaves what libraries bring.
    let (ours, theirs) = (own_rows(&new), own_rows(&merged));
    assert!(ours.len() > PARTS.len(), "{ours:?}");
    let is_there = theirs.windows(ours.len()).any(|part| part == ours);
    assert!(is_there, "{ours:?} in {theirs:?}");
    let status = |path: &Path| Command::new(path).status().expect("it starts").code();
    assert_eq!(status(&new), Some(0));
    assert_eq!(complaints(&new), complaints(&both));
}

#[test]
fn losses_are_reported_by_function_and_reason() {
    let folder = folder();
    let new = folder.path().join("new");

    // A large library has losses of several kinds.
    let libc = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
    if !libc.exists() {
        return skip(
            "losses_are_reported_by_function_and_reason",
            "there is no libc.so.6",
        );
    }

    let shown = tables(
        0,
        &[
            "convert",
            text(libc),
            "--to",
            "sframe-v1",
            "-o",
            text(&new),
            "--json",
        ],
    );

    let lines = shown
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let lines: Vec<serde_json::Value> = lines.collect();
    let (summary, losses) = lines.split_last().expect("lines");

    assert!(lines.iter().all(|line| line["schema"] == "unwind-sim.v1"));
    assert_eq!(summary["to"], "sframe-v1");

    // The sums of the summary are those of the lines.
    for counted in summary["losses"].as_array().expect("losses") {
        let these = losses
            .iter()
            .filter(|loss| loss["reason"] == counted["reason"]);
        let rows: u64 = these.clone().filter_map(|loss| loss["rows"].as_u64()).sum();
        assert_eq!(counted["functions"], these.count(), "{counted}");
        assert_eq!(counted["rows"], rows, "{counted}");
    }

    // SFrame has no registers but rbp: that is lost in many functions, and needs no row to be left
    // out.
    let kept = losses
        .iter()
        .filter(|loss| loss["reason"] == "callee-saved");
    assert!(kept.clone().count() > 100 && kept.clone().all(|loss| loss["costs_rows"] == false));
}

#[test]
fn the_output_is_whole_or_untouched() {
    let folder = folder();
    let at = folder.path().join("program");
    std::fs::copy("/bin/sh", &at).expect("a copy");

    // In the place of the original, which keeps its permissions.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let private = std::fs::Permissions::from_mode(0o750);
        std::fs::set_permissions(&at, private).expect("permissions");
        tables(
            0,
            &["convert", text(&at), "--to", "sframe-v3", "-o", text(&at)],
        );
        let mode = std::fs::metadata(&at)
            .expect("the file")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o750);

        // A new file has the permissions of its source.
        let new = folder.path().join("new");
        tables(0, &["convert", text(&at), "--to", "orc", "-o", text(&new)]);
        let mode = std::fs::metadata(&new)
            .expect("the file")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o750);
    }

    // From here on, everything fails, and the file must stay as it is.
    let before = std::fs::read(&at).expect("the file");
    // A table that is not there, a file that is not ELF, a folder for the output.
    let told = tables(
        2,
        &[
            "convert",
            text(&at),
            "--to",
            "sframe-v3",
            "--from",
            "debug_frame",
            "-o",
            text(&at),
        ],
    );
    assert!(
        told.contains("has no debug_frame to convert to sframe-v3"),
        "{told}"
    );

    // The input is another file here; the output that must stay is the same.
    let other = folder.path().join("text");
    std::fs::write(&other, "not an ELF file").expect("a file");
    tables(
        2,
        &[
            "convert",
            text(&other),
            "--to",
            "sframe-v3",
            "-o",
            text(&at),
        ],
    );

    tables(
        2,
        &[
            "convert",
            text(&at),
            "--to",
            "sframe-v3",
            "-o",
            text(folder.path()),
        ],
    );

    // A format that does not exist is refused with one that does.
    let told = tables(
        2,
        &["convert", text(&at), "--to", "sframe-v4", "-o", text(&at)],
    );
    assert!(told.contains("sframe-v3"), "{told}");
    assert_eq!(std::fs::read(&at).expect("the file"), before);

    // An overlay is found from the end of the file.
    std::fs::write(&other, [&before[..], &[1; 100]].concat()).expect("a file");
    let told = tables(
        2,
        &["convert", text(&other), "--to", "orc", "-o", text(&at)],
    );
    assert!(told.contains("100 bytes follow"), "{told}");

    // Output is written under another name first, which must not stay behind.
    let left = std::fs::read_dir(folder.path())
        .expect("the folder")
        .flatten();
    let partial = left.filter(|entry| entry.path().extension().is_some_and(|e| e == "partial"));
    assert_eq!(partial.count(), 0);
}
