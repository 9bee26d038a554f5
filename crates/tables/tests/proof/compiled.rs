//! Code that compilers write: nothing in it may be contradicted.

use crate::proof::build::{Scratch, compile, open};
use crate::proof::expect::subject;
use crate::proof::random_c::program;
use crate::random::Random;
use crate::skip::skip;
use std::path::Path;
use unwind_sim_tables::check::{Options, check};
use unwind_sim_tables::file::File;
use unwind_sim_tables::proof::claim::Subject;
use unwind_sim_tables::proof::value::Value as Found;
use unwind_sim_tables::proof::verdict::{Contradiction, Verdict};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{Rule, Value};

/// The number of programs of the slow test, and of the quick one.
const PROGRAMS: (u64, u64) = (240, 6);
/// The number of functions in a program.
const FUNCTIONS: u32 = 14;

/// How a program is compiled.
struct CompilerSetup {
    compiler: &'static str,
    is_cpp: bool,
    flags: Vec<&'static str>,
}

/// The compilers that are installed: for C and for C++.
fn compilers() -> Vec<(&'static str, &'static str)> {
    let known = [("gcc", "g++"), ("clang", "clang++")];
    let works = |name: &str| {
        std::process::Command::new(name)
            .arg("--version")
            .output()
            .is_ok()
    };
    known
        .into_iter()
        .filter(|(c, cpp)| works(c) && works(cpp))
        .collect()
}

impl CompilerSetup {
    fn random(random: &mut Random, compilers: &[(&'static str, &'static str)]) -> CompilerSetup {
        let (c, cpp) = random.pick(compilers);
        let is_cpp = random.below(3) == 0;

        let level = random.pick(&["-O0", "-O1", "-O2", "-O2", "-O3", "-Os"]);
        let choices: [&[&str]; 7] = [
            &["", "-fomit-frame-pointer", "-fno-omit-frame-pointer"],
            &["-fcf-protection=none", "-fcf-protection=full"],
            &["-shared -fPIC", "-c", "-c -fPIE", "-shared -fPIC -flto"],
            &[
                "",
                "",
                "-fstack-clash-protection",
                "-fstack-protector-strong",
            ],
            &[
                "",
                "",
                "-mavx2",
                "-mno-red-zone",
                "-fno-plt",
                "-mstackrealign",
            ],
            &[
                "",
                "",
                "-fno-jump-tables",
                "-ftree-vectorize",
                "-fno-exceptions",
            ],
            &["", "", "-ffunction-sections", "-g", "-fno-inline"],
        ];

        let mut flags = vec!["-w", level];
        for choice in choices {
            let words = random.pick(choice);
            // The C++ programs throw, so they would not compile with it.
            if words == "-fno-exceptions" && is_cpp {
                continue;
            }
            flags.extend(words.split(' ').filter(|w| !w.is_empty()));
        }
        CompilerSetup {
            compiler: if is_cpp { cpp } else { c },
            is_cpp,
            flags,
        }
    }
}

/// What was counted.
#[derive(Default)]
struct Count {
    programs: u64,
    refused: u64,
    functions: usize,
    proven: usize,
    unproven: Vec<String>,
    wrong: Vec<String>,
}

/// A wrong row that GCC writes: where it has aligned the stack and finds its frame through another
/// register, the rows of the epilogue still take callee-saved registers from slots relative to rbp,
/// behind `pop %rbp`.
fn is_of_gcc(wrong: &Contradiction) -> bool {
    let Subject::Register(reg) = wrong.subject else {
        return false;
    };
    let is_restored = |right: &Rule| right.saved(Reg::Rbp) == Value::Same;
    let by_expression = matches!(wrong.rule.saved(reg), Value::Expression(_));
    by_expression && wrong.right.as_ref().is_some_and(is_restored)
}

