//! Inputs that are large or hostile in one respect, through the commands that read them, in bounded
//! memory: small ones always, the large ones of `docs/performance.md` with `UNWIND_SIM_SLOW=1`.
//!
//! A limit of address space is the oracle: it does not depend on how fast or busy the machine is.

mod bombs;
mod captures;
mod core;
mod elf;
mod perfdata;

use crate::common::compiler::Scratch;
use crate::common::skip::skip;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// What the program, its libraries and one thread need of address space, MiB.
const PROGRAM: u64 = 160;

/// How large the inputs are.
#[derive(Clone, Copy)]
struct Sizes {
    functions: u64,
    mappings: u64,
    samples: u64,
    /// Stops of a captured kernel, 4 KB each.
    stops: u64,
    name_bytes: usize,
    expressions: u64,
    /// What a bomb unpacks to.
    bomb_bytes: u64,
    /// Compressed records of 60 MiB.
    records: usize,
}

const SMALL: Sizes = Sizes {
    functions: 100_000,
    mappings: 2_000,
    samples: 5_000,
    stops: 3_000,
    // Deeper than the stack of a reader that knows no limit; to demangle it takes time squared.
    name_bytes: 3_000,
    expressions: 30,
    bomb_bytes: 4 << 20,
    records: 2,
};
const LARGE: Sizes = Sizes {
    // Ten times as many need 13 GB for `tables check`.
    functions: 1_000_000,
    mappings: 100_000,
    samples: 1_000_000,
    stops: 12_500,
    // Names of more than 64 KiB are not read.
    name_bytes: 30_000,
    expressions: 3_000,
    // More than the limit of 1 GiB.
    bomb_bytes: (1 << 30) + (64 << 20),
    records: 200,
};

/// Runs a command in so many MiB of address space above what the program needs. It may end with any
/// status of its own but 2.
fn run(command: &str, file: &Path, memory: u64) {
    run_to(&[0, 1, 3], command, file, memory);
}

