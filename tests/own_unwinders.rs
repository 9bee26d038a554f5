//! External unwinders: the examples give the same chains as ours, and a process that misbehaves
//! ends its chain, but never the run.

#[allow(
    dead_code,
    unreachable_pub,
    reason = "it has a main function of its own"
)]
#[path = "../examples/own-unwinders/frame_pointer.rs"]
mod frame_pointer;

use crate::common::skip::skip;
use frame_pointer::ByHand;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use unwind_sim_judge::check_dir::CheckError;
use unwind_sim_judge::engine::Setting;
use unwind_sim_judge::input::Input;
use unwind_sim_judge::own::{AnswersLimit, CommandUnwinder};
use unwind_sim_judge::shell::quoted_path;
use unwind_sim_judge::{check_dir, run::Column, spec};
use unwind_sim_recordings::convert::OpenOptions;
use unwind_sim_recordings::view::Filter;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::Chain;
use unwind_sim_unwind::reason::Code;
use unwind_sim_unwind::start::Variant;
use unwind_sim_unwind::unwinder::Unwinder;

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn trace(name: &str) -> Input {
    let path = root("corpus/traces").join(name);
    Input::open(&path, &OpenOptions::default()).expect("a trace of the corpus")
}

/// Maximum number of samples of a trace: a Python process is slow.
const SAMPLES_MAX: u64 = 400;

/// The chains of `unwinder` for the start of the trace, with the registers that samples were taken
/// with, or only with hardware registers.
fn chains(input: &Input, unwinder: &dyn Unwinder, fake: bool) -> Vec<Chain> {
    let mut out = Vec::new();
    let mut cache = Cache::new();
    let column = Column {
        engine: 0,
        variant: None,
        version: None,
    };

    // An unwinder of the user's gets the same samples as ours.
    let take = &mut |view: &unwind_sim_recordings::view::View<'_>| {
        // Registers as the sample has them: fake ones where it was taken at a tracepoint.
        let start = column.variant_for(view);
        if fake || start == Variant::Hardware {
            let setting = Setting::default();
            let outcome =
                unwind_sim_judge::engine::examine(view, unwinder, start, &setting, &mut cache);
            out.push(outcome.chain);
        }
        Ok(())
    };

    let filter = Filter {
        limit: Some(SAMPLES_MAX),
        ..Filter::default()
    };

    input
        .for_each::<unwind_sim_judge::input::InputError>(&filter, take)
        .expect("a sound trace");
    out
}

fn pcs(chain: &Chain) -> Vec<u64> {
    chain.frames.iter().map(|f| f.pc.value()).collect()
}

/// The text after `cmd:` for the Python example, if Python is installed.
fn fp_py() -> Option<String> {
    let python = std::process::Command::new("python3").arg("-V").output();
    if python.is_err() {
        skip("own_unwinders", "there is no python3");
        return None;
    }
    let path = root("examples/own-unwinders/fp.py");
    Some(format!("python3 {}", quoted_path(&path)))
}

/// Checks that `own` finds what our frame pointer unwinder finds, and ends where it ends.
fn equals_fp(own: &dyn Unwinder) {
    let mut longest = 0;
    let recursion = "../cases/frame/recursion-gives-the-same-pc-many-times.s";
    for name in ["seed-004.bin", "throws.bin", recursion] {
        let input = trace(name);
        let ours = chains(&input, &unwind_sim_unwind::fp::FramePointer, false);
        let theirs = chains(&input, own, false);
        assert_eq!(ours.len(), theirs.len());
        for (number, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            assert_eq!(pcs(theirs), pcs(ours), "{name} sample {number}");
            let at_root = |c: &Chain| c.end.reason.code() == Code::RootReached;
            assert_eq!(at_root(theirs), at_root(ours), "{name} sample {number}");
            longest = longest.max(ours.frames.len());
        }
    }
    assert!(longest > 3, "{longest}");
}

#[test]
fn the_example_in_python_gives_the_chains_of_fp() {
    let Some(command) = fp_py() else { return };
    let own = CommandUnwinder::start(&command).expect("it starts");
    equals_fp(&own);
    assert_eq!(own.fault(), None);
}

