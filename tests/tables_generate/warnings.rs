//! Code that breaks the kernel's rules: what `tables generate` says of it is what objtool says.

use crate::common::compiler::{Scratch, run};
use crate::common::skip::skip;
use std::path::Path;
use std::process::Command;

/// Assembly of one function, and what is said of it. Where objtool says something else, the reason.
struct Case {
    name: &'static str,
    code: &'static str,
    said: &'static [&'static str],
    objtool: Option<&'static str>,
}

const MACROS: &str = "\
    .macro ALTERNATIVE old, end, new, stop
    .pushsection .altinstructions, \"a\"
    .long \\old - ., \\new - .
    .long 1
    .byte \\end - \\old, \\stop - \\new
    .popsection
    .endm
    .text
";

const CASES: &[Case] = &[
    Case {
        name: "balanced",
        code: "push %rbp; mov %rsp, %rbp; push %rbx; mov %rdi, %rbx; call other; pop %rbx; pop %rbp; ret",
        said: &[],
        objtool: None,
    },
    Case {
        name: "mismatch",
        code: "test %rdi, %rdi; je 1f; push %rbx; 1: nop; add $8, %rax; jmp .",
        said: &["mismatch+0x6: stack state mismatch: cfa1=4+8 cfa2=4+16"],
        objtool: None,
    },
    Case {
        name: "register",
        code: "test %rdi, %rdi; je 1f; push %rbp; mov $1, %ebp; jmp 2f; 1: push %rax; mov $1, %ebp; 2: nop; jmp .",
        said: &["register+0x13: stack state mismatch: reg1[5]=-2-16 reg2[5]=-1+0"],
        objtool: Some(
            "it follows the jump first, and has numbers of its own for what is unchanged",
        ),
    },
    Case {
        name: "unbalanced",
        code: "push %rax; ret",
        said: &["unbalanced+0x1: return with modified stack frame"],
        objtool: None,
    },
    Case {
        name: "lost",
        code: "push %rbx; mov $1, %ebx; add $8, %rsp; ret",
        said: &["lost+0xa: return with modified stack frame"],
        objtool: None,
    },
    Case {
        name: "sibling",
        code: "push %rax; jmp other",
        said: &["sibling+0x1: sibling call from callable instruction with modified stack frame"],
        objtool: None,
    },
    Case {
        name: "scratch",
        code: "push %rbp; mov $1, %ebp; pop %rbp; ret",
        said: &["scratch+0x7: BP used as a scratch register"],
        objtool: None,
    },
    Case {
        name: "frameless",
        code: "sub $8, %rsp; call other; add $8, %rsp; ret",
        said: &["frameless+0x4: call without frame pointer save/setup"],
        objtool: None,
    },
    Case {
        name: "dead",
        code: "ret; mov $1, %eax; ret",
        said: &["dead+0x1: unreachable instruction"],
        objtool: None,
    },
    Case {
        name: "align",
        code: "and $-64, %rsp; sub $64, %rsp; jmp .",
        said: &["align+0x0: unsupported stack pointer realignment"],
        objtool: None,
    },
    Case {
        name: "swapped",
        code: "mov %rdi, %rsp; jmp .",
        said: &["swapped+0x0: unsupported stack register modification"],
        objtool: Some("6.1 says nothing, 6.12 \"unknown CFA base reg -1\""),
    },
    Case {
        name: "leaves",
        code: "sysretq",
        said: &["leaves+0x0: unsupported instruction in callable function"],
        objtool: None,
    },
    Case {
        name: "inside",
        code: "push %rbp; mov %rsp, %rbp; call 1f; nop; 1: add $8, %rsp; pop %rbp; ret",
        said: &[
            "inside+0x4: unannotated intra-function call",
            "inside+0xf: return with modified stack frame",
        ],
        objtool: Some("it stops at the first"),
    },
    Case {
        name: "replaced",
        code: "1: nop; nop; nop; 2: ret
            ALTERNATIVE 1b, 2b, 3f, 4f
            .pushsection .altinstr_replacement, \"ax\"
            3: push %rax; pop %rax; nop; 4:
            .popsection",
        said: &["replaced+0x0: stack layout conflict in alternatives"],
        objtool: Some("6.1 has another struct alt_instr, 6.12 names the second place, too"),
    },
    Case {
        name: "falls",
        code: "mov $1, %eax; .size falls, . - falls; .type next, @function; next: ret; .size next, . - next",
        said: &["falls+0x0: falls through to next function next()"],
        objtool: Some("it names no place"),
    },
    Case {
        name: "undefined",
        code: "771: .pushsection .discard.unwind_hints; .long 771b - .; .long 0; .long 0; .popsection; push %rax; jmp .; .size undefined, . - undefined; .type next, @function; next: ret; .size next, . - next",
        said: &["undefined+0x0: undefined stack state"],
        objtool: None,
    },
];

