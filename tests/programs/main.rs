//! Ordinary command lines do the same in the machine as on this computer: output, status and files.
//!
//! A slow test, in the release build: one trial for each line of `chosen.txt`, `drawn.txt` and
//! `drawn-2.txt`. A line runs twice here and once in the machine. It is dropped if the two runs here
//! differ, and skipped if a program is missing. A line that differs today is in `known.txt` with the
//! reason.
//!
//! ```sh
//! UNWIND_SIM_SLOW=1 cargo test --release --test programs          # all lines
//! UNWIND_SIM_SLOW=1 cargo test --release --test programs -- tar   # those of a program
//! ```
//!
//! `UNWIND_SIM_PROGRAMS=K/N` runs the Kth of N parts, `UNWIND_SIM_PROGRAMS_SECONDS` sets the time
//! limit of a line in the machine, and with `UNWIND_SIM_PROGRAMS_RESULTS=FILE` results are kept in a
//! file, and lines that it has are not run again. The programs are in the packages of Debian that
//! `packages.txt` lists (`apt-get install --no-install-recommends $(cat tests/programs/packages.txt)`)
//! and in a Rust toolchain; those of `drawn-2.txt` are in the packages of `packages-2.txt`.

#[path = "../common/skip.rs"]
mod skip;

mod fields;
mod list;
mod run;
mod verdict;

use libtest_mimic::{Arguments, Failed, Trial};
use list::Line;
use run::LineFolders;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use verdict::{Kind, Verdict};

/// Time limit of a line on this computer, in seconds.
const NATIVE_SECONDS: u64 = 120;
/// Time limit of a line in the machine, in seconds.
const MACHINE_SECONDS: u64 = 600;
/// Lines that run at the same time.
const PARALLEL_MAX: usize = 2;
/// The share of lines that must be equal, per mille.
const EQUAL_MIN: usize = 980;
/// With fewer lines, the share says nothing.
const SHARE_LINES_MIN: usize = 200;

/// What the trials have found, by key.
type TrialResults = Arc<Mutex<BTreeMap<String, Verdict>>>;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// Lines that differ today: the start of the reason, by the line's text.
fn known() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(folder().join("known.txt")).expect("known.txt");
    let mut known = BTreeMap::new();
    let mut reason = String::new();
    for row in text
        .lines()
        .filter(|row| !row.is_empty() && !row.starts_with('#'))
    {
        match row.strip_prefix("    ") {
            Some(line) => drop(known.insert(line.to_owned(), reason.clone())),
            None => row.clone_into(&mut reason),
        }
    }
    known
}

fn judge(line: &Line, seconds: u64) -> Verdict {
    if let Some(name) = line.missing() {
        return Verdict::new(Kind::Skipped, format!("{name} is not installed"));
    }
    let place = match LineFolders::new(line, &folder().join("files")) {
        Ok(place) => place,
        Err(error) => return Verdict::new(Kind::Skipped, error),
    };

    let limit = Duration::from_secs(NATIVE_SECONDS);

    // What this computer cannot run, or not twice alike, says nothing of the machine.
    let first = place.native(line, limit);
    if first.status.is_none() {
        return Verdict::new(
            Kind::Dropped,
            format!("does not end in {NATIVE_SECONDS} s here"),
        );
    }

    // What depends on the second must differ.
    std::thread::sleep(Duration::from_millis(1100));
    let second = place.native(line, limit);
    let (difference, fields_here) = verdict::compare(&first, &second);
    if let Some(difference) = difference {
        return Verdict::new(Kind::Dropped, format!("two runs here differ: {difference}"));
    }

    let tool = Path::new(env!("CARGO_BIN_EXE_unwind-sim"));
    let there = place.machine(line, tool, Duration::from_secs(seconds));
    let (difference, fields) = verdict::compare(&first, &there);
    let notice = there.notices.first();
    match (difference, notice) {
        (None, None) if fields.is_empty() && fields_here.is_empty() => {
            Verdict::new(Kind::Equal, "")
        }
        (None, None) => Verdict::new(Kind::Equal, format!("but for {}", fields.join(", "))),
        // The result is right, but the status of the run would be 3.
        (None, Some(notice)) => Verdict::new(Kind::Reported, format!("{notice}; the same result")),
        (Some(text), Some(notice)) if notice.contains("time limit") => {
            Verdict::new(Kind::Slow, format!("{notice}; {text}"))
        }
        (Some(text), None) if there.status.is_none() => Verdict::new(Kind::Slow, text),
        (Some(text), Some(notice)) => Verdict::new(Kind::Reported, format!("{notice}; {text}")),
        // A busy computer can delay the first two runs alike, over the same second.
        (Some(text), None) => match verdict::compare(&first, &place.native(line, limit)).0 {
            Some(difference) => Verdict::new(
                Kind::Dropped,
                format!("a third run here differs: {difference}"),
            ),
            None => Verdict::new(Kind::Silent, text),
        },
    }
}

/// Results of an earlier run, by key and text of the line.
fn earlier(path: Option<&Path>) -> BTreeMap<(String, String), Verdict> {
    let text = path.and_then(|path| std::fs::read_to_string(path).ok());
    let mut found = BTreeMap::new();
    for row in text.unwrap_or_default().lines() {
        let parts: Vec<&str> = row.split('\t').collect();
        let [key, kind, why, line] = parts[..] else {
            continue;
        };
        if let Some(kind) = Kind::ALL.into_iter().find(|k| k.as_str() == kind) {
            found.insert((key.to_owned(), line.to_owned()), Verdict::new(kind, why));
        }
    }
    found
}

