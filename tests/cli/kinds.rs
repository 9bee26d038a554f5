//! Given a wrong file of any kind, every subcommand says what the file is and which subcommand
//! takes it.

use crate::cli::{SEED, ends_with, root, run, status, stderr};
use std::path::Path;
use unwind_sim_recordings::file_kind::{FileKind, file_kind};
use unwind_sim_recordings::trace::Engine;

/// Writes a file of each kind to `folder`; returns them with the kind to recognise. A kind that has none
/// here fails the test.
fn files(folder: &Path) -> Vec<(String, FileKind)> {
    let corpus = |path: &str| std::fs::read(root("corpus").join(path)).expect("a file");
    let case = "cases/defect/late-row-behind-a-push.s";

    // A bzImage: the mark of a boot sector and the header's magic
    // (`Documentation/arch/x86/boot.rst`).
    let mut kernel = vec![0; 0x300];
    kernel[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
    kernel[0x202..0x206].copy_from_slice(b"HdrS");

    let lines = ends_with(1, &["compare", SEED, "--regs", "fake:v5.1", "--json"]);
    let elf = std::fs::read("/bin/true").expect("a program");
    // `e_type` is at offset 16, and 4 is ET_CORE.
    let mut core = elf.clone();
    core[16] = 4;

    let files: Vec<(&str, Vec<u8>, FileKind)> = vec![
        ("trace", corpus("traces/seed-004.bin"), FileKind::Trace),
        ("perf", corpus("perfdata/dwarf.data"), FileKind::PerfData),
        ("core", core, FileKind::Core),
        ("bpf", corpus("bpf/profile.bpf.o"), FileKind::Bpf),
        ("elf", elf, FileKind::Elf),
        ("capture", b"{\"a\": 1}\n".to_vec(), FileKind::Capture),
        ("lines", lines.into_bytes(), FileKind::Lines),
        ("late-row.s", corpus(case), FileKind::Case),
        ("kernel", kernel, FileKind::Kernel),
        ("gzip", b"\x1f\x8b\x08\0".to_vec(), FileKind::Compressed),
        ("archive", b"!<arch>\n".to_vec(), FileKind::Archive),
        ("minidump", b"MDMP\x93\xa7".to_vec(), FileKind::Foreign),
        ("text", b"some text\n".to_vec(), FileKind::Text),
        ("unknown", b"\xff\xfe\0\x01".to_vec(), FileKind::Unknown),
    ];

    let mut all = Vec::new();
    for (name, bytes, kind) in files {
        let path = folder.join(name);
        std::fs::write(&path, bytes).expect("a file");
        all.push((path.to_string_lossy().into_owned(), kind));
    }

    let empty = folder.join("empty");
    std::fs::write(&empty, b"").expect("a file");
    all.push((empty.to_string_lossy().into_owned(), FileKind::Empty));
    all.push((folder.to_string_lossy().into_owned(), FileKind::Folder));
    all.push(("/dev/null".to_owned(), FileKind::Special));

    // A kind that is added later must have a file here, too.
    assert_eq!(all.len(), FileKind::ALL.len());
    for (path, kind) in &all {
        assert_eq!(
            file_kind(Path::new(path)).expect("it is there"),
            *kind,
            "{path}"
        );
    }

    all
}

/// Arguments with the placeholder `FILE`, and which kinds of files are accepted there.
type FileArgument = (&'static [&'static str], fn(FileKind) -> bool);

use FileKind::{Bpf, Case, Elf, Empty, Folder, Kernel, Lines, PerfData, Special, Text};

const OBJECT: &str = "corpus/bpf/profile.bpf.o";
const DATA: &str = "corpus/perfdata/dwarf.data";
const VMLINUX: &str = "fuzz/corpus/kernel_image/vmlinux";

