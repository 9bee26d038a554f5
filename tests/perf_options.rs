//! Compares the options of `perf script` with perf's own output, where its versions agree: filters,
//! depth of chains, input from pipes, and source lines.

use crate::common::skip::skip;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use unwind_sim_perf_data::write::{Body, EventSpec, Id, SampleData, Writer};
use unwind_sim_perf_data::{Comm, Mmap, MmapIdentity, misc, sample_type as st};

/// Fields that all versions of perf print alike.
const FIELDS: &str = "comm,time,ip,sym,symoff,dso";

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus/perfdata")
        .join(name)
}

/// Runs perf or this tool with options that both have.
fn command(tool: &str, args: &[&str]) -> Command {
    let mut command = Command::new(tool);
    if tool != "perf" {
        command.arg("perf");
    }
    command.args(["script", "--no-inline", "--kallsyms"]);
    command.arg(corpus("script/fields.kallsyms.txt"));
    command.arg("--symfs").arg(corpus("script/symfs"));
    command.args(args).env("TZ", "UTC").env("PAGER", "cat");
    command
}

fn run(tool: &str, path: &Path, args: &[&str]) -> Option<Output> {
    let mut command = command(tool, args);
    command.arg("-i").arg(path).stdin(Stdio::null());
    command.output().ok()
}

fn ours(path: &Path, args: &[&str]) -> Output {
    run(env!("CARGO_BIN_EXE_unwind-sim"), path, args).expect("the tool runs")
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// perf 6.1 shows addresses of frames as offsets in their files.
fn without_addresses(text: &str) -> String {
    let plain = |line: &str| match line.strip_prefix('\t') {
        Some(frame) => frame
            .trim_start()
            .split_once(' ')
            .unwrap_or_default()
            .1
            .to_owned(),
        None => line.to_owned(),
    };
    text.lines().map(plain).collect::<Vec<_>>().join("\n")
}

/// Checks that both tools print the same or both fail; returns the text. `None` without perf.
fn same(name: &str, args: &[&str]) -> Option<String> {
    let path = corpus(&format!("{name}.data"));
    let perfs = run("perf", &path, args)?;
    let ours = ours(&path, args);
    assert_eq!(
        perfs.status.success(),
        ours.status.success(),
        "{name} {args:?}: {}{}",
        String::from_utf8_lossy(&perfs.stderr),
        String::from_utf8_lossy(&ours.stderr)
    );
    let found = without_addresses(&text(&ours));
    assert_eq!(found, without_addresses(&text(&perfs)), "{name} {args:?}");
    Some(found)
}

/// Number of different outputs for several lists of options; `None` without perf.
fn outputs<'a>(name: &str, all: impl IntoIterator<Item = Vec<&'a str>>) -> Option<usize> {
    let mut found = Vec::new();
    for args in all {
        let args = [&["-F", FIELDS], args.as_slice()].concat();
        found.push(same(name, &args)?);
    }
    found.sort();
    found.dedup();
    Some(found.len())
}

#[test]
fn spans_of_time_are_perfs() {
    let spans = [
        ("4038.672047,4038.672110", "fields"),
        ("4038.6721,", "fields"),
        (",4038.67205", "fields"),
        (",", "fields"),
        (",4038.67205 4038.6721,4038.67215", "fields"),
        ("4038.672009,4038.672047 4038.6721,", "fields"),
        ("10%-20%", "fields"),
        ("0%-10%,30%-40%", "fields"),
        ("33%", "fields"),
        ("10%/2,10%/10", "fields"),
        ("12.5%-77.7%", "fields"),
        ("100%-100%", "fields"),
        ("1,2", "fields"),
        ("4038.672047", "fields"),
        ("soon", "fields"),
        ("0%-200%", "fields"),
        ("10%,20%", "fields"),
        ("2075.82,2075.822", "dwarf"),
        ("50%-75%", "dwarf"),
        // Recordings without the times of the first and the last sample.
        ("50%-75%", "LBR-stitch-grow"),
        ("50%-75%", "fp-pipe"),
        ("0.000002,", "LBR-stitch-grow"),
    ];

    // Spans that perf refuses have to be refused here, too.
    for (span, name) in spans {
        let args = ["-G", "-F", FIELDS, "--time", span];
        if same(name, &args).is_none() {
            return skip("spans_of_time_are_perfs", "perf is not installed");
        }
    }

    // Both could be empty, so one is counted.
    let some = ours(&corpus("fields.data"), &["-F", "time", "--time", "10%-20%"]);
    assert_eq!(text(&some).lines().count(), 3);
}