/// Whether the verdict is what is known of the line.
fn expected(verdict: &Verdict, known: Option<&String>) -> Result<(), Failed> {
    match (verdict.kind, known) {
        (Kind::Dropped | Kind::Skipped, _) => Ok(()),
        (Kind::Equal, None) => Ok(()),
        (Kind::Equal, Some(reason)) => {
            Err(format!("equal; remove it from tests/programs/known.txt ({reason})").into())
        }
        (_, Some(reason)) if verdict.to_string().starts_with(&reason[..]) => Ok(()),
        _ => Err(verdict.to_string().into()),
    }
}

/// Prints what differs, by reason, and how many lines are of each kind. Whether the shares hold.
fn total(found: &BTreeMap<String, Verdict>, lines: &BTreeMap<String, Line>) -> bool {
    for (key, verdict) in found
        .iter()
        .filter(|(_, v)| v.kind != Kind::Equal || !v.why.is_empty())
    {
        println!("{key} {verdict}\n    {}", lines[key].text);
    }
    let count = |kind: Kind| found.values().filter(|v| v.kind == kind).count();
    for field in &fields::FIELDS {
        let named = |v: &&Verdict| v.kind == Kind::Equal && v.why.contains(field.name);
        let times = found.values().filter(named).count();
        println!(
            "not compared in {times} lines: {} ({})",
            field.name, field.reason
        );
    }
    for kind in Kind::ALL {
        println!("{:>4} {}", count(kind), kind.as_str());
    }
    let judged = found.len() - count(Kind::Dropped) - count(Kind::Skipped);
    let equal = count(Kind::Equal) * 1000 / judged.max(1);
    println!("equal: {}.{} % of {judged} lines", equal / 10, equal % 10);
    count(Kind::Silent) == 0 && (judged < SHARE_LINES_MIN || equal >= EQUAL_MIN)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

fn main() {
    let mut arguments = Arguments::from_args();
    let slow = variable("UNWIND_SIM_SLOW").is_some();

    // One test that says why nothing runs, so that the list is never empty without a reason.
    if !slow || cfg!(debug_assertions) {
        let reason = "slow; set UNWIND_SIM_SLOW=1, in the release build";
        let name = "command_lines_do_the_same";
        let trial = Trial::test(name, move || {
            skip::skip(name, reason);
            Ok(())
        });
        libtest_mimic::run(&arguments, vec![trial]).exit();
    }

    let threads = arguments.test_threads.unwrap_or(PARALLEL_MAX);
    arguments.test_threads = Some(threads.min(PARALLEL_MAX));

    let part = variable("UNWIND_SIM_PROGRAMS").unwrap_or("1/1".into());

    // Part K of N, so that several jobs can share the lines.
    let part = part.split_once('/').expect("UNWIND_SIM_PROGRAMS=K/N");
    let part: (usize, usize) = (part.0.parse().expect("K"), part.1.parse().expect("N"));

    let seconds = variable("UNWIND_SIM_PROGRAMS_SECONDS");
    let seconds = seconds.map_or(MACHINE_SECONDS, |text| text.parse().expect("seconds"));
    let results = variable("UNWIND_SIM_PROGRAMS_RESULTS").map(PathBuf::from);

    // A run that was interrupted goes on where it ended.
    let earlier = Arc::new(earlier(results.as_deref()));
    let known = Arc::new(known());

    let lists =
        ["chosen.txt", "drawn.txt", "drawn-2.txt"].map(|name| list::read(&folder().join(name)));
    let lines = lists.into_iter().flatten().enumerate();

    // Every N-th line, not a block of them.
    let lines = lines.filter(|(at, _)| at % part.1 == part.0 - 1);
    let lines: BTreeMap<String, Line> = lines.map(|(_, line)| (line.key.clone(), line)).collect();

    let found = TrialResults::default();
    let trial = |line: &Line| {
        let (line, found) = (line.clone(), found.clone());
        let (earlier, known, results) = (earlier.clone(), known.clone(), results.clone());
        let name = format!("{}/{}", line.key, line.needs[0]);
        Trial::test(name, move || {
            let id = (line.key.clone(), line.text.clone());

            // By key and text: a line that has changed is run again.
            let old = earlier.get(&id).cloned();
            let verdict = old.clone().unwrap_or_else(|| judge(&line, seconds));
            if let (Some(path), None) = (&results, old) {
                // Appended at once, so that nothing is lost if a later line ends the process.
                let file = OpenOptions::new().append(true).create(true).open(path);
                let (kind, why) = (verdict.kind.as_str(), &verdict.why);
                let row = format!("{}\t{kind}\t{why}\t{}\n", line.key, line.text);
                file.and_then(|mut file| file.write_all(row.as_bytes()))
                    .expect("the results");
            }
            if verdict.kind == Kind::Skipped {
                skip::skip(&format!("command line of {}", line.needs[0]), &verdict.why);
            }

            let expected = expected(&verdict, known.get(&line.text));
            found
                .lock()
                .expect("no trial panics with it")
                .insert(line.key.clone(), verdict);
            expected
        })
    };

    let trials = lines.values().map(trial).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    let found = found.lock().expect("no trial panics with it");

    // The share of equal lines is checked in the end, over all of them.
    let holds = arguments.list || total(&found, &lines);
    if !holds {
        println!("too few lines are equal, or some differ silently");
        // The status of a test that failed, as Cargo expects it.
        std::process::exit(101);
    }
    conclusion.exit();
}
