//! `tables check --files`: a row for everything, whatever is in the list and whatever happens.

use crate::common::compiler::Scratch;
use crate::common::skip::skip;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn command(list: &Path, out: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
    command.args(["tables", "check", "--files"]).arg(list);
    command.arg("--out").arg(out).args(args);
    command
}

fn sweep(list: &Path, out: &Path, args: &[&str]) -> Output {
    command(list, out, args).output().expect("the tool runs")
}

fn rows(text: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(text).expect("UTF-8");
    assert!(text.ends_with('\n'));
    let row = |line| serde_json::from_str(line).expect("JSON");
    text.lines().map(row).collect()
}

/// The number of rows by type.
fn types(rows: &[Value]) -> BTreeMap<String, usize> {
    let mut types = BTreeMap::new();
    for row in rows {
        let name = row["type"].as_str().expect("a type").to_owned();
        *types.entry(name).or_default() += 1;
    }
    types
}

/// A list with everything that can be in one; the first file has a wrong row.
fn everything(scratch: &Scratch) -> Option<PathBuf> {
    let late = include_str!("tables_check/late.s");
    let late = scratch.cc("late.s", late, &["-c"]).ok()?;

    let sframe = top().join("corpus/sframe");

    // Names that break a format with careless quoting, and one that is not UTF-8.
    let quoted = scratch.path("a \"quoted\" 'name'\\ with\ttabs");
    let foreign = scratch
        .path("")
        .join(OsStr::from_bytes(b"not \xff UTF-8 \xfe"));
    for copy in [&quoted, &foreign] {
        std::fs::copy(sframe.join("t_2.40"), copy).expect("writable");
    }

    // Files that cannot be read as ELF, each for another reason.
    let empty = scratch.path("empty");
    std::fs::write(&empty, "").expect("writable");
    let cut = scratch.path("cut");
    let bytes = std::fs::read(sframe.join("t_2.46")).expect("the corpus is there");
    std::fs::write(&cut, &bytes[..100]).expect("writable");
    let text = top().join("Cargo.toml");
    let missing = scratch.path("missing");
    let folder = scratch.path("");

    // In any order, one of them twice.
    let paths: [(&Path, &str); 10] = [
        (&late, "one"),
        (&missing, ""),
        (&quoted, "two"),
        (&folder, ""),
        (Path::new("/dev/null"), ""),
        (&text, ""),
        (&foreign, ""),
        (&empty, "p"),
        (&cut, ""),
        (&late, "again"),
    ];

    // A line is a path, a tab, and the name of a package.
    let mut list = Vec::new();
    for (path, package) in paths {
        list.extend(path.as_os_str().as_bytes());
        list.push(b'\t');
        list.extend(package.as_bytes());
        list.push(b'\n');
    }

    let path = scratch.path("list");
    std::fs::write(&path, list).expect("writable");
    Some(path)
}

