//! Pages of `report` in a browser, which needs chromium, node, and the npm packages puppeteer-core and
//! axe-core in the folder that `UNWIND_SIM_NODE_MODULES` names. `.ci/full` installs them.

use crate::common::skip::skip;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The case of the drawing.
const DRAWN: &str = "corpus/cases/frame/fp-loses-the-caller-before-push-rbp.s";
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn tool(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
    command.args(args).current_dir(root(""));
    command
}

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output();
    found.is_ok_and(|output| output.status.success())
}

/// No error and no request, with and without script, in both colour schemes, on a phone and printed;
/// slider, buttons, links, keys, hover, filter, sorting, flame graphs and drawings do what they say;
/// axe-core finds nothing.
#[test]
fn pages_work_in_a_browser() {
    let name = "pages_work_in_a_browser";
    if std::env::var_os("UNWIND_SIM_SLOW").is_none() {
        return skip(name, "slow; set UNWIND_SIM_SLOW=1");
    }
    let Some(modules) = std::env::var_os("UNWIND_SIM_NODE_MODULES") else {
        return skip(
            name,
            "no puppeteer-core and axe-core; set UNWIND_SIM_NODE_MODULES",
        );
    };
    let Some(browser) = BROWSERS.into_iter().find(|browser| has(browser)) else {
        return skip(name, "chromium is not installed");
    };
    if !has("node") {
        return skip(name, "node is not installed");
    }

    let folder = tempfile::tempdir().expect("a folder");

    // Kept for a person to look at.
    let shots = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("report");
    std::fs::create_dir_all(&shots).expect("a folder");

    let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    // The status is 1, as there is a finding; the lines are what counts.
    let lines = tool(&[
        "verify",
        "--json",
        "--defect",
        "corpus/cases/defect/wrong-slot-of-rbx.s",
    ])
    .output()
    .expect("the tool runs");
    std::fs::write(at("verify.json"), lines.stdout).expect("a file");

    let case = "corpus/cases/frame/leaf-keeps-data-in-the-red-zone.s";
    let throws = "corpus/traces/throws.bin";

    // A case, a recording of many samples, and findings of `verify`: the three kinds of pages.
    for args in [
        vec![case, "-o", &at("case.html")],
        vec![throws, "-o", &at("throws.html")],
        vec![&at("verify.json"), "-o", &at("verify.html")],
    ] {
        let made = tool(&["report"]).args(&args).status();
        assert!(made.expect("the tool runs").success(), "{args:?}");
    }

    // A drawing as a page shows it.
    let object = "<!DOCTYPE html><html lang=\"en\"><title>A drawing</title><body>\
        <object data=\"drawing.svg\" type=\"image/svg+xml\"><img src=\"drawing.svg\" alt=\"\"></object>";
    std::fs::write(at("object.html"), object).expect("a file");
    let made = tool(&["report", "--embed", "before_push", "--unwinder", "fp,dwarf"])
        .args([DRAWN, "-o", &at("drawing.svg")])
        .status();
    assert!(made.expect("the tool runs").success());

    // A page must stay small enough to be sent to somebody.
    let size = std::fs::metadata(at("throws.html")).expect("a page").len();
    assert!(size < 2_000_000, "1000 samples take {size} bytes");

    let output = Command::new("node")
        .arg(root("tests/report/browse.cjs"))
        .arg(folder.path())
        .arg(&shots)
        .env("NODE_PATH", &modules)
        .env("BROWSER", browser)
        .output()
        .expect("node runs");

    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);

    // Shown in any case: it lists what was tried.
    println!("{told}");
    assert!(output.status.success(), "{told}{errors}");
    assert!(told.contains("\nall passed"), "{told}{errors}");
}