const PLACES: &[FileArgument] = &[
    (&["import", "-o", "OUT", "FILE"], FileKind::is_imported),
    (&["extract", "-o", "OUT", "FILE"], FileKind::is_recording),
    (&["scrub", "-o", "OUT", "FILE"], FileKind::is_recorded),
    (&["replay", "FILE"], FileKind::is_recording),
    (
        &["replay", "--format", "folded", "FILE"],
        FileKind::is_recording,
    ),
    (&["compare", "FILE"], FileKind::is_recording),
    (&["explain", "FILE"], FileKind::is_recording),
    (&["inspect", "FILE"], |kind| {
        kind.is_recording() || matches!(kind, Elf | Bpf | Kernel)
    }),
    (&["inspect", "--symbols", "FILE", "/bin/true"], |kind| {
        kind == Text
    }),
    (&["compare", SEED, "--symfs", "FILE"], |kind| kind == Folder),
    (
        &["compare", SEED, "--kernel", "FILE"],
        FileKind::may_be_kernel,
    ),
    (&["compare", SEED, "--system-map", "FILE"], |kind| {
        kind == Text
    }),
    (&["tables", "dump", "FILE"], |kind| kind == Elf),
    (&["tables", "diff", "FILE"], |kind| kind == Elf),
    (&["tables", "diff", "/bin/true", "FILE"], |kind| kind == Elf),
    (
        &["tables", "generate", "FILE", "--to", "orc", "-o", "OUT"],
        |kind| kind == Elf,
    ),
    (&["verify", "FILE"], FileKind::may_run),
    (&["emulate", "FILE"], FileKind::may_run),
    (
        &["emulate", "--max-instructions", "9", "--kernel", "FILE"],
        FileKind::may_be_kernel,
    ),
    (
        &["emulate", "--kernel", VMLINUX, "--init", "FILE"],
        |kind| kind == Elf,
    ),
    (&["step", "--json", "--count", "1", "FILE"], |kind| {
        kind.is_recording() || kind.may_run()
    }),
    // That the lines are of another command is said in other words.
    (&["report", "--count", "1", "-o", "OUT", "FILE"], |kind| {
        kind.is_recording() || kind.may_run() || kind == Lines
    }),
    (&["record", "-o", "OUT", "FILE"], |kind| {
        kind.may_run() && kind != Case
    }),
    (
        &["record", "--engine", "emulator", "-o", "OUT", "FILE"],
        FileKind::may_run,
    ),
    (&["verify", "--tables-from", "FILE", "/bin/true"], |kind| {
        kind == Elf
    }),
    (&["verify", "--baseline", "FILE", "/bin/true"], |kind| {
        matches!(kind, Lines | Empty | Special)
    }),
    (&["cases", "run", "--folder", "no/folder", "FILE"], |kind| {
        kind == Case
    }),
    (&["perf", "script", "FILE"], |kind| kind == PerfData),
    (&["perf", "script", "--kallsyms", "FILE", DATA], |kind| {
        kind == Text
    }),
    (&["perf", "stitch", "FILE"], |kind| kind == PerfData),
    (&["perf", "bpf", OBJECT, "FILE"], |kind| kind == PerfData),
    (&["perf", "bpf", "FILE", DATA], |kind| kind == Bpf),
    (&["perf", "run", "FILE"], |kind| kind == Text),
];

