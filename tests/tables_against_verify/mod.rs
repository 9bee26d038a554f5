//! `tables check` against `verify`: nothing that is proven from the code is found wrong when it
//! runs, and whatever is found wrong when it runs is contradicted or unproven.
//!
//! `UNWIND_SIM_SLOW=1` runs ordinary programs of this machine, and programs compiled at every level
//! of optimization. Without optimization (`cargo test` without `--release`), each is followed for
//! fewer instructions.

mod join;
mod run;

use crate::common::compiler::{Scratch, run as output_of};
use crate::common::skip::skip;
use join::{JoinCounts, ProofCache};
use std::path::Path;
use std::process::Command;
use unwind_sim_judge::cases;

const SLOW: &str = "slow; set UNWIND_SIM_SLOW=1";

/// Command lines of ordinary programs. Those that are not installed are left out.
const COMMANDS: [&[&str]; 52] = [
    &["ls", "-l", "/etc"],
    &["cat", "/etc/passwd"],
    &["sort", "/etc/passwd"],
    &[
        "awk",
        "-F:",
        "{ n[$3 % 7]++ } END { for (i in n) print i, n[i] }",
        "/etc/passwd",
    ],
    &["sed", "-E", "s/([a-z]+)/<\\1>/g", "/etc/passwd"],
    &["grep", "-E", "(ro|da)+[a-z]*", "/etc/passwd"],
    &["gzip", "-c", "/etc/passwd"],
    &["bzip2", "-c", "/etc/passwd"],
    &["xz", "-c", "/etc/passwd"],
    &["zstd", "-c", "/etc/passwd"],
    &["git", "--version"],
    &["git", "-C", env!("CARGO_MANIFEST_DIR"), "log", "-3"],
    &["git", "help", "-a"],
    &[
        "python3",
        "-c",
        "print(sorted({i % 7: str(i) for i in range(99)}))",
    ],
    &[
        "perl",
        "-e",
        "print join ',', map { sprintf '%x', $_ * 7 } sort { $b <=> $a } 1..99",
    ],
    &["gdb", "--version"],
    &["openssl", "version", "-a"],
    &["openssl", "dgst", "-sha256", "/etc/passwd"],
    &[
        "openssl",
        "enc",
        "-aes-128-cbc",
        "-k",
        "a",
        "-pbkdf2",
        "-in",
        "/etc/passwd",
    ],
    &[
        "bash",
        "-c",
        "f() { echo $(( $1 * 2 )); }; for i in 1 2 3; do f $i; done",
    ],
    &["dash", "-c", "for i in 1 2 3; do echo $i; done"],
    &["find", "/etc", "-maxdepth", "1", "-name", "*.conf"],
    &["tar", "-cf", "-", "/etc/passwd"],
    &["make", "--version"],
    &["file", "/etc/passwd"],
    &["tclsh", "/dev/null"],
    &[
        "sqlite3",
        ":memory:",
        "select sum(a) from (select 1 a union select 2)",
    ],
    &["curl", "--version"],
    &["ssh", "-V"],
    &["less", "--version"],
    &["bc", "--version"],
    &["diff", "/etc/passwd", "/etc/group"],
    &["patch", "--version"],
    &["readelf", "-h", "/bin/true"],
    &["objdump", "-f", "/bin/true"],
    &["nm", "-D", "/bin/true"],
    &["c++filt", "_ZNSt6vectorIiSaIiEE9push_backERKi"],
    &["gcc", "--version"],
    &["as", "--version"],
    &["ld", "--version"],
    &["od", "-c", "/etc/passwd"],
    &["wc", "/etc/passwd"],
    &["cut", "-d:", "-f1", "/etc/passwd"],
    &["date", "-u"],
    &["id"],
    &["expr", "6", "*", "7"],
    &["factor", "1234567890123456789"],
    &["sha256sum", "/etc/passwd"],
    &["stat", "/etc/passwd"],
    &["ps", "--version"],
    &["jq", "-n", "[range(9)] | map(. * 2)"],
    &["dpkg", "--version"],
];

/// Programs that do to stacks what programs do: exceptions, signals, `alloca`, `longjmp`, callbacks
/// from a library.
const SOURCES: [(&str, &str); 5] = [
    ("alloca.c", include_str!("programs/alloca.c")),
    ("callbacks.c", include_str!("programs/callbacks.c")),
    ("exceptions.cc", include_str!("programs/exceptions.cc")),
    ("longjmp.c", include_str!("programs/longjmp.c")),
    ("signals.c", include_str!("programs/signals.c")),
];