#[test]
fn every_file_has_rows_whatever_it_is() {
    let name = "every_file_has_rows_whatever_it_is";
    let scratch = Scratch::new();
    let Some(list) = everything(&scratch) else {
        return skip(name, "there is no cc");
    };
    let out = scratch.path("part");

    let output = sweep(&list, &out, &[]);

    // 1: one of the files has a wrong row.
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(output.stdout, b"");
    let text = std::fs::read(&out).expect("the part");
    let rows = rows(&text);

    let counts = types(&rows);
    assert_eq!((counts["sweep"], counts["summary"]), (1, 1));
    assert_eq!(
        (counts["check"], counts["unreadable"], counts["wrong_row"]),
        (3, 6, 1)
    );

    // The summary comes last, and its sums are those of the rows.
    let summary = rows.last().expect("a summary");
    assert_eq!(
        (&summary["files"], &summary["unreadable"]),
        (&9.into(), &6.into())
    );
    assert_eq!(summary["all"]["functions"], counts["function"]);
    assert_eq!(summary["contradicted"]["functions"], 1);

    // It is named with its package, and as a person would look for it.
    let wrong = rows
        .iter()
        .find(|r| r["type"] == "wrong_row")
        .expect("the wrong row");
    assert_eq!(
        (&wrong["function"], &wrong["package"]),
        (&"late".into(), &"one".into())
    );
    assert_eq!(wrong["instruction"], "mov %rdi,%rbx");
    assert_eq!(wrong["before"], "push %rbx");

    // The function's row and that of its wrong row have the same start, by which they are joined.
    let function = |row: &&Value| row["type"] == "function" && row["function"] == "late";
    let function = rows.iter().find(function).expect("its function");
    assert_eq!(function["start"], wrong["function_start"]);
    assert_eq!(
        (&function["verdict"], &function["reason"]),
        (&"contradicted".into(), &"US501".into())
    );

    // What cannot be read has a row, too, with a cause that machines can count.
    let errors: Vec<_> = rows.iter().filter(|r| r["type"] == "unreadable").collect();
    let causes: Vec<_> = errors
        .iter()
        .map(|r| r["cause"].as_str().expect("a cause"))
        .collect();
    assert_eq!(
        causes,
        [
            "io",
            "not-elf",
            "not-elf",
            "not-elf",
            "not-elf",
            "malformed"
        ]
    );

    // A name that is not UTF-8 is kept as bytes.
    let foreign = rows
        .iter()
        .find(|r| r["file_bytes"].is_string())
        .expect("the foreign name");
    let bytes = foreign["file_bytes"].as_str().expect("hex");
    assert!(bytes.ends_with("6e6f7420ff205554462d3820fe"), "{bytes}");
    assert!(foreign["build_id"].is_string() || foreign["build_id"].is_null());
    assert!(rows.iter().any(|r| {
        r["file"]
            .as_str()
            .is_some_and(|f| f.ends_with("with\ttabs"))
    }));

    // The same whatever the threads, and to standard output.
    for threads in ["1", "3", "50"] {
        let other = scratch.path(threads);
        sweep(&list, &other, &["--threads", threads]);
        assert!(std::fs::read(other).expect("the part") == text, "{threads}");
    }
    let output = sweep(&list, Path::new("-"), &[]);
    assert!(output.stdout == text);
    // A part is a baseline.
    let baseline = Command::new(env!("CARGO_BIN_EXE_unwind-sim"))
        .args(["tables", "check", "--baseline"])
        .arg(&out)
        .arg(scratch.path("late.o"))
        .output();
    assert_eq!(baseline.expect("the tool runs").status.code(), Some(0));
}

#[test]
fn shards_have_each_file_once() {
    let scratch = Scratch::new();
    let Some(list) = everything(&scratch) else {
        return skip("shards_have_each_file_once", "there is no cc");
    };

    let of_files = |shard: &str| {
        let out = scratch.path(&shard.replace('/', "-"));
        let output = sweep(&list, &out, &["--shard", shard]);
        assert!(
            output
                .status
                .code()
                .is_some_and(|code| [0, 1, 3].contains(&code))
        );

        let mut rows = rows(&std::fs::read(out).expect("the part"));

        // The first and the last row are of a part, not of a file.
        rows.retain(|row| row["type"] != "sweep" && row["type"] != "summary");
        rows
    };

    let key = |row: &Value| row.to_string();
    let mut whole: Vec<_> = of_files("1/1").iter().map(key).collect();
    whole.sort_unstable();

    // Also more shards than files: some are empty.
    for count in [2, 3, 20] {
        let shards = (1..=count).flat_map(|number| of_files(&format!("{number}/{count}")));
        let mut all: Vec<_> = shards.map(|row| key(&row)).collect();
        all.sort_unstable();
        assert_eq!(all, whole, "{count}");
    }

    // Numbers start with 1, and none is larger than the number of shards.
    for wrong in ["0/2", "3/2", "1"] {
        let output = sweep(&list, &scratch.path("none"), &["--shard", wrong]);
        assert_eq!(output.status.code(), Some(2), "{wrong}");
        assert!(!scratch.path("none").exists());
    }
}