#[test]
fn the_example_in_rust_gives_the_chains_of_fp() {
    equals_fp(&ByHand);
}

#[test]
fn check_dir_reports_every_wrong_chain() {
    let folder = root("corpus/traces");
    let report = check_dir(&folder, &ByHand).expect("a folder with traces");
    let traces = std::fs::read_dir(&folder).expect("a folder").count();
    assert_eq!(report.files, traces);
    assert!(report.unread.is_empty(), "{report}");
    assert!(!report.is_ok() && !report.wrong.is_empty());
    assert!(report.wrong.iter().all(|wrong| wrong.verdict.is_wrong()));

    // By cause, each with its first chain, on one screen.
    let (text, causes) = (report.to_string(), report.causes());
    let chains: usize = causes.iter().map(|cause| cause.chains).sum();
    assert_eq!(chains, report.wrong.len());
    assert!(causes.is_sorted_by_key(|cause| std::cmp::Reverse(cause.chains)));
    for cause in &causes {
        let first = format!(
            "{} sample {}",
            cause.first.file.display(),
            cause.first.sample
        );
        assert!(text.contains(&first), "{text}");
    }
    assert!(text.lines().count() <= 24, "{text}");

    // A report without the chains that are excepted has nothing wrong.
    let judged = report.judged;
    assert!(report.except(|_| true).is_ok() && judged > 0);
}

#[test]
fn check_dir_says_what_it_cannot_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let nothing = check_dir(folder.path(), &ByHand).unwrap_err();
    assert!(matches!(nothing, CheckError::Nothing { .. }), "{nothing}");
    let missing = check_dir(folder.path().join("missing"), &ByHand).unwrap_err();
    assert!(matches!(missing, CheckError::Io { .. }), "{missing}");

    // A trace that was cut, a file of another kind, and a case that is none.
    let whole = std::fs::read(root("corpus/traces/seed-004.bin")).expect("a trace");
    std::fs::write(folder.path().join("cut.bin"), &whole[..whole.len() - 60]).expect("a file");
    std::fs::write(folder.path().join("other.bin"), b"no trace").expect("a file");
    std::fs::write(folder.path().join("Broken.s"), b"#! claim: no\n").expect("a file");
    let report = check_dir(folder.path(), &ByHand).expect("something to check");
    let unread: Vec<String> = report
        .unread
        .iter()
        .map(|u| {
            u.file
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    assert_eq!(unread, ["Broken.s", "cut.bin"], "{report}");

    // What could not be read is a failure, whatever is expected.
    assert!(!report.except(|_| true).is_ok());
}

/// Runs a script that breaks the protocol; returns its chains, the fault, and how long that took.
/// What a test limits; all else has time, however busy the machine is.
#[derive(Clone, Copy)]
enum Limited {
    Nothing,
    Silence(Duration),
    Stack(Duration),
}

fn misbehave(script: &str, limited: Limited) -> (Vec<Chain>, String, Duration) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("own.sh");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a script");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&path, mode).expect("a mode");
    let command = format!("sh {}", quoted_path(&path));
    let own = CommandUnwinder::start(&command).expect("it starts");
    let own = match limited {
        Limited::Nothing => own.with_silence_max(LONG).with_stack_max(LONG),
        Limited::Silence(max) => own.with_silence_max(max).with_stack_max(LONG),
        Limited::Stack(max) => own.with_silence_max(LONG).with_stack_max(max),
    };
    let since = Instant::now();
    let chains = chains(&trace("seed-004.bin"), &own, true);
    let fault = own.fault().expect("a fault");
    (chains, fault, since.elapsed())
}

/// A limit that a test is about.
const BRIEF: Duration = Duration::from_millis(500);
/// All other limits: only a hang reaches them.
const LONG: Duration = Duration::from_secs(600);
/// Before any such limit.
const SOON: Duration = Duration::from_secs(300);

