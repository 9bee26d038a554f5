//! The programs that read the formats find in them what is in the text of `perf script`.

use super::{RECORDINGS, file, is_there, run, script, utf8};
use crate::common::decode;
use crate::common::skip::skip;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

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