/// A wrong row that LLVM writes: where the scheduler has put another instruction between two pushes
/// of arguments, there is no row behind the first of them.
fn is_of_llvm(wrong: &Contradiction, file: &File) -> bool {
    /// `push %rax` to `push %rdi`; with a prefix, the others.
    const PUSHES: std::ops::RangeInclusive<u8> = 0x50..=0x57;
    let is_push = file.bytes(wrong.pc - 1).first();
    let is_one_less = wrong.found == Found::frame(0) && wrong.sp.is_stack();
    is_one_less && wrong.subject == Subject::Cfa && is_push.is_some_and(|b| PUSHES.contains(b))
}

fn look(path: &Path, what: &str, count: &mut Count) {
    let (_, file) = open(path);
    let report = check(&file, &Options::default());
    count.programs += 1;

    for checked in &report.functions {
        let verdict = &checked.verdict;
        // The files that every shared object is linked with are other people's code.
        count.functions += 1;
        count.proven += usize::from(verdict.verdict() == Verdict::Proven);
        let name = file
            .symbol_at(checked.range.start)
            .map_or("?", |s| s.name.as_str());

        let ours = |c: &&Contradiction| !is_of_gcc(c) && !is_of_llvm(c, &file);
        for c in verdict.contradictions.iter().filter(ours) {
            count.wrong.push(format!(
                "{what}: {name} at {:#x}, row {:#x}: {} is {:?} at {:#x}",
                checked.range.start,
                c.row.start,
                subject(c.subject),
                c.found,
                c.pc
            ));
        }

        for (doubt, at) in &verdict.doubts {
            let doubt = doubt.as_str();
            count
                .unproven
                .push(format!("{what}: {name}: {doubt} at {at:#x}"));
        }
    }
}

fn run(programs: u64, skipper: &str) {
    let compilers = compilers();
    if compilers.is_empty() {
        return skip(skipper, "no compiler for C and C++ is installed");
    }

    let scratch = Scratch::new(skipper);
    let mut count = Count::default();
    for seed in 1..=programs {
        let way = CompilerSetup::random(&mut Random::new(seed), &compilers);
        let ending = if way.is_cpp { "cc" } else { "c" };

        let source = scratch.path(&format!("{seed}.{ending}"));
        std::fs::write(&source, program(seed, way.is_cpp, FUNCTIONS)).expect("writable");
        let source = source.display().to_string();
        let mut args = way.flags.clone();
        args.push(&source);
        let output = scratch.path(&seed.to_string());

        let what = format!("seed {seed}: {} {}", way.compiler, way.flags.join(" "));
        match compile(way.compiler, &args, &output) {
            Ok(()) => look(&output, &what, &mut count),
            // A compiler may be too old for a flag, or refuse what the generator wrote.
            Err(error) => {
                count.refused += 1;
                let first: Vec<&str> = error
                    .lines()
                    .filter(|l| l.contains("rror"))
                    .take(2)
                    .collect();
                println!("{what}: {}", first.join(" | "));
            }
        }
    }

    for line in &count.unproven {
        println!("unproven: {line}");
    }
    println!(
        "{} programs, {} refused, {} functions, {} proven, {} contradictions",
        count.programs,
        count.refused,
        count.functions,
        count.proven,
        count.wrong.len()
    );

    assert!(count.wrong.is_empty(), "{}", count.wrong.join("\n"));
    assert!(
        count.refused * 10 <= programs,
        "{} programs refused",
        count.refused
    );
}

#[test]
fn a_few_compiled_programs_are_not_contradicted() {
    run(PROGRAMS.1, "a_few_compiled_programs_are_not_contradicted");
}

#[test]
fn compiled_programs_are_not_contradicted() {
    let name = "compiled_programs_are_not_contradicted";
    match std::env::var_os("UNWIND_SIM_SLOW") {
        None => skip(name, "slow; set UNWIND_SIM_SLOW=1"),
        Some(_) => run(PROGRAMS.0, name),
    }
}