#[test]
fn garbage_ends_the_chain() {
    let frame = r#"{"type":"frame","pc":"0x401000"}"#;
    let script = format!("read line; echo '{frame}'; echo 'what is this'; exec sleep 3600");
    let (chains, fault, took) = misbehave(&script, Limited::Nothing);
    assert!(fault.contains("`what is this`"), "{fault}");
    // The frames it gave before count; it gets no later stacks.
    let lengths: Vec<usize> = chains.iter().map(|c| c.frames.len()).collect();
    assert_eq!(lengths, [1, 0, 0]);
    assert!(
        chains
            .iter()
            .all(|c| c.end.reason.code() == Code::NotAtRoot)
    );
    assert!(took < SOON, "{took:?}");
}

#[test]
fn silence_ends_the_process() {
    let (chains, fault, took) = misbehave("exec sleep 3600", Limited::Silence(BRIEF));
    assert_eq!(fault, "it sent nothing for 0.5 s");
    assert!(chains.iter().all(|c| c.frames.is_empty()));
    assert!(took < SOON, "{took:?}");
}

/// It says something often enough, and never ends.
#[test]
fn one_stack_takes_its_time_at_most() {
    let ask = r#"{"type":"read","address":"0x0","length":1}"#;
    let script = format!("while read line; do echo '{ask}'; sleep 0.05; done");
    let (_, fault, took) = misbehave(&script, Limited::Stack(Duration::from_secs(2)));
    assert_eq!(fault, "it did not end a stack in 2 s");
    assert!(took < SOON, "{took:?}");
}

/// An option is named only where there is one.
#[test]
fn all_answers_take_their_time_at_most() {
    let max = Duration::from_millis(100);
    for (raised_by, said) in [
        (None, "its answers took 0.1 s in all, the limit; "),
        (
            Some("--time"),
            "its answers took 0.1 s in all, the limit, which --time raises; ",
        ),
    ] {
        let own = CommandUnwinder::start("sleep 3600").expect("it starts");
        let own = own.with_answers_limit(AnswersLimit { max, raised_by });
        let chains = chains(&trace("seed-004.bin"), &own, true);
        let fault = own.fault().expect("a fault");
        assert!(fault.starts_with(said), "{fault}");
        assert!(own.is_out_of_time());
        assert!(chains.iter().all(|chain| chain.frames.is_empty()));
    }
}

#[test]
fn an_early_end_is_told() {
    for script in ["exit 3", "read line; exit 0", "exec 1>&-; exec sleep 3600"] {
        let (_, fault, took) = misbehave(script, Limited::Nothing);
        assert!(
            ["it exited", "it stopped reading"].contains(&&*fault),
            "{fault}"
        );
        assert!(took < SOON, "{took:?}");
    }
}

/// It sends requests and never reads an answer, so the pipe fills up.
#[test]
fn a_process_that_reads_nothing_does_not_stop_us() {
    let ask = r#"{"type":"read","address":"0x0","length":65536}"#;
    let (_, fault, took) = misbehave(&format!("yes '{ask}'"), Limited::Silence(BRIEF));
    assert!(fault.starts_with("it read nothing for"), "{fault}");
    assert!(took < SOON, "{took:?}");
}

#[test]
fn endless_frames_end_at_the_limit() {
    let frame = r#"{"type":"frame","pc":1}"#;
    let (chains, fault, took) = misbehave(&format!("yes '{frame}'"), Limited::Nothing);
    assert_eq!(fault, "more frames than the limit");
    let limit = unwind_sim_unwind::walk::FRAMES_MAX as usize;
    assert_eq!(chains[0].frames.len(), limit);
    assert_eq!(chains[0].end.reason.code(), Code::FrameLimit);
    assert!(took < SOON, "{took:?}");
}

#[test]
fn a_line_without_end_is_garbage() {
    let (_, fault, took) = misbehave("yes | tr -d '\\n'", Limited::Nothing);
    assert!(fault.starts_with("`yyy") && fault.len() < 400, "{fault}");
    assert!(took < SOON, "{took:?}");
}

