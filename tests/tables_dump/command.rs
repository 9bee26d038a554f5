//! The command line.

use crate::common::compiler::Scratch;
use crate::common::skip::skip;
use crate::common::tools::is_missing;
use crate::tables_dump::{corpus, open};
use std::process::{Command, Output};
use std::sync::Arc;
use unwind_sim_tables::file::File;
use unwind_sim_tables::table::Table;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_view::source_lines::SourceLines;

fn dump(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
    command.args(["tables", "dump"]).args(args);
    command.env_remove("RUST_BACKTRACE");
    command.output().expect("the tool runs")
}

/// Standard output of a command with this exit status.
fn ends_with(status: i32, args: &[&str]) -> (String, String) {
    let output = dump(args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(status), "{args:?}\n{out}\n{err}");
    (out, err)
}

#[test]
fn equations_have_one_line_for_each_row() {
    let path = corpus("sframe/t_2.46");
    let path = path.to_str().expect("text");
    let (out, _) = ends_with(0, &[path, "--table", "sframe", "--function", "main"]);
    assert_eq!(
        out,
        "\
0x1050 main .sframe+0xe0 call cfa=rsp+8 ra=*(cfa-8) rbp=same
0x1054 main+0x4 .sframe+0xe3 call cfa=rsp+16 ra=*(cfa-8) rbp=same
0x106f main+0x1f .sframe+0xe6 call cfa=rsp+8 ra=*(cfa-8) rbp=same
"
    );
    let (out, _) = ends_with(0, &[path]);
    let rows = [TableKind::EhFrame, TableKind::Sframe].map(|kind| {
        let table = Table::read(&open(path.as_ref()), kind).expect("its table");
        let rows = table.functions().iter().map(|f| table.rows(f).len());
        rows.sum::<usize>()
    });
    assert_eq!(out.lines().count(), rows.iter().sum::<usize>());
}

/// binutils 2.45 writes an empty `.sframe` into `Scrt1.o`. It is a table, but not malformed.
#[test]
fn an_empty_table_is_noticed_and_not_an_error() {
    let scratch = Scratch::new();
    for section in [".sframe", ".eh_frame"] {
        let path = scratch.path("empty");
        let elf = super::sframe::with_section(section, 0x40_3000, b"");
        std::fs::write(&path, elf).expect("a file");
        let path = path.to_str().expect("text");
        let table = &section[1..];

        // The form of the tool that prints this kind of table.
        let form = match table {
            "sframe" => "objdump",
            _ => "readelf",
        };
        let notice = format!("{section} is empty: a table of no function");

        for args in [
            &[path][..],
            &[path, "--table", table],
            &[path, "--table", table, "--as", form],
        ] {
            let (out, err) = ends_with(0, args);
            assert_eq!(out, "", "{args:?}");
            assert!(err.contains(&notice), "{args:?}: {err}");
        }

        // 3: a table that is not there.
        let (_, err) = ends_with(3, &[path, "--table", "debug_frame"]);
        assert!(!err.contains("is empty"), "{err}");
    }
}

/// The rows of ORC are in no function: those that hold in it are shown.
#[test]
fn orc_rows_of_one_function_are_shown() {
    let name = "orc_rows_of_one_function_are_shown";
    let scratch = Scratch::new();
    let Ok(path) = scratch.cc("module.s", TWO_FUNCTIONS, &["-c"]) else {
        return skip(name, "cc cannot assemble");
    };
    let path = path.to_str().expect("text");
    let rows = |name: &str| {
        let (out, _) = ends_with(0, &[path, "--table", "orc", "--function", name]);
        let places = out
            .lines()
            .map(|line| line.split(' ').next().expect("a place").to_owned());
        places.collect::<Vec<_>>()
    };
    assert_eq!(rows("f"), [".text+0x0", ".text+0x2"]);
    // The row that holds at its start begins in the function before.
    assert_eq!(rows("g"), [".text+0x2", ".text+0x4"]);
}

/// A module with entries of the layout of Linux 6.4, of which one begins in `f` and ends in `g`.
const TWO_FUNCTIONS: &str = "
    .text
    .type f, @function
f:  nop
    push %rbp
    nop
    .size f, .-f
    .type g, @function
g:  nop
    pop %rbp
    ret
    .size g, .-g
    .section .orc_unwind_ip, \"a\"
    .long .text + 0 - .
    .long .text + 2 - .
    .long .text + 4 - .
    .section .orc_unwind, \"a\"
    .short 8, 0, 0x0205
    .short 16, -16, 0x0215
    .short 8, 0, 0x0205
    .section .orc_header, \"a\"
    .byte 0xfe,0x5d,0x32,0xbf,0x58,0x1b,0xd6,0x3b,0x2c,0xa9
    .byte 0xa5,0xc6,0x5b,0xa5,0xa6,0x25,0xea,0xb3,0xfe,0x24
