//! `tables generate`: rows made from code alone, compared with those of the compiler and of objtool.

mod boundaries;
mod hints;
mod slow;
mod swizzle;
mod warnings;

use crate::common::compiler::{Scratch, run, text_of};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use unwind_sim_tables::convert::Target;
use unwind_sim_tables::file::File;
use unwind_sim_tables::generate::compare::{Class, Comparison, compare};
use unwind_sim_tables::generate::{Boundaries, Options};
use unwind_sim_tables::table::Table;

/// The flags that kernels are built with, as far as they matter here.
const KERNEL: &[&str] = &[
    "-c",
    "-O2",
    "-ffreestanding",
    "-mno-red-zone",
    "-mcmodel=kernel",
    "-fno-pic",
    "-fno-stack-protector",
    "-fasynchronous-unwind-tables",
    "-fcf-protection=none",
    "-mno-sse",
    "-fno-jump-tables",
];

/// Saved registers, early returns, a realigned and a variable frame, a callee that never returns, a
/// cold part.
const SOURCE: &str = r#"
long outside(long, long);
__attribute__((noreturn)) void panic(const char *, ...);
static __attribute__((noinline, noreturn)) void fail(long n) { panic("n", n); }
long leaf(long a, long b) { return a * 3 + b; }
long saved(long a, long b, long c) {
    long x = outside(a, b), y = outside(b, c), z = outside(c, a);
    if (x < 0) fail(x);
    return x * y + z + outside(x, y) * outside(y, z) - a * b * c;
}
long early(long a, long b) {
    if (a > b) return a;
    long x = outside(a, b);
    return outside(x, a) + x;
}
long realigned(long a) {
    __attribute__((aligned(64))) long v[16];
    for (int i = 0; i < 16; i++) v[i] = outside(a, (long)&v[i]);
    return v[a & 15];
}
long variable(long n) {
    long v[n];
    for (long i = 0; i < n; i++) v[i] = outside(i, n);
    return v[n / 2] + outside((long)v, n);
}
long loops(long n, long *p) {
    long sum = 0;
    for (long i = 0; i < n; i++)
        for (long j = 0; j < i; j++) {
            if (__builtin_expect(p[j] < 0, 0)) fail(p[j]);
            sum += outside(p[i], p[j]);
        }
    return sum;
}
long many(long a, long b, long c, long d, long e, long f, long g, long h) {
    return outside(a + b, c + d) + outside(e + f, g + h) + many(h, g, f, e, d, c, b, outside(a, h));
}
"#;

const SHAPES: &[&[&str]] = &[
    &[],
    &["-fno-omit-frame-pointer"],
    &["-Os"],
    &["-O0"],
    &["-O3"],
    &["-maccumulate-outgoing-args"],
];

fn open(path: &Path) -> File {
    let data = std::fs::read(path).expect("the file is readable");
    File::read(&path.to_string_lossy(), Arc::new(data)).expect("an ELF file")
}

fn against(path: &Path, boundaries: Boundaries, target: Target) -> Option<Comparison> {
    let file = open(path);
    let encoding = match target {
        Target::Orc(encoding) => Some(encoding),
        _ => None,
    };
    let old = Table::read_as(&file, target.kind(), encoding)?;
    let options = Options::new(boundaries, target);
    Some(
        compare(&file, options, &old, target)
            .expect("readable hints")
            .1,
    )
}

fn told(comparison: &Comparison) -> String {
    format!("{:x?}, {:x?}", comparison.addresses, comparison.listed)
}

fn same(comparison: &Comparison) -> u64 {
    comparison.count(Class::Equal) + comparison.count(Class::EqualInMeaning)
}

fn orc() -> Target {
    Target::from_name("orc:6.4").expect("a format")
}

fn unwind_sim(args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
    let output = run(command.args(args)).unwrap_or_else(|error| panic!("{args:?}: {error}"));
    String::from_utf8(output).expect("text")
}