fn object(scratch: &Scratch, case: &Case) -> std::path::PathBuf {
    let Case { name, code, .. } = case;
    let head = format!("{MACROS}.globl {name}; .type {name}, @function; {name}: {code}\n");
    let size = if code.contains(".size") {
        String::new()
    } else {
        format!(".text; .size {name}, . - {name}\n")
    };
    let source = head.clone() + &size;
    scratch
        .cc(&format!("{name}.s"), &source, &["-c"])
        .expect("cc")
}

fn said(object: &Path, out: &Path) -> Vec<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
    command.args(["tables", "generate"]).arg(object);
    command.args(["--to", "orc:5.12", "--frame-pointers", "-o"]);
    let output = run(command.arg(out)).unwrap_or_else(|error| panic!("{error}"));
    let text = String::from_utf8(output).expect("text");
    let start = format!("{}: warning: objtool-like: ", object.display());
    let warnings = text.lines().filter_map(|line| line.strip_prefix(&start));
    warnings.map(str::to_owned).collect()
}

#[test]
fn code_that_breaks_the_rules_is_reported_in_objtools_words() {
    let scratch = Scratch::new();
    for case in CASES {
        let object = object(&scratch, case);
        assert_eq!(
            said(&object, &scratch.path("out.o")),
            case.said,
            "{}",
            case.name
        );
    }
}

#[test]
fn warnings_are_json_too() {
    let scratch = Scratch::new();
    let case = CASES.iter().find(|case| case.name == "sibling");
    let object = object(&scratch, case.expect("a case"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
    command.args(["tables", "generate"]).arg(&object);
    command.args(["--to", "orc", "--json", "-o"]);
    let output = run(command.arg(scratch.path("out.o"))).expect("it writes a table");
    let text = String::from_utf8(output).expect("text");
    let line: serde_json::Value = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .find(|line: &serde_json::Value| line["type"] == "generation_warning")
        .expect("a warning");
    assert_eq!(line["function"], "sibling");
    assert_eq!(
        (&line["offset"], &line["rule"]),
        (&1.into(), &"sibling-call".into())
    );
}

#[test]
fn objtool_says_the_same() {
    const NAME: &str = "objtool_says_the_same";
    let tool = std::env::var_os("UNWIND_SIM_OBJTOOL").unwrap_or_else(|| "objtool".into());
    if Command::new(&tool).arg("--help").output().is_err() {
        return skip(NAME, "objtool is not installed; set UNWIND_SIM_OBJTOOL");
    }
    let scratch = Scratch::new();
    for case in CASES.iter().filter(|case| case.objtool.is_none()) {
        let object = object(&scratch, case);
        let output = Command::new(&tool)
            .args(["--orc", "--stackval"])
            .arg(&object)
            .output()
            .expect("objtool runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned()
            + &String::from_utf8_lossy(&output.stdout);
        let warnings = text
            .lines()
            .filter_map(|line| line.split_once("warning: objtool: "));
        let theirs: Vec<&str> = warnings.map(|(_, rest)| rest).collect();
        assert_eq!(theirs, case.said, "{}", case.name);
    }
}