#[test]
fn a_wrong_file_is_named_for_what_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out.bin").to_string_lossy().into_owned();
    let inputs = tempfile::tempdir().expect("a folder");
    let files = files(inputs.path());

    for (place, kinds) in PLACES {
        for (file, kind) in &files {
            let is_taken = kinds(*kind);
            // What takes programs runs them, and says nothing of their kinds.
            if is_taken && !kind.is_recording() {
                continue;
            }
            let put = |word: &&'static str| match *word {
                "FILE" => file.clone(),
                "OUT" => out.clone(),
                other => other.to_owned(),
            };

            let args: Vec<String> = place.iter().map(put).collect();
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let output = run(&args);
            let told = stderr(&output);
            let what = format!("{file} is {}", kind.description());
            if is_taken {
                assert!(!told.contains(&format!("{what}, not ")), "{args:?}: {told}");
                let _ = std::fs::remove_file(&out);
                continue;
            }
            assert_eq!(status(&output), 2, "{args:?}: {told}");
            // The recorder refuses a case in its own words.
            assert!(told.contains(&what), "{args:?}: {told}");

            // One line, and nothing written.
            assert_eq!(told.lines().count(), 1, "{told}");
            assert!(!Path::new(&out).exists(), "{args:?} left a file");
        }

        // A file that does not exist is no kind at all.
        let missing = inputs.path().join("missing").to_string_lossy().into_owned();
        let put = |word: &&'static str| match *word {
            "FILE" => missing.clone(),
            "OUT" => out.clone(),
            other => other.to_owned(),
        };

        let args: Vec<String> = place.iter().map(put).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let output = run(&args);
        assert_eq!(status(&output), 2, "{args:?}");
        let told = stderr(&output).to_lowercase();
        let is_told = told.contains("no such file") || told.contains("no folder");
        assert!(is_told, "{args:?}: {told}");
    }
}

/// What a trace can have been imported from is in the page of the format.
#[test]
fn the_page_of_traces_names_every_engine() {
    let page = std::fs::read_to_string(root("docs/trace-format.md")).expect("the page");
    let line = page.lines().find(|line| line.contains("| engine: "));
    let line = line.expect("the field of the engine");
    for engine in Engine::all().filter(|&engine| engine != Engine::Unknown) {
        let name = format!("`{}`", engine.as_str());
        assert!(line.contains(&name), "{name} is not in: {line}");
    }
}

/// The subcommand suggested for a kind of file accepts it.
#[test]
fn each_advice_names_a_subcommand_that_takes_the_file() {
    let inputs = tempfile::tempdir().expect("a folder");
    let files = files(inputs.path());
    let help = ends_with(0, &["--help"]);
    let mut named = 0;

    for (file, kind) in &files {
        // This command takes few kinds, so it has advice for the others.
        let output = run(&["cases", "run", "--folder", "no/folder", file]);
        let Some((_, advice)) = stderr(&output).split_once("; ") else {
            continue;
        };
        let Some((_, command)) = advice.split_once("`unwind-sim ") else {
            continue;
        };

        let command = command.split('`').next().unwrap_or_default();
        let words: Vec<&str> = command.split(' ').collect();
        assert!(help.contains(&format!("  {} ", words[0])), "{command}");
        let takes = |(place, kinds): &&FileArgument| place.starts_with(&words[..]) && kinds(*kind);
        // JSON Lines are given to `compare` as a baseline, by an option that the table of places
        // does not have.
        let baseline = *kind == Lines && words == ["compare"];
        assert!(
            baseline || PLACES.iter().find(takes).is_some(),
            "{kind:?}: {command}"
        );
        named += 1;
    }

    assert!(named >= 7, "{named}");
}

/// Invalid sampling options are refused before the program runs.
#[test]
fn when_to_sample_is_checked_before_the_program_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let mark = folder.path().join("it-ran");
    let touch = mark.to_string_lossy().into_owned();
    for (at, told) in [
        ("freq:0", "0 would take no samples"),
        ("every:0", "0 would take no samples"),
        ("freq:x", "`x` is not a number"),
        ("freq:5000000000", "at most"),
        ("evry:5", "every:N, freq:HZ"),
    ] {
        let out = folder.path().join("t.bin").to_string_lossy().into_owned();
        let output = run(&["record", "--at", at, "-o", &out, "touch", &touch]);
        assert_eq!(status(&output), 2, "{at}");
        assert!(stderr(&output).contains(told), "{at}: {}", stderr(&output));
        assert!(!mark.exists() && !Path::new(&out).exists(), "{at}");
    }
}
