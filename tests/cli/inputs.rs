//! What commands are given to read: things that are not files, outputs that are inputs, files that
//! others cut meanwhile.

use crate::cli::{SEED, THROWS, root, run, status, stderr, tool};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use unwind_sim_perf_data::write::{Body, EventSpec, Id, SampleData, Writer};
use unwind_sim_perf_data::{Mmap, MmapIdentity, misc, sample_type as st};

/// A command that waits is ended after this time. Busy machines take a part of it.
const LIMIT: Duration = Duration::from_secs(60);

fn fifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.expect("mkfifo runs").success());
}

/// Runs a command that must end by itself.
fn ended(args: &[&str]) -> Output {
    let mut command = tool(args);
    command.stdout(std::process::Stdio::piped());
    command.stderr(std::process::Stdio::piped());
    let mut child = command.spawn().expect("the tool runs");
    let start = Instant::now();
    while child.try_wait().expect("our child").is_none() {
        if start.elapsed() > LIMIT {
            let _ = child.kill();
            panic!("{args:?} waits");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("its output")
}

/// What every command that reads a file says of what is none.
#[test]
fn what_is_not_a_file_is_refused_by_every_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let [pipe, socket, circle, out] = ["pipe", "socket", "circle", "out"].map(path);

    // Nobody writes to it, so a command that opened it would wait for ever.
    fifo(Path::new(&pipe));
    // A socket cannot be opened: ENXIO (`man 2 open`).
    let _listener = UnixListener::bind(&socket).expect("a socket");
    symlink("circle", &circle).expect("a link");
    let here = path("");

    // `@` stands for the file.
    let readers: &[&[&str]] = &[
        &["replay", "@"],
        &["compare", "@"],
        &["compare", SEED, "--baseline", "@"],
        &["doctor", "@"],
        &["explain", "@"],
        &["inspect", "@"],
        &["inspect", THROWS, "--symbols", "@"],
        &["import", "@", "-o", &out],
        &["extract", "@", "-o", &out],
        &["scrub", "@", "-o", &out],
        &["report", "@", "-o", &out],
        &["step", "@", "--script", "/dev/null"],
        &["step", SEED, "--script", "@"],
        &["verify", "--", "@"],
        &["verify", "--schedule", "@", "--", "/bin/true"],
        &["emulate", "--", "@"],
        &["emulate", "--flat", "@@0x1000"],
        &["emulate", "--kernel", "@"],
        &["record", "--engine", "emulator", "-o", &out, "--", "@"],
        &["cases", "run", "@"],
        &["cases", "show", "@"],
        &["tables", "check", "@"],
        &["tables", "check", "/bin/true", "--baseline", "@"],
        &["tables", "check", "--files", "@", "--out", &out],
        &["tables", "dump", "@"],
        &["tables", "diff", "@", "/bin/true"],
        &["tables", "convert", "@", "--to", "sframe-v3", "-o", &out],
        &["tables", "generate", "@", "--to", "sframe-v3", "-o", &out],
        &["tables", "merge", "@", "-o", &out],
        &["perf", "script", "-i", "@"],
        &["perf", "stitch", "@"],
        &["perf", "run", "@"],
        &["perf", "bpf", "@"],
    ];

    for given in [pipe.as_str(), &socket, "/dev/zero", &circle, &here] {
        for reader in readers {
            // These take folders.
            if given == here && (reader.contains(&"cases") || reader.contains(&"compare")) {
                continue;
            }

            let args: Vec<String> = reader
                .iter()
                .map(|word| match *word {
                    "@@0x1000" => format!("{given}@0x1000"),
                    word => word.replace('@', given),
                })
                .collect();
            let args: Vec<&str> = args.iter().map(String::as_str).collect();

            // It must end by itself, also with /dev/zero, which never does.
            let output = ended(&args);
            let said = stderr(&output);

            // A program that cannot be executed ends as a shell says it.
            let statuses: &[i32] = if reader.contains(&"--") {
                &[2, 3, 126, 127]
            } else {
                &[2]
            };
            assert!(statuses.contains(&status(&output)), "{args:?}: {said}");
            assert!(!said.is_empty(), "{args:?}");

            // Nothing is written when the input was refused.
            assert!(!Path::new(&out).exists(), "{args:?}");
        }
    }
}

/// A recording that names a FIFO for a program's file is read, and says what is there.
#[test]
fn a_recording_that_names_a_fifo_does_not_wait_for_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("program");
    fifo(&program);
    let recording = folder.path().join("perf.data");
    fs::write(&recording, recorded(&program)).expect("a recording");
    let recording = recording.to_string_lossy().into_owned();
    for command in ["doctor", "replay", "compare", "inspect"] {
        let output = ended(&[command, &recording]);
        let all = [&output.stdout[..], &output.stderr].concat();
        let all = String::from_utf8_lossy(&all).into_owned();
        assert!(
            command != "doctor" || all.contains("a FIFO, not a file"),
            "{command}: {all}"
        );
    }
    ended(&["perf", "script", "-i", &recording]);
}