#[test]
fn an_image_is_given_as_a_file_or_refused_with_a_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let said = folder.path().join("said");
    let script = format!(
        r#"ask() {{ echo "{{\"type\":\"image\",\"index\":$1}}"; read answer; echo "$answer" >>{0}; }}
        read line; ask 0; ask 0; ask 99; cp "$(sed -n 's/.*"path":"\([^"]*\)".*/\1/p;q' {0})" {0}.elf; exit 0"#,
        quoted_path(&said)
    );
    let (_, fault, _) = misbehave(&script, Limited::Nothing);
    assert_eq!(fault, "it exited");
    let text = std::fs::read_to_string(&said).expect("answers");
    let [first, again, none] = text.lines().collect::<Vec<_>>()[..] else {
        panic!("{text}");
    };
    assert!(first.contains(r#""index":0,"path":"/"#), "{first}");
    assert_eq!(again, first, "written once");
    assert!(none.contains("there is no image 99"), "{none}");
    let elf = std::fs::read(said.with_extension("elf")).expect("the file");
    assert_eq!(&elf[..4], b"\x7fELF");
}

#[test]
fn a_program_that_does_not_exist_is_named() {
    let Err(error) = spec::engine("cmd:/no/such/program") else {
        panic!("it started");
    };
    let text = error.to_string();
    assert!(text.contains("/no/such/program"), "{text}");
    let Err(error) = spec::engine("cmd:'/no/such program") else {
        panic!("it started");
    };
    let text = error.to_string();
    assert!(text.contains("a quote or a backslash has no end"), "{text}");
}

/// Quoted as for a shell, any path and argument is one word.
#[test]
fn a_quoted_path_with_spaces_is_one_word() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("it's my own.sh");
    let script = r#"[ "$1" = "two  words" ] || exit
while read line; do echo "{\"type\":\"frame\",\"pc\":$#}"; echo '{"type":"end"}'; done
"#;
    std::fs::write(&path, script).expect("a script");
    let command = format!("sh {} 'two  words' 2", quoted_path(&path));
    let own = CommandUnwinder::start(&command).expect("it starts");
    let chains = chains(&trace("seed-004.bin"), &own, true);
    assert_eq!(own.fault(), None);
    assert_eq!(pcs(&chains[0]), [2]);
}

/// A kernel's stacks are nothing that a reader of `.eh_frame` gets wrong: there is no such table.
#[test]
fn what_an_unwinder_is_not_for_is_not_counted() {
    use unwind_sim_unwind::dwarf::Dwarf;
    use unwind_sim_unwind::orc::Orc;

    let file = root("corpus/kernel/6.1-entry_SYSCALL_64.bin");
    let report = check_dir(&file, &Dwarf::new()).expect("a trace");
    assert!(report.not_for > 0 && report.wrong.is_empty(), "{report}");
    assert_eq!(report.not_for, report.samples);
    // Nothing was judged, which is no success.
    assert!(!report.is_ok());
    let text = report.to_string();
    assert!(text.contains("1000 stacks, which it is not for"), "{text}");
    // One that reads the kernel's table is for them.
    let orc = Orc::new(None, unwind_sim_unwind::derived::Tables::default());
    let report = check_dir(&file, &orc).expect("a trace");
    assert!(
        report.not_for < report.samples && report.judged > 0,
        "{report}"
    );
}

#[test]
fn check_dir_takes_a_perf_data_and_a_core() {
    use unwind_sim_unwind::dwarf::Dwarf;

    let folder = tempfile::tempdir().expect("a folder");
    let data = root("corpus/perfdata/dwarf.data");
    std::fs::copy(data, folder.path().join("a.data")).expect("a copy");
    let core = std::fs::read(root("corpus/cores/threads.core.zst")).expect("a core");
    let core = zstd::decode_all(&core[..]).expect("zstd");
    std::fs::write(folder.path().join("core"), core).expect("a core");
    std::fs::write(folder.path().join("notes.txt"), "no recording").expect("a text");
    let report = check_dir(folder.path(), &Dwarf::new()).expect("two recordings");
    assert_eq!(report.files, 2, "{report}");
    assert!(report.unread.is_empty(), "{report}");
    assert!(
        report.by_proof > 12 && report.by_proof == report.samples,
        "{report}"
    );
    let text = report.to_string();
    assert!(
        text.contains("judged by the frames that the code proves"),
        "{text}"
    );
}

/// What `unwinders` says with this folder in front of `PATH`.
fn listed(folder: &Path, options: &[&str]) -> String {
    let path = format!("{}:/usr/bin:/bin", folder.display());
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_unwind-sim"))
        .args(options)
        .env("PATH", path)
        .output()
        .expect("the tool runs");
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8(text).expect("text")
}

#[test]
fn an_adapter_is_ready_or_is_said_how_to_build() {
    // The folder of the tool comes first.
    let tool = Path::new(env!("CARGO_BIN_EXE_unwind-sim"));
    let beside = tool
        .parent()
        .expect("a folder")
        .join("unwind-sim-unwinder-libdw");
    if beside.exists() {
        return skip(
            "an_adapter_is_ready_or_is_said_how_to_build",
            "another adapter is beside the tool",
        );
    }
    let folder = tempfile::tempdir().expect("a folder");

    let build = "examples/own-unwinders/peers/build.sh FOLDER libdw";
    let text = listed(folder.path(), &["unwinders"]);
    let line = format!("not ready: {build}; needs libdw-dev libjson-c-dev\n");
    assert!(text.contains(&line), "{text}");
    let json = listed(folder.path(), &["unwinders", "--json"]);
    assert!(json.contains("\"name\":\"cmd:libdw\""), "{json}");
    assert!(json.contains("\"ready\":false"), "{json}");

    let trace = "corpus/traces/seed-004.bin";
    let refused = listed(folder.path(), &["replay", trace, "-u", "cmd:libdw"]);
    let said = format!("the adapter for libdw is not there: build it with `{build}`");
    assert!(refused.contains(&said), "{refused}");
    // Neither is a program of that name taken for an unwinder.
    let own = folder.path().join("libdw");
    std::fs::write(&own, "#!/bin/sh\n").expect("a program");
    std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    assert!(listed(folder.path(), &["replay", trace, "-u", "cmd:libdw"]).contains(&said));

    // A file of the adapter's name is taken for it.
    let there = folder.path().join("unwind-sim-unwinder-libdw");
    std::fs::rename(&own, &there).expect("the adapter");
    let text = listed(folder.path(), &["unwinders"]);
    assert!(
        text.contains(&format!("ready: {}\n", there.display())),
        "{text}"
    );
}

/// A `read` gives code of the image, too, and says how much of what was asked for is there.
#[test]
fn a_process_reads_code_and_parts() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let path = folder.path().join("own.sh");

    // It reads two bytes at the instruction, then eight of which three lie behind the stack's copy,
    // and logs both answers.
    let script = format!(
        "read unwind\n\
         rip=$(expr \"$unwind\" : '.*\"rip\":\"\\(0x[0-9a-f]*\\)\"')\n\
         end=$(expr \"$unwind\" : '.*\"stack\":\\[\"0x[0-9a-f]*\",\"\\(0x[0-9a-f]*\\)\"')\n\
         echo \"{{\\\"type\\\":\\\"read\\\",\\\"address\\\":\\\"$rip\\\",\\\"length\\\":2}}\"\n\
         read code; echo \"$code\" >> {log}\n\
         part=$(printf '%x' $((end - 5)))\n\
         echo \"{{\\\"type\\\":\\\"read\\\",\\\"address\\\":\\\"0x$part\\\",\\\"length\\\":8}}\"\n\
         read part; echo \"$part\" >> {log}\n\
         echo '{{\"type\":\"end\"}}'\n\
         while read line; do echo '{{\"type\":\"end\"}}'; done\n",
        log = quoted_path(&log),
    );

    std::fs::write(&path, script).expect("a script");
    let own = CommandUnwinder::start(&format!("sh {}", quoted_path(&path))).expect("it starts");
    chains(&trace("throws.bin"), &own, true);
    assert_eq!(own.fault(), None);

    let log = std::fs::read_to_string(&log).expect("what it read");
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();

    // Two bytes of code are four digits; of the eight at the end, five lie in the stack.
    let digits = |line: usize, field: &str| lines[line][field].as_str().map(str::len);
    assert_eq!(digits(0, "bytes"), Some(4), "{log}");
    assert_eq!(digits(1, "partial"), Some(10), "{log}");
    assert_eq!(lines[1]["length"], 5, "{log}");
    assert!(
        lines[1]["bytes"].is_null() && lines[1]["error"].is_string(),
        "{log}"
    );
}
