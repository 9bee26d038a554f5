//! Profile formats: read back, all agree with the text of `perf script` for the same recording;
//! other tools read them, where installed.

use crate::common::decode::{self, Stacks};
use crate::common::skip::skip;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use unwind_sim_perf_tool::recording::Recording;
use unwind_sim_perf_tool::script::{Options, profile};
use unwind_sim_recordings::symbols::Places;
use unwind_sim_view::profile::Format;

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(name)
}

/// The standard output of our own program.
fn printed(args: &[&str], recording: &Path) -> Vec<u8> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
    let output = command
        .args(args)
        .arg(recording)
        .output()
        .expect("our own program");
    let told = String::from_utf8_lossy(&output.stderr);
    // Wrong stacks do not matter here.
    assert!(output.status.code().is_some_and(|code| code <= 1), "{told}");
    output.stdout
}

/// `perf script` of a corpus recording, in this format.
fn script(format: &str, name: &str) -> Vec<u8> {
    let symfs = corpus("perfdata/script/symfs");
    let kallsyms = corpus("perfdata/script/kallsyms.txt");
    let (symfs, kallsyms) = (symfs.to_str().unwrap(), kallsyms.to_str().unwrap());
    let mut args = vec!["perf", "script", "--symfs", symfs, "--kallsyms", kallsyms];
    args.extend(["--format", format]);
    printed(&args, &corpus(&format!("perfdata/{name}.data")))
}

fn utf8(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("text")
}

fn same(name: &str, found: &Stacks, expected: &Stacks) {
    let only = |a: &Stacks, b: &Stacks| -> Vec<String> {
        let differs = |(stack, count): &(&String, &u64)| b.get(*stack) != Some(*count);
        let lines = a.iter().filter(differs).take(3);
        lines
            .map(|(stack, count)| format!("{stack} {count}"))
            .collect()
    };
    let (more, less) = (only(found, expected), only(expected, found));
    assert!(
        more.is_empty() && less.is_empty(),
        "{name}: {more:#?} instead of {less:#?}"
    );
}

/// Recordings with chains from frame pointers, branches, stack copies and deferred records, of one
/// event and of several.
const RECORDINGS: [&str; 11] = [
    "fp-pipe",
    "LBR-stitch-grow",
    "minidebug",
    "norow",
    "A-two-samples-one-record",
    "C-two-tids",
    "G-empty-record",
    "I-user-mode-sample",
    "J-delivery-order",
    "poll-syscalls-defer",
    "threads4-switch-defer",
];

#[test]
fn all_formats_hold_the_stacks_of_the_text() {
    let mut several = 0;
    for name in RECORDINGS {
        let (expected, periods) = decode::text(&utf8(script("perf-script", name)));
        assert!(!expected.is_empty(), "{name}");
        several += usize::from(periods.len() > 1);
        same(
            name,
            &decode::folded(&utf8(script("folded", name))),
            &expected,
        );
        same(
            name,
            &decode::speedscope(&script("speedscope", name)),
            &expected,
        );
        let firefox = decode::unzipped(&script("firefox", name));
        same(name, &decode::firefox(&firefox), &expected);
        let pprof = decode::unzipped(&script("pprof", name));
        let (stacks, sums) = decode::pprof(&pprof);
        same(name, &stacks, &expected);
        for (event, period) in periods {
            assert_eq!(
                sums.get(&format!("{event}_event")),
                Some(&period),
                "{name}: {event}"
            );
        }
    }
    assert!(several > 0, "no recording has several events");
}

#[test]
fn replays_of_several_unwinders_are_told_apart_and_say_where_they_stopped() {
    for name in ["traces/throws.bin", "perfdata/dwarf.data"] {
        let recording = corpus(name);
        let of = |format: &str, unwinders: &str| {
            let args = ["replay", "--unwinder", unwinders, "--format", format];
            printed(&args, &recording)
        };
        let expected = decode::folded(&utf8(of("folded", "dwarf,fp")));
        let one = |unwinder| decode::folded(&utf8(of("folded", unwinder)));
        let mut both = Stacks::new();
        for unwinder in ["dwarf", "fp"] {
            for (stack, count) in one(unwinder) {
                let (thread, frames) = stack.split_once(';').unwrap_or((&stack, ""));
                let line = format!("{thread} [{unwinder}];{frames}");
                both.insert(line.trim_end_matches(';').to_owned(), count);
            }
        }
        same(name, &expected, &both);
        let text = decode::text(&utf8(of("perf-script", "dwarf,fp"))).0;
        same(name, &text, &expected);
        let speedscope = decode::speedscope(&of("speedscope", "dwarf,fp"));
        let firefox = decode::firefox(&decode::unzipped(&of("firefox", "dwarf,fp")));
        let (pprof, sums) = decode::pprof(&decode::unzipped(&of("pprof", "dwarf,fp")));
        assert_eq!(sums["dwarf_sample"], sums["fp_sample"]);
        for stacks in [speedscope, firefox, pprof] {
            let (stacks, stopped) = decode::without_reasons(stacks);
            same(name, &stacks, &expected);
            // The frame pointer unwinder gets nowhere in code without frame pointers.
            assert!(stopped > 0, "{name}");
        }
    }
}