#[test]
fn tasks_are_chosen_as_perf_does() {
    let lists = [
        vec!["--comms", "spin"],
        vec!["--comms", "spi,swapper"],
        vec!["-c", "swapper,spin"],
        vec!["--pid", "4727"],
        vec!["--pid", "4729,1"],
        vec!["--pid", "1"],
        vec!["--tid", "4729"],
        vec!["--tid", "4727,4729", "--pid", "4727"],
        vec!["--tid", "4729", "--pid", "4727"],
        vec!["--tid", "4729", "--comms", "ls"],
    ];
    let all = lists.map(|list| [vec!["-G"], list].concat());
    let Some(found) = outputs("dwarf", all) else {
        return skip("tasks_are_chosen_as_perf_does", "perf is not installed");
    };
    assert_eq!(found, 4, "all, either process, and none");
    // perf reports the error too, but exits with status 0.
    let wrong = ours(&corpus("dwarf.data"), &["--pid", "x"]);
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn chains_are_as_long_as_perfs_and_hidden_as_there() {
    let depths = ["0", "1", "2", "3", "5", "127", "100000"];
    let all = || depths.map(|depth| vec!["--max-stack", depth]).into_iter();
    let Some(found) = outputs("fields-chains", all()) else {
        let name = "chains_are_as_long_as_perfs_and_hidden_as_there";
        return skip(name, "perf is not installed");
    };
    assert_eq!(found, 6);
    // Frames of branch records are not limited, except that a limit of 0 removes the whole chain.
    assert_eq!(outputs("LBR-stitch-grow", all()), Some(2));
    let stitched = all().map(|args| [vec!["--stitch-lbr"], args].concat());
    assert_eq!(outputs("LBR-stitch-grow", stitched), Some(2));
    for name in ["fields-chains", "dwarf", "tp-pipe", "LBR-stitch-grow"] {
        let hidden = outputs(name, [vec!["-G"]]);
        assert_eq!(hidden, Some(1));
    }
    for wrong in ["-1", "x", "1x"] {
        assert!(same("fields-chains", &["--max-stack", wrong]).is_some());
    }
}

/// Both reject types of events that the recording lacks, and source lines without addresses.
#[test]
fn fields_are_refused_as_perf_does() {
    let lists = [
        "raw:",
        "hw:",
        "srcline",
        "+srcline",
        "sym,srcline",
        "trace:comm,foo",
        "foo:comm",
    ];
    for list in lists {
        match same("fields", &["-F", list]) {
            None => return skip("fields_are_refused_as_perf_does", "perf is not installed"),
            Some(text) => assert_eq!(text, "", "-F {list}"),
        }
    }
    assert!(same("fields", &["-F", "-tid", "-F", "trace:"]).is_some_and(|text| !text.is_empty()));
}

/// The whole header, except for changes since perf 6.1: attributes have names, empty lists of BPF
/// programs are reported, and there are more features.
#[test]
fn the_header_is_perfs() {
    let older = |text: &str| -> String {
        let is_kept = |line: &&str| {
            // Lines that newer versions print in another form.
            let changed = ["# event : ", "# bpf_prog_info ", "# btf info "];
            !changed.iter().any(|prefix| line.starts_with(prefix))
        };

        // The list of features ends with the last one that perf 6.1 knows.
        let cut = |line: &str| match line.strip_prefix("# missing features: ") {
            Some(_) => line
                .split_inclusive("HYBRID_TOPOLOGY ")
                .next()
                .unwrap_or(line)
                .to_owned(),
            None => line.to_owned(),
        };
        text.lines()
            .filter(is_kept)
            .map(cut)
            .collect::<Vec<_>>()
            .join("\n")
    };

    for name in [
        "fields",
        "dwarf",
        "dwarf-zstd",
        "read-group",
        "LBR-stitch-grow",
        "fp-pipe",
    ] {
        // The names and features in a header come from the file, so this computer does not matter.
        let path = corpus(&format!("{name}.data"));
        let Some(perfs) = run("perf", &path, &["--header-only"]) else {
            return skip("the_header_is_perfs", "perf is not installed");
        };
        let found = text(&ours(&path, &["--header-only"]));
        assert_eq!(older(&found), older(&text(&perfs)), "{name}");
    }

    // The header in front of samples, too.
    let samples = ["-G", "-F", "comm,time,ip", "--header"];
    for name in ["fp-pipe", "fields"] {
        let path = corpus(&format!("{name}.data"));
        let (found, perfs) = (ours(&path, &samples), run("perf", &path, &samples));
        let perfs = perfs.expect("perf is there");
        assert_eq!(older(&text(&found)), older(&text(&perfs)), "{name}");
    }
}

/// Recordings in file and pipe mode, from a file and from standard input, with and without `-`.
#[test]
fn standard_input_is_read_like_a_file() {
    let tool = env!("CARGO_BIN_EXE_unwind-sim");
    let piped = |name: &str, args: &[&str]| {
        let mut child = command(tool, &["-F", "comm,time,event"])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the tool runs");
        let bytes = std::fs::read(corpus(&format!("{name}.data"))).expect("the corpus");
        let mut pipe = child.stdin.take().expect("a pipe");
        pipe.write_all(&bytes).expect("it reads to the end");
        drop(pipe);
        text(&child.wait_with_output().expect("it ends"))
    };
    for name in ["fp-pipe", "fields"] {
        let path = corpus(&format!("{name}.data"));
        let wanted = text(&ours(&path, &["-F", "comm,time,event"]));
        assert!(wanted.lines().count() > 5);
        for args in [&["-i", "-"][..], &["-"], &[]] {
            assert_eq!(piped(name, args), wanted, "{name} {args:?}");
        }
    }
}

const SOURCE: &str = "\
static inline __attribute__((always_inline)) int twice(int x)
{
\treturn x * 2 +
\t\t1;
}
__attribute__((noinline)) int leaf(int x)
{
\tvolatile int y = x;
\treturn twice(y);
}
int main(void)
{
\tint sum = 0;
\tfor (int i = 0; i < 3; i++)
\t\tsum += leaf(i);
\treturn sum;
}
";

/// Compiles the program, and writes a recording with a sample at each byte of its functions.
fn lines_recorded(folder: &Path, options: &[&str]) -> Option<PathBuf> {
    let (source, program) = (folder.join("lines.c"), folder.join("program"));
    std::fs::write(&source, SOURCE).expect("a file");
    let compiled = Command::new("gcc")
        .args(options)
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .status();
    compiled.ok().filter(|status| status.success())?;

    // The sizes of both functions, as the compiler made them.
    let symbols = Command::new("nm").arg("-S").arg(&program).output().ok()?;
    let symbols = String::from_utf8(symbols.stdout).expect("text");

    // nm -S: address, size, type, name.
    let numbers = symbols.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [start, size, _, "leaf" | "main"] = words[..] else {
            return None;
        };
        let number = |text| u64::from_str_radix(text, 16).expect("a number");
        Some((number(start), number(size)))
    });
    let functions: Vec<(u64, u64)> = numbers.collect();
    assert_eq!(functions.len(), 2, "{symbols}");

    let mut event = EventSpec::software("cpu-clock", 0);
    event.sample_type = st::IP | st::TID | st::TIME;
    let mut writer = Writer::new(vec![event]);
    let id = |time| Id {
        pid: 7,
        tid: 7,
        time,
        ..Id::default()
    };

    let comm = Comm {
        pid: 7,
        tid: 7,
        exec: true,
        name: b"program",
    };

    // An `exec`, so that perf takes what follows as this program's.
    writer.record(&Body::Comm(comm), &id(1)).expect("a record");

    // A program with fixed addresses is mapped where it says: its code at its offset plus 0x400000.
    let fixed = functions[0].0 & !0xf_ffff;
    // Any page will do for a program without fixed addresses; this is where Linux puts one if it
    // does not randomize.
    let base = if fixed == 0 { 0x5555_5555_4000 } else { fixed };
    let path = program.to_str().expect("a path").as_bytes();
    let mmap = Mmap {
        pid: 7,
        tid: 7,
        address: base + 0x1000,
        length: 0x1000,
        file_offset: 0x1000,
        identity: MmapIdentity::Path,
        // PROT_READ and PROT_EXEC, MAP_PRIVATE.
        protection: 5,
        flags: 2,
        path,
    };

    let cpumode = misc::CPUMODE_USER;
    writer
        .record(&Body::Mmap { mmap, cpumode }, &id(2))
        .expect("a record");

    // Each byte, so that every row of the line table is met.
    let addresses = functions
        .iter()
        .flat_map(|&(start, size)| start..start + size);
    for (time, address) in (3..).zip(addresses) {
        let ip = address - fixed + base;
        let sample = SampleData {
            misc: cpumode,
            ip,
            ..SampleData::default()
        };
        writer
            .record(&Body::Sample(sample), &id(time))
            .expect("a record");
    }

    let recording = folder.join("perf.data");
    std::fs::write(&recording, writer.finish()).expect("a file");
    Some(recording)
}

