//! `corpus/field/`: small recordings whose causes are known by construction. `expected.json` beside them
//! says what the doctor must answer, and how whole chains end.

use crate::cli::{ends_with, root, run, status, stderr, stdout};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const FOLDER: &str = "corpus/field";
/// Where the programs of the perf.data files are, below their paths.
const FILES: &str = "corpus/field/files";

/// What is expected of a recording.
struct ExpectedReport(Value);

impl ExpectedReport {
    fn text(&self, key: &str) -> &str {
        self.0[key].as_str().unwrap_or_default()
    }

    fn texts(&self, key: &str) -> Vec<&str> {
        let list = self.0[key].as_array().into_iter().flatten();
        list.map(|text| text.as_str().expect("a text")).collect()
    }

    /// The arguments of a command that reads the recording, unpacked into `folder` if it is packed.
    fn arguments(&self, command: &str, folder: &Path) -> Vec<String> {
        let file = self.text("file");
        let path = Path::new(FOLDER).join(file);
        let mut arguments = vec![command.to_owned()];
        match file.strip_suffix(".zst") {
            Some(name) => {
                let unpacked = folder.join(name);
                let packed = std::fs::read(root("").join(path)).expect("a recording");
                let bytes = zstd::decode_all(packed.as_slice()).expect("zstd");
                std::fs::write(&unpacked, bytes).expect("a file");
                arguments.extend([text_of(unpacked), "--symfs".into(), FILES.into()]);
            }
            None => arguments.push(text_of(path)),
        }
        arguments
    }
}

fn text_of(path: PathBuf) -> String {
    path.into_os_string().into_string().expect("UTF-8")
}

fn expectations() -> Vec<ExpectedReport> {
    let text = std::fs::read_to_string(root(FOLDER).join("expected.json")).expect("a file");
    let list: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    list.into_iter().map(ExpectedReport).collect()
}

/// Whether `text` contains one of the words that `|` separates.
fn has_one(text: &str, words: &str) -> bool {
    words.split('|').any(|word| text.contains(word))
}

/// What is wrong with a complaint.
fn faults_of(complaint: &Value, expected: &ExpectedReport) -> Vec<String> {
    let text = |key: &str| complaint[key].as_str().unwrap_or_default();
    let mut faults = Vec::new();
    for key in ["kind", "end"] {
        if text(key) != expected.text(key) {
            faults.push(format!("{key} is {}", text(key)));
        }
    }
    if !text("image").contains(expected.text("image")) {
        faults.push(format!("image is {}", text("image")));
    }

    // Several functions may be to blame, depending on where a sample was taken.
    let functions: Vec<&str> = expected.text("function").split('|').collect();
    let blamed = complaint["functions"].as_array().expect("functions");
    for function in blamed.iter().filter_map(|f| f["function"].as_str()) {
        // An empty expectation does not judge the function.
        if functions != [""] && !functions.contains(&function) {
            faults.push(format!("function is {function}"));
        }
    }

    let advice = text("advice");

    // Words that the advice must have, and those that would do harm.
    let missing = expected.texts("advice").into_iter();
    let missing = missing.filter(|words| !has_one(advice, words));
    faults.extend(missing.map(|words| format!("no {words} in the advice `{advice}`")));
    let harmful = expected.texts("never").into_iter();
    let harmful = harmful.filter(|words| has_one(advice, words));
    faults.extend(harmful.map(|words| format!("{words} is in the advice `{advice}`")));
    faults
}