#[test]
fn damaged_recordings_give_what_is_left_of_them() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let whole = std::fs::read(corpus("perfdata/fp-pipe.data")).expect("the recording");
    let (mut written, mut refused) = (0, 0);
    let formats = [
        Format::Folded,
        Format::Speedscope,
        Format::Firefox,
        Format::Pprof,
    ];
    // The step is prime, so that every field of a record is hit.
    for (at, format) in (0..whole.len())
        .step_by(61)
        .zip(formats.into_iter().cycle())
    {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        let path = file(&folder, "perf.data", &bytes);
        let places = Places {
            symfs: Some(corpus("perfdata/script/symfs")),
            ..Places::default()
        };
        let mut out = Vec::new();
        let recording = Recording::open(&path).unwrap();
        match profile(&recording, &Options::default(), places, format, &mut out) {
            Err(error) => {
                assert!(!error.to_string().is_empty());
                refused += 1;
            }
            Ok(_) => {
                let stacks = match format {
                    Format::Folded => decode::folded(&utf8(out)),
                    Format::Speedscope => decode::speedscope(&out),
                    Format::Firefox => decode::firefox(&decode::unzipped(&out)),
                    _ => decode::pprof(&decode::unzipped(&out)).0,
                };
                written += usize::from(!stacks.is_empty());
            }
        }
    }
    assert!(written > refused, "{written} against {refused}");
}

#[test]
fn a_file_is_there_when_it_is_whole() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("profile");
    let name = corpus("perfdata/fp-pipe.data");
    for (args, fits) in [
        (["perf", "script", "--format", "folded"], true),
        (["replay", "--unwinder", "dwarf", "--format"], false),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
        let output = command.args(args);
        let output = match fits {
            true => output.arg(&name),
            // Something that is not a recording gives no file.
            false => output.arg("pprof").arg(corpus("perfdata/README.md")),
        };
        let status = output
            .arg("-o")
            .arg(&path)
            .output()
            .expect("our own program")
            .status;
        assert_eq!((status.success(), path.exists()), (fits, fits));
        if fits {
            let text = std::fs::read_to_string(&path).expect("the profile");
            assert!(!decode::folded(&text).is_empty());
            std::fs::remove_file(&path).expect("the profile");
        }
        let left = std::fs::read_dir(folder.path())
            .expect("the folder")
            .count();
        assert_eq!(left, 0, "no temporary file is left");
    }
}

/// Whether a program can be run.
fn is_there(program: &str, args: &[&str]) -> bool {
    Command::new(program)
        .args(args)
        .output()
        .is_ok_and(|out| out.status.success())
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("it is there");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {told}");
    utf8(output.stdout)
}

/// Writes a temporary file.
fn file(folder: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).expect("a temporary file");
    path
}

/// The stacks of one event, without their threads, from the text format.
fn of_event(name: &str, event: &str) -> BTreeMap<Vec<String>, u64> {
    let mut out = BTreeMap::new();
    for (stack, count) in decode::text(&utf8(script("perf-script", name))).0 {
        let (thread, frames) = stack.split_once(';').unwrap_or((&stack, ""));
        if thread.ends_with(&format!("[{event}]")) {
            let frames: Vec<String> = frames.split(';').map(str::to_owned).collect();
            *out.entry(frames).or_default() += count;
        }
    }
    assert!(!out.is_empty(), "{name}: {event}");
    out
}

#[test]
fn pprof_reads_pprof() {
    if !is_there("go", &["version"]) {
        skip("pprof_reads_pprof", "go is not installed");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, event) in [("fp-pipe", "context-switches"), ("fp-pipe", "cpu-clock")] {
        let path = file(&folder, "profile.pb.gz", &script("pprof", name));
        let mut command = Command::new("go");
        command.args(["tool", "pprof", "-symbolize=none", "-traces"]);
        command
            .arg(format!("-sample_index={event}_sample"))
            .arg(&path);
        let text = run(command.env("HOME", folder.path()));
        // Blocks between dashes: labels, then the value and the innermost frame, then its callers.
        let mut found: BTreeMap<Vec<String>, u64> = BTreeMap::new();
        for block in text.split("-----------+").skip(1) {
            let lines = block.lines().skip(1).map(str::trim);
            let is_label = |line: &str| {
                ["pid:", "tid:", "comm:"]
                    .iter()
                    .any(|l| line.starts_with(l))
            };
            let mut lines = lines.filter(|line| !line.is_empty() && !is_label(line));
            let Some((value, innermost)) = lines.next().and_then(|line| line.split_once(' '))
            else {
                continue;
            };
            let count: u64 = value.parse().expect("a count");
            if count > 0 {
                let names = std::iter::once(innermost.trim()).chain(lines);
                let mut names: Vec<String> = names.map(str::to_owned).collect();
                names.reverse();
                *found.entry(names).or_default() += count;
            }
        }
        assert_eq!(found, of_event(name, event));
    }
}

