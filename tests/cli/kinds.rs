//! Given a wrong file of any kind, every subcommand says what the file is and which subcommand
//! takes it.

use crate::cli::{SEED, ends_with, root, run, status, stderr};
use std::path::Path;
use unwind_sim_recordings::file_kind::{FileKind, file_kind};

/// Writes a file of each kind to `folder`; returns them with the kind to recognise.
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

    let files: [(&str, Vec<u8>, FileKind); 12] = [
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

/// Arguments with the placeholder `FILE`, and the kinds of files accepted there.
type FileArgument = (&'static [&'static str], &'static [FileKind]);

use FileKind::{
    Bpf, Capture, Case, Compressed, Core, Elf, Empty, Folder, Kernel, Lines, PerfData, Special,
    Text, Trace, Unknown,
};

const RECORDINGS: &[FileKind] = &[Trace, PerfData, Core, Capture, Case];
const PROGRAMS: &[FileKind] = &[Elf, Case, Text, Unknown];
const OBJECT: &str = "corpus/bpf/profile.bpf.o";
const DATA: &str = "corpus/perfdata/dwarf.data";

const PLACES: &[FileArgument] = &[
    (&["import", "-o", "OUT", "FILE"], &[PerfData, Core, Capture]),
    (&["extract", "-o", "OUT", "FILE"], RECORDINGS),
    (
        &["scrub", "-o", "OUT", "FILE"],
        &[Trace, PerfData, Core, Capture],
    ),
    (&["replay", "FILE"], RECORDINGS),
    (&["replay", "--format", "folded", "FILE"], RECORDINGS),
    (&["compare", "FILE"], RECORDINGS),
    (&["explain", "FILE"], RECORDINGS),
    (
        &["inspect", "FILE"],
        &[Trace, PerfData, Core, Capture, Case, Elf, Bpf, Kernel],
    ),
    (&["inspect", "--symbols", "FILE", "/bin/true"], &[Text]),
    (&["compare", SEED, "--symfs", "FILE"], &[Folder]),
    (
        &["compare", SEED, "--kernel", "FILE"],
        &[Kernel, Elf, Compressed],
    ),
    (&["compare", SEED, "--system-map", "FILE"], &[Text]),
    (&["tables", "dump", "FILE"], &[Elf]),
    (&["tables", "diff", "FILE"], &[Elf]),
    (&["tables", "diff", "/bin/true", "FILE"], &[Elf]),
    (
        &["tables", "generate", "FILE", "--to", "orc", "-o", "OUT"],
        &[Elf],
    ),
    (&["verify", "FILE"], PROGRAMS),
    (&["emulate", "FILE"], PROGRAMS),
    (
        &["step", "--json", "--count", "1", "FILE"],
        &[Trace, PerfData, Core, Capture, Case, Elf, Text, Unknown],
    ),
    // That the lines are of another command is said in other words.
    (
        &["report", "--count", "1", "-o", "OUT", "FILE"],
        &[
            Trace, PerfData, Core, Capture, Case, Elf, Text, Unknown, Lines,
        ],
    ),
    (&["record", "-o", "OUT", "FILE"], &[Elf, Text, Unknown]),
    (
        &["record", "--engine", "emulator", "-o", "OUT", "FILE"],
        PROGRAMS,
    ),
    (&["verify", "--tables-from", "FILE", "/bin/true"], &[Elf]),
    (
        &["verify", "--baseline", "FILE", "/bin/true"],
        &[Lines, Empty, Special],
    ),
    (&["cases", "run", "--folder", "no/folder", "FILE"], &[Case]),
    (&["perf", "script", "FILE"], &[PerfData]),
    (&["perf", "script", "--kallsyms", "FILE", DATA], &[Text]),
    (&["perf", "stitch", "FILE"], &[PerfData]),
    (&["perf", "bpf", OBJECT, "FILE"], &[PerfData]),
    (&["perf", "bpf", "FILE", DATA], &[Bpf]),
    (&["perf", "run", "FILE"], &[Text]),
];

#[test]
fn a_wrong_file_is_named_for_what_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out.bin").to_string_lossy().into_owned();
    let inputs = tempfile::tempdir().expect("a folder");
    let files = files(inputs.path());

    for (place, kinds) in PLACES {
        for (file, kind) in &files {
            // What is accepted there is tested elsewhere.
            if kinds.contains(kind) {
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
            assert_eq!(status(&output), 2, "{args:?}: {told}");
            // The recorder refuses a case in its own words.
            let what = format!("{file} is {}", kind.description());
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
        let takes =
            |(place, kinds): &&FileArgument| place.starts_with(&words[..]) && kinds.contains(kind);

        // Lines are a baseline, which is an option's value, not a place of its own.
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