";

/// Both tables beside the code, with the boundaries of their rows.
#[test]
fn a_listing_has_the_rules_beside_the_code() {
    let path = corpus("sframe/t_2.46");
    let path = path.to_str().expect("text");
    let (out, _) = ends_with(0, &[path, "--function", "vla", "--listing"]);
    let snapshots = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("snapshots");
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true,
        snapshot_path => snapshots }, {
        insta::assert_snapshot!("tables-dump-listing", out);
    });
    let (out, _) = ends_with(
        0,
        &[path, "--function", "vla", "--listing", "--table", "sframe"],
    );
    assert!(!out.contains("dwarf") && out.contains("sframe"), "{out}");
}

/// All code of a file comes in the order of its addresses, each instruction once.
#[test]
fn a_listing_of_a_file_has_each_instruction_once() {
    let path = corpus("sframe/t_2.46");
    let path = path.to_str().expect("text");
    let (out, _) = ends_with(0, &[path, "--listing"]);
    let addresses = out.lines().filter_map(|line| line.strip_prefix("  0x"));
    let addresses: Vec<u64> = addresses
        .map(|rest| {
            let digits = rest.split(' ').next().expect("an address");
            u64::from_str_radix(digits, 16).expect("digits")
        })
        .collect();
    assert!(addresses.len() > 100, "{out}");
    assert!(addresses.is_sorted_by(|a, b| a < b), "{out}");
    for options in [&["--json"][..], &["--as", "readelf"]] {
        let (_, err) = ends_with(2, &[&[path, "--listing"], options].concat());
        assert!(err.contains("cannot be used with"), "{err}");
    }
}

/// The lines of the source, where the program was built with `-g`.
#[test]
fn a_listing_has_source_lines() {
    let name = "a_listing_has_source_lines";
    let scratch = Scratch::new();
    let source =
        "int twice(int n) {\n    return 2 * n;\n}\nint main(void) {\n    return twice(0);\n}\n";
    let Ok(path) = scratch.cc("twice.c", source, &["-g", "-O0"]) else {
        return skip(name, "cc cannot compile");
    };
    let path = path.to_str().expect("text");
    let listing = || ends_with(0, &[path, "--function", "twice", "--listing"]).0;
    let out = listing();
    assert!(out.contains("twice.c:2: return 2 * n;\n"), "{out}");
    assert!(!out.contains("main"), "{out}");
    // Without the source file there are still its lines.
    std::fs::remove_file(scratch.path("twice.c")).expect("it is there");
    let out = listing();
    assert!(
        out.contains("twice.c:2\n") && !out.contains("return 2"),
        "{out}"
    );
}

/// Lines come from a separate debug file, too, if it is that of the program.
#[test]
fn a_listing_has_source_lines_of_a_separate_debug_file() {
    let name = "a_listing_has_source_lines_of_a_separate_debug_file";
    if is_missing(name, "objcopy") {
        return;
    }
    for compression in ["-gz=none", "-gz=zlib"] {
        let scratch = Scratch::new();
        let source = "int main(void) {\n    return 0;\n}\n";
        let args = ["-g", "-O0", compression];
        let Ok(path) = scratch.cc("main.c", source, &args) else {
            return skip(name, "cc cannot compile");
        };
        let listing = || ends_with(0, &[path.to_str().expect("text"), "--listing"]).0;
        let whole = listing();
        assert!(whole.contains("main.c:2: return 0;\n"), "{whole}");

        scratch.split_debug(&path).expect("objcopy can split it");
        let split = listing();
        assert!(split.contains("main.c:2: return 0;\n"), "{split}");

        // A file that was built from something else has lines of other code.
        let other = scratch.cc("other.c", "int main(void) {\n\n    return 1;\n}\n", &args);
        let debug = path.with_extension("debug");
        std::fs::copy(other.expect("cc compiles"), debug).expect("the folder is writable");
        let lost = listing();
        assert!(!lost.contains(".c:"), "{lost}");
    }
}

