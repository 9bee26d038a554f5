//! Generated code with registered tables, right and wrong, and without.

use crate::verify_programs::programs::{NAMES, Programs, text, verify, wrong_in};
use std::path::Path;
use unwind_sim_judge::verify::{Finding, GeneratedFunction, Run, listing};

/// How often the program calls its function, and the function's instructions.
const CALLS: u64 = 10;
const LENGTH: u64 = 9;
/// The ways to register a table.
const WAYS: [&str; 13] = [
    "frame",
    "info",
    "table",
    "early",
    "filled",
    "moved",
    "fde",
    "memfd",
    "dump",
    "dumpmoved",
    "dumplate",
    "stream",
    "gdb",
];

/// The ways that are tried with a shared libgcc, too. With `UNWIND_SIM_SLOW=1` all are. The program
/// of `fde` cannot be static, since it has a function of libgcc itself.
const SHARED: [&str; 2] = ["frame", "fde"];

struct GeneratedFiles {
    /// Linked statically where that works: three quarters of what the other one executes link it.
    program: std::path::PathBuf,
    shared: std::path::PathBuf,
    libunwind: std::path::PathBuf,
    right: String,
    wrong: String,
}

fn setup(programs: &Programs) -> GeneratedFiles {
    let compile = |source, options: &[&str]| programs.compile(source, options);
    let object = |offset: &str| {
        let define = format!("-Wa,--defsym,OFFSET={offset}");
        let path = compile("gdb.s", &["-c", &define]).expect("an object");
        let kept = path.with_extension(offset);
        std::fs::rename(path, &kept).expect("a file");
        kept.display().to_string()
    };

    // The same table with the right offset and with a wrong one.
    let (right, wrong) = (object("48"), object("40"));

    let program = |name: &str, options: &[&str]| {
        let path = compile("generated.c", options)?;
        let kept = path.with_extension(name);
        std::fs::rename(path, &kept).expect("a file");
        Ok::<_, String>(kept)
    };

    // Registered by libunwind's interface.
    let libunwind = program("libunwind", &["-DLIBUNWIND"]).expect("a program");
    let shared = program("shared", &[]).expect("a program");
    GeneratedFiles {
        program: program("static", &["-static"]).unwrap_or_else(|_| shared.clone()),
        shared,
        libunwind,
        right,
        wrong,
    }
}

impl GeneratedFiles {
    fn run(&self, way: &str, right: bool, elide: bool) -> Run {
        let program = match way {
            "fde" => &self.libunwind,
            _ => &self.program,
        };
        self.run_program(program, way, right, elide)
    }

    fn run_program(&self, program: &Path, way: &str, right: bool, elide: bool) -> Run {
        let (word, object) = if right {
            ("right", &self.right)
        } else {
            ("wrong", &self.wrong)
        };
        verify(program, &[way, word, object], elide)
    }
}

fn function(name: &str, calls: u64) -> GeneratedFunction {
    GeneratedFunction {
        name: name.to_owned(),
        instructions: calls * LENGTH,
        addresses: LENGTH,
    }
}

#[test]
fn a_registered_table_is_checked() {
    let programs = Programs::new();
    let setup = setup(&programs);
    let is_slow = std::env::var_os("UNWIND_SIM_SLOW").is_some();
    let mut mnemonics: Option<Vec<String>> = None;
    for way in WAYS {
        let mut linked = Vec::new();
        if way != "fde" {
            linked.push(&setup.program);
        }
        if is_slow || SHARED.contains(&way) {
            linked.push(match way {
                "fde" => &setup.libunwind,
                _ => &setup.shared,
            });
        }
        for program in linked {
            let shown = check_registered(&setup, program, way);
            let first = mnemonics.get_or_insert_with(|| shown.clone());
            assert_eq!(shown, *first, "{way}");
        }
    }
}