#[test]
fn a_small_program_agrees() {
    let scratch = Scratch::new();
    let flags = [
        "-O2",
        "-static",
        "-nostdlib",
        "-ffreestanding",
        "-fno-stack-protector",
    ];
    let source = include_str!("programs/freestanding.c");
    let program = match scratch.cc("freestanding.c", source, &flags) {
        Ok(program) => program,
        Err(error) => return skip("a_small_program_agrees", error),
    };
    let mut known = ProofCache::default();
    let mut joined = JoinCounts::default();
    let run = run::verify(&program, &[]);
    joined.add(&run, &mut known);
    println!("{joined}");
    assert_eq!(joined.mismatches, Vec::<String>::new());
    assert!(joined.proven >= 3, "{joined}");
    // Nothing called `_start`, although the compiler's row says that something did.
    assert_eq!((joined.findings, joined.unproven()), (1, 1), "{joined}");
}

/// Every defect of the corpus that `verify` finds is found in the code, too; and if it were not,
/// this test would say so.
#[test]
fn defects_are_found_by_both() {
    let mut found = 0;
    for path in cases::find(Path::new("corpus/cases/defect")).expect("the corpus is there") {
        let case = cases::read(&path).expect("a case");
        if case.header.inject.is_none() {
            continue;
        }

        let built = cases::build_case(&path, true).expect("the case can be built");
        let run = run::verify(&built.path, &[]);
        let (mut joined, mut known) = (JoinCounts::default(), ProofCache::default());
        joined.add(&run, &mut known);
        assert_eq!(
            joined.mismatches,
            Vec::<String>::new(),
            "{}",
            path.display()
        );

        // `verify` does not find all of them.
        if joined.findings == 0 {
            continue;
        }
        found += 1;

        // If `check` had missed what is wrong here, the comparison would have to say so.
        let mut blind = JoinCounts::default();
        known.forget_what_is_wrong();
        blind.add(&run, &mut known);
        let missed = u64::try_from(blind.mismatches.len()).expect("few");
        assert_eq!(
            missed,
            joined.contradicted + joined.unproven(),
            "{}",
            path.display()
        );
    }
    assert!(found >= 8, "{found}");
}

#[test]
fn ordinary_programs_agree() {
    let name = "ordinary_programs_agree";
    if std::env::var_os("UNWIND_SIM_SLOW").is_none() {
        return skip(name, SLOW);
    }
    let (mut joined, mut known, mut ran) = (JoinCounts::default(), ProofCache::default(), 0);
    for command in COMMANDS {
        let Some(program) = run::find(command[0]) else {
            continue;
        };
        let before = joined.instructions;
        let run = run::verify(&program, &command[1..]);
        joined.add(&run, &mut known);
        println!(
            "{command:?}: {}, {} instructions",
            run.end,
            joined.instructions - before
        );
        ran += 1;
    }
    println!("{ran} programs\n{joined}");
    assert!(ran >= 12, "{ran} of the programs are here");
    assert_eq!(joined.mismatches, Vec::<String>::new());
}

#[test]
fn compiled_programs_agree_at_every_level() {
    let name = "compiled_programs_agree_at_every_level";
    if std::env::var_os("UNWIND_SIM_SLOW").is_none() {
        return skip(name, SLOW);
    }

    // The static proof and the execution of the same program must not contradict each other.
    let (mut joined, mut known) = (JoinCounts::default(), ProofCache::default());
    let scratch = Scratch::new();
    for (source, text) in SOURCES {
        // Each level has other prologues.
        for level in ["-O0", "-O1", "-O2", "-O3", "-Os"] {
            let input = scratch.path(source);
            std::fs::write(&input, text).expect("writable");
            let program = scratch.path(&format!("{source}{level}"));
            let compiler = if source.ends_with(".cc") { "c++" } else { "cc" };

            let made = output_of(
                Command::new(compiler)
                    .args([level, "-o"])
                    .arg(&program)
                    .arg(&input),
            );
            if let Err(error) = made {
                skip(&format!("{name}: {source}"), error);

                // The compiler is missing for all levels, not only for this one.
                break;
            }

            let run = run::verify(&program, &[]);
            let end = run.end.to_string();
            assert!(end.contains("status 0"), "{source} {level}: {end}");
            joined.add(&run, &mut known);
        }
    }

    println!("{joined}");
    assert_eq!(joined.mismatches, Vec::<String>::new());
}
