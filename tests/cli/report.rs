//! `report`: pages of states and of findings, from good and bad input.

use crate::cli::{SEED, THROWS, ends_with, run, snapshot_text, status, stderr, stdout, tool};
use std::path::Path;

const CASE: &str = "corpus/cases/frame/leaf-keeps-data-in-the-red-zone.s";
const DEFECT: &str = "corpus/cases/defect/wrong-slot-of-rbx.s";

/// Writes a page with these arguments; returns it.
fn page(args: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("page.html");
    let output = tool(&["report", "-o"]).arg(&path).args(args).output();
    let output = output.expect("the tool runs");
    assert_eq!(status(&output), 0, "{args:?}: {}", stderr(&output));
    assert_eq!(stdout(&output), "");
    std::fs::read_to_string(&path).expect("a page")
}

/// The content of a page as lines of text: a line for each heading, paragraph, row and item, without
/// what the script shows. This is what a browser without script shows.
fn outline(page: &str) -> String {
    let main = page.split_once("<main id=\"main\" tabindex=\"-1\">");
    let main = main.expect("content").1;
    let main = main.split_once("</main>").expect("content").0;
    let mut out = String::new();
    let mut rest = main;
    while let Some((text, behind)) = rest.split_once('<') {
        out.push_str(text);
        let (tag, behind) = behind.split_once('>').expect("a whole tag");
        let name = tag.split([' ', '/']).next().unwrap_or_default();
        match name {
            "h2" | "h3" | "h4" | "caption" | "figcaption" => out.push_str("\n\n# "),
            "p" | "li" | "dt" | "summary" | "tr" | "pre" => out.push('\n'),
            "td" | "th" => out.push_str(" | "),
            _ => {}
        }
        rest = behind;
    }
    let lines = out.lines().map(str::trim_end);
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

/// What every page has to be: closed, without anything from elsewhere, readable without script.
fn is_sound(page: &str) {
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
    assert!(page.starts_with("<!DOCTYPE html><html lang=\"en\">"));
    assert!(page.trim_end().ends_with("</html>"));
    assert_eq!(
        page.matches("http-equiv=\"Content-Security-Policy\"")
            .count(),
        1
    );
    // By hash, the browser runs only our script, whatever a name in a recording contains.
    assert!(page.contains("content=\"default-src 'none'; script-src 'sha256-"));

    // Nothing is loaded, and no attribute runs a script.
    for outside in [
        "http:", "https:", "<link", "<img", "<iframe", " src=", " style=", " onload",
    ] {
        assert!(!page.contains(outside), "{outside}");
    }

    // Every element that is opened is closed.
    for name in [
        "table", "tbody", "tr", "td", "th", "section", "div", "ol", "ul", "li", "svg", "details",
        "p",
    ] {
        let opened =
            page.matches(&format!("<{name} ")).count() + page.matches(&format!("<{name}>")).count();
        assert_eq!(
            opened,
            page.matches(&format!("</{name}>")).count(),
            "{name}"
        );
    }
}

#[test]
fn the_states_of_a_case() {
    let first = page(&[CASE]);
    is_sound(&first);
    let again = page(&[CASE]);
    // The command names the page's file.
    let without = |page: &str| page.lines().filter(|l| !l.contains("Made by")).count();
    assert_eq!(without(&first), without(&again));
    let text = outline(&first);
    let text: Vec<&str> = text
        .split_inclusive('\n')
        .filter(|l| !l.trim().is_empty())
        .collect();
    snapshot_text(
        "report-case",
        &format!("unwind-sim report {CASE}"),
        &text.concat(),
    );
}

/// Of 2,920 samples dwarf is wrong at 44, none of them among the first 40; fp is wrong at nearly all.
#[test]
fn a_page_has_what_is_wrong_and_opens_there() {
    let few = page(&["--count", "40", "--unwinder", "fp,dwarf", THROWS]);
    is_sound(&few);
    assert!(few.contains("40 of 2920 samples, chosen from 0 to "));
    assert!(few.contains("<option selected>dwarf</option>"));

    // The state in the page without script is one of them, and fp's kinds are behind dwarf's.
    let text = outline(&few);
    let state = text
        .split_once("What each unwinder makes of it")
        .expect("a state")
        .1;
    let verdict = state.lines().find(|line| line.starts_with(" | dwarf | "));
    assert!(
        verdict.is_some_and(|line| !line.contains("ok")),
        "{verdict:?}"
    );
    let findings = text.split_once("# Findings").expect("findings").1;
    let first = |name: &str| findings.find(&format!(" | {name} | "));
    assert!(
        first("dwarf").is_some() && first("dwarf") < first("fp"),
        "{findings}"
    );

    let asked = page(&[
        "--from",
        "3",
        "--count",
        "2",
        "--unwinder",
        "fp,dwarf",
        THROWS,
    ]);
    assert!(asked.contains("2 of 2920 samples, number 3 to 4"));
    assert!(asked.contains("data-opening=\"3\""));
}

/// Writes a page twice under the same name.
#[test]
fn the_same_input_gives_the_same_page() {
    for args in [
        &[CASE][..],
        &["--count", "3", SEED],
        &["--regs", "hw,fake:v5.2", SEED],
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("page.html");
        let mut pages = Vec::new();
        for _ in 0..2 {
            let output = tool(&["report", "-o"]).arg(&path).args(args).output();
            assert_eq!(status(&output.expect("the tool runs")), 0);
            pages.push(std::fs::read(&path).expect("a page"));
        }
        assert!(pages[0] == pages[1], "{args:?}");
        is_sound(&String::from_utf8(pages.remove(0)).expect("text"));
    }
}

#[test]
fn a_window_says_what_it_leaves_out() {
    let page = page(&["--from", "7", "--count", "5", THROWS]);
    is_sound(&page);
    assert!(
        page.contains("5 of 2920 samples, number 7 to 11."),
        "the summary"
    );
    assert!(
        page.contains("id=\"state-heading\">Sample 7: "),
        "the first state"
    );
}

#[test]
fn the_findings_of_verify() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("verify.json");
    let lines = ends_with(1, &["verify", "--json", "--defect", DEFECT]);
    std::fs::write(&path, &lines).expect("a file");
    let path = path.to_string_lossy().into_owned();
    let page = page(&[&path]);
    is_sound(&page);
    let text = outline(&page);
    snapshot_text(
        "report-verify",
        "unwind-sim report of verify --json --defect",
        &text
            .split_inclusive('\n')
            .filter(|l| !l.trim().is_empty())
            .collect::<String>(),
    );
}