/// What is wrong with the answer of the doctor.
fn faults(lines: &[Value], expected: &ExpectedReport) -> Vec<String> {
    let unwinder = expected.text("unwinder");
    let (summary, complaints) = lines.split_last().expect("a summary");
    let mut counts = summary["unwinders"].as_array().expect("unwinders").iter();

    // Only this unwinder's: others may be wrong, too.
    let counted = counts.find(|c| c["unwinder"] == unwinder);
    let counted = counted.expect("the unwinder was tried");
    let mut faults = Vec::new();
    for end in ["whole", "broken", "unknown"] {
        let all = summary["samples"].as_u64().expect("a number");
        assert!(all > 0, "{}: no samples", expected.text("file"));

        // All samples of a recording end alike.
        let wanted = if end == expected.text("end") { all } else { 0 };
        if counted[end] != wanted {
            faults.push(format!("{} are {end}, not {wanted}", counted[end]));
        }
    }

    let complaints: Vec<&Value> = complaints
        .iter()
        .filter(|c| c["unwinder"] == unwinder)
        .collect();

    // A recording without fault has no complaint.
    let wanted = usize::from(!expected.text("kind").is_empty());
    if complaints.len() != wanted {
        faults.push(format!("{} complaints, not {wanted}", complaints.len()));
    }
    let of_complaints = complaints.iter();
    faults.extend(of_complaints.flat_map(|complaint| faults_of(complaint, expected)));
    faults
}

/// The doctor's answer to a recording, and what is wrong with it.
fn judged(expected: &ExpectedReport, folder: &Path) -> Vec<String> {
    // Others are tried on their own.
    const BY_DEFAULT: [&str; 2] = ["perf", "dwarf"];
    let mut arguments = expected.arguments("doctor", folder);
    arguments.extend(expected.texts("options").into_iter().map(str::to_owned));
    let unwinder = expected.text("unwinder");
    let has_stacks = unwinder != "none";
    if has_stacks && !BY_DEFAULT.contains(&unwinder) {
        arguments.extend(["--unwinder".into(), unwinder.to_owned()]);
    }

    // Without stacks there is only advice, in words.
    if has_stacks {
        arguments.push("--json".into());
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let output = run(&arguments);
    let text = stdout(&output);

    // The status is that of the first unwinder with stacks, which is the one that is expected.
    let wanted = match expected.text("end") {
        "whole" => 0,
        "broken" => 1,
        _ => 3,
    };
    if status(&output) != wanted {
        return vec![format!("status {}: {}", status(&output), stderr(&output))];
    }
    if has_stacks {
        let lines = text.lines();
        let lines: Vec<Value> = lines
            .map(|l| serde_json::from_str(l).expect("JSON"))
            .collect();
        return faults(&lines, expected);
    }
    let missing = expected.texts("advice").into_iter();
    let missing = missing.filter(|words| !has_one(text, words));
    missing
        .map(|words| format!("no {words} in `{text}`"))
        .collect()
}

#[test]
fn recordings_of_the_field_have_their_causes() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut wrong = String::new();
    for expected in expectations() {
        for fault in judged(&expected, folder.path()) {
            let (file, unwinder) = (expected.text("file"), expected.text("unwinder"));
            wrong += &format!("{file}, {unwinder}: {fault}\n");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// `replay` says of them by the same definition how their chains end. Without a truth it judges none.
#[test]
fn replay_says_of_recordings_of_the_field_how_they_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut codes = BTreeSet::new();
    for expected in expectations() {
        let wanted = expected.text("replay");
        if wanted.is_empty() {
            continue;
        }
        let mut arguments = expected.arguments("replay", folder.path());
        arguments.extend(["--unwinder", expected.text("unwinder"), "--json"].map(str::to_owned));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let text = ends_with(3, &arguments);
        let chain: Value =
            serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
        let kind = if wanted == "US001" { "root" } else { "unknown" };
        assert_eq!(chain["end"]["code"], wanted, "{}", expected.text("file"));
        assert_eq!(chain["end"]["kind"], kind, "{}", expected.text("file"));
        codes.insert(wanted.to_owned());
    }
    assert_eq!(codes, ["US001", "US403"].map(str::to_owned).into());
}

/// Each recording has an expectation, and each one says its cause.
#[test]
fn each_recording_of_the_field_is_expected() {
    let expected = expectations();
    let named: BTreeSet<&str> = expected.iter().map(|e| e.text("file")).collect();
    let files = std::fs::read_dir(root(FOLDER)).expect("a folder");
    let names = files.map(|f| f.expect("a file").file_name().into_string().expect("UTF-8"));
    let names: BTreeSet<String> = names
        .filter(|name| name.ends_with(".bin") || name.ends_with(".zst"))
        .collect();
    let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(names, named);
    assert!(expected.iter().all(|e| !e.text("cause").is_empty()));
}