#[test]
fn a_killed_sweep_goes_on_to_the_same_bytes() {
    let scratch = Scratch::new();
    let mut text = String::new();

    // Many names of one file, so that a sweep takes a while and a copy no room.
    for number in 0..1500 {
        let copy = scratch.path(&format!("file-{number:04}"));
        std::os::unix::fs::symlink(top().join("corpus/sframe/t_2.46"), &copy).expect("writable");
        text += &format!("{}\n", copy.display());
    }

    let list = scratch.path("list");
    std::fs::write(&list, text).expect("writable");
    let (whole, part) = (scratch.path("whole"), scratch.path("part"));
    sweep(&list, &whole, &[]);
    let whole = std::fs::read(whole).expect("the part");
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |m| m.len());

    let mut kills = 0;
    let kills_max = match std::env::var_os("UNWIND_SIM_SLOW") {
        Some(_) => 40,
        None => 16,
    };

    for step in 1..kills_max {
        let mut child = command(&list, &part, &["--threads", "2"])
            .stderr(Stdio::null())
            .spawn()
            .expect("the tool runs");

        // Killed when this much is written, or, if it is faster than that, not at all.
        let most = whole.len() as u64 * step / kills_max;
        let begin = Instant::now();
        let ended = loop {
            if child.try_wait().expect("our child").is_some() {
                break true;
            }
            if length(&part) >= most {
                child.kill().expect("our child");
                // Until it is gone, it may still write.
                child.wait().expect("our child");
                break false;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "it hangs");
            // Looking all the time would take a processor from what is looked at.
            std::thread::sleep(Duration::from_micros(500));
        };

        let left = std::fs::read(&part).expect("the part");

        // Whatever was killed, what is there is the start of the whole.
        assert!(whole.starts_with(&left), "after {kills} kills");
        kills += u32::from(!ended);
        if ended {
            break;
        }
    }

    assert!(kills > 0);
    let output = sweep(&list, &part, &[]);
    assert!(
        std::fs::read(&part).expect("the part") == whole,
        "{output:?}"
    );

    // A finished one is not made again.
    let before = std::fs::metadata(&part)
        .expect("the part")
        .modified()
        .expect("a time");

    let again = sweep(&list, &part, &[]);
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(said.contains("none was checked now; remove "), "{said}");
    let after = std::fs::metadata(&part)
        .expect("the part")
        .modified()
        .expect("a time");
    assert_eq!(before, after);
}

#[test]
fn what_is_not_ours_is_left_alone() {
    let scratch = Scratch::new();
    let list = scratch.path("list");
    let sframe = top().join("corpus/sframe/t_2.46");
    std::fs::write(&list, format!("{}\n", sframe.display())).expect("writable");

    let out = scratch.path("out");
    std::fs::write(&out, "a poem\n").expect("writable");

    let fails = |args: &[&str], list: &Path, said: &str| {
        let output = sweep(list, &out, args);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(said), "{errors}");
    };

    // A file that is not a part is never overwritten.
    fails(&[], &list, "no part of a sweep");
    assert_eq!(std::fs::read(&out).expect("ours"), b"a poem\n");

    std::fs::remove_file(&out).expect("ours");
    sweep(&list, &out, &[]);

    // Neither is a part of a sweep with other options: its rows would mean something else.
    fails(&["--assume", "none"], &list, "a part of another sweep");

    let wrong = scratch.path("wrong");
    std::fs::write(&wrong, "\tpackage\n").expect("writable");
    fails(&[], &wrong, "entry 1: there is no path");
    fails(&[], &scratch.path("no list"), "no list");

    if cfg!(not(feature = "parquet")) {
        fails(&["--format", "parquet"], &list, "--features parquet");
    }

    let empty = scratch.path("empty");
    std::fs::write(&empty, "").expect("writable");
    let output = sweep(&empty, &scratch.path("of nothing"), &[]);

    // 3: nothing was judged. The part has a first and a last row.
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(
        rows(&std::fs::read(scratch.path("of nothing")).expect("a part")).len(),
        2
    );
}

/// A Python that has this module: `UNWIND_SIM_PYTHON`, or `python3`.
fn python(module: &str) -> Option<std::ffi::OsString> {
    let python = std::env::var_os("UNWIND_SIM_PYTHON").unwrap_or_else(|| "python3".into());
    let import = format!("import {module}");
    let tried = Command::new(&python).args(["-c", &import]).output().ok()?;
    tried.status.success().then_some(python)
}

/// A list of the corpus's files and some of this machine's.
fn some_files(scratch: &Scratch) -> PathBuf {
    let list = scratch.path("list.txt");
    let folders = ["corpus/sframe", "corpus/cases"].map(|folder| top().join(folder));
    let output = Command::new(top().join("examples/sweep/list.sh"))
        .args(folders)
        .output()
        .expect("sh runs");
    let mut text = output.stdout;
    assert!(
        text.split(|&b| b == b'\n').count() > 3,
        "{:?}",
        String::from_utf8_lossy(&text)
    );
    text.extend(b"/bin/ls\tcoreutils\n/bin/sh\tdash\nmissing\tnone\n");
    if let Ok(late) = scratch.cc("late.s", include_str!("tables_check/late.s"), &["-c"]) {
        text.extend(format!("{}\tlate\n", late.display()).into_bytes());
    }
    std::fs::write(&list, text).expect("writable");
    list
}

