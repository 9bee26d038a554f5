//! The command line.

use crate::common::compiler::Scratch;
use crate::common::skip::skip;
use crate::tables_dump::{corpus, open};
use std::process::{Command, Output};
use unwind_sim_tables::table::Table;
use unwind_sim_unwind::row::TableKind;

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