#[test]
fn the_findings_of_tables_check() {
    let folder = tempfile::tempdir().expect("a folder");
    let object = wrong_row(folder.path());
    let path = folder.path().join("check.json");
    let lines = ends_with(1, &["tables", "check", "--json", &object]);
    std::fs::write(&path, &lines).expect("a file");
    let page = page(&[&path.to_string_lossy()]);
    is_sound(&page);
    let text = outline(&page);
    for wanted in [
        "US501 wrong CFA",
        "> 0x",
        "^^^\n",
        "the row's CFA is",
        "| hello",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
}

/// A program with a row that the code contradicts.
pub(super) fn wrong_row(folder: &Path) -> String {
    let source = folder.join("wrong.s");
    let text = "
        .globl hello
        .type hello, @function
hello:  .cfi_startproc
        push %rbx
        .cfi_def_cfa_offset 24
        nop
        pop %rbx
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
        .size hello, .-hello
        .section .note.GNU-stack,\"\",@progbits\n";
    std::fs::write(&source, text).expect("a file");
    let path = folder.join("wrong.so").to_string_lossy().into_owned();
    let built = std::process::Command::new("cc")
        .args(["-shared", "-nostdlib", "-o", &path])
        .arg(&source)
        .status();
    assert!(built.expect("cc runs").success());
    path
}

/// Names of functions, of the program, of its folder and of findings that try to leave the text.
#[test]
fn hostile_names_are_text() {
    // A tag, a character that turns the direction of text, and what ends attributes.
    const NAME: &str = "<img src=x onerror=alert(1)>\u{202e}'&";
    let folder = tempfile::tempdir().expect("a folder");
    let inner = folder.path().join("<script>alert(2)<");
    std::fs::create_dir(&inner).expect("a folder");

    // The name is that of a function, and the program has a name that would end an attribute.
    let assembly = format!(
        "        .globl _start
        .type _start, @function
_start: .cfi_startproc
        .cfi_undefined rip
        call \"{NAME}\"
        mov $60, %eax
        xor %edi, %edi
        syscall
        .cfi_endproc
        .size _start, .-_start
        .type \"{NAME}\", @function
\"{NAME}\":
        .cfi_startproc
        push %rbx
        .cfi_def_cfa_offset 24
        pop %rbx
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
        .size \"{NAME}\", .-\"{NAME}\"
        .section .note.GNU-stack,\"\",@progbits\n"
    );

    let file = inner.join("a.s");
    std::fs::write(&file, assembly).expect("a file");
    let program = inner.join("\"onload=alert(3) x=");
    let built = std::process::Command::new("cc")
        .args(["-nostdlib", "-static", "-no-pie", "-o"])
        .args([&program, &file])
        .status();
    assert!(built.expect("cc runs").success());
    let program = program.to_string_lossy().into_owned();

    // The environment could hold anything.
    let states = page(&["--clear-env", "--", &program]);

    // The wrong row is there so that the page of findings shows the name, too.
    let lines = ends_with(
        1,
        &[
            "verify",
            "--json",
            "--unwinder",
            "dwarf",
            "--clear-env",
            "--",
            &program,
        ],
    );
    let findings_file = folder.path().join("verify.json");
    std::fs::write(&findings_file, lines).expect("a file");
    let findings = page(&[&findings_file.to_string_lossy()]);

    for page in [&states, &findings] {
        let escaped = r"&lt;img src=x onerror=alert(1)&gt;\u{202e}'&amp;";
        assert!(page.contains(escaped), "the name is there");
        assert!(
            !page.contains("<img") && !page.contains('\u{202e}'),
            "and is text"
        );

        // Our script, two data blocks of it at most, and nothing else.
        assert_eq!(page.matches("<script>").count(), 1);
        assert!(!page.contains("<script>alert"));
        assert!(!page.contains("\"onload"), "a quote ends an attribute");
    }
}

#[test]
fn bad_input_leaves_no_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();

    // Output of our own commands, cut in several ways, and files of other kinds.
    let lines = ends_with(1, &["verify", "--json", "--defect", DEFECT]);
    let compare = ends_with(1, &["compare", SEED, "--regs", "fake:v5.1", "--json"]);
    let trace = std::fs::read(crate::cli::root(SEED)).expect("a trace");
    let files: [(&str, &[u8]); 6] = [
        (
            "cut.json",
            lines
                .rsplit_once("{\"type\":\"summary\"")
                .expect("lines")
                .0
                .as_bytes(),
        ),
        ("torn.json", &lines.as_bytes()[..lines.len() - 30]),
        ("compare.json", compare.as_bytes()),
        ("other.json", b"{\"some\": \"thing\"}\n"),
        ("cut.bin", &trace[..40]),
        ("empty", b""),
    ];

    for (name, bytes) in files {
        std::fs::write(at(name), bytes).expect("a file");
    }

    // What is cut, empty, of another kind or not there, and a window without states.
    let out = at("page.html");
    let cases: [(&[&str], &str); 9] = [
        (&[&at("cut.json")], "it was cut short behind line"),
        (&[&at("torn.json")], "it was cut short behind line"),
        (
            &[&at("compare.json")],
            "it is of another command (`column`)",
        ),
        (&[&at("other.json")], "other.json"),
        (&[&at("cut.bin")], "cut.bin"),
        (&[&at("empty")], "is an empty file"),
        (&["no/such/file"], "no/such/file"),
        (&["--from", "100000", SEED], "there is no state 100000"),
        (&[], "nothing to show"),
    ];

    for (args, what) in cases {
        let output = run(&[&["report", "-o", &out], args].concat());
        let told = stderr(&output);
        assert_eq!(status(&output), 2, "{args:?}: {told}");
        assert!(told.contains(what), "{args:?}: {told}");

        // Neither the page nor a part of it.
        let left: Vec<_> = std::fs::read_dir(folder.path())
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name())
            .filter(|name| name.to_string_lossy().contains("page"))
            .collect();
        assert!(left.is_empty(), "{args:?}: {left:?}");
    }

    // Outputs that cannot be written, or must not be.
    for (out, what) in [
        ("no/folder/page.html", "cannot write no/folder/page.html"),
        (folder.path().to_str().expect("a path"), "cannot write"),
        (&at("cut.bin"), "is an input of this command"),
    ] {
        let output = run(&["report", &at("cut.bin"), "-o", out]);
        assert_eq!(status(&output), 2);
        assert!(stderr(&output).contains(what), "{}", stderr(&output));
    }

    // The input that was named as the output is untouched.
    assert_eq!(
        std::fs::read(at("cut.bin")).expect("it is there"),
        &trace[..40]
    );
}