#[test]
fn the_questions_of_the_page_are_answered_by_duckdb() {
    let name = "the_questions_of_the_page_are_answered_by_duckdb";
    if std::env::var_os("UNWIND_SIM_SLOW").is_none() {
        return skip(name, "slow; set UNWIND_SIM_SLOW=1");
    }
    let Some(python) = python("duckdb") else {
        return skip(name, "python3 has no duckdb");
    };

    let scratch = Scratch::new();
    let list = some_files(&scratch);
    let mut functions = 0;

    // In three shards, as on several computers; queries read all parts together.
    for number in 1..=3 {
        let out = scratch.path(&format!("part-{number}.jsonl"));
        sweep(&list, &out, &["--shard", &format!("{number}/3")]);
        let rows = rows(&std::fs::read(out).expect("the part"));
        functions += types(&rows).get("function").copied().unwrap_or_default();
    }

    // The script takes the queries from the page itself.
    let output = Command::new(python)
        .arg(top().join("examples/sweep/ask.py"))
        .arg(top().join("docs/sweep.md"))
        .current_dir(scratch.path(""))
        .output()
        .expect("python runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    println!("{text}");

    let page = std::fs::read_to_string(top().join("docs/sweep.md")).expect("the page");
    // Each query of the page is answered by a table, and there are more than a few.
    let queries = page.matches("```sql").count();
    let tables = text.lines().filter(|line| line.starts_with("| --- "));
    let tables = tables.count();
    assert!(
        queries > 7 && tables > 6,
        "{tables} answers of {queries}: {text}"
    );

    // One sweep of three parts, all of them there.
    assert!(text.contains("| 1 | 3 | 3 | 3 |"), "{text}");

    let section = text.split("Verdicts\n").nth(1).unwrap_or_default();
    let verdicts = section.lines().skip(3).take_while(|line| !line.is_empty());
    let count = |line: &str| {
        let cell = line
            .split('|')
            .nth(2)
            .expect("a cell")
            .trim()
            .replace(',', "");
        cell.parse::<usize>().expect("a number")
    };

    // The verdicts of all parts add up to the functions that were written.
    assert_eq!(verdicts.map(count).sum::<usize>(), functions, "{text}");

    // Without an assembler there is no file with a wrong row.
    if scratch.path("late.o").exists() {
        assert!(
            text.contains("| late | `push` has no row | 1 | 1 | late.o: "),
            "{text}"
        );
    }
}

#[test]
fn spark_runs_the_partitions() {
    let name = "spark_runs_the_partitions";
    if std::env::var_os("UNWIND_SIM_SLOW").is_none() {
        return skip(name, "slow; set UNWIND_SIM_SLOW=1");
    }
    let Some(python) = python("pyspark") else {
        return skip(name, "python3 has no pyspark");
    };
    if Command::new("java").arg("-version").output().is_err() {
        return skip(name, "java is not installed");
    }

    let scratch = Scratch::new();
    let list = some_files(&scratch);
    let part = scratch.path("part");

    // The same sweep without Spark is what its counts are compared with.
    sweep(&list, &part, &[]);
    let rows = rows(&std::fs::read(part).expect("the part"));

    let output = Command::new(&python)
        .arg(top().join("examples/sweep/spark.py"))
        .arg(env!("CARGO_BIN_EXE_unwind-sim"))
        .args([&list, &scratch.path("rows.parquet")])
        .env("PYSPARK_PYTHON", &python)
        // Two workers on this computer.
        .env("PYSPARK_SUBMIT_ARGS", "--master local[2] pyspark-shell")
        .current_dir(scratch.path(""))
        .output()
        .expect("python runs");

    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );

    // A verdict without functions has no line.
    for verdict in ["proven", "contradicted", "unproven"] {
        let has = |row: &&Value| row["type"] == "function" && row["verdict"] == verdict;
        let count = rows.iter().filter(has).count();
        // Spark shows columns aligned to the right; `contradicted` is the longest of this one.
        let shown = text
            .lines()
            .find(|line| line.contains(&format!("|{verdict:>12}|")));
        let number = shown.and_then(|line| line.split('|').nth(2)?.trim().parse().ok());
        assert_eq!(number.unwrap_or(0), count, "{text}");
    }
}