/// One object for each shape that the compiler knows.
fn objects(scratch: &Scratch) -> Vec<(PathBuf, String)> {
    let shapes = SHAPES.iter().enumerate().filter_map(|(number, shape)| {
        let args: Vec<&str> = KERNEL.iter().chain(*shape).copied().collect();
        let object = scratch.cc(&format!("s{number}.c"), SOURCE, &args).ok()?;
        Some((object, format!("{shape:?}")))
    });
    let found: Vec<_> = shapes.collect();
    assert!(found.len() >= 4, "cc makes objects");
    found
}

#[test]
fn generated_rows_of_objects_are_those_of_the_compiler() {
    let scratch = Scratch::new();
    for (object, shape) in objects(&scratch) {
        let found = against(&object, Boundaries::Symbols, Target::EhFrame);
        let found = found.expect("the compiler wrote a table");
        let told = told(&found);
        assert_eq!(found.count(Class::Contradicted), 0, "{shape}: {told}");
        assert_eq!(found.count(Class::Different), 0, "{shape}: {told}");
        assert_eq!(found.count(Class::OnlyNew), 0, "{shape}: {told}");
        // Padding within a function has a row only in the compiler's table.
        let padding = found.count(Class::OnlyOld) as f64 / found.total() as f64;
        assert!(padding < 0.05, "{shape}: {told}");
    }
}

/// Flags on the stack, and a call that does not return in front of code with another frame. The author
/// wrote the rows.
const ASSEMBLY: &str = r#"
    .text
    .globl flags
    .type flags, @function
flags:
    .cfi_startproc
    pushfq
    .cfi_adjust_cfa_offset 8
    popq %rax
    .cfi_adjust_cfa_offset -8
    ret
    .cfi_endproc
    .size flags, . - flags
    .globl stops
    .type stops, @function
stops:
    .cfi_startproc
    test %rdi, %rdi
    je 1f
    pushq %rbx
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %rbx, 0
    call panic
1:  .cfi_def_cfa_offset 8
    .cfi_restore %rbx
    ret
    .cfi_endproc
    .size stops, . - stops
"#;

#[test]
fn flags_on_the_stack_and_calls_that_do_not_return_are_known() {
    let scratch = Scratch::new();
    let object = scratch.cc("a.s", ASSEMBLY, &["-c"]).expect("cc");
    let found = against(&object, Boundaries::Symbols, Target::EhFrame).expect("it has a table");
    assert_eq!(same(&found), found.total(), "{}", told(&found));
}

#[test]
fn a_stripped_object_gets_the_same_orc_again() {
    let scratch = Scratch::new();
    for (object, shape) in objects(&scratch) {
        let path = |name: &str| object.with_extension(name);
        let (first, linked, stripped, second) =
            (path("1.o"), path("ld.o"), path("strip.o"), path("2.o"));
        let word = |path: &PathBuf| path.display().to_string();
        let generate = |from: &PathBuf, to: &PathBuf| {
            let (from, to) = (word(from), word(to));
            unwind_sim(&["tables", "generate", &from, "--to", "orc:6.4", "-o", &to])
        };

        generate(&object, &first);
        let sections = text_of("readelf", &["-SW"], &first);
        let sections = sections.expect("binutils are installed");

        // What objtool writes, too: entries, addresses with relocations, and the layout's header.
        for name in [
            ".orc_unwind ",
            ".orc_unwind_ip ",
            ".rela.orc_unwind_ip ",
            ".orc_header ",
        ] {
            assert!(sections.contains(name), "{shape}: {sections}");
        }

        // The linker reads the relocations.
        run(Command::new("ld")
            .arg("-r")
            .arg(&first)
            .arg("-o")
            .arg(&linked))
        .expect("ld");
        let found = against(&linked, Boundaries::Symbols, orc()).expect("it has ORC");
        assert_eq!(same(&found), found.total(), "{shape}: {}", told(&found));

        // Without any of it, the object is as a compiler made it.
        run(Command::new("objcopy")
            .args(["--remove-section=.orc*", "--remove-section=.rela.orc*"])
            .arg(&linked)
            .arg(&stripped))
        .expect("objcopy");
        assert!(against(&stripped, Boundaries::Symbols, orc()).is_none());

        generate(&stripped, &second);
        let found = against(&second, Boundaries::Symbols, orc()).expect("it has ORC");
        assert_eq!(same(&found), found.total(), "{shape}: {}", told(&found));

        let rows = |path: &PathBuf| unwind_sim(&["tables", "dump", &word(path), "--table", "orc"]);

        // Without the first line, which names the file.
        let lines = |text: String| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(lines(rows(&linked)), lines(rows(&second)), "{shape}");
    }
}