#[test]
fn lines_of_the_source_are_perfs() {
    let name = "lines_of_the_source_are_perfs";

    // Versions and forms of DWARF, compressed, with little information, and at fixed addresses.
    let forms: [&[&str]; 6] = [
        &["-g", "-O1"],
        &["-g", "-O2", "-gdwarf-4"],
        &["-g", "-O0", "-no-pie"],
        &["-g", "-O2", "-gz=zlib"],
        &["-g1", "-O1", "-no-pie", "-gdwarf-3"],
        &["-g", "-O1", "-gdwarf64"],
    ];

    for options in forms {
        let folder = tempfile::tempdir().expect("a folder");
        let Some(recording) = lines_recorded(folder.path(), options) else {
            return skip(name, "gcc and nm are not installed");
        };

        let script = |tool: &str| {
            let mut command = Command::new(tool);
            if tool != "perf" {
                command.arg("perf");
            }
            command.args([
                "script",
                "--no-inline",
                "-F",
                "comm,ip,sym,symoff,srcline",
                "-i",
            ]);
            let output = command.arg(&recording).stdin(Stdio::null()).output().ok()?;
            Some(text(&output))
        };

        let found = script(env!("CARGO_BIN_EXE_unwind-sim")).expect("the tool runs");

        // Known lines, since perf may not be installed, and both could be wrong.
        for line in ["lines.c:8\n", "lines.c:15\n"] {
            assert!(found.contains(line), "{options:?}: {line}{found}");
        }

        let Some(perfs) = script("perf") else {
            return skip(name, "perf is not installed");
        };

        // addr2line of binutils 2.40, which perf 6.1 calls, does not read 64-bit DWARF.
        if options.contains(&"-gdwarf64") {
            continue;
        }
        assert_eq!(found, perfs, "{options:?}");
    }
}
