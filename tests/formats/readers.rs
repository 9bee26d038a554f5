//! The programs that read the formats find in them what is in the text of `perf script`.

use super::{RECORDINGS, file, is_there, run, same, script, utf8};
use crate::common::decode::{self, Stacks};
use crate::common::skip::skip;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
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

        // Without symbols from elsewhere: only what is in the file.
        command.args(["tool", "pprof", "-symbolize=none", "-traces"]);
        command
            .arg(format!("-sample_index={event}_sample"))
            .arg(&path);

        // It keeps files in the home folder.
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

/// The schema in the package.
const SCHEMA: &str = "dist/release/file-format-schema.json";

/// The folder of the npm package speedscope, found from its command.
fn speedscope_package() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let command = std::env::split_paths(&path).map(|folder| folder.join("speedscope"));
    let command = command.filter_map(|file| file.canonicalize().ok()).next()?;
    let mut folders = command.ancestors();
    let package = folders.find(|folder| folder.join(SCHEMA).is_file());
    package.map(PathBuf::from)
}

#[test]
fn speedscope_files_have_its_schema() {
    let name = "speedscope_files_have_its_schema";
    let Some(package) = speedscope_package() else {
        skip(name, "speedscope is not installed");
        return;
    };

    let schema = package.join(SCHEMA);

    // That of the system, which has the packages of the distribution.
    let python = "/usr/bin/python3";
    if !is_there(python, &["-c", "import jsonschema"]) {
        skip(name, "python3-jsonschema is not installed");
        return;
    }

    let folder = tempfile::tempdir().expect("a temporary folder");

    // The script also breaks the file, to see that the schema refuses anything.
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

/// A profile as speedscope imports it: its name, the unit of its weights, and its stacks.
struct Imported {
    name: String,
    unit: String,
    stacks: Vec<(String, f64)>,
}

/// What speedscope's importer makes of a file; `None` if it is not installed, which is skipped.
fn imported(test: &str, path: &Path) -> Option<Vec<Imported>> {
    let Some(package) = speedscope_package() else {
        skip(test, "speedscope is not installed");
        return None;
    };
    if !is_there("node", &["--version"]) {
        skip(test, "node is not installed");
        return None;
    }

    // speedscope's own code reads the file, so a misunderstanding of the format cannot be on both
    // sides.
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats/speedscope.cjs");
    let text = run(Command::new("node").arg(script).arg(package).arg(path));
    let group: serde_json::Value = serde_json::from_str(&text).expect("JSON");

    let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
    let stack = |pair: &serde_json::Value| (text(&pair[0]), pair[1].as_f64().expect("a weight"));
    let profile = |profile: &serde_json::Value| Imported {
        name: text(&profile["name"]),
        unit: text(&profile["unit"]),
        stacks: profile["stacks"]
            .as_array()
            .expect("stacks")
            .iter()
            .map(stack)
            .collect(),
    };

    let profiles = group["profiles"].as_array().expect("profiles");
    Some(profiles.iter().map(profile).collect())
}

#[test]
fn speedscope_imports_its_format() {
    let test = "speedscope_imports_its_format";
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in RECORDINGS {
        let path = file(
            &folder,
            "profile.speedscope.json",
            &script("speedscope", name),
        );
        let Some(profiles) = imported(test, &path) else {
            return;
        };

        // A profile is of one thread, and an event may have several; the text has them all in one
        // list.
        let mut found = Stacks::new();
        for profile in profiles {
            // The name of a profile is that of its thread, with its numbers behind.
            let (thread, _) = profile
                .name
                .rsplit_once(' ')
                .expect("a thread and its numbers");
            for (stack, weight) in profile.stacks {
                let line = format!("{thread};{stack}");
                *found
                    .entry(line.trim_end_matches(';').to_owned())
                    .or_default() += weight as u64;
            }
        }

        // Our text format, read back, has to have the same stacks.
        same(
            name,
            &found,
            &decode::text(&utf8(script("perf-script", name))).0,
        );
    }
}

/// docs/profile-formats.md says what speedscope makes of text: not counts, and the first event only.
#[test]
fn speedscope_gives_samples_of_text_the_time_around_them() {
    let test = "speedscope_gives_samples_of_text_the_time_around_them";
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = file(&folder, "perf.txt", &script("perf-script", "fp-pipe"));
    let Some(profiles) = imported(test, &path) else {
        return;
    };
    for profile in profiles {
        assert_eq!(profile.unit, "seconds");
        // The other event's stacks have frames of the kernel.
        assert_eq!(profile.stacks.len(), 1, "{}", profile.name);
        // Six samples, a millisecond apart.
        let weight = profile.stacks[0].1;
        assert!((weight - 0.005).abs() < 0.0001, "{weight} s");
    }
}

#[test]
fn inferno_draws_folded_stacks_and_collapses_text() {
    let test = "inferno_draws_folded_stacks_and_collapses_text";
    if !is_there("inferno-flamegraph", &["--help"]) {
        return skip(test, "inferno is not installed");
    }

    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut padded = [false, false];
    for name in RECORDINGS {
        let (stacks, _) = decode::text(&utf8(script("perf-script", name)));
        let path = file(&folder, "folded.txt", &script("folded", name));
        let drawing = run(Command::new("inferno-flamegraph").arg(&path));
        let total: u64 = stacks.values().sum();
        let all = format!("<title>all ({total} samples, 100%)</title>");
        assert!(drawing.contains(&all), "{name}: {all}");
        for frame in stacks.keys().flat_map(|stack| stack.split(';')) {
            let shown = frame
                .replace('&', "&amp;")
                .replace('<', "&lt;")
                .replace('>', "&gt;");
            assert!(
                drawing.contains(&format!("<title>{shown} (")),
                "{name}: {frame}"
            );
        }

        // docs/profile-formats.md says what it makes of text: it adds the periods of the first event.
        // If its name is padded to the length of a longer one, it does not see them, and counts samples.
        let text = utf8(script("perf-script", name));
        let heading = text.lines().next().expect("a sample");
        if heading.contains("sys_enter") {
            // What a tracepoint prints behind its name is taken for a frame.
            continue;
        }

        let path = file(&folder, "perf.txt", text.as_bytes());
        let collapsed = run(Command::new("inferno-collapse-perf").arg(&path));
        let found: u64 = decode::folded(&collapsed).values().sum();
        let event = decode::first_event(&text);
        let is_padded = heading.contains(&format!("  {event}:"));

        // It leaves samples without frames out.
        let blocks = text.split("\n\n").filter(|block| block.lines().count() > 1);
        let of_event = blocks.filter(|block| decode::first_event(block) == event);
        let expected = if is_padded {
            of_event.count() as u64
        } else {
            of_event.map(decode::first_period).sum()
        };

        padded[usize::from(is_padded)] = true;
        assert_eq!(found, expected, "{name}: {event}");
    }

    assert_eq!(padded, [true, true]);
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

            // A recursive function counts once in a stack.
            for frame in frames.iter().collect::<BTreeSet<_>>() {
                let key = ((*thread).to_owned(), (*frame).to_owned());
                let counts = expected.entry(key).or_default();

                // The last function of a stack is the one that ran.
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
            if name == "norow" {
                // A sample for each 1.5 ms (`-c 1500000`); of the first, what came before is not
                // counted.
                let cpu_ms = thread["cpuMs"].as_f64().expect("CPU time");
                let samples = utf8(script("perf-script", name)).matches("\n\n").count();
                assert!(
                    (cpu_ms - 1.5 * (samples as f64 - 1.0)).abs() < 0.01,
                    "{cpu_ms} ms"
                );
            }

            let handle = thread["threadHandle"].as_str().expect("a handle");
            let mut args = vec!["thread", "functions", "--thread", handle];
            args.extend(["--json", "--include-idle", "--limit", "0"]);
            let list = session.json(&args);
            for function in list["functions"].as_array().expect("functions") {
                let text = |key: &str| function[key].as_str().unwrap_or_default();

                // A frame without a symbol has its address as its name.
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