/// [`run`], of a command that ends with one of these statuses.
fn run_to(statuses: &[i32], command: &str, file: &Path, memory: u64) {
    let start = Instant::now();
    let output = Command::new("sh")
        .args(["-c", "ulimit -v \"$0\" && exec \"$@\""])
        .arg(((PROGRAM + memory) << 10).to_string())
        .arg(env!("CARGO_BIN_EXE_unwind-sim"))
        .args(command.split(' '))
        .arg(file)
        // One arena of the C library: each takes 64 MiB of address space for itself.
        .env("MALLOC_ARENA_MAX", "1")
        .output()
        .expect("sh runs");
    println!("{command} {}: {:.1?}", file.display(), start.elapsed());
    let status = output.status.code();
    assert!(
        status.is_some_and(|status| statuses.contains(&status)),
        "{command} {} in {memory} MiB: {:?}: {}",
        file.display(),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The MiB of a file.
fn size(path: &Path) -> u64 {
    path.metadata().expect("it was made").len() >> 20
}

/// A made file, which is removed when `with` is done.
fn with_file(scratch: &Scratch, name: &str, make: impl FnOnce(&Path), with: impl FnOnce(&Path)) {
    let path: PathBuf = scratch.path(name);
    make(&path);
    with(&path);
    std::fs::remove_file(path).expect("it was made");
}

/// Symbols and FDEs. The bytes for each function are those of the bounds in `docs/performance.md`.
fn functions(sizes: Sizes, scratch: &Scratch) {
    let mib = |bytes: u64| (bytes * sizes.functions) >> 20;
    with_file(
        scratch,
        "functions",
        |path| elf::write(path, &elf::functions(sizes.functions)).expect("a file"),
        |path| {
            run("inspect", path, size(path) + mib(INSPECTED));
            run("tables dump", path, size(path) + mib(INSPECTED));
            run("tables check --threads 1", path, size(path) + mib(CHECKED));
        },
    );
}

/// Bytes that commands which show a file use for each of its functions.
const INSPECTED: u64 = 512;
/// Bytes that `tables check` uses for each.
const CHECKED: u64 = 2048;

fn mappings(sizes: Sizes, scratch: &Scratch) {
    with_file(
        scratch,
        "mappings",
        |path| core::write(path, sizes.mappings, Path::new("/missing")).expect("a file"),
        |path| {
            for command in ["inspect", "replay", "doctor"] {
                run(
                    command,
                    path,
                    size(path) + ((1024 * sizes.mappings) >> 20) + 16,
                );
            }
        },
    );
}

fn samples(sizes: Sizes, scratch: &Scratch) {
    let program = scratch.path("program");
    elf::write(&program, &elf::functions(1000)).expect("a file");

    with_file(
        scratch,
        "samples",
        |path| perfdata::write(path, sizes.samples, &program, 1000).expect("a file"),
        |path| {
            // A recording is read as it is walked: memory does not depend on its length.
            let inspected = size(path) + 64;
            for command in [
                "inspect",
                "replay --threads 1",
                "compare --threads 1",
                "doctor",
                "perf script",
            ] {
                run(command, path, inspected);
            }

            // The same as a trace, which is compressed in blocks and read block by block.
            let trace = scratch.path("trace");
            run(&format!("import -o {}", trace.display()), path, inspected);
            for command in ["replay --threads 1", "compare --threads 1", "doctor"] {
                run(command, &trace, size(&trace) + 64);
            }
        },
    );
}

/// A capture is read stop by stop, and never held as a tree of values.
fn captures(sizes: Sizes, scratch: &Scratch) {
    let map = scratch.path("System.map-6.12.0");
    captures::write_map(&map).expect("a file");
    let kernel = format!("--system-map {}", map.display());
    let trace = scratch.path("captured");

    with_file(
        scratch,
        "capture",
        |path| captures::write(path, sizes.stops).expect("a file"),
        |path| {
            // As a tree it would take 13 times the size of the file.
            let memory = size(path) + 32;
            run("inspect", path, memory);
            run(&format!("replay --threads 1 {kernel}"), path, memory);
            let import = format!("import {kernel} -o {}", trace.display());
            run(&import, path, memory);
        },
    );
}

/// Names that nest as deep as they are long, in the manglings of C++ and Rust.
fn names(sizes: Sizes, scratch: &Scratch) {
    let n = sizes.name_bytes;

    // In order: nested names, pointers, templates, expressions, packs; then the two manglings of
    // Rust.
    let all = [
        format!("_ZN{}E", "1a".repeat(n)),
        format!("_Z1f{}i", "P".repeat(n)),
        format!("_Z1f{}{}", "1aI".repeat(n), "E".repeat(n)),
        format!("_Z1fI{}E", "XadL_Z".repeat(n)),
        format!("_Z1f{}iE", "DpT_".repeat(n)),
        format!("_ZN{}17h0123456789abcdefE", "3$LT$".repeat(n)),
        format!("_R{}C1a", "Nv".repeat(n)),
        format!("_RNvC{}1a", "1b".repeat(n)),
        format!("_RINvC1a1b{}lE", "R".repeat(n)),
    ];

    // Back references that double the length of a name each time.
    let all = [&all[..], &[doubling()]].concat();
    let mut program = elf::symbols(all.iter().cloned().zip(0..));
    program
        .sections
        .extend(elf::frames(all.len() as u64, |_| Vec::new()));

    // Memory may grow with the file, but not with what names become when written out.
    with_file(
        scratch,
        "names",
        |path| elf::write(path, &program).expect("a file"),
        |path| {
            for command in ["inspect", "tables dump", "tables check --threads 1"] {
                run(command, path, 4 * size(path) + 64);
            }
            let samples = scratch.path("of-names");
            perfdata::write(&samples, 20, path, all.len() as u64).expect("a file");
            for command in ["replay --threads 1", "doctor", "perf script"] {
                run(command, &samples, 4 * size(path) + 64);
            }
        },
    );
}

/// A name of which each parameter is twice as long as the one before it: 20 GB when it is demangled.
fn doubling() -> String {
    let digit = |n: usize| char::from(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[n]);
    let number = |n: usize| match n {
        0..36 => digit(n).to_string(),
        _ => format!("{}{}", digit(n / 36), digit(n % 36)),
    };
    let levels = (0..30).map(|level| {
        let n = number(2 * level);
        format!("1bIS{n}_S{n}_E")
    });
    "_Z1f1aIiE".to_owned() + &levels.collect::<String>()
}

/// Expressions that are long, do not end, and pile up values.
fn expressions(sizes: Sizes, scratch: &Scratch) {
    // `DW_OP_breg7 8`, then `DW_OP_plus_uconst 0` again and again.
    let long = [vec![0x77, 8], [0x23, 0].repeat(30_000)].concat();
    // `DW_OP_breg7 8; DW_OP_skip -3`
    let endless = vec![0x77, 8, 0x2f, 0xfd, 0xff];
    // `DW_OP_lit0` pushes a value.
    let deep = [0x30].repeat(60_000);
    let all = [long, endless, deep];

    let row = |number: u64| {
        let expression = &all[number as usize % all.len()];
        let len = expression.len();
        // `DW_CFA_def_cfa_expression` and a length in LEB128.
        let head = [
            0x0f,
            len as u8 | 0x80,
            (len >> 7) as u8 | 0x80,
            (len >> 14) as u8,
        ];
        [&head[..], expression].concat()
    };

    let functions = (0..sizes.expressions).map(|number| (format!("f{number}"), number));
    let mut program = elf::symbols(functions);
    program.sections.extend(elf::frames(sizes.expressions, row));

    with_file(
        scratch,
        "expressions",
        |path| elf::write(path, &program).expect("a file"),
        |path| {
            for command in ["inspect", "tables dump", "tables check --threads 1"] {
                run(command, path, size(path) + 64);
            }
        },
    );
}

/// Compressed sections that claim to be larger than they are.
fn claims(scratch: &Scratch) {
    let section = |number: u64| {
        let mut bytes = (1 + number as u32 % 2).to_le_bytes().to_vec();
        bytes.extend([0; 4]);
        bytes.extend((1u64 << 62).to_le_bytes());
        bytes.extend(8u64.to_le_bytes());
        bytes.extend(*b"none");
        elf::Section::debug(".debug_frame", elf::SHF_COMPRESSED, bytes)
    };
    let mut program = elf::functions(10);
    program.sections.extend((0..100).map(section));
    with_file(
        scratch,
        "claims",
        |path| elf::write(path, &program).expect("a file"),
        |path| {
            run("inspect", path, 64);
            run("tables check --threads 1", path, 64);
        },
    );
}

/// Images of kernels. None is an ELF file when it is unpacked.
fn kernels(sizes: Sizes, scratch: &Scratch) {
    for packer in bombs::Packer::ALL {
        let packed = packer.zeros(sizes.bomb_bytes).expect("packed");
        with_file(
            scratch,
            &format!("kernel-{packer:?}"),
            |path| bombs::kernel(path, &packed).expect("a file"),
            // A buffer that grows doubles, and up to that size is reserved.
            |path| run_to(&[2], "inspect", path, 2 * (sizes.bomb_bytes >> 20) + 96),
        );
        let Some(window) = packer.with_window(packed) else {
            continue;
        };
        with_file(
            scratch,
            &format!("window-{packer:?}"),
            |path| bombs::kernel(path, &window).expect("a file"),
            |path| run_to(&[2], "inspect", path, 64),
        );
    }
}

/// `.gnu_debugdata`, and sections in zstd.
fn unpacked(sizes: Sizes, scratch: &Scratch) {
    let bytes = sizes.bomb_bytes;

    // A few bytes that unpack to very many zeros.
    let xz = bombs::Packer::Xz.zeros(bytes).expect("packed");
    let zstd = bombs::zstd_section(bytes).expect("packed");
    let mini = vec![elf::Section::debug(".gnu_debugdata", 0, xz)];
    let rows = || elf::Section::debug(".debug_frame", elf::SHF_COMPRESSED, zstd.clone());
    let rows = (0..20).map(|_| rows()).collect::<Vec<_>>();

    for (name, sections, count) in [("mini", mini, 1), ("rows", rows, 20)] {
        // All sections together unpack to the limit at most.
        let memory = 2 * (bytes * count).min(1 << 30) + (64 << 20);
        let mut program = elf::text(10);
        program.sections.extend(sections);

        with_file(
            scratch,
            name,
            |path| elf::write(path, &program).expect("a file"),
            |path| {
                run("inspect", path, 64);
                run("tables check --threads 1", path, memory >> 20);
                let samples = scratch.path("of-unpacked");
                perfdata::write(&samples, 20, path, 10).expect("a file");
                for command in ["replay --threads 1", "doctor", "perf script"] {
                    run(command, &samples, memory >> 20);
                }
            },
        );
    }
}

/// Compressed records: one that unpacks to more than the limit, and many that do not.
fn records(sizes: Sizes, scratch: &Scratch) {
    let one = bombs::record(128).expect("packed");
    let many = bombs::record(60).expect("packed").repeat(sizes.records);
    for (name, records) in [("one", one), ("many", many)] {
        with_file(
            scratch,
            name,
            |path| perfdata::write_records(path, &records).expect("a file"),
            |path| {
                for command in ["inspect", "replay --threads 1", "doctor", "perf script"] {
                    run(command, path, 64);
                }
            },
        );
    }
}

/// A stack of 2,500 frames, of which `scrub` walks a copy that ends at each: what it reads is kept once, not
/// once for each copy (1.7 GB). The time is the square of the frames.
fn deep_stack(scratch: &Scratch) {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/field/frames-recursion.bin");
    let scrubbed = scratch.path("scrubbed");
    run(&format!("scrub -o {}", scrubbed.display()), &trace, 64);
}

fn all(sizes: Sizes) {
    let scratch = Scratch::new();
    functions(sizes, &scratch);
    mappings(sizes, &scratch);
    samples(sizes, &scratch);
    captures(sizes, &scratch);
    names(sizes, &scratch);
    expressions(sizes, &scratch);
    claims(&scratch);
    kernels(sizes, &scratch);
    unpacked(sizes, &scratch);
    records(sizes, &scratch);
}

#[test]
fn inputs_that_are_a_little_large() {
    all(SMALL);
}

#[test]
fn inputs_that_are_large() {
    if std::env::var_os("UNWIND_SIM_SLOW").is_none() {
        return skip("inputs_that_are_large", "slow; set UNWIND_SIM_SLOW=1");
    }
    all(LARGE);
    deep_stack(&Scratch::new());
}