/// The schema that comes with speedscope, found from its command.
fn speedscope_schema() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let command = std::env::split_paths(&path).map(|folder| folder.join("speedscope"));
    let command = command.filter_map(|file| file.canonicalize().ok()).next()?;
    let folders = command.ancestors();
    let schema = folders.map(|folder| folder.join("dist/release/file-format-schema.json"));
    schema.into_iter().find(|schema| schema.is_file())
}

#[test]
fn speedscope_files_have_its_schema() {
    let name = "speedscope_files_have_its_schema";
    let Some(schema) = speedscope_schema() else {
        skip(name, "speedscope is not installed");
        return;
    };
    let python = "/usr/bin/python3";
    if !is_there(python, &["-c", "import jsonschema"]) {
        skip(name, "python3-jsonschema is not installed");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let check = "import json, jsonschema, sys
schema, good = (json.load(open(path)) for path in sys.argv[1:])
jsonschema.validate(good, schema)
good['profiles'][0]['unit'] = 'parsecs'
try: jsonschema.validate(good, schema)
except jsonschema.ValidationError: sys.exit(0)
sys.exit('the schema takes everything')";
    for name in RECORDINGS {
        let path = file(&folder, name, &script("speedscope", name));
        run(Command::new(python)
            .args(["-c", check])
            .arg(&schema)
            .arg(path));
    }
}

/// A session of profiler-cli, which leaves a process running.
struct Session {
    folder: tempfile::TempDir,
}

impl Session {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("profiler-cli");
        command.args(args).env("HOME", self.folder.path());
        command
    }

    fn json(&self, args: &[&str]) -> serde_json::Value {
        serde_json::from_str(&run(&mut self.command(args))).expect("JSON")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.command(&["stop"]).output();
    }
}

/// By thread and function: how often it was innermost, and how often it occurred.
type Functions = BTreeMap<(String, String), (u64, u64)>;

#[test]
fn the_firefox_profiler_reads_its_format() {
    if !is_there("profiler-cli", &["--version"]) {
        let why = "profiler-cli is not installed";
        skip("the_firefox_profiler_reads_its_format", why);
        return;
    }
    for name in ["fp-pipe", "norow", "threads4-switch-defer"] {
        let mut expected = Functions::new();
        for (stack, count) in decode::text(&utf8(script("perf-script", name))).0 {
            let frames: Vec<&str> = stack.split(';').collect();
            let Some((thread, frames)) = frames.split_first() else {
                continue;
            };
            for frame in frames.iter().collect::<BTreeSet<_>>() {
                let key = ((*thread).to_owned(), (*frame).to_owned());
                let counts = expected.entry(key).or_default();
                counts.0 += count * u64::from(frames.last() == Some(frame));
                counts.1 += count;
            }
        }
        let session = Session {
            folder: tempfile::tempdir().expect("a temporary folder"),
        };
        let path = file(&session.folder, "profile.json.gz", &script("firefox", name));
        run(session.command(&["load"]).arg(path));
        let mut found = Functions::new();
        let threads = session.json(&["thread", "list", "--json"]);
        for thread in threads["threads"].as_array().expect("threads") {
            let handle = thread["threadHandle"].as_str().expect("a handle");
            let mut args = vec!["thread", "functions", "--thread", handle];
            args.extend(["--json", "--include-idle", "--limit", "0"]);
            let list = session.json(&args);
            for function in list["functions"].as_array().expect("functions") {
                let text = |key: &str| function[key].as_str().unwrap_or_default();
                let shown = match text("name") {
                    name if name.starts_with("0x") => decode::bracketed(text("library")),
                    name => name.to_owned(),
                };
                let thread = thread["name"].as_str().expect("a name").to_owned();
                let counts = found.entry((thread, shown)).or_default();
                counts.0 += function["selfSamples"].as_u64().expect("a count");
                counts.1 += function["totalSamples"].as_u64().expect("a count");
            }
        }
        // It lists functions without a name one by one: a stack may have several.
        let named = |mut all: Functions| {
            all.retain(|(_, function), _| !function.starts_with('['));
            all
        };
        let (found, expected) = (named(found), named(expected));
        assert!(!expected.is_empty(), "{name}");
        assert_eq!(found, expected, "{name}");
    }
}
