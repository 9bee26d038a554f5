//! What the formats say is true in the sense of their readers: CPU time, intervals, callers, symbols,
//! build ids, inlined functions.

use super::{corpus, file, printed, utf8};
use crate::common::decode;
use crate::common::skip::skip;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};
use unwind_sim_perf_data::callchain::{PERF_CONTEXT_KERNEL, PERF_CONTEXT_USER};
use unwind_sim_perf_data::write::{Body, EventSpec, Id, SampleData, Writer};
use unwind_sim_perf_data::{Comm, Mmap, MmapIdentity, flag, misc, sample_type as st};

/// Functions whose last instruction is a call: the return address is the next function's. Two are
/// instances of one template.
const PROGRAM: &str = "
    .macro function name
    .globl \\name
    .type \\name, @function
\\name:
    .endm
    .macro ending name
    .size \\name, . - \\name
    .endm
    function die
    hlt
    ending die
    function _Z4workIiEvv
    call die
    ending _Z4workIiEvv
    function _Z4workIdEvv
    call _Z4workIiEvv
    ending _Z4workIdEvv
    function never
    ret
    ending never
    function _start
    call _Z4workIdEvv
    hlt
    ending _start
";

/// The kernel's symbols: `called` is called by the last instruction of `caller`.
const KALLSYMS: &str = "\
ffffffff81000000 T _text
ffffffff81000000 T called
ffffffff81000100 T caller
ffffffff81000200 T next
ffffffff81000300 T _etext
";

/// A file that `gcc` makes of `source`.
fn built(folder: &Path, name: &str, source: &str, options: &[&str]) -> Option<PathBuf> {
    let (source_file, program) = (folder.join(name), folder.join("program"));
    std::fs::write(&source_file, source).expect("a file");
    let mut command = Command::new("gcc");
    command
        .args(options)
        .arg(&source_file)
        .arg("-o")
        .arg(&program);
    let status = command.status().ok()?;
    assert!(status.success(), "{options:?}");
    Some(program)
}

/// The symbols of a program: address and size, by name.
fn symbol(program: &Path, name: &str) -> Option<(u64, u64)> {
    let symbols = Command::new("nm").arg("-S").arg(program).output().ok()?;
    utf8(symbols.stdout).lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [start, size, _, found] = words[..] else {
            return None;
        };
        let number = |text| u64::from_str_radix(text, 16).ok();
        (found == name).then_some((number(start)?, number(size)?))
    })
}

/// A sample: its event, what it counts, and its chain.
type SampleChain<'a> = (usize, u64, &'a [u64]);

/// A recording of a program that is not position-independent, by two events: a clock at 999 Hz, and
/// page faults. The samples are 5 ms apart.
fn recorded(folder: &Path, program: &Path, samples: &[SampleChain<'_>]) -> PathBuf {
    let mut clock = EventSpec::software("cpu-clock", 0);
    clock.sample_type = st::IP | st::TID | st::TIME | st::PERIOD | st::CALLCHAIN | st::IDENTIFIER;
    // With `FREQ`, the field holds the frequency, and each sample its own period.
    (clock.flags, clock.sample_period) = (clock.flags | flag::FREQ, 999);
    clock.ids = vec![1];

    let mut faults = EventSpec::software("page-faults", 2);

    // A period of 1: every page fault is a sample.
    (faults.sample_type, faults.sample_period) = (clock.sample_type, 1);
    faults.ids = vec![2];

    let mut writer = Writer::new(vec![clock, faults]);
    let mut record = |body: &Body<'_>, event: usize, time| {
        // Each event has its own id.
        let id = Id {
            event,
            id: event as u64 + 1,
            pid: 7,
            tid: 7,
            time,
            ..Id::default()
        };
        writer.record(body, &id).expect("a record");
    };

    let mapping = |pid, address, length, path| Mmap {
        pid,
        tid: pid,
        address,
        length,
        file_offset: 0,
        identity: MmapIdentity::Path,
        // PROT_READ | PROT_EXEC, MAP_PRIVATE.
        protection: 5,
        flags: 2,
        path,
    };

    // The mapping of the kernel belongs to no process: its pid is -1.
    let kernel = mapping(-1, 0xffff_ffff_8100_0000, 0x300, b"[kernel.kallsyms]_text");
    let cpumode = misc::CPUMODE_KERNEL;
    record(
        &Body::Mmap {
            mmap: kernel,
            cpumode,
        },
        0,
        1,
    );

    // An `exec`, so that what follows is this program's.
    let comm = Comm {
        pid: 7,
        tid: 7,
        exec: true,
        name: b"program",
    };
    record(&Body::Comm(comm), 0, 2);

    let path = program.to_str().expect("a path").as_bytes();
    let mmap = mapping(7, 0x40_0000, 0x10_0000, path);
    let cpumode = misc::CPUMODE_USER;
    record(&Body::Mmap { mmap, cpumode }, 0, 3);

    for ((event, period, callchain), number) in samples.iter().zip(1..) {
        let sample = SampleData {
            misc: misc::CPUMODE_USER,
            // The first entry is the context, the second the sampled address.
            ip: callchain[1],
            period: *period,
            callchain,
            ..SampleData::default()
        };
        record(&Body::Sample(sample), *event, number * 5_000_000);
    }

    let recording = folder.join("perf.data");
    std::fs::write(&recording, writer.finish()).expect("a file");
    recording
}