/// The lines of an object belong to the addresses that the listing gives to its code.
#[test]
fn a_listing_has_source_lines_of_an_object() {
    let name = "a_listing_has_source_lines_of_an_object";
    let source = "\
int twice(int n)
{
    return 2 * n;
}

__attribute__((cold)) int thrice(int n)
{
    return 3 * n;
}
";
    // One section for all code, one for each function, and debugging information in three forms.
    for args in [
        &["-gz=none"][..],
        &["-ffunction-sections", "-gz=zlib"],
        &["-ffunction-sections", "-gdwarf-4", "-fdebug-types-section"],
    ] {
        let scratch = Scratch::new();
        let all = [&["-c", "-g", "-O0"][..], args].concat();
        let Ok(path) = scratch.cc("twice.c", source, &all) else {
            return skip(name, "cc cannot compile");
        };
        let path = path.to_str().expect("text");
        for (function, lines) in [("twice", [2, 3, 4]), ("thrice", [7, 8, 9])] {
            let (out, _) = ends_with(0, &[path, "--function", function, "--listing"]);
            let found = out.lines().filter_map(|line| line.split_once("twice.c:"));
            let found = found.map(|(_, rest)| rest.split(':').next().expect("a line").parse());
            let found: Vec<u32> = found.map(|line| line.expect("a number")).collect();
            assert_eq!(found, lines, "{args:?}\n{out}");
        }
    }
}

/// Nothing in an object is trusted: damage gives other lines or none.
#[test]
fn lines_of_a_damaged_object_are_lines_or_none() {
    let name = "lines_of_a_damaged_object_are_lines_or_none";
    let scratch = Scratch::new();
    let source = "int twice(int n) { return 2 * n; }\n";
    let Ok(path) = scratch.cc("twice.c", source, &["-c", "-g", "-gz=zlib"]) else {
        return skip(name, "cc cannot compile");
    };
    let bytes = std::fs::read(path).expect("the object");
    let mut read = 0;
    for at in (0..bytes.len()).step_by(13) {
        let mut changed = bytes.clone();
        changed[at] ^= 0xff;
        for data in [changed, bytes[..at].to_vec()] {
            if let Ok(file) = File::read("twice.o", Arc::new(data)) {
                read += 1;
                let lines = SourceLines::of_file(&file);
                let _ = lines.at(file.image().symbols().first().map_or(0, |s| s.address));
            }
        }
    }
    // Most damage leaves an object.
    assert!(read > bytes.len() / 26, "{read} of {}", bytes.len() / 13);
}

#[test]
fn json_has_one_object_for_each_row() {
    let path = corpus("sframe/t_2.46");
    let path = path.to_str().expect("text");
    let (text, _) = ends_with(0, &[path, "--table", "eh_frame"]);
    let (json, _) = ends_with(0, &[path, "--table", "eh_frame", "--json"]);
    let (json, summary) = json.trim_end().rsplit_once('\n').expect("lines");
    let summary: serde_json::Value = serde_json::from_str(summary).expect("JSON");
    assert_eq!(summary["type"], "summary");
    assert_eq!(summary["rows"].as_u64(), Some(json.lines().count() as u64));
    assert_eq!(json.lines().count(), text.lines().count());
    for (json, text) in json.lines().zip(text.lines()) {
        let row: serde_json::Value = serde_json::from_str(json).expect("JSON");
        assert_eq!(row["schema"], "unwind-sim.v1");
        assert_eq!(row["type"], "table_row");
        let start = row["start"].as_str().expect("a string");
        assert!(text.starts_with(&format!("{start} ")), "{json}\n{text}");
        let cfa = row["rule"]["cfa"].as_str().expect("a string");
        let is_shown = text.contains(&format!(" cfa={cfa} "));
        assert!(
            is_shown || row["rule"]["kind"] == "outermost",
            "{json}\n{text}"
        );
    }
}

#[test]
fn what_cannot_be_shown_is_said() {
    let path = corpus("sframe/t_2.46");
    let path = path.to_str().expect("text");
    let (_, err) = ends_with(2, &[path, "--function", "mai"]);
    assert!(
        err.contains("has no function mai (did you mean `main`?)"),
        "{err}"
    );
    let (_, err) = ends_with(2, &[path, "--as", "readelf", "--table", "orc"]);
    assert!(
        err.contains("--as readelf shows eh_frame and debug_frame only"),
        "{err}"
    );
    let (_, err) = ends_with(3, &[path, "--table", "orc"]);
    assert!(err.contains("has no table of this kind: orc"), "{err}");
    let (_, err) = ends_with(2, &["/etc/passwd"]);
    assert!(
        err.contains("/etc/passwd is a text file, not an ELF"),
        "{err}"
    );
}

#[test]
fn a_malformed_function_is_reported_with_its_place() {
    let name = "a_malformed_function_is_reported_with_its_place";
    let scratch = Scratch::new();
    let source = "f: .cfi_startproc\n nop\n .cfi_escape 0x3f\n nop\n .cfi_endproc\n";
    let Ok(path) = scratch.cc("bad.s", source, &["-c"]) else {
        return skip(name, "cc cannot assemble");
    };
    let path = path.to_str().expect("text");
    for form in ["readelf", "equations"] {
        let (_, err) = ends_with(2, &[path, "--as", form]);
        assert!(err.contains(".eh_frame+0x"), "{err}");
        assert!(err.contains("1 part of the tables cannot be read"), "{err}");
    }
}