/// Runs a program with a right and a wrong table. Returns the mnemonics of the instructions at which
/// the wrong one is found to be wrong.
fn check_registered(setup: &GeneratedFiles, program: &Path, way: &str) -> Vec<String> {
    let name = match way {
        "dump" | "dumpmoved" | "dumplate" | "stream" => "dumped",
        _ => "generated",
    };

    // A right table is one that nobody complains of.
    let right = setup.run_program(program, way, true, true);
    assert_eq!(right.results.generated, [], "{way}");
    let found = ["dwarf", "sframe", "orc"].map(|u| wrong_in(&right, u, "[jit"));
    assert!(found.iter().all(Vec::is_empty), "{way}: {found:?}");

    let wrong = setup.run_program(program, way, false, true);
    for unwinder in ["dwarf", "sframe", "orc"] {
        assert_eq!(
            wrong_in(&wrong, unwinder, "[jit"),
            [name],
            "{way} {unwinder}"
        );
    }
    let mine = wrong.results.findings.iter();
    let mine = mine.filter(|f| NAMES[f.unwinder] == "dwarf");
    let jit = mine.filter(|f| {
        wrong
            .results
            .places
            .location(f.place, f.address)
            .image
            .is_some_and(|i| i.starts_with("[jit"))
    });
    // Five instructions have the wrong CFA: from the first mov to the add behind the call.
    let jit = jit.filter(|f| {
        f.check == unwind_sim_judge::verify::Check::Instruction
            && f.code == unwind_sim_unwind::reason::Code::WrongCfa
    });
    let jit: Vec<&Finding> = jit.collect();
    assert_eq!(jit.iter().map(|f| f.count).sum::<u64>(), 5 * CALLS, "{way}");

    // The report is the same if no check is skipped.
    let all = setup.run_program(program, way, false, false);
    assert_eq!(text(&wrong), text(&all), "{way}");

    // They are shown as they ran, whatever is there when the table is registered or read.
    let shown = jit.iter().map(|f| {
        let lines = listing::lines(&wrong.results, f);
        let line = lines.into_iter().find(|line| line.is_concerned);
        let text = line.map(|line| line.text).unwrap_or_default();
        text.split(' ').next().unwrap_or_default().to_owned()
    });
    shown.collect()
}

#[test]
fn generated_code_without_a_table_is_a_class_of_its_own() {
    let programs = Programs::new();
    let setup = setup(&programs);

    for (way, calls) in [
        ("none", 1),
        ("dropped", 1),
        ("gdbdropped", 1),
        ("remapped", 1),
    ] {
        let run = setup.run(way, false, true);
        let results = &run.results;
        assert_eq!(
            results.generated,
            [function("generated", calls * CALLS)],
            "{way}"
        );

        for (name, tally) in NAMES.iter().zip(&results.tallies) {
            let expected = match *name {
                // Frame pointers need no table.
                "fp" => 0,
                _ => calls * CALLS * LENGTH,
            };
            assert_eq!(tally.no_table, expected, "{way} {name}");
            assert_eq!(tally.walks_unjudged > 0, *name != "fp", "{way} {name}");
        }

        // A table that is taken back was there before, and is wrong here.
        let is_dropped = way.ends_with("dropped");
        assert_eq!(
            wrong_in(&run, "dwarf", "[jit").is_empty(),
            !is_dropped,
            "{way}"
        );

        let line = "JIT, no table: 90 instructions in 1 function, and ";
        assert!(text(&run).contains(line), "{}", text(&run));

        // The report is the same if no check is skipped.
        assert_eq!(text(&run), text(&setup.run(way, false, false)), "{way}");
    }
}

/// A recording has the tables of generated code as long as they are registered.
#[test]
fn tables_are_recorded_until_they_are_taken_back() {
    let programs = Programs::new();
    let program = programs.compile("generated.c", &[]).expect("a program");
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("trace.bin");

    let run = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
        let output = command
            .args(["--color", "never"])
            .args(args)
            .output()
            .expect("the tool runs");
        String::from_utf8(output.stdout).expect("text")
    };

    let (program, trace) = (program.display().to_string(), trace.display().to_string());
    let options = "record --engine emulator --from main --at every:20 -o";
    let options: Vec<&str> = options.split(' ').collect();

    // How the program registers its table, and whether it takes it back.
    for (way, is_taken_back) in [("frame", false), ("stream", false), ("dropped", true)] {
        run(&[&options[..], &[&trace, "--", &program, way, "right"]].concat());
        let text = run(&["replay", "-u", "dwarf", &trace]);
        // Both: the row came from a table, and it is one of the generated function.
        let is_there = text.contains("[eh_frame]") && text.contains("generated+0x13");
        assert!(is_there || way == "stream", "{way}: {text}");
        let is_missing = text.contains("US102 no table");
        assert_eq!(is_missing, is_taken_back, "{way}: {text}");
    }
}