/// The recording of [`PROGRAM`]; `None` without a compiler.
fn of_calls(folder: &tempfile::TempDir) -> Option<PathBuf> {
    let options = ["-nostdlib", "-static", "-no-pie"];
    let program = built(folder.path(), "program.s", PROGRAM, &options)?;
    let at = |name| symbol(&program, name).map(|found| found.0);
    let behind = |name| symbol(&program, name).map(|(start, size)| start + size);

    // Return addresses: that of `_start` is behind its first instruction, a call of 5 bytes; the
    // others end with their calls.
    let user = [
        PERF_CONTEXT_USER,
        at("die")?,
        behind("_Z4workIiEvv")?,
        behind("_Z4workIdEvv")?,
        at("_start")? + 5,
    ];

    // In a callchain the kernel's part comes first, each part behind its marker (`enum
    // perf_callchain_context`).
    let kernel = [
        PERF_CONTEXT_KERNEL,
        0xffff_ffff_8100_0010,
        0xffff_ffff_8100_0200,
    ];
    let in_kernel: Vec<u64> = kernel.iter().chain(&user).copied().collect();

    let samples = [
        (0, 1_001_001, &user[..]),
        (0, 1_001_001, &in_kernel[..]),
        (0, 2_500_000, &user[..]),
        (1, 1, &user[..]),
    ];

    Some(recorded(folder.path(), &program, &samples))
}

fn script(folder: &tempfile::TempDir, recording: &Path, format: &str) -> Vec<u8> {
    let kallsyms = file(folder, "kallsyms", KALLSYMS.as_bytes());
    let kallsyms = kallsyms.to_str().expect("a path");
    let args = ["perf", "script", "--kallsyms", kallsyms, "--format", format];
    printed(&args, recording)
}

#[test]
fn callers_are_the_functions_that_called() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(recording) = of_calls(&folder) else {
        return skip(
            "callers_are_the_functions_that_called",
            "gcc and nm are not installed",
        );
    };
    let callers = "_start;void work<double>();void work<int>();die";
    // Two samples in user space are alike; that in the kernel has two more frames.
    let expected = format!(
        "program [cpu-clock];{callers} 2\n\
         program [cpu-clock];{callers};caller;called 1\n\
         program [page-faults];{callers} 1\n"
    );
    assert_eq!(utf8(script(&folder, &recording, "folded")), expected);

    let expected = decode::folded(&expected);
    let read = |format| script(&folder, &recording, format);
    assert_eq!(decode::speedscope(&read("speedscope")), expected);
    assert_eq!(
        decode::firefox(&decode::unzipped(&read("firefox"))),
        expected
    );
    assert_eq!(decode::pprof(&decode::unzipped(&read("pprof"))).0, expected);

    // perf prints the addresses as they are.
    let text = utf8(read("perf-script"));
    assert!(text.contains(" next+0x0 ([kernel.kallsyms])"), "{text}");
    assert!(text.contains(" never+0x0 ("), "{text}");
}

#[test]
fn cpu_time_is_what_a_clock_counted() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(recording) = of_calls(&folder) else {
        return skip(
            "cpu_time_is_what_a_clock_counted",
            "gcc and nm are not installed",
        );
    };
    let firefox = decode::unzipped(&script(&folder, &recording, "firefox"));
    let firefox: serde_json::Value = serde_json::from_slice(&firefox).expect("JSON");

    // The period at 999 Hz.
    let interval = firefox["meta"]["interval"].as_f64().expect("an interval");
    assert!((interval - 1.001).abs() < 0.001, "{interval} ms");

    // Each event has a thread of its own.
    let threads = firefox["threads"].as_array().expect("threads");
    let deltas = |event: &str| {
        let named = |thread: &&serde_json::Value| thread["name"] == format!("program [{event}]");
        let thread = threads.iter().find(named).expect("the event's thread");
        thread["samples"].get("threadCPUDelta").cloned()
    };
    // In microseconds.
    assert_eq!(
        deltas("cpu-clock"),
        Some(serde_json::json!([1001, 1001, 2500]))
    );
    assert_eq!(deltas("page-faults"), None);

    let pprof = decode::pprof_facts(&decode::unzipped(&script(&folder, &recording, "pprof")));
    assert_eq!(
        pprof.period_type,
        ("cpu-clock".to_owned(), "nanoseconds".to_owned())
    );
    assert_eq!(pprof.period, 1_001_001);
    assert_eq!(pprof.duration_nanos, 15_000_000);

    // The recording's file was written when the last sample was taken, so the profile ends there.
    let ended = UNIX_EPOCH + Duration::from_nanos((pprof.time_nanos + pprof.duration_nanos) as u64);
    let written = std::fs::metadata(&recording)
        .expect("the recording")
        .modified();
    assert_eq!(ended, written.expect("a time"));
    let began = firefox["meta"]["startTime"].as_f64().expect("a time");
    assert!(
        (began * 1e6 - pprof.time_nanos as f64).abs() < 1e6,
        "{began} ms"
    );
}