/// What is not known is said.
#[test]
fn recordings_without_truth_or_memory() {
    let page_of = |path: &str| {
        let page = page(&["--count", "4", path]);
        is_sound(&page);
        outline(&page)
    };

    let text = page_of("corpus/perfdata/dwarf.data");
    assert!(text.contains("No true chain was recorded"), "{text}");
    assert!(text.contains("The true chain is not known."), "{text}");
    assert!(text.contains("No stack of dwarf was judged."), "{text}");

    // What is found is counted, and nothing is said to be right, wrong or no return address.
    assert!(text.contains(" | 1 | US101"), "{text}");
    assert!(text.contains("an address of code: spin+0x"), "{text}");
    assert!(
        text.contains("without a true chain no unwinder is judged"),
        "{text}"
    );
    // Zero of what was not judged would read as a result.
    for claim in [
        "0 of 0",
        "not a return address",
        "is wrong at 0",
        "No unwinder is wrong",
        "0 wrong",
    ] {
        assert!(!text.contains(claim), "{claim}: {text}");
    }

    // Chains alone: they are shown, and nothing is said to be known but them.
    let text = page_of("corpus/perfdata/fp-pipe.data");
    assert!(text.contains("Recorded by perf"), "{text}");
    assert!(
        text.contains("Nor was rsp, so no unwinder can start."),
        "{text}"
    );
    assert!(text.contains("The true chain is not known."), "{text}");

    let text = page_of("corpus/kernel/6.12-unwinds.bin");
    assert!(text.contains("Found by"), "{text}");
}

/// The same for the stepper and its JSON.
#[test]
#[cfg(feature = "terminal")]
fn chains_alone_are_shown_in_the_stepper() {
    let file = "corpus/perfdata/fp-pipe.data";
    let json = crate::cli::ends_with(0, &["step", "--json", "--count", "3", file]);
    assert!(json.contains(r#""recorded":[{"source":"perf","#), "{json}");
    let folder = tempfile::tempdir().expect("a folder");
    let keys = folder.path().join("keys");
    std::fs::write(&keys, "q\n").expect("a file");
    let keys = keys.to_str().expect("a path");
    let shown = crate::cli::ends_with(0, &["step", "--script", keys, file]);
    for text in [
        "the truth is not known: nothing is judged",
        "stack: rsp was not recorded",
        "recorded by perf, not judged:",
    ] {
        assert!(shown.contains(text), "{shown}");
    }
}