#[test]
fn nothing_calls_the_start_of_a_program() {
    /// It aligns rsp before it calls, as `_start` of every C library does.
    const START: &str = "\
        .globl _start
        .type _start, @function
_start: xor %ebp, %ebp
        pop %rsi
        and $-16, %rsp
        call leaf
        hlt
        .size _start, .-_start
        .type leaf, @function
leaf:   ret
        .size leaf, .-leaf
";

    let scratch = Scratch::new();
    let program = scratch.cc("start.s", START, &["-nostdlib", "-static-pie"]);
    let program = program.expect("cc").display().to_string();

    // Each format has its own way to say that a walk ends here.
    for to in ["eh_frame", "sframe-v3", "orc:6.4"] {
        let out = scratch.path(to).display().to_string();
        let from_symbols = ["tables", "generate", "--functions", "symbols"];
        let words = [&from_symbols[..], &["--to", to, "-o", &out, &program]];
        unwind_sim(&words.concat());

        let rows = unwind_sim(&["tables", "dump", &out, "--function", "_start"]);
        let start = rows.lines().filter(|row| row.contains(" _start"));
        let start: Vec<&str> = start.collect();

        // At every address of `_start`.
        let is_last = |row: &&str| row.ends_with("outermost");
        assert!(
            !start.is_empty() && start.iter().all(is_last),
            "{to}: {rows}"
        );

        // It ends with 1 if a row is contradicted.
        unwind_sim(&["tables", "check", &out]);
    }
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_no_file() {
    let scratch = Scratch::new();
    let object = scratch.cc("s.c", SOURCE, KERNEL).expect("cc");
    let out = scratch.path("out.o");
    for to in ["eh_frame", "sframe-v3"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
        command.args(["tables", "generate"]).arg(&object);
        let refused = run(command.args(["--to", to, "-o"]).arg(&out));
        let told = refused.expect_err("objects get ORC only");
        assert!(
            told.contains("is not written into a relocatable object"),
            "{told}"
        );
        assert!(!out.exists());
    }
}

#[test]
fn what_differs_is_listed_as_json() {
    let scratch = Scratch::new();
    // One row is wrong, one is missing.
    let source = ASSEMBLY
        .replacen(".cfi_adjust_cfa_offset 8", ".cfi_adjust_cfa_offset 16", 1)
        .replacen(".cfi_adjust_cfa_offset -8", ".cfi_adjust_cfa_offset -16", 1);
    let object = scratch.cc("wrong.s", &source, &["-shared", "-nostdlib"]);
    let object = object.expect("cc").display().to_string();
    let (orc, out) = (scratch.path("orc"), scratch.path("out"));
    let word = |path: &Path| path.display().to_string();

    // The wrong table becomes ORC, which is then compared with rows made from the code.
    unwind_sim(&[
        "tables",
        "convert",
        &object,
        "--to",
        "orc",
        "-o",
        &word(&orc),
    ]);

    // By symbols, since the wrong table must not decide where functions are.
    let text = unwind_sim(&[
        "tables",
        "generate",
        &word(&orc),
        "--to",
        "orc",
        "--functions",
        "symbols",
        "--compare",
        "--json",
        "-o",
        &word(&out),
    ]);

    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();

    // The first `push` of `flags` moves rsp by 8, and the table says 16.
    let difference = lines.iter().find(|line| line["class"] == "contradicted");
    let difference = difference.expect("a difference");
    assert_eq!(difference["type"], "generation_difference", "{text}");
    assert_eq!(difference["function"], "flags", "{text}");
    assert_eq!(
        difference["old"], "call cfa=rsp+24 ra=*(cfa-8) rbp=same",
        "{text}"
    );
    let new = difference["new"].as_str().expect("a row");
    assert!(new.starts_with("call cfa=rsp+16 ra=*(cfa-8)"), "{text}");

    // The summary is last: its counts are known only when every difference has its line.
    let comparison = &lines.last().expect("a summary")["comparison"];

    // Every address is in exactly one class.
    let classes = comparison["classes"].as_array().expect("classes");
    let sum: u64 = classes
        .iter()
        .filter_map(|class| class["addresses"].as_u64())
        .sum();
    assert_eq!(Some(sum), comparison["addresses"].as_u64(), "{text}");
    assert!(
        comparison["share"]
            .as_f64()
            .is_some_and(|share| share < 1.0),
        "{text}"
    );
}

/// Functions with and without rows in the table, with and without symbols; behind them a function that
/// nothing enters, and what is none.
const PARTLY: &str = "
.globl _start
_start: call listed; call bare; xor %edi,%edi; mov $60,%eax; syscall
listed: .cfi_startproc; push %rbx; .cfi_adjust_cfa_offset 8; .cfi_rel_offset %rbx,0
        call .Lhidden; pop %rbx; .cfi_adjust_cfa_offset -8; ret; .cfi_endproc
bare:   push %rbp; sub $16,%rsp; add $16,%rsp; pop %rbp; ret
.Lhidden: sub $24,%rsp; add $24,%rsp; ret
        .balign 16
.Lfound: inc %eax; ret
        .balign 16
.Lpart: add $8,%rsp; ret
.type listed,@function; .size listed,bare-listed
";

/// A table that leaves out functions is no reason to leave them out again.
#[test]
fn functions_without_rows_get_some_and_what_is_in_none_is_told() {
    let scratch = Scratch::new();
    let program = scratch.cc("partly.S", PARTLY, &["-nostdlib", "-static", "-no-pie"]);
    let program = program.expect("cc links");
    let (input, output) = (program.to_string_lossy(), scratch.path("out"));
    let make = |how: &[&str]| {
        let fixed = ["tables", "generate", &input, "--to", "sframe-v3", "-o"];
        let output = output.to_string_lossy();
        unwind_sim(&[&fixed[..], &[&output], how].concat())
    };

    // The program's own table has one function.
    let text = make(&["--functions", "table"]);
    assert!(text.contains("generated: 1 function,"), "{text}");

    // By default, functions come from symbols and calls, too.
    let text = make(&[]);
    assert!(text.contains("generated: 5 functions"), "{text}");
    assert!(
        text.contains("no row: 5 bytes of .text in no function"),
        "{text}"
    );

    let generated = open(&output);
    let table = Table::read_as(
        &generated,
        Target::from_name("sframe-v3").expect("a format").kind(),
        None,
    );
    let table = table.expect("it was written");

    let address = |name: &str| {
        let all = generated.image().symbols().iter();
        all.filter(|symbol| symbol.name == name)
            .map(|symbol| symbol.address)
            .next()
    };
    let bare = address("bare").expect("a symbol");

    // Inside the function, behind what it has pushed.
    let row = table.row_at(bare + 5).expect("a row");
    assert!(row.rule.to_string().contains("cfa=rsp+32"), "{}", row.rule);
}