#[test]
fn functions_have_their_symbol_and_files_their_build_id() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(recording) = of_calls(&folder) else {
        let name = "functions_have_their_symbol_and_files_their_build_id";
        return skip(name, "gcc and nm are not installed");
    };

    let facts = |bytes: &[u8]| decode::pprof_facts(&decode::unzipped(bytes));
    let functions = facts(&script(&folder, &recording, "pprof")).functions;

    // Names are demangled, symbols are as in the file.
    for (name, symbol) in [
        ("void work<int>()", "_Z4workIiEvv"),
        ("void work<double>()", "_Z4workIdEvv"),
        ("die", "die"),
    ] {
        let expected = (name.to_owned(), symbol.to_owned());
        assert!(functions.contains(&expected), "{functions:?}");
    }

    // The ids that are in the recording's own table.
    let recording = corpus("perfdata/kernel-frames.data");
    let bytes = std::fs::read(&recording).expect("the recording");
    let table = unwind_sim_perf_data::PerfFile::parse(&bytes).expect("a perf.data");
    let kernel = table.build_ids().map(|id| id.expect("a build id"));
    let kernel = kernel.filter(|id| id.kernel).map(|id| hex(id.id)).next();
    let kernel = kernel.expect("the kernel's");

    // Both commands that write profiles.
    for args in [
        &["perf", "script", "--format"][..],
        &["replay", "--unwinder", "dwarf", "--format"],
    ] {
        let of = |format| printed(&[args, &[format]].concat(), &recording);
        let files = facts(&of("pprof")).files;
        let expected = ("[kernel.kallsyms]".to_owned(), kernel.clone());
        assert!(files.contains(&expected), "{args:?}: {files:?}");

        let firefox: serde_json::Value =
            serde_json::from_slice(&decode::unzipped(&of("firefox"))).expect("JSON");
        let libs = firefox["libs"].as_array().expect("libraries");
        let found = libs.iter().find(|lib| lib["name"] == "[kernel.kallsyms]");
        assert_eq!(found.expect("the kernel")["codeId"], *kernel, "{args:?}");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `inner` and `middle` are inlined into `outer`.
const INLINED: &str = "
static inline __attribute__((always_inline)) int inner(int n) { return __builtin_ia32_rdtsc() ^ n; }
static inline __attribute__((always_inline)) int middle(int n) { return inner(n) + 1; }
__attribute__((noinline)) int outer(int n) { return middle(n) * 3; }
void _start(void) { outer(7); for (;;); }
";

#[test]
fn inlined_functions_are_frames_as_in_perf() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let name = "inlined_functions_are_frames_as_in_perf";

    // Inlined functions are described differently in the two versions.
    for form in ["-gdwarf-5", "-gdwarf-4"] {
        let options = [
            "-O2",
            form,
            "-nostdlib",
            "-static",
            "-no-pie",
            "-ffreestanding",
        ];
        let Some(program) = built(folder.path(), "inlined.c", INLINED, &options) else {
            return skip(name, "gcc and nm are not installed");
        };
        let Some((outer, _)) = symbol(&program, "outer") else {
            return skip(name, "gcc and nm are not installed");
        };
        // The instruction that `inner` is made of.
        let bytes = std::fs::read(&program).expect("the program");
        let rdtsc = bytes.windows(2).position(|two| two == [0x0f, 0x31]);
        let rdtsc = 0x40_0000 + rdtsc.expect("rdtsc") as u64;
        let chain = [PERF_CONTEXT_USER, rdtsc];
        let recording = recorded(folder.path(), &program, &[(0, 1_000_000, &chain)]);

        // Three frames of one address: two are inlined.
        let frames = "program;outer;middle;inner 1\n";
        let offset = rdtsc - outer;
        let text = utf8(printed(&["perf", "script"], &recording));
        let lines: Vec<&str> = text.lines().skip(1).map(str::trim).collect();
        assert_eq!(
            lines[0],
            format!("{rdtsc:x} inner+{offset:#x} (inlined)"),
            "{form}"
        );
        assert_eq!(
            lines[1],
            format!("{rdtsc:x} middle+{offset:#x} (inlined)"),
            "{form}"
        );
        let own = format!("{rdtsc:x} outer+{offset:#x} ({})", program.display());
        assert_eq!(lines[2], own, "{form}");

        let expected = decode::folded(frames);
        let of = |format| printed(&["perf", "script", "--format", format], &recording);
        assert_eq!(utf8(of("folded")), frames);
        assert_eq!(decode::speedscope(&of("speedscope")), expected);
        assert_eq!(decode::firefox(&decode::unzipped(&of("firefox"))), expected);
        assert_eq!(decode::pprof(&decode::unzipped(&of("pprof"))).0, expected);

        // Without them, only the function that is there.
        let plain = ["perf", "script", "--no-inline", "--format", "folded"];
        assert_eq!(utf8(printed(&plain, &recording)), "program;outer 1\n");
    }
}