fn recorded(program: &Path) -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    let event = EventSpec {
        sample_type: st::IP | st::TID | st::TIME | st::CALLCHAIN,
        ..EventSpec::software("cpu-clock", 0)
    };

    // Without registers and stacks: the chain alone makes the command look for the image.
    let mut writer = Writer::new(vec![event]);
    let id = |time| Id {
        pid: 7,
        tid: 7,
        time,
        ..Id::default()
    };

    // The image is looked up by this path; the sample below has to be within the mapping.
    let mmap = Mmap {
        pid: 7,
        tid: 7,
        address: BASE,
        length: 4096,
        file_offset: 0,
        identity: MmapIdentity::Path,
        // PROT_READ and PROT_EXEC, MAP_PRIVATE.
        protection: 5,
        flags: 2,
        path: program.as_os_str().as_encoded_bytes(),
    };
    let mapped = Body::Mmap {
        mmap,
        cpumode: misc::CPUMODE_USER,
    };
    writer.record(&mapped, &id(1)).expect("a record");

    // -512 is `PERF_CONTEXT_USER`.
    let chain = [u64::MAX - 511, BASE + 0x10, BASE + 0x20];
    let sample = Body::Sample(SampleData {
        ip: BASE + 0x10,
        callchain: &chain,
        ..SampleData::default()
    });
    writer.record(&sample, &id(2)).expect("a record");

    writer.finish()
}

/// By device and inode: through links, and under another name.
#[test]
fn an_output_that_is_an_input_is_refused_before_it_is_touched() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let [input, linked, symbolic, data] = ["input", "linked", "symbolic", "perf.data"].map(path);
    fs::copy(root(SEED), &input).expect("a trace");
    fs::hard_link(&input, &linked).expect("a link");
    symlink("input", &symbolic).expect("a link");
    fs::copy(root("corpus/perfdata/dwarf.data"), &data).expect("a recording");

    let program = path("program");
    fs::copy("/bin/true", &program).expect("a program");
    // Copies, because a command that fails this test destroys its input.
    let scenario = path("scenario.txt");
    fs::copy(
        root("corpus/scenarios/upstream/cookie-reused.txt"),
        &scenario,
    )
    .expect("a scenario");

    // The file itself, another name of it, and a link to it.
    for output in [&input, &linked, &symbolic] {
        for args in [
            &["import", &input, "-o", output][..],
            &["extract", &input, "-o", output],
            &["scrub", &input, "-o", output],
            &["replay", &input, "-o", output],
            &["replay", &input, "--json", "-o", output],
            &["replay", &input, "--format", "folded", "-o", output],
            &["report", &input, "-o", output],
        ] {
            refused(args, Path::new(&input));
        }
    }

    refused(
        &["perf", "script", "-i", &data, "-o", &data],
        Path::new(&data),
    );
    refused(
        &["perf", "run", &scenario, "-o", &scenario],
        Path::new(&scenario),
    );

    // A program that is recorded is an input, too.
    let record = [
        "record", "--engine", "emulator", "-o", &program, "--", &program,
    ];
    refused(&record, Path::new(&program));
    refused(
        &["record", "-o", &program, "--", &program],
        Path::new(&program),
    );

    // So is a list of files.
    let list = path("list");
    fs::write(&list, &program).expect("a list");
    let check = ["tables", "check", "--files", &list, "--out", &list];
    refused(&check, Path::new(&list));

    // Only the run finds this one.
    fs::create_dir_all(path("symfs/bin")).expect("a folder");
    let image = path("symfs/bin/true");
    fs::copy("/bin/true", &image).expect("a program");
    let recording = path("named.data");
    fs::write(&recording, recorded(Path::new("/bin/true"))).expect("a recording");
    // Which files of --symfs are read depends on the mappings of the recording.
    let symfs = path("symfs");
    refused(
        &["replay", &recording, "--symfs", &symfs, "-o", &image],
        Path::new(&image),
    );

    // What is documented as in place is done in place.
    let before = fs::read(&program).expect("it");
    let done = run(&[
        "tables",
        "convert",
        &program,
        "--to",
        "sframe-v3",
        "-o",
        &program,
    ]);
    assert!(status(&done) < 2, "{}", stderr(&done));
    assert_ne!(fs::read(&program).expect("it"), before);
}

fn refused(args: &[&str], input: &Path) {
    let before = fs::read(input).expect("the input");
    let output = run(args);
    let said = stderr(&output);
    assert_eq!(status(&output), 2, "{args:?}: {said}");
    assert!(
        said.contains("is an input of this command"),
        "{args:?}: {said}"
    );
    assert!(fs::read(input).expect("the input") == before, "{args:?}");
    let folder = input.parent().expect("a folder");
    let mut names = fs::read_dir(folder).expect("a folder");
    let is_left = names.any(|name| {
        let name = name.expect("a name").file_name();
        name.to_string_lossy().ends_with(".partial")
    });
    assert!(!is_left, "{args:?}");
}

/// The recording is cut by the unwinder that is asked about its first sample.
#[test]
fn a_file_that_becomes_shorter_while_it_is_read_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let [recording, script, out] = ["perf.data", "cut.sh", "out"].map(path);
    fs::copy(root("corpus/perfdata/dwarf.data"), &recording).expect("a recording");
    let size = fs::metadata(&recording).expect("it").len();
    // Samples lie on several pages.
    assert!(size > 2 * 4096, "{size}");

    // The unwinder cuts the recording short while this is walked.
    let text = "#!/bin/sh\nread -r line\ntruncate -s 4096 \"$RECORDING\"\necho '{}'\n\
                while read -r line; do echo '{}'; done\n";
    fs::write(&script, text).expect("a script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("ours");

    let unwinder = format!("cmd:'{script}'");
    let mut command = tool(&["replay", &recording, "--unwinder", &unwinder, "-o", &out]);
    let output = command
        .env("RECORDING", &recording)
        .output()
        .expect("the tool runs");

    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    for wanted in [recording.as_str(), &format!("{size} bytes"), "4096"] {
        assert!(said.contains(wanted), "{said}");
    }
    assert!(!Path::new(&out).exists(), "{said}");
}
