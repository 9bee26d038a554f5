//! Cores on the command line: every stack that a core has is walked, and what it lacks is said.

use crate::cli::{ends_with, root, run, stderr, stdout};
use std::path::{Path, PathBuf};

/// A core of the corpus and its program, unpacked.
struct Unpacked {
    folder: tempfile::TempDir,
}

impl Unpacked {
    /// `NAME.core.zst`, and `NAME.elf.zst` at the path `at` below the folder `files`.
    fn new(name: &str, at: &str) -> Unpacked {
        let folder = tempfile::tempdir().expect("a folder");
        let this = Unpacked { folder };
        this.put(&format!("{name}.core.zst"), "core");
        this.put(&format!("{name}.elf.zst"), &format!("files{at}"));
        this
    }

    fn put(&self, packed: &str, to: &str) {
        let packed = root("corpus/cores").join(packed);
        let bytes = std::fs::read(&packed).expect("the corpus");
        let bytes = zstd::decode_all(&bytes[..]).expect("zstd");
        let to = self.folder.path().join(to);
        std::fs::create_dir_all(to.parent().expect("a folder")).expect("folders");
        std::fs::write(&to, bytes).expect("written");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        text(&self.path(name)).to_owned()
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// The names of the frames of each sample, innermost first, as `replay` prints them.
fn names(printed: &str) -> Vec<Vec<String>> {
    let mut out = Vec::new();
    for line in printed.lines() {
        if line.starts_with("sample ") {
            out.push(Vec::new());
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ([number, _, name, ..], Some(last)) = (&words[..], out.last_mut())
            && line.starts_with("   ")
            && number.parse::<u32>().is_ok()
        {
            let name = name.split('+').next().unwrap_or(name);
            last.push(name.to_owned());
        }
    }
    out
}

/// The program's stack, its thread's second stack, and an alternate signal stack: as gdb 13 and
/// eu-stack 0.188 walk them.
#[test]
fn a_walk_goes_through_every_stack_that_the_core_has() {
    let core = Unpacked::new("stacks", "/usr/local/bin/stacks");
    let (path, files) = (core.text("core"), core.text("files"));
    let chain = [
        "report",
        "handler",
        "victim",
        "work",
        "on_other_stack",
        "main",
        "_start",
    ];
    let check = |args: &[&str]| {
        let found = names(&ends_with(3, args));
        let [frames] = &found[..] else {
            panic!("{args:?}: {found:?}");
        };
        // The signal trampoline is not what this is about.
        let mut frames = frames.clone();
        frames.remove(2);
        assert_eq!(frames, chain, "{args:?}");
    };
    for unwinder in ["dwarf", "dwarf+fp"] {
        check(&["replay", &path, "--symfs", &files, "--unwinder", unwinder]);
    }

    // A trace has no core to read from: what walks need is in it.
    let trace = core.text("trace.bin");
    ends_with(0, &["import", &path, "--symfs", &files, "-o", &trace]);
    check(&["replay", &trace, "--unwinder", "dwarf"]);
    // The core has the first page of the program, with its code and tables, but no symbols.
    let extracted = core.text("extracted.bin");
    for scrub in [&[][..], &["--scrub"]] {
        let args = ["extract", &path, "--sample", "0", "-o", &extracted];
        ends_with(0, &[&args[..], scrub].concat());
        let replayed = ends_with(3, &["replay", &extracted, "--unwinder", "dwarf"]);
        assert_eq!(names(&replayed).concat().len(), 8, "{replayed}");
    }
}

/// `stacks` without NT_FILE, as qemu and valgrind write cores. Its path is that of the auxiliary
/// vector; a program elsewhere is given.
#[test]
fn a_core_without_a_list_of_files_is_walked_and_says_so() {
    let core = Unpacked::new("stacks", "/elsewhere/stacks");
    let mut bytes = std::fs::read(core.path("core")).expect("ours");
    // NT_FILE is 0x46494c45: `ELIF` in the order of bytes.
    let note = bytes.windows(4).position(|word| word == b"ELIF");
    bytes[note.expect("NT_FILE")] = 0;
    // And without the page that has the program's header and all of its code.
    let mut words = bytes.chunks_exact(8);
    let segment = words.position(|word| word == 0x40_0000_u64.to_le_bytes());
    // `p_filesz` comes 16 bytes behind `p_vaddr` (elf(5)).
    let size = 8 * segment.expect("its program header") + 16;
    bytes[size..size + 8].fill(0);
    std::fs::write(core.path("core"), &bytes).expect("ours");

    let (path, exe) = (core.text("core"), core.text("files/elsewhere/stacks"));
    let empty = core.text("files/elsewhere");

    // How many frames have a name.
    let replayed = |more: &[&str]| {
        let args = ["replay", &path, "--unwinder", "dwarf", "--sysroot", &empty];
        let output = run(&[&args[..], more].concat());
        assert!(
            stderr(&output).contains("no NT_FILE note"),
            "{}",
            stderr(&output)
        );
        names(stdout(&output)).concat().len()
    };
    assert_eq!((replayed(&[]), replayed(&["--exe", &exe])), (1, 8));

    let blamed = |more: &[&str]| {
        let args = ["doctor", &path, "--unwinder", "dwarf", "--json"];
        let output = run(&[&args[..], &["--sysroot", &empty], more].concat());
        let line = stdout(&output).lines().next().expect("a line").to_owned();
        let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        ["kind", "image", "advice"].map(|key| line[key].as_str().unwrap_or_default().to_owned())
    };
    // The auxiliary vector names the program: its code is there, where the entry point is.
    let [kind, image, _] = blamed(&[]);
    assert_eq!([&*kind, &*image], ["no-file", "/usr/local/bin/stacks"]);

    // A relative path means nothing without its folder.
    let name = b"/usr/local/bin/stacks";
    while let Some(at) = bytes.windows(name.len()).position(|word| word == name) {
        bytes[at] = b'.';
    }
    std::fs::write(core.path("core"), &bytes).expect("ours");
    let [kind, image, advice] = blamed(&[]);
    assert_eq!([&*kind, &*image], ["no-note", "stacks"]);
    assert!(advice.contains("--exe FILE"), "{advice}");
    let [kind, ..] = blamed(&["--exe", &exe]);
    assert_ne!(kind, "no-note");
    assert_eq!(replayed(&["--exe", &exe]), 8);
    let wrong = run(&["replay", &path, "--exe", &path]);
    assert!(
        stderr(&wrong).contains("a program (ELF)"),
        "{}",
        stderr(&wrong)
    );
}

/// Every view of a core says which thread the kernel wrote it for, and why.
#[test]
fn the_thread_that_crashed_is_marked() {
    let core = Unpacked::new("stacks", "/usr/local/bin/stacks");
    let (path, files) = (core.text("core"), core.text("files"));

    // The signal, its code and its address: the kernel's note about the crash.
    let crash = "SIGILL (ILL_ILLOPN) at 0x4001f2";
    let replay = ["replay", &path, "--symfs", &files, "--unwinder", "dwarf,fp"];
    let marked = format!("sample 0 pid 31400 tid 31400 time 0 (truth unknown), crashed: {crash}\n");
    let replayed = ends_with(3, &replay);
    assert!(replayed.starts_with(&marked), "{replayed}");
    let shown = ends_with(0, &["inspect", &path]);
    let of_thread = format!("  crashed       thread 31400: {crash}\n");
    assert!(shown.contains(&of_thread), "{shown}");
    let doctor = run(&["doctor", &path, "--symfs", &files]);
    let of_sample = format!("\nthread 31400 crashed: {crash} (sample 0)\n");
    assert!(stdout(&doctor).contains(&of_sample), "{}", stdout(&doctor));

    // The same as JSON.
    let lines = |text: &str| -> Vec<serde_json::Value> {
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    };

    // 4 is SIGILL's number, and 2 is ILL_ILLOPN.
    let expected = serde_json::json!({
        "signal": "SIGILL", "number": 4, "code": 2, "code_name": "ILL_ILLOPN", "address": "0x4001f2",
    });
    let chains = lines(&ends_with(3, &[&replay[..], &["--json"]].concat()));
    let chains: Vec<_> = chains.iter().filter(|l| l["type"] == "chain").collect();

    // One of each unwinder.
    assert_eq!(chains.len(), 2);
    for chain in chains {
        assert_eq!(chain["crash"], expected);
    }
    let doctor = lines(stdout(&run(&[
        "doctor", &path, "--symfs", &files, "--json",
    ])));
    let crashed = &doctor.last().expect("a summary")["crashed"];
    assert_eq!(
        (&crashed["sample"], &crashed["tid"]),
        (&0.into(), &31400.into())
    );
    assert_eq!(crashed["code_name"], "ILL_ILLOPN");
}

/// Generated code has the rows that libgcc knows: GCC 12 keeps them in lists, GCC 14 in a tree. The
/// program is not here, and its image in the core has neither section headers nor an index of rows; its
/// start files have registered them, too.
#[test]
fn code_whose_tables_are_registered_with_libgcc_is_walked() {
    for version in ["gcc12", "gcc14"] {
        let core = Unpacked {
            folder: tempfile::tempdir().expect("a folder"),
        };
        core.put(&format!("registered-{version}.core.zst"), "core");
        let path = core.text("core");
        let empty = core.text("");
        let walk = ["replay", &path, "--symfs", &empty, "--unwinder", "dwarf"];
        let replayed = ends_with(3, &walk);

        // Two frames of generated code, and three of the program.
        let chain = ["[jit", "[jit", "registered", "registered", "registered"];
        assert_eq!(names(&replayed), [chain], "{version}: {replayed}");
        assert!(replayed.contains("US001 root reached: the entry of a program"));
        ends_with(
            0,
            &["doctor", &path, "--symfs", &empty, "--unwinder", "dwarf"],
        );

        // Where the lists are not in the core, the code is generated code without a table.
        let mut bytes = std::fs::read(core.path("core")).expect("ours");
        // Program headers stand behind the ELF header of 64 bytes.
        let headers = bytes[64..].chunks_exact_mut(56).take(16);

        // Program headers have 56 bytes (elf(5)); some writable PT_LOAD ones lose their bytes.
        for header in headers.filter(|h| h[..4] == [1, 0, 0, 0] && h[4] == 6 && h[22] == 0) {
            header[32..40].fill(0);
        }
        std::fs::write(core.path("core"), &bytes).expect("ours");
        let args = [
            "doctor",
            &path,
            "--symfs",
            &empty,
            "--unwinder",
            "dwarf",
            "--json",
        ];
        let judged = run(&args);
        let line = stdout(&judged).lines().next().expect("a line");
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(line["kind"], "jit", "{version}: {line}");
    }
}
